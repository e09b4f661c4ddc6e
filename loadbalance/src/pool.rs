//! The set of entropies that a flow draws from.

use crate::Entropy;
use spanwire_base::Rng;

/// Consecutive entropies from a random start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    first: u16,
    len: u16,
}

impl Pool {
    /// A pool of `len` entropies, clamped to 1..=16384.
    pub(crate) fn new(len: u64, rng: &mut Rng) -> Self {
        let all = u64::from(Entropy::COUNT);
        let len = u16::try_from(len.clamp(1, all)).unwrap_or(Entropy::COUNT);
        Self { first: below(rng, Entropy::COUNT), len }
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> Entropy {
        self.at(below(rng, self.len))
    }

    /// A random entropy that `fits`; none if none does. All are equally likely, unless so few fit
    /// that random draws miss them.
    pub(crate) fn draw_fitting(
        &self,
        rng: &mut Rng,
        fits: impl Fn(Entropy) -> bool,
    ) -> Option<Entropy> {
        for _ in 0..DRAWS {
            let entropy = self.draw(rng);
            if fits(entropy) {
                return Some(entropy);
            }
        }
        let from = below(rng, self.len);
        let mut all = (from..self.len).chain(0..from).map(|index| self.at(index));
        all.find(|entropy| fits(*entropy))
    }

    fn at(&self, index: u16) -> Entropy {
        // Both are below 2^14: no overflow.
        Entropy::new(self.first + index)
    }
}

/// A random number below `n`, which is not zero.
pub(crate) fn below(rng: &mut Rng, n: u16) -> u16 {
    u16::try_from(rng.below(u64::from(n))).unwrap_or(0)
}

/// The number of draws before a linear search.
const DRAWS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draw__stays_in_the_pool_and_reaches_all_of_it() {
        let mut rng = Rng::new(1);
        for len in [1u16, 7, 250, Entropy::COUNT] {
            let pool = Pool::new(u64::from(len), &mut rng);
            let mut seen = vec![false; usize::from(Entropy::COUNT)];
            for _ in 0..16 * u32::from(len) {
                seen[usize::from(pool.draw(&mut rng).bits())] = true;
            }
            let count = seen.iter().filter(|seen| **seen).count();
            assert!(count <= usize::from(len) && count >= usize::from(len) * 99 / 100);
        }
    }

    #[test]
    fn draw_fitting__finds_the_only_one_or_none() {
        let mut rng = Rng::new(1);
        let pool = Pool::new(u64::from(Entropy::COUNT), &mut rng);
        let only = Entropy::new(77);
        assert_eq!(pool.draw_fitting(&mut rng, |e| e == only), Some(only));
        assert_eq!(pool.draw_fitting(&mut rng, |_| false), None);
    }
}
