//! The queue of lost packets, in the order of retransmission.

use std::collections::{BTreeSet, VecDeque};

/// The numbers of lost packets. Some may have arrived since; the caller's `lookup` finds out.
///
/// A call of [`Lost::next`] costs only what has changed since the last one, because packets that
/// could not be sent then are kept in a set of their own.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Oldest loss first.
    queue: VecDeque<u64>,
    /// Packets that could not be sent at the last lookup. If one of them still cannot, none above
    /// it can.
    limited: BTreeSet<u64>,
}

impl Lost {
    /// Adds a number that is not in the queue.
    pub(super) fn push(&mut self, number: u64) {
        self.queue.push_back(number);
    }

    /// The next number that `may_send` allows, and its contents. `lookup` returns a number's
    /// contents, or none if it is no longer lost; such numbers are dropped.
    #[inline]
    pub(super) fn next<T>(
        &mut self,
        mut lookup: impl FnMut(u64) -> Option<T>,
        may_send: impl Fn(&T) -> bool,
    ) -> Option<(u64, T)> {
        while let Some(number) = self.limited.first().copied() {
            match lookup(number) {
                Some(contents) if may_send(&contents) => return Some((number, contents)),
                Some(_) => break,
                None => _ = self.limited.pop_first(),
            }
        }
        while let Some(number) = self.queue.front().copied() {
            match lookup(number) {
                Some(contents) if may_send(&contents) => return Some((number, contents)),
                Some(_) => _ = self.limited.insert(number),
                None => {}
            }
            self.queue.pop_front();
        }
        None
    }

    /// No packet is lost; exact after [`Lost::next`] returned none.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.limited.is_empty()
    }

    /// Removes the oldest loss among those that are not limited.
    pub(super) fn pop_queue(&mut self) -> Option<u64> {
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn next__costs_one_lookup_while_the_oldest_is_limited() {
        let mut lost = Lost::default();
        (0..1000).for_each(|n| lost.push(n));
        let lookups = Cell::new(0);
        let lookup = |n| {
            lookups.set(lookups.get() + 1);
            Some(n)
        };
        // Even numbers have a limit, odd ones are not.
        let may_send = |limit| move |n: &u64| !n.is_multiple_of(2) || *n < limit;
        assert_eq!(lost.next(lookup, may_send(0)), Some((1, 1)));
        for odd in (1..1000).step_by(2) {
            let left = |n| lookup(n).filter(|n| n.is_multiple_of(2) || *n >= odd);
            assert_eq!(lost.next(left, may_send(0)), Some((odd, odd)));
        }
        let none_odd = |n| lookup(n).filter(|n: &u64| n.is_multiple_of(2));
        assert_eq!(lost.next(none_odd, may_send(0)), None);
        assert!(!lost.is_empty());
        assert!(lookups.get() < 4000, "{} looks", lookups.replace(0));
        lookups.set(0);
        assert_eq!(lost.next(none_odd, may_send(0)), None);
        assert_eq!(lookups.get(), 1);
        assert_eq!(lost.next(none_odd, may_send(4)), Some((0, 0)));
        assert_eq!(lost.next(|n| lookup(n).filter(|n| *n > 0), may_send(4)), Some((2, 2)));
        assert_eq!(lost.next(|_| None::<u64>, may_send(4)), None);
        assert!(lost.is_empty());
    }

    #[test]
    fn pop_queue__leaves_limited_packets() {
        let mut lost = Lost::default();
        (0..3).for_each(|n| lost.push(n));
        assert_eq!(lost.next(Some, |n| *n == 1), Some((1, 1)));
        let popped: Vec<u64> = std::iter::from_fn(|| lost.pop_queue()).collect();
        assert_eq!(popped, [1, 2]);
        assert_eq!(lost.next(Some, |_| true), Some((0, 0)));
    }
}
