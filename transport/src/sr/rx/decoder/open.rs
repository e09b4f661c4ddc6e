//! The open blocks, indexed by first number and by deadline. Both indexes cost O(log n), because
//! the peer determines the number and the order of blocks.

use super::block::Block;
use crate::timer::Timers;
use spanwire_base::{Time, u32_from};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// The slot of an open block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(u32);

/// The open blocks of a decoder.
#[derive(Debug, Default)]
pub(super) struct OpenBlocks {
    /// Slots by first number.
    by_first: BTreeMap<u64, Slot>,
    /// Blocks by slot. A closed block stays until its slot is reused.
    blocks: Vec<Block>,
    /// Slots of closed blocks.
    free: Vec<Slot>,
    /// Deadline timers. The timer of a postponed deadline fires at the old time and is rearmed.
    timers: Timers,
    /// Timers fired, in tests.
    #[cfg(test)]
    pub(super) expirations: u64,
}

impl OpenBlocks {
    /// The open blocks, by first number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.by_first.values().map(|slot| &self[*slot])
    }

    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    pub(super) fn find(&self, first: u64) -> Option<Slot> {
        self.by_first.get(&first).copied()
    }

    /// Adds a block. No block with the same first number may be open.
    pub(super) fn insert(&mut self, block: Block) -> Slot {
        let first = block.first;
        let slot = match self.free.pop() {
            Some(slot) => {
                self[slot] = block;
                slot
            }
            None => {
                self.blocks.push(block);
                Slot(u32_from(self.blocks.len() - 1))
            }
        };
        self.by_first.insert(first, slot);
        slot
    }

    /// Closes a block.
    pub(super) fn close(&mut self, slot: Slot) {
        let first = self[slot].first;
        if self.by_first.remove(&first).is_some() {
            self.timers.cancel(slot.0);
            self.free.push(slot);
        }
    }

    #[cfg(test)]
    pub(super) fn oldest(&self) -> &Block {
        &self[self.any().expect("a block is open")]
    }

    /// Any of them.
    pub(super) fn any(&self) -> Option<Slot> {
        self.by_first.first_key_value().map(|(_, slot)| *slot)
    }

    /// Arms a block's timer at its deadline.
    #[inline]
    pub(super) fn arm(&mut self, slot: Slot) {
        if let Some(deadline) = self[slot].deadline {
            self.timers.arm(slot.0, deadline);
        }
    }

    /// A lower bound of all deadlines.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    /// A block whose deadline has expired at `now`. The caller rearms or closes it.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Slot> {
        while let Some(key) = self.timers.pop_due(now) {
            #[cfg(test)]
            {
                self.expirations += 1;
            }
            let slot = Slot(key);
            match self[slot].deadline {
                Some(deadline) if deadline <= now => return Some(slot),
                _ => self.arm(slot),
            }
        }
        None
    }
}

impl Index<Slot> for OpenBlocks {
    type Output = Block;

    #[inline]
    fn index(&self, slot: Slot) -> &Block {
        &self.blocks[slot.0 as usize]
    }
}

impl IndexMut<Slot> for OpenBlocks {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Block {
        &mut self.blocks[slot.0 as usize]
    }
}
