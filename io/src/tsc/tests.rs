use super::*;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// A simulated machine with a counter and a clock.
#[derive(Debug)]
struct Fake {
    /// True time, picoseconds.
    true_ps: Cell<u64>,
    /// Ticks at time zero.
    origin: Cell<u64>,
    /// Ticks in 1000 seconds of true time.
    ticks_per_ks: Cell<u64>,
    /// Ticks in addition to those of the elapsed time.
    extra: Cell<u64>,
    /// Drift of the monotonic clock in parts per million, from a true time and its own on.
    drift: Cell<(i64, u64, u64)>,
    /// Duration of each reading of the clock; then one by one from here, if there are any.
    read_ps: Cell<u64>,
    preempted_ps: RefCell<VecDeque<u64>>,
}

impl Fake {
    /// About 2.45 GHz, starting shortly before the ticks wrap.
    fn new() -> Self {
        Self {
            true_ps: Cell::new(0),
            origin: Cell::new(u64::MAX - 1_000_000_000),
            ticks_per_ks: Cell::new(2_449_999_777_123),
            extra: Cell::new(0),
            drift: Cell::new((0, 0, 0)),
            read_ps: Cell::new(25_000),
            preempted_ps: RefCell::default(),
        }
    }

    /// Sets the drift of the monotonic clock from now on, in parts per million.
    fn run_fast_by(&self, ppm: i64) {
        self.drift.set((ppm, self.true_ps.get(), self.clock_ps()));
    }

    fn clock_ps(&self) -> u64 {
        let (ppm, from, clock_ps) = self.drift.get();
        let passed = i128::from(self.true_ps.get() - from);
        clock_ps + u64::try_from(passed + passed * i128::from(ppm) / 1_000_000).unwrap()
    }

    fn pass(&self, ps: u64) {
        self.true_ps.set(self.true_ps.get() + ps);
    }
}

impl Counter for &Fake {
    fn ticks(&self) -> u64 {
        self.pass(5_000);
        let ticks = u128::from(self.true_ps.get()) * u128::from(self.ticks_per_ks.get())
            / 1_000_000_000_000_000;
        let ticks = u64::try_from(ticks).unwrap();
        self.origin.get().wrapping_add(ticks).wrapping_add(self.extra.get())
    }

    fn monotonic_ps(&self) -> u64 {
        let stolen = self.preempted_ps.borrow_mut().pop_front();
        self.pass(stolen.unwrap_or(self.read_ps.get()));
        // Whole nanoseconds, like the kernel's.
        self.clock_ps() / 1000 * 1000
    }
}

/// Reads every `step_ps` for `steps` steps and checks that time never decreases. Returns the
/// largest difference from the monotonic clock in the last tenth.
fn run(clock: &Steered<&Fake>, step_ps: u64, steps: u64) -> u64 {
    let (mut last, mut worst) = (clock.now_ps(), 0);
    for i in 0..steps {
        clock.counter.pass(step_ps);
        let now = clock.now_ps();
        assert!(now >= last, "fell by {}", last - now);
        last = now;
        if i >= steps - steps.div_ceil(10) {
            worst = worst.max(now.abs_diff(clock.counter.monotonic_ps()));
        }
    }
    worst
}

#[test]
fn now_ps__follows_the_monotonic_clock_to_a_fraction_of_a_microsecond() {
    let fake = Fake::new();
    let clock = Steered::calibrated(&fake);
    assert!(clock.counts_ticks());
    // A minute, read each millisecond, with the counter wrapping in the first second.
    let worst = run(&clock, MS, 60_000);
    assert!(worst < 200_000, "{worst} ps");
}

#[test]
fn now_ps__slews_after_a_clock_that_drifts() {
    for ppm in [-400, -3, 3, 400] {
        let fake = Fake::new();
        let clock = Steered::calibrated(&fake);
        run(&clock, MS, 1000);
        fake.run_fast_by(ppm);
        let worst = run(&clock, MS, 3000);
        assert!(clock.counts_ticks(), "{ppm}");
        assert!(worst < 200_000, "{ppm}: {worst} ps");
    }
}

#[test]
fn now_ps__a_difference_is_slewed_without_a_leap() {
    let fake = Fake::new();
    let clock = Steered::calibrated(&fake);
    run(&clock, MS, 1000);
    // 50 us more, and less, than the clock has compared: at most half a thousandth.
    for extra in [122_500_u64, 122_500_u64.wrapping_neg().wrapping_mul(2)] {
        // Even backwards the reader sees no leap: its piece began long ago.
        fake.pass(50 * MS);
        let before = (clock.now_ps(), fake.true_ps.get());
        fake.extra.set(fake.extra.get().wrapping_add(extra));
        let mut last = (before.0, before.1);
        for i in 0..3000 {
            fake.pass(MS);
            let now = (clock.now_ps(), fake.true_ps.get());
            let (by_clock, by_time) = (now.0 - last.0.min(now.0), now.1 - last.1);
            // The first step includes the counter's change. Later ones include at most the slew and
            // a quarter of the rate that the leap appears as.
            let most = by_time + by_time / 1000;
            let least = by_time - by_time / 1000;
            assert!(i == 0 || (least..=most).contains(&by_clock), "{i}: {by_clock} in {by_time}");
            last = now;
        }
        assert!(clock.now_ps().abs_diff(fake.true_ps.get()) < 300_000, "{extra}");
    }
    assert!(clock.counts_ticks());
}

#[test]
fn now_ps__a_preempted_comparison_is_ignored() {
    let fake = Fake::new();
    let clock = Steered::calibrated(&fake);
    run(&clock, MS, 1000);
    for stolen in [20 * MS / 1000, 3 * MS, 1500 * MS] {
        // Several comparisons are preempted.
        fake.preempted_ps.borrow_mut().extend(vec![stolen; READINGS * 3]);
        let worst = run(&clock, MS, 2000);
        assert!(fake.preempted_ps.borrow().is_empty());
        assert!(clock.counts_ticks(), "{stolen}");
        assert!(worst < 1_000_000, "{stolen}: {worst}");
    }
}

#[test]
fn now_ps__continues_at_the_right_time_after_a_long_sleep() {
    let fake = Fake::new();
    let clock = Steered::calibrated(&fake);
    run(&clock, MS, 1000);
    for seconds in [1, 10, 3600] {
        fake.pass(seconds * 1000 * MS);
        let now = clock.now_ps();
        // Known to about 10^-7 from pieces of a tenth of a second.
        let off = now.abs_diff(fake.true_ps.get());
        assert!(off < 1_000_000 + seconds * 1_000_000, "{seconds}: {off}");
        assert!(clock.counts_ticks());
        assert!(run(&clock, MS, 3000) < 1_000_000);
    }
}

#[test]
fn now_ps__a_leaping_counter_is_abandoned_without_time_going_back() {
    // By a day, by the time since its start, by a second; and a counter that stops, or runs at half
    // its rate.
    let leaps: [fn(&Fake); 6] = [
        |f| f.extra.set(2_450_000_000 * 86_400),
        |f| f.extra.set(2_450_000_000_u64.wrapping_neg()),
        |f| f.extra.set(2_450_000_000),
        |f| f.extra.set((2_450_000_000_u64 * 3600).wrapping_neg()),
        |f| {
            f.origin.set((&f).ticks());
            f.ticks_per_ks.set(0);
        },
        |f| {
            f.origin.set((&f).ticks());
            f.ticks_per_ks.set(1_225_000_000_000);
            let since_zero = u128::from(f.true_ps.get()) * 1_225 / 1_000_000;
            f.extra.set(u64::try_from(since_zero).unwrap().wrapping_neg());
        },
    ];
    for (i, leap) in leaps.iter().enumerate() {
        let fake = Fake::new();
        let clock = Steered::calibrated(&fake);
        run(&clock, MS, 1000);
        let before = clock.now_ps();
        leap(&fake);
        let mut last = before;
        for _ in 0..3000 {
            fake.pass(MS);
            let now = clock.now_ps();
            assert!(now >= last, "{i}");
            last = now;
        }
        // A stopped counter never reaches the end of its piece: see below.
        if i != 4 {
            assert!(!clock.counts_ticks(), "{i}");
            let (off, true_ps) = (last.abs_diff(fake.true_ps.get()), fake.true_ps.get());
            assert!(off <= PIECE_PS + PIECE_PS / 1000, "{i}: {off} at {true_ps}");
        }
    }
}

#[test]
fn calibrated__an_unusable_counter_falls_back_to_the_monotonic_clock() {
    let fake = Fake::new();
    fake.ticks_per_ks.set(0);
    let clock = Steered::calibrated(&fake);
    assert!(!clock.counts_ticks());
    assert_eq!(run(&clock, MS, 100), run(&Steered::monotonic(&fake), MS, 100));
    // A counter that cannot be compared, because every comparison is preempted.
    let fake = Fake::new();
    fake.read_ps.set(MS / 2);
    assert!(!Steered::calibrated(&fake).counts_ticks());
}

#[test]
fn begin_next_piece__time_stops_at_the_end_while_another_thread_begins_it() {
    let fake = Fake::new();
    let clock = Steered::calibrated(&fake);
    let (_, piece) = clock.piece();
    fake.pass(50 * MS);
    {
        let _busy = clock.steering.lock().unwrap();
        assert_eq!(clock.now_ps(), piece.end_ps());
        fake.pass(MS);
        assert_eq!(clock.now_ps(), piece.end_ps());
    }
    assert!(clock.now_ps() > piece.end_ps() + 30 * MS);
}

#[test]
fn begin_next_piece__a_core_slightly_behind_reads_the_beginning() {
    let fake = Fake::new();
    let clock = Steered::calibrated(&fake);
    fake.pass(11 * MS);
    clock.now_ps();
    let (_, piece) = clock.piece();
    // 5000 ticks behind.
    fake.extra.set(5000_u64.wrapping_neg());
    assert_eq!(clock.now_ps(), piece.begin_ps);
    fake.pass(3 * MS / 1000);
    assert!(clock.now_ps() > piece.begin_ps);
}

#[test]
fn piece__is_consistent_under_concurrent_writes() {
    let machine = Machine::start();
    let clock = Steered::calibrated(machine);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [0; 2].map(|_| {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (number, piece) = clock.piece();
                    let want = [number, number * 3, number * 5 + 1, number * 7];
                    let got = [piece.begin_ticks, piece.begin_ps, piece.slope, piece.len_ticks];
                    assert!(number == 0 || got == want, "{number}: {piece:?}");
                    assert!(number >= last);
                    last = number;
                }
                last
            })
        });
        for n in 1..200_000 {
            let piece =
                Piece { begin_ticks: n, begin_ps: n * 3, slope: n * 5 + 1, len_ticks: n * 7 };
            clock.publish(n, &piece);
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn now_ps__of_this_machine_follows_instant_on_every_core() {
    if !is_trustworthy() {
        eprintln!("the TSC of this machine is not trustworthy: the monotonic clock is used");
        return;
    }
    let clock = Steered::calibrated(Machine::start());
    let newest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads = [0; 3].map(|_| {
            scope.spawn(|| {
                while clock.counter.monotonic_ps() < 400 * MS {
                    // Not less than a reading of another thread before this one.
                    let before = newest.load(Ordering::Acquire);
                    let now = clock.now_ps();
                    assert!(now >= before, "{now} {before}");
                    newest.fetch_max(now, Ordering::Release);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
    // The closest of several: the core may be preempted in between.
    let off = (0..100).map(|_| {
        let before = clock.counter.monotonic_ps();
        let now = clock.now_ps();
        let after = clock.counter.monotonic_ps();
        now.saturating_sub(after).max(before.saturating_sub(now))
    });
    let off = off.min().unwrap_or(u64::MAX);
    assert!(!clock.counts_ticks() || off < 50_000_000, "{off} ps");
}
