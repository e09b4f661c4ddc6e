//! When a worker spins through a wait, and when it sleeps: one rule for drivers and for the threads
//! that share an engine.
//!
//! A wait costs the time by which its end is noticed late, and the processor's time. A spin costs
//! its length. A sleep costs the processor's time of two system calls and a wake-up, and is noticed
//! late by that wake-up. So spinning pays if waits like this one have lately ended within the cost
//! of a sleep, as ski rental has it (Karlin et al., Empirical Studies of Competitive Spinning,
//! 1991). That cost is measured, and each kind of wait has its own mean: a worker that sleeps a
//! millisecond for its next paced packet still meets a reply by spinning.

use spanwire_base::{Awaited, Dur};
// Not those of the model checker: measures order nothing.
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// How a thread that waits at a port polls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Polling {
    /// Never sleeps: the lowest and most even latency, for a core of its own at full load.
    Busy,
    /// Spins through a wait that probably ends sooner than a sleep and its wake-up would, and
    /// sleeps at once otherwise. The cost of a sleep and the waits are measured. Workers can share
    /// a core, and an idle one costs almost nothing.
    #[default]
    Adaptive,
    /// Spins for so long without progress, then sleeps. Zero sleeps at once.
    Spin(Dur),
}

impl Polling {
    /// The longest spin before a sleep; zero if it never sleeps.
    #[must_use]
    pub fn spin_max(self) -> Dur {
        match self {
            Self::Busy => Dur::ZERO,
            Self::Adaptive => Dur::from_ns(COST_NS_MAX),
            Self::Spin(spin) => spin,
        }
    }
}

/// The state of [`Polling`]: what sleeps cost, and how long waits were.
///
/// Threads may race. These are measures only, and none is lost for good.
#[derive(Debug)]
pub struct Spinner {
    polling: Polling,
    kinds: [Kind; Awaited::ALL.len()],
    /// Mean time in ns by which a sleep ends late.
    late: AtomicU64,
    /// Mean processor time in ns of a sleep.
    work: AtomicU64,
    sleeps: AtomicU32,
}

/// The waits of one kind.
#[derive(Debug)]
struct Kind {
    waits: AtomicU32,
    /// Mean gain of a spin in ns: what a sleep would have cost, less what the spin did.
    gain: AtomicI64,
    /// Mean lengths in ns of the waits that slept at once, and of those that spun.
    lengths: [AtomicU64; 2],
}

/// A wait: whether it spins before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    awaited: Awaited,
    spin_ns: u64,
    /// A time that is no further away is spun for.
    near_ns: u64,
}

impl Wait {
    /// How long it spins, in ns; zero if it sleeps at once, `u64::MAX` if it never does.
    #[must_use]
    pub fn spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// True if a known time, in so many ns, is too near for a sleep.
    #[must_use]
    pub fn spins_for(&self, ns: u64) -> bool {
        ns <= self.near_ns
    }
}

impl Spinner {
    /// A spinner that knows nothing yet, and spins at first.
    #[must_use]
    pub fn new(polling: Polling) -> Self {
        let kind = || Kind {
            waits: AtomicU32::new(0),
            gain: AtomicI64::new(1),
            lengths: [COST_NS_MAX, 0].map(AtomicU64::new),
        };
        Self {
            polling,
            kinds: std::array::from_fn(|_| kind()),
            late: AtomicU64::new(COST_NS_MAX / 2),
            work: AtomicU64::new(COST_NS_MIN),
            sleeps: AtomicU32::new(0),
        }
    }

    /// The cost of a sleep and its wake-up in ns: 5,000 to 50,000.
    #[must_use]
    pub fn cost_ns(&self) -> u64 {
        let cost = self.late.load(Ordering::Relaxed) + self.work.load(Ordering::Relaxed);
        cost.clamp(COST_NS_MIN, COST_NS_MAX)
    }

    /// A wait for `awaited` begins.
    pub fn begin(&self, awaited: Awaited) -> Wait {
        let (spin_ns, near_ns) = match self.polling {
            Polling::Busy => (u64::MAX, u64::MAX),
            Polling::Spin(spin) => (spin.as_ns(), 0),
            Polling::Adaptive => {
                let (kind, cost) = (&self.kinds[awaited as usize], self.cost_ns());
                (if kind.spins_next() { cost } else { 0 }, cost)
            }
        };
        Wait { awaited, spin_ns, near_ns }
    }

    /// A wait has ended after `ns`.
    pub fn ended(&self, wait: Wait, ns: u64) {
        if self.polling != Polling::Adaptive {
            return;
        }
        let cost_ns = self.cost_ns();
        let spins = wait.spin_ns > 0;
        let spin_ns = match spins {
            // Without the wake-up it would have been shorter.
            false => ns.saturating_sub(self.late.load(Ordering::Relaxed)),
            true if ns <= wait.spin_ns => ns,
            // In vain, and the sleep came after it.
            true => u64::MAX,
        };
        self.kinds[wait.awaited as usize].add(spins, ns, (spin_ns, cost_ns));
    }

    /// True if this sleep is to be measured, for [`Spinner::slept`].
    pub fn measures_sleep(&self) -> bool {
        let sleeps = self.sleeps.load(Ordering::Relaxed).wrapping_add(1);
        self.sleeps.store(sleeps, Ordering::Relaxed);
        self.polling == Polling::Adaptive && sleeps % MEASURE_EVERY == 1
    }

    /// A sleep has ended, after `work_ns` of processor time. If it lasted until the time for which
    /// it was planned, it ended `late_ns` after what the kernel may delay it on purpose.
    pub fn slept(&self, late_ns: Option<u64>, work_ns: u64) {
        add(&self.work, work_ns.min(COST_NS_MAX));
        if let Some(late_ns) = late_ns {
            add(&self.late, late_ns.min(COST_NS_MAX));
        }
    }
}

impl Kind {
    /// True if the next wait spins.
    fn spins_next(&self) -> bool {
        let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        let [slept, spun] = self.lengths.each_ref().map(|mean| mean.load(Ordering::Relaxed));
        // On a core that both ends share, a spin keeps the other end from answering.
        let pays = self.gain.load(Ordering::Relaxed) > 0 && spun <= slept;
        let every = if pays { SLEEP_EVERY } else { SPIN_EVERY };
        pays != waits.is_multiple_of(every)
    }

    /// Adds a wait of `ns`. By spinning its end was noticed, or would have been, after `spin_ns`; a
    /// sleep costs `cost_ns`.
    fn add(&self, spins: bool, ns: u64, (spin_ns, cost_ns): (u64, u64)) {
        add(&self.lengths[usize::from(spins)], ns.min(LONG_NS));
        let gain = match spin_ns <= cost_ns {
            true => cost_ns.cast_signed() - spin_ns.cast_signed(),
            false => -cost_ns.cast_signed(),
        };
        let before = self.gain.load(Ordering::Relaxed);
        self.gain.store(before + (gain - before) / WEIGHT.cast_signed(), Ordering::Relaxed);
    }
}

/// Adds a sample to a mean.
fn add(mean: &AtomicU64, sample: u64) {
    let before = mean.load(Ordering::Relaxed);
    mean.store(before - before / WEIGHT + sample / WEIGHT, Ordering::Relaxed);
}

/// The cost of a sleep within these bounds: 5 to 50 us were measured on virtual machines. What is
/// beyond is a processor that was taken away.
const COST_NS_MIN: u64 = 5_000;
const COST_NS_MAX: u64 = 50_000;

/// Waits longer than this are alike: no spin shortens them.
const LONG_NS: u64 = 4 * COST_NS_MAX;

/// One of this many waits spins although that did not pay, because that may have changed.
const SPIN_EVERY: u32 = 32;

/// One of this many waits sleeps although spinning pays: few enough to stay out of the 99th
/// percentile.
const SLEEP_EVERY: u32 = 512;

/// One of this many sleeps is measured, which costs two system calls.
const MEASURE_EVERY: u32 = 16;

/// A sample has a weight of one in this many in its mean.
const WEIGHT: u64 = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Spins of 1,000 waits for `awaited` that take so many ns after a sleep at once and after a
    /// spin.
    fn spins(spinner: &Spinner, awaited: Awaited, [slept, spun]: [u64; 2]) -> u32 {
        (0..1000).fold(0, |count, _| {
            let wait = spinner.begin(awaited);
            spinner.ended(wait, if wait.spin_ns > 0 { spun } else { slept });
            count + u32::from(wait.spin_ns > 0)
        })
    }

    /// A sleep costs 25 us.
    fn adaptive() -> Spinner {
        let spinner = Spinner::new(Polling::Adaptive);
        for _ in 0..100 {
            spinner.slept(Some(20_000), 5_000);
        }
        assert!((24_900..=25_100).contains(&spinner.cost_ns()), "{}", spinner.cost_ns());
        spinner
    }

    #[test]
    fn begin__spins_through_waits_that_are_shorter_than_a_sleep() {
        let spinner = adaptive();
        let reply = Awaited::Reply;
        assert!(spins(&spinner, reply, [30_000, 10_000]) > 900, "a core of its own");
        assert!(spins(&spinner, reply, [12_000, 40_000]) < 100, "one shared with the other end");
        assert!(spins(&spinner, reply, [30_000, 10_000]) > 700, "moved to its own again");
        assert!(spins(&spinner, reply, [80_000, 60_000]) < 100, "a packet each 60 us");
        assert!(spins(&spinner, reply, [5_000_000, 5_000_000]) < 200, "idle: no spin in vain");
    }

    #[test]
    fn begin__kinds_of_waits_do_not_mix() {
        let spinner = adaptive();
        let (mut replies, mut others) = (0, 0);
        for _ in 0..1000 {
            others += spins(&spinner, Awaited::Anything, [100_000_000; 2]) / 1000;
            replies += spins(&spinner, Awaited::Reply, [30_000, 10_000]) / 900;
        }
        assert_eq!((replies, others), (1000, 0));
    }

    #[test]
    fn begin__waits_of_both_lengths_spin_only_if_most_are_short() {
        for (every, spins_mostly) in [(2, false), (10, true)] {
            let (spinner, mut count) = (adaptive(), 0);
            for n in 0..10_000 {
                let wait = spinner.begin(Awaited::Anything);
                let long = n % every == 0;
                let ns = if long { 500_000 } else { 8_000 };
                let late = if ns > wait.spin_ns { 20_000 } else { 0 };
                spinner.ended(wait, ns + late);
                count += u32::from(wait.spin_ns > 0);
            }
            assert_eq!(count > 8_000, spins_mostly, "one of {every} is long: {count} spins");
            assert_eq!(count < 2_000, !spins_mostly, "one of {every} is long: {count} spins");
        }
    }

    #[test]
    fn begin__what_is_configured_does_not_learn() {
        let spin = Polling::Spin(Dur::from_ns(7));
        for (polling, spin_ns) in [(spin, 7), (Polling::Busy, u64::MAX)] {
            let spinner = Spinner::new(polling);
            for _ in 0..10 {
                let wait = spinner.begin(Awaited::Anything);
                assert_eq!(wait.spin_ns(), spin_ns);
                spinner.ended(wait, 1_000_000);
            }
        }
    }

    #[test]
    fn cost_ns__stays_within_its_bounds() {
        let spinner = Spinner::new(Polling::Adaptive);
        for (late, expected) in [(u64::MAX, COST_NS_MAX), (0, COST_NS_MIN)] {
            (0..200).for_each(|_| spinner.slept(Some(late), 0));
            assert_eq!(spinner.cost_ns(), expected);
        }
        spinner.slept(None, 0);
        assert_eq!(spinner.cost_ns(), COST_NS_MIN);
    }

    #[test]
    fn measures_sleep__the_first_and_then_one_in_sixteen() {
        let spinner = Spinner::new(Polling::Adaptive);
        let measured: Vec<_> = (0..40).filter(|_| spinner.measures_sleep()).collect();
        assert_eq!(measured, [0, 16, 32]);
    }
}
