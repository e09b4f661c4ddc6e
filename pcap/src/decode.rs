//! Decoder of frames: detects RoCE, parses the headers, checks the ICRC.
//!
//! Faults come from the parser of the receive path. A receiver stops at the first fault; the
//! decoder parses all remaining headers as far as there are bytes.

use crate::capture::Record;
use crate::link::{Linked, VLAN_MAX, unlink};
use crate::run::Run;
use crate::sr::Sr;
use spanwire_wire::{Bth, DropReason, Ecn, EthernetRepr, ExtHeaders, Opcode, Packet, ROCE_PORT};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A decoder of frames.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The frame as an untagged Ethernet frame of full length, for the parser.
    frame: Vec<u8>,
}

/// A decoded frame.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Decoded<'a> {
    /// A packet to UDP port 4791.
    Roce(RocePacket<'a>),
    /// Anything else.
    Other(Other),
}

/// The kind of a frame that is no RoCE packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Other {
    /// Too few bytes to decode, or an unknown link layer.
    Cut,
    /// Not IP: the EtherType.
    EtherType(u16),
    /// A fragment of an IP packet. RoCE is never fragmented, because the ICRC covers a whole
    /// packet.
    Fragment,
    /// Not UDP: the protocol number (for IPv6: of the header after the fixed one).
    Protocol(u8),
    /// UDP to another port.
    UdpPort(u16),
}

/// The result of the ICRC check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icrc {
    /// Correct.
    Good,
    /// Wrong. Both values are little endian on the wire.
    Bad {
        /// The ICRC in the packet.
        sent: u32,
        /// The ICRC computed from the packet's bytes.
        computed: u32,
    },
    /// The packet has no ICRC, or is not completely in the capture.
    Unchecked,
}

/// A packet to UDP port 4791, as far as it can be read.
#[derive(Clone, Copy, Debug)]
pub struct RocePacket<'a> {
    /// VLAN ids, outermost first.
    pub vlans: [Option<u16>; VLAN_MAX],
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port: the entropy by which routers spread flows over paths.
    pub src_port: u16,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// The base transport header, if complete.
    pub bth: Option<Bth<'a>>,
    /// The opcode, if supported.
    pub opcode: Option<Opcode>,
    /// The extension headers of the opcode, if complete.
    pub ext: Option<ExtHeaders>,
    /// The SR header, if the opcode is of SR and the header is complete.
    pub sr_header: Option<Sr<'a>>,
    /// Bytes of payload without pad, by the length in the IP header; `None` if the length of the
    /// headers before it is unknown.
    pub payload_len: Option<usize>,
    /// The result of the ICRC check.
    pub icrc: Icrc,
    /// The reason other than the ICRC for which a receiver would drop the packet.
    pub fault: Option<DropReason>,
    /// The capture holds only the start of the packet.
    pub truncated: bool,
    /// Its place in a run of segments, if the capture has it as part of one.
    pub segment: Option<Segment>,
}

/// The place of a packet in a run of segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// From 1.
    pub number: usize,
    /// Segments of the run.
    pub of: usize,
}

impl Decoder {
    /// Decodes one frame: a packet, or each segment of a run that was captured as one packet.
    pub fn decode<'a>(&mut self, record: &Record<'a>) -> Vec<Decoded<'a>> {
        let linked = match unlink(record.link, record.bytes) {
            None => return vec![Decoded::Other(Other::Cut)],
            Some(linked) => linked,
        };
        let ip = match Ip::read(&linked) {
            Err(other) => return vec![Decoded::Other(other)],
            Ok(ip) => ip,
        };
        let cut = record.bytes.len() < record.original_len;
        let packet = self.roce(&linked, &ip, cut);
        let segments = match packet.icrc {
            Icrc::Bad { .. } => self.segments(&linked, &ip),
            Icrc::Good | Icrc::Unchecked => Vec::new(),
        };
        match segments.is_empty() {
            true => vec![Decoded::Roce(packet)],
            false => segments.into_iter().map(Decoded::Roce).collect(),
        }
    }

    /// Decodes a packet to UDP port 4791. `cut`: the capture has only part of the frame.
    fn roce<'a>(&mut self, linked: &Linked<'a>, ip: &Ip, cut: bool) -> RocePacket<'a> {
        let captured = linked.payload;
        let whole = captured.get(..ip.total_len);
        let transport = whole.unwrap_or(captured).get(ip.header_len + UDP_LEN..);
        let (icrc, headers) = match (whole, transport) {
            (Some(packet), Some(transport)) if transport.len() >= BTH_LEN + ICRC_LEN => {
                (check(packet), transport.get(..transport.len() - ICRC_LEN))
            }
            _ => (Icrc::Unchecked, transport),
        };
        let truncated = cut && whole.is_none();
        let has_bth = headers.is_some_and(|h| Bth::new(h).is_ok());
        let fault = self.fault(linked, ip, truncated, has_bth);
        packet(linked, ip, headers, Verdict { icrc, fault, truncated })
    }

    /// The packets of a run of segments, as segmentation and receive offloads (GSO, GRO) show them
    /// to a capture; empty if it is none.
    fn segments<'a>(&mut self, linked: &Linked<'a>, ip: &Ip) -> Vec<RocePacket<'a>> {
        let Some(run) = Run::find(linked, ip, &mut self.frame) else {
            return Vec::new();
        };
        let mut packets = Vec::with_capacity(run.count());
        for number in 0..run.count() {
            let icrc = run.check(number, &mut self.frame);
            let fault = Packet::parse_unverified(&self.frame).err();
            let transport = run.transport(number);
            let headers = transport.get(..transport.len() - ICRC_LEN);
            let ip = Ip { total_len: ip.header_len + UDP_LEN + transport.len(), ..*ip };
            let verdict = Verdict { icrc, fault, truncated: false };
            let segment = Some(Segment { number: number + 1, of: run.count() });
            packets.push(RocePacket { segment, ..packet(linked, &ip, headers, verdict) });
        }
        packets
    }

    /// The parser's drop reason for the packet in an untagged Ethernet frame. The missing part of a
    /// truncated packet is filled with zeros, which does not affect checks of the captured headers
    /// and of lengths.
    fn fault(
        &mut self,
        linked: &Linked<'_>,
        ip: &Ip,
        truncated: bool,
        has_bth: bool,
    ) -> Option<DropReason> {
        if truncated && !has_bth {
            return None;
        }
        start_frame(&mut self.frame, linked);
        self.frame.extend(linked.payload);
        if truncated {
            self.frame.resize(ETHERNET_LEN + ip.total_len, 0);
        }
        Packet::parse_unverified(&self.frame).err()
    }
}

/// What the bytes of a whole packet show.
struct Verdict {
    icrc: Icrc,
    fault: Option<DropReason>,
    truncated: bool,
}

/// The packet whose transport headers and payload, up to the ICRC, are `headers`.
fn packet<'a>(
    linked: &Linked<'a>,
    ip: &Ip,
    headers: Option<&'a [u8]>,
    verdict: Verdict,
) -> RocePacket<'a> {
    let Verdict { icrc, fault, truncated } = verdict;
    let bth = headers.and_then(|h| Bth::new(h).ok());
    let opcode = bth.and_then(|bth| Opcode::from_u8(bth.opcode()));
    let behind_bth = headers.and_then(|h| h.get(BTH_LEN..));
    let ext = opcode
        .zip(behind_bth)
        .and_then(|(opcode, bytes)| ExtHeaders::parse(opcode, bytes).ok().map(|(ext, _)| ext));
    let src = opcode
        .zip(bth)
        .zip(behind_bth)
        .and_then(|((opcode, bth), bytes)| Sr::read(opcode, bth.psn().get(), bytes));
    let sr_fault = src.and_then(Result::err).filter(|_| !truncated);
    let sr_header = src.and_then(Result::ok);
    let payload_len = opcode.zip(bth).and_then(|(opcode, bth)| {
        let ext_len = opcode.ext_len() + sr_header.map_or(0, |src| src.header_len());
        let overhead = ip.header_len + UDP_LEN + BTH_LEN + ext_len + ICRC_LEN;
        ip.total_len.checked_sub(overhead + usize::from(bth.pad()))
    });
    RocePacket {
        vlans: linked.vlans,
        src: ip.src,
        dst: ip.dst,
        src_port: ip.src_port,
        ecn: ip.ecn,
        bth,
        opcode,
        ext,
        sr_header,
        payload_len,
        icrc,
        fault: fault.or(sr_fault),
        truncated,
        segment: None,
    }
}

/// Replaces `frame` by the header of an untagged Ethernet frame.
pub(crate) fn start_frame(frame: &mut Vec<u8>, linked: &Linked<'_>) {
    frame.clear();
    frame.extend([0; ETHERNET_LEN - 2]);
    frame.extend(linked.ethertype.to_be_bytes());
}

/// Compares the ICRC at the end of `packet`, which starts at the IP header.
pub(crate) fn check(packet: &[u8]) -> Icrc {
    let Some((covered, sent)) = packet.split_last_chunk::<ICRC_LEN>() else {
        return Icrc::Unchecked;
    };
    let sent = u32::from_le_bytes(*sent);
    match spanwire_wire::icrc(covered) {
        None => Icrc::Unchecked,
        Some(computed) if computed == sent => Icrc::Good,
        Some(computed) => Icrc::Bad { sent, computed },
    }
}

/// The IP and UDP fields that locate the transport headers. It also parses truncated packets, for
/// which the views of `spanwire-wire` fail.
#[derive(Clone, Copy)]
pub(crate) struct Ip {
    pub(crate) src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    ecn: Ecn,
    pub(crate) header_len: usize,
    /// Bytes from the IP header to the ICRC, by the IP header; at least `header_len`.
    pub(crate) total_len: usize,
}

impl Ip {
    fn read(linked: &Linked<'_>) -> Result<Self, Other> {
        let bytes = linked.payload;
        let mut ip = match linked.ethertype {
            EthernetRepr::IPV4 => Self::v4(bytes)?,
            EthernetRepr::IPV6 => Self::v6(bytes)?,
            other => return Err(Other::EtherType(other)),
        };
        let port = |at| u16_at(bytes, ip.header_len + at).ok_or(Other::Cut);
        let dst_port = port(2)?;
        if dst_port != ROCE_PORT {
            return Err(Other::UdpPort(dst_port));
        }
        ip.src_port = port(0)?;
        Ok(ip)
    }

    fn v4(bytes: &[u8]) -> Result<Self, Other> {
        let header: &[u8; 20] = bytes.first_chunk().ok_or(Other::Cut)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_len < header.len() {
            return Err(Other::Cut);
        }
        if u16::from_be_bytes([header[6], header[7]]) & MORE_FRAGMENTS_AND_OFFSET != 0 {
            return Err(Other::Fragment);
        }
        if header[9] != UDP {
            return Err(Other::Protocol(header[9]));
        }
        let address = |at| u32_at(header, at).map(|a| IpAddr::V4(Ipv4Addr::from_bits(a)));
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        Ok(Self {
            src: address(12).ok_or(Other::Cut)?,
            dst: address(16).ok_or(Other::Cut)?,
            src_port: 0,
            ecn: Ecn::from_tos(header[1]),
            header_len,
            total_len: total_len.max(header_len),
        })
    }

    fn v6(bytes: &[u8]) -> Result<Self, Other> {
        let header: &[u8; 40] = bytes.first_chunk().ok_or(Other::Cut)?;
        if header[0] >> 4 != 6 {
            return Err(Other::Cut);
        }
        match header[6] {
            UDP => {}
            FRAGMENT => return Err(Other::Fragment),
            protocol => return Err(Other::Protocol(protocol)),
        }
        let address = |at: usize| {
            let octets: Option<&[u8; 16]> = header[at..].first_chunk();
            octets.map(|o| IpAddr::V6(Ipv6Addr::from(*o)))
        };
        Ok(Self {
            src: address(8).ok_or(Other::Cut)?,
            dst: address(24).ok_or(Other::Cut)?,
            src_port: 0,
            ecn: Ecn::from_tos(header[1] >> 4),
            header_len: header.len(),
            total_len: header.len() + usize::from(u16::from_be_bytes([header[4], header[5]])),
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
/// Mask of MF and fragment offset in IPv4's flags, without DF and the reserved bit.
const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
/// The Ethernet header without tags.
pub(crate) const ETHERNET_LEN: usize = 14;
pub(crate) const UDP_LEN: usize = 8;
pub(crate) const BTH_LEN: usize = 12;
pub(crate) const ICRC_LEN: usize = 4;

#[cfg(test)]
mod tests;
