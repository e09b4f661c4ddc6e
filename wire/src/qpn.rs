//! Queue pair numbers.

use core::fmt;

/// A queue pair number (IBTA: QPN), 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The bits of a QPN.
    pub const MASK: u32 = 0xff_ffff;
    /// QP 1, the General Services Interface: the destination of connection management datagrams.
    pub const GSI: Self = Self(1);

    /// The QPN of the low 24 bits of `v`.
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
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qpn({:#x})", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__masks_to_24_bits() {
        assert_eq!(Qpn::new(0xab00_0001), Qpn::GSI);
        assert_eq!(Qpn::new(u32::MAX).get(), Qpn::MASK);
    }
}
