//! A whole received frame, from Ethernet to the ICRC.

use crate::{
    Bth, BthRepr, DropReason, Ethernet, EthernetRepr, ExtHeaders, IpRepr, Ipv4, Ipv4Repr, Ipv6,
    Ipv6Repr, Udp, UdpRepr, ethernet, icrc, udp,
};

/// A received RoCEv2 packet: its headers by value, its payload where it arrived.
///
/// What a [`Packet`] promises: the lengths of all layers agree, the IPv4 header checksum is right,
/// the transport version is 0, [`Packet::ext`] holds exactly what the opcode calls for, pad and
/// payload are a multiple of four bytes and there is no payload behind an opcode without one. With
/// [`Packet::parse`] also: the ICRC is right.
///
/// What it does not: addresses, partition key, queue pair, PSN and the size of the payload against
/// the path MTU are the transport's to judge. The UDP checksum is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The Ethernet header.
    pub eth: EthernetRepr,
    /// The IP header.
    pub ip: IpRepr,
    /// The UDP header.
    pub udp: UdpRepr,
    /// The base transport header.
    pub bth: BthRepr,
    /// The extension headers.
    pub ext: ExtHeaders,
    /// The payload, without pad and ICRC.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes a whole Ethernet frame (no FCS) apart. Bytes behind the end that the IP header gives
    /// are link padding and ignored.
    ///
    /// # Errors
    /// The first thing found wrong, from the outside in; the ICRC last.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, DropReason> {
        let (packet, covered, sent_icrc) = dissect(frame)?;
        if icrc::icrc(covered).map(u32::to_le_bytes) == Some(*sent_icrc) {
            Ok(packet)
        } else {
            Err(DropReason::BadIcrc)
        }
    }

    /// Like [`Packet::parse`] without the ICRC: for a link that cannot corrupt (a simulated one),
    /// or where it has been checked.
    ///
    /// # Errors
    /// As [`Packet::parse`], never [`DropReason::BadIcrc`].
    pub fn parse_unverified(frame: &'a [u8]) -> Result<Self, DropReason> {
        dissect(frame).map(|(packet, _, _)| packet)
    }
}

/// The packet, the bytes that its ICRC covers and the ICRC.
type Dissected<'a> = (Packet<'a>, &'a [u8], &'a [u8; icrc::LEN]);

#[inline]
fn dissect(frame: &[u8]) -> Result<Dissected<'_>, DropReason> {
    let eth = EthernetRepr::parse(&Ethernet::new(frame)?);
    let ip_bytes = &frame[ethernet::LEN..];
    let (ip, ip_payload) = match eth.ethertype {
        EthernetRepr::IPV4 => {
            let (view, payload) = Ipv4::new(ip_bytes)?;
            (IpRepr::V4(Ipv4Repr::parse(&view)?), payload)
        }
        EthernetRepr::IPV6 => {
            let (view, payload) = Ipv6::new(ip_bytes)?;
            (IpRepr::V6(Ipv6Repr::parse(&view)?), payload)
        }
        _ => return Err(DropReason::NotIp),
    };
    let (udp, ib) = Udp::new(ip_payload)?;
    let udp = UdpRepr::parse(&udp, ib.len())?;
    let (ib, sent_icrc) = ib.split_last_chunk::<{ icrc::LEN }>().ok_or(DropReason::BthTooShort)?;
    let bth = BthRepr::parse(&Bth::new(ib)?)?;
    let (ext, padded) = ExtHeaders::parse(bth.opcode, &ib[crate::bth::LEN..])?;
    let payload = unpad(&bth, padded)?;
    let covered = &ip_bytes[..ip.header_len() + udp::LEN + ib.len()];
    let packet = Packet { eth, ip, udp, bth, ext, payload };
    Ok((packet, covered, sent_icrc))
}

/// The payload without its pad, which fills it up to a multiple of four bytes.
#[inline]
fn unpad<'a>(bth: &BthRepr, padded: &'a [u8]) -> Result<&'a [u8], DropReason> {
    if !bth.opcode.props().payload && !padded.is_empty() {
        return Err(DropReason::UnexpectedPayload);
    }
    if !padded.len().is_multiple_of(4) {
        return Err(DropReason::BadPad);
    }
    let len = padded.len().checked_sub(usize::from(bth.pad));
    Ok(&padded[..len.ok_or(DropReason::BadPad)?])
}

#[cfg(test)]
mod tests;
