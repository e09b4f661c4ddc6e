//! A flow beside traffic that fills the queue whatever its delay.

use super::compete::View;
use super::{Auto, FACTOR_MAX};
use spanwire_base::Time;

impl Auto {
    /// Detects other traffic after a decrease for the delay.
    pub(super) fn observe_others(&mut self, now: Time, queue: f64, target: f64) {
        let (cwnd, cwnd_min) = (self.cwnd, self.p.min_pkts * self.mtu);
        // The slowest flow does not tolerate this.
        let longest = FACTOR_MAX * self.base.ns().map_or(target, |ns| self.quiet_target(ns));
        let view = View { cwnd, cwnd_min, queue, longest };
        self.cwnd = self.compete.observe(now, &view).unwrap_or(cwnd);
    }

    /// Decides at the end of an interval beside such traffic.
    pub(super) fn compete(&mut self, now: Time, lost: (f64, f64), marked: f64) {
        if marked > 0.0 {
            self.cwnd *= 1.0 - self.alpha.max(marked) / 2.0;
            self.compete.restart(now, self.cwnd);
        }
        if let Some(cwnd) = self.compete.on_interval(now, self.cwnd, lost, self.rate) {
            self.cwnd = cwnd;
        }
    }
}
