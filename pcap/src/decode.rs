//! Decoder of frames: detects RoCE, parses the headers, checks the ICRC.
//!
//! Faults come from the parser of the receive path. A receiver stops at the first fault; the
//! decoder parses all remaining headers as far as there are bytes.

use crate::capture::Record;
use crate::link::{Linked, VLAN_MAX, unlink};
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
}

impl Decoder {
    /// Decodes one frame.
    pub fn decode<'a>(&mut self, record: &Record<'a>) -> Decoded<'a> {
        match unlink(record.link, record.bytes) {
            None => Decoded::Other(Other::Cut),
            Some(linked) => match Ip::read(&linked) {
                Err(other) => Decoded::Other(other),
                Ok(ip) => {
                    let cut = record.bytes.len() < record.original_len;
                    Decoded::Roce(self.roce(&linked, &ip, cut))
                }
            },
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
        let bth = headers.and_then(|h| Bth::new(h).ok());
        let opcode = bth.and_then(|bth| Opcode::from_u8(bth.opcode()));
        let behind_bth = headers.and_then(|h| h.get(BTH_LEN..));
        let ext = opcode
            .zip(behind_bth)
            .and_then(|(opcode, bytes)| ExtHeaders::parse(opcode, bytes).ok().map(|(ext, _)| ext));
        let truncated = cut && whole.is_none();
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
            fault: self.fault(linked, ip, truncated, bth.is_some()).or(sr_fault),
            truncated,
        }
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
        self.frame.clear();
        self.frame.extend([0; 12]);
        self.frame.extend(linked.ethertype.to_be_bytes());
        let header_len = self.frame.len();
        self.frame.extend(linked.payload);
        if truncated {
            self.frame.resize(header_len + ip.total_len, 0);
        }
        Packet::parse_unverified(&self.frame).err()
    }
}

/// Compares the ICRC at the end of `packet`, which starts at the IP header.
fn check(packet: &[u8]) -> Icrc {
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
struct Ip {
    src: IpAddr,
    dst: IpAddr,
    src_port: u16,
    ecn: Ecn,
    header_len: usize,
    /// Bytes from the IP header to the ICRC, by the IP header; at least `header_len`.
    total_len: usize,
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
const UDP_LEN: usize = 8;
const BTH_LEN: usize = 12;
const ICRC_LEN: usize = 4;

#[cfg(test)]
mod tests;
