//! Losses of a full queue, and losses of the path itself.
//!
//! A queue that overflows shows a delay before. Without a delay a test distinguishes them:
//! the window is decreased for several intervals. A bottleneck with a short queue delivers as much
//! of fewer packets. A path that loses a part of any packets delivers fewer.

/// The average part of packets lost, and the part above which losses are congestion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Losses {
    /// The configured limit.
    least: f64,
    limit: f64,
    part: f64,
    /// Average of the delivery rate.
    rate: f64,
    test: Option<Test>,
}

/// A decrease of the window that shows the cause of losses.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// Delivery rate, part of packets lost, and window before.
    rate: f64,
    part: f64,
    cwnd: f64,
    /// Sum of the delivery rates of the intervals since, and their number.
    sum: f64,
    intervals: f64,
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
    /// No losses; above `limit` they are congestion.
    pub(super) fn new(limit: f64) -> Self {
        Self { least: limit, limit, part: 0.0, rate: 0.0, test: None }
    }

    /// Applies the part of packets lost in an interval with its weight, and the delivery rate.
    pub(super) fn on_interval(&mut self, loss: Option<(f64, f64)>, rate: f64) {
        if let Some((part, weight)) = loss {
            self.part += (part - self.part) * weight;
        }
        self.rate = if self.rate > 0.0 { self.rate + (rate - self.rate) / 4.0 } else { rate };
        if let Some(test) = &mut self.test {
            test.sum += rate;
            test.intervals += 1.0;
        }
        if self.part < self.limit / 4.0 {
            self.limit = (self.limit / 2.0).max(self.least);
        }
    }

    /// More was delivered of more packets, so the losses until now are of the path.
    pub(super) fn on_growth(&mut self) {
        self.limit = self.limit.max(self.part * LIMIT_FACTOR);
    }

    /// The average part of packets lost.
    pub(super) fn part(&self) -> f64 {
        self.part
    }

    /// More packets are lost than the path loses by itself, as far as is known.
    pub(super) fn is_above(&self) -> bool {
        self.part > self.limit
    }

    /// A test is under way: the window must not grow.
    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Decides at the end of an interval with this window; `has_queue`: packets were delayed.
    pub(super) fn judge(&mut self, cwnd: f64, has_queue: bool) -> Verdict {
        if let Some(test) = self.test.filter(|test| test.intervals >= TEST_INTERVALS) {
            self.test = None;
            let fewer = test.sum / test.intervals < FEWER * test.rate;
            self.limit = self.least;
            if fewer && self.part > test.part / 2.0 {
                self.limit = self.limit.max(test.part.max(self.part) * LIMIT_FACTOR);
                return Verdict::Path { cwnd: test.cwnd };
            }
        }
        if self.test.is_some() || !self.is_above() {
            return Verdict::None;
        }
        if has_queue {
            self.part = 0.0;
        } else {
            let (rate, part) = (self.rate, self.part);
            self.test = Some(Test { rate, part, cwnd, sum: 0.0, intervals: 0.0 });
        }
        Verdict::Congestion
    }
}

/// The decrease for losses.
pub(super) const LOSS_DECREASE: f64 = 0.3;
/// Losses of the path vary: this times their part is congestion.
const LIMIT_FACTOR: f64 = 1.5;
/// Below this part of the rate before a decrease by 30 %, fewer packets are delivered.
const FEWER: f64 = 0.85;
const TEST_INTERVALS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of packets in intervals of a round trip over a path that delivers `of(window)`.
    fn run(cwnd: f64, has_queue: bool, of: impl Fn(f64) -> f64) -> (f64, Losses) {
        let (mut cwnd, mut losses) = (cwnd, Losses::new(0.05));
        for _ in 0..100 {
            let delivered = of(cwnd);
            losses.on_interval(Some((1.0 - delivered / cwnd, 0.5)), delivered);
            match losses.judge(cwnd, has_queue) {
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
            let (cwnd, losses) = run(100.0, false, |sent| sent * (1.0 - lossy));
            assert!(cwnd == 100.0 && !losses.is_testing(), "{lossy}: {cwnd}");
        }
    }

    #[test]
    fn judge__a_bottleneck_without_a_queue_is_not_exceeded_for_long() {
        for excess in [1.1, 2.0, 10.0] {
            let (cwnd, _) = run(100.0 * excess, false, |sent| sent.min(100.0));
            assert!((70.0..=106.0).contains(&cwnd), "{excess}: {cwnd}");
        }
    }

    #[test]
    fn judge__with_a_queue_losses_are_congestion() {
        let (cwnd, _) = run(200.0, true, |sent| sent.min(100.0));
        assert!((60.0..=106.0).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn on_growth__losses_of_a_growing_window_are_of_the_path() {
        let mut losses = Losses::new(0.05);
        for rate in [10.0, 20.0, 40.0] {
            losses.on_interval(Some((0.3, 0.5)), rate);
            losses.on_growth();
        }
        assert!(!losses.is_above());
    }
}
