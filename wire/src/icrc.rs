//! The invariant CRC: the last four bytes of every RoCEv2 packet.
//!
//! It is Ethernet's CRC-32 over all fields that no router changes. Eight bytes of ones replace the
//! InfiniBand local route header; the IP header, UDP, BTH and all bytes up to the ICRC follow.
//! Fields that routers change are replaced by ones: TOS, TTL and checksum of IPv4; traffic class,
//! flow label and hop limit of IPv6; the UDP checksum; and the byte of BTH with FECN and BECN. The
//! ICRC is sent least significant byte first. (IBTA A17; checked against rdma_rxe.)

mod prefix;

pub(crate) use prefix::{Prefix, Prefixes, SLOTS, slot};

use crate::{bth, ethernet, ipv4, ipv6, udp};
use std::ops::Range;

/// Bytes of an ICRC.
pub(crate) const LEN: usize = 4;

/// The ICRC of an IP packet: `packet` runs from the IP header's first byte up to the ICRC,
/// exclusive. `None` unless it begins with an IPv4 header without options, or an IPv6 header, then
/// a UDP header and a BTH. Nothing else is checked.
#[must_use]
pub fn icrc(packet: &[u8]) -> Option<u32> {
    match packet.first()? {
        0x45 => {
            let (head, rest) = packet.split_first_chunk::<V4_HEAD>()?;
            Some(crc(&masked_v4(head), rest))
        }
        b if b >> 4 == 6 => {
            let (head, rest) = packet.split_first_chunk::<V6_HEAD>()?;
            Some(crc(&masked_v6(head), rest))
        }
        _ => None,
    }
}

/// Finishes a frame: computes the ICRC and writes it into the last four of its first `len` bytes.
///
/// Headers, payload and pad are in place: [`Headers::emit`](crate::Headers::emit) or
/// [`Template::emit`](crate::Template::emit) has run, and the payload was copied.
///
/// # Arguments
/// - `frame`: the Ethernet frame, perhaps in a longer buffer.
/// - `len`: bytes of the frame, ICRC included: `frame_len`.
///
/// # Panics
/// If the first `len` bytes of `frame` are not such a frame: an error of the caller, which no
/// received packet can cause.
///
/// # Cost
/// Two CRC passes, one over at most 68 bytes on the stack and one over the rest of the frame.
pub fn seal(frame: &mut [u8], len: usize) {
    finish(frame, len, icrc);
}

/// As [`seal`], for a frame without the bytes of its payload: `payload` calls its argument with all
/// of them in order.
///
/// # Arguments
/// - `frame`, `len`: as for [`seal`].
/// - `place`: the payload's place in `frame`, behind the BTH and before the ICRC. Its content is
///   not read.
///
/// # Panics
/// As [`seal`], or if `place` is not there.
pub fn seal_around(
    frame: &mut [u8],
    len: usize,
    place: Range<usize>,
    payload: impl FnOnce(&mut dyn FnMut(&[u8])),
) {
    finish_around((frame, len), place, payload, Prefix::of);
}

/// As [`seal`]. `crc` is [`icrc`] or has its result.
#[inline]
fn finish(frame: &mut [u8], len: usize, crc: impl FnOnce(&[u8]) -> Option<u32>) {
    let (packet, crc_out) = parts_mut(frame, len);
    *crc_out = crc(packet).expect(HEADERS).to_le_bytes();
}

/// As [`seal_around`]. `find` is [`Prefix::of`] or has its result.
#[inline]
fn finish_around(
    (frame, len): (&mut [u8], usize),
    place: Range<usize>,
    payload: impl FnOnce(&mut dyn FnMut(&[u8])),
    find: impl FnOnce(&[u8]) -> Option<(Prefix, &[u8])>,
) {
    let (packet, crc_out) = parts_mut(frame, len);
    let (prefix, rest) = find(packet).expect(HEADERS);
    let outer_len = ethernet::LEN + packet.len() - rest.len();
    let (before, after) = (&rest[..place.start - outer_len], &rest[place.end - outer_len..]);
    let crc = prefix.icrc_with(before, |each| {
        payload(each);
        each(after);
    });
    *crc_out = crc.expect(HEADERS).to_le_bytes();
}

/// The IP packet up to the ICRC of a frame of `len` bytes, and its ICRC.
///
/// # Panics
/// As [`seal`].
#[inline]
fn parts_mut(frame: &mut [u8], len: usize) -> (&mut [u8], &mut [u8; LEN]) {
    let packet = frame.get_mut(ethernet::LEN..len);
    packet
        .and_then(<[u8]>::split_last_chunk_mut)
        .expect("the frame is in the buffer and has an Ethernet header and an ICRC")
}

/// The state of the ICRC behind the IP and UDP header of a packet, for [`icrc_residue`]. `outer`
/// are these headers; what follows them is not read. `None` as for [`icrc`].
#[must_use]
pub fn icrc_prefix(outer: &[u8]) -> Option<u32> {
    Some(Prefix::of(outer)?.0.state())
}

/// The XOR of the computed and the sent ICRC of an IP packet, zero if that is right. `None` if the
/// packet has no BTH or no ICRC.
///
/// # Arguments
/// - `prefix`: [`icrc_prefix`] of its outer headers.
/// - `rest`: the bytes behind them, with the ICRC.
#[inline]
#[must_use]
pub fn icrc_residue(prefix: u32, rest: &[u8]) -> Option<u32> {
    let (covered, sent) = rest.split_last_chunk::<LEN>()?;
    Some(Prefix::from_state(prefix).icrc(covered)? ^ u32::from_le_bytes(*sent))
}

/// How the ICRC of an IP packet depends on a field of 16 bits: entry `n` is the XOR of the ICRC if
/// bit `n` of the field's value is inverted. The ICRC is linear, so several bits combine by XOR,
/// and neither the other bytes nor the field's value matter.
///
/// # Arguments
/// - `covered_len`: bytes from the IP header to the ICRC, exclusive.
/// - `at`: offset of the field, which is big-endian and not masked: 4 is IPv4's identification.
///
/// # Panics
/// If the field is not within the packet, or the packet is longer than IPv6 allows.
///
/// # Cost
/// Two multiplications of polynomials; no pass over bytes.
#[must_use]
pub fn icrc_change(covered_len: usize, at: usize) -> [u32; 16] {
    let behind = covered_len.checked_sub(at + 2).expect("the field is within the packet");
    let power = power_of_bytes(behind).expect("a packet is at most as long as IPv6 allows");
    // The bit that enters last.
    let mut effect = times(POLYNOMIAL, power);
    let mut change = [0; 16];
    // A byte enters with its lowest bit first; a bit that enters one step earlier has the effect
    // times x.
    for bit in [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8] {
        change[bit] = effect;
        effect = times_x(effect);
    }
    change
}

/// x^8 to the power of `bytes`: the CRC of what precedes so many bytes is multiplied by it. `None`
/// for more bytes than a packet has.
fn power_of_bytes(bytes: usize) -> Option<u32> {
    let [high, low] = [bytes >> 8, bytes & 0xff];
    Some(times(*HIGH_POWERS.get(high)?, LOW_POWERS[low]))
}

/// The change of the CRC before a BTH that has the effect of ones in byte 4.
const ONES_AHEAD: u32 = {
    let (mut change, mut bit) = (0xff, 0);
    while bit < 8 * MASKED_AT {
        change = over_x(change);
        bit += 1;
    }
    change
};

/// The first `N` powers of `base`.
const fn powers<const N: usize>(base: u32) -> [u32; N] {
    let (mut all, mut i) = ([ONE; N], 1);
    while i < N {
        all[i] = times(all[i - 1], base);
        i += 1;
    }
    all
}

/// The product of two polynomials modulo [`POLYNOMIAL`], all with the lowest power in the highest
/// bit.
const fn times(a: u32, b: u32) -> u32 {
    let (mut product, mut b, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        // All ones if the bit is set: a branch would be mispredicted.
        product ^= b & 0u32.wrapping_sub(a >> bit & 1);
        b = times_x(b);
    }
    product
}

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(a & 1))
}

/// The inverse of [`times_x`].
const fn over_x(a: u32) -> u32 {
    let high = a >> 31;
    (a ^ (POLYNOMIAL & 0u32.wrapping_sub(high))) << 1 | high
}

/// Ethernet's polynomial, with the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomials 1 and x^8.
const ONE: u32 = 1 << 31;
const X8: u32 = 1 << (31 - 8);
/// x^8 and x^2048 to each power that the length of a packet needs: 65,575 bytes with IPv6.
static LOW_POWERS: [u32; 256] = powers(X8);
static HIGH_POWERS: [u32; 257] = powers(times(LOW_POWERS_LAST, X8));
const LOW_POWERS_LAST: u32 = powers::<256>(X8)[255];

/// The bytes of ones that replace the local route header.
const LRH: usize = 8;
const ONES: u8 = 0xff;
/// Bytes of the IP and UDP header, and with the BTH.
const V4_OUTER: usize = ipv4::LEN + udp::LEN;
const V6_OUTER: usize = ipv6::LEN + udp::LEN;
const V4_HEAD: usize = V4_OUTER + bth::LEN;
const V6_HEAD: usize = V6_OUTER + bth::LEN;
/// The byte of the BTH that the ICRC takes for ones: FECN, BECN and six reserved bits.
const MASKED_AT: usize = 4;

const HEADERS: &str = "a frame to seal has its headers in place";

/// The CRC of both parts. The first has every masked field: the CRC code runs fastest over few,
/// long runs of bytes.
fn crc(masked: &[u8], rest: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(masked);
    crc.update(rest);
    crc.finalize()
}

fn masked_v4(head: &[u8; V4_HEAD]) -> [u8; LRH + V4_HEAD] {
    let mut m = [ONES; LRH + V4_HEAD];
    m[LRH..].copy_from_slice(head);
    m[LRH + 1] = ONES; // TOS
    m[LRH + 8] = ONES; // TTL
    m[LRH + 10..LRH + 12].fill(ONES); // header checksum
    m[LRH + ipv4::LEN + 6..LRH + V4_OUTER].fill(ONES); // UDP checksum
    m[LRH + V4_OUTER + MASKED_AT] = ONES;
    m
}

fn masked_v6(head: &[u8; V6_HEAD]) -> [u8; LRH + V6_HEAD] {
    let mut m = [ONES; LRH + V6_HEAD];
    m[LRH..].copy_from_slice(head);
    m[LRH] |= 0x0f; // traffic class and flow label, not the version
    m[LRH + 1..LRH + 4].fill(ONES);
    m[LRH + 7] = ONES; // hop limit
    m[LRH + ipv6::LEN + 6..LRH + V6_OUTER].fill(ONES); // UDP checksum
    m[LRH + V6_OUTER + MASKED_AT] = ONES;
    m
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An ACK from 01_send_small.pcap.
    const ACK_V4: &[u8] = &[
        0x52, 0x54, 0x00, 0x4f, 0xd8, 0x01, 0x52, 0x54, 0x00, 0x10, 0x0b, 0x01, 0x08, 0x00, 0x45,
        0x00, 0x00, 0x30, 0x9b, 0xe7, 0x40, 0x00, 0x40, 0x11, 0x8a, 0x39, 0x0a, 0x4d, 0x00, 0x02,
        0x0a, 0x4d, 0x00, 0x01, 0xc1, 0x69, 0x12, 0xb7, 0x00, 0x1c, 0x00, 0x00, 0x11, 0x00, 0xff,
        0xff, 0x00, 0x00, 0x00, 0x13, 0x00, 0xa3, 0x8e, 0x27, 0x1f, 0x00, 0x00, 0x01, 0xbe, 0xcb,
        0x4f, 0x23,
    ];

    /// An ACK from 30_v6_send.pcap.
    const ACK_V6: &[u8] = &[
        0x52, 0x54, 0x00, 0x4f, 0xd8, 0x01, 0x52, 0x54, 0x00, 0x10, 0x0b, 0x01, 0x86, 0xdd, 0x60,
        0x00, 0x00, 0x00, 0x00, 0x1c, 0x11, 0x40, 0xfd, 0x77, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xfd, 0x77, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xc1, 0xb9, 0x12, 0xb7, 0x00, 0x1c,
        0x00, 0x00, 0x11, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x15, 0x00, 0x37, 0x2e, 0x08, 0x1f,
        0x00, 0x00, 0x01, 0x63, 0x9c, 0x6f, 0x13,
    ];

    /// A SEND of one byte with three pad bytes from 43_solicited_pads.pcap.
    const SEND_V4: &[u8] = &[
        0x52, 0x54, 0x00, 0x10, 0x0b, 0x01, 0x52, 0x54, 0x00, 0x4f, 0xd8, 0x01, 0x08, 0x00, 0x45,
        0x00, 0x00, 0x30, 0x0a, 0x93, 0x40, 0x00, 0x40, 0x11, 0x1b, 0x8e, 0x0a, 0x4d, 0x00, 0x01,
        0x0a, 0x4d, 0x00, 0x02, 0xc7, 0x90, 0x12, 0xb7, 0x00, 0x1c, 0x00, 0x00, 0x04, 0xb0, 0xff,
        0xff, 0x00, 0x00, 0x00, 0x2c, 0x80, 0x08, 0xde, 0x3e, 0x01, 0x00, 0x00, 0x00, 0xfc, 0xec,
        0x61, 0x20,
    ];

    #[test]
    fn icrc__matches_rdma_rxe() {
        for v in [ACK_V4, ACK_V6, SEND_V4] {
            let (packet, want) = v[ethernet::LEN..].split_last_chunk::<4>().unwrap();
            assert_eq!(icrc(packet).unwrap().to_le_bytes(), *want);
        }
    }

    #[test]
    fn icrc__is_none_where_undefined() {
        let packet = &ACK_V4[ethernet::LEN..];
        assert_eq!(icrc(&packet[..V4_HEAD - 1]), None);
        assert!(icrc(&packet[..V4_HEAD]).is_some());
        let mut options = packet.to_vec();
        options[0] = 0x46;
        assert_eq!(icrc(&options), None);
        assert_eq!(icrc(&[]), None);
        assert_eq!(icrc(&ACK_V6[ethernet::LEN..][..V6_HEAD - 1]), None);
    }

    #[test]
    fn seal__writes_least_significant_byte_first() {
        let mut frame = ACK_V6.to_vec();
        let len = frame.len();
        frame[len - 4..].fill(0);
        frame.extend([7; 10]);
        seal(&mut frame, len);
        assert_eq!(frame[..len], *ACK_V6);
        assert_eq!(frame[len..], [7; 10]);
    }

    #[test]
    fn seal_around__is_seal_without_the_payloads_bytes() {
        let mut v4 = SEND_V4.to_vec();
        v4.splice(54..54, (0..999u32).map(|n| n.to_le_bytes()[0]));
        for (frame, from) in [(v4, 54), (ACK_V6.to_vec(), 74)] {
            let len = frame.len();
            for place in [from..len - 4, from + 1..len - 6, from..from] {
                let mut whole = frame.clone();
                seal(&mut whole, len);
                let mut around = frame.clone();
                let payload = around[place.clone()].to_vec();
                around[place.clone()].fill(0xa5);
                seal_around(&mut around, len, place.clone(), |each| {
                    let (first, second) = payload.split_at(payload.len() / 3);
                    each(first);
                    each(second);
                });
                assert_eq!(around[len - 4..], whole[len - 4..], "{place:?} of {len}");
            }
        }
    }

    #[test]
    fn icrc_residue__is_the_difference_of_the_icrcs() {
        for (v, outer) in [(ACK_V4, V4_OUTER), (ACK_V6, V6_OUTER), (SEND_V4, V4_OUTER)] {
            let mut packet = v[ethernet::LEN..].to_vec();
            let prefix = icrc_prefix(&packet[..outer]).unwrap();
            assert_eq!(icrc_residue(prefix, &packet[outer..]), Some(0));
            let last = packet.len() - 1;
            packet[last] ^= 0x80;
            assert_eq!(icrc_residue(prefix, &packet[outer..]), Some(0x8000_0000));
            let short = outer + bth::LEN + LEN - 1;
            assert_eq!(icrc_residue(prefix, &packet[outer..short]), None);
            assert_eq!(icrc_prefix(&packet[..outer - 1]), None);
        }
        assert_eq!(icrc_prefix(&[0x46; 100]), None);
    }

    proptest! {
        #[test]
        fn icrc__is_the_crc_of_the_packet_with_ones_in_masked_fields(
            mut packet in prop::collection::vec(any::<u8>(), 68..200),
            is_v4 in any::<bool>(),
        ) {
            let (outer, fields) = match is_v4 {
                true => (V4_OUTER, &[1, 8, 10, 11, 26, 27, 32][..]),
                false => (V6_OUTER, &[1, 2, 3, 7, 46, 47, 52][..]),
            };
            packet[0] = if is_v4 { 0x45 } else { 0x60 | packet[0] & 0x0f };
            let mut masked = packet.clone();
            masked[0] |= if is_v4 { 0 } else { 0x0f };
            fields.iter().for_each(|at| masked[*at] = 0xff);
            let expected = crc32fast::hash(&[&[0xff; 8], &masked[..]].concat());
            prop_assert_eq!(icrc(&packet), Some(expected));
            let prefix = icrc_prefix(&packet[..outer]).unwrap();
            let sent = [&packet[outer..], &expected.to_le_bytes()].concat();
            prop_assert_eq!(icrc_residue(prefix, &sent), Some(0));
        }
    }

    #[test]
    fn icrc_change__is_what_each_bit_of_a_field_changes() {
        let mut long = SEND_V4[ethernet::LEN..].to_vec();
        long.splice(40..40, (0..1_500u32).map(|n| n.to_le_bytes()[0]));
        let identification_and_port =
            [(&SEND_V4[ethernet::LEN..], 4), (&long[..], 4), (&long, 20), (&ACK_V6[14..], 40)];
        for (packet, at) in identification_and_port {
            let covered = &packet[..packet.len() - LEN];
            let before = icrc(covered).unwrap();
            let change = icrc_change(covered.len(), at);
            for (bit, change) in change.iter().enumerate() {
                let mut changed = covered.to_vec();
                changed[at + usize::from(bit < 8)] ^= 1 << (bit % 8);
                assert_eq!(icrc(&changed).unwrap(), before ^ change, "bit {bit} at {at}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "within the packet")]
    fn icrc_change__a_field_beyond_the_packet_is_an_error() {
        let _ = icrc_change(5, 4);
    }

    #[test]
    #[should_panic(expected = "headers in place")]
    fn seal__rejects_a_frame_without_headers() {
        seal(&mut [0; 100], 100);
    }

    #[test]
    #[should_panic(expected = "in the buffer")]
    fn seal__rejects_a_length_beyond_the_buffer() {
        seal(&mut [0; 100], 101);
    }
}
