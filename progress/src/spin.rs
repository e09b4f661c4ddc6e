//! How long a leader spins before it sleeps.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How long a thread that waits at the port spins before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spin {
    /// It never sleeps: lowest latency at the cost of a core.
    Forever,
    /// For this many ns.
    For(u64),
    /// For 50 us, about a round trip, or not at all: by which of both the waits were shorter. On a
    /// core that both ends share, a spin keeps the other end from answering.
    #[default]
    Tuned,
}

/// The state of [`Spin`].
#[derive(Debug)]
pub(crate) struct Spinner {
    spin: Spin,
    waits: AtomicU32,
    /// Mean ns of the waits that slept at once, and of those that spun.
    mean: [AtomicU64; 2],
}

/// A wait: whether it spins before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    /// How long it spins, in ns.
    pub(crate) spin: u64,
    spins: bool,
}

impl Spinner {
    pub(crate) fn new(spin: Spin) -> Self {
        let mean = [LONG_NS, 0].map(AtomicU64::new);
        Self { spin, waits: AtomicU32::new(0), mean }
    }

    /// A wait begins.
    pub(crate) fn begin(&self) -> Wait {
        let spin = match self.spin {
            Spin::Forever => u64::MAX,
            Spin::For(ns) => ns,
            Spin::Tuned => {
                // Threads may race; these are measures only.
                let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
                self.waits.store(waits, Ordering::Relaxed);
                let [slept, spun] = self.mean.each_ref().map(|mean| mean.load(Ordering::Relaxed));
                let tries_other = waits.is_multiple_of(TRY_EVERY);
                if (spun < slept) != tries_other { SPIN_NS } else { 0 }
            }
        };
        Wait { spin, spins: spin > 0 }
    }

    /// A wait has ended after `ns`.
    pub(crate) fn ended(&self, wait: Wait, ns: u64) {
        let mean = &self.mean[usize::from(wait.spins)];
        let before = mean.load(Ordering::Relaxed);
        let after = before - before / WEIGHT + ns.min(LONG_NS) / WEIGHT;
        mean.store(after, Ordering::Relaxed);
    }
}

/// About a round trip with its wake-ups.
const SPIN_NS: u64 = 50_000;

/// Waits longer than this are alike: no spin shortens them.
const LONG_NS: u64 = 4 * SPIN_NS;

/// One of this many waits does what was longer, because that may have changed.
const TRY_EVERY: u32 = 32;

/// A wait has a weight of one in this many in its mean.
const WEIGHT: u64 = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Spins of 1,000 waits that take so many ns after a sleep at once and after a spin.
    fn spins(spinner: &Spinner, [slept, spun]: [u64; 2]) -> u32 {
        (0..1000).fold(0, |count, _| {
            let wait = spinner.begin();
            spinner.ended(wait, if wait.spin > 0 { spun } else { slept });
            count + u32::from(wait.spin > 0)
        })
    }

    #[test]
    fn begin__does_what_makes_the_waits_shorter() {
        let spinner = Spinner::new(Spin::Tuned);
        assert!(spins(&spinner, [30_000, 10_000]) > 900, "a core of its own");
        assert!(spins(&spinner, [12_000, 40_000]) < 100, "a core shared with the other end");
        assert!(spins(&spinner, [30_000, 10_000]) > 700, "moved to its own again");
        assert!(spins(&spinner, [5_000_000, 5_000_000]) < 200, "idle: no spin in vain");
    }

    #[test]
    fn begin__a_fixed_spin_does_not_learn() {
        let spinner = Spinner::new(Spin::For(7));
        for _ in 0..10 {
            let wait = spinner.begin();
            assert_eq!(wait.spin, 7);
            spinner.ended(wait, 1_000_000);
        }
        assert_eq!(Spinner::new(Spin::Forever).begin().spin, u64::MAX);
    }
}
