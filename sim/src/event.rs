//! The event queue: a heap of events in the order in which they occur.

use spanwire_base::Time;

/// Position of an event in the total order: by time, then by ticket, which counts draws. No two
/// events compare equal, so a run has exactly one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    at: Time,
    /// The ticket in the high bits, the event's name in the low [`NAME_BITS`].
    low: u64,
}

/// The pending events, earliest first: a heap with four children a node.
///
/// Four children of 16 bytes fill one cache line, and the heap has half the levels of a binary
/// heap. Only the earliest event is ever removed: an obsolete event is ignored when it is popped.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: Vec<Key>,
    tickets: u64,
}

impl Key {
    /// When it occurs.
    #[must_use]
    pub const fn at(self) -> Time {
        self.at
    }

    /// The event's name, as passed to [`EventQueue::key`].
    #[must_use]
    pub const fn name(self) -> u64 {
        self.low & (NAME_END - 1)
    }

    /// The order of events as one number, compared without a branch.
    fn rank(self) -> u128 {
        (u128::from(self.at.as_ps()) << 64) | u128::from(self.low)
    }
}

impl EventQueue {
    /// Exclusive upper bound of event names.
    pub const NAMES: u64 = NAME_END;

    /// Draws the next ticket for an event `name` at `at`. The event occurs only if the key is
    /// pushed.
    ///
    /// # Panics
    /// If `name` is not below [`EventQueue::NAMES`]. After 2^40 tickets, weeks of machine time,
    /// because the order would no longer be unique.
    pub fn key(&mut self, at: Time, name: u64) -> Key {
        assert!(name < NAME_END, "event names are below NAMES");
        assert!(self.tickets < TICKETS_END, "a run draws fewer tickets than there are");
        let low = (self.tickets << NAME_BITS) | name;
        self.tickets += 1;
        Key { at, low }
    }

    /// Adds an event. O(log n), usually O(1): most events are later than those in the queue.
    pub fn push(&mut self, key: Key) {
        self.heap.push(key);
        self.sift_up(self.heap.len() - 1);
    }

    /// The earliest event.
    #[must_use]
    pub fn peek(&self) -> Option<Key> {
        self.heap.first().copied()
    }

    /// Removes the earliest event.
    pub fn pop(&mut self) -> Option<Key> {
        let last = self.heap.pop()?;
        match self.heap.first_mut() {
            None => Some(last),
            Some(top) => {
                let first = std::mem::replace(top, last);
                self.sift_down();
                Some(first)
            }
        }
    }

    /// Removes the earliest event and adds another: half the work of a pop and a push.
    ///
    /// # Panics
    /// If there is no event.
    pub fn replace_top(&mut self, key: Key) -> Key {
        let top = self.heap.first_mut().expect("the caller has peeked at the earliest event");
        let first = std::mem::replace(top, key);
        self.sift_down();
        first
    }

    /// Pending events, including obsolete ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn sift_up(&mut self, mut at: usize) {
        let key = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / FANOUT;
            if self.heap[parent].rank() <= key.rank() {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = key;
    }

    fn sift_down(&mut self) {
        let heap = &mut self.heap[..];
        let key = heap[0];
        let mut at = 0;
        loop {
            let first = at * FANOUT + 1;
            let least = match heap.get(first..first + FANOUT) {
                Some(four) => {
                    let a = usize::from(four[1].rank() < four[0].rank());
                    let b = 2 + usize::from(four[3].rank() < four[2].rank());
                    first + if four[b].rank() < four[a].rank() { b } else { a }
                }
                None if first >= heap.len() => break,
                None => {
                    let rest = first..heap.len();
                    rest.min_by_key(|i| heap[*i].rank()).unwrap_or(first)
                }
            };
            if key.rank() <= heap[least].rank() {
                break;
            }
            heap[at] = heap[least];
            at = least;
        }
        heap[at] = key;
    }
}

const FANOUT: usize = 4;
/// A simulation of 2^22 links has as many names, which is far beyond any memory.
const NAME_BITS: u32 = 24;
const NAME_END: u64 = 1 << NAME_BITS;
const TICKETS_END: u64 = 1 << (64 - NAME_BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    #[test]
    fn key__keeps_what_it_was_given() {
        let mut q = EventQueue::default();
        let k = q.key(Time::from_ns(7), EventQueue::NAMES - 1);
        assert_eq!((k.at(), k.name()), (Time::from_ns(7), EventQueue::NAMES - 1));
    }

    #[test]
    #[should_panic(expected = "below NAMES")]
    fn key__refuses_a_name_that_does_not_fit() {
        let _ = EventQueue::default().key(Time::ZERO, EventQueue::NAMES);
    }

    #[test]
    fn pop__equal_times_come_in_the_order_of_their_tickets_not_of_their_pushes() {
        let mut q = EventQueue::default();
        let keys: Vec<Key> = (0..9).map(|name| q.key(Time::from_ns(1), 8 - name)).collect();
        for key in keys.iter().rev() {
            q.push(*key);
        }
        let names: Vec<u64> = std::iter::from_fn(|| q.pop()).map(Key::name).collect();
        assert_eq!(names, [8, 7, 6, 5, 4, 3, 2, 1, 0]);
        assert!(q.is_empty() && q.peek().is_none());
    }

    #[derive(Clone, Debug)]
    enum Act {
        Push(u64),
        Pop,
        Replace(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => (0u64..40).prop_map(Act::Push),
            2 => Just(Act::Pop),
            2 => (0u64..40).prop_map(Act::Replace),
        ]
    }

    proptest! {
        #[test]
        fn event_queue__agrees_with_a_binary_heap(acts in prop::collection::vec(act(), 1..400)) {
            let mut q = EventQueue::default();
            let mut oracle = BinaryHeap::new();
            for (name, a) in acts.iter().enumerate() {
                let name = spanwire_base::u64_from(name);
                let entry = |k: Key| Reverse((k.at(), k.low >> NAME_BITS, k.name()));
                match *a {
                    Act::Push(at) => {
                        let key = q.key(Time::from_ps(at), name);
                        q.push(key);
                        oracle.push(entry(key));
                    }
                    Act::Pop => {
                        prop_assert_eq!(q.pop().map(entry), oracle.pop());
                    }
                    Act::Replace(at) if !q.is_empty() => {
                        let key = q.key(Time::from_ps(at), name);
                        prop_assert_eq!(Some(entry(q.replace_top(key))), oracle.pop());
                        oracle.push(entry(key));
                    }
                    Act::Replace(_) => {}
                }
                prop_assert_eq!(q.peek().map(entry), oracle.peek().copied());
                prop_assert_eq!(q.len(), oracle.len());
            }
        }
    }
}
