//! Fixed-size headers at the front of a buffer.

use crate::{BufferTooShort, DropReason};

/// Takes the next `N` bytes off the front of `rest`.
#[inline]
pub(crate) fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], DropReason> {
    let (head, tail) = rest.split_first_chunk().ok_or(DropReason::ExtTooShort)?;
    *rest = tail;
    Ok(head)
}

/// As [`take`], to write.
#[inline]
pub(crate) fn take_mut<'a, const N: usize>(
    rest: &mut &'a mut [u8],
) -> Result<&'a mut [u8; N], BufferTooShort> {
    let (head, tail) = core::mem::take(rest).split_first_chunk_mut().ok_or(BufferTooShort)?;
    *rest = tail;
    Ok(head)
}
