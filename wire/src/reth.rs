//! The RDMA extended transport header, 16 bytes: VA 64 | rkey 32 | DMA length 32.

use crate::DropReason;
use crate::be;

/// Bytes of a RETH.
pub(crate) const LEN: usize = 16;

/// A RETH in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct Reth<'a>(&'a [u8; LEN]);

/// A RETH's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RethRepr {
    /// The address in the remote region, as its owner advertised it.
    pub va: u64,
    /// The remote region's key.
    pub rkey: u32,
    /// Bytes of the whole message, not of this packet.
    pub dma_len: u32,
}

impl<'a> Reth<'a> {
    /// The view of the first 16 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The remote address.
    #[must_use]
    pub const fn va(&self) -> u64 {
        be::u64_at(self.0, 0)
    }

    /// The remote region's key.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        be::u32_at(self.0, 8)
    }

    /// Bytes of the whole message.
    #[must_use]
    pub const fn dma_len(&self) -> u32 {
        be::u32_at(self.0, 12)
    }
}

impl RethRepr {
    /// The fields of a RETH.
    #[must_use]
    #[inline]
    pub const fn parse(reth: &Reth<'_>) -> Self {
        Self { va: reth.va(), rkey: reth.rkey(), dma_len: reth.dma_len() }
    }

    /// Writes all 16 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        be::put(out, 0, self.va.to_be_bytes());
        be::put(out, 8, self.rkey.to_be_bytes());
        be::put(out, 12, self.dma_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__and_emit_are_inverse() {
        let wire = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let r = RethRepr::parse(&Reth::new(&wire).unwrap());
        assert_eq!(r.va, 0x0102_0304_0506_0708);
        assert_eq!((r.rkey, r.dma_len), (0x090a_0b0c, 0x0d0e_0f10));
        let mut out = [0; 16];
        r.emit(&mut out);
        assert_eq!(out, wire);
        assert_eq!(Reth::new(&wire[1..]).unwrap_err(), DropReason::ExtTooShort);
    }
}
