//! The result of one measurement of one subject.

pub use spanwire_host::fabric::Error;

use crate::quiet::{Stolen, ThreadUse};
use serde::{Deserialize, Serialize};
use spanwire_base::u32_from;

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
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Rate {
    /// Payload, 10^9 bits a second.
    pub goodput_gbps: f64,
    /// Data packets a second that delivered payload; zero for TCP, whose packets differ from layer
    /// to layer.
    pub packets_per_s: f64,
    /// Packets retransmitted (engine), or sent and never received (raw).
    pub lost: u64,
    /// Payload bytes of a full data packet; zero for TCP.
    pub payload: u32,
    /// Payload bytes received in the whole sample.
    pub bytes: u64,
    /// Bytes compared with those sent; zero without a comparison. A difference fails the sample.
    pub verified_bytes: u64,
    /// Packets that a system call sent, in the mean; zero if unknown.
    pub packets_per_call: f64,
    /// Processor seconds of both threads, user and system.
    pub cpu_s: f64,
    /// Cores of the machine that were not idle, whatever used them; zero if unknown.
    pub busy_cores: f64,
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
    /// a rate of zero.
    #[must_use]
    pub fn of_packets(packets: u64, payload: usize, seconds: f64, lost: u64) -> Self {
        let none = Self { lost, payload: u32_from(payload), ..Self::default() };
        if seconds <= 0.0 {
            return none;
        }
        let packets_per_s = packets as f64 / seconds;
        let goodput_gbps = packets_per_s * payload as f64 * 8.0 / 1e9;
        Self { goodput_gbps, packets_per_s, ..none }
    }

    /// Processor seconds for 10^9 bytes of payload; `None` if nothing was received.
    #[must_use]
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.cpu_s / (self.bytes as f64 / 1e9))
    }

    /// Processor time of both threads over that of the sample: cores that they used; `None` if
    /// nothing was received.
    #[must_use]
    pub fn cores(&self) -> Option<f64> {
        Some(self.cpu_s_per_gb()? * self.goodput_gbps / 8.0)
    }
}

impl Sample {
    /// The sample of a rate, with the use of their cores by both threads.
    #[must_use]
    pub fn rate(rate: Rate, ends: [ThreadUse; 2]) -> Self {
        let cpu_s = ends.iter().map(|end| end.cpu_s).sum();
        let reading = Reading::Rate(Rate { cpu_s, ..rate });
        Self { reading, stolen: ends.map(|end| end.stolen) }
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

    #[test]
    fn cpu_s_per_gb__is_that_of_both_threads() {
        let ends = [0.25, 0.5].map(|cpu_s| ThreadUse { cpu_s, ..ThreadUse::default() });
        let rate = Rate { bytes: 500_000_000, goodput_gbps: 2.0, ..Rate::default() };
        let Reading::Rate(rate) = Sample::rate(rate, ends).reading else { panic!("a rate") };
        // Two seconds.
        assert_eq!((rate.cpu_s_per_gb(), rate.cores()), (Some(1.5), Some(0.375)));
        assert_eq!((Rate::default().cpu_s_per_gb(), Rate::default().cores()), (None, None));
    }
}
