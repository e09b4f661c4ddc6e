//! Accounting of what limits a flow.

use super::{Flow, FlowLimit};
use spanwire_base::Time;

impl Flow {
    /// A packet left, and the next one waits for the rate of the port.
    pub(crate) fn on_port_paced(&mut self, now: Time) {
        if self.limit == FlowLimit::Port {
            self.set_limit(now, FlowLimit::Pacer);
        }
    }

    /// [`Flow::on_limit`] by the application would change nothing.
    #[inline]
    pub(crate) fn is_idle(&self, inflight_bytes: u64) -> bool {
        let until = (self.delivered_bytes + inflight_bytes).max(1);
        self.limit == FlowLimit::Application && self.app_limited_until_bytes == until
    }

    /// Sets the limit in force from `now` on and adds up the time of the previous one.
    #[inline]
    pub(super) fn set_limit(&mut self, now: Time, limit: FlowLimit) {
        if self.limit != limit {
            if let Some(since) = &mut self.limited_since {
                self.times.add(self.limit, now.since(std::mem::replace(since, now)));
            }
            self.limit = limit;
        }
    }
}
