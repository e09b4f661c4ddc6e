//! The outer headers of a flow, built once and copied into each packet.

use core::ops::Range;

use crate::BufferTooShort;
use crate::headers::{self, Lens};
use crate::icrc::{self, Prefixes};
use crate::{
    BthRepr, EthernetRepr, ExtHeaders, IpRepr, Opcode, Psn, Qpn, UdpRepr, be, bth, ethernet, ipv4,
    ipv6, udp,
};

/// The Ethernet, IP and UDP headers of a flow as bytes. A queue pair builds them once. Each packet
/// copies them and changes only the lengths and the fields that depend on them.
///
/// The frames are byte for byte those of [`Headers::emit`](crate::Headers::emit) with the same
/// headers and a UDP checksum of 0.
#[derive(Clone, Debug)]
pub struct Template {
    ip: IpRepr,
    /// The headers with lengths of 0; an IPv4 packet uses the first [`V4_LEN`].
    bytes: [u8; V6_LEN],
    /// The sum over the IPv4 header with length and checksum 0, before folding the carries: adding
    /// the length and folding gives the checksum.
    partial_sum: u32,
    prefixes: Prefixes,
    /// The headers of the last packets of [`Template::emit_plain`], by [`slot`].
    kept: [Option<Kept>; 2],
}

/// A BTH with the default partition key and no flags but these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainBth {
    /// The operation, one without extension headers.
    pub opcode: Opcode,
    /// The destination queue pair.
    pub dest_qp: Qpn,
    /// The packet sequence number.
    pub psn: Psn,
    /// The acknowledge request bit.
    pub ack_req: bool,
    /// The solicited event bit.
    pub solicited: bool,
}

impl PlainBth {
    /// A BTH without flags.
    #[must_use]
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self { opcode, dest_qp, psn, ack_req: false, solicited: false }
    }

    /// They differ at most in PSN and AckReq.
    #[inline]
    fn is_like(&self, other: &Self) -> bool {
        let of = |bth: &Self| (bth.opcode, bth.dest_qp, bth.solicited);
        of(self) == of(other)
    }
}

/// All headers of a packet without a pad, and what they depend on but PSN and AckReq. They are kept
/// from the second such packet on, so that lengths that do not recur cost nothing.
#[derive(Clone, Debug)]
struct Kept {
    bth: PlainBth,
    payload_len: usize,
    kept_len: usize,
    is_there: bool,
    /// Over IPv4 the first [`V4_ALL`] bytes.
    bytes: [u8; V6_ALL],
    place: Range<usize>,
    elided_bytes: usize,
}

impl Kept {
    /// It is of packets like this one.
    #[inline]
    fn is_of(&self, bth: &PlainBth, payload_len: usize, kept_len: usize) -> bool {
        self.bth.is_like(bth) && self.payload_len == payload_len && self.kept_len == kept_len
    }
}

impl Template {
    /// The outer headers from `eth` (its EtherType follows from `ip`), `ip` and the UDP source
    /// port, to the RoCE port.
    #[must_use]
    pub fn new(eth: EthernetRepr, ip: IpRepr, src_port: u16) -> Self {
        let mut this = Self {
            ip,
            bytes: [0; V6_LEN],
            partial_sum: 0,
            prefixes: Prefixes::default(),
            kept: [None, None],
        };
        let zero = Lens { ip_total: 0, udp: 0, pad: 0, payload: 0..0, elided_bytes: 0 };
        let len = headers::prefix_len(&ip);
        headers::emit_prefix(&eth, &ip, &UdpRepr::new(src_port), &zero, &mut this.bytes[..len])
            .expect("the array holds the longer of the two");
        if let IpRepr::V4(_) = ip {
            let (_, ip_bytes) = this.bytes.split_at_mut(ethernet::LEN);
            let ip_bytes: &mut [u8; ipv4::LEN] =
                ip_bytes.first_chunk_mut().expect("an IPv4 header is in the array");
            be::put(ip_bytes, CHECKSUM_AT, [0, 0]);
            this.partial_sum = ipv4::sum(ip_bytes);
        }
        this
    }

    /// The IP header of the template.
    #[must_use]
    pub const fn ip(&self) -> &IpRepr {
        &self.ip
    }

    /// Bytes from the start of the frame to the payload of a packet of `bth`'s opcode.
    #[must_use]
    pub const fn header_len(&self, bth: &BthRepr) -> usize {
        headers::prefix_len(&self.ip) + crate::bth::LEN + bth.opcode.ext_len()
    }

    /// Changes the UDP source port, which changes the path of the packets that follow.
    pub fn set_src_port(&mut self, src_port: u16) {
        let at = ethernet::LEN + self.ip.header_len();
        be::put(&mut self.bytes, at, src_port.to_be_bytes());
        self.kept = [None, None];
    }

    /// Changes the path entropy of a frame written from this template and not sealed yet: the UDP
    /// source port, and IPv6's flow label, 20 bits.
    ///
    /// # Panics
    /// If the frame is shorter than the template's headers.
    #[inline]
    pub fn set_path(&self, frame: &mut [u8], src_port: u16, flow_label: u32) {
        let udp = ethernet::LEN + self.ip.header_len();
        frame[udp..udp + 2].copy_from_slice(&src_port.to_be_bytes());
        if let IpRepr::V6(_) = self.ip {
            let [_, high, mid, low] = (flow_label & 0xf_ffff).to_be_bytes();
            let word = &mut frame[ethernet::LEN + 1..ethernet::LEN + 4];
            word.copy_from_slice(&[word[0] & 0xf0 | high, mid, low]);
        }
    }

    /// Writes all headers and the pad bytes and returns the range of the payload, like
    /// [`Headers::emit`](crate::Headers::emit).
    ///
    /// # Errors
    /// [`BufferTooShort`]; the content of `frame` is then unspecified.
    ///
    /// # Panics
    /// As [`Headers::emit`](crate::Headers::emit): with debug assertions, on errors of the caller.
    #[inline]
    pub fn emit(
        &self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        payload_len: usize,
        frame: &mut [u8],
    ) -> Result<Range<usize>, BufferTooShort> {
        let lens = Lens::of(&self.ip, bth, payload_len)?;
        self.emit_lens(bth, ext, &lens, frame)?;
        Ok(lens.payload)
    }

    /// As [`Template::emit`], with the payload elided after its first `kept` bytes
    /// (`spanwire_base::TxMeta`). Returns the range of the kept bytes, which the ICRC follows, and
    /// the number of elided bytes of payload and pad. A payload that is kept whole has its pad.
    ///
    /// # Errors
    /// [`BufferTooShort`]; the content of `frame` is then unspecified.
    ///
    /// # Panics
    /// As [`Template::emit`].
    pub fn emit_elided(
        &self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        payload_len: usize,
        kept: usize,
        frame: &mut [u8],
    ) -> Result<(Range<usize>, usize), BufferTooShort> {
        let lens = Lens::of(&self.ip, bth, payload_len)?.elided(kept);
        self.emit_lens(bth, ext, &lens, frame)?;
        Ok((lens.payload, lens.elided_bytes))
    }

    /// As [`Template::emit_elided`] with a plain BTH and no extension headers. The headers
    /// of the last such packet are copied if it had the same opcode, destination and lengths.
    ///
    /// # Errors
    /// [`BufferTooShort`]; the content of `frame` is then unspecified.
    ///
    /// # Panics
    /// As [`Template::emit`].
    #[inline(always)]
    pub fn emit_plain(
        &mut self,
        bth: PlainBth,
        payload_len: usize,
        kept: usize,
        frame: &mut [u8],
    ) -> Result<(Range<usize>, usize), BufferTooShort> {
        let held = self.kept[slot(bth.opcode)].as_ref();
        let held = held.filter(|held| held.is_there && held.is_of(&bth, payload_len, kept));
        let Some(held) = held else { return self.emit_new(bth, payload_len, kept, frame) };
        if frame.len() < held.place.end + icrc::LEN {
            return Err(BufferTooShort);
        }
        // Arrays, so that the copy is of a few words.
        let (bth_at, frame) = match self.ip {
            IpRepr::V4(_) => {
                let head = frame.first_chunk_mut::<V4_ALL>().ok_or(BufferTooShort)?;
                *head = be::bytes_at(&held.bytes, 0);
                (V4_LEN, &mut head[..])
            }
            IpRepr::V6(_) => {
                let head = frame.first_chunk_mut::<V6_ALL>().ok_or(BufferTooShort)?;
                *head = held.bytes;
                (V6_LEN, &mut head[..])
            }
        };
        let out = frame[bth_at..].first_chunk_mut().ok_or(BufferTooShort)?;
        BthRepr::set_flow(bth.psn, bth.ack_req, out);
        Ok((held.place.clone(), held.elided_bytes))
    }

    #[inline(never)]
    fn emit_new(
        &mut self,
        bth: PlainBth,
        payload_len: usize,
        kept_len: usize,
        frame: &mut [u8],
    ) -> Result<(Range<usize>, usize), BufferTooShort> {
        let PlainBth { opcode, dest_qp, psn, ack_req, solicited } = bth;
        let all = BthRepr { ack_req, solicited, ..BthRepr::new(opcode, dest_qp, psn) };
        let (place, elided_bytes) =
            self.emit_elided(&all, &ExtHeaders::NONE, payload_len, kept_len, frame)?;
        let kept = self.kept[slot(opcode)].get_or_insert(Kept {
            bth,
            payload_len,
            kept_len,
            is_there: false,
            bytes: [0; V6_ALL],
            place: 0..0,
            elided_bytes: 0,
        });
        if !kept.is_of(&bth, payload_len, kept_len) {
            (kept.bth, kept.payload_len, kept.kept_len) = (bth, payload_len, kept_len);
            kept.is_there = false;
        } else if payload_len.is_multiple_of(4) {
            // A pad would have to be cleared.
            kept.bytes[..place.start].copy_from_slice(&frame[..place.start]);
            (kept.place, kept.elided_bytes) = (place.clone(), elided_bytes);
            kept.is_there = true;
        }
        Ok((place, elided_bytes))
    }

    /// Finishes a frame that was written from this template, as [`seal`](crate::seal) does, but
    /// with one pass over what follows the outer headers, if one of the last packets was as long.
    ///
    /// # Arguments
    /// As for [`seal`](crate::seal).
    ///
    /// # Panics
    /// As [`seal`](crate::seal).
    #[inline]
    pub fn seal(&mut self, frame: &mut [u8], len: usize) {
        self.prefixes.seal(frame, len);
    }

    /// As [`Template::seal`] for a frame without the bytes of its payload, as
    /// [`seal_around`](crate::seal_around).
    ///
    /// # Arguments
    /// As for [`seal_around`](crate::seal_around).
    ///
    /// # Panics
    /// As [`seal_around`](crate::seal_around).
    pub fn seal_around(
        &mut self,
        frame: &mut [u8],
        len: usize,
        place: Range<usize>,
        payload: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) {
        self.prefixes.seal_around(frame, len, place, payload);
    }

    #[inline]
    fn emit_lens(
        &self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        lens: &Lens,
        frame: &mut [u8],
    ) -> Result<(), BufferTooShort> {
        lens.check_room(frame.len())?;
        let udp_len = lens.udp.to_be_bytes();
        let ib = match self.ip {
            IpRepr::V4(_) => {
                let (out, ib) = frame.split_first_chunk_mut().ok_or(BufferTooShort)?;
                *out = be::bytes_at::<V6_LEN, V4_LEN>(&self.bytes, 0);
                let checksum = !ipv4::fold(self.partial_sum + u32::from(lens.ip_total));
                be::put(out, ethernet::LEN + 2, lens.ip_total.to_be_bytes());
                be::put(out, ethernet::LEN + CHECKSUM_AT, checksum.to_be_bytes());
                be::put(out, ethernet::LEN + ipv4::LEN + 4, udp_len);
                ib
            }
            IpRepr::V6(_) => {
                let (out, ib) = frame.split_first_chunk_mut().ok_or(BufferTooShort)?;
                *out = self.bytes;
                be::put(out, ethernet::LEN + 4, udp_len);
                be::put(out, ethernet::LEN + ipv6::LEN + 4, udp_len);
                ib
            }
        };
        headers::emit_transport(bth, ext, lens, ib)
    }
}

/// Packets of both directions' data alternate on one queue pair: requests and responses, or data
/// and ACKs.
#[inline]
const fn slot(opcode: Opcode) -> usize {
    matches!(opcode, Opcode::RcReadResponseMiddle | Opcode::SrAck) as usize
}

const V4_LEN: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
const V6_LEN: usize = ethernet::LEN + ipv6::LEN + udp::LEN;
const V4_ALL: usize = V4_LEN + bth::LEN;
const V6_ALL: usize = V6_LEN + bth::LEN;
/// The offset of the checksum in an IPv4 header.
const CHECKSUM_AT: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Headers, Opcode, Psn, Qpn};

    fn both(src: &str, dst: &str) -> (Template, Headers) {
        let ip = IpRepr::new(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
        let bth = BthRepr::new(Opcode::RcSendOnly, Qpn::new(5), Psn::new(6));
        let eth = EthernetRepr::default();
        let h = Headers { eth, ip, udp: UdpRepr::new(0xc001), bth, ext: ExtHeaders::NONE };
        (Template::new(eth, ip, 0xc001), h)
    }

    /// Source and destination: IPv4, IPv6.
    const VERSIONS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];

    #[test]
    fn set_src_port__changes_only_the_port() {
        for (src, dst) in VERSIONS {
            let (mut t, mut h) = both(src, dst);
            t.set_src_port(0xdfff);
            h.udp.src_port = 0xdfff;
            let (mut a, mut b) = ([0; 200], [0; 200]);
            t.emit(&h.bth, &h.ext, 10, &mut a).unwrap();
            h.emit(&mut b, 10).unwrap();
            assert_eq!(a, b);
        }
    }

    #[test]
    fn emit__rejects_every_shorter_buffer() {
        for (src, dst) in VERSIONS {
            let (t, h) = both(src, dst);
            let len = h.frame_len(3);
            let start = t.header_len(&h.bth);
            assert_eq!(t.emit(&h.bth, &h.ext, 3, &mut vec![0; len]), Ok(start..start + 3));
            for short in 0..len {
                let got = t.emit(&h.bth, &h.ext, 3, &mut vec![0; short]);
                assert_eq!(got, Err(BufferTooShort));
            }
        }
    }
}
