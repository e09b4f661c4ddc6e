//! The IP and UDP headers of a frame, and the ICRC that covers them.

use crate::link::Linked;
use spanwire_wire::{Ecn, EthernetRepr, ROCE_PORT};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    pub(crate) dst: IpAddr,
    pub(crate) src_port: u16,
    pub(crate) ecn: Ecn,
    pub(crate) header_len: usize,
    /// Bytes from the IP header to the ICRC, by the IP header; at least `header_len`.
    pub(crate) total_len: usize,
}

impl Ip {
    pub(crate) fn read(linked: &Linked<'_>) -> Result<Self, Other> {
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
