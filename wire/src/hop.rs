//! The changes a switch makes to a frame that it forwards: TOS byte and TTL.
//!
//! Both are outside the ICRC. IPv4's header checksum is updated from the difference (RFC 1624,
//! equation 3), so that a packet whose checksum was wrong stays wrong.

use crate::{Ecn, EthernetRepr, be, ethernet, ipv4, ipv6};

/// The reason for which [`decrement_ttl`] fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TtlError {
    /// There is no complete IPv4 or IPv6 header after the Ethernet header.
    NotIp,
    /// The TTL is exhausted.
    Expired,
}

/// The DSCP of a frame: the upper six bits of TOS or traffic class. `None` when it is not IP.
#[must_use]
#[inline]
pub fn dscp_of(frame: &[u8]) -> Option<u8> {
    tos_of(frame).map(|tos| tos >> 2)
}

/// The ECN codepoint of a frame. `None` when it is not IP.
#[must_use]
#[inline]
pub fn ecn_of(frame: &[u8]) -> Option<Ecn> {
    tos_of(frame).map(Ecn::from_tos)
}

/// Marks a frame as congestion experienced (CE) and returns true. Returns false if it is not IP or
/// its sender is not ECN-capable. A frame that is marked already counts as marked.
#[inline]
pub fn mark_ce(frame: &mut [u8]) -> bool {
    match tos_of(frame) {
        Some(tos) if Ecn::from_tos(tos) != Ecn::NotEct => {
            set_tos(frame, tos | Ecn::Ce.bits());
            true
        }
        _ => false,
    }
}

/// Sets the DSCP (0..=63, higher bits are cut) and returns true, or false when it is not IP.
pub fn set_dscp(frame: &mut [u8], dscp: u8) -> bool {
    let Some(tos) = tos_of(frame) else { return false };
    set_tos(frame, dscp << 2 | tos & 0b11);
    true
}

/// Decrements the TTL of IPv4 or the hop limit of IPv6.
///
/// # Errors
/// [`TtlError`]; then nothing has changed. A TTL of 1 expires here, because the packet would
/// be forwarded with 0 (RFC 1812 5.3.1).
#[inline]
pub fn decrement_ttl(frame: &mut [u8]) -> Result<(), TtlError> {
    if let Some(ip) = ipv4_of(frame) {
        let ttl = ip[8].checked_sub(1).filter(|ttl| *ttl > 0).ok_or(TtlError::Expired)?;
        let old = be::u16_at(ip, 8);
        ip[8] = ttl;
        let new = be::u16_at(ip, 8);
        update_checksum(ip, old, new);
    } else {
        let ip = ipv6_of(frame).ok_or(TtlError::NotIp)?;
        ip[7] = ip[7].checked_sub(1).filter(|ttl| *ttl > 0).ok_or(TtlError::Expired)?;
    }
    Ok(())
}

#[inline]
fn tos_of(frame: &[u8]) -> Option<u8> {
    let [t0, t1, v, b] = *frame.get(12..)?.first_chunk::<4>()?;
    match (u16::from_be_bytes([t0, t1]), v >> 4) {
        (EthernetRepr::IPV4, 4) => Some(b),
        (EthernetRepr::IPV6, 6) => Some(v << 4 | b >> 4),
        _ => None,
    }
}

fn set_tos(frame: &mut [u8], tos: u8) {
    if let Some(ip) = ipv4_of(frame) {
        let old = be::u16_at(ip, 0);
        ip[1] = tos;
        let new = be::u16_at(ip, 0);
        update_checksum(ip, old, new);
    } else if let Some(ip) = ipv6_of(frame) {
        ip[0] = 0x60 | tos >> 4;
        ip[1] = tos << 4 | ip[1] & 0x0f;
    }
}

fn ipv4_of(frame: &mut [u8]) -> Option<&mut [u8; ipv4::LEN]> {
    let is_v4 = frame.get(12..14)? == EthernetRepr::IPV4.to_be_bytes();
    let ip = frame.get_mut(ethernet::LEN..)?.first_chunk_mut()?;
    (is_v4 && ip[0] >> 4 == 4).then_some(ip)
}

fn ipv6_of(frame: &mut [u8]) -> Option<&mut [u8; ipv6::LEN]> {
    let is_v6 = frame.get(12..14)? == EthernetRepr::IPV6.to_be_bytes();
    let ip = frame.get_mut(ethernet::LEN..)?.first_chunk_mut()?;
    (is_v6 && ip[0] >> 4 == 6).then_some(ip)
}

/// Updates the checksum for one word of the header that changed from `old` to `new`.
pub(crate) fn update_checksum(ip: &mut [u8; ipv4::LEN], old: u16, new: u16) {
    let checksum = be::u16_at(ip, 10);
    let sum = ipv4::fold(u32::from(!checksum) + u32::from(!old) + u32::from(new));
    be::put(ip, 10, (!sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BthRepr, ExtHeaders, Headers, IpRepr, Opcode, Packet, Psn, Qpn, UdpRepr, seal};
    use std::net::IpAddr;

    fn frame(src: IpAddr, dst: IpAddr, tos: u8) -> Vec<u8> {
        let mut ip = IpRepr::new(src, dst).unwrap();
        ip.set_dscp_ecn(tos);
        let headers = Headers {
            eth: EthernetRepr::default(),
            ip,
            udp: UdpRepr::new(0xc000),
            bth: BthRepr::new(Opcode::RcSendOnly, Qpn::new(5), Psn::new(6)),
            ext: ExtHeaders::NONE,
        };
        let mut f = vec![0; headers.frame_len(4)];
        headers.emit(&mut f, 4).unwrap();
        let len = f.len();
        seal(&mut f, len);
        f
    }

    fn both(tos: u8) -> [Vec<u8>; 2] {
        let v6: IpAddr = "fd00::1".parse().unwrap();
        [frame([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), tos), frame(v6, v6, tos)]
    }

    #[test]
    fn mark_ce__keeps_checksum_and_icrc_for_every_tos() {
        for tos in 0..=255 {
            for mut f in both(tos) {
                let capable = tos & 3 != 0;
                assert_eq!(mark_ce(&mut f), capable);
                let p = Packet::parse(&f).unwrap();
                assert_eq!(p.ip.dscp_ecn(), if capable { tos | 3 } else { tos });
                assert_eq!((dscp_of(&f), ecn_of(&f)), (Some(tos >> 2), Some(p.ip.ecn())));
            }
        }
    }

    #[test]
    fn set_dscp__keeps_ecn() {
        for mut f in both(0b1010_1010) {
            assert!(set_dscp(&mut f, 0b01_0101));
            assert_eq!(Packet::parse(&f).unwrap().ip.dscp_ecn(), 0b0101_0110);
        }
    }

    #[test]
    fn decrement_ttl__stops_at_the_last_hop() {
        for mut f in both(0) {
            for left in (1..64).rev() {
                decrement_ttl(&mut f).unwrap();
                let got = match Packet::parse(&f).unwrap().ip {
                    IpRepr::V4(ip) => ip.ttl,
                    IpRepr::V6(ip) => ip.hop_limit,
                };
                assert_eq!(got, left);
            }
            let before = f.clone();
            assert_eq!(decrement_ttl(&mut f), Err(TtlError::Expired));
            assert_eq!(f, before);
        }
    }

    #[test]
    fn update_checksum__does_not_repair_a_wrong_one() {
        let [mut f, _] = both(2);
        f[24] ^= 1;
        assert!(mark_ce(&mut f));
        decrement_ttl(&mut f).unwrap();
        assert_eq!(Packet::parse(&f), Err(crate::DropReason::BadIpChecksum));
    }

    #[test]
    fn all__ignore_malformed_frames() {
        for whole in both(3) {
            for len in 0..whole.len() {
                let mut f = whole[..len].to_vec();
                let short = len < if whole[12] == 8 { 34 } else { 54 };
                assert_eq!(decrement_ttl(&mut f).is_err(), short, "{len}");
                let _ = (mark_ce(&mut f), set_dscp(&mut f, 1), dscp_of(&f));
            }
            let mut f = whole.clone();
            f[14] = 0x15;
            assert_eq!(decrement_ttl(&mut f), Err(TtlError::NotIp));
            assert!(!mark_ce(&mut f) && !set_dscp(&mut f, 1));
            f[12] = 0x81;
            assert_eq!(dscp_of(&f), None);
        }
    }
}
