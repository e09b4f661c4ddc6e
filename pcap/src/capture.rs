//! Reader of capture files, classic pcap and pcapng, record by record.
//!
//! `pcap-parser` parses the records; this module finds their lengths and limits memory. Only one
//! record is in memory, regardless of the file's size and of its length fields.

mod error;

pub use error::CaptureError;

use pcap_parser::nom::{IResult, Offset};
use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock, parse_block_be, parse_block_le};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{PcapError, PcapHeader};
use std::io::{BufReader, Read};
use std::ops::Range;

/// A reader of the records of a capture.
#[derive(Debug)]
pub struct Capture<R> {
    input: BufReader<R>,
    /// The bytes of the current record.
    buffer: Vec<u8>,
    /// The record in the buffer has been processed; the next one replaces it.
    is_consumed: bool,
    format: Format,
}

/// One captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Timestamp in nanoseconds since 1970; `None` if the format has none.
    pub at_ns: Option<i128>,
    /// Link type: a number of tcpdump's registry (LINKTYPE).
    pub link: u32,
    /// Length of the frame on the wire in bytes. `bytes` may be shorter.
    pub original_len: usize,
    /// The captured bytes, from the start of the frame.
    pub bytes: &'a [u8],
}

impl<R: Read> Capture<R> {
    /// Reads the header and detects the format.
    ///
    /// # Errors
    /// The input cannot be read, or is no capture.
    pub fn new(input: R) -> Result<Self, CaptureError> {
        let input = BufReader::with_capacity(READ_SIZE, input);
        let format = Format::Ng(Section::default());
        let mut this = Self { input, buffer: Vec::new(), is_consumed: false, format };
        this.read_up_to(MAGIC_LEN)?;
        if COMPRESSED_MAGICS.iter().any(|magic| this.buffer.starts_with(magic)) {
            return Err(CaptureError::Compressed);
        }
        // The magic of a pcapng file is the start of its first block, so it stays in the buffer.
        if this.buffer != SECTION_MAGIC {
            this.read_up_to(CLASSIC_HEADER_LEN)?;
            let (_, header) = pcap_parser::parse_pcap_header(&this.buffer)
                .map_err(|_| CaptureError::NotACapture)?;
            this.format = Format::Classic(Classic::new(&header)?);
            this.buffer.clear();
        }
        Ok(this)
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// Reading cannot continue. Earlier records are valid. Do not call it again after an error.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        loop {
            if self.is_consumed {
                self.buffer.clear();
            }
            if !self.read_record()? {
                return Ok(None);
            }
            self.is_consumed = true;
            // Skip blocks that are no packets.
            if let Some(Frame { at_ns, link, original_len, bytes }) =
                self.format.parse(&self.buffer)?
            {
                let bytes = &self.buffer[bytes];
                return Ok(Some(Record { at_ns, link, original_len, bytes }));
            }
        }
    }

    /// Reads the next record into the buffer; false at the end of the input.
    fn read_record(&mut self) -> Result<bool, CaptureError> {
        let (header_len, max) = self.format.header_len();
        if !self.read_up_to(header_len)? {
            return if self.buffer.is_empty() { Ok(false) } else { Err(CaptureError::CutShort) };
        }
        let len = self.format.record_len(&self.buffer)?;
        if len > max {
            return Err(CaptureError::TooLong(len));
        }
        if self.read_up_to(len)? { Ok(true) } else { Err(CaptureError::CutShort) }
    }

    /// Reads until the buffer holds `len` bytes; false if the input ends earlier.
    fn read_up_to(&mut self, len: usize) -> Result<bool, CaptureError> {
        let missing = len.saturating_sub(self.buffer.len());
        let limit = u64::try_from(missing).unwrap_or(u64::MAX);
        // The buffer grows with the data read, not with the value of a length field.
        let mut limited = (&mut self.input).take(limit);
        let got = limited.read_to_end(&mut self.buffer).map_err(CaptureError::Io)?;
        Ok(got == missing)
    }
}

/// A frame in the buffer.
struct Frame {
    at_ns: Option<i128>,
    link: u32,
    original_len: usize,
    bytes: Range<usize>,
}

#[derive(Debug)]
enum Format {
    Classic(Classic),
    Ng(Section),
}

/// The header of a classic file, which applies to all its records.
#[derive(Debug)]
struct Classic {
    layout: Layout,
    unit_ns: i128,
    link: u32,
}

/// The layout of the records of a classic file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Little,
    Big,
    /// With 8 additional bytes in each record's header.
    Modified,
}

/// A section of a pcapng file: byte order and interfaces of its blocks.
#[derive(Debug, Default)]
struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// Resolution of its timestamps; `None` if it overflows.
    ticks_per_s: Option<i128>,
    /// Seconds to add to each timestamp.
    offset_s: i64,
}

impl Format {
    /// Bytes to read before a record's length is known, and the limit of that length.
    fn header_len(&self) -> (usize, usize) {
        match self {
            Self::Classic(classic) => (classic.record_header_len(), CLASSIC_RECORD_MAX),
            Self::Ng(_) => (BLOCK_HEADER_LEN, BLOCK_MAX),
        }
    }

    /// Length in bytes of the record that begins with `header`.
    fn record_len(&self, header: &[u8]) -> Result<usize, CaptureError> {
        match self {
            Self::Classic(classic) => {
                let captured = u32_at(header, 8, classic.layout == Layout::Big)?;
                Ok(captured.saturating_add(classic.record_header_len()))
            }
            Self::Ng(section) => {
                let big_endian = match header.first_chunk() {
                    // A section header defines the byte order of its section.
                    Some(&SECTION_MAGIC) => u32_at(header, 8, true)? == BYTE_ORDER_MAGIC,
                    _ => section.big_endian,
                };
                let len = u32_at(header, 4, big_endian)?;
                if len < BLOCK_HEADER_LEN { Err(CaptureError::Malformed) } else { Ok(len) }
            }
        }
    }

    /// The frame of a complete record; `None` if the record is no packet.
    fn parse(&mut self, record: &[u8]) -> Result<Option<Frame>, CaptureError> {
        match self {
            Self::Classic(classic) => classic.parse(record).map(Some),
            Self::Ng(section) => section.parse(record),
        }
    }
}

impl Classic {
    fn new(header: &PcapHeader) -> Result<Self, CaptureError> {
        if header.version_major != 2 {
            return Err(CaptureError::Version(header.version_major, header.version_minor));
        }
        let layout = match (header.is_modified_format(), header.is_bigendian()) {
            (true, _) => Layout::Modified,
            (false, true) => Layout::Big,
            (false, false) => Layout::Little,
        };
        let unit_ns = if header.is_nanosecond_precision() { 1 } else { 1_000 };
        // The upper half describes the frame check sequence, which follows the packet.
        let link = header.network.0.cast_unsigned() & 0xffff;
        Ok(Self { layout, unit_ns, link })
    }

    fn record_header_len(&self) -> usize {
        if self.layout == Layout::Modified { 24 } else { 16 }
    }

    fn parse(&self, record: &[u8]) -> Result<Frame, CaptureError> {
        let block = complete(match self.layout {
            Layout::Little => pcap_parser::parse_pcap_frame(record),
            Layout::Big => pcap_parser::parse_pcap_frame_be(record),
            Layout::Modified => pcap_parser::parse_pcap_frame_modified(record),
        })?;
        let fraction_ns = i128::from(block.ts_usec) * self.unit_ns;
        Ok(Frame {
            at_ns: Some(i128::from(block.ts_sec) * NS_PER_S + fraction_ns),
            link: self.link,
            original_len: len_of(block.origlen),
            bytes: range_of(record, block.data),
        })
    }
}

impl Section {
    fn parse(&mut self, record: &[u8]) -> Result<Option<Frame>, CaptureError> {
        let parse = if self.big_endian { parse_block_be } else { parse_block_le };
        // The library reads the type of an unknown block as little endian in both byte orders.
        let packet_block = if self.big_endian { PACKET_BLOCK.swap_bytes() } else { PACKET_BLOCK };
        match complete(parse(record))? {
            Block::SectionHeader(header) => {
                *self = Self { big_endian: header.big_endian(), interfaces: Vec::new() };
                Ok(None)
            }
            Block::InterfaceDescription(block) => {
                if self.interfaces.len() == INTERFACES_MAX {
                    return Err(CaptureError::Malformed);
                }
                self.interfaces.push(Interface::new(&block, self.big_endian));
                Ok(None)
            }
            Block::EnhancedPacket(block) => {
                let interface = self.interface(len_of(block.if_id))?;
                let ticks = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                Ok(Some(Frame {
                    at_ns: interface.at_ns(ticks),
                    link: interface.link,
                    original_len: len_of(block.origlen),
                    bytes: range_of(record, block.packet_data()),
                }))
            }
            Block::SimplePacket(block) => Ok(Some(Frame {
                at_ns: None,
                link: self.interface(0)?.link,
                original_len: len_of(block.origlen),
                bytes: range_of(record, block.packet_data()),
            })),
            Block::Unknown(block) if block.block_type == packet_block => {
                self.packet_block(record, block.data).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The frame of a Packet Block, the obsolete form of an Enhanced Packet Block.
    ///
    /// # Source
    /// draft-ietf-opsawg-pcapng appendix A.
    fn packet_block(&self, record: &[u8], body: &[u8]) -> Result<Frame, CaptureError> {
        let word = |at| u32_at(body, at, self.big_endian);
        // The upper half of the first word, in the order of the bytes, is the interface; the lower
        // one counts dropped packets.
        let interface = if self.big_endian { word(0)? >> 16 } else { word(0)? & 0xffff };
        let interface = self.interface(interface)?;
        let [high, low, captured] = [word(4)?, word(8)?, word(12)?];
        let ticks = (high as u64) << 32 | low as u64;
        let end = captured.checked_add(PACKET_BLOCK_HEADER_LEN).ok_or(CaptureError::Malformed)?;
        let data = body.get(PACKET_BLOCK_HEADER_LEN..end).ok_or(CaptureError::Malformed)?;
        Ok(Frame {
            at_ns: interface.at_ns(ticks),
            link: interface.link,
            original_len: word(16)?,
            bytes: range_of(record, data),
        })
    }

    fn interface(&self, number: usize) -> Result<Interface, CaptureError> {
        self.interfaces.get(number).copied().ok_or(CaptureError::Malformed)
    }
}

impl Interface {
    fn new(block: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Self {
        let exponent = u32::from(block.if_tsresol & 0x7f);
        let base: i128 = if block.if_tsresol & 0x80 == 0 { 10 } else { 2 };
        // The library parses this option as little endian in both byte orders.
        let offset_s = block.if_tsoffset;
        Self {
            link: block.linktype.0.cast_unsigned(),
            ticks_per_s: base.checked_pow(exponent),
            offset_s: if big_endian { offset_s.swap_bytes() } else { offset_s },
        }
    }

    fn at_ns(&self, ticks: u64) -> Option<i128> {
        // 64 and 30 bits: the product fits.
        let ns = i128::from(ticks) * NS_PER_S / self.ticks_per_s?;
        Some(i128::from(self.offset_s) * NS_PER_S + ns)
    }
}

/// The library's result for the bytes of one complete record. If it requests more bytes, lengths
/// inside the record exceed the record.
fn complete<'a, T>(parsed: IResult<&'a [u8], T, PcapError<&'a [u8]>>) -> Result<T, CaptureError> {
    parsed.map(|(_, block)| block).map_err(|_| CaptureError::Malformed)
}

/// The range of `part`, a subslice of `record`.
fn range_of(record: &[u8], part: &[u8]) -> Range<usize> {
    let start = record.offset(part);
    start..start + part.len()
}

/// The length at `at` in a header.
fn u32_at(header: &[u8], at: usize, big_endian: bool) -> Result<usize, CaptureError> {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk).ok_or(CaptureError::Malformed)?;
    let value = if big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    Ok(len_of(value))
}

/// Converts a length field to `usize`.
fn len_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Magic numbers of gzip and Zstandard, the usual compressions of captures.
const COMPRESSED_MAGICS: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];
/// Size of one read in bytes. A shorter read from a pipe is processed at once.
const READ_SIZE: usize = 256 << 10;
const MAGIC_LEN: usize = 4;
const CLASSIC_HEADER_LEN: usize = 24;
/// Limit of a classic record: libpcap's largest snap length and a header.
const CLASSIC_RECORD_MAX: usize = (256 << 10) + 24;
/// The type of a section header block, the same in both byte orders.
const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const BYTE_ORDER_MAGIC: usize = 0x1a2b_3c4d;
/// Smallest block: type and length, and the length repeated at the end.
const BLOCK_HEADER_LEN: usize = 12;
/// The type of the obsolete Packet Block, and the bytes of its body before the frame.
const PACKET_BLOCK: u32 = 2;
const PACKET_BLOCK_HEADER_LEN: usize = 20;
/// Limit of a block, as in Wireshark; blocks of names or keys may be long.
const BLOCK_MAX: usize = 16 << 20;
/// Limit of interfaces in a section. It bounds memory, and exceeds the number of any machine.
const INTERFACES_MAX: usize = 4096;
const NS_PER_S: i128 = 1_000_000_000;

#[cfg(test)]
mod tests;
