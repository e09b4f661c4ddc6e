//! The only clock: everything else is told the time.

use crate::tsc::{self, Machine, Steered};
use spanwire_base::Time;
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The machine's clock, counted from the moment it was made.
///
/// It is the processor's counter of ticks where that can be trusted, compared with
/// `CLOCK_MONOTONIC` ten times a second and steered after it: a thousandth too fast or too slow at
/// most. A counter that turns out to be wrong is given up for good; time may leap ahead by a tenth
/// of a second then. Where it cannot be trusted it is `CLOCK_MONOTONIC` from the beginning.
/// Either way it never decreases, on any core, whatever takes the core away, and all clocks of a
/// process run alike.
///
/// A copy keeps the origin, so nodes that share one clock live on one time line: their deadlines,
/// logs and captures can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: &'static Steered<Machine>,
    start_ps: u64,
    wall_start: SystemTime,
}

/// What the time is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockSource {
    /// The processor's counter of ticks (TSC).
    Tsc,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
}

impl Clock {
    /// A clock that reads [`Time::ZERO`] now. The first one of a process takes a millisecond, to
    /// see how long a tick is.
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

    /// The time since the start; never less than any earlier reading. After 213 days it stands
    /// still at about [`Time::MAX`].
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        // The source never decreases as long as its counter does not; should that step back by less
        // than the time between two comparisons, each thread still reads no less than it did.
        let ps = LATEST_PS.with(|latest| no_less(latest, self.source.now_ps()));
        Time::from_ps(ps.saturating_sub(self.start_ps))
    }

    /// What the time is read from at present.
    #[must_use]
    pub fn source(&self) -> ClockSource {
        if self.source.counts_ticks() { ClockSource::Tsc } else { ClockSource::Monotonic }
    }

    /// The wall-clock time of [`Time::ZERO`]: for captures and logs only. It is read once, so a
    /// step of the wall clock (NTP) cannot reach any node.
    #[must_use]
    pub fn wall_start(&self) -> SystemTime {
        self.wall_start
    }
}

/// Whole nanoseconds since 1970 of a wall-clock time; zero before that, saturated in 2554.
pub(crate) fn unix_ns(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// `ps`, or what was latest if that is more.
#[inline]
fn no_less(latest: &Cell<u64>, ps: u64) -> u64 {
    latest.set(latest.get().max(ps));
    latest.get()
}

thread_local! {
    /// The latest time that this thread has read: all clocks have one source.
    static LATEST_PS: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Dur;
    use std::time::Duration;

    #[test]
    fn now__starts_near_zero_and_never_decreases() {
        let clock = Clock::start();
        let mut last = clock.now();
        assert!(last < Time::ZERO + Dur::from_secs(1));
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
        // It may have been given up meanwhile; without trust it never was the counter.
        let source = Clock::start().source();
        assert!(source == ClockSource::Monotonic || tsc::is_trustworthy());
    }

    #[test]
    fn now__of_two_clocks_differs_by_when_they_began() {
        let a = Clock::start();
        std::thread::sleep(Duration::from_millis(3));
        let b = Clock::start();
        assert!(a.now().since(b.now()) >= Dur::from_us(2_900));
    }

    #[test]
    fn no_less__stands_still_when_the_source_steps_back() {
        let latest = Cell::new(0);
        let read = [5, 9, 7, 8, 10].map(|ps| no_less(&latest, ps));
        assert_eq!(read, [5, 9, 9, 9, 10]);
    }

    #[test]
    fn unix_ns__is_zero_before_the_epoch() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(unix_ns(epoch - Duration::from_secs(1)), 0);
        assert_eq!(unix_ns(epoch + Duration::from_nanos(1_500)), 1_500);
    }
}
