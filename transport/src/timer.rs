//! One timer for each queue pair.

use spanwire_base::Time;

/// Timers by slot: a binary heap with the position of each slot.
///
/// Arming to a *later* time costs nothing. The entry stays and fires early, and the queue pair,
/// which has the true deadline, arms it again. That is the common case: every ACK postpones the
/// retransmission timeout. Arming to an earlier time and firing are O(log n); the earliest time is
/// O(1). Each slot has at most one entry, so memory is bounded by the number of slots.
///
/// A slot whose deadline may have changed is touched, and armed once before the timers are used: a
/// burst of packets computes one deadline.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// A min-heap by (time, slot): equal times fire in slot order, so that runs are repeatable.
    heap: Vec<(Time, u32)>,
    /// Position of each slot in `heap`, or `IDLE`.
    position: Vec<u32>,
    /// Slots whose deadline may have changed since they were armed, each once.
    touched: Vec<u32>,
    is_touched: Vec<bool>,
}

impl Timers {
    /// Arms the timer of `slot` to fire at `at` or earlier.
    pub(crate) fn arm(&mut self, slot: u32, at: Time) {
        if at == Time::MAX {
            // `Time::MAX`, where arithmetic saturates, is never reached: a timer armed there would
            // be due again as soon as it fired.
            return;
        }
        let s = slot as usize;
        if s >= self.position.len() {
            self.position.resize(s + 1, IDLE);
        }
        let p = self.position[s];
        if p == IDLE {
            self.heap.push((at, slot));
            self.sift_up(self.heap.len() - 1);
        } else if at < self.heap[p as usize].0 {
            self.heap[p as usize].0 = at;
            self.sift_up(p as usize);
        }
    }

    /// The deadline of `slot` may have changed.
    #[inline]
    pub(crate) fn touch(&mut self, slot: u32) {
        let s = slot as usize;
        if s >= self.is_touched.len() {
            self.is_touched.resize(s + 1, false);
        }
        if !std::mem::replace(&mut self.is_touched[s], true) {
            self.touched.push(slot);
        }
    }

    /// Arms every touched slot to its `deadline`.
    #[inline]
    pub(crate) fn settle(&mut self, deadline: impl Fn(u32) -> Option<Time>) {
        while let Some(slot) = self.touched.pop() {
            self.is_touched[slot as usize] = false;
            if let Some(at) = deadline(slot) {
                self.arm(slot, at);
            }
        }
    }

    /// The touched slots.
    pub(crate) fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// Removes and returns the next slot that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let (at, slot) = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove(0);
        Some(slot)
    }

    /// True if `slot` fires at `at` or earlier, or is touched.
    pub(crate) fn is_armed(&self, slot: u32, at: Time) -> bool {
        let place = self.position.get(slot as usize).filter(|p| **p != IDLE);
        place.is_some_and(|p| self.heap[*p as usize].0 <= at) || self.touched.contains(&slot)
    }

    /// Stops the timer of `slot`.
    pub(crate) fn cancel(&mut self, slot: u32) {
        if let Some(p) = self.position.get(slot as usize).filter(|p| **p != IDLE) {
            self.remove(*p as usize);
        }
    }

    /// The earliest time at which a slot fires.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.first().map(|(at, _)| *at)
    }

    fn remove(&mut self, i: usize) {
        let (_, slot) = self.heap.swap_remove(i);
        self.position[slot as usize] = IDLE;
        if i < self.heap.len() {
            let up = self.sift_up(i);
            self.sift_down(up);
        }
    }

    fn sift_up(&mut self, mut i: usize) -> usize {
        while i > 0 && self.heap[i] < self.heap[(i - 1) / 2] {
            self.heap.swap(i, (i - 1) / 2);
            self.place(i);
            i = (i - 1) / 2;
        }
        self.place(i);
        i
    }

    fn sift_down(&mut self, mut i: usize) {
        loop {
            let children = 2 * i + 1..(2 * i + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|c| self.heap[*c]) else {
                break;
            };
            if self.heap[i] <= self.heap[least] {
                break;
            }
            self.heap.swap(i, least);
            self.place(i);
            i = least;
        }
        self.place(i);
    }

    fn place(&mut self, i: usize) {
        self.position[self.heap[i].1 as usize] = spanwire_base::u32_from(i);
    }
}

/// The earlier of two optional times.
#[inline]
pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

const IDLE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::{Dur, Rng};
    use std::collections::BTreeMap;

    fn t(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn earlier__ignores_none() {
        assert_eq!(earlier(Some(t(2)), Some(t(1))), Some(t(1)));
        assert_eq!([earlier(None, Some(t(1))), earlier(Some(t(1)), None)], [Some(t(1)); 2]);
        assert_eq!(earlier(None, None), None);
    }

    #[test]
    fn arm__later_keeps_the_earlier_entry() {
        let mut timers = Timers::default();
        timers.arm(3, t(10));
        timers.arm(3, t(20));
        assert_eq!(timers.next(), Some(t(10)));
        timers.arm(3, t(5));
        assert_eq!(timers.next(), Some(t(5)));
        assert_eq!(timers.pop_due(t(4)), None);
        assert_eq!(timers.pop_due(t(5)), Some(3));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn arm__time_max_never_fires() {
        let mut timers = Timers::default();
        timers.arm(1, Time::MAX);
        assert_eq!(timers.pop_due(Time::MAX), None);
    }

    #[test]
    fn pop_due__equal_times_fire_in_slot_order() {
        let mut timers = Timers::default();
        for slot in [4, 1, 3, 2] {
            timers.arm(slot, t(7));
        }
        let order: Vec<u32> = std::iter::from_fn(|| timers.pop_due(t(7))).collect();
        assert_eq!(order, [1, 2, 3, 4]);
    }

    #[test]
    fn timers__agree_with_a_sorted_map() {
        let mut rng = Rng::new(11);
        let (mut timers, mut oracle) = (Timers::default(), BTreeMap::<u32, Time>::new());
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            let slot = u32::try_from(rng.below(50)).unwrap();
            match rng.below(4) {
                0 | 1 => {
                    let at = now + Dur::from_ns(rng.below(1_000));
                    timers.arm(slot, at);
                    let held = oracle.entry(slot).or_insert(at);
                    *held = at.min(*held);
                }
                2 => {
                    timers.cancel(slot);
                    oracle.remove(&slot);
                }
                _ => {
                    now += Dur::from_ns(rng.below(200));
                    while let Some(fired) = timers.pop_due(now) {
                        let least = oracle.iter().map(|(s, at)| (*at, *s)).min().unwrap();
                        assert_eq!(least.1, fired);
                        oracle.remove(&fired);
                    }
                    assert!(oracle.values().all(|at| *at > now));
                }
            }
            assert_eq!(timers.next(), oracle.values().min().copied());
        }
    }
}
