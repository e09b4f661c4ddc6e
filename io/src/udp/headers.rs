//! The headers of a frame before its UDP payload: read from frames to send, written before received
//! payload. Sockets exchange payload only, and the node whole Ethernet frames.

use super::checksum::Adjuster;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// The fields of all headers that a socket lets one set and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flow {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    /// TOS or traffic class: DSCP and ECN.
    pub(super) tos: u8,
    /// TTL or hop limit.
    pub(super) hop_limit: u8,
}

impl Flow {
    /// Bytes of the headers of a frame.
    pub(super) fn header_len(&self) -> usize {
        ETHERNET + self.ip_len() + UDP
    }

    /// Bytes of the IP header.
    fn ip_len(&self) -> usize {
        if self.src.is_ipv4() { V4 } else { V6 }
    }

    /// Offset of the UDP source port in the IP packet.
    pub(super) fn src_port_at(&self) -> usize {
        self.ip_len()
    }

    /// Reads the headers of a frame with UDP over IPv4 without options or over IPv6. Returns the
    /// range of its UDP payload as well: bytes behind the IP packet are no part of it. `None` for
    /// any other frame.
    pub(super) fn read(frame: &[u8]) -> Option<(Self, Range<usize>)> {
        let (ethernet, ip) = frame.split_at_checked(ETHERNET)?;
        let this = match ethernet.get(12..)? {
            [0x08, 0x00] => {
                let head = ip.first_chunk::<V4>().filter(|head| head[0] == 0x45)?;
                (head[9] == PROTOCOL).then_some(())?;
                let end = usize::from(half(ip, 2)?);
                let src = Ipv4Addr::from(*head[12..].first_chunk::<4>()?);
                let dst = Ipv4Addr::from(*head[16..].first_chunk::<4>()?);
                (Self::of(src.into(), dst.into(), &ip[V4..], head[1], head[8])?, end)
            }
            [0x86, 0xdd] => {
                let head = ip.first_chunk::<V6>().filter(|head| head[0] >> 4 == 6)?;
                (head[6] == PROTOCOL).then_some(())?;
                let end = V6 + usize::from(half(ip, 4)?);
                let src = Ipv6Addr::from(*head[8..].first_chunk::<16>()?);
                let dst = Ipv6Addr::from(*head[24..].first_chunk::<16>()?);
                let tos = head[0] << 4 | head[1] >> 4;
                (Self::of(src.into(), dst.into(), &ip[V6..], tos, head[7])?, end)
            }
            _ => return None,
        };
        let (flow, end) = (this.0, ETHERNET + this.1);
        let payload = flow.header_len()..end;
        (payload.start <= end && end <= frame.len()).then_some((flow, payload))
    }

    fn of(src: IpAddr, dst: IpAddr, udp: &[u8], tos: u8, hop_limit: u8) -> Option<Self> {
        let (src_port, dst_port) = (half(udp, 0)?, half(udp, 2)?);
        Some(Self { src, dst, src_port, dst_port, tos, hop_limit })
    }

    /// Writes the headers of a payload of `len` bytes into `head`, which has
    /// [`Flow::header_len`] bytes. The Ethernet addresses are those of no host. Over IPv4 DF is
    /// set, and the identification is `id`. The UDP checksum is 0: none.
    pub(super) fn write(&self, id: u16, len: u16, head: &mut [u8]) {
        let udp_len = len.saturating_add(8);
        head[..12].copy_from_slice(&MACS);
        let udp = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                head[12..ETHERNET].copy_from_slice(&[0x08, 0x00]);
                let ip = &mut head[ETHERNET..ETHERNET + V4];
                ip[..2].copy_from_slice(&[0x45, self.tos]);
                ip[2..4].copy_from_slice(&udp_len.saturating_add(20).to_be_bytes());
                ip[4..6].copy_from_slice(&id.to_be_bytes());
                ip[6..12].copy_from_slice(&[0x40, 0, self.hop_limit, PROTOCOL, 0, 0]);
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                let sum = checksum(ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                &mut head[ETHERNET + V4..]
            }
            _ => {
                head[12..ETHERNET].copy_from_slice(&[0x86, 0xdd]);
                let ip = &mut head[ETHERNET..ETHERNET + V6];
                ip[..4].copy_from_slice(&[0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
                ip[6..8].copy_from_slice(&[PROTOCOL, self.hop_limit]);
                ip[8..24].copy_from_slice(&v6(self.src).octets());
                ip[24..40].copy_from_slice(&v6(self.dst).octets());
                &mut head[ETHERNET + V6..]
            }
        };
        udp[..2].copy_from_slice(&self.src_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        udp[6..8].copy_from_slice(&[0, 0]);
    }
}

/// The headers before a received payload of one length: all but IPv4's identification and checksum,
/// which differ between the segments of a run.
#[derive(Clone, Debug)]
pub(super) struct Head {
    bytes: [u8; HEADER_MAX],
    /// Bytes before the payload: 42 or 62.
    len: usize,
    /// The sum over the IPv4 header without identification and checksum.
    sum: u32,
    /// Over IPv4, the state of the packet's checksum behind these headers with identification 0.
    pub(super) prefix: Option<u32>,
}

impl Head {
    /// Those of a payload of `payload_len` bytes. `adjuster` knows the checksum, if there is one.
    pub(super) fn new(flow: &Flow, payload_len: u16, adjuster: Option<&Adjuster>) -> Self {
        let (mut bytes, len) = ([0; HEADER_MAX], flow.header_len());
        flow.write(0, payload_len, &mut bytes[..len]);
        let (mut sum, mut prefix) = (0, None);
        if flow.src.is_ipv4() {
            bytes[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
            sum = sum_of(&bytes[ETHERNET..ETHERNET + V4]);
            prefix = adjuster.and_then(|adjuster| adjuster.prefix(&bytes[ETHERNET..len]));
        }
        Self { bytes, len, sum, prefix }
    }

    /// As [`Flow::write`].
    #[inline]
    pub(super) fn write(&self, id: u16, head: &mut [u8]) {
        if self.len == V4_HEAD
            && let Some(head) = head.first_chunk_mut::<V4_HEAD>()
        {
            // An array, so that the copy is of a few words.
            head.copy_from_slice(&self.bytes[..V4_HEAD]);
            head[ID_AT..ID_AT + 2].copy_from_slice(&id.to_be_bytes());
            let checksum = fold(self.sum + u32::from(id));
            head[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        } else {
            head[..self.len].copy_from_slice(&self.bytes[..self.len]);
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The checksum of an IPv4 header (RFC 791) whose checksum field is 0.
fn checksum(header: &[u8]) -> u16 {
    fold(sum_of(header))
}

fn sum_of(header: &[u8]) -> u32 {
    let halves =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    halves.sum()
}

fn fold(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).expect("folded twice")
}

pub(super) const ETHERNET: usize = 14;
const V4: usize = 20;
const V6: usize = 40;
const UDP: usize = 8;
const V4_HEAD: usize = ETHERNET + V4 + UDP;
const ID_AT: usize = ETHERNET + 4;
const CHECKSUM_AT: usize = ETHERNET + 10;
/// The longest headers.
pub(super) const HEADER_MAX: usize = ETHERNET + V6 + UDP;
/// UDP as the protocol of IPv4 and the next header of IPv6.
const PROTOCOL: u8 = 17;
/// Destination and source address of frames that crossed no Ethernet of ours: locally
/// administered.
const MACS: [u8; 12] = [2, 0x53, 0x57, 0, 0, 2, 2, 0x53, 0x57, 0, 0, 1];

#[cfg(test)]
mod tests {
    use super::*;

    fn flows() -> [Flow; 2] {
        let flow = |src: &str, dst: &str| Flow {
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
            src_port: 0xc123,
            dst_port: 4791,
            tos: 0x6a,
            hop_limit: 61,
        };
        [flow("192.0.2.1", "198.51.100.2"), flow("2001:db8::1", "2001:db8::2")]
    }

    #[test]
    fn read__is_the_inverse_of_write() {
        for flow in flows() {
            let mut frame = vec![0xee; flow.header_len() + 100];
            flow.write(77, 90, &mut frame);
            let (read, payload) = Flow::read(&frame).expect("UDP");
            assert_eq!(read, flow);
            assert_eq!(payload, flow.header_len()..flow.header_len() + 90, "without the trailer");
            assert_eq!(frame[flow.header_len()..], [0xee; 100]);
        }
    }

    #[test]
    fn head__writes_what_the_flow_writes() {
        for flow in flows() {
            for len in [0, 1, 1400, u16::MAX] {
                let kept = Head::new(&flow, len, None);
                for id in [0, 1, 0x7fff, u16::MAX] {
                    let mut frames = [0xee, 0x11].map(|fill| vec![fill; flow.header_len()]);
                    flow.write(id, len, &mut frames[0]);
                    kept.write(id, &mut frames[1]);
                    assert_eq!(frames[0], frames[1], "{len} bytes, identification {id}");
                }
            }
        }
    }

    #[test]
    fn read__refuses_what_is_cut_off_or_no_udp() {
        for flow in flows() {
            let mut frame = vec![0; flow.header_len() + 4];
            flow.write(0, 4, &mut frame);
            for len in 0..frame.len() {
                assert_eq!(Flow::read(&frame[..len]), None, "{len} bytes");
            }
            let protocol_at = if flow.src.is_ipv4() { 23 } else { 20 };
            for at in [12, 13, 14, protocol_at] {
                let mut other = frame.clone();
                other[at] ^= 0xff;
                assert_eq!(Flow::read(&other), None, "byte {at}");
            }
        }
    }

    #[test]
    fn write__the_sum_over_an_ipv4_header_is_zero() {
        let [flow, _] = flows();
        for id in [0, 1, 127, 0xffff] {
            let mut head = vec![0; flow.header_len()];
            flow.write(id, 1400, &mut head);
            assert_eq!(checksum(&head[14..34]), 0);
            assert_eq!(head[18..20], id.to_be_bytes());
            assert_eq!(head[20], 0x40, "DF");
        }
    }
}
