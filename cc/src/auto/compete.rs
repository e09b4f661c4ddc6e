//! The window beside traffic that fills the queue whatever its delay.
//!
//! A flow of `auto` that meets its like shrinks its window, and the delay of the queue falls to the
//! target. Beside CUBIC or BBR the delay stays, and a controller that goes on to yield ends without
//! a share of the link. Copa (NSDI'18) detects such traffic by a queue that never empties and then
//! reacts to losses only; so does this, with the window of CUBIC, until a drain shows that the
//! queue empties again.

use super::best::BestRate;
use super::cubic::Cubic;
use super::losses::{LOSS_DECREASE, Losses, State, Verdict};
use spanwire_base::{Dur, Time};

/// Detection of such traffic, and the window beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compete {
    run: Option<Run>,
    trial: Option<Trial>,
    cubic: Option<Cubic>,
    losses: Losses,
    /// Average of the delivery rate, and its maximum of recent time: the link, if the flow was
    /// alone.
    rate: f64,
    link: BestRate,
    /// Drains in a row that emptied the queue, and how many end this.
    empty: u32,
    empty_max: u32,
}

/// Intervals since there was last no queue.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The window when they began.
    cwnd: f64,
    /// Intervals in a row with a delay that no flow of `auto` tolerates, and with one that late
    /// starters of `auto` do not cause either.
    intolerable: u32,
    extreme: u32,
    /// Drains since they began.
    drains: u32,
    /// The last interval had no queue.
    is_over: bool,
}

/// The time after such traffic, which is expected to return.
#[derive(Clone, Copy, Debug)]
struct Trial {
    began: Time,
    cwnd: f64,
    intervals: u32,
    /// Average of the delay of the queue, ns.
    queue: f64,
}

/// The state of a flow at the end of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The window, and the smallest one, bytes.
    pub(super) cwnd: f64,
    pub(super) cwnd_min: f64,
    /// The delay of the queue, and the longest target of any flow, ns.
    pub(super) queue: f64,
    pub(super) longest: f64,
}

impl Compete {
    pub(super) fn new() -> Self {
        Self {
            run: None,
            trial: None,
            cubic: None,
            losses: Losses::new(LOSS_MIN),
            rate: 0.0,
            link: BestRate::new(LINK_WINDOW),
            empty: 0,
            empty_max: EMPTY_DRAINS,
        }
    }

    /// Other traffic fills the queue.
    pub(super) fn is_on(&self) -> bool {
        self.cubic.is_some()
    }

    /// Applies an interval in which the flow decreased its window for the delay; if the
    /// queue is that of other traffic, the window to return to.
    pub(super) fn observe(&mut self, now: Time, v: &View) -> Option<f64> {
        if let Some(cwnd) = self.observe_trial(now, v) {
            self.empty_max = (self.empty_max * 2).min(EMPTY_DRAINS_MAX);
            return Some(self.start(now, cwnd, true));
        }
        let cwnd = self.observe_run(v)?;
        self.empty_max = EMPTY_DRAINS;
        Some(self.start(now, cwnd, cwnd > 2.0 * v.cwnd_min))
    }

    fn observe_run(&mut self, v: &View) -> Option<f64> {
        let is_over = v.queue < v.longest * NO_QUEUE;
        if is_over && self.run.is_none_or(|run| run.is_over) {
            self.run = None;
            return None;
        }
        let first = Run { cwnd: v.cwnd, intolerable: 0, extreme: 0, drains: 0, is_over };
        let run = self.run.get_or_insert(first);
        run.is_over = is_over;
        let count = |intervals, is| if is { intervals + 1 } else { 0 };
        run.intolerable = count(run.intolerable, v.queue > LONGER * v.longest);
        run.extreme = count(run.extreme, v.queue > EXTREME * v.longest);
        let has_yielded = v.cwnd <= (run.cwnd / 2.0).max(v.cwnd_min);
        let is_others = run.drains >= DRAINS && run.intolerable >= INTERVALS;
        (has_yielded && (is_others || run.extreme >= EXTREME_INTERVALS)).then_some(run.cwnd)
    }

    fn observe_trial(&mut self, now: Time, v: &View) -> Option<f64> {
        let trial = self.trial.as_mut()?;
        trial.intervals += 1;
        trial.queue += (v.queue - trial.queue) / 8.0;
        if now.since(trial.began) > TRIAL {
            self.trial = None;
            return None;
        }
        let is_others = trial.intervals >= INTERVALS
            && trial.queue > TRIAL_QUEUE * v.longest
            && v.cwnd < TRIAL_WINDOW * trial.cwnd;
        is_others.then_some(trial.cwnd)
    }

    fn start(&mut self, now: Time, cwnd: f64, has_window: bool) -> f64 {
        self.losses = Losses::new(LOSS_MIN);
        self.cubic = Some(Cubic::new(now, cwnd, has_window));
        (self.run, self.trial, self.empty) = (None, None, 0);
        cwnd
    }

    /// A drain ended, which emptied the queue or did not; `cwnd`: the window before it. True if
    /// such traffic continues.
    pub(super) fn on_drain(&mut self, now: Time, cwnd: f64, is_empty: bool) -> bool {
        if let Some(run) = &mut self.run {
            run.drains += 1;
        }
        let Some(cubic) = &mut self.cubic else { return false };
        cubic.restart(now, cwnd);
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if self.empty >= self.empty_max {
            self.cubic = None;
            self.trial = Some(Trial { began: now, cwnd, intervals: 0, queue: 0.0 });
        }
        self.is_on()
    }

    /// Continues after a decrease for other reasons.
    pub(super) fn restart(&mut self, now: Time, cwnd: f64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.restart(now, cwnd);
        }
    }

    /// Records the delivery rate of an interval.
    pub(super) fn on_rate(&mut self, now: Time, rate: f64) {
        self.rate += (rate - self.rate) / 4.0;
        self.link.add(now, self.rate, Dur::ZERO);
    }

    /// Applies the packets lost and sent in an interval, and the delivery rate, beside such
    /// traffic; returns the window.
    pub(super) fn on_interval(
        &mut self,
        now: Time,
        cwnd: f64,
        lost: (f64, f64),
        rate: f64,
    ) -> Option<f64> {
        let cubic = self.cubic.as_mut()?;
        self.losses.on_interval(lost, rate);
        // BBR does not yield to losses. A flow that does has nothing in the end.
        let is_squeezed = self.rate < SHARE_MIN * self.link.get();
        if is_squeezed && self.losses.part() < LOSS_TOLERATED {
            return None;
        }
        // Losses that a decrease does not end are of traffic that does not react to them.
        match self.losses.judge(&State { cwnd, queue: 0.0, queue_min: 1.0 }) {
            Verdict::None => None,
            Verdict::Congestion => {
                cubic.on_loss(now, cwnd);
                Some(cwnd * (1.0 - LOSS_DECREASE))
            }
            Verdict::Path { cwnd: before } => {
                let cwnd = cwnd.max(before);
                cubic.restart(now, cwnd);
                Some(cwnd)
            }
        }
    }

    /// The window after an acknowledgement of `acked` bytes, beside such traffic.
    pub(super) fn on_ack(&mut self, now: Time, cwnd: f64, acked: f64, path: (f64, f64)) -> f64 {
        self.cubic.as_mut().map_or(cwnd, |cubic| cubic.on_ack(now, cwnd, acked, path))
    }
}

/// The link's rate is known for this time.
const LINK_WINDOW: Dur = Dur::from_secs(30);
/// Below this part of the link the flow tolerates the losses of others, up to a part of packets.
const SHARE_MIN: f64 = 0.4;
const LOSS_TOLERATED: f64 = 0.05;
/// Drains in a row that empty the queue, after which there is no such traffic for now, and their
/// maximum after it has returned several times. A queue of CUBIC is empty now and then.
const EMPTY_DRAINS: u32 = 2;
const EMPTY_DRAINS_MAX: u32 = 16;
/// How long it may return at once, the mean delay of the queue in longest targets, and the part
/// of the window, that show it.
const TRIAL: Dur = Dur::from_secs(10);
const TRIAL_QUEUE: f64 = 0.75;
const TRIAL_WINDOW: f64 = 0.7;
/// Losses of a smaller part are none.
const LOSS_MIN: f64 = 0.001;
/// Intervals in a row with a delay that show other traffic, and drains before it.
const INTERVALS: u32 = 16;
const EXTREME_INTERVALS: u32 = 4;
const DRAINS: u32 = 2;
/// Delays in longest targets: that is no queue, that shows other traffic after drains, and without.
/// Flows that start beside a queue take it for the base round trip until the next drain.
const NO_QUEUE: f64 = 1.0 / 6.0;
const LONGER: f64 = 1.5;
const EXTREME: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const RTT_US: u64 = 20_000;
    const LONGEST: f64 = 3e6;

    /// Intervals of a flow that has a window of 100 packets before them, from `from` on.
    fn run(
        compete: &mut Compete,
        from: u64,
        intervals: std::ops::Range<u64>,
        state: impl Fn(u64) -> (f64, f64),
    ) -> Option<(u64, f64)> {
        intervals.into_iter().find_map(|n| {
            let (cwnd, queue) = state(n);
            let view = View { cwnd, cwnd_min: 2.0, queue, longest: LONGEST };
            compete.observe(at((from + n) * RTT_US), &view).map(|cwnd| (n, cwnd))
        })
    }

    /// A window that shrinks by a tenth in each interval.
    fn shrinking(n: u64) -> f64 {
        100.0 * 0.9_f64.powi(i32::try_from(n).unwrap())
    }

    fn competing() -> Compete {
        let mut compete = Compete::new();
        assert!(run(&mut compete, 0, 0..20, |n| (shrinking(n), 4.0 * LONGEST)).is_some());
        compete
    }

    #[test]
    fn observe__a_queue_that_remains_when_the_flow_yields_is_of_others() {
        let mut compete = Compete::new();
        let found = run(&mut compete, 0, 0..20, |n| (shrinking(n), 4.0 * LONGEST));
        assert_eq!(found, Some((7, 100.0)), "once the window has halved, it returns");
        assert!(compete.is_on());
    }

    #[test]
    fn observe__delays_that_flows_of_auto_cause_are_no_reason() {
        // Several flows that started beside a queue, until the next drain.
        let mut compete = Compete::new();
        assert_eq!(run(&mut compete, 0, 0..40, |n| (shrinking(n), 2.0 * LONGEST)), None);
        // A flow that yields, and a queue that does.
        let mut compete = Compete::new();
        let yields = |n| (shrinking(n), 4.0 * LONGEST * (shrinking(n) / 100.0).powi(4));
        assert_eq!(run(&mut compete, 0, 0..40, yields), None);
        // A queue that does not, and a flow that does not.
        let mut compete = Compete::new();
        assert_eq!(run(&mut compete, 0, 0..40, |_| (80.0, 4.0 * LONGEST)), None);
    }

    #[test]
    fn observe__a_shorter_queue_that_two_drains_did_not_end_is_of_others() {
        let mut compete = Compete::new();
        assert_eq!(run(&mut compete, 0, 0..20, |n| (shrinking(n), 2.0 * LONGEST)), None);
        for _ in 0..2 {
            assert!(!compete.on_drain(at(10 * RTT_US), 30.0, true));
        }
        let found = run(&mut compete, 0, 20..40, |n| (shrinking(n), 2.0 * LONGEST));
        assert_eq!(found, Some((20, 100.0)));
    }

    #[test]
    fn observe__a_flow_that_never_had_a_share_looks_for_one() {
        let mut compete = Compete::new();
        let found = run(&mut compete, 0, 0..20, |_| (2.0, 4.0 * LONGEST));
        assert_eq!(found, Some((3, 2.0)));
        let cwnd = (0..80).fold(2.0, |cwnd, _| compete.on_ack(at(0), cwnd, 1.0, (20e6, 1.0)));
        assert_eq!(cwnd, 12.0);
    }

    #[test]
    fn on_drain__two_that_empty_the_queue_end_it_and_four_after_it_returned() {
        let mut compete = competing();
        assert!(compete.on_drain(at(0), 90.0, true));
        assert!(compete.on_drain(at(0), 90.0, false));
        assert!(compete.on_drain(at(0), 90.0, true));
        assert!(!compete.on_drain(at(0), 90.0, true));
        // The queue returns, though not for long.
        let found = run(&mut compete, 0, 0..20, |n| (0.9 * shrinking(n), 0.9 * LONGEST));
        assert_eq!(found.map(|(_, cwnd)| cwnd), Some(90.0));
        let ends = (1..).find(|_| !compete.on_drain(at(0), 90.0, true));
        assert_eq!(ends, Some(4));
    }

    #[test]
    fn observe__after_such_traffic_a_queue_that_flows_of_auto_tolerate_is_none() {
        let mut compete = competing();
        (0..2).for_each(|_| _ = compete.on_drain(at(0), 90.0, true));
        assert_eq!(run(&mut compete, 0, 0..1000, |n| (shrinking(n.min(40)), LONGEST / 2.0)), None);
    }

    /// The window after ten seconds beside a queue that loses `part` of its packets at once.
    fn with_losses(compete: &mut Compete, rate: f64, part: impl Fn(f64) -> f64) -> f64 {
        let mut cwnd = 100.0;
        for n in 0..500 {
            let lost = part(cwnd) * 100.0;
            let next = compete.on_interval(at(n * RTT_US), cwnd, (lost, 100.0), rate);
            cwnd = next.unwrap_or(cwnd);
        }
        cwnd
    }

    #[test]
    fn on_interval__losses_that_end_with_the_decrease_are_a_reason_for_it() {
        let mut compete = competing();
        compete.on_rate(at(0), 1.0);
        let cwnd = with_losses(&mut compete, 1.0, |cwnd| if cwnd > 80.0 { 0.02 } else { 0.0 });
        assert!((60.0..80.0).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn on_interval__a_squeezed_flow_tolerates_losses_up_to_a_limit() {
        for (part, is_tolerated) in [(0.02, true), (0.1, false)] {
            let mut compete = competing();
            // The link was known before.
            (0..50).for_each(|n| compete.on_rate(at(n), 1.0));
            (0..50).for_each(|n| compete.on_rate(at(n), 0.2));
            let fixed = with_losses(&mut compete, 0.2, |cwnd| if cwnd > 50.0 { part } else { 0.0 });
            assert_eq!(fixed == 100.0, is_tolerated, "{part}: {fixed}");
        }
    }
}
