//! Forged positions in blocks, and forged reports of our blocks.

use super::view::View;
use crate::sequence::layout::STEP_LEN;
use spanwire_base::{u32_from, usize_from};
use spanwire_wire::{BlockReport, BlockReportKind, BlockReports, BlockRepr};

/// A packet's position in a block, and the segment lengths of the block.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) place: BlockRepr,
    /// Bytes of every segment but the last, and the amount by which the last is shorter.
    segment_bytes: u32,
    shorter: u32,
}

impl Position {
    /// The position of packet `psn` of a step. Blocks of one kind are consecutive from the first
    /// packet on, so packets of two steps agree on their block, unless a step deviates
    /// deliberately.
    pub(super) fn of(step: &[u8; STEP_LEN], psn: u32, view: &View<'_>) -> Option<Self> {
        let [_, _, base, _, _, shape, len, _, _, dma, _] = *step;
        let (data, parity, scheme) = KINDS[usize::from((base >> 4).checked_sub(1)?)];
        let at = psn.wrapping_sub(view.sr_first) % u32::from(data + parity);
        let place = BlockRepr { index: u8::try_from(at).ok()?, data, parity, scheme };
        let place = match shape >> 6 {
            1 => BlockRepr { index: (place.index + 1) % place.pkts(), ..place },
            2 => BlockRepr { scheme: scheme ^ 3, ..place },
            3 => BlockRepr { data: data ^ 1, ..place },
            _ => place,
        };
        let segment_bytes = if shape & 3 == 3 { 4 * u32::from(len) } else { len.into() };
        let shorter = u32::from(dma.saturating_sub(SHORTER)) % segment_bytes.max(1);
        let shorter = if dma >= ABSURD { 0 } else { shorter };
        Some(Self { place, segment_bytes, shorter })
    }

    pub(super) fn is_first(&self) -> bool {
        self.place.is_parity() || self.place.index == 0
    }

    /// It has the last data of its block.
    pub(super) fn is_last(&self) -> bool {
        self.place.is_parity() || self.place.index + 1 == self.place.data
    }

    /// Bytes of data in the block before this packet's.
    pub(super) fn before(&self) -> u32 {
        if self.place.is_parity() { 0 } else { u32::from(self.place.index) * self.segment_bytes }
    }

    pub(super) fn payload_len(&self) -> usize {
        let is_shorter = self.is_last() && !self.place.is_parity();
        usize_from((self.segment_bytes - if is_shorter { self.shorter } else { 0 }).into())
    }

    /// The block's bytes according to parity.
    pub(super) fn block_bytes(&self, dma: u8) -> u32 {
        let all = u32::from(self.place.data) * self.segment_bytes;
        match dma {
            0xf0 | 0xf8 => 0,
            0xf1 | 0xf9 => all + 1,
            0xf2 | 0xfa => all.saturating_sub(self.segment_bytes),
            0xf3 | 0xfb => u32::MAX,
            0xf4 | 0xfc => 1 << 31,
            _ => all.saturating_sub(self.shorter),
        }
    }

    /// The length in its RETH.
    pub(super) fn dma_len(&self, dma: u8) -> u32 {
        match self.place.is_parity() {
            true if dma < 0xf8 => self.block_bytes(dma),
            true => self.segment_bytes,
            false => u32_from(self.payload_len()),
        }
    }
}

/// Reports of our blocks: none, or one to four. Mostly of blocks that were sent.
pub(super) fn reports(step: &[u8; STEP_LEN], view: &View<'_>) -> BlockReports {
    let [_, op, base, _, _, words, len, near, at, _, refused] = *step;
    let mut reports = BlockReports::default();
    if base >> 4 == 0 {
        return reports;
    }
    for i in 0..=base >> 4 & 3 {
        let kind = match (op >> (2 * i) & 3, at & 1) {
            (0, _) | (3, 0) => BlockReportKind::Nack,
            (1, _) | (3, _) => BlockReportKind::Settled,
            _ => BlockReportKind::Recovered,
        };
        let near = i32::from(near.cast_signed() >> 2) + 8 * i32::from(i);
        let psn = view.sr_snd_una.wrapping_add_signed(near);
        let place = view.outgoing.place(psn);
        let (first, data) = match place {
            Some(block) => (psn.wrapping_sub(block.index.into()), block.data),
            None => (psn, 1 + at % 63),
        };
        let (first, data) = match refused >> 2 & 3 {
            _ if base & 0x40 == 0 => (first, data),
            0 => (first.wrapping_add(1), data),
            1 => (first, data % 63 + 1),
            2 => (first ^ 1 << 31, data),
            _ => (view.sr_snd_nxt.wrapping_add(at.into()), data),
        };
        let bits = u64::from_ne_bytes([len; 8]).rotate_left((words & 0x3f).into());
        let bits = if words & 0x40 == 0 { bits >> (8 * i) } else { bits & 0xff };
        reports.push(BlockReport { first, kind, data, bits });
    }
    reports
}

/// Data packets, parity packets and scheme of the possible blocks. The last has an unknown scheme.
const KINDS: [(u8, u8, u8); 15] = [
    (2, 1, 1),
    (2, 2, 1),
    (1, 1, 1),
    (3, 2, 1),
    (4, 2, 1),
    (5, 1, 1),
    (8, 2, 1),
    (3, 3, 2),
    (4, 4, 2),
    (1, 2, 2),
    (10, 2, 2),
    (2, 30, 2),
    (32, 32, 2),
    (62, 2, 1),
    (4, 2, 9),
];
/// Length operands from here on shorten a block's last segment; those from `ABSURD` on make parity
/// inconsistent.
const SHORTER: u8 = 0x85;
const ABSURD: u8 = 0xf0;
