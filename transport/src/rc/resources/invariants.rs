//! Invariants of the responder resources, which hold between calls.

use super::Resources;

impl Resources {
    /// Asserts the bounds of the resources.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(crate) fn check_invariants(&self) {
        debug_assert!(self.slots.len() <= self.capacity, "at most max_dest_rd_atomic");
        debug_assert!(self.queue.len() <= self.slots.len(), "each slot is queued once");
        debug_assert!(self.queue.iter().all(|slot| *slot < self.slots.len()), "slots exist");
        debug_assert!(self.oldest <= self.slots.len(), "the oldest is a slot, or the next one");
    }
}
