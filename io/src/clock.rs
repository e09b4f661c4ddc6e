//! The only clock: everything else is told the time.

use spanwire_base::Time;
use std::time::{Instant, SystemTime};

/// The machine's monotonic clock (`CLOCK_MONOTONIC`), counted from the moment it was made.
///
/// A copy keeps the origin, so nodes that share one clock live on one time line: their deadlines,
/// logs and captures can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall_start: SystemTime,
}

impl Clock {
    /// A clock that reads [`Time::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now(), wall_start: SystemTime::now() }
    }

    /// The time since the start, in whole nanoseconds; never less than any earlier reading. After
    /// 213 days it stands still at [`Time::MAX`].
    #[must_use]
    pub fn now(&self) -> Time {
        let ns = self.start.elapsed().as_nanos();
        Time::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
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
    fn unix_ns__is_zero_before_the_epoch() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(unix_ns(epoch - Duration::from_secs(1)), 0);
        assert_eq!(unix_ns(epoch + Duration::from_nanos(1_500)), 1_500);
    }
}
