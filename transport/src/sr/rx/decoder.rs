//! The FEC decoder: the received packets of each block, its running parity, and the block reports
//! to send (docs/protocol/sr.md, "Blocks", 4 to 7).

mod block;
mod invariants;
mod memory;
mod open;

use super::deadline::ArrivalTiming;
use crate::blocks::BlockMemory;
use crate::payload::Payload;
use crate::sr::number::wrap;
pub(in crate::sr) use block::Segment;
use block::{Block, BlockSegment, Sums, code, ones};
use memory::Memory;
use open::{OpenBlocks, Slot};
use spanwire_base::{Time, usize_from};
use spanwire_erasure::Source;
use spanwire_wire::{BlockReport, BlockReportKind, BlockReports, BlockRepr, SrDataRepr};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

/// The FEC decoder of a queue pair, with its open blocks.
///
/// A block is open from its first packet until all its packets have arrived or are settled.
#[derive(Debug)]
pub(in crate::sr) struct Decoder {
    open: OpenBlocks,
    timing: ArrivalTiming,
    memory: Memory,
    /// An empty list, reused by [`Decoder::recover`].
    segments: Vec<Segment>,
    /// Block reports to send, each with the number of ACKs left that carry it.
    reports: VecDeque<(BlockReport, u8)>,
    counters: BlockCounters,
}

/// Counters of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sr) struct BlockCounters {
    /// Blocks with recovered source packets.
    pub(in crate::sr) recovered: u64,
    /// Blocks without running parity, because memory was exhausted or parity was unusable.
    pub(in crate::sr) uncoded: u64,
    /// Block NACKs.
    pub(in crate::sr) nacks: u64,
}

/// The state of a block after a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sr) enum BlockState {
    Incomplete,
    /// All its source packets are here. These numbers are its parity, which is not needed.
    Complete(Range<u64>),
    /// Its missing source packets can be recovered.
    Recoverable,
}

/// The action for a block whose deadline has expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sr) enum ExpiredBlock {
    /// All its source packets are here. Its missing parity, of these numbers, is taken for lost.
    Settle(Range<u64>),
    /// It cannot be recovered. A block NACK is among the reports.
    Nack,
}

impl Decoder {
    pub(in crate::sr) fn new(peer: IpAddr, limit_bytes: u64) -> Self {
        Self {
            open: OpenBlocks::default(),
            timing: ArrivalTiming::default(),
            memory: Memory::new(peer, limit_bytes),
            segments: Vec::new(),
            reports: VecDeque::new(),
            counters: BlockCounters::default(),
        }
    }

    /// The counts since the last call.
    pub(in crate::sr) fn take_counters(&mut self) -> BlockCounters {
        std::mem::take(&mut self.counters)
    }

    /// Processes the first arrival of a block's packet: a placed source packet, or parity.
    /// `arrived` returns the bitmap of a block's arrived packets by its first number.
    pub(in crate::sr) fn on_packet(
        &mut self,
        now: Time,
        (number, header, solicited): (u64, &SrDataRepr, bool),
        data: Payload<'_>,
        arrived: impl FnOnce(u64) -> u64,
        memory: &mut BlockMemory,
    ) -> BlockState {
        let Some(block) = header.block else { return BlockState::Incomplete };
        let excess_delay = self.timing.on_packet(now, number, header.sent_ps, block.index);
        let first = number - u64::from(block.index);
        let Some(slot) = self.find_or_open(first, &block, arrived) else {
            self.counters.uncoded += 1;
            return BlockState::Incomplete;
        };
        let b = &mut self.open[slot];
        let deadline = self.timing.block_deadline(now, excess_delay, &block);
        // The packets that a block NACK requested have begun to arrive. The deadline that covered
        // the round trip of the NACK is too late for the rest.
        let was_nacked = std::mem::replace(&mut b.nacks, 0) > 0;
        b.deadline = if was_nacked { Some(deadline) } else { b.deadline.max(Some(deadline)) };
        self.open.arm(slot);
        let b = &mut self.open[slot];
        let described = header.block_bytes.map(|bytes| (bytes, data.len()));
        let is_in_sums = !header.is_retransmission || block.is_parity();
        let is_summable = (!is_in_sums || self.memory.add(b, &block, data, memory))
            && described.is_none_or(|(bytes, longest)| {
                b.set_block_segment(header, solicited, bytes, longest)
            });
        if !is_summable && b.keeps_parity() {
            self.counters.uncoded += 1;
            self.memory.drop_sums(b, memory);
            b.usable &= ones(b.block.data);
        }
        // An empty parity packet reports that its sender no longer has the parity.
        let is_kept = !block.is_parity() || b.keeps_parity() && header.block_bytes.is_some();
        b.arrived |= 1 << block.index;
        b.usable |= u64::from(is_kept) << block.index;
        b.in_sums |= u64::from(is_in_sums && !block.is_parity()) << block.index;
        self.evaluate(slot, memory)
    }

    /// Recovers the missing source packets of the block at `first`, lowest first. The caller places
    /// them, then calls [`Decoder::on_recovered`] or [`Decoder::on_rejected`].
    pub(in crate::sr) fn recover(&mut self, first: u64) -> Vec<Segment> {
        let mut segments = std::mem::take(&mut self.segments);
        let Some(slot) = self.open.find(first) else { return segments };
        let b = &self.open[slot];
        let (Some(block_segment), Some(recovery)) = (&b.block_segment, b.recovery()) else {
            return segments;
        };
        let elided = matches!(b.sums, Sums::Elided);
        let len_of = |i: u8| block_segment.len_of(i, b.block.data);
        let mut out = self.memory.list();
        for i in recovery.lost() {
            out.push(self.memory.row(if elided { 0 } else { usize_from(len_of(*i).into()) }));
        }
        if let Sums::Rows(rows) = &b.sums {
            // The sums include all received packets, so they are functions of the lost ones only.
            for (row, sum) in (0..).zip(rows) {
                recovery.add(Source::Parity(row), sum, &mut out);
            }
        }
        for (&i, bytes) in recovery.lost().iter().zip(out.drain(..)) {
            let bytes = match elided || !b.is_missing(i) {
                true => {
                    self.memory.recycle_row(bytes);
                    None
                }
                false => Some(bytes),
            };
            if b.is_missing(i) {
                segments.push(segment(b, block_segment, i, bytes));
            }
        }
        self.memory.recycle_list(out);
        segments
    }

    /// Returns the list of [`Decoder::recover`] for reuse of its memory.
    pub(in crate::sr) fn recycle(&mut self, mut segments: Vec<Segment>) {
        for bytes in segments.drain(..).filter_map(|segment| segment.bytes) {
            self.memory.recycle_row(bytes);
        }
        self.segments = segments;
    }

    /// Marks a block whose recovered source packets are placed. Returns the numbers of its parity,
    /// which is not needed any more.
    pub(in crate::sr) fn on_recovered(
        &mut self,
        first: u64,
        memory: &mut BlockMemory,
    ) -> Range<u64> {
        let Some(slot) = self.open.find(first) else { return 0..0 };
        let b = &mut self.open[slot];
        let data = ones(b.block.data);
        let recovered = data & !b.usable;
        b.usable |= data;
        let parity = b.parity_numbers();
        self.counters.recovered += 1;
        self.push_report(slot, BlockReportKind::Recovered, recovered);
        self.evaluate(slot, memory);
        parity
    }

    /// Marks a block whose recovered packets were rejected from the number `refused` on. A block
    /// NACK requests their retransmission.
    pub(in crate::sr) fn on_rejected(
        &mut self,
        first: u64,
        refused: u64,
        memory: &mut BlockMemory,
    ) {
        let Some(slot) = self.open.find(first) else { return };
        self.counters.uncoded += 1;
        let b = &mut self.open[slot];
        self.memory.drop_sums(b, memory);
        let before = refused.saturating_sub(first).min(b.block.data.into());
        let placed = ((1 << before) - 1) & !b.usable;
        b.usable = (b.usable | placed) & ones(b.block.data);
        self.push_report(slot, BlockReportKind::Recovered, placed);
        self.nack(slot);
    }

    /// Records a duplicate, or a packet that arrived after its recovery.
    pub(in crate::sr) fn on_duplicate(&mut self, number: u64, block: &BlockRepr) {
        let first = number.saturating_sub(block.index.into());
        let Some(slot) = self.open.find(first) else { return };
        if self.open[slot].block == (BlockRepr { index: 0, ..*block }) {
            self.open[slot].arrived |= 1 << block.index;
        }
    }

    /// Drops the parity of a block that overlaps another: packets that it lacks have arrived.
    pub(in crate::sr) fn on_overlap(&mut self, first: u64, memory: &mut BlockMemory) {
        let Some(slot) = self.open.find(first) else { return };
        self.counters.uncoded += 1;
        let b = &mut self.open[slot];
        self.memory.drop_sums(b, memory);
        b.usable &= ones(b.block.data);
    }

    /// The earliest block deadline.
    #[inline]
    pub(in crate::sr) fn next_deadline(&self) -> Option<Time> {
        self.open.next()
    }

    /// The action for a block whose deadline has expired at `now`. Settling closes the block.
    pub(in crate::sr) fn pop_expired(
        &mut self,
        now: Time,
        memory: &mut BlockMemory,
    ) -> Option<ExpiredBlock> {
        let slot = self.open.pop_due(now)?;
        let b = &mut self.open[slot];
        if b.has_all_data() {
            let parity = b.parity_numbers();
            let missing = ones(b.block.pkts()) & !b.arrived;
            self.push_report(slot, BlockReportKind::Settled, missing);
            self.close(slot, memory);
            return Some(ExpiredBlock::Settle(parity));
        }
        b.nacks += 1;
        let wait = self.timing.reordering_allowance() * (1 << b.nacks);
        b.deadline = (b.nacks < NACKS_MAX).then_some(now + wait);
        self.open.arm(slot);
        self.nack(slot);
        Some(ExpiredBlock::Nack)
    }

    /// The block reports of the next ACK.
    pub(in crate::sr) fn reports(&mut self) -> BlockReports {
        let mut reports = BlockReports::default();
        self.reports.retain_mut(|(report, times)| {
            if reports.push(*report) {
                *times -= 1;
            }
            *times > 0
        });
        reports
    }

    /// Closes all blocks, after the last packet was received.
    pub(in crate::sr) fn clear(&mut self, memory: &mut BlockMemory) {
        while let Some(slot) = self.open.any() {
            self.close(slot, memory);
        }
        self.reports.clear();
    }

    /// Finds a block, or opens it. None if too many are open, or if the packet contradicts the
    /// block's earlier packets.
    fn find_or_open(
        &mut self,
        first: u64,
        block: &BlockRepr,
        arrived: impl FnOnce(u64) -> u64,
    ) -> Option<Slot> {
        let itself = 1 << block.index;
        let block = BlockRepr { index: 0, ..*block };
        match self.open.find(first) {
            Some(slot) => (self.open[slot].block == block).then_some(slot),
            None if self.open.len() < OPEN_MAX => {
                // Packets that arrived before the block was opened are not in the sums.
                let arrived = arrived(first) & ones(block.pkts()) & !itself;
                let usable = arrived & ones(block.data);
                let (in_sums, block_segment, deadline, nacks) = (0, None, None, 0);
                let is_tracked = arrived == 0 && code(&block).is_some();
                let sums = if is_tracked { Sums::Empty } else { Sums::Dropped };
                self.counters.uncoded += u64::from(!is_tracked);
                let opened = Block {
                    first,
                    block,
                    arrived,
                    usable,
                    in_sums,
                    sums,
                    block_segment,
                    deadline,
                    nacks,
                };
                Some(self.open.insert(opened))
            }
            None => None,
        }
    }

    /// The state of a block; closes it if all its packets have arrived.
    fn evaluate(&mut self, slot: Slot, memory: &mut BlockMemory) -> BlockState {
        let b = &mut self.open[slot];
        if b.has_all_data() {
            let parity = b.parity_numbers();
            match b.arrived == ones(b.block.pkts()) {
                true => self.close(slot, memory),
                false => self.memory.drop_sums(b, memory),
            }
            return BlockState::Complete(parity);
        }
        if b.recovery().is_some() { BlockState::Recoverable } else { BlockState::Incomplete }
    }

    /// Queues a block NACK.
    fn nack(&mut self, slot: Slot) {
        self.counters.nacks += 1;
        self.push_report(slot, BlockReportKind::Nack, self.open[slot].usable);
    }

    fn push_report(&mut self, slot: Slot, kind: BlockReportKind, bits: u64) {
        let b = &self.open[slot];
        let report = BlockReport { first: wrap(b.first), kind, data: b.block.data, bits };
        if bits == 0 && kind != BlockReportKind::Nack {
            return;
        }
        if kind == BlockReportKind::Nack {
            self.reports.retain(|(old, _)| (old.kind, old.first) != (kind, report.first));
        }
        if self.reports.len() >= REPORTS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back((report, REPORT_TIMES));
    }

    fn close(&mut self, slot: Slot, memory: &mut BlockMemory) {
        self.memory.drop_sums(&mut self.open[slot], memory);
        self.open.close(slot);
    }
}

/// The recovered segment `index` of a block.
fn segment(b: &Block, block_segment: &BlockSegment, index: u8, bytes: Option<Vec<u8>>) -> Segment {
    let (number, len) = (b.first + u64::from(index), block_segment.len_of(index, b.block.data));
    let (header, solicited) = block_segment.segment(index, len, b.block.data);
    let header = SrDataRepr { psn: wrap(number), ..header };
    Segment { number, header, solicited, bytes, len }
}

/// The most open blocks: enough for a default window of 65,536 packets whose blocks each lack two
/// late parity packets. Further blocks, of a misbehaving peer, get no running parity.
const OPEN_MAX: usize = 4096;
/// The most queued reports. A new one replaces the oldest, whose losses the sender then detects by
/// time.
const REPORTS_MAX: usize = 64;
/// ACKs that carry each report, because one may be lost.
const REPORT_TIMES: u8 = 2;
/// Block NACKs in a row without an arrival of the block.
const NACKS_MAX: u32 = 8;

#[cfg(test)]
mod tests;
