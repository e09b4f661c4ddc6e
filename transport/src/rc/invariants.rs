//! Invariants of an RC connection, which hold between calls.

use super::Rc;
use crate::qp::common::Common;
use crate::qp::state::QpState;

impl Rc {
    /// Asserts the invariants of window accounting, PSN order and ownership of requests.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(crate) fn check_invariants(&self, qp: &Common) {
        self.requester.check_invariants();
        self.responder.resources.check_invariants();
        let outstanding = self.requester.in_flight_pkts() > 0;
        if qp.state.sends() && outstanding && self.loss.has_timeout() {
            debug_assert!(self.loss.next_deadline().is_some(), "outstanding packets have a timer");
        }
        if qp.state == QpState::Err {
            debug_assert!(self.loss.next_deadline().is_none(), "a failed queue pair has no timer");
            debug_assert!(!self.requester.has_outstanding(), "nothing of it is outstanding");
        }
        if self.loss.is_rnr_waiting() {
            debug_assert!(self.requester.in_flight_pkts() == 0, "an RNR wait follows a rewind");
        }
    }
}
