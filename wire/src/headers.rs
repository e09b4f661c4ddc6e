//! The headers of a packet to send.

use core::ops::Range;

use crate::{
    BthRepr, BufferTooShort, EthernetRepr, ExtHeaders, IpRepr, Packet, UdpRepr, bth, ethernet,
    icrc, ipv4, ipv6, udp,
};

/// The headers of a packet to send, without its payload, which is copied once, from the
/// application's memory into the frame, between [`Headers::emit`] and [`seal`](crate::seal).
///
/// [`Template`](crate::Template) does the same for a flow whose outer headers do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The Ethernet header; its EtherType is taken from `ip` instead.
    pub eth: EthernetRepr,
    /// The IP header.
    pub ip: IpRepr,
    /// The UDP header. Its checksum is sent unchanged: 0, or that of a captured packet.
    pub udp: UdpRepr,
    /// The base transport header; its pad count is computed from the payload length instead.
    pub bth: BthRepr,
    /// The extension headers, exactly those that the opcode requires.
    pub ext: ExtHeaders,
}

/// The longest frame: 65535 bytes, IPv4's maximum total length, after an Ethernet header.
pub const MAX_FRAME_LEN: usize = ethernet::LEN + 0xffff;

impl Headers {
    /// Bytes from the start of the frame to the payload.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        prefix_len(&self.ip) + bth::LEN + self.bth.opcode.ext_len()
    }

    /// Bytes of the frame with `payload_len` bytes of payload, pad and ICRC included, no FCS.
    #[must_use]
    pub const fn frame_len(&self, payload_len: usize) -> usize {
        self.header_len() + payload_len + pad_of(payload_len) as usize + icrc::LEN
    }

    /// Writes all headers and the pad bytes and returns the range of the payload. The payload and
    /// [`seal`](crate::seal) then complete the frame.
    ///
    /// Lengths, pad count and IPv4 checksum follow from `payload_len`.
    ///
    /// # Arguments
    /// - `frame`: the buffer, at least [`Headers::frame_len`] bytes; bytes after that do not
    ///   change.
    /// - `payload_len`: bytes of payload, without pad.
    /// # Errors
    /// [`BufferTooShort`]; the content of `frame` is then unspecified.
    /// # Panics
    /// With debug assertions, if `ext` is not what the opcode requires, or if there is a payload
    /// with an opcode without one: both are errors of the caller. Without debug assertions,
    /// receivers drop the frame.
    #[inline]
    pub fn emit(
        &self,
        frame: &mut [u8],
        payload_len: usize,
    ) -> Result<Range<usize>, BufferTooShort> {
        let lens = Lens::of(&self.ip, &self.bth, payload_len)?;
        lens.check_room(frame.len())?;
        let (prefix, ib) = frame.split_at_mut(prefix_len(&self.ip));
        emit_prefix(&self.eth, &self.ip, &self.udp, &lens, prefix)?;
        emit_transport(&self.bth, &self.ext, &lens, ib)?;
        Ok(lens.payload)
    }
}

impl From<&Packet<'_>> for Headers {
    fn from(p: &Packet<'_>) -> Self {
        Self { eth: p.eth, ip: p.ip, udp: p.udp, bth: p.bth, ext: p.ext }
    }
}

/// The lengths of a packet, all checked to fit their fields and the buffer.
pub(crate) struct Lens {
    /// IPv4's total length: from the IP header to the ICRC.
    pub(crate) ip_total: u16,
    /// The length field of UDP and IPv6: from the UDP header to the ICRC.
    pub(crate) udp: u16,
    /// The pad count.
    pub(crate) pad: u8,
    /// The range of the payload in the frame.
    pub(crate) payload: Range<usize>,
    /// Payload and pad bytes that are not written.
    pub(crate) elided_bytes: usize,
}

impl Lens {
    pub(crate) fn of(
        ip: &IpRepr,
        bth: &BthRepr,
        payload_len: usize,
    ) -> Result<Self, BufferTooShort> {
        debug_assert!(
            bth.opcode.props().payload || payload_len == 0,
            "{:?} carries no payload",
            bth.opcode
        );
        // Also prevents an overflow of the sums below.
        if payload_len > MAX_FRAME_LEN {
            return Err(BufferTooShort);
        }
        let start = prefix_len(ip) + bth::LEN + bth.opcode.ext_len();
        let pad = pad_of(payload_len);
        let end = start + payload_len + usize::from(pad) + icrc::LEN;
        let ip_total = u16::try_from(end - ethernet::LEN).map_err(|_| BufferTooShort)?;
        let udp = end - ethernet::LEN - ip.header_len();
        Ok(Self {
            ip_total,
            udp: u16::try_from(udp).map_err(|_| BufferTooShort)?,
            pad,
            payload: start..start + payload_len,
            elided_bytes: 0,
        })
    }

    /// The same packet with all but the first `kept` bytes of its payload elided.
    pub(crate) fn elided(self, kept: usize) -> Self {
        let Range { start, end } = self.payload;
        let cut = end.min(start + kept);
        if cut == end {
            return self;
        }
        let elided_bytes = end - cut + usize::from(self.pad);
        Self { payload: start..cut, elided_bytes, ..self }
    }

    /// Pad bytes that are written.
    pub(crate) fn pad_written(&self) -> usize {
        if self.elided_bytes == 0 { usize::from(self.pad) } else { 0 }
    }

    /// Checks that the bytes written fit into `room`.
    pub(crate) fn check_room(&self, room: usize) -> Result<(), BufferTooShort> {
        let end = self.payload.end + self.pad_written() + icrc::LEN;
        if end > room { Err(BufferTooShort) } else { Ok(()) }
    }
}

/// Bytes before the BTH.
pub(crate) const fn prefix_len(ip: &IpRepr) -> usize {
    ethernet::LEN + ip.header_len() + udp::LEN
}

/// Writes Ethernet, IP and UDP; `out` has exactly their length.
pub(crate) fn emit_prefix(
    eth: &EthernetRepr,
    ip: &IpRepr,
    udp: &UdpRepr,
    lens: &Lens,
    out: &mut [u8],
) -> Result<(), BufferTooShort> {
    let (eth_out, out) = out.split_first_chunk_mut().ok_or(BufferTooShort)?;
    let (ethertype, out) = match ip {
        IpRepr::V4(ip) => {
            let (ip_out, out) =
                out.split_first_chunk_mut::<{ ipv4::LEN }>().ok_or(BufferTooShort)?;
            ip.emit(lens.ip_total, ip_out);
            (EthernetRepr::IPV4, out)
        }
        IpRepr::V6(ip) => {
            let (ip_out, out) =
                out.split_first_chunk_mut::<{ ipv6::LEN }>().ok_or(BufferTooShort)?;
            ip.emit(lens.udp, ip_out);
            (EthernetRepr::IPV6, out)
        }
    };
    EthernetRepr { ethertype, ..*eth }.emit(eth_out);
    udp.emit(lens.udp, out.first_chunk_mut().ok_or(BufferTooShort)?);
    Ok(())
}

/// Writes the BTH with its pad count, the extension headers and the pad bytes; `out` starts at the
/// BTH.
pub(crate) fn emit_transport(
    bth: &BthRepr,
    ext: &ExtHeaders,
    lens: &Lens,
    out: &mut [u8],
) -> Result<(), BufferTooShort> {
    debug_assert!(ext.is_for(bth.opcode), "{:?} does not go with {ext:?}", bth.opcode);
    let (bth_out, out) = out.split_first_chunk_mut().ok_or(BufferTooShort)?;
    BthRepr { pad: lens.pad, ..*bth }.emit(bth_out);
    let (ext_out, out) = out.split_at_mut_checked(bth.opcode.ext_len()).ok_or(BufferTooShort)?;
    ext.emit(ext_out)?;
    let end = lens.payload.len();
    out.get_mut(end..end + lens.pad_written()).ok_or(BufferTooShort)?.fill(0);
    Ok(())
}

/// The pad bytes after `payload_len` bytes: up to the next multiple of four.
const fn pad_of(payload_len: usize) -> u8 {
    match payload_len % 4 {
        1 => 3,
        2 => 2,
        3 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Opcode, Psn, Qpn};

    fn headers(opcode: Opcode, ext: ExtHeaders) -> Headers {
        let ip = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
        Headers {
            eth: EthernetRepr::default(),
            ip,
            udp: UdpRepr::new(0xc000),
            bth: BthRepr::new(opcode, Qpn::new(5), Psn::new(6)),
            ext,
        }
    }

    #[test]
    fn frame_len__counts_pad_and_icrc() {
        let h = headers(Opcode::RcSendOnly, ExtHeaders::NONE);
        assert_eq!(h.header_len(), 54);
        let lens: Vec<_> = (0..6).map(|n| h.frame_len(n)).collect();
        assert_eq!(lens, [58, 62, 62, 62, 62, 66]);
    }

    #[test]
    fn emit__requires_the_exact_length() {
        let h = headers(Opcode::RcSendOnly, ExtHeaders::NONE);
        let len = h.frame_len(5);
        assert_eq!(h.emit(&mut vec![0; len], 5), Ok(54..59));
        for short in 0..len {
            assert_eq!(h.emit(&mut vec![0; short], 5), Err(BufferTooShort));
        }
    }

    #[test]
    fn emit__rejects_frames_beyond_the_ip_length() {
        let h = headers(Opcode::RcSendOnly, ExtHeaders::NONE);
        let mut frame = vec![0; 70_000];
        let most = MAX_FRAME_LEN - h.header_len() - icrc::LEN;
        let most = most - most % 4;
        assert!(h.emit(&mut frame, most).is_ok());
        assert_eq!(h.emit(&mut frame, most + 1), Err(BufferTooShort));
        assert_eq!(h.emit(&mut frame, usize::MAX), Err(BufferTooShort));
    }

    #[test]
    fn emit__clears_pad_and_leaves_the_rest() {
        let h = headers(Opcode::RcSendOnly, ExtHeaders::NONE);
        let mut frame = [0xaa; 70];
        let at = h.emit(&mut frame, 1).unwrap();
        assert_eq!(frame[at.end..at.end + 3], [0; 3]);
        assert_eq!(frame[at.end + 3..], [0xaa; 12]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "does not go with")]
    fn emit__asserts_the_extension_headers() {
        let _ = headers(Opcode::RcWriteOnly, ExtHeaders::NONE).emit(&mut [0; 200], 0);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "carries no payload")]
    fn emit__asserts_that_the_opcode_takes_a_payload() {
        let _ = headers(Opcode::RcAck, ExtHeaders::NONE).emit(&mut [0; 200], 1);
    }
}
