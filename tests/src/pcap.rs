//! A reader of classic pcap files with Ethernet frames.

use core::fmt;

/// A capture in memory.
#[derive(Clone, Copy, Debug)]
pub struct Pcap<'a> {
    order: Order,
    /// Nanoseconds in a unit of the timestamps' second part.
    unit_ns: u64,
    records: &'a [u8],
}

/// One captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Nanoseconds since the epoch.
    pub at_ns: u64,
    /// Length of the frame; it exceeds that of `bytes` if the capture truncated it.
    pub original_len: usize,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// The reason why a capture cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PcapError {
    /// The file, or a record of it, is incomplete.
    Truncated,
    /// The first four bytes are not those of a classic pcap file (pcapng is not supported).
    BadMagic([u8; 4]),
    /// The format is not 2.4, the only one in use.
    BadVersion(u16, u16),
    /// The link type is not Ethernet.
    NotEthernet(u32),
}

/// The byte order of the machine that wrote the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

impl<'a> Pcap<'a> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// All of [`PcapError`].
    pub fn new(file: &'a [u8]) -> Result<Self, PcapError> {
        let (header, records) = file.split_first_chunk::<24>().ok_or(PcapError::Truncated)?;
        let magic = [header[0], header[1], header[2], header[3]];
        let (order, unit_ns) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1_000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1),
            _ => return Err(PcapError::BadMagic(magic)),
        };
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if (major, minor) != (2, 4) {
            return Err(PcapError::BadVersion(major, minor));
        }
        let link = order.u32(header, 20);
        if link != ETHERNET {
            return Err(PcapError::NotEthernet(link));
        }
        Ok(Self { order, unit_ns, records })
    }

    /// The frames in the order of the file. A truncated record is the last item, as an error.
    pub fn frames(&self) -> impl Iterator<Item = Result<Frame<'a>, PcapError>> + use<'a> {
        let mut this = *self;
        core::iter::from_fn(move || {
            if this.records.is_empty() {
                return None;
            }
            let next = this.record();
            if next.is_err() {
                this.records = &[];
            }
            Some(next)
        })
    }

    fn record(&mut self) -> Result<Frame<'a>, PcapError> {
        let (header, rest) = self.records.split_first_chunk::<16>().ok_or(PcapError::Truncated)?;
        let word = |at| self.order.u32(header, at);
        let captured = usize::try_from(word(8)).map_err(|_| PcapError::Truncated)?;
        let original_len = usize::try_from(word(12)).map_err(|_| PcapError::Truncated)?;
        let at_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * self.unit_ns;
        let (bytes, rest) = rest.split_at_checked(captured).ok_or(PcapError::Truncated)?;
        self.records = rest;
        Ok(Frame { at_ns, original_len, bytes })
    }
}

impl Order {
    fn u16<const N: usize>(self, b: &[u8; N], at: usize) -> u16 {
        let v = [b[at], b[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(v),
            Self::Big => u16::from_be_bytes(v),
        }
    }

    fn u32<const N: usize>(self, b: &[u8; N], at: usize) -> u32 {
        let v = [b[at], b[at + 1], b[at + 2], b[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(v),
            Self::Big => u32::from_be_bytes(v),
        }
    }
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the capture is truncated"),
            Self::BadMagic(m) => write!(f, "{m:02x?} does not begin a classic pcap file"),
            Self::BadVersion(major, minor) => write!(f, "pcap version {major}.{minor}"),
            Self::NotEthernet(link) => write!(f, "link type {link} is not Ethernet"),
        }
    }
}

impl core::error::Error for PcapError {}

/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const LITTLE: [u8; 43] = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0, //
        2, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 7, 8, 9,
    ];

    #[test]
    fn frames__reads_both_byte_orders() {
        let mut big = LITTLE;
        big[0..4].reverse();
        for pair in [4, 6] {
            big[pair..pair + 2].reverse();
        }
        for word in [8, 12, 16, 20, 24, 28, 32, 36] {
            big[word..word + 4].reverse();
        }
        for file in [LITTLE, big] {
            let frames: Vec<_> = Pcap::new(&file).unwrap().frames().collect();
            let want = Frame { at_ns: 2_000_005_000, original_len: 9, bytes: &[7, 8, 9] };
            assert_eq!(frames, [Ok(want)]);
        }
    }

    #[test]
    fn frames__reads_nanoseconds() {
        let mut file = LITTLE;
        file[..4].copy_from_slice(&[0x4d, 0x3c, 0xb2, 0xa1]);
        let first = Pcap::new(&file).unwrap().frames().next().unwrap().unwrap();
        assert_eq!(first.at_ns, 2_000_000_005);
    }

    #[test]
    fn frames__ends_at_a_truncated_record() {
        for cut in 25..LITTLE.len() {
            let frames: Vec<_> = Pcap::new(&LITTLE[..cut]).unwrap().frames().collect();
            assert_eq!(frames, [Err(PcapError::Truncated)]);
        }
        assert_eq!(Pcap::new(&LITTLE[..24]).unwrap().frames().count(), 0);
    }

    #[test]
    fn pcap_new__judges_the_header() {
        let with = |at: usize, v: u8| {
            let mut file = LITTLE;
            file[at] = v;
            Pcap::new(&file).map(|_| ()).unwrap_err()
        };
        assert_eq!(with(0, 0x0a), PcapError::BadMagic([0x0a, 0xc3, 0xb2, 0xa1]));
        assert_eq!(with(4, 3), PcapError::BadVersion(3, 4));
        assert_eq!(with(20, 113), PcapError::NotEthernet(113));
        assert_eq!(Pcap::new(&LITTLE[..23]).unwrap_err(), PcapError::Truncated);
    }
}
