//! In-band telemetry: records of switches, in a stack after the IP packet.
//!
//! The stack starts at the end of the packet given by the IP header, where Ethernet has its
//! padding. Adding a record changes no header and no ICRC, and receivers without telemetry ignore
//! it as padding. The sending host requests records by appending an empty stack.
//!
//! ```text
//! stack    magic 32 = "INTs" | version 8 | hops 8 | max hops 8 | format 8 | records
//!          version 2: credit 32 | waiting bytes 32 before the records
//! full     time ps 64 | bytes sent 64 | queue bytes 32 | link rate Mbit/s 32        (24 bytes)
//! compact  rate 8 | time 20 | bytes sent 20 | queue 16                              (8 bytes)
//! ```
//!
//! All fields are big-endian. Time is that of the stamping switch when the frame leaves its queue.
//! Bytes sent counts the port's bytes since its start, without this frame. Queue bytes is the
//! frame's queue after it left. The two long counters of full records are 64 bits wide, so that no
//! reader has to handle a wrap; those of compact records wrap within milliseconds
//! ([`IntCompactHop`]).
//!
//! A stack of version 2 belongs to a flow of MLCC. The two words are those of the switch at the
//! receiver's end of the long link ([`IntCredit`]), which also empties the stack; both are zero
//! before it. Switches push records onto both versions alike.

mod compact;
mod records;

pub use compact::IntCompactHop;
pub use records::{INT_COMPACT_LEN, INT_ECHO_HEADER_LEN, INT_FULL_LEN, IntFormat, IntRecords};

use crate::{EthernetRepr, be, ethernet};

/// Bytes of a stack of version 1 without records.
pub const INT_HEADER_LEN: usize = 8;
/// Bytes of a stack of version 2 without records.
pub const INT_CREDIT_HEADER_LEN: usize = INT_HEADER_LEN + CREDIT_LEN;
/// The most records of a stack, whatever its header allows.
pub const INT_MAX_HOPS: u8 = records::HOPS_MAX;

/// The full record of one switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntHop {
    /// When the frame left its queue: picoseconds of the switch's own clock.
    pub time_ps: u64,
    /// Bytes that the port had sent before this frame, elided ones included.
    pub tx_bytes: u64,
    /// Bytes in the frame's queue after it left; saturates at 2^32 - 1.
    pub queue_bytes: u32,
    /// The port's rate in Mbit/s; 0 when it has none.
    pub link_rate_mbps: u32,
}

/// The two words of a stack of version 2, written by the switch that releases the flow's packets
/// into the receiver's datacenter (MLCC). Both are 0 in a stack that no such switch has passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntCredit {
    /// The largest credit that the receiver has sent, modulo 2^32 (C_D).
    pub credit: u32,
    /// Bytes of this flow that wait at the switch behind this packet; saturates at 2^32 - 1.
    pub waiting_bytes: u32,
}

/// A stack of telemetry records in a received frame. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct IntStack<'a> {
    credit: Option<IntCredit>,
    hops: u8,
    max_hops: u8,
    format: IntFormat,
    records: &'a [u8],
}

/// The end of the IP packet of a frame, in bytes of the frame: padding or a telemetry stack
/// follow. `None` if the frame is not IPv4 or IPv6, or shorter than its IP packet.
///
/// # Arguments
/// - `frame`: an Ethernet frame without VLAN tag, hostile.
/// - `elided_bytes`: bytes that the IP header counts and the frame does not hold
///   (`spanwire_base::TxMeta`).
#[must_use]
pub fn ip_end(frame: &[u8], elided_bytes: u32) -> Option<usize> {
    let ip = frame.get(ethernet::LEN..)?;
    let ip_len = match u16::from_be_bytes([frame[12], frame[13]]) {
        EthernetRepr::IPV4 if ip.first()? >> 4 == 4 => {
            usize::from(be::u16_at(ip.first_chunk::<4>()?, 2))
        }
        EthernetRepr::IPV6 if ip.first()? >> 4 == 6 => {
            usize::from(be::u16_at(ip.first_chunk::<6>()?, 4)) + crate::ipv6::LEN
        }
        _ => return None,
    };
    let there = ip_len.checked_sub(usize::try_from(elided_bytes).ok()?)?;
    let end = ethernet::LEN + there;
    (end <= frame.len()).then_some(end)
}

impl<'a> IntStack<'a> {
    /// The stack after the IP packet of `frame`, or `None` if there is none.
    #[must_use]
    pub fn find(frame: &'a [u8], elided_bytes: u32) -> Option<Self> {
        Self::parse(frame.get(ip_end(frame, elided_bytes)?..)?)
    }

    /// The stack that `trailer` begins with ([`Packet::trailer`](crate::Packet::trailer)), or
    /// `None` if there is none.
    #[must_use]
    pub fn parse(trailer: &'a [u8]) -> Option<Self> {
        let (header, rest) = trailer.split_first_chunk::<INT_HEADER_LEN>()?;
        let [m0, m1, m2, m3, version, hops, max_hops, format] = *header;
        if [m0, m1, m2, m3] != MAGIC || hops > max_hops || max_hops > INT_MAX_HOPS {
            return None;
        }
        let format = IntFormat::from_u8(format)?;
        let (credit, rest) = match version {
            VERSION => (None, rest),
            VERSION_CREDIT => {
                let (words, rest) = rest.split_first_chunk()?;
                (Some(IntCredit::parse(words)), rest)
            }
            _ => return None,
        };
        let records = rest.get(..usize::from(hops) * format.record_len())?;
        Some(Self { credit, hops, max_hops, format, records })
    }

    /// The version: 1, or 2 if the stack has a credit.
    #[must_use]
    pub const fn version(&self) -> u8 {
        if self.credit.is_some() { VERSION_CREDIT } else { VERSION }
    }

    /// The two words of a stack of version 2; `None` for version 1.
    #[must_use]
    pub const fn credit(&self) -> Option<IntCredit> {
        self.credit
    }

    /// Bytes before the records.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        if self.credit.is_some() { INT_CREDIT_HEADER_LEN } else { INT_HEADER_LEN }
    }

    /// The most records that the sender requested.
    #[must_use]
    pub const fn max_hops(&self) -> u8 {
        self.max_hops
    }

    /// The format of the records, which the sender requested.
    #[must_use]
    pub const fn format(&self) -> IntFormat {
        self.format
    }

    /// The number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.hops as usize
    }

    /// True if no switch has added a record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hops == 0
    }

    /// The bytes of the records, nearest the sender first; at most [`INT_MAX_HOPS`] records.
    #[must_use]
    pub const fn records(&self) -> &'a [u8] {
        self.records
    }

    /// The bytes that precede the records in their echo ([`IntRecords`]).
    #[must_use]
    pub const fn echo_header(&self) -> [u8; INT_ECHO_HEADER_LEN] {
        [self.hops, self.format.to_u8(), 0, 0]
    }

    /// The full records, nearest the sender first; none if they are compact.
    pub fn hops(&self) -> impl Iterator<Item = IntHop> + 'a {
        records::full(self.format, self.records).iter().map(IntHop::parse)
    }

    /// The compact records, nearest the sender first; none if they are full.
    pub fn compact_hops(&self) -> impl Iterator<Item = IntCompactHop> + 'a {
        records::compact(self.format, self.records).iter().map(IntCompactHop::parse)
    }
}

impl IntRecords<'_> {
    /// The full records, nearest the sender first; none if they are compact.
    pub fn hops(&self) -> impl Iterator<Item = IntHop> + '_ {
        records::full(self.format(), self.records()).iter().map(IntHop::parse)
    }

    /// The compact records, nearest the sender first; none if they are full.
    pub fn compact_hops(&self) -> impl Iterator<Item = IntCompactHop> + '_ {
        records::compact(self.format(), self.records()).iter().map(IntCompactHop::parse)
    }
}

impl From<&IntHop> for IntCompactHop {
    fn from(hop: &IntHop) -> Self {
        Self::new([hop.time_ps, hop.tx_bytes], hop.queue_bytes, hop.link_rate_mbps)
    }
}

impl IntHop {
    /// The fields of a record.
    #[must_use]
    pub const fn parse(record: &[u8; INT_FULL_LEN]) -> Self {
        Self {
            time_ps: be::u64_at(record, 0),
            tx_bytes: be::u64_at(record, 8),
            queue_bytes: be::u32_at(record, 16),
            link_rate_mbps: be::u32_at(record, 20),
        }
    }

    /// Writes all 24 bytes.
    pub fn emit(&self, out: &mut [u8; INT_FULL_LEN]) {
        be::put(out, 0, self.time_ps.to_be_bytes());
        be::put(out, 8, self.tx_bytes.to_be_bytes());
        be::put(out, 16, self.queue_bytes.to_be_bytes());
        be::put(out, 20, self.link_rate_mbps.to_be_bytes());
    }
}

impl IntCredit {
    const fn parse(words: &[u8; CREDIT_LEN]) -> Self {
        Self { credit: be::u32_at(words, 0), waiting_bytes: be::u32_at(words, 4) }
    }

    fn emit(self, out: &mut [u8; CREDIT_LEN]) {
        be::put(out, 0, self.credit.to_be_bytes());
        be::put(out, 4, self.waiting_bytes.to_be_bytes());
    }
}

/// Appends an empty stack of version 1 after the frame that ends at `len`, which requests records
/// in `format`. Returns the frame's new length, or `None` if the buffer has no room for it.
///
/// `max_hops` is cut to [`INT_MAX_HOPS`].
pub fn int_request(
    buffer: &mut [u8],
    len: usize,
    max_hops: u8,
    format: IntFormat,
) -> Option<usize> {
    let out = buffer.get_mut(len..)?.first_chunk_mut::<INT_HEADER_LEN>()?;
    let [m0, m1, m2, m3] = MAGIC;
    *out = [m0, m1, m2, m3, VERSION, 0, max_hops.min(INT_MAX_HOPS), format.to_u8()];
    Some(len + INT_HEADER_LEN)
}

/// Appends an empty stack of version 2 with both words 0; otherwise as [`int_request`]. The buffer
/// is unchanged if it has no room.
pub fn int_request_credit(
    buffer: &mut [u8],
    len: usize,
    max_hops: u8,
    format: IntFormat,
) -> Option<usize> {
    let out = buffer.get_mut(len..)?.first_chunk_mut::<INT_CREDIT_HEADER_LEN>()?;
    let [m0, m1, m2, m3] = MAGIC;
    let max_hops = max_hops.min(INT_MAX_HOPS);
    be::put(out, 0, [m0, m1, m2, m3, VERSION_CREDIT, 0, max_hops, format.to_u8()]);
    be::put(out, INT_HEADER_LEN, [0; CREDIT_LEN]);
    Some(len + INT_CREDIT_HEADER_LEN)
}

/// Empties the stack of version 2 after the frame's IP packet, sets its two words, and drops all
/// bytes after it. Returns the frame's new length. Returns `None` and leaves the frame unchanged if
/// there is no stack of version 2.
///
/// # Arguments
/// - `buffer`: the frame in its first `len` bytes.
/// - `elided_bytes`: as for [`ip_end`].
pub fn int_restart_credit(
    buffer: &mut [u8],
    len: usize,
    elided_bytes: u32,
    credit: IntCredit,
) -> Option<usize> {
    let frame = buffer.get_mut(..len)?;
    let start = ip_end(frame, elided_bytes)?;
    IntStack::parse(&frame[start..])?.credit?;
    credit.emit(frame[start + INT_HEADER_LEN..].first_chunk_mut()?);
    frame[start + HOPS_AT] = 0;
    Some(start + INT_CREDIT_HEADER_LEN)
}

/// Adds a record to the stack after the frame's IP packet, in the stack's format, and drops all
/// bytes after the stack. Returns the frame's new length. Returns `None` and leaves the frame
/// unchanged if there is no stack of a known version and format, it is full, or the buffer has no
/// room.
///
/// # Arguments
/// - `buffer`: the frame in its first `len` bytes, then free space.
/// - `elided_bytes`: as for [`ip_end`].
pub fn int_push(buffer: &mut [u8], len: usize, elided_bytes: u32, hop: &IntHop) -> Option<usize> {
    let frame = buffer.get(..len)?;
    let start = ip_end(frame, elided_bytes)?;
    let stack = IntStack::parse(&frame[start..])?;
    if stack.hops >= stack.max_hops {
        return None;
    }
    let at = start + stack.header_len() + stack.records.len();
    let end = at + stack.format.record_len();
    let format = stack.format;
    let out = buffer.get_mut(at..)?;
    match format {
        IntFormat::Full => hop.emit(out.first_chunk_mut()?),
        IntFormat::Compact => IntCompactHop::from(hop).emit(out.first_chunk_mut()?),
    }
    buffer[start + HOPS_AT] += 1;
    Some(end)
}

const MAGIC: [u8; 4] = *b"INTs";
const VERSION: u8 = 1;
/// The version with a credit.
const VERSION_CREDIT: u8 = 2;
/// Bytes of the two words of version 2.
const CREDIT_LEN: usize = 8;
/// The offset of the record count in the stack.
const HOPS_AT: usize = 5;

#[cfg(test)]
mod tests;
