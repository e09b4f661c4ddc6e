//! The part of the ICRC that packets of one flow and one length have in common.

use super::{LRH, V4_HEAD, V6_HEAD, masked_v4, masked_v6, power_of_bytes, times};
use crate::{bth, ethernet, ipv4, ipv6, udp};

/// The ICRC up to the end of the UDP header, of all packets of one length of a flow.
///
/// The rest is one pass over the packet as it is. Byte 4 of the BTH counts as ones, and must be 0
/// here: the difference is a constant, since a CRC is linear.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    hasher: crc32fast::Hasher,
    /// Bytes that the ICRC covers, from the IP header on.
    covered_len: usize,
    /// Bytes of the IP and UDP header.
    outer_len: usize,
    /// The change of the ICRC by ones in byte 4 of the BTH.
    unmask: u32,
}

impl Prefix {
    /// That of a packet that begins with `outer`, an IP and UDP header, and of which the ICRC
    /// covers `covered_len` bytes. `None` unless that is IPv4 without options or IPv6, and a BTH
    /// follows.
    pub(crate) fn of(outer: &[u8], covered_len: usize) -> Option<Self> {
        let mut hasher = crc32fast::Hasher::new();
        let outer_len = match outer.first()? {
            0x45 => {
                let outer = outer.first_chunk::<V4_OUTER>()?;
                let mut head = [0; V4_HEAD];
                head[..V4_OUTER].copy_from_slice(outer);
                hasher.update(&masked_v4(&head)[..LRH + V4_OUTER]);
                V4_OUTER
            }
            b if b >> 4 == 6 => {
                let outer = outer.first_chunk::<V6_OUTER>()?;
                let mut head = [0; V6_HEAD];
                head[..V6_OUTER].copy_from_slice(outer);
                hasher.update(&masked_v6(&head)[..LRH + V6_OUTER]);
                V6_OUTER
            }
            _ => return None,
        };
        let behind = covered_len.checked_sub(outer_len + bth::LEN)? + bth::LEN - (MASKED_AT + 1);
        let unmask = times(BYTE_OF_ONES, power_of_bytes(behind)?);
        Some(Self { hasher, covered_len, outer_len, unmask })
    }

    /// The ICRC of a packet with these headers. `None` if it has another length, or byte 4 of its
    /// BTH is not 0.
    #[inline]
    pub(crate) fn icrc(&self, covered: &[u8]) -> Option<u32> {
        let rest = covered.get(self.outer_len..)?;
        if covered.len() != self.covered_len || rest.get(MASKED_AT) != Some(&0) {
            return None;
        }
        let mut crc = self.hasher.clone();
        crc.update(rest);
        Some(crc.finalize() ^ self.unmask)
    }

    /// As [`Prefix::icrc`] of a packet of which `parts` calls its argument with all bytes behind
    /// the UDP header, in order. The caller has checked the length, and that byte 4 of the BTH is
    /// 0.
    #[inline]
    pub(super) fn icrc_of(&self, parts: impl FnOnce(&mut dyn FnMut(&[u8]))) -> u32 {
        let mut crc = self.hasher.clone();
        parts(&mut |bytes| crc.update(bytes));
        crc.finalize() ^ self.unmask
    }
}

/// The prefixes of the lengths and source ports that a flow's last packets had, to finish frames
/// that were written from one [`Template`](crate::Template).
///
/// A prefix costs as much as a few packets gain by it, so the second packet of a length computes
/// it: lengths that do not recur cost nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// None until the second packet.
    prefixes: [(Key, Option<Prefix>); SLOTS],
}

/// The fields that distinguish headers of one template, as far as the ICRC covers them: bytes
/// covered, length of the IP packet, source port.
type Key = (usize, u16, u16);

impl Prefixes {
    /// As [`seal`](super::seal), with the same result.
    ///
    /// # Panics
    /// As [`seal`](super::seal).
    #[inline]
    pub(crate) fn seal(&mut self, frame: &mut [u8], len: usize) {
        let (packet, crc_out) = super::parts_mut(frame, len);
        let known = self.find(packet).and_then(|prefix| prefix.icrc(packet));
        let crc = known.or_else(|| super::icrc(packet));
        *crc_out = crc.expect("a frame to seal has its headers in place").to_le_bytes();
    }

    /// As [`seal_around`](super::seal_around), with the same result.
    ///
    /// # Panics
    /// As [`seal_around`](super::seal_around).
    pub(crate) fn seal_around(
        &mut self,
        frame: &mut [u8],
        len: usize,
        place: std::ops::Range<usize>,
        payload: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) {
        let (packet, crc_out) = super::parts_mut(frame, len);
        let prefix = self.find(packet);
        let prefix = prefix.filter(|p| packet.get(p.outer_len + MASKED_AT) == Some(&0));
        let Some(prefix) = prefix else {
            return super::seal_around(frame, len, place, payload);
        };
        let before = &packet[prefix.outer_len..place.start - ethernet::LEN];
        let after = &packet[place.end - ethernet::LEN..];
        let crc = prefix.icrc_of(|each| {
            each(before);
            payload(each);
            each(after);
        });
        *crc_out = crc.to_le_bytes();
    }

    /// The prefix of a packet up to its ICRC. `None` for the first of its length, and for a packet
    /// without the headers.
    #[inline]
    fn find(&mut self, packet: &[u8]) -> Option<&Prefix> {
        let (len, port) = match packet {
            [0x45, _, high, low, ..] => ([*high, *low], packet.get(ipv4::LEN..)?),
            [_, _, _, _, high, low, ..] => ([*high, *low], packet.get(ipv6::LEN..)?),
            _ => return None,
        };
        let (len, port) = (u16::from_be_bytes(len), u16::from_be_bytes(*port.first_chunk()?));
        let key = (packet.len(), len, port);
        let (held, prefix) = &mut self.prefixes[slot(len)];
        if *held != key {
            (*held, *prefix) = (key, None);
        } else if prefix.is_none() {
            *prefix = Prefix::of(packet, packet.len());
        }
        prefix.as_ref()
    }
}

/// The place of packets with this length field in a table of [`SLOTS`].
#[inline]
pub(crate) const fn slot(len: u16) -> usize {
    (len >> 2 ^ len >> 4) as usize % SLOTS
}

/// Lengths of packets whose headers are kept: first, middle and last of a message, and ACKs.
pub(crate) const SLOTS: usize = 4;
const V4_OUTER: usize = ipv4::LEN + udp::LEN;
const V6_OUTER: usize = ipv6::LEN + udp::LEN;
/// The byte of the BTH that the ICRC takes for ones.
const MASKED_AT: usize = 4;
const BYTE_OF_ONES: u32 = super::byte_of_ones();
