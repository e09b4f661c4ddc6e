//! The processor time of a thread, and how late the kernel may end its sleeps.

use rustix::thread::current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

/// The processor time of the calling thread, in ns.
#[must_use]
pub fn work_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}

/// By how many ns the kernel may delay the end of a sleep of the calling thread, so that sleeps end
/// together: 50,000 unless it is set (prctl(2), PR_SET_TIMERSLACK).
#[must_use]
pub fn slack_ns() -> u64 {
    current_timer_slack().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ns__grows_while_the_thread_works_and_not_while_it_sleeps() {
        let begin = work_ns();
        while work_ns() < begin + 1_000_000 {}
        let worked = work_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(work_ns() - worked < 10_000_000, "a sleep is no work");
    }

    #[test]
    fn slack_ns__is_that_of_the_thread() {
        let set = |ns| rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(ns));
        set(7_000).unwrap();
        assert_eq!(slack_ns(), 7_000);
    }
}
