//! A queue whose order is that of reservations: a value may arrive after those behind it.

use std::collections::VecDeque;

/// Values in the order in which their positions were reserved. One that is behind a reservation
/// without a value waits for it.
#[derive(Debug)]
pub(super) struct Ordered<T> {
    /// The position of the first entry.
    first: u64,
    /// The first one has not been given up.
    entries: VecDeque<Entry<T>>,
}

#[derive(Debug)]
enum Entry<T> {
    Reserved,
    Filled(T),
    GivenUp,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { first: 0, entries: VecDeque::new() }
    }
}

impl<T> Ordered<T> {
    /// Reserves the last position.
    pub(super) fn reserve(&mut self) -> u64 {
        self.entries.push_back(Entry::Reserved);
        self.first + self.entries.len() as u64 - 1
    }

    /// The value of a reserved position.
    pub(super) fn fill(&mut self, position: u64, value: T) {
        if let Some(entry @ Entry::Reserved) = self.entry(position) {
            *entry = Entry::Filled(value);
        }
    }

    /// Ends a reservation: without a value the position is given up. True if another value may be
    /// the first one for it.
    pub(super) fn settle(&mut self, position: u64) -> bool {
        if let Some(entry @ Entry::Reserved) = self.entry(position) {
            *entry = Entry::GivenUp;
        }
        let was_first = position <= self.first;
        self.skip();
        was_first
    }

    /// The first value, unless its position is only reserved.
    pub(super) fn front(&self) -> Option<&T> {
        match self.entries.front() {
            Some(Entry::Filled(value)) => Some(value),
            _ => None,
        }
    }

    /// Removes the first value, unless its position is only reserved.
    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.front()?;
        let value = self.remove_first();
        self.skip();
        value
    }

    /// Removes everything; the values in their order. Reservations end without a value.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        let count = self.entries.len();
        (0..count).filter_map(|_| self.remove_first())
    }

    fn entry(&mut self, position: u64) -> Option<&mut Entry<T>> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    fn skip(&mut self) {
        while let Some(Entry::GivenUp) = self.entries.front() {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.first += 1;
        match entry {
            Entry::Filled(value) => Some(value),
            Entry::Reserved | Entry::GivenUp => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved<const N: usize>() -> (Ordered<char>, [u64; N]) {
        let mut queue = Ordered::default();
        let positions = std::array::from_fn(|_| queue.reserve());
        (queue, positions)
    }

    #[test]
    fn pop_front__is_in_the_order_of_reservations() {
        let (mut queue, [a, b, c]) = reserved();
        queue.fill(b, 'b');
        assert!(!queue.settle(b), "a is before it");
        assert_eq!(queue.front(), None);
        assert_eq!(queue.pop_front(), None);
        queue.fill(a, 'a');
        assert!(queue.settle(a));
        assert_eq!(
            (queue.pop_front(), queue.pop_front(), queue.pop_front()),
            (Some('a'), Some('b'), None)
        );
        queue.fill(c, 'c');
        assert_eq!(queue.front(), Some(&'c'));
        assert_eq!(queue.pop_front(), Some('c'));
        assert!(queue.settle(c), "it was accepted before its reservation ended");
        assert!(queue.entries.is_empty());
    }

    #[test]
    fn settle__gives_up_a_position_without_a_value() {
        let (mut queue, [a, b, c, d]) = reserved();
        queue.fill(d, 'd');
        assert_eq!([queue.settle(d), queue.settle(b), queue.settle(c)], [false; 3]);
        assert_eq!(queue.front(), None);
        assert!(queue.settle(a), "d is the first one now");
        assert_eq!(queue.pop_front(), Some('d'));
        let e = queue.reserve();
        queue.fill(e, 'e');
        assert_eq!(queue.pop_front(), Some('e'));
    }

    #[test]
    fn drain__ends_reservations() {
        let (mut queue, [a, b, c]) = reserved();
        queue.fill(a, 'a');
        queue.fill(c, 'c');
        assert_eq!(queue.drain().collect::<String>(), "ac");
        queue.fill(b, 'b');
        assert!(queue.settle(b));
        let d = queue.reserve();
        assert!(d > c);
        queue.fill(d, 'd');
        assert_eq!(queue.drain().collect::<String>(), "d");
    }
}
