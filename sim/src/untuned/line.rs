//! A line of the matrix: rate, delay, queue and frames of a bottleneck.

use spanwire_base::{Dur, Rate};
use spanwire_switch::Human;

/// A bottleneck between hosts with faster links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// Its rate.
    pub(super) rate: Rate,
    /// One-way delay.
    pub(super) delay: Dur,
    /// Limit of the queue.
    pub(super) queue_bytes: u64,
}

impl Line {
    /// A line with a queue of 1 MB or two bandwidth-delay products, whichever is larger.
    pub(super) fn new(mbit: u64, delay_us: u64) -> Self {
        let rate = Rate::from_bps(mbit * 1_000_000);
        let line = Self { rate, delay: Dur::from_us(delay_us), queue_bytes: 0 };
        Self { queue_bytes: (2 * line.bdp_bytes()).max(1_000_000), ..line }
    }

    /// The product of rate and round-trip time, without queueing.
    pub(super) fn bdp_bytes(&self) -> u64 {
        self.rate.bytes_in(self.delay * 2)
    }

    /// Its name: `200M/1ms`.
    pub(super) fn name(&self) -> String {
        let mbit = self.rate.as_bps() / 1_000_000;
        let rate = match mbit {
            mbit if mbit >= 1000 && mbit % 1000 == 0 => format!("{}G", mbit / 1000),
            mbit => format!("{mbit}M"),
        };
        format!("{rate}/{}", self.delay.show())
    }

    /// True if hosts of this machine cannot carry it.
    pub(super) fn is_fast(&self) -> bool {
        self.rate >= Rate::from_gbps(10)
    }

    /// The parameters of a scenario with this line, apart from the duration.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let near = if self.is_fast() { Dur::from_us(1) } else { Dur::from_ns(100) };
        // The links of both hosts are part of the delay.
        let far = Dur::from_ps(self.delay.as_ps().saturating_sub(2 * near.as_ps()));
        let frames = if self.is_fast() { JUMBO } else { ETHERNET };
        // On a slow line the sender has as much outstanding as `spanwire perf`, on a fast one as
        // much as the path needs.
        let (message, outstanding) = match (self.is_fast(), self.delay < LONG) {
            (false, _) => ("64KiB", "16"),
            (true, true) => ("64KiB", "2048"),
            (true, false) => ("1MiB", "2048"),
        };
        let twice = Rate::from_bps(self.rate.as_bps() * 2);
        let host_rate = if self.is_fast() { twice } else { Rate::from_gbps(10) };
        let set = [
            ("rate", self.rate.show()),
            ("host_rate", host_rate.show()),
            ("delay", near.show()),
            ("far", far.show()),
            ("queue", self.queue_bytes.to_string()),
            ("buffer", (2 * self.queue_bytes).max(64_000_000).to_string()),
            ("mark", "none".to_owned()),
            ("message", message.to_owned()),
            ("outstanding", outstanding.to_owned()),
            ("window", WINDOW.to_string()),
            ("timeout", "67ms".to_owned()),
        ];
        let frames = frames.map(|(name, text)| (name, text.to_owned()));
        set.into_iter().chain(frames).collect()
    }
}

/// Frames of 1500-byte Ethernet.
const ETHERNET: [(&str, &str); 2] = [("mtu", "1024"), ("segment", "1408")];
/// Frames of an MTU of 9000 bytes, which is customary where links are fast.
const JUMBO: [(&str, &str); 2] = [("mtu", "4096"), ("segment", "8908")];
/// The delay of a long line.
const LONG: Dur = Dur::from_ms(10);
/// The window limit of `spanwire perf` with congestion control, in packets.
const WINDOW: u32 = 16_384;
