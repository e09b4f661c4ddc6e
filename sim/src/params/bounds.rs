//! The ranges of parameters, by name: a name has one meaning in all scenarios.

use spanwire_base::{Dur, Rate};
use std::ops::RangeInclusive;

/// The range of a number of bytes.
pub(super) fn bytes(name: &str) -> RangeInclusive<u64> {
    match name {
        // An atomic needs 8 bytes; the length of a message is a 31-bit number on the wire.
        "message" => 8..=1 << 30,
        // Limits of the switch; a buffer holds at least one large frame.
        "buffer" | "border_buffer" | "dci_buffer" => 64_000..=SWITCH_BYTES_MAX,
        "queue" | "dci_mark" | "phantom" => 1_000..=SWITCH_BYTES_MAX,
        _ => 1..=1 << 36,
    }
}

/// True for a count that has a meaning within the parameter's own range.
pub(super) fn is_count(name: &str, n: u64) -> bool {
    // 0 is the path MTU.
    name != "segment" || n == 0 || n >= SEGMENT_MIN
}

/// The range of a rate: from a link that takes 0.5 s for a frame to ten times those that exist.
pub(super) fn rate() -> RangeInclusive<Rate> {
    Rate::from_bps(1_000_000)..=Rate::from_gbps(10_000)
}

/// The range of a time, and of each of several.
pub(super) fn time(name: &str) -> RangeInclusive<Dur> {
    match name {
        // More samples than one each 100 ns fill the memory.
        "sample" => Dur::from_ns(100)..=HOUR,
        // IBTA 9.7.6.1.3: 4.096 us times a power of 2.
        "timeout" => Dur::from_us(1)..=HOUR,
        // One way, and both: longer than by a geostationary satellite.
        "delay" | "far" | "late" => Dur::ZERO..=Dur::from_ms(400),
        "rtt" => Dur::from_ns(1)..=Dur::from_ms(800),
        // Their zero is a run, a bin, a mean or a filter without duration.
        "time" | "bin" | "span" | "smooth" | "stage" | "period" | "down" | "lasts" => {
            Dur::from_ns(100)..=HOUR
        }
        // Those of the congestion controls that they set.
        "theta" => Dur::from_us(10)..=Dur::from_secs(100),
        "target" => Dur::from_us(1)..=Dur::from_secs(1),
        "low" | "high" => Dur::from_us(1)..=Dur::from_secs(1),
        _ => Dur::ZERO..=HOUR,
    }
}

/// Bytes of the shortest full packet of SR.
pub(super) const SEGMENT_MIN: u64 = 64;

const SWITCH_BYTES_MAX: u64 = 64_000_000_000;

const HOUR: Dur = Dur::from_secs(3600);
