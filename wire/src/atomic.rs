//! The two headers of atomic operations.
//!
//! ```text
//! AtomicETH, 28 bytes:     VA 64 | rkey 32 | swap or add 64 | compare 64
//! AtomicAckETH, 8 bytes:   original 64
//! ```
//! The wire is big-endian; the 64-bit word in memory is in its host's order.

use crate::DropReason;
use crate::be;

/// Bytes of an AtomicETH.
pub(crate) const LEN: usize = 28;
/// Bytes of an AtomicAckETH.
pub(crate) const ACK_LEN: usize = 8;

/// An AtomicETH in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct AtomicEth<'a>(&'a [u8; LEN]);

/// An AtomicETH's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicEthRepr {
    /// The address of the 64-bit word. The responder checks its alignment.
    pub va: u64,
    /// The remote region's key.
    pub rkey: u32,
    /// The new value of a compare-and-swap, or the addend of a fetch-and-add.
    pub swap_or_add: u64,
    /// The expected value of a compare-and-swap; unused by a fetch-and-add.
    pub compare: u64,
}

/// An AtomicAckETH in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct AtomicAckEth<'a>(&'a [u8; ACK_LEN]);

/// An AtomicAckETH's field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicAckEthRepr {
    /// The word's value before the operation.
    pub original: u64,
}

impl<'a> AtomicEth<'a> {
    /// The view of the first 28 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The address of the word.
    #[must_use]
    pub const fn va(&self) -> u64 {
        be::u64_at(self.0, 0)
    }

    /// The remote region's key.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        be::u32_at(self.0, 8)
    }

    /// The value to swap in or to add.
    #[must_use]
    pub const fn swap_or_add(&self) -> u64 {
        be::u64_at(self.0, 12)
    }

    /// The expected value.
    #[must_use]
    pub const fn compare(&self) -> u64 {
        be::u64_at(self.0, 20)
    }
}

impl AtomicEthRepr {
    /// The fields of an AtomicETH.
    #[must_use]
    #[inline]
    pub const fn parse(eth: &AtomicEth<'_>) -> Self {
        Self {
            va: eth.va(),
            rkey: eth.rkey(),
            swap_or_add: eth.swap_or_add(),
            compare: eth.compare(),
        }
    }

    /// Writes all 28 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        be::put(out, 0, self.va.to_be_bytes());
        be::put(out, 8, self.rkey.to_be_bytes());
        be::put(out, 12, self.swap_or_add.to_be_bytes());
        be::put(out, 20, self.compare.to_be_bytes());
    }
}

impl<'a> AtomicAckEth<'a> {
    /// The view of the first 8 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The word's value before the operation.
    #[must_use]
    pub const fn original(&self) -> u64 {
        be::u64_at(self.0, 0)
    }
}

impl AtomicAckEthRepr {
    /// The field of an AtomicAckETH.
    #[must_use]
    #[inline]
    pub const fn parse(eth: &AtomicAckEth<'_>) -> Self {
        Self { original: eth.original() }
    }

    /// Writes all 8 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8; ACK_LEN]) {
        *out = self.original.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_eth__parse_and_emit_are_inverse() {
        let wire: [u8; 28] = core::array::from_fn(|i| u8::try_from(i + 1).unwrap());
        let r = AtomicEthRepr::parse(&AtomicEth::new(&wire).unwrap());
        assert_eq!(r.va, 0x0102_0304_0506_0708);
        assert_eq!(r.rkey, 0x090a_0b0c);
        assert_eq!(r.swap_or_add, 0x0d0e_0f10_1112_1314);
        assert_eq!(r.compare, 0x1516_1718_191a_1b1c);
        let mut out = [0; 28];
        r.emit(&mut out);
        assert_eq!(out, wire);
        assert_eq!(AtomicEth::new(&wire[1..]).unwrap_err(), DropReason::ExtTooShort);
    }

    #[test]
    fn atomic_ack_eth__parse_and_emit_are_inverse() {
        let wire = [1, 2, 3, 4, 5, 6, 7, 8];
        let r = AtomicAckEthRepr::parse(&AtomicAckEth::new(&wire).unwrap());
        assert_eq!(r.original, 0x0102_0304_0506_0708);
        let mut out = [0; 8];
        r.emit(&mut out);
        assert_eq!(out, wire);
        assert_eq!(AtomicAckEth::new(&wire[1..]).unwrap_err(), DropReason::ExtTooShort);
    }
}
