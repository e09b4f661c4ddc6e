//! The error of writing a frame.

use core::fmt;

/// The frame does not fit: the buffer is too short, or the IP packet exceeds its maximum length
/// ([`MAX_FRAME_LEN`](crate::MAX_FRAME_LEN)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferTooShort;

impl fmt::Display for BufferTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the frame does not fit its buffer, or an IP packet")
    }
}

impl core::error::Error for BufferTooShort {}
