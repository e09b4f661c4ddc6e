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
        self.coding.iter().for_each(|coding| coding.check_invariants());
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
