//! The format of a chunk: a header and a piece of a file.

use crate::message::Sha256Hex;
use std::fmt;

/// The header of a chunk. The data follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// Type flags; see the constants.
    pub flags: u32,
    /// Bytes of data.
    pub len: u32,
    /// Number of the file's entry.
    pub index: u64,
    /// Offset of the data in the file.
    pub offset: u64,
    /// With [`LAST`], the hash of the whole file as the sender read it; else zeros.
    pub sha256: Sha256Hex,
}

/// Why bytes are not a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// Shorter than a header, or the length in the header is wrong.
    Length,
    /// Undefined flags, or an undefined combination.
    Flags(u32),
}

/// The file's first chunk: `offset` is the part of the receiver's data that remains.
pub const FIRST: u32 = 1;
/// The file's last chunk.
pub const LAST: u32 = 2;
/// The file is given up; the data are the reason, in UTF-8. The file's last chunk.
pub const ABORT: u32 = 4;

/// Bytes of a header; the last eight are zero.
pub const HEADER_BYTES: usize = 64;

impl ChunkHeader {
    /// The header as bytes, in network order.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[field::FLAGS].copy_from_slice(&self.flags.to_be_bytes());
        out[field::LEN].copy_from_slice(&self.len.to_be_bytes());
        out[field::INDEX].copy_from_slice(&self.index.to_be_bytes());
        out[field::OFFSET].copy_from_slice(&self.offset.to_be_bytes());
        out[field::SHA256].copy_from_slice(&self.sha256.0);
        out
    }

    /// The header and the data of a chunk.
    ///
    /// # Errors
    /// See [`ChunkError`].
    pub fn parse(chunk: &[u8]) -> Result<(Self, &[u8]), ChunkError> {
        let (head, data) = chunk.split_first_chunk::<HEADER_BYTES>().ok_or(ChunkError::Length)?;
        let u32_at = |range| u32::from_be_bytes(array(head, range));
        let header = Self {
            flags: u32_at(field::FLAGS),
            len: u32_at(field::LEN),
            index: u64::from_be_bytes(array(head, field::INDEX)),
            offset: u64::from_be_bytes(array(head, field::OFFSET)),
            sha256: Sha256Hex(array(head, field::SHA256)),
        };
        if u32::try_from(data.len()) != Ok(header.len) {
            return Err(ChunkError::Length);
        }
        match header.flags {
            0 | FIRST | LAST | ABORT => Ok((header, data)),
            f if f == FIRST | LAST || f == FIRST | ABORT => Ok((header, data)),
            other => Err(ChunkError::Flags(other)),
        }
    }

    /// True if no chunk of this file follows.
    #[must_use]
    pub fn ends_file(&self) -> bool {
        self.has(LAST | ABORT)
    }

    /// True if `flag` is set.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("a chunk's length is not what its header says"),
            Self::Flags(flags) => write!(f, "a chunk has the flags {flags:#x}"),
        }
    }
}

impl std::error::Error for ChunkError {}

/// Byte ranges of the fields.
mod field {
    use std::ops::Range;

    pub(crate) const FLAGS: Range<usize> = 0..4;
    pub(crate) const LEN: Range<usize> = 4..8;
    pub(crate) const INDEX: Range<usize> = 8..16;
    pub(crate) const OFFSET: Range<usize> = 16..24;
    pub(crate) const SHA256: Range<usize> = 24..56;
}

fn array<const N: usize>(head: &[u8; HEADER_BYTES], range: std::ops::Range<usize>) -> [u8; N] {
    head[range].try_into().expect("a field's range has its type's length")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u32, len: u32) -> ChunkHeader {
        ChunkHeader { flags, len, index: 1 << 40, offset: 77, sha256: Sha256Hex([9; 32]) }
    }

    #[test]
    fn emit__then_parse_is_the_same() {
        for flags in [0, FIRST, LAST, ABORT, FIRST | LAST, FIRST | ABORT] {
            let mut chunk = header(flags, 3).emit().to_vec();
            chunk.extend_from_slice(b"abc");
            assert_eq!(ChunkHeader::parse(&chunk), Ok((header(flags, 3), &b"abc"[..])));
        }
    }

    #[test]
    fn parse__rejects_wrong_lengths() {
        assert_eq!(ChunkHeader::parse(&[0; HEADER_BYTES - 1]), Err(ChunkError::Length));
        for len in [0, 2, 4, u32::MAX] {
            let mut chunk = header(0, len).emit().to_vec();
            chunk.extend_from_slice(b"abc");
            assert_eq!(ChunkHeader::parse(&chunk), Err(ChunkError::Length), "{len}");
        }
    }

    #[test]
    fn parse__rejects_undefined_flags() {
        for flags in [8, 16, FIRST | 8, LAST | ABORT, u32::MAX] {
            let chunk = header(flags, 0).emit();
            assert_eq!(ChunkHeader::parse(&chunk), Err(ChunkError::Flags(flags)));
        }
    }
}
