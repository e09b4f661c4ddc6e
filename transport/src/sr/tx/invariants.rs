//! Invariants of the sending direction, which hold between calls.

use super::Tx;
use crate::qp::state::QpState;

impl Tx {
    /// Asserts the invariants of the sending direction.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self, state: QpState) {
        self.sent.check_invariants();
        self.requester.check_invariants();
        let of_block = self.encoder.as_ref().and_then(|encoder| encoder.next_position());
        debug_assert!(
            of_block.is_none_or(|position| position.index < position.pkts()),
            "a block that has been sent whole is closed"
        );
        debug_assert!(
            !self.has_failed || self.probe.is_none(),
            "a failed queue pair probes nothing"
        );
        debug_assert!(
            !self.has_failed || state == QpState::Err,
            "it has failed in the error state"
        );
        debug_assert!(self.segment_bytes > 0, "a segment has bytes");
    }
}
