//! Losses of a full queue, and losses of the path itself.
//!
//! A queue that overflows shows a delay before, and loses less once it is shorter. A bottleneck
//! with a short queue delivers as much of fewer packets. A path that loses a part of any packets
//! does neither. So when losses begin, a test decreases the window and halves the queue for several
//! intervals.

/// The average part of packets lost, the part that the path loses by itself, and the delay at which
/// the queue overflows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    /// The configured part below which losses are no congestion.
    least: f64,
    part: f64,
    /// The part that the path loses by itself.
    of_path: f64,
    /// Intervals since that was found.
    age: u32,
    /// The delivery rate of the last interval.
    rate: f64,
    test: Option<Test>,
    /// The longest delay of the queue without losses, ns.
    queue_max: f64,
    /// The longest one of recent intervals without losses, ns.
    queue_held: f64,
    /// Packets lost in the last interval.
    lost: f64,
}

/// A decrease of the window that shows the cause of losses.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// Delivery rate, part of packets lost, window and queue before.
    rate: f64,
    part: f64,
    cwnd: f64,
    has_queue: bool,
    /// Sums over the intervals since, and their number.
    rates: f64,
    lost: f64,
    sent: f64,
    intervals: f64,
    /// Intervals with a queue.
    queued: f64,
}

/// The state of the flow at the end of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) cwnd: f64,
    /// The delay of the queue, ns, and the delay from which on there is one.
    pub(super) queue: f64,
    pub(super) queue_min: f64,
}

/// The result of an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Verdict {
    /// No losses above the limit.
    None,
    /// The window must shrink by [`LOSS_DECREASE`].
    Congestion,
    /// The path itself loses these packets: the window returns to `cwnd`.
    Path { cwnd: f64 },
}

impl Losses {
    /// No losses; below `least` they are no congestion.
    pub(super) fn new(least: f64) -> Self {
        let queue_max = f64::INFINITY;
        Self {
            least,
            part: 0.0,
            of_path: 0.0,
            age: 0,
            rate: 0.0,
            test: None,
            queue_max,
            queue_held: 0.0,
            lost: 0.0,
        }
    }

    /// Applies the packets lost and sent in an interval, and the delivery rate.
    pub(super) fn on_interval(&mut self, (lost, sent): (f64, f64), rate: f64) {
        if sent > 0.0 {
            let weight = (sent / AVERAGE_PKTS).min(0.5);
            self.part += (lost / sent - self.part) * weight;
            // A part that was of congestion is forgotten, since congestion does not stay.
            self.of_path =
                self.of_path.min(self.of_path + (self.part - self.of_path) * weight / 8.0);
        }
        (self.rate, self.lost) = (rate, lost);
        self.age = self.age.saturating_add(1);
        if self.age > AGE_MAX {
            self.of_path = 0.0;
        }
        if let Some(test) = &mut self.test {
            test.intervals += 1.0;
            if test.intervals == 1.0 {
                // These packets left before the decrease. The path may have changed shortly before.
                test.rate = f64::midpoint(test.rate, rate).min(rate * RATE_NOISE);
            }
            // Losses are known a round trip after the packets left.
            if test.intervals > LATE_INTERVALS {
                test.rates += rate;
                (test.lost, test.sent) = (test.lost + lost, test.sent + sent);
            }
        } else {
            self.queue_max *= QUEUE_GROWTH;
        }
    }

    /// More was delivered of more packets without a queue, so the losses until now are of the path.
    pub(super) fn on_growth(&mut self) {
        self.of_path = self.of_path.max(self.part);
    }

    /// The average part of packets lost.
    pub(super) fn part(&self) -> f64 {
        self.part
    }

    /// The part that the path loses by itself.
    pub(super) fn of_path(&self) -> f64 {
        self.of_path
    }

    /// The longest delay of the queue without losses, ns: half of that at which it overflowed.
    pub(super) fn queue_max(&self) -> f64 {
        self.queue_max
    }

    /// More packets are lost than the path loses by itself, as far as is known.
    pub(super) fn is_above(&self) -> bool {
        self.part > self.least + LIMIT_FACTOR * self.of_path
    }

    /// A test is under way: the window must not grow.
    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Decides at the end of an interval.
    pub(super) fn judge(&mut self, now: &State) -> Verdict {
        let has_queue = now.queue > now.queue_min;
        self.queue_held *= HELD_DECAY;
        if self.lost == 0.0 {
            self.queue_held = self.queue_held.max(now.queue);
        }
        if let Some(test) = &mut self.test {
            test.queued += f64::from(u8::from(has_queue));
        }
        if let Some(test) = self.test.filter(|test| test.intervals >= TEST_INTERVALS) {
            self.test = None;
            let is_queue_gone = test.queued <= QUEUED_MAX;
            let part = test.lost / test.sent.max(1.0);
            let delivers_fewer = test.rates < FEWER * test.rate * (test.intervals - LATE_INTERVALS);
            if part > STILL * test.part && is_queue_gone && (test.has_queue || delivers_fewer) {
                (self.of_path, self.part, self.age) = (part, part, 0);
                self.queue_max = f64::INFINITY;
                return Verdict::Path { cwnd: test.cwnd };
            }
            self.part = 0.0;
        }
        if self.test.is_some() || !self.is_above() {
            return Verdict::None;
        }
        if has_queue {
            // A burst overflows a queue that held more before.
            self.queue_max = self.queue_max.min(now.queue.max(self.queue_held) / 2.0);
        }
        self.test = Some(Test {
            rate: self.rate,
            part: self.part,
            cwnd: now.cwnd,
            has_queue,
            rates: 0.0,
            lost: 0.0,
            sent: 0.0,
            intervals: 0.0,
            queued: 0.0,
        });
        Verdict::Congestion
    }
}

/// The decrease for losses.
pub(super) const LOSS_DECREASE: f64 = 0.3;
/// Losses of the path vary: so many times their part is no congestion.
const LIMIT_FACTOR: f64 = 2.0;
/// Intervals after which losses of the path are tested again: they may have become congestion.
const AGE_MAX: u32 = 250;
/// Packets in the average part.
const AVERAGE_PKTS: f64 = 200.0;
/// Below this part of the rate before a decrease by 30 %, fewer packets are delivered.
const FEWER: f64 = 0.85;
/// The rate of one interval may be so many times too low.
const RATE_NOISE: f64 = 1.1;
/// Above this part of the losses before, a decrease had no effect on them.
const STILL: f64 = 0.75;
const TEST_INTERVALS: f64 = 8.0;
const LATE_INTERVALS: f64 = 2.0;
/// With a queue in more intervals of a test, losses may be of other flows that keep it full.
const QUEUED_MAX: f64 = 3.0;
/// The part of `queue_held` that counts after an interval.
const HELD_DECAY: f64 = 0.99;
/// The growth of the queue in an interval without a test: other flows may have left.
const QUEUE_GROWTH: f64 = 1.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of packets in intervals of a round trip over a path that delivers `of(window)`.
    fn run(cwnd: f64, queue: impl Fn(f64) -> f64, of: impl Fn(f64) -> f64) -> (f64, Losses) {
        let (mut cwnd, mut losses) = (cwnd, Losses::new(0.01));
        let mut sent = cwnd;
        for _ in 0..100 {
            let delivered = of(sent);
            losses.on_interval((sent - delivered, sent), delivered);
            let queue = queue(std::mem::replace(&mut sent, cwnd));
            match losses.judge(&State { cwnd, queue, queue_min: 10.0 }) {
                Verdict::None => {}
                Verdict::Congestion => cwnd *= 1.0 - LOSS_DECREASE,
                Verdict::Path { cwnd: before } => cwnd = before,
            }
        }
        (cwnd, losses)
    }

    #[test]
    fn judge__losses_of_the_path_leave_the_window() {
        for lossy in [0.06, 0.1, 0.3, 0.6] {
            let (cwnd, losses) = run(100.0, |_| 0.0, |sent| sent * (1.0 - lossy));
            assert!(cwnd == 100.0 && !losses.is_testing(), "{lossy}: {cwnd}");
        }
    }

    #[test]
    fn judge__a_bottleneck_without_a_queue_is_not_exceeded_for_long() {
        for excess in [1.1, 2.0, 10.0] {
            let (cwnd, _) = run(100.0 * excess, |_| 0.0, |sent| sent.min(100.0));
            assert!((60.0..=106.0).contains(&cwnd), "{excess}: {cwnd}");
        }
    }

    #[test]
    fn judge__a_queue_that_overflows_is_kept_at_half_of_its_length() {
        let queue = |sent: f64| (sent - 50.0).clamp(0.0, 50.0);
        let (cwnd, losses) = run(200.0, queue, |sent| sent.min(100.0));
        assert!((60.0..=106.0).contains(&cwnd), "{cwnd}");
        assert!((20.0..70.0).contains(&losses.queue_max()), "{losses:?}");
    }

    #[test]
    fn judge__losses_that_do_not_end_with_the_queue_are_of_the_path() {
        let queue = |sent: f64| if sent > 80.0 { 50.0 } else { 0.0 };
        let (cwnd, losses) = run(100.0, queue, |sent| sent * 0.9);
        assert!(cwnd == 100.0 && losses.queue_max() == f64::INFINITY, "{cwnd}, {losses:?}");
    }

    #[test]
    fn judge__losses_in_a_queue_that_others_keep_are_congestion() {
        let (cwnd, losses) = run(100.0, |_| 50.0, |sent| sent * 0.9);
        assert!(cwnd < 30.0 && losses.of_path() == 0.0, "{cwnd}, {losses:?}");
    }

    #[test]
    fn on_growth__losses_of_a_growing_window_are_of_the_path() {
        let mut losses = Losses::new(0.01);
        for rate in [10.0, 20.0, 40.0] {
            losses.on_interval((60.0, 200.0), rate);
            losses.on_growth();
        }
        assert!(!losses.is_above());
    }
}
