//! The part of the ICRC that packets of one flow and one length have in common.

use super::{LRH, MASKED_AT, ONES_AHEAD, V4_HEAD, V4_OUTER, V6_HEAD, V6_OUTER};
use super::{masked_v4, masked_v6};
use crate::{bth, udp};
use crc32fast::Hasher;
use std::ops::Range;

/// The ICRC up to the end of the UDP header.
///
/// The rest is one pass over the packet as it is. Byte 4 of the BTH counts as ones and usually is
/// 0: the difference is included here, since a CRC is linear.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(Hasher);

impl Prefix {
    /// That of a packet, and the bytes behind its UDP header. `None` unless it is IPv4 without
    /// options or IPv6, and has a UDP header.
    #[inline]
    pub(crate) fn of(packet: &[u8]) -> Option<(Self, &[u8])> {
        let mut hasher = Hasher::new();
        let rest = match packet.first()? {
            0x45 => {
                let (outer, rest) = packet.split_first_chunk::<V4_OUTER>()?;
                let mut head = [0; V4_HEAD];
                head[..V4_OUTER].copy_from_slice(outer);
                hasher.update(&masked_v4(&head)[..LRH + V4_OUTER]);
                rest
            }
            b if b >> 4 == 6 => {
                let (outer, rest) = packet.split_first_chunk::<V6_OUTER>()?;
                let mut head = [0; V6_HEAD];
                head[..V6_OUTER].copy_from_slice(outer);
                hasher.update(&masked_v6(&head)[..LRH + V6_OUTER]);
                rest
            }
            _ => return None,
        };
        Some((Self::from_state(hasher.finalize() ^ ONES_AHEAD), rest))
    }

    /// Its value as a number.
    pub(super) fn state(self) -> u32 {
        self.0.finalize()
    }

    /// That with this value.
    #[inline]
    pub(super) fn from_state(state: u32) -> Self {
        Self(Hasher::new_with_initial(state))
    }

    /// The ICRC of a packet with these outer headers, of which `rest` are the bytes from the BTH up
    /// to the ICRC. `None` if that is no BTH.
    #[inline]
    pub(crate) fn icrc(self, rest: &[u8]) -> Option<u32> {
        self.icrc_with(rest, |_| ())
    }

    /// As [`Prefix::icrc`], if bytes follow `rest` with which `more` calls its argument.
    #[inline(always)]
    pub(super) fn icrc_with(
        self,
        rest: &[u8],
        more: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> Option<u32> {
        let (bth, payload) = rest.split_first_chunk::<{ bth::LEN }>()?;
        let mut crc = self.0;
        if bth[MASKED_AT] == 0 {
            crc.update(rest);
        } else {
            let mut bth = *bth;
            bth[MASKED_AT] = 0;
            crc.update(&bth);
            crc.update(payload);
        }
        more(&mut |bytes| crc.update(bytes));
        Some(crc.finalize())
    }
}

/// The prefixes of the lengths and source ports that a flow's last packets had, to finish frames
/// that were written from one [`Template`](crate::Template).
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    prefixes: [Option<(Key, Prefix)>; SLOTS],
}

/// The fields that distinguish headers of one template, as far as the ICRC covers them: length of
/// the IP packet, source port.
type Key = (u16, u16);

impl Prefixes {
    /// As [`seal`](super::seal), with the same result.
    ///
    /// # Panics
    /// As [`seal`](super::seal).
    #[inline]
    pub(crate) fn seal(&mut self, frame: &mut [u8], len: usize) {
        super::finish(frame, len, |packet| {
            let (prefix, rest) = self.find(packet)?;
            prefix.icrc(rest)
        });
    }

    /// As [`seal_around`](super::seal_around), with the same result.
    ///
    /// # Panics
    /// As [`seal_around`](super::seal_around).
    pub(crate) fn seal_around(
        &mut self,
        frame: &mut [u8],
        len: usize,
        place: Range<usize>,
        payload: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) {
        super::finish_around((frame, len), place, payload, |packet| self.find(packet));
    }

    /// As [`Prefix::of`].
    #[inline(always)]
    fn find<'a>(&mut self, packet: &'a [u8]) -> Option<(Prefix, &'a [u8])> {
        let (len, outer_len) = match packet {
            [0x45, _, high, low, ..] => ([*high, *low], V4_OUTER),
            [_, _, _, _, high, low, ..] => ([*high, *low], V6_OUTER),
            _ => return None,
        };
        let (outer, rest) = packet.split_at_checked(outer_len)?;
        let port = outer[outer_len - udp::LEN..].first_chunk()?;
        let (len, port) = (u16::from_be_bytes(len), u16::from_be_bytes(*port));
        let held = &mut self.prefixes[slot(len)];
        if held.as_ref().is_none_or(|(key, _)| *key != (len, port)) {
            *held = Some(((len, port), Prefix::of(packet)?.0));
        }
        held.as_ref().map(|(_, prefix)| (prefix.clone(), rest))
    }
}

/// The place of packets with this length field in a table of [`SLOTS`].
#[inline]
pub(crate) const fn slot(len: u16) -> usize {
    (len >> 2 ^ len >> 4) as usize % SLOTS
}

/// Lengths of packets whose headers are kept: first, middle and last of a message, and ACKs.
pub(crate) const SLOTS: usize = 4;
