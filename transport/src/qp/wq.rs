//! A bounded work queue whose scatter-gather elements live in one allocation.

use crate::verbs::Sge;
use std::collections::VecDeque;

/// Work requests in posting order with their SGEs. Nothing is allocated after `new`.
#[derive(Debug)]
pub(crate) struct WorkQueue<T> {
    entries: VecDeque<Queued<T>>,
    /// `max_sge` elements for each of `capacity` slots.
    sges: Box<[Sge]>,
    max_sge: usize,
    capacity: usize,
    next_slot: usize,
}

#[derive(Debug)]
struct Queued<T> {
    entry: T,
    slot: usize,
    sge_count: usize,
}

impl<T> WorkQueue<T> {
    pub(crate) fn new(capacity: u32, max_sge: u32) -> Self {
        let (capacity, max_sge) = (capacity as usize, max_sge as usize);
        Self {
            entries: VecDeque::with_capacity(capacity),
            sges: vec![Sge::default(); capacity * max_sge].into_boxed_slice(),
            max_sge,
            capacity,
            next_slot: 0,
        }
    }

    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends a request.
    ///
    /// # Panics
    /// If the queue is full or the list too long: the caller checks both.
    pub(crate) fn push(&mut self, entry: T, sges: &[Sge]) {
        assert!(!self.is_full(), "posting checks for room first");
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % self.capacity;
        self.sges[slot * self.max_sge..][..sges.len()].copy_from_slice(sges);
        self.entries.push_back(Queued { entry, slot, sge_count: sges.len() });
    }

    /// The `i`-th oldest request.
    pub(crate) fn at(&self, i: usize) -> Option<&T> {
        self.entries.get(i).map(|q| &q.entry)
    }

    /// Its SGEs; none when there is no such request.
    pub(crate) fn sges(&self, i: usize) -> &[Sge] {
        match self.entries.get(i) {
            Some(q) => &self.sges[q.slot * self.max_sge..][..q.sge_count],
            None => &[],
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.entries.pop_front().map(|q| q.entry)
    }

    /// Index of the first request for which `before` is false; `before` must be true for a prefix.
    pub(crate) fn partition_point(&self, mut before: impl FnMut(&T) -> bool) -> usize {
        self.entries.partition_point(|q| before(&q.entry))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push__keeps_each_requests_own_elements_around_the_ring() {
        let sge = |addr| Sge { addr, len: 1, lkey: 1 };
        let mut q = WorkQueue::new(3, 2);
        for round in 0..10u64 {
            q.push(round * 2, &[sge(round), sge(round + 100)]);
            q.push(round * 2 + 1, &[sge(round + 200)]);
            assert_eq!(q.sges(0), [sge(round), sge(round + 100)]);
            assert_eq!(q.sges(1), [sge(round + 200)]);
            assert_eq!(q.pop_front(), Some(round * 2));
            assert_eq!(q.sges(0), [sge(round + 200)]);
            assert_eq!(q.pop_front(), Some(round * 2 + 1));
        }
        assert!(q.sges(0).is_empty());
    }

    #[test]
    fn is_full__at_capacity() {
        let mut q = WorkQueue::new(1, 1);
        assert!(!q.is_full());
        q.push((), &[]);
        assert!(q.is_full());
    }
}
