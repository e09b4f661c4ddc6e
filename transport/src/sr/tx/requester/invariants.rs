//! Invariants of the requester, which hold between calls.

use super::Requester;
use spanwire_base::u32_from;

impl Requester {
    /// Asserts the order of messages and the counts of READs and atomics.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        let len = self.sq.len();
        debug_assert!(self.current <= len, "the current request is in the queue");
        debug_assert_eq!(
            self.next_message,
            self.first_message.wrapping_add(u32_from(len)),
            "messages are numbered in the order of posting"
        );
        let current = self.sq.at(self.current);
        debug_assert!(
            current.map_or(self.offset == 0, |r| self.offset < r.wqe.len.max(1)),
            "the offset lies in the current request"
        );
        debug_assert!(
            self.sq.at(0).is_none_or(|r| r.message == self.first_message),
            "the oldest request is the first message"
        );
        debug_assert!(self.rd_atomic_out <= self.rd_atomic_posted, "what was sent is posted");
        debug_assert!(self.rd_atomic_posted <= u32_from(len), "what is posted is in the queue");
    }
}
