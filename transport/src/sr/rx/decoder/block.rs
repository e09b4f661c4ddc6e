//! One FEC block: its received packets, and the recovery of those that were lost.

use crate::payload::Payload;
use spanwire_base::Time;
use spanwire_erasure::{Code, Columns, Recovery, Scheme};
use spanwire_wire::{BlockRepr, RethRepr, SrDataRepr};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Block {
    pub(super) first: u64,
    /// The block header of its first packet.
    pub(super) block: BlockRepr,
    /// Bit i: packet i has arrived, or was recovered before this record was opened.
    pub(super) arrived: u64,
    /// Bit i: packet i is usable. Unlike `arrived`, without parity that was dropped, and with
    /// recovered source packets.
    pub(super) usable: u64,
    /// Source packets whose first transmission is in the sums. Retransmissions are excluded: their
    /// payload may be another version of memory than the one that parity was computed over.
    pub(super) in_sums: u64,
    pub(super) sums: Sums,
    /// The whole block as parity packets describe it.
    pub(super) block_segment: Option<BlockSegment>,
    /// The block deadline.
    pub(super) deadline: Option<Time>,
    /// Block NACKs since its last arrival.
    pub(super) nacks: u32,
}

/// The running parity of a block.
#[derive(Debug)]
pub(super) enum Sums {
    /// No payload has arrived.
    Empty,
    Rows(Vec<Vec<u8>>),
    /// Payload is elided from the frames.
    Elided,
    /// The running parity was dropped.
    Dropped,
}

/// A block as parity packets describe it: one long segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSegment {
    pub(super) header: SrDataRepr,
    pub(super) solicited: bool,
    pub(super) bytes: u32,
    pub(super) longest: u32,
}

/// A recovered segment.
#[derive(Debug)]
pub(in crate::sr) struct Segment {
    pub(in crate::sr) number: u64,
    pub(in crate::sr) header: SrDataRepr,
    pub(in crate::sr) solicited: bool,
    pub(in crate::sr) bytes: Option<Vec<u8>>,
    pub(in crate::sr) len: u32,
}

impl Block {
    pub(super) fn has_all_data(&self) -> bool {
        let data = ones(self.block.data);
        self.usable & data == data
    }

    /// The source packet `index` is missing.
    pub(super) fn is_missing(&self, index: u8) -> bool {
        self.usable >> index & 1 == 0
    }

    pub(super) fn keeps_parity(&self) -> bool {
        !matches!(self.sums, Sums::Dropped)
    }

    pub(super) fn parity_numbers(&self) -> Range<u64> {
        let data = self.first + u64::from(self.block.data);
        data..data + u64::from(self.block.parity)
    }

    /// The recovery of the source packets that are not in the sums, if it is possible. Some of them
    /// may have arrived as retransmissions.
    pub(super) fn recovery(&self) -> Option<Recovery> {
        let rows = self.usable >> self.block.data;
        if rows == 0 || self.block_segment.is_none() || !self.keeps_parity() {
            return None;
        }
        let there = Columns::from_bits(self.in_sums);
        let rows = u32::try_from(rows).ok()?;
        code(&self.block)?.recovery(self.block.data.into(), there, rows).ok()
    }

    /// Sets the description of the block from a parity packet; false if it is inconsistent.
    pub(super) fn set_block_segment(
        &mut self,
        header: &SrDataRepr,
        solicited: bool,
        bytes: u32,
        longest: u32,
    ) -> bool {
        let data = u64::from(self.block.data);
        let (len, most) = (u64::from(bytes), data * u64::from(longest));
        let is_possible = len <= most && len > most - u64::from(longest);
        let addressed = header.reth.is_none_or(|reth| reth.dma_len == bytes);
        let ends = header.offset.checked_add(bytes).is_some();
        if is_possible && addressed && ends {
            let header = SrDataRepr { block: None, block_bytes: None, ..*header };
            self.block_segment = Some(BlockSegment { header, solicited, bytes, longest });
        }
        is_possible && addressed && ends
    }
}

impl BlockSegment {
    pub(super) fn len_of(&self, index: u8, data: u8) -> u32 {
        match index + 1 == data {
            true => self.bytes - u32::from(index) * self.longest,
            false => self.longest,
        }
    }

    /// The header of one of its segments, and whether the segment is solicited.
    pub(super) fn segment(&self, index: u8, len: u32, data: u8) -> (SrDataRepr, bool) {
        let (is_first, is_last) = (index == 0, index + 1 == data);
        let before = u32::from(index) * self.longest;
        let ends = self.header.last && is_last;
        let uses_receive = self.header.reth.is_none() || ends;
        let header = SrDataRepr {
            first: self.header.first && is_first,
            last: ends,
            offset: self.header.offset + before,
            reth: self.header.reth.map(|reth| RethRepr {
                va: reth.va.wrapping_add(before.into()),
                dma_len: len,
                ..reth
            }),
            imm: self.header.imm.filter(|_| ends),
            ieth: self.header.ieth.filter(|_| ends),
            receive: self.header.receive.filter(|_| uses_receive),
            ..self.header
        };
        (header, self.solicited && ends)
    }
}

impl Segment {
    pub(in crate::sr) fn payload(&self) -> Payload<'_> {
        match &self.bytes {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Elided(self.len),
        }
    }
}

/// The code of a block; none if its scheme is unknown.
pub(super) fn code(block: &BlockRepr) -> Option<Code> {
    let scheme = Scheme::from_id(block.scheme)?;
    Code::new(scheme, block.data.into(), block.parity.into()).ok()
}

pub(super) fn ones(count: u8) -> u64 {
    u64::MAX >> (64 - u32::from(count).clamp(1, 64))
}
