//! A table of flows by key, in sets of eight.

use spanwire_base::{Dur, usize_from};
use std::ops::Range;

/// Values by key. A key belongs to one set of [`SET_SIZE`] places; the keys of a set share a cache
/// line. A new value in a full set takes the place of the one whose owner ranks it lowest, which is
/// counted if it was in use.
#[derive(Debug)]
pub(super) struct Sets<T> {
    keys: Vec<Keys>,
    values: Vec<T>,
    /// Values in use that went for lack of room.
    evicted: u64,
}

/// The standing of a value with its owner, when its set is full.
pub(super) struct Standing<R> {
    /// The value of the least rank goes.
    pub(super) rank: R,
    /// It is in use: others are as good as free.
    pub(super) is_used: bool,
}

/// The keys of a set; 0: the place is free.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Keys([u64; SET_SIZE]);

impl<T: Clone> Sets<T> {
    /// Places for `most` values, at least one set. There are twice as many, so that few sets are
    /// full before the table is.
    pub(super) fn new(most: u32, free: &T) -> Self {
        let places = (2 * usize_from(most.into())).next_power_of_two().max(SET_SIZE);
        Self {
            keys: vec![Keys::default(); places / SET_SIZE],
            values: vec![free.clone(); places],
            evicted: 0,
        }
    }

    /// The values, in the order of their places. O(places).
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        (0..self.values.len()).filter(|at| !self.is_free(*at)).map(|at| self.get(at))
    }

    /// Its places.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The place of a key, if it has one.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        let (set, key) = (self.set(key), key.max(1));
        let at = self.keys[set].0.iter().position(|own| *own == key)?;
        Some(set * SET_SIZE + at)
    }

    /// Gives a new key a place: a free one, or that of the value with the least rank. `standing` is
    /// `None` of a value that stays. Returns the place, and the value that went for it if any did;
    /// `None` if all stay.
    pub(super) fn take<R: Ord>(
        &mut self,
        key: u64,
        new: T,
        standing: impl Fn(&T) -> Option<Standing<R>>,
    ) -> Option<(usize, Option<T>)> {
        let mut places = self.places(key);
        if let Some(at) = places.clone().find(|at| self.is_free(*at)) {
            self.put(at, key, new);
            return Some((at, None));
        }
        let first = places.next()?;
        let mut least = standing(self.get(first)).map(|standing| (first, standing));
        for at in places {
            let Some(other) = standing(self.get(at)) else { continue };
            if least.as_ref().is_none_or(|(_, least)| other.rank < least.rank) {
                least = Some((at, other));
            }
        }
        let (at, Standing { is_used, .. }) = least?;
        self.evicted += u64::from(is_used);
        let gone = self.get(at).clone();
        self.put(at, key, new);
        Some((at, Some(gone)))
    }

    /// Values in use that went for lack of room.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The places that a key may have.
    fn places(&self, key: u64) -> Range<usize> {
        let first = self.set(key) * SET_SIZE;
        first..first + SET_SIZE
    }

    /// True if the place is free.
    #[inline]
    fn is_free(&self, at: usize) -> bool {
        self.keys[at / SET_SIZE].0[at % SET_SIZE] == 0
    }

    /// Puts a key and its value into one of its places.
    fn put(&mut self, at: usize, key: u64, value: T) {
        debug_assert!(self.places(key).contains(&at), "a place of its set");
        self.keys[at / SET_SIZE].0[at % SET_SIZE] = key.max(1);
        self.values[at] = value;
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &T {
        &self.values[at]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.values[at]
    }

    #[inline]
    fn set(&self, key: u64) -> usize {
        // The number of sets is a power of two.
        usize_from(key.max(1)) & (self.keys.len() - 1)
    }
}

/// A flow has ended if it sent nothing for so long: its entry is as good as free.
pub(super) const IDLE: Dur = Dur::from_secs(1);
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = size_of::<Keys>() / SET_SIZE;
/// Places of a set.
pub(super) const SET_SIZE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__of_a_full_set_the_least_that_may_go() {
        let mut sets = Sets::new(4, &0);
        // Even values stay; of the others the least goes, and is in use from 5 on.
        let standing = |n: &u64| (n % 2 == 1).then_some(Standing { rank: *n, is_used: *n >= 5 });
        for n in [6, 7, 3, 8, 9, 5, 4, 2] {
            assert!(sets.take(n, n, standing).unwrap().1.is_none(), "{n} has a free place");
        }
        let gone: Vec<_> = (20..25).map(|n| sets.take(n, 10, standing)).collect();
        let gone: Vec<_> = gone.into_iter().map(|taken| taken.and_then(|(_, old)| old)).collect();
        assert_eq!(gone, [Some(3), Some(5), Some(7), Some(9), None]);
        assert_eq!((sets.evicted(), sets.find(24), sets.find(6).is_some()), (3, None, true));
    }

    #[test]
    fn find__only_what_was_put_and_not_replaced() {
        let mut sets = Sets::new(20, &0);
        assert_eq!((sets.len(), sets.find(0)), (64, None));
        let any = |_: &u64| Some(Standing { rank: 0, is_used: true });
        for key in [0, 4, 8, 7] {
            assert!(sets.take(key, key + 100, any).unwrap().1.is_none());
        }
        for key in [4, 8, 7] {
            assert_eq!(sets.find(key).map(|at| *sets.get(at)), Some(key + 100));
        }
        assert_eq!(sets.find(0), sets.find(1), "0 is a key as good as 1");
        assert_eq!(sets.values().sum::<u64>(), 100 + 104 + 108 + 107);
        let at = sets.find(8).unwrap();
        sets.put(at, 8 + 64, 0);
        assert!(!sets.is_free(at) && sets.find(8).is_none() && sets.find(4).is_some());
    }
}
