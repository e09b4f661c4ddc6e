//! Packet trimming: cutting a packet to its headers, so that its receiver detects the loss at once.
//!
//! A trimmed packet has all its headers, no payload, lengths to match, a DSCP of its own, and
//! the complement of its ICRC. A receiver without support for trimming drops it as corrupted. It
//! must: an empty SEND would otherwise complete with less than was sent. A receiver with support
//! calls [`is_trimmed`] and can trust the headers as much as those of any other packet.
//!
//! # Source
//! NDP (SIGCOMM'17) for trimming, the complement is this project's.

use crate::{EthernetRepr, Opcode, bth, ethernet, hop, icrc, ipv4, ipv6, udp};
use crate::{ROCE_PORT, be};

/// Trims the RoCE packet in `frame` to its headers and returns the frame's new length, with no
/// elided bytes. Returns `None` and leaves the frame unchanged if it is not a RoCE packet or has
/// no payload.
///
/// # Arguments
/// - `frame`: all its headers are present; the payload may be elided (`spanwire_base::TxMeta`).
/// - `dscp`: 0..=63, higher bits are cut.
pub fn trim(frame: &mut [u8], dscp: u8) -> Option<usize> {
    let (udp_at, end) = header_ends(frame)?;
    let udp_len = be::u16_at(frame.get(udp_at..)?.first_chunk::<8>()?, 4);
    let ours = u16::try_from(end - udp_at).ok()?;
    // A packet that is no longer than its headers has no payload.
    if udp_len <= ours || frame.len() < end {
        return None;
    }
    frame[udp_at + 4..udp_at + 6].copy_from_slice(&ours.to_be_bytes());
    // No pad is left.
    frame[udp_at + udp::LEN + 1] &= !PAD_BITS;
    if udp_at == ethernet::LEN + ipv4::LEN {
        let ip = frame.get_mut(ethernet::LEN..)?.first_chunk_mut::<{ ipv4::LEN }>()?;
        let old = be::u16_at(ip, 2);
        let new = u16::try_from(end - ethernet::LEN).ok()?;
        be::put(ip, 2, new.to_be_bytes());
        hop::update_checksum(ip, old, new);
    } else {
        frame[ethernet::LEN + 4..ethernet::LEN + 6].copy_from_slice(&ours.to_be_bytes());
    }
    hop::set_dscp(frame, dscp);
    let crc = !icrc::icrc(&frame[ethernet::LEN..end - icrc::LEN])?;
    frame[end - icrc::LEN..end].copy_from_slice(&crc.to_le_bytes());
    Some(end)
}

/// True for a trimmed RoCE packet that is otherwise unchanged: headers without payload and the
/// complement of their ICRC. [`Packet::parse_unverified`](crate::Packet::parse_unverified) parses
/// it.
#[must_use]
pub fn is_trimmed(frame: &[u8]) -> bool {
    let Some((_, end)) = header_ends(frame) else { return false };
    let Some((covered, crc)) =
        frame.get(ethernet::LEN..end).and_then(<[u8]>::split_last_chunk::<{ icrc::LEN }>)
    else {
        return false;
    };
    icrc::icrc(covered).is_some_and(|want| (!want).to_le_bytes() == *crc)
}

/// The offset of a RoCE packet's UDP header, and the end of the packet without its payload.
fn header_ends(frame: &[u8]) -> Option<(usize, usize)> {
    let ethertype = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let ip = &frame[ethernet::LEN..];
    let udp_at = match (ethertype, *ip.first()?) {
        (EthernetRepr::IPV4, 0x45) if *ip.get(9)? == udp::PROTOCOL => ethernet::LEN + ipv4::LEN,
        (EthernetRepr::IPV6, b) if b >> 4 == 6 && *ip.get(6)? == udp::PROTOCOL => {
            ethernet::LEN + ipv6::LEN
        }
        _ => return None,
    };
    let udp = frame.get(udp_at..)?.first_chunk::<{ udp::LEN }>()?;
    if be::u16_at(udp, 2) != ROCE_PORT {
        return None;
    }
    let opcode = Opcode::from_u8(*frame.get(udp_at + udp::LEN)?)?;
    if !opcode.props().payload {
        return None;
    }
    Some((udp_at, udp_at + udp::LEN + bth::LEN + opcode.ext_len() + icrc::LEN))
}

/// The pad count's bits in the BTH's second byte.
const PAD_BITS: u8 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BthRepr, DropReason, ExtHeaders, Headers, IpRepr, Packet, Psn, Qpn, RethRepr, UdpRepr, seal,
    };
    use std::net::IpAddr;

    fn frame(is_v6: bool, opcode: Opcode, payload: usize) -> Vec<u8> {
        let (a, b): (IpAddr, IpAddr) = if is_v6 {
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
        } else {
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        };
        let reth = RethRepr { va: 7, rkey: 8, dma_len: 9 };
        let headers = Headers {
            eth: EthernetRepr::default(),
            ip: IpRepr::new(a, b).unwrap(),
            udp: UdpRepr::new(0xc000),
            bth: BthRepr::new(opcode, Qpn::new(5), Psn::new(6)),
            ext: ExtHeaders {
                reth: (opcode == Opcode::RcWriteOnly).then_some(reth),
                ..ExtHeaders::NONE
            },
        };
        let mut f = vec![0x5a; headers.frame_len(payload)];
        headers.emit(&mut f, payload).unwrap();
        let len = f.len();
        seal(&mut f, len);
        f
    }

    #[test]
    fn trim__leaves_headers_that_only_is_trimmed_accepts() {
        for is_v6 in [false, true] {
            for opcode in [Opcode::RcWriteOnly, Opcode::RcSendMiddle] {
                let whole = frame(is_v6, opcode, 997);
                let mut f = whole.clone();
                let len = trim(&mut f, 40).unwrap();
                f.truncate(len);
                assert_eq!(Packet::parse(&f), Err(DropReason::BadIcrc));
                assert!(is_trimmed(&f) && !is_trimmed(&whole));
                let (cut, was) =
                    (Packet::parse_unverified(&f).unwrap(), Packet::parse(&whole).unwrap());
                assert!(cut.payload.is_empty());
                assert_eq!((cut.ip.dscp_ecn(), cut.ext, cut.udp), (40 << 2, was.ext, was.udp));
                assert_eq!(cut.bth, BthRepr { pad: 0, ..was.bth });
                assert_eq!(trim(&mut f, 40), None, "a trimmed packet has no payload");
                f[len - 6] ^= 1;
                assert!(!is_trimmed(&f), "corrupted in transit");
            }
        }
    }

    #[test]
    fn trim__accepts_an_elided_frame() {
        let mut whole = frame(false, Opcode::RcWriteOnly, 996);
        let mut elided = whole.clone();
        elided.truncate(74);
        let (a, b) = (trim(&mut whole, 1).unwrap(), trim(&mut elided, 1).unwrap());
        assert_eq!(whole[..a], elided[..b]);
    }

    #[test]
    fn trim__leaves_everything_else_alone() {
        let mut ack = frame(false, Opcode::RcSendOnly, 0);
        assert_eq!(trim(&mut ack, 1), None);
        for is_v6 in [false, true] {
            let whole = frame(is_v6, Opcode::RcWriteOnly, 100);
            for len in 0..whole.len() {
                let mut f = whole[..len].to_vec();
                let cut = trim(&mut f, 1);
                assert_eq!(cut.is_some(), len >= whole.len() - 100, "{len}");
                let _ = is_trimmed(&whole[..len]);
            }
            let udp_at = if is_v6 { 54 } else { 34 };
            for at in [12, 14, udp_at + 2, udp_at + 8] {
                let mut f = whole.clone();
                f[at] ^= 0x80;
                let before = f.clone();
                assert_eq!(trim(&mut f, 1), None, "byte {at}");
                assert_eq!(f, before);
            }
        }
    }
}
