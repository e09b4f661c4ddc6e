//! Detection of disturbed samples.
//!
//! Two effects spoil a sample without a trace in its numbers. The hypervisor of a virtual machine
//! moves its cores between core complexes: a cache line then takes about four times as long between
//! them, and all communication between cores slows down. And another program may have run on the
//! core. Both are measured around every sample.

use serde::Serialize;
use spanwire_host::fabric::Error;
use spanwire_host::quantity::limit;
use spanwire_io::{affinity, thread_time};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The limits of an undisturbed sample.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, clap::Args)]
pub struct Limits {
    // Cores of one complex are at about 110 ns, of two at about 450 ns.
    /// Drop a sample if a cache line takes longer than this from core to core and back
    #[arg(long = "max-distance", value_name = "NS", default_value_t = 220.0, value_parser = limit)]
    pub distance_ns: f64,
    // 3 % is less than the differences between samples of a quiet machine.
    /// Drop a sample if a thread waited for its core for more than this share of the time
    #[arg(long = "max-stolen", value_name = "PERCENT", default_value = "3",
        value_parser = |text: &str| limit(text).map(|percent| percent / 100.0))]
    pub stolen: f64,
}

/// The reason a sample was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// The cores were in different complexes, before or after.
    CoresApart,
    /// Another program used a core for too long.
    Stolen,
}

/// The share of a period in which a runnable thread waited for its core, 0..=1 (steal).
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize)]
pub struct Stolen(pub f64);

/// Use of a core by a thread during a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ThreadUse {
    /// The time that it waited.
    pub stolen: Stolen,
    /// Its processor time in seconds, user and system.
    pub cpu_s: f64,
}

/// Scheduler statistics of all threads of a process that have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scheduled {
    /// Their processor time, user and system.
    pub ran: Duration,
    /// The time in which they waited for a core.
    pub waited: Duration,
}

/// Measures [`ThreadUse`] for the thread that starts and ends it.
#[derive(Clone, Copy, Debug)]
pub struct StealWatch {
    since: Instant,
    waited: Duration,
    cpu: Duration,
}

impl Limits {
    /// The disturbance of a sample, if any: `distances_ns` before and after it, and the steal of
    /// its two threads.
    #[must_use]
    pub fn check(&self, distances_ns: [f64; 2], stolen: [Stolen; 2]) -> Option<Disturbance> {
        // Not `>`: NaN must not pass.
        if !distances_ns.iter().all(|ns| *ns <= self.distance_ns) {
            return Some(Disturbance::CoresApart);
        }
        if !stolen.iter().all(|share| share.0 <= self.stolen) {
            return Some(Disturbance::Stolen);
        }
        None
    }
}

impl StealWatch {
    /// Starts watching the calling thread.
    ///
    /// # Errors
    /// The kernel keeps no scheduler statistics (`CONFIG_SCHED_INFO`).
    pub fn start() -> Result<Self, Error> {
        Ok(Self { since: Instant::now(), waited: waited()?, cpu: cpu_time() })
    }

    /// The use of the core by the calling thread, which must be the one that started the watch.
    ///
    /// # Errors
    /// As [`StealWatch::start`].
    pub fn thread_use(self) -> Result<ThreadUse, Error> {
        let cpu_s = cpu_time().saturating_sub(self.cpu).as_secs_f64();
        Ok(ThreadUse { stolen: self.end()?, cpu_s })
    }

    /// The steal of the calling thread, which must be the one that started the watch.
    ///
    /// # Errors
    /// As [`StealWatch::start`].
    pub fn end(self) -> Result<Stolen, Error> {
        let waited = waited()?.saturating_sub(self.waited);
        // Read last, as it is first at the start, so that the wait is within it.
        let elapsed = self.since.elapsed().max(Duration::from_nanos(1));
        Ok(Stolen(waited.as_secs_f64() / elapsed.as_secs_f64()))
    }
}

impl Scheduled {
    /// That of a process so far, to the nanosecond.
    ///
    /// # Errors
    /// There is no such process, or as [`StealWatch::start`].
    pub fn of_process(pid: u32) -> Result<Self, Error> {
        let path = format!("/proc/{pid}/task");
        let mut all = Self::default();
        for thread in std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?.flatten() {
            let text = std::fs::read_to_string(thread.path().join("schedstat"));
            // A thread that has ended meanwhile has none.
            let Some(thread) = text.ok().as_deref().and_then(parse_schedstat) else { continue };
            all = Self { ran: all.ran + thread.ran, waited: all.waited + thread.waited };
        }
        Ok(all)
    }

    /// The difference to those of `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let ran = self.ran.saturating_sub(before.ran);
        Self { ran, waited: self.waited.saturating_sub(before.waited) }
    }
}

/// The time in which cores of this machine were idle so far, all cores added; interrupts end it.
///
/// # Errors
/// `/proc/stat` is another one.
pub fn idle_time() -> Result<Duration, Error> {
    let text = std::fs::read_to_string("/proc/stat")?;
    Ok(parse_idle(&text).ok_or_else(|| format!("/proc/stat: cannot read {text:?}"))?)
}

/// The fourth and fifth number, without work and without input, in hundredths of a second.
fn parse_idle(stat: &str) -> Option<Duration> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
    let idle =
        numbers.split_ascii_whitespace().skip(3).take(2).map(|ticks| ticks.parse::<u64>().ok());
    idle.sum::<Option<u64>>().map(|ticks| Duration::from_millis(10 * ticks))
}

/// The round trip of a cache line between the two cores, in nanoseconds: the median of
/// several short runs, so that an interrupt does not count as distance.
///
/// # Errors
/// A thread may not run on one of the cores.
pub fn core_distance_ns(cores: [usize; 2]) -> Result<f64, Error> {
    let ball = Line(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let back = scope.spawn(|| {
            affinity::pin(cores[1])?;
            return_ball(&ball.0);
            Ok::<_, Error>(())
        });
        let forth = scope.spawn(|| {
            let pinned = affinity::pin(cores[0]);
            let median = serve_ball(&ball.0);
            pinned?;
            Ok::<_, Error>(median)
        });
        let back = back.join().expect("the returner does not panic");
        let forth = forth.join().expect("the server does not panic");
        back.and(forth)
    })
}

/// A counter alone on its cache line, and on the one that the prefetcher fetches with it.
#[repr(align(128))]
struct Line(AtomicU32);

/// Runs [`RUNS`] runs and returns the median round trip; [`OVER`] stops the partner. A partner
/// that never starts (it could not be pinned) ends it too.
fn serve_ball(ball: &AtomicU32) -> f64 {
    let mut runs = Vec::with_capacity(RUNS);
    let mut trip = 0;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..TRIPS {
            ball.store(2 * trip + 1, Ordering::Release);
            let mut spins = 0u32;
            while ball.load(Ordering::Acquire) != 2 * trip + 2 {
                spins += 1;
                if spins.is_multiple_of(SPINS_PER_LOOK) && start.elapsed() > TIME_LIMIT {
                    ball.store(OVER, Ordering::Release);
                    return f64::INFINITY;
                }
            }
            trip += 1;
        }
        runs.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS));
    }
    ball.store(OVER, Ordering::Release);
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

fn return_ball(ball: &AtomicU32) {
    loop {
        match ball.load(Ordering::Acquire) {
            OVER => return,
            odd if odd % 2 == 1 => {
                // The server may have stopped meanwhile; its value must not be overwritten.
                let _ = ball.compare_exchange(odd, odd + 1, Ordering::AcqRel, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// Processor time of the calling thread, user and system.
#[must_use]
pub fn cpu_time() -> Duration {
    Duration::from_nanos(thread_time::work_ns())
}

/// The time for which the calling thread was runnable without a core, since its start.
fn waited() -> Result<Duration, Error> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let thread = parse_schedstat(&text);
    Ok(thread.ok_or_else(|| format!("{path}: cannot read {text:?}"))?.waited)
}

/// The first two of schedstat's three numbers: on CPU, waiting, time slices.
fn parse_schedstat(text: &str) -> Option<Scheduled> {
    let numbers: Vec<_> = text.split_ascii_whitespace().collect();
    let [ran, waited, _time_slices, ..] = numbers[..] else { return None };
    let ns = |number: &str| number.parse().ok().map(Duration::from_nanos);
    Some(Scheduled { ran: ns(ran)?, waited: ns(waited)? })
}

const RUNS: usize = 31;
const TRIPS: u32 = 250;
/// A value that the counter cannot reach in `RUNS * TRIPS`.
const OVER: u32 = u32::MAX;
const SPINS_PER_LOOK: u32 = 1 << 16;
/// A run takes some 100 us; a partner that does not respond for this long has failed.
const TIME_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicBool, AtomicU64};

    const LIMITS: Limits = Limits { distance_ns: 220.0, stolen: 0.03 };

    #[test]
    fn check__each_side_of_each_limit() {
        let calm = [Stolen(0.0), Stolen(0.03)];
        assert_eq!(LIMITS.check([110.0, 220.0], calm), None);
        let apart = Some(Disturbance::CoresApart);
        assert_eq!(LIMITS.check([221.0, 110.0], calm), apart);
        assert_eq!(LIMITS.check([110.0, 450.0], calm), apart);
        assert_eq!(LIMITS.check([f64::NAN, 110.0], calm), apart);
        assert_eq!(LIMITS.check([f64::INFINITY, 110.0], calm), apart);
        let stolen = Some(Disturbance::Stolen);
        assert_eq!(LIMITS.check([110.0; 2], [Stolen(0.031), Stolen(0.0)]), stolen);
        assert_eq!(LIMITS.check([110.0; 2], [Stolen(0.0), Stolen(0.5)]), stolen);
    }

    #[test]
    fn steal_watch__two_threads_on_one_core_steal_from_each_other() {
        let core = affinity::usable_cores()[0];
        let zero = Instant::now();
        let starts = [(); 2].map(|()| AtomicU64::new(u64::MAX));
        let is_over = AtomicBool::new(false);
        let spin = |me: usize| {
            affinity::pin(core).unwrap();
            let ns = || u64::try_from(zero.elapsed().as_nanos()).unwrap();
            let watch = StealWatch::start().unwrap();
            starts[me].store(ns(), Ordering::SeqCst);
            while !is_over.load(Ordering::SeqCst) {
                let [a, b] = starts.each_ref().map(|start| start.load(Ordering::SeqCst));
                let (first, both) = (a.min(b), a.max(b));
                // Both watch for 200 ms and for three times as long as one did alone.
                let is_long = both < u64::MAX && ns() > both + 200_000_000 + 3 * (both - first);
                is_over.fetch_or(is_long, Ordering::SeqCst);
            }
            watch.end().unwrap().0
        };
        let [a, b] = std::thread::scope(|scope| {
            [0, 1].map(|me| scope.spawn(move || spin(me))).map(|thread| thread.join().unwrap())
        });
        // Alone, each would not wait; together, each waits while the other runs.
        assert!(a + b > 0.5, "{a} and {b}");
        assert!(a <= 1.01 && b <= 1.01, "{a} and {b}");
    }

    #[test]
    fn thread_use__is_the_time_of_the_calling_thread_only() {
        let watch = StealWatch::start().unwrap();
        std::thread::spawn(|| {
            let own = cpu_time();
            while cpu_time() - own < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        })
        .join()
        .unwrap();
        let idle = watch.thread_use().unwrap().cpu_s;
        let (watch, before) = (StealWatch::start().unwrap(), cpu_time());
        while cpu_time() - before < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let busy = watch.thread_use().unwrap().cpu_s;
        assert!(busy >= 0.02, "{busy}");
        assert!(idle < busy, "{idle} of a thread that waited, {busy} of one that did not");
    }

    #[test]
    fn core_distance_ns__is_no_less_than_a_time_of_memory() {
        let [a, b, ..] = affinity::usable_cores()[..] else {
            eprintln!("SKIPPED: one core only");
            return;
        };
        let ns = core_distance_ns([a, b]).unwrap();
        // It is a median, and longer or infinite if other programs use the cores.
        assert!(ns >= 5.0, "{ns}");
    }

    #[test]
    fn core_distance_ns__no_such_core_is_an_error_not_a_hang() {
        let core = affinity::usable_cores()[0];
        assert!(core_distance_ns([core, 1000]).is_err());
        assert!(core_distance_ns([1000, core]).is_err());
    }

    #[test]
    fn parse_idle__is_that_of_all_cores() {
        let stat = "cpu  100 20 3 400 50 4 5 6 70 80\ncpu0 1 1 1 1\n";
        assert_eq!(parse_idle(stat), Some(Duration::from_millis(4500)));
        assert_eq!(parse_idle("cpu  1 2 3 x 5"), None);
        assert_eq!(parse_idle(""), None);
    }

    #[test]
    fn parse_schedstat__takes_two_of_three() {
        let [ran, waited] = [123, 456].map(Duration::from_nanos);
        assert_eq!(parse_schedstat("123 456 7\n"), Some(Scheduled { ran, waited }));
        assert_eq!(parse_schedstat("123 456\n"), None);
        assert_eq!(parse_schedstat("123 x 7\n"), None);
        assert_eq!(parse_schedstat(""), None);
    }
}
