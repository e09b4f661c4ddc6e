//! 24-bit packet sequence numbers, compared by serial number arithmetic.

use core::fmt;

/// A packet sequence number (IBTA: PSN), 24 bits, counting modulo 2^24.
///
/// It has no `Ord` on purpose: "smaller" is defined only between two numbers less than 2^23 apart
/// ([`Psn::since`], [`Psn::is_before`]). A transport keeps its windows far below 2^23 packets, so
/// that every comparison is defined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The bits of a PSN.
    pub const MASK: u32 = 0xff_ffff;

    /// The PSN of the low 24 bits of `v`.
    #[must_use]
    #[inline]
    pub const fn new(v: u32) -> Self {
        Self(v & Self::MASK)
    }

    /// The number, 0..2^24.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The PSN `n` packets later, modulo 2^24.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` packets earlier, modulo 2^24.
    #[must_use]
    pub const fn minus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// The number of packets from `earlier` to this one, in -2^23..2^23: negative if it is before.
    ///
    /// Two PSNs exactly 2^23 apart are each -2^23 from the other.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i32 {
        // With the 24 bits at the top of a word the wrap at 2^32 is the wrap at 2^24, and the
        // arithmetic shift brings the sign down.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }

    /// True if this one was sent before `o`, provided they are less than 2^23 apart.
    #[must_use]
    pub const fn is_before(self, o: Self) -> bool {
        self.since(o) < 0
    }

    /// The number of packets forward from `earlier` to this one, in 0..2^24.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn new__masks_to_24_bits() {
        assert_eq!(Psn::new(0xff00_0001), Psn::new(1));
        assert_eq!(Psn::new(0x100_0000).get(), 0);
    }

    #[test]
    fn next__wraps_at_the_end() {
        assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).minus(1), Psn::new(0xff_ffff));
    }

    #[test]
    fn since__is_signed_across_the_wrap() {
        let (a, b) = (Psn::new(0xff_fffe), Psn::new(1));
        assert_eq!((b.since(a), a.since(b)), (3, -3));
        assert!(a.is_before(b) && !b.is_before(a) && !a.is_before(a));
    }

    #[test]
    fn since__half_the_number_space_is_negative() {
        let (a, b) = (Psn::new(5), Psn::new(5 + (1 << 23)));
        assert_eq!((a.since(b), b.since(a)), (-(1 << 23), -(1 << 23)));
        assert_eq!(Psn::new(4 + (1 << 23)).since(a), (1 << 23) - 1);
    }

    #[test]
    fn distance_from__is_unsigned() {
        assert_eq!(Psn::new(0).distance_from(Psn::new(1)), 0xff_ffff);
        assert_eq!(Psn::new(2).distance_from(Psn::new(0xff_ffff)), 3);
    }

    proptest! {
        /// The oracle is 64-bit arithmetic on an unwrapped counter.
        #[test]
        fn since__matches_an_unwrapped_counter(at in 0u64..1 << 40, by in -(1i32 << 23)..1 << 23) {
            let wrap = |v: u64| Psn::new(u32::try_from(v % (1 << 24)).unwrap());
            let at = at + (1 << 23);
            let (a, b) = (wrap(at), wrap(at.checked_add_signed(i64::from(by)).unwrap()));
            prop_assert_eq!(b.since(a), by);
            prop_assert_eq!(b.is_before(a), by < 0);
            let moved = if by < 0 { a.minus(by.unsigned_abs()) } else { a.plus(by.unsigned_abs()) };
            prop_assert_eq!(moved, b);
            prop_assert_eq!(a.plus(b.distance_from(a)), b);
        }
    }
}
