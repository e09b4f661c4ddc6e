//! In-band telemetry: records of switches, in a stack after the IP packet.
//!
//! The stack starts at the end of the packet given by the IP header, where Ethernet has its
//! padding. Adding a record changes no header and no ICRC, and receivers without telemetry ignore
//! it as padding. The sending host requests records by appending an empty stack.
//!
//! ```text
//! stack    magic 32 = "INTs" | version 8 | hops 8 | max hops 8 | format 8 | credit | records
//! credit   of version 2 only: credit 32 | waiting bytes 32
//! full     time ps 64 | bytes sent 64 | queue bytes 32 | link rate Mbit/s 32        (24 bytes)
//! compact  rate 8 | time 20 | bytes sent 20 | queue 16                              (8 bytes)
//! ```
//!
//! All fields are big-endian. Time is that of the stamping switch when the frame leaves its queue.
//! Bytes sent counts the port's bytes since its start, without this frame. Queue bytes is the
//! frame's queue after it left. The two long counters of full records are 64 bits wide, so that no
//! reader has to handle a wrap; those of compact records wrap within milliseconds
//! ([`IntCompactHop`]).

mod compact;
mod credit;
mod records;

pub use compact::IntCompactHop;
pub use credit::{INT_CREDIT_LEN, IntCredit, int_request_credit, int_restart_credit};
pub use records::{INT_COMPACT_LEN, INT_ECHO_HEADER_LEN, INT_FULL_LEN, IntFormat, IntRecords};

use crate::{EthernetRepr, be, ethernet};

/// Bytes of a stack without records.
pub const INT_HEADER_LEN: usize = 8;
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

/// A stack of telemetry records in a received frame. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct IntStack<'a> {
    hops: u8,
    max_hops: u8,
    format: IntFormat,
    credit: Option<IntCredit>,
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
                let (credit, rest) = rest.split_first_chunk()?;
                (Some(IntCredit::parse(credit)), rest)
            }
            _ => return None,
        };
        let records = rest.get(..usize::from(hops) * format.record_len())?;
        Some(Self { hops, max_hops, format, credit, records })
    }

    /// The most records that the sender requested.
    #[must_use]
    pub const fn max_hops(&self) -> u8 {
        self.max_hops
    }

    /// What the receiver's DCI switch has written, in a stack of version 2 (MLCC).
    #[must_use]
    pub const fn credit(&self) -> Option<IntCredit> {
        self.credit
    }

    /// Bytes before the records.
    const fn header_len(&self) -> usize {
        INT_HEADER_LEN + if self.credit.is_some() { INT_CREDIT_LEN } else { 0 }
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

/// Appends an empty stack after the frame that ends at `len`, which requests records in `format`.
/// Returns the frame's new length, or `None` if the buffer has no room for it.
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

/// Adds a record to the stack after the frame's IP packet, in the stack's format, and drops all
/// bytes after the stack. Returns the frame's new length. Returns `None` and leaves the frame
/// unchanged if there is no stack of a known format, it is full, or the buffer has no room.
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
/// The version whose header has a credit.
const VERSION_CREDIT: u8 = 2;
/// The offset of the record count in the stack.
const HOPS_AT: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet of `ip_len` bytes, `elided` of them elided, then `trailer`.
    fn frame(ip_len: u16, elided: usize, trailer: &[u8]) -> Vec<u8> {
        let mut f = vec![0; 12];
        f.extend([0x08, 0x00, 0x45, 0]);
        f.extend(ip_len.to_be_bytes());
        f.resize(14 + usize::from(ip_len) - elided, 0xee);
        f.extend(trailer);
        f
    }

    const FULL: IntFormat = IntFormat::Full;
    const HOP: IntHop =
        IntHop { time_ps: 1 << 40, tx_bytes: 1 << 50, queue_bytes: 3, link_rate_mbps: 100_000 };

    #[test]
    fn ip_end__follows_the_ip_header() {
        assert_eq!(ip_end(&frame(48, 0, &[]), 0), Some(62));
        assert_eq!(ip_end(&frame(48, 0, &[1, 2]), 0), Some(62));
        assert_eq!(ip_end(&frame(1_048, 1_000, &[1, 2]), 1_000), Some(62));
        assert_eq!(ip_end(&frame(48, 0, &[])[..61], 0), None);
        assert_eq!(ip_end(&frame(48, 0, &[]), 49), None);
        let mut v6 = vec![0; 12];
        v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 5]);
        v6.resize(14 + 40 + 5, 0);
        assert_eq!(ip_end(&v6, 0), Some(59));
        v6[14] = 0x45;
        assert_eq!(ip_end(&v6, 0), None, "EtherType and version disagree");
        for len in 0..20 {
            assert_eq!(ip_end(&v6[..len], 0), None);
        }
    }

    #[test]
    fn int_request__leaves_an_empty_stack() {
        let mut f = frame(1_048, 1_000, &[0; 8]);
        assert_eq!(int_request(&mut f, 62, 200, FULL), Some(70));
        let stack = IntStack::find(&f, 1_000).unwrap();
        assert_eq!((stack.len(), stack.max_hops(), stack.is_empty()), (0, INT_MAX_HOPS, true));
        assert_eq!(int_request(&mut f, 63, 5, FULL), None);
        assert_eq!(int_request(&mut f, 100, 5, FULL), None);
    }

    #[test]
    fn int_push__adds_up_to_the_requested_number_and_cuts_padding() {
        let mut f = frame(48, 0, &[0; 100]);
        assert_eq!(int_push(&mut f, 70, 0, &HOP), None, "no stack was requested");
        int_request(&mut f, 62, 2, FULL).unwrap();
        let before = f.clone();
        assert_eq!(int_push(&mut f, 75, 0, &HOP), Some(94));
        let second = IntHop { queue_bytes: 9, ..HOP };
        assert_eq!(int_push(&mut f, 94, 0, &second), Some(118));
        assert_eq!(int_push(&mut f, 118, 0, &HOP), None, "full");
        let stack = IntStack::find(&f[..118], 0).unwrap();
        assert_eq!(stack.hops().collect::<Vec<_>>(), [HOP, second]);
        assert_eq!(f[..62], before[..62], "no header changes");
    }

    #[test]
    fn int_push__writes_the_format_that_the_stack_requests() {
        let mut f = frame(48, 0, &[0; 100]);
        let len = int_request(&mut f, 62, 5, IntFormat::Compact).unwrap();
        let first = IntHop { time_ps: 33_000, tx_bytes: 1_300, queue_bytes: 1, ..HOP };
        let len = int_push(&mut f, len, 0, &first).unwrap();
        let len = int_push(&mut f, len, 0, &HOP).unwrap();
        assert_eq!(len, 62 + 8 + 2 * 8);
        let stack = IntStack::find(&f[..len], 0).unwrap();
        assert_eq!((stack.len(), stack.format(), stack.hops().count()), (2, IntFormat::Compact, 0));
        let want = IntCompactHop { time: 2, tx: 10, queue: 1, rate: 201 };
        let hops: Vec<IntCompactHop> = stack.compact_hops().collect();
        assert_eq!(hops, [want, IntCompactHop::from(&HOP)]);
        let echo = [&stack.echo_header()[..], stack.records()].concat();
        let echo = IntRecords::parse(&echo);
        assert_eq!((echo.format(), echo.len()), (IntFormat::Compact, 2));
        assert_eq!(echo.compact_hops().collect::<Vec<_>>(), hops);
    }

    #[test]
    fn int_push__adds_nothing_to_a_stack_of_an_unknown_version_or_format() {
        for (at, value) in [(66, 3), (69, 2), (69, 255)] {
            let mut f = frame(48, 0, &[0; 100]);
            int_request(&mut f, 62, 5, FULL).unwrap();
            f[at] = value;
            let before = f.clone();
            assert_eq!(int_push(&mut f, 70, 0, &HOP), None);
            assert_eq!(f, before, "forwarded unchanged");
            assert!(IntStack::find(&f[..70], 0).is_none(), "ignored");
        }
    }

    #[test]
    fn int_push__requires_buffer_space() {
        let mut f = frame(48, 0, &[0; 31]);
        int_request(&mut f, 62, 5, FULL).unwrap();
        let before = f.clone();
        assert_eq!(int_push(&mut f, 70, 0, &HOP), None);
        assert_eq!(f, before);
    }

    #[test]
    fn find__rejects_an_inconsistent_stack() {
        let mut f = frame(48, 0, &[0; 40]);
        int_request(&mut f, 62, 5, FULL).unwrap();
        int_push(&mut f, 70, 0, &HOP).unwrap();
        assert!(IntStack::find(&f[..94], 0).is_some());
        assert!(IntStack::find(&f[..93], 0).is_none(), "cut");
        for (at, value) in [(62, b'i'), (66, 3), (67, 6), (68, 17), (69, 2)] {
            let mut bad = f.clone();
            bad[at] = value;
            assert!(IntStack::find(&bad, 0).is_none(), "byte {at}");
        }
    }
}
