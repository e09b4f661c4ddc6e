//! The format of telemetry records, and their echo in an SR acknowledgement.

use crate::DropReason;

/// Bytes of a full record.
pub const INT_FULL_LEN: usize = 24;
/// Bytes of a compact record.
pub const INT_COMPACT_LEN: usize = 8;
/// Bytes that precede the records in their echo.
pub const INT_ECHO_HEADER_LEN: usize = 4;
/// The most records of a stack or of its echo.
pub(super) const HOPS_MAX: u8 = 16;

/// The format of the records in a stack. The sender selects it, and every switch writes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IntFormat {
    /// 24 bytes, with counters of 64 bits ([`IntHop`](crate::IntHop)).
    #[default]
    Full,
    /// 8 bytes, with counters that wrap within milliseconds
    /// ([`IntCompactHop`](crate::IntCompactHop)).
    Compact,
}

impl IntFormat {
    /// All formats, in the order of their numbers on the wire.
    pub const ALL: [Self; 2] = [Self::Full, Self::Compact];

    /// Bytes of a record.
    #[must_use]
    pub const fn record_len(self) -> usize {
        match self {
            Self::Full => INT_FULL_LEN,
            Self::Compact => INT_COMPACT_LEN,
        }
    }

    /// The format with this number on the wire; `None` if it is unknown.
    #[must_use]
    pub const fn from_u8(v: u8) -> Option<Self> {
        match v {
            0 => Some(Self::Full),
            1 => Some(Self::Compact),
            _ => None,
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }
}

/// The echo of a stack's records in an SR acknowledgement: none, or 1 to 16 of one format.
///
/// ```text
/// hops 8 | format 8 | reserved 16 | records
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntRecords<'a> {
    /// As on the wire, with the header; empty without records.
    bytes: &'a [u8],
}

impl<'a> IntRecords<'a> {
    /// No records.
    pub const NONE: Self = Self { bytes: &[] };

    /// The echo in `bytes`, all of which it must fill; without records if `bytes` are no echo.
    #[inline]
    #[must_use]
    pub fn parse(mut bytes: &'a [u8]) -> Self {
        let echo = Self::take(&mut bytes);
        echo.ok().filter(|_| bytes.is_empty()).unwrap_or_default()
    }

    /// Parses an echo off the front of `rest`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`]. [`DropReason::SrKind`] for an unknown format, and for a number
    /// of hops that is 0 or too large.
    pub(crate) fn take(rest: &mut &'a [u8]) -> Result<Self, DropReason> {
        let header = rest.first_chunk().ok_or(DropReason::ExtTooShort)?;
        let &[hops, format, ..]: &[u8; INT_ECHO_HEADER_LEN] = header;
        let format = IntFormat::from_u8(format).ok_or(DropReason::SrKind)?;
        if !(1..=HOPS_MAX).contains(&hops) {
            return Err(DropReason::SrKind);
        }
        let len = INT_ECHO_HEADER_LEN + usize::from(hops) * format.record_len();
        let (bytes, behind) = rest.split_at_checked(len).ok_or(DropReason::ExtTooShort)?;
        *rest = behind;
        Ok(Self { bytes })
    }

    /// Its bytes on the wire; empty without records.
    #[inline]
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The number of records, at most 16.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.first().copied().unwrap_or(0).into()
    }

    /// There are no records.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The format of the records; the default without records.
    #[must_use]
    pub fn format(&self) -> IntFormat {
        let format = self.bytes.get(1).copied();
        format.and_then(IntFormat::from_u8).unwrap_or_default()
    }

    /// The bytes of the records.
    pub(super) fn records(&self) -> &'a [u8] {
        self.bytes.get(INT_ECHO_HEADER_LEN..).unwrap_or_default()
    }
}

/// The records in `bytes` if `format` is full; otherwise none.
pub(super) fn full(format: IntFormat, bytes: &[u8]) -> &[[u8; INT_FULL_LEN]] {
    match format {
        IntFormat::Full => bytes.as_chunks().0,
        IntFormat::Compact => &[],
    }
}

/// The records in `bytes` if `format` is compact; otherwise none.
pub(super) fn compact(format: IntFormat, bytes: &[u8]) -> &[[u8; INT_COMPACT_LEN]] {
    match format {
        IntFormat::Full => &[],
        IntFormat::Compact => bytes.as_chunks().0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_u8__inverts_to_u8() {
        for format in IntFormat::ALL {
            assert_eq!(IntFormat::from_u8(format.to_u8()), Some(format));
        }
        assert!((2..=255).all(|v| IntFormat::from_u8(v).is_none()));
    }

    fn echo(hops: u8, format: u8, bytes: usize) -> Vec<u8> {
        let mut echo = vec![hops, format, 0, 0];
        echo.resize(INT_ECHO_HEADER_LEN + bytes, 0x5a);
        echo
    }

    #[test]
    fn parse__requires_a_known_format_and_one_to_sixteen_hops() {
        for (hops, format, bytes, want) in [
            (1, 0, 24, 1),
            (16, 0, 16 * 24, 16),
            (3, 1, 3 * 8, 3),
            (16, 1, 16 * 8, 16),
            (0, 0, 0, 0),
            (17, 0, 17 * 24, 0),
            (255, 1, 255 * 8, 0),
            (3, 2, 3 * 8, 0),
            (3, 1, 3 * 8 - 1, 0),
            (3, 1, 3 * 8 + 1, 0),
            (3, 0, 3 * 8, 0),
        ] {
            let bytes = echo(hops, format, bytes);
            let records = IntRecords::parse(&bytes);
            assert_eq!((records.len(), records.is_empty()), (want, want == 0), "{hops} {format}");
            let counts = (records.hops().count(), records.compact_hops().count());
            assert_eq!(counts, if format == 1 { (0, want) } else { (want, 0) });
        }
        assert_eq!(IntRecords::parse(&[]), IntRecords::default());
    }
}
