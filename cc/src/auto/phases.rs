//! Startup, and the drains that measure the base round trip.

use super::Auto;
use super::state::State;
use crate::units::{float, whole};
use spanwire_base::Time;

impl Auto {
    pub(super) fn on_startup_interval(
        &mut self,
        now: Time,
        base: f64,
        (queue, target): (f64, f64),
    ) {
        if self.rate > self.best_rate * 1.25 {
            (self.best_rate, self.intervals_without_growth) = (self.rate, 0);
            if queue < target / 8.0 {
                self.losses.on_growth();
            }
        } else if self.interval.is_limited() {
            self.intervals_without_growth += 1;
        }
        let is_congested = queue > target / 2.0
            || self.interval.marked_fraction() > 0.0
            || self.losses.is_above() && self.intervals_without_growth > 0
            || self.intervals_without_growth >= 3;
        if is_congested {
            let cwnd = (self.rate * self.busy_rtt(base)).max(self.cwnd / 4.0).min(self.cwnd);
            self.drain(now, cwnd, cwnd / 2.0);
        }
    }

    /// The round trip without a queue while packets are received in batches.
    pub(super) fn busy_rtt(&self, base: f64) -> f64 {
        base + self.batch
    }

    /// Leaves startup within a round, once several delays in a row are above the target.
    pub(super) fn exit_startup(&mut self, now: Time) {
        let (Some(base), Some(delay)) = (self.base.ns(), self.last_delay) else { return };
        if self.state == State::Startup && self.train.is_long(base) {
            self.rate = self.rate.max(self.interval.rate(now));
            // The packets left faster than the bottleneck sent them, so their acknowledgements
            // have its rate. The window may be below one BDP until then.
            let bdp = (self.train.rate() * base).min(2.0 * self.cwnd);
            let cwnd = bdp.max(self.cwnd * (base / delay).max(0.25));
            self.drain(now, cwnd, cwnd / 2.0);
        }
    }

    /// How long the lowest delay may have been seen before the window is reduced to measure the
    /// base round trip, ns. Short on short paths, where flows come and go within milliseconds, if
    /// that costs little of it.
    ///
    /// A power of four, so that flows whose base round trips differ, as those that began beside a
    /// queue, have the same period, and drain together.
    pub(super) fn drain_period(&self, base: f64) -> f64 {
        let short =
            (DRAIN_RTTS * self.busy_rtt(base)).max(DRAIN_INTERVALS * self.interval_min()).max(1.0);
        float(power_of_four(whole(short))).min(self.p.drain_ms * 1e6).max(30.0 * base)
    }

    /// Reduces the window to `to` for a round trip; `cwnd` is the window after it.
    pub(super) fn drain(&mut self, now: Time, cwnd: f64, to: f64) {
        self.state = State::Drain { since: now, cwnd, rate: self.rate, intervals: 0 };
        self.cwnd = to.max(self.p.min_pkts * self.mtu);
    }

    pub(super) fn end_drain(&mut self, now: Time, min: f64, target: f64, cwnd: f64) {
        let residual = min - self.base.ns().unwrap_or(min);
        if residual > target {
            self.pressure = (self.pressure * 2.0).min(64.0);
        } else if residual < target / 4.0 {
            self.pressure = 1.0;
        }
        (self.low, self.low_at, self.changed_at) = (min, Some(now), Some(now));
        (self.cwnd, self.state) = (cwnd, State::Avoidance);
    }
}

/// The lowest power of four that is not lower than `n`, up to 4^31.
fn power_of_four(n: u64) -> u64 {
    let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
    1 << bits.next_multiple_of(2).min(62)
}

/// Base round trips and minimum intervals between drains.
const DRAIN_RTTS: f64 = 500.0;
const DRAIN_INTERVALS: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_of_four__is_not_lower() {
        let cases =
            [(0, 1), (1, 1), (2, 4), (4, 4), (5, 16), (1 << 40, 1 << 40), (u64::MAX, 1 << 62)];
        for (n, expected) in cases {
            assert_eq!(power_of_four(n), expected, "{n}");
        }
    }
}
