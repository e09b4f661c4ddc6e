//! The messages of fixed binary layout: version, sizes, MTU and report.

use super::PerftestError;
use serde::Serialize;
use spanwire_transport::Mtu;

/// The version that we send: that of perftest 4.5+0.17. From 6.28 on the peer would compare device
/// attributes, whose layout depends on its C compiler. It omits that step if our version is lower.
pub const VERSION: &str = "6.06";

/// Bytes of the version's message.
pub const VERSION_BYTES: usize = 16;

/// Bandwidth as an end measured it, in the tool's own units.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Bytes of a message.
    pub size: u64,
    /// Messages of all queue pairs.
    pub iterations: u64,
    /// Peak bandwidth: MiB/s, or Gbit/s when that end was started with `--report_gbits`.
    pub peak: f64,
    /// Average bandwidth, in the same unit.
    pub average: f64,
    /// Messages a second, in millions.
    pub message_rate_mpps: f64,
}

impl Report {
    /// The five fields, each a message of the exchange.
    #[must_use]
    pub fn to_fields(&self) -> [[u8; 8]; 5] {
        [
            self.size.to_be_bytes(),
            self.iterations.to_be_bytes(),
            self.peak.to_be_bytes(),
            self.average.to_be_bytes(),
            self.message_rate_mpps.to_be_bytes(),
        ]
    }

    /// Decodes a report from its five fields.
    #[must_use]
    pub fn from_fields(fields: [[u8; 8]; 5]) -> Self {
        Self {
            size: u64::from_be_bytes(fields[0]),
            iterations: u64::from_be_bytes(fields[1]),
            peak: f64::from_be_bytes(fields[2]),
            average: f64::from_be_bytes(fields[3]),
            message_rate_mpps: f64::from_be_bytes(fields[4]),
        }
    }
}

/// The message with our version.
#[must_use]
pub fn version_to_bytes() -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    bytes[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
    bytes
}

/// The peer's version.
///
/// # Errors
/// The bytes are no version, or one older than 5.70, which perftest rejects too.
pub fn version_from(bytes: &[u8]) -> Result<String, PerftestError> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.parse::<f64>() {
        Ok(version) if plain && version >= VERSION_MIN => Ok(text.to_owned()),
        Ok(_) if plain => Err(PerftestError::OldVersion(text.to_owned())),
        _ => Err(PerftestError::garbled("the version", bytes)),
    }
}

/// The message with the size of the cycle buffer, in bytes: the memory that the messages of a
/// bandwidth test step through.
#[must_use]
pub fn cycle_buffer_to_bytes(bytes: u32) -> [u8; 4] {
    bytes.to_be_bytes()
}

/// The peer's cycle buffer, in bytes: its page size.
///
/// # Errors
/// It is larger than any page size.
pub fn cycle_buffer_from(bytes: &[u8]) -> Result<u32, PerftestError> {
    let size = bytes.try_into().map(u32::from_be_bytes);
    let size = size.ok().filter(|size| *size <= CYCLE_BUFFER_BYTES_MAX);
    size.ok_or_else(|| PerftestError::garbled("the cycle buffer's size", bytes))
}

/// The message with a path MTU: its number in `verbs.h` as a digit, and a NUL.
#[must_use]
pub fn mtu_to_bytes(mtu: Mtu) -> [u8; 2] {
    let digit = match mtu {
        Mtu::B256 => b'1',
        Mtu::B512 => b'2',
        Mtu::B1024 => b'3',
        Mtu::B2048 => b'4',
        Mtu::B4096 => b'5',
    };
    [digit, 0]
}

/// The peer's path MTU.
///
/// # Errors
/// The bytes are no path MTU.
pub fn mtu_from(bytes: &[u8]) -> Result<Mtu, PerftestError> {
    let mtu = Mtu::ALL.into_iter().find(|mtu| mtu_to_bytes(*mtu) == bytes);
    mtu.ok_or_else(|| PerftestError::garbled("the path MTU", bytes))
}

/// The oldest version that perftest accepts.
const VERSION_MIN: f64 = 5.70;

/// The largest accepted cycle buffer, which determines how much memory we allocate. The largest
/// page size of machines that run perftest is 64 KiB; a huge page has 2 MiB.
const CYCLE_BUFFER_BYTES_MAX: u32 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Result<String, PerftestError> {
        let mut bytes = [0; VERSION_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        version_from(&bytes)
    }

    #[test]
    fn version_from__accepts_what_perftest_accepts() {
        assert_eq!(version("6.06").unwrap(), "6.06");
        assert_eq!(version("5.70").unwrap(), "5.70");
        assert_eq!(version("26.04").unwrap(), "26.04");
        assert!(matches!(version("5.60"), Err(PerftestError::OldVersion(v)) if v == "5.60"));
        for not_perftest in ["", "nan", "-1", "{\"type\":\"hell", "SSH-2.0-OpenSSH_", "6.0.6"] {
            let outcome = version(not_perftest);
            assert!(matches!(outcome, Err(PerftestError::Garbled { .. })), "{not_perftest}");
        }
    }

    #[test]
    fn cycle_buffer_from__is_bounded() {
        assert_eq!(cycle_buffer_from(&cycle_buffer_to_bytes(65_536)).unwrap(), 65_536);
        assert!(cycle_buffer_from(&cycle_buffer_to_bytes(u32::MAX)).is_err());
        assert!(cycle_buffer_from(b"").is_err());
    }

    #[test]
    fn mtu_from__inverts_and_rejects_the_rest() {
        for mtu in Mtu::ALL {
            assert_eq!(mtu_from(&mtu_to_bytes(mtu)).unwrap(), mtu);
        }
        for bad in [b"0\0", b"6\0", b"33", b"\0\0"] {
            assert!(mtu_from(bad).is_err());
        }
    }
}
