//! Integer time in picoseconds: one bit at 400 Gbit/s (2.5 ps) still has a duration, and float
//! rounding cannot make two runs of one seed differ.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in time: picoseconds since the node started. Never decreases for one node.
///
/// A `u64` of picoseconds lasts 213 days. Arithmetic saturates at the end of the range, so after
/// that an endpoint stops arming timers rather than wrapping into the past.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A duration in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dur(u64);

impl Time {
    /// The start of the node.
    pub const ZERO: Self = Self(0);
    /// The end of the range: later than every deadline.
    pub const MAX: Self = Self(u64::MAX);

    /// From picoseconds since the node started.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the node started.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// From nanoseconds since the node started; saturates.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// Whole nanoseconds since the node started.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }

    /// The time since `earlier`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Dur {
        Dur(self.0.saturating_sub(earlier.0))
    }
}

impl Dur {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest duration: longer than any node runs.
    pub const MAX: Self = Self(u64::MAX);

    /// From picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// From nanoseconds; saturates.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// From microseconds; saturates.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// From microseconds, by the name that [`core::time::Duration`] uses; saturates.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self::from_us(us)
    }

    /// From milliseconds; saturates.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000_000))
    }

    /// From seconds; saturates.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000_000))
    }

    /// Picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole microseconds.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000_000_000
    }
}

impl Add<Dur> for Time {
    type Output = Self;
    fn add(self, d: Dur) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Dur> for Time {
    fn add_assign(&mut self, d: Dur) {
        *self = *self + d;
    }
}

impl Sub<Dur> for Time {
    type Output = Self;
    fn sub(self, d: Dur) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl Add for Dur {
    type Output = Self;
    fn add(self, d: Self) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl Sub for Dur {
    type Output = Self;
    fn sub(self, d: Self) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl Mul<u64> for Dur {
    type Output = Self;
    fn mul(self, k: u64) -> Self {
        Self(self.0.saturating_mul(k))
    }
}

impl Div<u64> for Dur {
    type Output = Self;
    fn div(self, k: u64) -> Self {
        Self(self.0 / k)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{:?}", Dur(self.0))
    }
}

impl fmt::Debug for Dur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => (1, "ps"),
            1_000..1_000_000 => (1_000, "ns"),
            1_000_000..1_000_000_000 => (1_000_000, "us"),
            1_000_000_000..1_000_000_000_000 => (1_000_000_000, "ms"),
            _ => (1_000_000_000_000, "s"),
        };
        let whole = self.0 / unit;
        let milli = (self.0 % unit) * 1_000 / unit;
        if milli == 0 { write!(f, "{whole}{name}") } else { write!(f, "{whole}.{milli:03}{name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add__saturates_at_the_end_of_the_range() {
        assert_eq!(Time::MAX + Dur::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Dur::from_ps(1), Time::ZERO);
        assert_eq!(Dur::from_secs(u64::MAX), Dur::MAX);
    }

    #[test]
    fn since__is_zero_when_the_other_is_later() {
        assert_eq!(Time::from_ns(1).since(Time::from_ns(2)), Dur::ZERO);
        assert_eq!(Time::from_ns(5).since(Time::from_ns(2)), Dur::from_ps(3_000));
    }

    #[test]
    fn debug__chooses_a_readable_unit() {
        assert_eq!(format!("{:?}", Dur::from_ns(1_500)), "1.500us");
        assert_eq!(format!("{:?}", Time::from_ns(2_000_000)), "t+2ms");
    }
}
