//! Invariants of the receiving direction, which hold between calls.

use super::Rx;

impl Rx {
    /// Asserts the invariants of the receiving direction.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        let received = &self.received;
        debug_assert!(received.next() <= received.data_next(), "what has arrived is not awaited");
        debug_assert!(
            received.next() <= received.end(),
            "the highest number is not below the next"
        );
        debug_assert!(received.next() <= received.limit(), "the window is ahead");
        self.responder.check_invariants();
        self.decoder.check_invariants();
        self.ack.check_invariants();
    }
}
