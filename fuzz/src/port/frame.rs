//! Frames of UDP, written and read independently of the port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The header fields that a socket preserves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Fields {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) tos: u8,
    pub(super) hop_limit: u8,
}

impl Fields {
    /// Bytes before the payload.
    pub(super) fn header_len(&self) -> usize {
        if self.src.is_ipv4() { 42 } else { 62 }
    }

    /// A frame with this payload: DF and the identification over IPv4, and no UDP checksum.
    pub(super) fn frame(&self, id: u16, payload: &[u8]) -> Vec<u8> {
        let udp_len = u16::try_from(payload.len() + 8).expect("a datagram").to_be_bytes();
        let mut frame = vec![0x22; 12];
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let total = u16::try_from(payload.len() + 28).expect("a packet").to_be_bytes();
                let id = id.to_be_bytes();
                let mut head = [0; 20];
                head[..4].copy_from_slice(&[0x45, self.tos, total[0], total[1]]);
                head[4..10].copy_from_slice(&[id[0], id[1], 0x40, 0, self.hop_limit, 17]);
                head[12..16].copy_from_slice(&src.octets());
                head[16..].copy_from_slice(&dst.octets());
                let sum = !words(&head);
                head[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(head);
            }
            (src, dst) => {
                let [src, dst] = [src, dst].map(|ip| match ip {
                    IpAddr::V6(ip) => ip.octets(),
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                });
                frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                frame.extend(udp_len);
                frame.extend([17, self.hop_limit]);
                frame.extend(src);
                frame.extend(dst);
            }
        }
        frame.extend(self.src_port.to_be_bytes());
        frame.extend(self.dst_port.to_be_bytes());
        frame.extend(udp_len);
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    /// The fields of a frame that the port has delivered, and its identification over IPv4.
    ///
    /// # Panics
    /// If its headers are not exactly those of its payload.
    pub(super) fn of(frame: &[u8]) -> (Self, Option<u16>) {
        let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let total = u16::try_from(frame.len() - 14).expect("a packet");
        let (ip, id, udp) = if half(12) == 0x0800 {
            assert_eq!((frame[14], frame[23], half(16)), (0x45, 17, total));
            assert_eq!(words(&frame[14..34]), 0xffff, "the header checksum");
            assert_eq!(half(20), 0x4000, "DF");
            let ip = |at: usize| IpAddr::from(Ipv4Addr::from(octets::<4>(frame, at)));
            ((ip(26), ip(30), frame[15], frame[22]), Some(half(18)), 34)
        } else {
            assert_eq!((half(12), frame[14] >> 4, frame[20]), (0x86dd, 6, 17));
            assert_eq!(half(18), total - 40);
            let ip = |at: usize| IpAddr::from(Ipv6Addr::from(octets::<16>(frame, at)));
            let tos = frame[14] << 4 | frame[15] >> 4;
            ((ip(22), ip(38), tos, frame[21]), None, 54)
        };
        assert_eq!((usize::from(half(udp + 4)), half(udp + 6)), (frame.len() - udp, 0));
        let (src, dst, tos, hop_limit) = ip;
        let (src_port, dst_port) = (half(udp), half(udp + 2));
        (Self { src, dst, src_port, dst_port, tos, hop_limit }, id)
    }
}

/// The residue of the ICRC of a frame.
pub(super) fn residue(frame: &[u8]) -> Option<u32> {
    let (covered, sent) = frame[14..].split_last_chunk()?;
    Some(spanwire_wire::icrc(covered)? ^ u32::from_le_bytes(*sent))
}

/// Writes the ICRC into the last bytes of a frame, if it is long enough for a packet of RoCEv2.
pub(super) fn seal(frame: &mut [u8]) {
    let len = frame.len();
    if residue(frame).is_some() {
        spanwire_wire::seal(frame, len);
    }
}

/// The sum of the 16-bit words of a header (RFC 1071).
fn words(head: &[u8]) -> u16 {
    let mut sum: u32 = head.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

fn octets<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    *frame[at..].first_chunk().expect("the frame has its headers")
}
