//! How long a leader spins before it sleeps.

use crate::sync::{AtomicU32, Ordering};

/// How long a thread that waits at the port spins before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spin {
    /// It never sleeps: lowest latency at the cost of a core.
    Forever,
    /// For this many ns.
    For(u64),
    /// For 50 us, about a round trip, while that pays: after spins in vain it sleeps at once, and
    /// spins again now and then. On a core that both ends share a spin only keeps the other end
    /// from answering.
    #[default]
    Tuned,
}

/// The state of [`Spin`].
#[derive(Debug)]
pub(crate) struct Spinner {
    spin: Spin,
    score: AtomicU32,
    waits: AtomicU32,
}

impl Spinner {
    pub(crate) fn new(spin: Spin) -> Self {
        Self { spin, score: AtomicU32::new(SCORE_MAX), waits: AtomicU32::new(0) }
    }

    /// A wait begins: how long it may spin, in ns.
    pub(crate) fn begin(&self) -> u64 {
        match self.spin {
            Spin::Forever => u64::MAX,
            Spin::For(ns) => ns,
            Spin::Tuned => {
                let score = self.score.load(Ordering::Relaxed);
                // Threads may race; the count is a measure only.
                let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
                self.waits.store(waits, Ordering::Relaxed);
                if score > 0 || waits.is_multiple_of(TRY_EVERY) { SPIN_NS } else { 0 }
            }
        }
    }

    /// A spin ended with what was waited for.
    pub(crate) fn paid(&self) {
        let score = self.score.load(Ordering::Relaxed);
        if score < SCORE_MAX {
            self.score.store(score + 1, Ordering::Relaxed);
        }
    }

    /// A spin ended without.
    pub(crate) fn missed(&self) {
        let score = self.score.load(Ordering::Relaxed);
        self.score.store(score.saturating_sub(MISS), Ordering::Relaxed);
    }
}

/// About a round trip with its wake-ups.
const SPIN_NS: u64 = 50_000;

/// A thread spins while two thirds of its spins pay.
const MISS: u32 = 2;
const SCORE_MAX: u32 = 6;

/// While spins do not pay, one of this many waits tries again.
const TRY_EVERY: u32 = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn begin__spins_in_vain_end_and_are_tried_again() {
        let spinner = Spinner::new(Spin::Tuned);
        let mut spins = 0;
        for _ in 0..320 {
            if spinner.begin() > 0 {
                spins += 1;
                spinner.missed();
            }
        }
        assert_eq!(spins, 3 + 320 / TRY_EVERY, "three misses at first, then one in {TRY_EVERY}");
        while spinner.begin() == 0 {}
        spinner.paid();
        assert_eq!(spinner.begin(), SPIN_NS, "a spin that pays is repeated");
    }

    #[test]
    fn begin__a_fixed_spin_does_not_learn() {
        let spinner = Spinner::new(Spin::For(7));
        for _ in 0..10 {
            assert_eq!(spinner.begin(), 7);
            spinner.missed();
        }
        assert_eq!(Spinner::new(Spin::Forever).begin(), u64::MAX);
    }
}
