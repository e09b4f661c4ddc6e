//! Invariants of the responder, which hold between calls.

use super::{Pending, Responder};

impl Responder {
    /// Asserts the order of what waits, and the limit of READs and atomics.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        debug_assert!(
            self.pending.iter().is_sorted_by_key(|(number, _)| *number),
            "requests are carried out in the order of their packets"
        );
        let is_ending = |(_, pending): &&(u64, Pending)| matches!(pending, Pending::MessageEnd(_));
        let endings = self.pending.iter().filter(is_ending).count();
        debug_assert_eq!(
            self.rd_atomic_pending,
            self.pending.len() - endings,
            "READs and atomics that wait are counted"
        );
        debug_assert!(endings <= self.progress.len(), "each ending has its receive request");
    }
}
