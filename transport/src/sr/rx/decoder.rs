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
use block::{Block, Sums, Whole, code, ones};
use memory::Memory;
use open::{At, Open};
use spanwire_base::{Time, usize_from};
use spanwire_erasure::Source;
use spanwire_wire::{BlockReport, BlockReports, BlockRepr, BlockWord, SrDataRepr};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

/// Blocks of which something has come and not everything is accounted for.
#[derive(Debug)]
pub(in crate::sr) struct Decoder {
    open: Open,
    pace: ArrivalTiming,
    memory: Memory,
    /// An empty list, reused by [`Decoder::compute`].
    segments: Vec<Segment>,
    /// What is to be said, and in how many acknowledgements more.
    reports: VecDeque<(BlockReport, u8)>,
    counters: BlockCounters,
}

/// What was counted of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sr) struct BlockCounters {
    /// Blocks of which data were rebuilt.
    pub(in crate::sr) rebuilt: u64,
    /// Blocks that no parity was kept of: there was no memory, or it was of no use.
    pub(in crate::sr) plain: u64,
    /// Block NACKs.
    pub(in crate::sr) nacks: u64,
}

/// What follows from a packet of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Then {
    Nothing,
    /// Its data are all here: nobody waits for these numbers.
    Idle(Range<u64>),
    /// Its lost data can be computed.
    Recover,
}

/// What is due of a block whose time has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Overdue {
    /// Its data are here and these numbers will not come.
    Settle(Range<u64>),
    /// Its peer is to be told that it is short; that is in the reports.
    Short,
}

impl Decoder {
    pub(in crate::sr) fn new(peer: IpAddr, limit_bytes: u64) -> Self {
        Self {
            open: Open::default(),
            pace: ArrivalTiming::default(),
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
    ) -> Then {
        let Some(block) = header.block else { return Then::Nothing };
        let slower = self.pace.on_packet(now, number, header.sent_ps, block.index);
        let first = number - u64::from(block.index);
        let Some(at) = self.find_or_begin(first, &block, arrived) else {
            self.counters.plain += 1;
            return Then::Nothing;
        };
        let b = &mut self.open[at];
        let late = self.pace.last_is_here(now, slower, &block);
        // What was asked for begins to come: the rest of it is not as far away as an answer was.
        let was_asked_for = std::mem::replace(&mut b.nacks, 0) > 0;
        b.deadline = if was_asked_for { Some(late) } else { b.deadline.max(Some(late)) };
        self.open.arm(at);
        let b = &mut self.open[at];
        let whole = header.block_bytes.map(|bytes| (bytes, data.len()));
        let is_summed = !header.is_retransmission || block.is_parity();
        let keeps = (!is_summed || self.memory.add(b, &block, data, memory))
            && whole.is_none_or(|(bytes, longest)| b.take_whole(header, solicited, bytes, longest));
        if !keeps && b.keeps_parity() {
            self.counters.plain += 1;
            self.memory.drop_sums(b, memory);
            b.counts &= ones(b.block.data);
        }
        // An empty parity packet is the last word on its number, and adds nothing.
        let is_kept = !block.is_parity() || b.keeps_parity() && header.block_bytes.is_some();
        b.came |= 1 << block.index;
        b.counts |= u64::from(is_kept) << block.index;
        b.summed |= u64::from(is_summed && !block.is_parity()) << block.index;
        self.judge(at, memory)
    }

    /// The lost data of the first block that can be rebuilt, lowest first. [`Decoder::rebuilt`] or
    /// [`Decoder::give_up`] once it is known where they went.
    pub(in crate::sr) fn compute(&mut self, first: u64) -> Vec<Segment> {
        let mut segments = std::mem::take(&mut self.segments);
        let Some(at) = self.open.find(first) else { return segments };
        let b = &self.open[at];
        let (Some(whole), Some(recovery)) = (&b.whole, b.recovery()) else { return segments };
        let elided = matches!(b.sums, Sums::Elided);
        let len_of = |i: u8| whole.len_of(i, b.block.data);
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
            let bytes = match elided || !b.lacks(i) {
                true => {
                    self.memory.keep_row(bytes);
                    None
                }
                false => Some(bytes),
            };
            if b.lacks(i) {
                segments.push(segment(b, whole, i, bytes));
            }
        }
        self.memory.keep_list(out);
        segments
    }

    /// Takes the list of [`Decoder::compute`] back to reuse its memory.
    pub(in crate::sr) fn reuse(&mut self, mut segments: Vec<Segment>) {
        for bytes in segments.drain(..).filter_map(|segment| segment.bytes) {
            self.memory.keep_row(bytes);
        }
        self.segments = segments;
    }

    /// The lost data of a block are where they belong. Returns the numbers that nobody waits for
    /// any more.
    pub(in crate::sr) fn rebuilt(&mut self, first: u64, memory: &mut BlockMemory) -> Range<u64> {
        let Some(at) = self.open.find(first) else { return 0..0 };
        let b = &mut self.open[at];
        let data = ones(b.block.data);
        let rebuilt = data & !b.counts;
        b.counts |= data;
        let idle = b.parity_numbers();
        self.counters.rebuilt += 1;
        self.say(at, BlockWord::Rebuilt, rebuilt);
        self.judge(at, memory);
        idle
    }

    /// The lost data of a block could be computed, and those from the number `refused` on could not
    /// be put where they belong: whoever sent them is to send them itself.
    pub(in crate::sr) fn give_up(&mut self, first: u64, refused: u64, memory: &mut BlockMemory) {
        let Some(at) = self.open.find(first) else { return };
        self.counters.plain += 1;
        let b = &mut self.open[at];
        self.memory.drop_sums(b, memory);
        let before = refused.saturating_sub(first).min(b.block.data.into());
        let placed = ((1 << before) - 1) & !b.counts;
        b.counts = (b.counts | placed) & ones(b.block.data);
        self.say(at, BlockWord::Rebuilt, placed);
        self.short(at);
    }

    /// A packet came once more, or after it was rebuilt.
    pub(in crate::sr) fn on_again(&mut self, number: u64, block: &BlockRepr) {
        let first = number.saturating_sub(block.index.into());
        let Some(at) = self.open.find(first) else { return };
        if self.open[at].block == (BlockRepr { index: 0, ..*block }) {
            self.open[at].came |= 1 << block.index;
        }
    }

    /// A block says that data are lost which have arrived: its parity is no parity of theirs.
    pub(in crate::sr) fn contradicted(&mut self, first: u64, memory: &mut BlockMemory) {
        let Some(at) = self.open.find(first) else { return };
        self.counters.plain += 1;
        let b = &mut self.open[at];
        self.memory.drop_sums(b, memory);
        b.counts &= ones(b.block.data);
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
        let at = self.open.pop_due(now)?;
        let b = &mut self.open[at];
        if b.has_data() {
            let idle = b.parity_numbers();
            let missing = ones(b.block.pkts()) & !b.came;
            self.say(at, BlockWord::Settled, missing);
            self.close(at, memory);
            return Some(Overdue::Settle(idle));
        }
        b.nacks += 1;
        let wait = self.pace.wait() * (1 << b.nacks);
        b.deadline = (b.nacks < NACKS_MAX).then_some(now + wait);
        self.open.arm(at);
        self.short(at);
        Some(Overdue::Short)
    }

    /// What is to be said in this acknowledgement.
    pub(in crate::sr) fn reports(&mut self) -> BlockReports {
        let mut told = BlockReports::default();
        self.reports.retain_mut(|(report, times)| {
            if told.push(*report) {
                *times -= 1;
            }
            *times > 0
        });
        told
    }

    /// Forgets all blocks: nothing more is received.
    pub(in crate::sr) fn clear(&mut self, memory: &mut BlockMemory) {
        while let Some(at) = self.open.any() {
            self.close(at, memory);
        }
        self.reports.clear();
    }

    /// Where a block is, or would be if it has just begun. None if there are too many, or it
    /// contradicts what came of it before.
    fn find_or_begin(
        &mut self,
        first: u64,
        block: &BlockRepr,
        arrived: impl FnOnce(u64) -> u64,
    ) -> Option<At> {
        let itself = 1 << block.index;
        let block = BlockRepr { index: 0, ..*block };
        match self.open.find(first) {
            Some(at) => (self.open[at].block == block).then_some(at),
            None if self.open.len() < OPEN_MAX => {
                // What came of it when nobody kept account is in no sum.
                let came = arrived(first) & ones(block.pkts()) & !itself;
                let counts = came & ones(block.data);
                let (summed, whole, deadline, nacks) = (0, None, None, 0);
                let is_whole = came == 0 && code(&block).is_some();
                let sums = if is_whole { Sums::Empty } else { Sums::Plain };
                self.counters.plain += u64::from(!is_whole);
                let begun =
                    Block { first, block, came, counts, summed, sums, whole, deadline, nacks };
                Some(self.open.begin(begun))
            }
            None => None,
        }
    }

    /// What follows from what counts of a block.
    fn judge(&mut self, at: At, memory: &mut BlockMemory) -> Then {
        let b = &mut self.open[at];
        if b.has_data() {
            let idle = b.parity_numbers();
            match b.came == ones(b.block.pkts()) {
                true => self.close(at, memory),
                false => self.memory.drop_sums(b, memory),
            }
            return Then::Idle(idle);
        }
        if b.recovery().is_some() { Then::Recover } else { Then::Nothing }
    }

    /// Reports a block as short.
    fn short(&mut self, at: At) {
        self.counters.nacks += 1;
        self.say(at, BlockWord::Nack, self.open[at].counts);
    }

    fn say(&mut self, at: At, word: BlockWord, bits: u64) {
        let b = &self.open[at];
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

    fn close(&mut self, at: At, memory: &mut BlockMemory) {
        self.memory.drop_sums(&mut self.open[at], memory);
        self.open.close(at);
    }
}

/// The recovered segment `index` of a block.
fn segment(b: &Block, whole: &Whole, index: u8, bytes: Option<Vec<u8>>) -> Segment {
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
