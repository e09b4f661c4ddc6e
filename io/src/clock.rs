//! The only source of time; all other modules get `now` as an argument.

use crate::tsc::{self, Machine, Steered};
use spanwire_base::Time;
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The machine's clock, counted from its creation.
///
/// Its source is the TSC if that is trustworthy, compared with `CLOCK_MONOTONIC` ten times a second
/// and slewed by at most a thousandth. A counter that proves wrong is abandoned for good; time may
/// then leap ahead by a tenth of a second. If the TSC is not trustworthy, the source is
/// `CLOCK_MONOTONIC` from the start. In both cases time never decreases on any core, even if the
/// thread is preempted, and all clocks of a process run alike.
///
/// A copy keeps the origin, so nodes that share one clock share one time line: their deadlines,
/// logs and captures are comparable.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: &'static Steered<Machine>,
    start_ps: u64,
    wall_start: SystemTime,
}

/// A source of the time for drivers and ports. A [`Time`] is a clock that stands still, for tests.
pub trait TimeSource {
    /// The present time, never less than any earlier reading.
    fn now(&self) -> Time;

    /// A time of `CLOCK_MONOTONIC` in nanoseconds, the timestamps of the kernel; none if the source
    /// has no relation to it.
    fn of_monotonic_ns(&self, ns: u64) -> Option<Time>;

    /// A recent time of `CLOCK_REALTIME` in nanoseconds, the timestamps of sockets; none if the
    /// source has no relation to it. Wrong by a step of the wall clock since then.
    fn of_realtime_ns(&self, ns: u64) -> Option<Time> {
        let _ = ns;
        None
    }
}

/// The source of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockSource {
    /// The processor's time-stamp counter (TSC).
    Tsc,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
}

impl Clock {
    /// A clock that reads [`Time::ZERO`] now. The first one of a process takes a millisecond to
    /// calibrate the tick length.
    #[must_use]
    pub fn start() -> Self {
        static SOURCE: OnceLock<Steered<Machine>> = OnceLock::new();
        let source = SOURCE.get_or_init(|| {
            let machine = Machine::start();
            if tsc::is_trustworthy() {
                Steered::calibrated(machine)
            } else {
                Steered::monotonic(machine)
            }
        });
        Self { source, start_ps: source.now_ps(), wall_start: SystemTime::now() }
    }

    /// The time since the start, never less than any earlier reading. After 213 days it stops at
    /// about [`Time::MAX`].
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        // The source is monotonic as long as its counter is. If that steps back by less than the
        // time between two comparisons, each thread still reads no less than before.
        let ps = LATEST_PS.with(|latest| monotonic(latest, self.source.now_ps()));
        Time::from_ps(ps.saturating_sub(self.start_ps))
    }

    /// The present source of the time.
    #[must_use]
    pub fn source(&self) -> ClockSource {
        if self.source.counts_ticks() { ClockSource::Tsc } else { ClockSource::Monotonic }
    }

    /// The wall-clock time of [`Time::ZERO`], for captures and logs only. It is read once, so a
    /// step of the wall clock (NTP) cannot affect any node.
    #[must_use]
    pub fn wall_start(&self) -> SystemTime {
        self.wall_start
    }
}

impl TimeSource for Clock {
    #[inline]
    fn now(&self) -> Time {
        self.now()
    }

    /// Exact to the difference of the two clocks, usually less than a microsecond.
    #[inline]
    fn of_monotonic_ns(&self, ns: u64) -> Option<Time> {
        let since_start = ns.saturating_sub(self.source.counter().start_ns());
        Some(Time::from_ps(since_start.saturating_mul(1_000).saturating_sub(self.start_ps)))
    }

    #[inline]
    fn of_realtime_ns(&self, ns: u64) -> Option<Time> {
        let age_ns = unix_ns(SystemTime::now()).saturating_sub(ns);
        Some(Time::from_ps(self.now().as_ps().saturating_sub(age_ns.saturating_mul(1_000))))
    }
}

impl TimeSource for Time {
    fn now(&self) -> Time {
        *self
    }

    fn of_monotonic_ns(&self, _: u64) -> Option<Time> {
        None
    }
}

/// Whole nanoseconds since 1970 of a wall-clock time; zero before that, saturated in 2554.
pub(crate) fn unix_ns(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// `ps`, or the latest reading if that is greater.
#[inline]
fn monotonic(latest: &Cell<u64>, ps: u64) -> u64 {
    latest.set(latest.get().max(ps));
    latest.get()
}

thread_local! {
    /// The latest reading of this thread: all clocks share one source.
    static LATEST_PS: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Dur;
    use std::time::{Duration, Instant};

    #[test]
    fn now__starts_near_zero_and_never_decreases() {
        let before = Instant::now();
        let clock = Clock::start();
        let mut last = clock.now();
        let elapsed = Dur::from_us(u64::try_from(before.elapsed().as_micros()).expect("short"));
        assert!(last < Time::ZERO + elapsed + Dur::from_secs(1), "{last:?}");
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn now__advances_by_the_time_slept() {
        let clock = Clock::start();
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(clock.now().since(before) >= Dur::from_ms(5));
    }

    #[test]
    fn now__is_shared_by_copies() {
        let clock = Clock::start();
        let copy = clock;
        std::thread::sleep(Duration::from_millis(2));
        let (a, b) = (clock.now(), copy.now());
        assert!(b >= a, "a copy must keep the origin");
    }

    #[test]
    fn source__is_the_counter_where_it_can_be_trusted() {
        // It may have been abandoned meanwhile; if it is not trustworthy, it never was the counter.
        let source = Clock::start().source();
        assert!(source == ClockSource::Monotonic || tsc::is_trustworthy());
    }

    #[test]
    fn now__of_two_clocks_differs_by_their_starts() {
        let a = Clock::start();
        std::thread::sleep(Duration::from_millis(3));
        let b = Clock::start();
        // The later clock is read first: a preemption between the readings only adds to it.
        let later = b.now();
        assert!(a.now().since(later) >= Dur::from_us(2_900));
    }

    #[test]
    fn monotonic__stands_still_when_the_source_steps_back() {
        let latest = Cell::new(0);
        let read = [5, 9, 7, 8, 10].map(|ps| monotonic(&latest, ps));
        assert_eq!(read, [5, 9, 9, 9, 10]);
    }

    #[test]
    fn unix_ns__is_zero_before_the_epoch() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(unix_ns(epoch - Duration::from_secs(1)), 0);
        assert_eq!(unix_ns(epoch + Duration::from_nanos(1_500)), 1_500);
    }
}
