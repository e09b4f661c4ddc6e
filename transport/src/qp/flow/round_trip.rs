//! Limits that follow congestion control and the least round trip.

use super::Flow;
use spanwire_base::{Dur, Rate, Time};
use spanwire_cc::Controller;

impl Flow {
    /// Applies a round trip that is shorter than all before.
    #[cold]
    pub(super) fn on_least_rtt(&mut self, rtt: Dur) {
        self.least_rtt = rtt;
        self.room.on_least_rtt(rtt);
        self.update_quantum(self.cc.rate());
    }

    /// Applies the decisions of congestion control on when packets may leave.
    pub(super) fn update_rate(&mut self, now: Time) {
        let rate = self.cc.rate();
        self.min_gap = self.cc.min_gap();
        if self.bucket.set_rate(now, rate) && self.quantum.is_allowed() {
            self.update_quantum(rate);
        }
    }

    /// Applies a new pacing rate.
    pub(super) fn update_quantum(&mut self, rate: Option<Rate>) {
        if self.quantum.update(rate, self.least_rtt) {
            self.bucket.set_quantum(self.quantum.time());
        }
    }
}
