//! Received packets whose outer headers have been seen before.

mod peek;

pub use peek::{peek_dest_qp, peek_dest_qp_word};

use crate::icrc::{self, Prefix};
use crate::packet::dissect_transport;
use crate::{
    DropReason, Ecn, Ethernet, EthernetRepr, IpRepr, Ipv4Repr, Opcode, Psn, SrUsualRepr, Udp,
    UdpRepr, Unverified, be, bth, ethernet, ipv4, ipv6, udp,
};
use peek::{AT, len_field};

/// The outer headers of a flow's last packets that had no fault, for each of a few lengths.
///
/// A packet with the same ones up to the UDP length has no fault in them either, so they are not
/// evaluated again; IPv4's identification and checksum may differ if they agree. If the
/// identification does not differ, nor is the first part of the ICRC. Headers are known from the
/// second packet on that has them.
///
/// # Example
/// ```
/// use spanwire_wire::{Headers, KnownHeads, Unverified};
/// # use spanwire_wire::{BthRepr, EthernetRepr, ExtHeaders, IpRepr, Opcode, Psn, Qpn};
/// # use spanwire_wire::{UdpRepr, seal};
/// # let ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
/// # let bth = BthRepr::new(Opcode::RcSendOnly, Qpn::new(5), Psn::new(6));
/// # let (eth, ext) = (EthernetRepr::default(), ExtHeaders::NONE);
/// # let headers = Headers { eth, ip, udp: UdpRepr::new(0xc001), bth, ext };
/// let mut frame = [0; 62];
/// headers.emit(&mut frame, 4)?;
/// seal(&mut frame, 62);
/// let mut heads = KnownHeads::default();
/// for _ in 0..2 {
///     assert!(heads.find(&frame, 0).is_none());
///     let packet = Unverified::parse(&frame, 0).unwrap();
///     packet.verify().unwrap();
///     heads.learn(&frame, 0, &packet);
/// }
/// let known = heads.find(&frame, 0).expect("headers of two packets");
/// let packet = known.parse().unwrap();
/// assert!(known.verify(&packet).is_ok());
/// # Ok::<(), spanwire_wire::BufferTooShort>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KnownHeads {
    heads: [Option<Head>; icrc::SLOTS],
}

/// The outer headers of a packet.
#[derive(Clone, Debug)]
struct Head {
    /// EtherType, IP header and UDP header up to its length; an IPv4 packet uses the first
    /// [`V4_LEN`].
    bytes: [u8; V6_LEN],
    elided_bytes: usize,
    ip: IpRepr,
    is_ce: bool,
    /// The range of BTH to ICRC in the frame.
    transport: (usize, usize),
    /// IPv4's identification, and the sum over the header without it and the checksum.
    id: u16,
    partial_sum: u32,
    /// Of the second packet with these headers on.
    is_known: bool,
    /// None if the identification differed.
    prefix: Option<Prefix>,
}

/// A packet whose outer headers are known.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a, 'k> {
    frame: &'a [u8],
    head: &'k Head,
    /// IPv4's identification is that of the head too.
    is_same: bool,
}

/// A packet of RC without extension headers, with the default partition key and no ECN bit in the
/// BTH: a middle one of a message, or the only one of a SEND.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainRc<'a> {
    /// [`Opcode::RcSendMiddle`], [`Opcode::RcWriteMiddle`], [`Opcode::RcReadResponseMiddle`] or
    /// [`Opcode::RcSendOnly`].
    pub opcode: Opcode,
    /// The PSN.
    pub psn: Psn,
    /// The acknowledge request bit.
    pub ack_req: bool,
    /// The solicited event bit.
    pub solicited: bool,
    /// The payload; empty if it was elided.
    pub payload: &'a [u8],
    /// Payload bytes that were elided.
    pub elided_bytes: usize,
}

/// A data packet of SR with the default partition key, no ECN bit in the BTH, and a usual header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsualSrData<'a> {
    /// The header.
    pub header: SrUsualRepr,
    /// The acknowledge request bit.
    pub ack_req: bool,
    /// The solicited event bit.
    pub solicited: bool,
    /// The payload, whole or without its elided bytes.
    pub payload: &'a [u8],
    /// Payload bytes that were elided.
    pub elided_bytes: usize,
    /// Bytes of the IP packet, elided or not.
    pub ip_bytes: usize,
    /// As [`Packet::trailer`](crate::Packet::trailer).
    pub trailer: &'a [u8],
}

impl KnownHeads {
    /// The packet in `frame`, whose last `elided_bytes` of payload and pad were elided, if its
    /// outer headers are known. Nothing else of it is checked.
    #[inline]
    #[must_use]
    pub fn find<'a>(&self, frame: &'a [u8], elided_bytes: usize) -> Option<Known<'a, '_>> {
        let slot = icrc::slot(len_field(frame)?);
        let head = self.heads[slot].as_ref().filter(|head| head.is_known)?;
        let is_same = head.is_of(frame, elided_bytes)?;
        (frame.len() >= head.transport.1).then_some(Known { frame, head, is_same })
    }

    /// Keeps the outer headers of a packet that had no fault, and that [`Unverified::parse`] found
    /// in `frame` with so many elided bytes.
    pub fn learn(&mut self, frame: &[u8], elided_bytes: usize, packet: &Unverified<'_>) {
        let Some(slot) = len_field(frame).map(icrc::slot) else { return };
        match &mut self.heads[slot] {
            Some(head) if head.is_of(frame, elided_bytes).is_some() => {
                let covered = packet.covered();
                if !std::mem::replace(&mut head.is_known, true) && head.id == id_of(packet) {
                    head.prefix = Prefix::of(covered).map(|(prefix, _)| prefix);
                }
            }
            head => *head = Head::new(frame, elided_bytes, packet),
        }
    }
}

impl Head {
    fn new(frame: &[u8], elided_bytes: usize, packet: &Unverified<'_>) -> Option<Self> {
        let ip = packet.trusted().ip;
        let len = if matches!(ip, IpRepr::V4(_)) { V4_LEN } else { V6_LEN };
        let mut bytes = [0; V6_LEN];
        bytes[..len].copy_from_slice(frame.get(AT..AT + len)?);
        let from = ethernet::LEN + ip.header_len() + udp::LEN;
        let transport = (from, ethernet::LEN + packet.covered().len() + icrc::LEN);
        let id = id_of(packet);
        let partial_sum = match ip {
            IpRepr::V4(_) => {
                let mut header: [u8; ipv4::LEN] = be::bytes_at(&bytes, 2);
                be::put(&mut header, ID_AT - 2, [0; 2]);
                be::put(&mut header, CHECKSUM_AT - 2, [0; 2]);
                ipv4::sum(&header)
            }
            IpRepr::V6(_) => 0,
        };
        let (is_known, prefix, is_ce) = (false, None, ip.ecn() == Ecn::Ce);
        Some(Self { bytes, elided_bytes, ip, is_ce, transport, id, partial_sum, is_known, prefix })
    }

    /// The frame has these headers, and a right checksum: whether their identification is the same
    /// too. `None` if it has others.
    #[inline]
    fn is_of(&self, frame: &[u8], elided_bytes: usize) -> Option<bool> {
        let bytes = frame.get(AT..).filter(|_| self.elided_bytes == elided_bytes)?;
        match self.ip {
            IpRepr::V4(_) => {
                let bytes = bytes.first_chunk::<V4_LEN>()?;
                let differ = |at| word(bytes, at) ^ word(&self.bytes, at);
                // The last word overlaps the one before.
                let (id, checksum, rest) = (differ(0), differ(8), differ(16) | differ(20));
                if id | checksum | rest == 0 {
                    return Some(true);
                }
                let sum =
                    u32::from(be::u16_at(bytes, ID_AT)) + u32::from(be::u16_at(bytes, CHECKSUM_AT));
                let is_other = id & ID_MASK | checksum & CHECKSUM_MASK | rest == 0
                    && ipv4::fold(self.partial_sum + sum) == 0xffff;
                is_other.then_some(false)
            }
            IpRepr::V6(_) => {
                let bytes = bytes.first_chunk::<V6_LEN>()?;
                let differ = |at| word(bytes, at) ^ word(&self.bytes, at);
                let all = differ(0) | differ(8) | differ(16) | differ(24) | differ(32) | differ(40);
                (all == 0).then_some(true)
            }
        }
    }
}

/// Eight bytes of headers.
#[inline]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(be::bytes_at(bytes, at))
}

/// IPv4's identification; 0 over IPv6.
fn id_of(packet: &Unverified<'_>) -> u16 {
    match packet.trusted().ip {
        IpRepr::V4(ip) => ip.id,
        IpRepr::V6(_) => 0,
    }
}

impl<'a> Known<'a, '_> {
    /// As [`Unverified::parse`], with the same result.
    ///
    /// # Errors
    /// As [`Unverified::parse`], of a fault behind the UDP header.
    #[inline(always)]
    pub fn parse(&self) -> Result<Unverified<'a>, DropReason> {
        let (from, to) = self.head.transport;
        let eth = EthernetRepr::parse(&Ethernet::new(self.frame)?);
        let (udp, _) = Udp::new(&self.frame[from - udp::LEN..to])?;
        let ip = match self.head.ip {
            IpRepr::V4(ip) => IpRepr::V4(Ipv4Repr { id: self.id(), ..ip }),
            ip @ IpRepr::V6(_) => ip,
        };
        let udp = UdpRepr::of(&udp);
        let ip_bytes = &self.frame[ethernet::LEN..];
        let transport = (from - ethernet::LEN, to - ethernet::LEN);
        dissect_transport((eth, ip, udp), ip_bytes, transport, self.head.elided_bytes)
    }

    /// As [`Unverified::verify`] of the result of [`Known::parse`].
    ///
    /// # Errors
    /// [`DropReason::BadIcrc`].
    #[inline]
    pub fn verify(&self, packet: &Unverified<'a>) -> Result<(), DropReason> {
        match self.is_valid() {
            Some(true) => Ok(()),
            Some(false) => Err(DropReason::BadIcrc),
            None => packet.verify().map(|_| ()),
        }
    }

    /// The opcode is one of a [`PlainRc`]: true for the only packet of a SEND, false for a middle
    /// one. Nothing else is looked at.
    #[inline]
    #[must_use]
    pub fn is_only(&self) -> Option<bool> {
        match self.frame.get(self.head.transport.0) {
            Some(&(SEND_MIDDLE | WRITE_MIDDLE | READ_RESPONSE_MIDDLE)) => Some(false),
            Some(&SEND_ONLY) => Some(true),
            _ => None,
        }
    }

    /// The packet as a plain one of RC, the only one of a SEND or a middle one: `None` for any
    /// other, which may be one too. Its ICRC is not checked yet.
    // Inlined, so that no more than the caller asks for is looked at.
    #[inline(always)]
    #[must_use]
    pub fn plain_rc(&self, is_only: bool) -> Option<PlainRc<'a>> {
        let (from, to) = self.head.transport;
        let (bth, rest) = self.frame.get(from..to)?.split_first_chunk::<{ bth::LEN }>()?;
        let [opcode, flags, 0xff, 0xff, 0, _, _, _, ack_req @ (0 | 0x80), ..] = *bth else {
            return None;
        };
        let opcode = match (opcode, flags) {
            // Only the solicited event bit and the pad count.
            (SEND_ONLY, _) if is_only && flags & !0xb0 == 0 => Opcode::RcSendOnly,
            _ if is_only => return None,
            (SEND_MIDDLE, 0) => Opcode::RcSendMiddle,
            (WRITE_MIDDLE, 0) => Opcode::RcWriteMiddle,
            (READ_RESPONSE_MIDDLE, 0) => Opcode::RcReadResponseMiddle,
            _ => return None,
        };
        let (padded, _) = rest.split_last_chunk::<{ icrc::LEN }>()?;
        let padded_len = padded.len() + self.head.elided_bytes;
        let (payload, elided_bytes) = if is_only {
            let len = padded_len.checked_sub(usize::from(flags >> 4 & 3))?;
            let payload = &padded[..len.min(padded.len())];
            (payload, len - payload.len())
        } else {
            (padded, self.head.elided_bytes)
        };
        if !padded_len.is_multiple_of(4) || elided_bytes > 0 && !payload.is_empty() {
            return None;
        }
        let (psn, ack_req) = (Psn::new(be::u24_at(bth, 9)), ack_req != 0);
        Some(PlainRc { opcode, psn, ack_req, solicited: flags & 0x80 != 0, payload, elided_bytes })
    }

    /// The packet as one of SR with data: `None` for any other, which may be one too. Its ICRC is
    /// not checked yet.
    #[inline(always)]
    #[must_use]
    pub fn usual_sr_data(&self) -> Option<UsualSrData<'a>> {
        let Head { transport: (from, to), elided_bytes, ip, .. } = self.head;
        let (bth, rest) = self.frame.get(*from..*to)?.split_first_chunk::<{ bth::LEN }>()?;
        let [SR_DATA, flags, 0xff, 0xff, 0, _, _, _, ack_req @ (0 | 0x80), ..] = *bth else {
            return None;
        };
        // Only the solicited event bit and the pad count.
        let pad = usize::from(flags >> 4 & 3);
        let (sr, _) = rest.split_last_chunk::<{ icrc::LEN }>()?;
        let (header, padded) = SrUsualRepr::parse(be::u24_at(bth, 9), sr)?;
        let len = (sr.len() + elided_bytes).checked_sub(pad)?;
        if flags & !0xb0 != 0 || !(len + pad).is_multiple_of(4) {
            return None;
        }
        let len = len.checked_sub(sr.len() - padded.len())?;
        let payload = &padded[..len.min(padded.len())];
        Some(UsualSrData {
            header,
            ack_req: ack_req != 0,
            solicited: flags & 0x80 != 0,
            payload,
            elided_bytes: len - payload.len(),
            ip_bytes: ip.header_len() + udp::LEN + (to - from) + elided_bytes,
            trailer: &self.frame[*to..],
        })
    }

    /// The IP header; IPv4's identification is that of another packet.
    #[inline]
    #[must_use]
    pub fn ip(&self) -> &IpRepr {
        &self.head.ip
    }

    /// Congestion was experienced.
    #[inline]
    #[must_use]
    pub fn is_ce(&self) -> bool {
        self.head.is_ce
    }

    /// IPv4's identification.
    #[inline]
    fn id(&self) -> u16 {
        let bytes = self.frame.get(AT..).and_then(<[u8]>::first_chunk::<V4_LEN>);
        bytes.map_or(0, |bytes| be::u16_at(bytes, ID_AT))
    }

    /// As [`Known::verify`], without the result of [`Known::parse`].
    #[inline]
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.is_valid().unwrap_or_else(|| self.is_right_in_full())
    }

    #[inline(never)]
    fn is_right_in_full(&self) -> bool {
        self.parse().is_ok_and(|packet| packet.verify().is_ok())
    }

    /// The ICRC is right; `None` if it must be computed by [`Unverified::verify`].
    #[inline(always)]
    fn is_valid(&self) -> Option<bool> {
        let (from, to) = self.head.transport;
        let (covered, sent) = self.frame.get(from..to)?.split_last_chunk::<{ icrc::LEN }>()?;
        let prefix = self.head.prefix.clone().filter(|_| self.is_same)?;
        let icrc = prefix.icrc(covered)?;
        Some(icrc.to_le_bytes() == *sent)
    }
}

/// EtherType, IP header, ports and length of UDP. The UDP checksum is not checked.
const V4_LEN: usize = 2 + ipv4::LEN + 6;
const V6_LEN: usize = 2 + ipv6::LEN + 6;
/// IPv4's identification and checksum, behind the EtherType, and all but them in their words.
const ID_AT: usize = 6;
const CHECKSUM_AT: usize = 12;
const ID_MASK: u64 = !(0xffff << 48);
const CHECKSUM_MASK: u64 = !(0xffff << 32);

const SR_DATA: u8 = Opcode::SrData.to_u8();
const SEND_MIDDLE: u8 = Opcode::RcSendMiddle.to_u8();
const SEND_ONLY: u8 = Opcode::RcSendOnly.to_u8();
const WRITE_MIDDLE: u8 = Opcode::RcWriteMiddle.to_u8();
const READ_RESPONSE_MIDDLE: u8 = Opcode::RcReadResponseMiddle.to_u8();

#[cfg(test)]
mod tests;
