//! The life cycle of blocks, between calls.

use super::block::{Sums, ones};
use super::{Decoder, OPEN_MAX, REPORTS_MAX};

impl Decoder {
    /// Asserts the bounds, and of each open block what of it counts.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        debug_assert!(self.open.len() <= OPEN_MAX, "open blocks are bounded");
        debug_assert!(self.reports.len() <= REPORTS_MAX, "reports are bounded");
        for block in self.open.iter().take(SOME) {
            let all = ones(block.block.pkts());
            debug_assert!(
                block.arrived & !all == 0,
                "packets beyond a block's end are none of its"
            );
            debug_assert!(block.usable & !all == 0, "nor do they count");
            debug_assert!(block.in_sums & !ones(block.block.data) == 0, "parity is in no sum");
            let keeps = !matches!(block.sums, Sums::Dropped);
            debug_assert!(!block.has_all_data() || !keeps, "a block with its data keeps no parity");
        }
    }

    /// No block is open.
    pub(in crate::sr) fn is_idle(&self) -> bool {
        self.open.len() == 0
    }
}

/// Blocks looked at in each check.
const SOME: usize = 8;
