//! The open blocks, indexed by first number and by deadline. A peer decides their number and their
//! order, so both indexes cost O(log n).

use super::block::Block;
use crate::timer::Timers;
use spanwire_base::{Time, u32_from};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// An open block's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At(u32);

/// Open blocks.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Slots by first number.
    by_first: BTreeMap<u64, At>,
    /// By slot. A closed block stays until its slot is reused.
    blocks: Vec<Block>,
    /// Slots of closed blocks.
    free: Vec<At>,
    /// Deadlines. A postponed one fires at its old time, and is armed anew then.
    timers: Timers,
    /// Timers that have fired.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl Open {
    /// The open blocks, by first number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.by_first.values().map(|at| &self[*at])
    }

    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    pub(super) fn find(&self, first: u64) -> Option<At> {
        self.by_first.get(&first).copied()
    }

    /// Adds a block; none with its first number is open.
    pub(super) fn begin(&mut self, block: Block) -> At {
        let first = block.first;
        let at = match self.free.pop() {
            Some(at) => {
                self[at] = block;
                at
            }
            None => {
                self.blocks.push(block);
                At(u32_from(self.blocks.len() - 1))
            }
        };
        self.by_first.insert(first, at);
        at
    }

    /// Closes a block.
    pub(super) fn close(&mut self, at: At) {
        let first = self[at].first;
        if self.by_first.remove(&first).is_some() {
            self.timers.cancel(at.0);
            self.free.push(at);
        }
    }

    #[cfg(test)]
    pub(super) fn oldest(&self) -> &Block {
        &self[self.any().expect("one is open")]
    }
    /// Any of them.
    pub(super) fn any(&self) -> Option<At> {
        self.by_first.first_key_value().map(|(_, at)| *at)
    }

    /// Arms a block's timer at its deadline.
    #[inline]
    pub(super) fn arm(&mut self, at: At) {
        if let Some(deadline) = self[at].deadline {
            self.timers.arm(at.0, deadline);
        }
    }

    /// None is due before this.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    /// A block whose deadline has expired at `now`. The caller arms it anew or closes it.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<At> {
        while let Some(slot) = self.timers.pop_due(now) {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let at = At(slot);
            match self[at].deadline {
                Some(deadline) if deadline <= now => return Some(at),
                _ => self.arm(at),
            }
        }
        None
    }
}

impl Index<At> for Open {
    type Output = Block;

    #[inline]
    fn index(&self, at: At) -> &Block {
        &self.blocks[at.0 as usize]
    }
}

impl IndexMut<At> for Open {
    #[inline]
    fn index_mut(&mut self, at: At) -> &mut Block {
        &mut self.blocks[at.0 as usize]
    }
}
