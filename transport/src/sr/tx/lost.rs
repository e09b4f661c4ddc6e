//! Lost packets in the order in which they are sent again.

use std::collections::{BTreeSet, VecDeque};

/// Numbers of lost packets, some of which may have arrived since: whoever asks knows.
///
/// Each question costs what has changed since the last one: what could not leave then stands apart.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Oldest loss first.
    queue: VecDeque<u64>,
    /// Those that might not leave when they were looked at. If one may not, none above it may.
    waiting: BTreeSet<u64>,
}

impl Lost {
    /// Adds a number that is not here.
    pub(super) fn push(&mut self, number: u64) {
        self.queue.push_back(number);
    }

    /// The next number that `may` leave, and what it carries. `look` says what a number carries, or
    /// that it is not lost any more: then it is forgotten.
    #[inline]
    pub(super) fn next<T>(
        &mut self,
        mut look: impl FnMut(u64) -> Option<T>,
        may: impl Fn(&T) -> bool,
    ) -> Option<(u64, T)> {
        while let Some(number) = self.waiting.first().copied() {
            match look(number) {
                Some(what) if may(&what) => return Some((number, what)),
                Some(_) => break,
                None => _ = self.waiting.pop_first(),
            }
        }
        while let Some(number) = self.queue.front().copied() {
            match look(number) {
                Some(what) if may(&what) => return Some((number, what)),
                Some(_) => _ = self.waiting.insert(number),
                None => {}
            }
            self.queue.pop_front();
        }
        None
    }

    /// Nothing is here; exact after [`Lost::next`] found nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.waiting.is_empty()
    }

    /// Takes the oldest loss out of those that were not found waiting.
    pub(super) fn pop_queue(&mut self) -> Option<u64> {
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn next__what_waits_is_not_looked_at_again_before_the_oldest_may_leave() {
        let mut lost = Lost::default();
        (0..1000).for_each(|n| lost.push(n));
        let looked = Cell::new(0);
        let look = |n| {
            looked.set(looked.get() + 1);
            Some(n)
        };
        // Even numbers wait for a limit, odd ones for nothing.
        let may = |limit| move |n: &u64| !n.is_multiple_of(2) || *n < limit;
        assert_eq!(lost.next(look, may(0)), Some((1, 1)));
        for odd in (1..1000).step_by(2) {
            let left = |n| look(n).filter(|n| n.is_multiple_of(2) || *n >= odd);
            assert_eq!(lost.next(left, may(0)), Some((odd, odd)));
        }
        let none_odd = |n| look(n).filter(|n: &u64| n.is_multiple_of(2));
        assert_eq!(lost.next(none_odd, may(0)), None);
        assert!(!lost.is_empty());
        assert!(looked.get() < 4000, "{} looks", looked.replace(0));
        looked.set(0);
        assert_eq!(lost.next(none_odd, may(0)), None);
        assert_eq!(looked.get(), 1);
        assert_eq!(lost.next(none_odd, may(4)), Some((0, 0)));
        assert_eq!(lost.next(|n| look(n).filter(|n| *n > 0), may(4)), Some((2, 2)));
        assert_eq!(lost.next(|_| None::<u64>, may(4)), None);
        assert!(lost.is_empty());
    }

    #[test]
    fn pop_queue__leaves_what_waits() {
        let mut lost = Lost::default();
        (0..3).for_each(|n| lost.push(n));
        assert_eq!(lost.next(Some, |n| *n == 1), Some((1, 1)));
        let popped: Vec<u64> = std::iter::from_fn(|| lost.pop_queue()).collect();
        assert_eq!(popped, [1, 2]);
        assert_eq!(lost.next(Some, |_| true), Some((0, 0)));
    }
}
