//! When an idle driver sleeps: the rule of the real one, in simulated time.

use spanwire_base::{Awaited, Dur, Time};
use spanwire_progress::{Polling, Spinner, Wait};

/// The waits of a driver.
#[derive(Debug)]
pub(super) struct Waits {
    polling: Polling,
    spinner: Spinner,
    /// Since when the driver has had no work.
    current: Option<(Time, Wait)>,
}

impl Waits {
    pub(super) fn new(polling: Polling) -> Self {
        Self { polling, spinner: Spinner::new(polling), current: None }
    }

    /// A step at `now` found no work. Returns when the driver sleeps, unless a frame arrives or it
    /// reaches its `deadline` before; [`Time::MAX`] if it spins until then.
    pub(super) fn sleeps_at(
        &mut self,
        now: Time,
        awaited: Awaited,
        deadline: Option<Time>,
    ) -> Time {
        if self.polling != Polling::Adaptive {
            // A fixed spin begins again with each step; its hosts' event hashes are recorded.
            return now + Dur::from_ns(self.spinner.begin(awaited).spin_ns());
        }
        let (since, wait) = *self.current.get_or_insert_with(|| (now, self.spinner.begin(awaited)));
        let sleeps_at = now.max(since + Dur::from_ns(wait.spin_ns()));
        let is_near = |at: Time| at >= sleeps_at && wait.spins_for(at.since(sleeps_at).as_ns());
        if deadline.is_some_and(is_near) { Time::MAX } else { sleeps_at }
    }

    /// A sleep that was planned until `until` ended at `now`.
    pub(super) fn slept(&self, until: Option<Time>, now: Time) {
        if self.spinner.measures_sleep() {
            let late = until.filter(|at| *at <= now).map(|at| now.since(at).as_ns());
            self.spinner.slept(late, SLEEP_WORK.as_ns());
        }
    }

    /// A step at `now` found work.
    pub(super) fn ended(&mut self, now: Time) {
        if let Some((since, wait)) = self.current.take() {
            self.spinner.ended(wait, now.since(since).as_ns());
        }
    }
}

/// Processor time of a sleep: the median of 12,000 on the machine of the host traces.
const SLEEP_WORK: Dur = Dur::from_us(19);

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + Dur::from_us(n)
    }

    #[test]
    fn sleeps_at__a_fixed_spin_begins_with_each_step_and_a_busy_one_never_ends() {
        for (polling, expected) in
            [(Polling::Spin(Dur::from_us(20)), us(30)), (Polling::Busy, Time::MAX)]
        {
            let mut waits = Waits::new(polling);
            for deadline in [None, Some(us(11)), Some(us(31))] {
                assert_eq!(waits.sleeps_at(us(10), Awaited::Anything, deadline), expected);
            }
        }
    }

    #[test]
    fn sleeps_at__a_near_deadline_is_spun_for_and_a_wait_lasts_over_idle_steps() {
        let mut waits = Waits::new(Polling::Adaptive);
        let mut sleeps_at = |now, deadline| waits.sleeps_at(us(now), Awaited::Reply, deadline);
        // A sleep costs 30 us at first.
        assert_eq!(sleeps_at(10, None), us(40));
        assert_eq!(sleeps_at(25, Some(us(71))), us(40));
        assert_eq!(sleeps_at(25, Some(us(70))), Time::MAX);
        assert_eq!(sleeps_at(45, None), us(45));
    }

    #[test]
    fn ended__long_waits_make_the_next_one_sleep_at_once() {
        let mut waits = Waits::new(Polling::Adaptive);
        for n in 0..10 {
            waits.sleeps_at(us(1_000 * n), Awaited::Reply, None);
            waits.slept(None, us(1_000 * n + 500));
            waits.ended(us(1_000 * n + 500));
        }
        assert_eq!(waits.sleeps_at(us(10_000), Awaited::Reply, None), us(10_000));
    }
}
