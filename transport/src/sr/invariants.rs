//! Invariants of an SR connection, which hold between calls.

use super::Sr;
use crate::qp::common::Common;
use crate::qp::state::QpState;

impl Sr {
    /// Asserts the invariants of both directions and of what they share with the queue pair.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(crate) fn check_invariants(&self, qp: &Common) {
        self.tx.check_invariants(qp.state);
        self.rx.check_invariants();
        if matches!(qp.state, QpState::Rts | QpState::Sqd) {
            debug_assert!(self.rx.is_peer_valid(), "RTS validates the peer");
        }
        if qp.state == QpState::Err {
            debug_assert!(self.tx.has_no_requests(), "the send queue is flushed");
            debug_assert!(self.rx.decoder.is_idle(), "a failed queue pair keeps no block");
        }
    }
}
