//! The datagram extended transport header, 8 bytes: Q_Key 32 | reserved 8 | source QP 24.

use crate::be;
use crate::{DropReason, Qpn};

/// Bytes of a DETH.
pub(crate) const LEN: usize = 8;

/// A DETH in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct Deth<'a>(&'a [u8; LEN]);

/// A DETH's fields. The reserved byte is ignored on receipt and sent as 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DethRepr {
    /// The queue key that the receiving queue pair requires.
    pub qkey: u32,
    /// The queue pair that sent the datagram, the destination of a reply.
    pub src_qp: Qpn,
}

impl<'a> Deth<'a> {
    /// The view of the first 8 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The queue key.
    #[must_use]
    pub const fn qkey(&self) -> u32 {
        be::u32_at(self.0, 0)
    }

    /// The queue pair that sent the datagram.
    #[must_use]
    pub const fn src_qp(&self) -> Qpn {
        Qpn::new(be::u24_at(self.0, 5))
    }
}

impl DethRepr {
    /// The fields of a DETH.
    #[must_use]
    #[inline]
    pub const fn parse(deth: &Deth<'_>) -> Self {
        Self { qkey: deth.qkey(), src_qp: deth.src_qp() }
    }

    /// Writes all 8 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        be::put(out, 0, self.qkey.to_be_bytes());
        be::put(out, 4, self.src_qp.get().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__ignores_the_reserved_byte() {
        let wire = [0x11, 0x22, 0x33, 0x44, 0xff, 5, 6, 7];
        let r = DethRepr::parse(&Deth::new(&wire).unwrap());
        assert_eq!((r.qkey, r.src_qp), (0x1122_3344, Qpn::new(0x05_0607)));
        let mut out = [0xaa; 8];
        r.emit(&mut out);
        assert_eq!(out, [0x11, 0x22, 0x33, 0x44, 0, 5, 6, 7]);
        assert_eq!(Deth::new(&wire[1..]).unwrap_err(), DropReason::ExtTooShort);
    }
}
