//! Invariants of the acknowledgement state, which hold between calls.

use super::AckState;

impl AckState {
    /// Asserts the counts.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        debug_assert!(self.unacked_ce_pkts <= self.unacked_pkts, "marked packets are packets");
        debug_assert!(self.int().as_bytes() == self.int, "the echo is a valid one, or empty");
        debug_assert!(!self.is_nak_once || self.nak.is_some(), "there is a NAK to send");
    }
}
