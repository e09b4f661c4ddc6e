//! Runs of segments: several packets of a flow that a capture holds as one.
//!
//! With segmentation offload a capture sees the packets of one send before the device, or the last
//! step of the stack, separates them: one IP packet whose UDP payload is the payloads of all. All
//! have the same length, and the last may be shorter. Receive offload does the reverse. The capture
//! does not have the length, so it is searched: the transport headers of all segments must be
//! plausible, and the ICRC of one right.

use crate::ip::{BTH_LEN, ETHERNET_LEN, ICRC_LEN, Icrc, Ip, UDP_LEN, check, start_frame};
use crate::link::Linked;
use spanwire_wire::Opcode;
use std::ops::Range;

/// A run of segments.
pub(crate) struct Run<'a> {
    linked: Linked<'a>,
    ip: Ip,
    /// UDP payload of the whole run.
    payload: &'a [u8],
    /// Bytes of a segment's UDP payload, but for the last.
    segment_len: usize,
}

impl<'a> Run<'a> {
    /// The run that the packet is; `None` if it is none. The packet must be completely captured.
    ///
    /// The effort is bounded: few lengths are tried, and each costs an ICRC over the packet.
    pub(crate) fn find(linked: &Linked<'a>, ip: &Ip, frame: &mut Vec<u8>) -> Option<Self> {
        let payload = linked.payload.get(ip.header_len + UDP_LEN..ip.total_len)?;
        let run = |segment_len| Self { linked: *linked, ip: *ip, payload, segment_len };
        let least = PACKET_MIN.max(payload.len().div_ceil(SEGMENTS_MAX)).next_multiple_of(4);
        // RoCE pads to 4 bytes.
        let lengths = (least..payload.len()).step_by(4).map(run);
        let mut plausible = lengths.filter(Self::is_plausible).take(TRIES_MAX);
        plausible.find(|run| (0..run.count()).any(|n| run.check(n, frame) == Icrc::Good))
    }

    pub(crate) fn count(&self) -> usize {
        self.payload.len().div_ceil(self.segment_len)
    }

    /// The UDP payload of a segment.
    pub(crate) fn transport(&self, number: usize) -> &'a [u8] {
        &self.payload[self.range(number)]
    }

    fn range(&self, number: usize) -> Range<usize> {
        let at = number * self.segment_len;
        at..self.payload.len().min(at + self.segment_len)
    }

    /// Every segment begins with a transport header of one partition.
    fn is_plausible(&self) -> bool {
        let header = |number| {
            let bytes = self.transport(number);
            let known = bytes.first().is_some_and(|opcode| Opcode::from_u8(*opcode).is_some());
            let version = bytes.get(1).map(|byte| byte & 0x0f);
            (bytes.len() >= PACKET_MIN && known && version == Some(0)).then(|| bytes.get(2..4))
        };
        let first = header(0);
        first.is_some() && (1..self.count()).all(|number| header(number) == first)
    }

    /// Writes a segment as a frame of its own into `frame`, and checks its ICRC.
    ///
    /// The identification of IPv4 is the captured one plus the segment's number, as the kernel
    /// numbers the segments of a send; or the same in all, as receive offload may join them.
    pub(crate) fn check(&self, number: usize, frame: &mut Vec<u8>) -> Icrc {
        let [first, second] = self.linked.payload.get(4..6).map_or([0; 2], |id| [id[0], id[1]]);
        let captured = u16::from_be_bytes([first, second]);
        let numbered = captured.wrapping_add(u16::try_from(number).unwrap_or(0));
        let mut with = |id| {
            self.write(number, id, frame);
            check(&frame[ETHERNET_LEN..])
        };
        if !self.ip.src.is_ipv4() || number == 0 || with(captured) != Icrc::Good {
            return with(numbered);
        }
        Icrc::Good
    }

    /// Writes a segment as a frame with identification `id`.
    fn write(&self, number: usize, id: u16, frame: &mut Vec<u8>) {
        let transport = self.transport(number);
        let udp_len = length(UDP_LEN + transport.len());
        start_frame(frame, &self.linked);
        frame.extend(&self.linked.payload[..self.ip.header_len + UDP_LEN]);
        let (ip, udp) = frame[ETHERNET_LEN..].split_at_mut(self.ip.header_len);
        udp[4..6].copy_from_slice(&udp_len);
        if self.ip.src.is_ipv4() {
            ip[2..4].copy_from_slice(&length(self.ip.header_len + UDP_LEN + transport.len()));
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[10..12].fill(0);
            let checksum = header_checksum(ip);
            ip[10..12].copy_from_slice(&checksum);
        } else {
            ip[4..6].copy_from_slice(&udp_len);
        }
        frame.extend(transport);
    }
}

/// A length field. A segment is shorter than its run, whose length fits such a field.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// The checksum of an IPv4 header whose checksum field is zero.
fn header_checksum(header: &[u8]) -> [u8; 2] {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!u16::try_from(folded).unwrap_or(u16::MAX)).to_be_bytes()
}

/// Bytes of the shortest packet: a base transport header and an ICRC.
const PACKET_MIN: usize = BTH_LEN + ICRC_LEN;
/// Limit of segments in a run: the kernel's `UDP_MAX_SEGMENTS`.
const SEGMENTS_MAX: usize = 128;
/// Limit of plausible lengths to try: payload rarely looks like a header at every multiple.
const TRIES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, Decoder, Record, RocePacket, Segment};
    use proptest::prelude::*;
    use spanwire_wire::{
        BthRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, MacAddr, Psn, Qpn, UdpRepr, seal,
    };
    use std::net::{IpAddr, Ipv6Addr};

    /// A sealed WRITE Middle with `len` bytes and identification `id`.
    fn packet(v6: bool, psn: u32, len: usize, id: u16) -> Vec<u8> {
        let ends = match v6 {
            true => [1, 2].map(|n| IpAddr::V6(Ipv6Addr::from_bits(n))),
            false => [1, 2].map(|n| IpAddr::from([10, 0, 0, n])),
        };
        let mut ip = IpRepr::new(ends[0], ends[1]).expect("of one family");
        if let IpRepr::V4(v4) = &mut ip {
            v4.id = id;
        }
        let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
        let headers = Headers {
            eth: EthernetRepr { dst: mac(2), src: mac(1), ethertype: 0 },
            ip,
            udp: UdpRepr::new(0xc123),
            bth: BthRepr::new(Opcode::RcWriteMiddle, Qpn::new(0x11), Psn::new(psn)),
            ext: ExtHeaders::NONE,
        };
        let frame_len = headers.frame_len(len);
        let mut frame = vec![0; frame_len];
        let place = headers.emit(&mut frame, len).expect("it fits");
        frame[place].fill(0x5a);
        seal(&mut frame, frame_len);
        frame
    }

    /// The packets as an offload shows them: the headers of the first, with the length of all.
    fn joined(packets: &[Vec<u8>]) -> Vec<u8> {
        let ip_len = if packets[0][12] == 0x86 { 40 } else { 20 };
        let udp_at = ETHERNET_LEN + ip_len;
        let mut frame = packets[0][..udp_at + UDP_LEN].to_vec();
        packets.iter().for_each(|p| frame.extend(&p[udp_at + UDP_LEN..]));
        let udp_len = length(frame.len() - udp_at);
        frame[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len);
        if ip_len == 40 {
            frame[18..20].copy_from_slice(&udp_len);
            return frame;
        }
        let total = length(frame.len() - ETHERNET_LEN);
        frame[16..18].copy_from_slice(&total);
        frame[24..26].fill(0);
        let checksum = header_checksum(&frame[ETHERNET_LEN..udp_at]);
        frame[24..26].copy_from_slice(&checksum);
        frame
    }

    fn decode(frame: &[u8]) -> Vec<RocePacket<'_>> {
        let record = Record { at_ns: None, link: 1, original_len: frame.len(), bytes: frame };
        let roce = |decoded| match decoded {
            Decoded::Roce(packet) => packet,
            Decoded::Other(other) => panic!("{other:?}"),
        };
        Decoder::default().decode(&record).into_iter().map(roce).collect()
    }

    fn run(v6: bool, lens: &[usize], id: impl Fn(u16) -> u16) -> Vec<u8> {
        let packets = (0..).zip(lens).map(|(n, len)| packet(v6, n.into(), *len, id(n)));
        joined(&packets.collect::<Vec<_>>())
    }

    #[test]
    fn segments__each_is_a_packet_with_its_own_identification() {
        let lens = [1024, 1024, 1024, 100];
        for frame in [
            run(true, &lens, |_| 0),
            run(false, &lens, |n| n),
            run(false, &lens, |n| 0xfffe_u16.wrapping_add(n)),
            run(false, &lens, |_| 0x1234),
            run(false, &[64; 128], |n| n),
            run(false, &[1024, 5], |n| n),
            run(false, &[4096, 0], |n| n),
        ] {
            let packets = decode(&frame);
            assert!(packets.len() > 1, "{packets:?}");
            for (n, p) in packets.iter().enumerate() {
                assert_eq!((p.icrc, p.fault, p.truncated), (Icrc::Good, None, false), "{n}");
                assert_eq!(p.segment, Some(Segment { number: n + 1, of: packets.len() }));
                let psn = p.bth.map(|bth| bth.psn().get() as usize);
                assert_eq!((psn, p.opcode), (Some(n), Some(Opcode::RcWriteMiddle)));
            }
        }
        let frame = run(false, &lens, |n| n);
        let payload: Vec<_> = decode(&frame).iter().map(|p| p.payload_len).collect();
        assert_eq!(payload, lens.map(Some));
    }

    #[test]
    fn segments__a_bad_one_is_the_only_bad_one() {
        for bad in 0..3 {
            let mut packets: Vec<_> = (0..3u16).map(|n| packet(false, n.into(), 1024, n)).collect();
            packets[bad][100] ^= 1;
            let icrc = decode(&joined(&packets)).iter().map(|p| p.icrc).collect::<Vec<_>>();
            assert_eq!(icrc.len(), 3);
            for (n, icrc) in icrc.into_iter().enumerate() {
                assert_eq!(icrc == Icrc::Good, n != bad, "{n} of {bad}: {icrc:?}");
            }
        }
    }

    #[test]
    fn segments__a_bad_packet_and_a_truncated_run_stay_one() {
        let mut single = packet(false, 0, 1024, 0);
        single[100] ^= 1;
        let one = decode(&single);
        assert!(matches!(one[..], [RocePacket { icrc: Icrc::Bad { .. }, segment: None, .. }]));
        let frame = run(false, &[1024; 3], |n| n);
        let bytes = &frame[..2000];
        let record = Record { at_ns: None, link: 1, original_len: frame.len(), bytes };
        let cut = Decoder::default().decode(&record);
        let [Decoded::Roce(p)] = &cut[..] else { panic!("{cut:?}") };
        assert_eq!((p.icrc, p.truncated), (Icrc::Unchecked, true));
    }

    #[test]
    fn find__tries_few_lengths_of_a_packet_full_of_headers() {
        let mut frame = packet(false, 0, 60_000, 0);
        let header = frame[42..46].to_vec();
        let end = frame.len() - 4;
        frame[42..end].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&header));
        frame[end..].fill(1);
        assert_eq!(decode(&frame).len(), 1);
    }

    proptest! {
        #[test]
        fn segments__survive_any_damage(
            v6: bool,
            lens in prop::collection::vec(0usize..300, 1..6),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut frame = run(v6, &lens, |n| n);
            for (at, value) in damage {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            let record = Record { at_ns: None, link: 1, original_len: frame.len(), bytes: &frame };
            prop_assert!((1..=SEGMENTS_MAX).contains(&Decoder::default().decode(&record).len()));
        }
    }
}
