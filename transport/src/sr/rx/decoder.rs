//! The receiver's side of erasure coding: what has come of each block, its running parity, and what
//! is to be said of it (docs/protocol/sr.md, "Blocks", 4 to 7).

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
use spanwire_wire::{BlockReport, BlockReports, BlockRepr, BlockWord, SrDataRepr};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

/// Blocks of which something has come and not everything is accounted for.
#[derive(Debug)]
pub(in crate::sr) struct Decoder {
    open: OpenBlocks,
    timing: ArrivalTiming,
    memory: Memory,
    /// An empty list, reused by [`Decoder::recover`].
    segments: Vec<Segment>,
    /// What is to be said, and in how many acknowledgements more.
    reports: VecDeque<(BlockReport, u8)>,
    counters: BlockCounters,
}

/// What was counted of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sr) struct BlockCounters {
    /// Blocks of which data were rebuilt.
    pub(in crate::sr) recovered: u64,
    /// Blocks that no parity was kept of: there was no memory, or it was of no use.
    pub(in crate::sr) uncoded: u64,
    /// Block NACKs.
    pub(in crate::sr) nacks: u64,
}

/// What follows from a packet of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sr) enum BlockState {
    Incomplete,
    /// Its data are all here: nobody waits for these numbers.
    Complete(Range<u64>),
    /// Its lost data can be computed.
    Recoverable,
}

/// What is due of a block whose time has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Overdue {
    /// Its data are here and these numbers will not come.
    Settle(Range<u64>),
    /// Its peer is to be told that it is short; that is in the reports.
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

    /// What was counted since the last time.
    pub(in crate::sr) fn take_counters(&mut self) -> BlockCounters {
        std::mem::take(&mut self.counters)
    }

    /// A packet of a block came at `now`, for the first time: a data packet that was put where it
    /// belongs, or parity. `arrived` says what has arrived of a block that begins with a number.
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
        // What was asked for begins to come: the rest of it is not as far away as an answer was.
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
        // An empty parity packet is the last word on its number, and adds nothing.
        let is_kept = !block.is_parity() || b.keeps_parity() && header.block_bytes.is_some();
        b.arrived |= 1 << block.index;
        b.usable |= u64::from(is_kept) << block.index;
        b.in_sums |= u64::from(is_in_sums && !block.is_parity()) << block.index;
        self.evaluate(slot, memory)
    }

    /// Recovers the lost source packets of a block, in ascending order. Follow with
    /// [`Decoder::on_recovered`] if all were placed, else with [`Decoder::on_rejected`].
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
            // The sums have everything in them that has come: what remains is of the lost alone.
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

    /// Takes the list of [`Decoder::recover`] back to reuse its memory.
    pub(in crate::sr) fn recycle(&mut self, mut segments: Vec<Segment>) {
        for bytes in segments.drain(..).filter_map(|segment| segment.bytes) {
            self.memory.recycle_row(bytes);
        }
        self.segments = segments;
    }

    /// The lost data of a block are where they belong. Returns the numbers that nobody waits for
    /// any more.
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
        self.push_report(slot, BlockWord::Rebuilt, recovered);
        self.evaluate(slot, memory);
        parity
    }

    /// The lost data of a block could be computed, and those from the number `refused` on could not
    /// be put where they belong: whoever sent them is to send them itself.
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
        self.push_report(slot, BlockWord::Rebuilt, placed);
        self.nack(slot);
    }

    /// A packet came once more, or after it was rebuilt.
    pub(in crate::sr) fn on_duplicate(&mut self, number: u64, block: &BlockRepr) {
        let first = number.saturating_sub(block.index.into());
        let Some(slot) = self.open.find(first) else { return };
        if self.open[slot].block == (BlockRepr { index: 0, ..*block }) {
            self.open[slot].arrived |= 1 << block.index;
        }
    }

    /// A block says that data are lost which have arrived: its parity is no parity of theirs.
    pub(in crate::sr) fn on_overlap(&mut self, first: u64, memory: &mut BlockMemory) {
        let Some(slot) = self.open.find(first) else { return };
        self.counters.uncoded += 1;
        let b = &mut self.open[slot];
        self.memory.drop_sums(b, memory);
        b.usable &= ones(b.block.data);
    }

    /// When [`Decoder::overdue`] has something to do.
    #[inline]
    pub(in crate::sr) fn next_deadline(&self) -> Option<Time> {
        self.open.next()
    }

    /// A block whose time has come at `now`. Settling ends it.
    pub(in crate::sr) fn overdue(
        &mut self,
        now: Time,
        memory: &mut BlockMemory,
    ) -> Option<Overdue> {
        let slot = self.open.pop_due(now)?;
        let b = &mut self.open[slot];
        if b.has_all_data() {
            let parity = b.parity_numbers();
            let missing = ones(b.block.pkts()) & !b.arrived;
            self.push_report(slot, BlockWord::Settled, missing);
            self.close(slot, memory);
            return Some(Overdue::Settle(parity));
        }
        b.nacks += 1;
        let wait = self.timing.reordering_allowance() * (1 << b.nacks);
        b.deadline = (b.nacks < NACKS_MAX).then_some(now + wait);
        self.open.arm(slot);
        self.nack(slot);
        Some(Overdue::Nack)
    }

    /// What is to be said in this acknowledgement.
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

    /// Forgets all blocks: nothing more is received.
    pub(in crate::sr) fn clear(&mut self, memory: &mut BlockMemory) {
        while let Some(slot) = self.open.any() {
            self.close(slot, memory);
        }
        self.reports.clear();
    }

    /// Where a block is, or would be if it has just begun. None if there are too many, or it
    /// contradicts what came of it before.
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
                // What came of it when nobody kept account is in no sum.
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

    /// What follows from what counts of a block.
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

    /// Reports a block as short.
    fn nack(&mut self, slot: Slot) {
        self.counters.nacks += 1;
        self.push_report(slot, BlockWord::Nack, self.open[slot].usable);
    }

    fn push_report(&mut self, slot: Slot, word: BlockWord, bits: u64) {
        let b = &self.open[slot];
        let report = BlockReport { first: wrap(b.first), word, data: b.block.data, bits };
        if bits == 0 && word != BlockWord::Nack {
            return;
        }
        if word == BlockWord::Nack {
            self.reports.retain(|(old, _)| (old.word, old.first) != (word, report.first));
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
fn segment(b: &Block, whole: &BlockSegment, index: u8, bytes: Option<Vec<u8>>) -> Segment {
    let (number, len) = (b.first + u64::from(index), whole.len_of(index, b.block.data));
    let (header, solicited) = whole.segment(index, len, b.block.data);
    let header = SrDataRepr { psn: wrap(number), ..header };
    Segment { number, header, solicited, bytes, len }
}

/// Blocks that may be open: two parity packets each of the default window of 65,536 packets are
/// late. More are the peer's fault, and plain.
const OPEN_MAX: usize = 4096;
/// Reports that wait; an older one makes room, and what it said is found out by time.
const REPORTS_MAX: usize = 64;
/// An acknowledgement may be lost.
const REPORT_TIMES: u8 = 2;
/// Block NACKs without anything of the block coming.
const NACKS_MAX: u32 = 8;

#[cfg(test)]
mod tests;
