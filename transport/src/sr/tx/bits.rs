//! A bitmap of the packets of a window, processed by words of 64.

use spanwire_base::{u64_from, usize_from};
use std::collections::VecDeque;

/// A bitmap of a range of numbers, both ends of which only grow.
///
/// Finding the new bits of a SACK word costs one operation, however many of its bits were reported
/// before.
#[derive(Debug)]
pub(crate) struct Bits {
    /// The number of the first bit of the first word, a multiple of 64.
    base: u64,
    words: VecDeque<u64>,
}

impl Bits {
    /// An empty bitmap that starts with the number `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self { base: first / 64 * 64, words: VecDeque::new() }
    }

    /// Begins again with `number`; numbers below it count as set.
    pub(crate) fn restart(&mut self, number: u64) {
        self.base = number / 64 * 64;
        self.words.clear();
        self.words.push_back((1 << (number % 64)) - 1);
    }

    /// Extends the range to `number`.
    #[inline]
    pub(crate) fn extend_to(&mut self, number: u64) {
        while self.base + u64_from(self.words.len()) * 64 <= number {
            self.words.push_back(0);
        }
    }

    /// Sets the bit of a number in the range.
    pub(crate) fn set(&mut self, number: u64) {
        if let Some(word) = self.index(number).and_then(|i| self.words.get_mut(i)) {
            *word |= 1 << (number % 64);
        }
    }

    /// Those of the 64 bits from `base` on that are not set in the bitmap. `base` is a multiple of
    /// 64; bits below the range count as set.
    pub(crate) fn new_bits(&self, base: u64, bits: u64) -> u64 {
        debug_assert!(base.is_multiple_of(64), "base begins a word");
        match self.index(base) {
            Some(i) => bits & !self.words.get(i).copied().unwrap_or(0),
            None => 0,
        }
    }

    /// The highest number below `end` whose bit is clear.
    pub(crate) fn highest_clear(&self, end: u64) -> Option<u64> {
        let last = end.checked_sub(1)?;
        let from = self.index(last)?.min(self.words.len().checked_sub(1)?);
        (0..=from).rev().find_map(|i| {
            let base = self.base + u64_from(i) * 64;
            let below_end = u64::MAX >> (63 - last.saturating_sub(base).min(63));
            let clear = !self.words[i] & below_end;
            clear.checked_ilog2().map(|bit| base + u64::from(bit))
        })
    }

    /// Drops whole words below `number`.
    pub(crate) fn clear_below(&mut self, number: u64) {
        while self.base + 64 <= number && self.words.pop_front().is_some() {
            self.base += 64;
        }
    }

    fn index(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.base).map(|ahead| usize_from(ahead / 64))
    }
}

/// The numbers of the set bits of a word whose first bit is `base`, in order.
pub(crate) fn numbers(base: u64, mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (bit < 64).then(|| base + u64::from(bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn numbers__of_a_word_in_order() {
        assert_eq!(numbers(640, 0).next(), None);
        assert_eq!(numbers(640, 1 << 63 | 5).collect::<Vec<_>>(), [640, 642, 703]);
        assert_eq!(numbers(0, u64::MAX).count(), 64);
    }

    #[test]
    fn bits__agree_with_a_set() {
        let mut rng = Rng::new(5);
        for first in [0u64, 1, 63, 64, 1 << 32] {
            let (mut bits, mut oracle) = (Bits::new(first), BTreeSet::new());
            let (mut low, mut end) = (first, first);
            for _ in 0..5000 {
                match rng.below(4) {
                    0 => {
                        bits.extend_to(end);
                        end += 1;
                    }
                    1 if end > low => {
                        let number = low + rng.below(end - low);
                        bits.set(number);
                        oracle.insert(number);
                    }
                    2 if rng.below(8) == 0 => {
                        low += rng.below(end - low + 1);
                        bits.clear_below(low);
                        assert!(u64_from(bits.words.len()) <= (end - low) / 64 + 2);
                    }
                    _ => {
                        let clear = (low..end).rev().find(|n| !oracle.contains(n));
                        let found = bits.highest_clear(end).filter(|n| *n >= low);
                        assert_eq!(found, clear);
                        let base = low.next_multiple_of(64);
                        let reported = rng.next_u64();
                        let new: Vec<u64> = numbers(base, bits.new_bits(base, reported)).collect();
                        let want = numbers(base, reported).filter(|n| !oracle.contains(n));
                        assert_eq!(new, want.collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
