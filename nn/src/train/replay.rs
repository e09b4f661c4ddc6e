//! A replay ring.

use spanwire_base::{Rng, u64_from, usize_from};

/// The last samples, up to a number of them, from which batches are drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay<T> {
    samples: Vec<T>,
    most: usize,
    /// The place of the oldest, once it is full.
    next: usize,
}

impl<T> Replay<T> {
    /// An empty ring for at most so many samples.
    ///
    /// # Panics
    /// If that is none.
    #[must_use]
    pub fn new(most: usize) -> Self {
        assert!(most > 0, "room for a sample");
        Self { samples: Vec::new(), most, next: 0 }
    }

    /// Adds a sample, in the place of the oldest if it is full.
    pub fn push(&mut self, sample: T) {
        if self.samples.len() < self.most {
            self.samples.push(sample);
        } else {
            self.samples[self.next] = sample;
            self.next = (self.next + 1) % self.most;
        }
    }

    /// Its samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// A sample, each with the same probability; `None` if there is none.
    pub fn draw(&self, rng: &mut Rng) -> Option<&T> {
        let n = u64_from(self.samples.len());
        (n > 0).then(|| &self.samples[usize_from(rng.below(n))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn push__replaces_the_oldest() {
        let mut replay = Replay::new(3);
        assert!(replay.is_empty() && replay.draw(&mut Rng::new(1)).is_none());
        for n in 0..5 {
            replay.push(n);
        }
        assert_eq!((replay.len(), &replay.samples[..]), (3, &[3, 4, 2][..]));
    }

    #[test]
    fn draw__every_sample_equally_often() {
        let mut replay = Replay::new(8);
        (0..8).for_each(|n| replay.push(n));
        let mut rng = Rng::new(7);
        let drawn: Vec<i32> = (0..8_000).filter_map(|_| replay.draw(&mut rng).copied()).collect();
        assert_eq!(drawn.iter().copied().collect::<BTreeSet<_>>().len(), 8);
        for n in 0..8 {
            let count = drawn.iter().filter(|own| **own == n).count();
            assert!((850..1_150).contains(&count), "{count}");
        }
    }
}
