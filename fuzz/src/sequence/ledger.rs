//! What was posted and how it ended: everything once, in order.

use super::memory::Reach;
use spanwire_transport::{Wc, WcStatus};
use std::collections::VecDeque;

/// One queue's requests, oldest first.
#[derive(Default)]
pub(super) struct Ledger {
    posted: VecDeque<Posted>,
    /// Requests of which one, whichever it was, may have been forgotten.
    missing: usize,
}

/// A request that was taken.
pub(super) struct Posted {
    pub(super) wr_id: u64,
    /// It gives a completion when it succeeds, too.
    pub(super) is_signaled: bool,
    /// The queue pair forgot it: it may end without a word.
    pub(super) is_forgotten: bool,
    /// Bytes that it can take.
    pub(super) room: usize,
    /// Memory that may change while it is outstanding.
    pub(super) lands: Option<Reach>,
}

impl Ledger {
    pub(super) fn post(&mut self, posted: Posted) {
        self.posted.push_back(posted);
    }

    /// Checks a completion. With `is_lossy` some may be missing.
    pub(super) fn complete(&mut self, wc: &Wc, is_lossy: bool) {
        loop {
            let oldest = self.posted.pop_front();
            let posted = oldest.unwrap_or_else(|| panic!("nothing posted ends with {wc:?}"));
            if posted.wr_id == wc.wr_id {
                let succeeded = wc.status == WcStatus::Success;
                assert!(posted.is_signaled || !succeeded, "not signaled: {wc:?}");
                assert!(
                    !succeeded || spanwire_base::usize_from(wc.byte_len.into()) <= posted.room,
                    "more than fits: {wc:?}"
                );
                return;
            }
            let silent = !posted.is_signaled || posted.is_forgotten || is_lossy;
            if !silent {
                let forgiven = self.missing.checked_sub(1);
                self.missing =
                    forgiven.unwrap_or_else(|| panic!("{} is passed over by {wc:?}", posted.wr_id));
            }
        }
    }

    /// True when an outstanding request explains that `changed` did.
    pub(super) fn explains(&self, changed: &Reach) -> bool {
        self.lands().any(|lands| lands.contains(changed))
    }

    /// Where outstanding requests let bytes land.
    pub(super) fn lands(&self) -> impl Iterator<Item = Reach> {
        self.posted.iter().filter_map(|p| p.lands.clone())
    }

    /// The queue pair forgot what was posted: it may end with a completion or without.
    pub(super) fn forget(&mut self) {
        self.posted.iter_mut().for_each(|p| p.is_forgotten = true);
    }

    /// The queue pair forgot what it may have held of a shared queue: at most so many requests.
    pub(super) fn forget_some(&mut self, at_most: usize) {
        self.missing += at_most;
    }

    /// The oldest request that must still end.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.posted.iter().find(|p| p.is_signaled && !p.is_forgotten).map(|p| p.wr_id)
    }
}
