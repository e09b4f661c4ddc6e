//! Rates in bits per second and the exact transmission time of bytes.

use crate::Dur;
use core::fmt;

const PS_PER_S: u128 = 1_000_000_000_000;

/// A rate in bits per second, never zero (an absent rate is an `Option`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// From bits per second.
    ///
    /// # Panics
    /// If `bps` is zero, which is an error of the caller: rates from the network are checked
    /// before.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        assert!(bps > 0, "a rate of zero bits per second never sends");
        Self(bps)
    }

    /// From gigabits per second.
    #[must_use]
    pub const fn from_gbps(gbps: u64) -> Self {
        Self::from_bps(gbps * 1_000_000_000)
    }

    /// Bits per second.
    #[must_use]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// The transmission time of `bytes`, rounded up to a picosecond: late, never early.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Dur {
        // The product of a frame fits 64 bits, whose division is several times as fast.
        if let Some(bit_ps) = bytes.checked_mul(8 * 1_000_000_000_000) {
            return Dur::from_ps(bit_ps.div_ceil(self.0));
        }
        let ps = (u128::from(bytes) * 8 * PS_PER_S).div_ceil(u128::from(self.0));
        Dur::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// The whole bytes transmitted in `d`.
    #[must_use]
    pub fn bytes_in(self, d: Dur) -> u64 {
        let bytes = u128::from(d.as_ps()) * u128::from(self.0) / (8 * PS_PER_S);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The rate of `bytes` in `d`, or `None` if either is zero.
    #[must_use]
    pub fn of(bytes: u64, d: Dur) -> Option<Self> {
        if d == Dur::ZERO {
            return None;
        }
        let bps = u128::from(bytes) * 8 * PS_PER_S / u128::from(d.as_ps());
        u64::try_from(bps).ok().filter(|bps| *bps > 0).map(Self)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bit/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_for__is_exact_at_400_gbps_and_rounds_up() {
        assert_eq!(Rate::from_gbps(400).time_for(1), Dur::from_ps(20));
        assert_eq!(Rate::from_bps(3).time_for(1), Dur::from_ps(2_666_666_666_667));
    }

    #[test]
    fn bytes_in__inverts_time_for() {
        let r = Rate::from_bps(123_456_789);
        for bytes in [1, 9, 1500, 1 << 30] {
            assert_eq!(r.bytes_in(r.time_for(bytes)), bytes);
        }
    }

    #[test]
    fn of__is_none_for_nothing() {
        assert_eq!(Rate::of(0, Dur::from_secs(1)), None);
        assert_eq!(Rate::of(1, Dur::ZERO), None);
        assert_eq!(Rate::of(125_000_000, Dur::from_secs(1)), Some(Rate::from_gbps(1)));
    }
}
