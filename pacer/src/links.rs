//! Doubly linked lists of small numbers in arrays; each number is in one list at most.

/// Doubly linked lists over the numbers 0, 1, 2 ...: inserting, removing and testing take O(1).
#[derive(Debug, Default)]
pub(crate) struct Links {
    next: Vec<u32>,
    prev: Vec<u32>,
}

/// The ends of one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    head: u32,
    tail: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl Ends {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(crate) fn head(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

impl Links {
    /// Grows to hold `slot`.
    #[inline]
    pub(crate) fn fit(&mut self, slot: u32) {
        let len = slot as usize + 1;
        if len > self.next.len() {
            self.grow(len);
        }
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.next.resize(len, NONE);
        self.prev.resize(len, NONE);
    }

    /// Appends `slot`, which is in no list.
    #[inline]
    pub(crate) fn push_back(&mut self, ends: &mut Ends, slot: u32) {
        self.fit(slot);
        self.next[slot as usize] = NONE;
        self.prev[slot as usize] = ends.tail;
        match ends.tail {
            NONE => ends.head = slot,
            tail => self.next[tail as usize] = slot,
        }
        ends.tail = slot;
    }

    /// Removes `slot` from its list.
    #[inline]
    pub(crate) fn remove(&mut self, ends: &mut Ends, slot: u32) {
        let (next, prev) = (self.next[slot as usize], self.prev[slot as usize]);
        match prev {
            NONE => ends.head = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => ends.tail = prev,
            next => self.prev[next as usize] = prev,
        }
    }

    /// Removes the first one.
    pub(crate) fn pop_front(&mut self, ends: &mut Ends) -> Option<u32> {
        let head = ends.head()?;
        self.remove(ends, head);
        Some(head)
    }
}

/// No slot; tables have fewer.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn links__agree_with_deques(
            steps in proptest::collection::vec((0..3_u8, 0..2_usize, 0..8_u32), 1..200),
        ) {
            let mut links = Links::default();
            let mut ends = [Ends::default(); 2];
            let mut oracle = [VecDeque::new(), VecDeque::new()];
            for (what, list, slot) in steps {
                let place = oracle.iter().position(|l| l.contains(&slot));
                match (what, place) {
                    (0, None) => {
                        links.push_back(&mut ends[list], slot);
                        oracle[list].push_back(slot);
                    }
                    (1, Some(list)) => {
                        links.remove(&mut ends[list], slot);
                        oracle[list].retain(|s| *s != slot);
                    }
                    (2, _) => {
                        prop_assert_eq!(links.pop_front(&mut ends[list]), oracle[list].pop_front());
                    }
                    _ => {}
                }
                for (ends, oracle) in ends.iter().zip(&oracle) {
                    prop_assert_eq!(ends.head(), oracle.front().copied());
                    prop_assert_eq!(ends.is_empty(), oracle.is_empty());
                }
            }
        }
    }
}
