//! Fields of a frame that are read before anything is checked.

use crate::{Qpn, be, bth, ethernet, ipv4, ipv6, udp};

/// The destination QPN of a frame that is RoCEv2 over IPv4 without options or IPv6; of any other,
/// any number or `None`. Nothing is checked.
#[inline]
#[must_use]
pub fn peek_dest_qp(frame: &[u8]) -> Option<Qpn> {
    let head: &[u8; AT + 2] = frame.first_chunk()?;
    let bth_at = match [head[AT], head[AT + 1]] {
        [0x08, 0x00] => ethernet::LEN + ipv4::LEN + udp::LEN,
        [0x86, 0xdd] => ethernet::LEN + ipv6::LEN + udp::LEN,
        _ => return None,
    };
    let bth: &[u8; bth::LEN] = frame.get(bth_at..)?.first_chunk()?;
    Some(Qpn::new(be::u24_at(bth, 5)))
}

/// The total length of IPv4, or the payload length of IPv6.
#[inline]
pub(super) fn len_field(frame: &[u8]) -> Option<u16> {
    let head: &[u8; ethernet::LEN + 6] = frame.first_chunk()?;
    match [head[AT], head[AT + 1]] {
        [0x08, 0x00] => Some(be::u16_at(head, ethernet::LEN + 2)),
        [0x86, 0xdd] => Some(be::u16_at(head, ethernet::LEN + 4)),
        _ => None,
    }
}

/// The EtherType's place.
pub(super) const AT: usize = ethernet::LEN - 2;
