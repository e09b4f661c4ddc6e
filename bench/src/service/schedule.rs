//! Requests at a constant rate, whatever happens to those before: an open loop.

use crate::quiet::cpu_time;
use crate::sample::Error;
use rustix::event::{PollFd, Timespec, poll};
use std::time::{Duration, Instant};

/// The times at which requests are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    start: Instant,
    per_s: u64,
}

impl Schedule {
    /// `per_s` requests a second from now on. Sleeps of the main thread then end within a
    /// microsecond, not the usual 50 that the kernel adds to save wake-ups.
    pub(super) fn start(per_s: u64) -> Self {
        // Without it requests are later, which their latencies show.
        let _ = std::fs::write("/proc/self/timerslack_ns", "1000");
        Self { start: Instant::now(), per_s }
    }

    /// The same, begun earlier.
    #[cfg(test)]
    pub(super) fn earlier(self, time: Duration) -> Self {
        Self { start: self.start - time, ..self }
    }

    /// When request `number` is due.
    pub(super) fn at(self, number: u64) -> Instant {
        self.start + Duration::from_nanos(number * 1_000_000_000 / self.per_s)
    }

    /// Processor time of the schedule alone for each request, in microseconds: it sleeps until the
    /// next is due, and nothing is sent.
    pub(super) fn own_cpu_us(self) -> Result<f64, Error> {
        let (alone, cpu, mut number) = (Self::start(self.per_s), cpu_time(), 0);
        while alone.start.elapsed() < ALONE {
            wait(&mut [], alone.at(number))?;
            while alone.at(number) <= Instant::now() {
                number += 1;
            }
        }
        Ok(cpu_time().saturating_sub(cpu).as_secs_f64() * 1e6 / number as f64)
    }
}

/// Waits for a descriptor until a time; false if none is ready then.
pub(super) fn wait(fds: &mut [PollFd<'_>], until: Instant) -> Result<bool, Error> {
    let left = until.saturating_duration_since(Instant::now());
    Ok(poll(fds, Some(&Timespec::try_from(left)?))? > 0)
}

const ALONE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at__is_exact_for_a_spacing_that_is_no_nanosecond() {
        let schedule = Schedule { start: Instant::now(), per_s: 3 };
        let due = |number| (schedule.at(number) - schedule.start).as_nanos();
        assert_eq!([0, 1, 2, 3].map(due), [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!(due(3_000_000), 1_000_000 * 1_000_000_000);
    }
}
