//! Posted requests and their completions: each once, in order.

use super::memory::Reach;
use spanwire_transport::{Wc, WcStatus};
use std::collections::VecDeque;

/// The requests of one queue, oldest first.
#[derive(Default)]
pub(super) struct Ledger {
    posted: VecDeque<Posted>,
    /// Requests one of which, it is unknown which, may have been dropped.
    missing: usize,
}

/// A posted request that was accepted.
pub(super) struct Posted {
    pub(super) wr_id: u64,
    /// It completes even if it succeeds.
    pub(super) is_signaled: bool,
    /// The queue pair was reset: it may end without a completion.
    pub(super) is_reset: bool,
    /// Its buffer length in bytes.
    pub(super) room: usize,
    /// Memory that may change while it is outstanding.
    pub(super) written: Option<Reach>,
}

impl Ledger {
    pub(super) fn post(&mut self, posted: Posted) {
        self.posted.push_back(posted);
    }

    /// Checks a completion. With `is_lossy` some may be missing.
    pub(super) fn complete(&mut self, wc: &Wc, is_lossy: bool) {
        loop {
            let oldest = self.posted.pop_front();
            let posted = oldest.unwrap_or_else(|| panic!("no posted request for {wc:?}"));
            if posted.wr_id == wc.wr_id {
                let succeeded = wc.status == WcStatus::Success;
                assert!(posted.is_signaled || !succeeded, "not signaled: {wc:?}");
                assert!(
                    !succeeded || spanwire_base::usize_from(wc.byte_len.into()) <= posted.room,
                    "more bytes than posted: {wc:?}"
                );
                return;
            }
            let silent = !posted.is_signaled || posted.is_reset || is_lossy;
            if !silent {
                let forgiven = self.missing.checked_sub(1);
                self.missing = forgiven.unwrap_or_else(|| panic!("{wc:?} skips {}", posted.wr_id));
            }
        }
    }

    /// True if an outstanding request explains a change of `changed`.
    pub(super) fn explains(&self, changed: &Reach) -> bool {
        self.written().any(|written| written.contains(changed))
    }

    /// The ranges into which outstanding requests may write.
    pub(super) fn written(&self) -> impl Iterator<Item = Reach> {
        self.posted.iter().filter_map(|p| p.written.clone())
    }

    /// A reset: posted requests may end with a completion or without.
    pub(super) fn reset(&mut self) {
        self.posted.iter_mut().for_each(|p| p.is_reset = true);
    }

    /// A reset with a shared receive queue: at most `at_most` requests may be lost.
    pub(super) fn reset_shared(&mut self, at_most: usize) {
        self.missing += at_most;
    }

    /// The oldest request that must still complete.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.posted.iter().find(|p| p.is_signaled && !p.is_reset).map(|p| p.wr_id)
    }
}
