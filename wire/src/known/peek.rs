//! Fields of a frame that are read before anything is checked.

use crate::{Qpn, be, bth, ethernet, ipv4, ipv6, udp};

/// The destination QPN of a frame that is RoCEv2 over IPv4 without options or IPv6; of any other,
/// any number or `None`. Nothing is checked.
#[inline]
#[must_use]
pub fn peek_dest_qp(frame: &[u8]) -> Option<Qpn> {
    peek_dest_qp_word(frame).map(|word| Qpn::new(u32::from_be_bytes(word)))
}

/// As [`peek_dest_qp`], the bytes in the frame: a reserved one, and the QPN in network order. For
/// comparisons in that order, which are cheaper.
#[inline]
#[must_use]
pub fn peek_dest_qp_word(frame: &[u8]) -> Option<[u8; 4]> {
    // A length for each version: one comparison, and constant places.
    let head: &[u8; V4_BTH + bth::LEN] = frame.first_chunk()?;
    match u16::from_ne_bytes([head[AT], head[AT + 1]]) {
        V4 => head[V4_BTH + DEST_QP..].first_chunk().copied(),
        V6 => {
            let head: &[u8; V6_BTH + bth::LEN] = frame.first_chunk()?;
            head[V6_BTH + DEST_QP..].first_chunk().copied()
        }
        _ => None,
    }
}

/// EtherTypes in the order of bytes of the processor: one comparison with memory.
const V4: u16 = u16::from_ne_bytes([0x08, 0x00]);
const V6: u16 = u16::from_ne_bytes([0x86, 0xdd]);
const V4_BTH: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
const V6_BTH: usize = ethernet::LEN + ipv6::LEN + udp::LEN;
/// The word of the BTH whose low three bytes are the destination QPN.
const DEST_QP: usize = 4;

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
