//! Errors of reading a capture.

use std::fmt;
use std::io;

/// An error that prevents reading a capture, or reading it to its end.
#[derive(Debug)]
pub enum CaptureError {
    /// Reading failed.
    Io(io::Error),
    /// The input does not begin with the magic number of a capture format.
    NotACapture,
    /// The input is compressed.
    Compressed,
    /// An unsupported version of the classic format: major, minor.
    Version(u16, u16),
    /// The input ends inside a record.
    CutShort,
    /// The length field of a record exceeds the limit, in bytes.
    TooLong(usize),
    /// The fields of a record are inconsistent.
    Malformed,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::NotACapture => f.write_str("neither pcap nor pcapng"),
            Self::Compressed => {
                f.write_str("compressed; pipe it in: `zcat FILE | spanwire pcap -` (or zstdcat)")
            }
            Self::Version(major, minor) => write!(f, "pcap version {major}.{minor}, not 2"),
            Self::CutShort => f.write_str("it ends in the middle of a record"),
            Self::TooLong(len) => write!(f, "a record has an invalid length of {len} bytes"),
            Self::Malformed => f.write_str("a record is inconsistent"),
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}
