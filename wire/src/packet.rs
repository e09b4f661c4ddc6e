//! A whole received frame, from Ethernet to the ICRC.

use crate::{
    Bth, BthRepr, DropReason, Ethernet, EthernetRepr, ExtHeaders, IpRepr, Ipv4, Ipv4Repr, Ipv6,
    Ipv6Repr, Qpn, Udp, UdpRepr, ethernet, icrc, udp,
};

/// A received RoCEv2 packet: its headers by value, its payload borrowed from the frame.
///
/// A [`Packet`] guarantees that
/// - the lengths of all layers agree, and the IPv4 header checksum is right,
/// - the transport version is 0, and [`Packet::ext`] holds exactly what the opcode requires,
/// - pad and payload are a multiple of four bytes, and an opcode without payload has none,
/// - with [`Packet::parse`], the ICRC is right.
///
/// The transport checks addresses, partition key, queue pair, PSN and the size of the payload
/// against the path MTU. The UDP checksum is not checked.
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
    /// The payload, without pad and ICRC; of an elided packet, the bytes before the elided part.
    pub payload: &'a [u8],
    /// Payload bytes that were elided (`spanwire_base::TxMeta`); 0 except in simulated frames.
    pub elided_bytes: usize,
    /// The bytes of the frame after the IP packet: link padding, or telemetry
    /// ([`IntStack`](crate::IntStack)). The ICRC does not cover it.
    pub trailer: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a whole Ethernet frame (no FCS). Bytes after the end that the IP header gives are
    /// link padding and ignored.
    ///
    /// # Errors
    /// The first failed check, from the outermost layer inwards; the ICRC last.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, DropReason> {
        Self::parse_elided(frame, 0)
    }

    /// As [`Packet::parse`] for a frame whose last `elided_bytes` of payload and pad were elided.
    /// The ICRC covers the bytes that are present.
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
    /// or for a frame whose ICRC was checked before.
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

/// A received packet that is checked except for its ICRC, which costs as much as all other checks.
/// The destination QPN is known, so that a packet without a queue pair is dropped without it.
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a> {
    packet: Packet<'a>,
    /// The bytes that the ICRC covers, and the ICRC.
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

    /// The destination QPN, valid only if the ICRC is right.
    #[must_use]
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        self.packet.bth.dest_qp
    }

    /// The bytes that the ICRC covers.
    pub(crate) fn covered(&self) -> &'a [u8] {
        self.covered
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

    /// The packet, whatever its ICRC: one that was checked before, or without an ICRC by agreement.
    #[must_use]
    #[inline]
    pub fn trusted(&self) -> &Packet<'a> {
        &self.packet
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
    let from = ip.header_len() + udp::LEN;
    dissect_transport((eth, ip, udp), ip_bytes, (from, from + ib.len()), elided_bytes)
}

/// The rest of a packet of which everything before the BTH is right. `ip_bytes` are the bytes from
/// the IP header on, and `from..to` the BTH up to the ICRC, inclusive.
#[inline(always)]
pub(crate) fn dissect_transport(
    (eth, ip, udp): (EthernetRepr, IpRepr, UdpRepr),
    ip_bytes: &[u8],
    (from, to): (usize, usize),
    elided_bytes: usize,
) -> Result<Unverified<'_>, DropReason> {
    let ib = &ip_bytes[from..to];
    let (ib, sent_icrc) = ib.split_last_chunk::<{ icrc::LEN }>().ok_or(DropReason::BthTooShort)?;
    let bth = BthRepr::parse(&Bth::new(ib)?)?;
    let (ext, padded) = ExtHeaders::parse(bth.opcode, &ib[crate::bth::LEN..])?;
    let len = unpadded_len(&bth, padded.len() + elided_bytes)?;
    let payload = &padded[..len.min(padded.len())];
    let elided_bytes = len - payload.len();
    let (covered, rest) = ip_bytes.split_at(to - icrc::LEN);
    let trailer = &rest[icrc::LEN..];
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
pub(crate) mod tests;
