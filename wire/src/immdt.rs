//! Immediate data, 4 bytes that are delivered in the receiver's completion.

use crate::DropReason;
use crate::be;

/// Bytes of an ImmDt.
pub(crate) const LEN: usize = 4;

/// An ImmDt in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct ImmDt<'a>(&'a [u8; LEN]);

impl<'a> ImmDt<'a> {
    /// The view of the first 4 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The immediate data, the first byte on the wire the most significant.
    #[must_use]
    pub const fn imm(&self) -> u32 {
        be::u32_at(self.0, 0)
    }

    /// Writes all 4 bytes.
    #[inline]
    pub fn emit(imm: u32, out: &mut [u8; LEN]) {
        *out = imm.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emit__writes_what_the_view_reads() {
        let mut out = [0; 4];
        ImmDt::emit(0x0102_0304, &mut out);
        assert_eq!(out, [1, 2, 3, 4]);
        assert_eq!(ImmDt::new(&out).unwrap().imm(), 0x0102_0304);
        assert_eq!(ImmDt::new(&out[1..]).unwrap_err(), DropReason::ExtTooShort);
    }
}
