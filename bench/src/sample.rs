//! What one measurement of one subject yields.

use crate::quiet::Stolen;
use serde::Serialize;

/// An error with what, where, and what to do.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What one measurement yields, and how far it was disturbed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The measurement.
    pub reading: Reading,
    /// What other programs took from the two threads: the sender's or client's first.
    pub stolen: [Stolen; 2],
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reading {
    /// Of how much went through.
    Rate(Rate),
    /// Of how long one message took.
    Latency(Latency),
}

/// How much went through, one way.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rate {
    /// Payload, 10^9 bits a second.
    pub goodput_gbps: f64,
    /// Data packets a second that delivered payload; zero for TCP, whose packets depend on where
    /// one looks.
    pub packets_per_s: f64,
    /// Packets sent again (engine), or sent and never received (raw).
    pub lost: u64,
}

/// How long a message takes: there and back.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Median of the round trip in microseconds.
    pub rtt_p50_us: f64,
    /// 99th percentile of the round trip in microseconds.
    pub rtt_p99_us: f64,
}

impl Rate {
    /// The rate of `packets` packets of `payload` bytes each in `seconds`. No time gives zeros.
    #[must_use]
    pub fn of_packets(packets: u64, payload: usize, seconds: f64, lost: u64) -> Self {
        if seconds <= 0.0 {
            return Self { goodput_gbps: 0.0, packets_per_s: 0.0, lost };
        }
        let packets_per_s = packets as f64 / seconds;
        Self { goodput_gbps: packets_per_s * payload as f64 * 8.0 / 1e9, packets_per_s, lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_packets__counts_payload_bits() {
        let rate = Rate::of_packets(1_000_000, 1000, 2.0, 3);
        assert!((rate.packets_per_s - 500_000.0).abs() < 1e-6);
        assert!((rate.goodput_gbps - 4.0).abs() < 1e-9);
        assert_eq!(rate.lost, 3);
    }

    #[test]
    fn of_packets__no_time_is_no_rate() {
        let rate = Rate::of_packets(5, 1000, 0.0, 0);
        assert!(rate.packets_per_s == 0.0 && rate.goodput_gbps == 0.0);
    }
}
