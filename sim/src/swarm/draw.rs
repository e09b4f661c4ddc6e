//! Random draws.

use spanwire_base::{Rng, u64_from, usize_from};

/// The random draws of a plan, in a fixed order.
pub(super) struct Draw(pub(super) Rng);

impl Draw {
    /// The draws of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize_from(self.below(u64_from(of.len())))]
    }

    pub(super) fn count(&mut self, of: &[u32]) -> u32 {
        self.pick(of)
    }
}
