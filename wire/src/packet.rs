//! A whole received frame, from Ethernet to the ICRC.

use crate::{
    Bth, BthRepr, DropReason, Ethernet, EthernetRepr, ExtHeaders, IpRepr, Ipv4, Ipv4Repr, Ipv6,
    Ipv6Repr, Qpn, Udp, UdpRepr, ethernet, icrc, udp,
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
    /// The payload, without pad and ICRC; of one that was elided, the bytes in front of what is
    /// missing.
    pub payload: &'a [u8],
    /// Payload bytes that were elided (`spanwire_base::TxMeta`); 0 for every frame but a simulated
    /// one.
    pub elided_bytes: usize,
    /// What the frame has behind the IP packet: link padding, or telemetry
    /// ([`IntStack`](crate::IntStack)). The ICRC does not cover it.
    pub trailer: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes a whole Ethernet frame (no FCS) apart. Bytes behind the end that the IP header gives
    /// are link padding and ignored.
    ///
    /// # Errors
    /// The first thing found wrong, from the outside in; the ICRC last.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, DropReason> {
        Self::parse_elided(frame, 0)
    }

    /// As [`Packet::parse`] for a frame of which the last `elided_bytes` of payload and pad were
    /// left out. The ICRC covers what is there.
    ///
    /// # Errors
    /// As [`Packet::parse`].
    #[inline]
    pub fn parse_elided(frame: &'a [u8], elided_bytes: usize) -> Result<Self, DropReason> {
        let unverified = Unverified::parse(frame, elided_bytes)?;
        unverified.verify()?;
        Ok(unverified.packet)
    }

    /// Like [`Packet::parse`] without the ICRC: for a link that cannot corrupt (a simulated one),
    /// or where it has been checked.
    ///
    /// # Errors
    /// As [`Packet::parse`], never [`DropReason::BadIcrc`].
    pub fn parse_unverified(frame: &'a [u8]) -> Result<Self, DropReason> {
        Unverified::parse(frame, 0).map(|unverified| unverified.packet)
    }

    /// Bytes of the payload on the wire, elided or not.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.len() + self.elided_bytes
    }
}

/// A received packet that is checked except for its ICRC, which costs as much as the rest. The
/// destination QPN is known, so that a packet without a queue pair is dropped before.
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a> {
    packet: Packet<'a>,
    /// What the ICRC covers, and the ICRC.
    covered: &'a [u8],
    sent_icrc: &'a [u8; icrc::LEN],
}

impl<'a> Unverified<'a> {
    /// As [`Packet::parse_elided`] up to the ICRC.
    ///
    /// # Errors
    /// As [`Packet::parse`], never [`DropReason::BadIcrc`].
    #[inline]
    pub fn parse(frame: &'a [u8], elided_bytes: usize) -> Result<Self, DropReason> {
        dissect(frame, elided_bytes)
    }

    /// The destination QPN, if the ICRC turns out right.
    #[must_use]
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        self.packet.bth.dest_qp
    }

    /// The packet, if its ICRC is right.
    ///
    /// # Errors
    /// [`DropReason::BadIcrc`].
    #[inline]
    pub fn verify(&self) -> Result<&Packet<'a>, DropReason> {
        if icrc::icrc(self.covered).map(u32::to_le_bytes) == Some(*self.sent_icrc) {
            Ok(&self.packet)
        } else {
            Err(DropReason::BadIcrc)
        }
    }
}

#[inline]
fn dissect(frame: &[u8], elided_bytes: usize) -> Result<Unverified<'_>, DropReason> {
    let eth = EthernetRepr::parse(&Ethernet::new(frame)?);
    let ip_bytes = &frame[ethernet::LEN..];
    let (ip, ip_payload) = match eth.ethertype {
        EthernetRepr::IPV4 => {
            let (view, payload) = Ipv4::elided(ip_bytes, elided_bytes)?;
            (IpRepr::V4(Ipv4Repr::parse(&view)?), payload)
        }
        EthernetRepr::IPV6 => {
            let (view, payload) = Ipv6::elided(ip_bytes, elided_bytes)?;
            (IpRepr::V6(Ipv6Repr::parse(&view)?), payload)
        }
        _ => return Err(DropReason::NotIp),
    };
    let (udp, ib) = Udp::new(ip_payload)?;
    let udp = UdpRepr::parse(&udp, ib.len() + elided_bytes)?;
    let (ib, sent_icrc) = ib.split_last_chunk::<{ icrc::LEN }>().ok_or(DropReason::BthTooShort)?;
    let bth = BthRepr::parse(&Bth::new(ib)?)?;
    let (ext, padded) = ExtHeaders::parse(bth.opcode, &ib[crate::bth::LEN..])?;
    let len = unpadded_len(&bth, padded.len() + elided_bytes)?;
    let payload = &padded[..len.min(padded.len())];
    let elided_bytes = len - payload.len();
    let (covered, behind) = ip_bytes.split_at(ip.header_len() + udp::LEN + ib.len());
    let trailer = &behind[icrc::LEN..];
    let packet = Packet { eth, ip, udp, bth, ext, payload, elided_bytes, trailer };
    Ok(Unverified { packet, covered, sent_icrc })
}

/// Bytes of the payload without its pad, which fills it up to a multiple of four bytes.
#[inline]
fn unpadded_len(bth: &BthRepr, padded_len: usize) -> Result<usize, DropReason> {
    if !bth.opcode.props().payload && padded_len > 0 {
        return Err(DropReason::UnexpectedPayload);
    }
    if !padded_len.is_multiple_of(4) {
        return Err(DropReason::BadPad);
    }
    padded_len.checked_sub(usize::from(bth.pad)).ok_or(DropReason::BadPad)
}

#[cfg(test)]
mod tests;
