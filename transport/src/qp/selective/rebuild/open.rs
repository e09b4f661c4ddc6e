//! The open blocks: by their first number, and by the time at which something is due of them. A
//! peer decides how many there are and in which order they begin and come due, so neither costs
//! more than the logarithm of their number.

use super::block::Block;
use crate::timer::Timers;
use spanwire_base::{Time, u32_from};
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// Where an open block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At(u32);

/// Open blocks.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Where the block is that begins with a number.
    by_first: BTreeMap<u64, At>,
    /// The blocks, and what is left of those that were closed.
    blocks: Vec<Block>,
    /// Those that were closed.
    free: Vec<At>,
    /// When they are due, or before: a time that is put off is found out when it has come.
    timers: Timers,
    /// Blocks looked at because their time may have come.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl Open {
    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    pub(super) fn find(&self, first: u64) -> Option<At> {
        self.by_first.get(&first).copied()
    }

    /// Begins a block of which there is none with this first number.
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

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.by_first.values().map(|at| &self[*at])
    }

    /// Any of them.
    pub(super) fn any(&self) -> Option<At> {
        self.by_first.first_key_value().map(|(_, at)| *at)
    }

    /// Sees to it that a block comes due at its deadline.
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

    /// A block whose deadline has come by `now`. It is armed anew, or closed, when it is known what
    /// follows from that.
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
