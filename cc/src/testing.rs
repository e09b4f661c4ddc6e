//! Helpers for the tests of all algorithms.

use crate::Path;
use spanwire_base::{Dur, Rate, Time};

pub(crate) fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

pub(crate) fn at_ns(ns: u64) -> Time {
    Time::ZERO + Dur::from_ns(ns)
}

pub(crate) fn path(mtu_bytes: u32, gbps: u64, base_rtt: Option<Dur>) -> Path {
    Path { mtu_bytes, line_rate: Rate::from_gbps(gbps), base_rtt }
}

/// Equal to one part in 10^9.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
