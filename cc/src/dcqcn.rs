//! The reaction point of DCQCN, by the paper.
//!
//! # Source
//! DCQCN 5.1 and DCQCN 5.2. (SIGCOMM'15) The notification point is in the receiver.
//! [`crate::dcqcn_rnic`] is the variant of RDMA adapters.

use crate::params::params;
use crate::round::{Base, Guard};
use crate::units::{dur, power, rate, whole};
use crate::{Ack, Controller, Loss, Path, Sent};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of DCQCN.
    struct Params of f64;
    /// Gain of the congestion estimate alpha.
    ///
    /// DCQCN, table 14.
    g = 0.003_906_25 in 1e-6..=1.0;
    /// Interval in microseconds without a notification after which alpha decays.
    ///
    /// DCQCN, table 14.
    alpha_us = 55.0 in 0.1..=1e6;
    /// Interval of the rate increase timer in microseconds.
    ///
    /// DCQCN, table 14.
    increase_us = 55.0 in 1.0..=1e6;
    /// Interval of the rate increase byte counter in bytes.
    ///
    /// DCQCN, table 14.
    increase_bytes = 10e6 in 1e3..=1e12;
    /// Increases in fast recovery, each of which halves the distance to the target rate.
    ///
    /// DCQCN, table 14.
    fast_recovery = 5.0 in 1.0..=100.0;
    /// Additive increase in Mbit/s.
    ///
    /// DCQCN, table 14.
    additive_mbps = 40.0 in 0.001..=1e6;
    /// Hyper increase in Mbit/s, times its stage.
    ///
    /// DCQCN gives no value; ten times the additive increase, as in adapters.
    hyper_mbps = 400.0 in 0.001..=1e6;
    /// Minimum rate in Mbit/s.
    min_mbps = 1.0 in 0.001..=1e6;
    /// Interval in microseconds at which CE marks in acknowledgements (SR) count as a notification,
    /// at most one each.
    ///
    /// DCQCN 3.1: the interval of a receiver's CNPs.
    cnp_us = 50.0 in 0.0..=1e6;
    /// Window in base round trips at the current rate; 0 for none.
    ///
    /// Adapters have none. Without a window, bytes in flight are unbounded until feedback arrives.
    window_rtts = 2.0 in 0.0..=1000.0;
}

/// The DCQCN controller of one flow. Rates in bytes a nanosecond.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    p: Params,
    mtu: f64,
    base: Base,
    /// R_C, the current rate.
    current: f64,
    /// R_T, the target rate.
    target: f64,
    alpha: f64,
    /// The time up to which alpha has decayed; none before the first notification.
    alpha_at: Option<Time>,
    /// Increases by time and by bytes since the last decrease.
    time_stage: f64,
    byte_stage: f64,
    bytes: f64,
    /// The next increase by time; none at the line rate.
    increase_at: Option<Time>,
    /// Open if marks count as a notification.
    notified: Guard,
}

impl Dcqcn {
    /// The controller of one flow, at the line rate.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let base = Base::new(path);
        Self {
            p: *params,
            mtu: f64::from(path.mtu_bytes),
            base,
            current: base.line(),
            target: base.line(),
            alpha: 1.0,
            alpha_at: None,
            time_stage: 0.0,
            byte_stage: 0.0,
            bytes: 0.0,
            increase_at: None,
            notified: Guard::default(),
        }
    }

    /// Applies the decay of alpha up to `now`. It needs no timer, because only the next
    /// notification reads alpha.
    fn decay(&mut self, now: Time) {
        let period = dur(self.p.alpha_us * 1e3);
        let Some(since) = self.alpha_at else { return };
        let periods = now.since(since).as_ps() / period.as_ps().max(1);
        self.alpha_at = Some(since + period * periods);
        self.alpha *= power(1.0 - self.p.g, periods);
    }

    fn increase(&mut self) {
        let (low, high) =
            (self.time_stage.min(self.byte_stage), self.time_stage.max(self.byte_stage));
        let recovery = self.p.fast_recovery;
        if low > recovery {
            self.target += (low - recovery) * self.p.hyper_mbps / MBPS;
        } else if high > recovery {
            self.target += self.p.additive_mbps / MBPS;
        }
        if approach(&mut self.current, &mut self.target, self.base.line()) {
            self.increase_at = None;
        }
    }
}

impl Controller for Dcqcn {
    fn cwnd_bytes(&self) -> u64 {
        window(&self.base, self.p.window_rtts, self.current, self.mtu)
    }

    fn rate(&self) -> Option<Rate> {
        Some(rate(self.current))
    }

    fn on_sent(&mut self, _now: Time, sent: &Sent) {
        if self.increase_at.is_none() {
            return;
        }
        self.bytes += f64::from(sent.bytes);
        if self.bytes >= self.p.increase_bytes {
            self.bytes = 0.0;
            self.byte_stage += 1.0;
            self.increase();
        }
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        let was_at_line = self.current >= self.base.line();
        self.base.set(line_rate, base_rtt);
        let line = self.base.line();
        // At the line rate no timer increases the rate.
        let current = if was_at_line { line } else { self.current.min(line) };
        (self.current, self.target) = (current, self.target.min(line).max(current));
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        self.base.on_ack(ack);
        if ack.marked_bytes > 0 && self.notified.pass(now, dur(self.p.cnp_us * 1e3)) {
            self.on_cnp(now);
        }
    }

    fn on_loss(&mut self, _now: Time, _loss: &Loss) {}

    fn on_cnp(&mut self, now: Time) {
        self.decay(now);
        self.target = self.current;
        let least = self.p.min_mbps / MBPS;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(least);
        self.alpha = (1.0 - self.p.g) * self.alpha + self.p.g;
        self.alpha_at = Some(now);
        (self.time_stage, self.byte_stage, self.bytes) = (0.0, 0.0, 0.0);
        self.increase_at = Some(now + dur(self.p.increase_us * 1e3));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.increase_at
    }

    fn handle_timeout(&mut self, now: Time) {
        let Some(due) = self.increase_at.filter(|at| *at <= now) else { return };
        // From its due time: a late timer skips no increase.
        self.increase_at = Some(due + dur(self.p.increase_us * 1e3));
        self.time_stage += 1.0;
        self.increase();
    }
}

/// Halves the distance to a target of at most `line`. Returns true at `line`.
pub(crate) fn approach(current: &mut f64, target: &mut f64, line: f64) -> bool {
    *target = target.min(line);
    *current = f64::midpoint(*target, *current);
    let is_there = line - *current < line * AT_LINE;
    if is_there {
        *current = line;
    }
    is_there
}

/// The window of a rate: `rtts` base round trips at it. Unlimited if `rtts` is 0 or the base round
/// trip is unknown.
pub(crate) fn window(base: &Base, rtts: f64, current: f64, mtu: f64) -> u64 {
    match base.rtt_ns().filter(|_| rtts > 0.0) {
        Some(base) => whole((rtts * current * base).max(mtu)),
        None => u64::MAX,
    }
}

/// Mbit/s in a byte a nanosecond.
pub(crate) const MBPS: f64 = 8e3;
/// The relative distance below which a rate counts as the line rate.
const AT_LINE: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, close, path};
    use spanwire_base::Dur;

    fn gbps(r: f64) -> f64 {
        r * 8.0
    }

    fn flow() -> Dcqcn {
        Dcqcn::new(&Params::default(), &path(1000, 25, Some(Dur::from_us(20))))
    }

    #[test]
    fn on_ack__with_marks_is_a_notification_each_50_us() {
        let mut f = flow();
        let ack = |marked_bytes| Ack { acked_bytes: 1000, marked_bytes, ..Ack::default() };
        let mut rates = Vec::new();
        // Microseconds, and marked bytes.
        for (us, marked) in [(0, 0), (10, 1000), (59, 1000), (60, 0), (61, 500)] {
            f.on_ack(at(us), &ack(marked));
            rates.push(gbps(f.current));
        }
        assert_eq!(rates, [25.0, 12.5, 12.5, 12.5, 6.25]);
    }

    #[test]
    fn on_cnp__halves_at_first() {
        let mut cc = flow();
        cc.on_cnp(at(100));
        assert!(close(gbps(cc.target), 25.0) && close(gbps(cc.current), 12.5));
        assert!(close(cc.alpha, 1.0));
        cc.on_cnp(at(150));
        assert!(close(gbps(cc.target), 12.5) && close(gbps(cc.current), 6.25));
        cc.decay(at(205));
        assert!(close(cc.alpha, 0.996_093_75));
    }

    #[test]
    fn handle_timeout__recovers_by_halves_and_then_adds() {
        let mut cc = flow();
        cc.on_cnp(at(100));
        cc.on_cnp(at(150));
        let want =
            [9.375, 10.9375, 11.718_75, 12.109_375, 12.304_687_5, 12.422_343_75, 12.501_171_875];
        for (n, want) in (1..).zip(want) {
            let due = at(150 + 55 * n);
            assert_eq!(cc.poll_timeout(), Some(due));
            cc.handle_timeout(due);
            assert!(close(gbps(cc.current), want), "{} {want}", gbps(cc.current));
        }
        assert!(close(gbps(cc.target), 12.58));
    }

    #[test]
    fn handle_timeout__ends_at_the_line_rate() {
        let mut cc = flow();
        cc.on_cnp(at(0));
        let mut n = 0;
        while let Some(due) = cc.poll_timeout() {
            cc.handle_timeout(due);
            n += 1;
            assert!(n < 100);
        }
        assert_eq!(cc.rate(), Some(Rate::from_gbps(25)));
    }

    #[test]
    fn on_sent__bytes_raise_the_rate_too_and_both_together_faster() {
        let mut cc = flow();
        cc.on_cnp(at(0));
        cc.on_cnp(at(50));
        let sent = Sent {
            bytes: 1000,
            paced_bytes: 1100,
            frame_bytes: 0,
            inflight_bytes: 0,
            is_retransmission: false,
        };
        for _ in 0..10_000 {
            cc.on_sent(at(60), &sent);
        }
        assert!(close(gbps(cc.current), 9.375), "{}", gbps(cc.current));
        (cc.time_stage, cc.byte_stage) = (7.0, 7.0);
        let before = cc.target;
        cc.increase();
        assert!(close(gbps(cc.target - before), 0.8), "hyper, second stage");
    }
}
