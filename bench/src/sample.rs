//! The result of one measurement of one subject.

pub use crate::error::Error;

use crate::quiet::Stolen;
use serde::{Deserialize, Serialize};

/// The result of one measurement, and its disturbance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The measurement.
    pub reading: Reading,
    /// The steal of the two threads: the sender's or client's first.
    pub stolen: [Stolen; 2],
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reading {
    /// Of throughput.
    Rate(Rate),
    /// Of latency.
    Latency(Latency),
}

/// One-way throughput.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rate {
    /// Payload, 10^9 bits a second.
    pub goodput_gbps: f64,
    /// Data packets a second that delivered payload; zero for TCP, whose packets differ from layer
    /// to layer.
    pub packets_per_s: f64,
    /// Packets retransmitted (engine), or sent and never received (raw).
    pub lost: u64,
}

/// The latency of a message: its round trip.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Median of the round trip in microseconds.
    pub rtt_p50_us: f64,
    /// 99th percentile of the round trip in microseconds.
    pub rtt_p99_us: f64,
}

impl Rate {
    /// The rate of `packets` packets of `payload` bytes each in `seconds`. Zero `seconds` give
    /// zeros.
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
