//! The invalidate extended transport header, 4 bytes: the rkey that a SEND invalidates.

use crate::DropReason;
use crate::be;

/// Bytes of an Ieth.
pub(crate) const LEN: usize = 4;

/// An Ieth in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct Ieth<'a>(&'a [u8; LEN]);

impl<'a> Ieth<'a> {
    /// The view of the first 4 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The key to invalidate.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        be::u32_at(self.0, 0)
    }

    /// Writes all 4 bytes.
    #[inline]
    pub fn emit(rkey: u32, out: &mut [u8; LEN]) {
        *out = rkey.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emit__writes_what_the_view_reads() {
        let mut out = [0; 4];
        Ieth::emit(0x0102_0304, &mut out);
        assert_eq!(out, [1, 2, 3, 4]);
        assert_eq!(Ieth::new(&out).unwrap().rkey(), 0x0102_0304);
        assert_eq!(Ieth::new(&out[1..]).unwrap_err(), DropReason::ExtTooShort);
    }
}
