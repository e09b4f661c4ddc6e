//! When a worker spins through a wait, and when it sleeps: one rule for drivers and for the threads
//! that share an engine.
//!
//! A wait costs the time by which its end is noticed late, and the processor's time. A spin costs
//! its length. A sleep costs the processor's time of two system calls and a wake-up, and is noticed
//! late by that wake-up. So spinning pays if waits like this one have lately ended within the cost
//! of a sleep, as ski rental has it (Karlin et al., Empirical Studies of Competitive Spinning,
//! 1991). That cost is measured, and each kind of wait has its own mean: a worker that sleeps a
//! millisecond for its next paced packet still meets a reply by spinning.
//!
//! If both ends of a ping-pong sleep, each waits for two wake-ups, and no spin of one end pays. So
//! spins are tried in bursts, each of them until its wait ends: the other end sees its waits become
//! shorter by a wake-up, begins to spin within the burst, and then both do.

use spanwire_base::{Awaited, Dur};
// Not those of the model checker: measures order nothing.
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

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
            Self::Adaptive => Dur::from_ns(TRIAL_NS_MAX),
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
    /// Typical time in ns by which a sleep ends late.
    late: AtomicU64,
    /// Typical processor time in ns of a sleep.
    work: AtomicU64,
    sleeps: AtomicU32,
}

/// The waits of one kind.
#[derive(Debug)]
struct Kind {
    waits: AtomicU32,
    /// The last wait spun, and slept after all.
    in_vain: AtomicBool,
    /// Mean gain of a spin in ns: what a sleep would have cost, less what the spin did.
    gain: AtomicI64,
    /// Typical lengths in ns of the waits that slept at once, and of those that spun.
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
            in_vain: AtomicBool::new(false),
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
                (kind.spins_next(cost), cost)
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
        let in_vain = spins && ns > wait.spin_ns;
        let kind = &self.kinds[wait.awaited as usize];
        if wait.spin_ns > cost_ns && !in_vain && kind.gain.load(Ordering::Relaxed) <= 0 {
            // Waits that sleep are like this one, and a wake-up longer.
            let late_ns = kind.lengths[0].load(Ordering::Relaxed).saturating_sub(ns);
            move_to(&self.late, late_ns.min(LATE_NS_MAX));
        }
        let spin_ns = match spins {
            // Without the wake-up it would have been shorter.
            false => ns.saturating_sub(self.late.load(Ordering::Relaxed)),
            // The sleep came after it.
            true if in_vain => u64::MAX,
            true => ns,
        };
        kind.in_vain.store(in_vain, Ordering::Relaxed);
        kind.add(spins, ns, (spin_ns, cost_ns));
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
        move_to(&self.work, work_ns.min(COST_NS_MAX));
        if let Some(late_ns) = late_ns {
            move_to(&self.late, late_ns.min(LATE_NS_MAX));
        }
    }
}

impl Kind {
    /// How long the next wait spins in ns, if a sleep costs `cost_ns`.
    fn spins_next(&self, cost_ns: u64) -> u64 {
        let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        let [slept, spun] = self.lengths.each_ref().map(|length| length.load(Ordering::Relaxed));
        // On a core that both ends share, a spin keeps the other end from answering.
        let delays = spun > slept + cost_ns / 2;
        let pays = self.gain.load(Ordering::Relaxed) > 0 && !delays;
        // A sleep of one end makes the other's spin one in vain, and so on without end, unless one
        // of them waits for it.
        let is_trial = match pays {
            true => self.in_vain.load(Ordering::Relaxed),
            false => waits % TRIAL_EVERY >= TRIAL_EVERY - TRIAL_LEN,
        };
        match (is_trial && slept < TRIAL_NS_MAX, pays) {
            (true, _) => (slept + cost_ns / 2).min(TRIAL_NS_MAX),
            (false, true) if !waits.is_multiple_of(SLEEP_EVERY) => cost_ns,
            (false, _) => 0,
        }
    }

    /// Adds a wait of `ns`. By spinning its end was noticed, or would have been, after `spin_ns`; a
    /// sleep costs `cost_ns`.
    fn add(&self, spins: bool, ns: u64, (spin_ns, cost_ns): (u64, u64)) {
        move_to(&self.lengths[usize::from(spins)], ns.min(LONG_NS));
        let cost = cost_ns.cast_signed();
        let gain = match spin_ns <= cost_ns {
            true => cost - spin_ns.cast_signed(),
            false => -cost,
        };
        let before = self.gain.load(Ordering::Relaxed);
        // Not far below zero, so that a burst of the other end suffices.
        let after = (before + (gain - before) / WEIGHT.cast_signed()).max(-cost / 2);
        self.gain.store(after, Ordering::Relaxed);
    }
}

/// Moves an estimate to a sample, but by an eighth at most: near the median, so that a processor
/// that was taken away once is no cost of sleeps.
fn move_to(estimate: &AtomicU64, sample: u64) {
    let before = estimate.load(Ordering::Relaxed);
    let most = before / WEIGHT + 1;
    estimate.store(sample.clamp(before.saturating_sub(most), before + most), Ordering::Relaxed);
}

/// The cost of a sleep within these bounds: 5 to 50 us were measured on virtual machines. If it is
/// more, a paced flow of 200 Mbit/s, with a packet each 60 us, must still not keep a core busy.
const COST_NS_MIN: u64 = 5_000;
const COST_NS_MAX: u64 = 50_000;

/// A sleep ends later than this only if its processor was taken away.
const LATE_NS_MAX: u64 = 3 * COST_NS_MAX;

/// Spins are tried in waits of at most twice that lateness: it is the other end's, too.
const TRIAL_NS_MAX: u64 = 2 * LATE_NS_MAX;

/// Waits longer than this are alike: no spin shortens them.
const LONG_NS: u64 = 8 * COST_NS_MAX;

/// Spins are tried in so many waits of so many, because what pays may have changed: long enough for
/// the other end to learn from it, and within 100 ms if wake-ups take 100 us.
const TRIAL_EVERY: u32 = 384;
const TRIAL_LEN: u32 = 12;

/// One of this many waits sleeps although spinning pays: few enough to stay out of the 99th
/// percentile.
const SLEEP_EVERY: u32 = 512;

/// One of this many sleeps is measured, which costs two system calls.
const MEASURE_EVERY: u32 = 16;

/// A sample has a weight of one in this many.
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

    /// Sleeps at either end in the last 1,000 of so many round trips, if each wake-up takes
    /// `wakeup_ns`.
    fn sleeps_of_ping_pong(wakeup_ns: u64, round_trips: u32) -> u32 {
        // A packet takes 4 us from the end of a wait to the other end.
        const PACKET_NS: u64 = 4_000;
        let (ends, mut sleeps) = ([(); 2].map(|()| Spinner::new(Polling::Adaptive)), 0);
        // Both have waited for long before.
        for end in &ends {
            spins(end, Awaited::Reply, [5_000_000; 2]);
        }
        let (mut now, mut waits) = (0, ends.each_ref().map(|end| (0, end.begin(Awaited::Reply))));
        for n in 0..2 * round_trips {
            let number = n as usize % 2;
            let (end, (since, wait)) = (&ends[number], waits[number]);
            let arrives = now + PACKET_NS;
            let sleeps_now = arrives - since > wait.spin_ns();
            now = arrives + if sleeps_now { wakeup_ns } else { 0 };
            if sleeps_now && end.measures_sleep() {
                end.slept(None, 15_000);
            }
            end.ended(wait, now - since);
            waits[number] = (now, end.begin(Awaited::Reply));
            sleeps += u32::from(sleeps_now && n >= 2 * round_trips - 2_000);
        }
        sleeps
    }

    #[test]
    fn begin__a_ping_pong_of_ends_that_sleep_begins_to_spin() {
        for us in [5, 20, 30, 45, 60, 100] {
            let round_trips = 100_000 / (2 * us + 8);
            let sleeps = sleeps_of_ping_pong(1_000 * u64::from(us), round_trips + 1_000);
            assert!(sleeps <= 10, "{us} us: {sleeps} sleeps in 2,000 waits");
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
