//! Completion queues.

use crate::tables::Slab;
use crate::wc::Wc;
use std::collections::VecDeque;
use std::fmt;

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub(crate) u32);

/// Why completions cannot be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CqError {
    /// There is no such queue.
    Unknown,
    /// More completions arrived than the queue holds. Some are lost, so the queue is of no more
    /// use and the queue pairs that hit it are in the error state. Make the queue at least as large
    /// as all requests that may be outstanding on it.
    Overrun,
}

/// A bounded queue of completions, oldest first.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ready: VecDeque<Wc>,
    capacity: usize,
    overrun: bool,
}

/// All completion queues of an endpoint. Passed to queue pairs, never stored in one.
#[derive(Debug)]
pub(crate) struct CqTable {
    pub(crate) queues: Slab<CompletionQueue>,
    /// Set by every push: the host runs its application then.
    event: bool,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self { ready: VecDeque::with_capacity(capacity), capacity, overrun: false }
    }

    fn push(&mut self, wc: Wc) -> Result<(), CqError> {
        if self.ready.len() == self.capacity {
            self.overrun = true;
            return Err(CqError::Overrun);
        }
        self.ready.push_back(wc);
        Ok(())
    }

    /// The oldest completion. A queue that overran still gives what it holds, then the error.
    pub(crate) fn poll(&mut self) -> Result<Option<Wc>, CqError> {
        match self.ready.pop_front() {
            Some(wc) => Ok(Some(wc)),
            None if self.overrun => Err(CqError::Overrun),
            None => Ok(None),
        }
    }
}

impl CqTable {
    pub(crate) fn new(max_cqs: u32) -> Self {
        Self { queues: Slab::new(max_cqs), event: false }
    }

    /// Adds a completion, or reports that it is lost.
    pub(crate) fn push(&mut self, cq: CqId, wc: Wc) -> Result<(), CqError> {
        self.event = true;
        self.queues.at_mut(cq.0).ok_or(CqError::Unknown)?.push(wc)
    }

    /// True while completions were added that nobody was told of.
    pub(crate) fn has_event(&self) -> bool {
        self.event
    }

    /// True once after any completion was added.
    pub(crate) fn take_event(&mut self) -> bool {
        std::mem::take(&mut self.event)
    }
}

impl fmt::Display for CqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such completion queue",
            Self::Overrun => "the completion queue overran: it is smaller than what was posted",
        })
    }
}

impl std::error::Error for CqError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wc::{WcOpcode, WcStatus};
    use spanwire_wire::Qpn;

    fn wc(wr_id: u64) -> Wc {
        let (status, opcode) = (WcStatus::Success, WcOpcode::Send);
        let qpn = Qpn::new(7);
        Wc { wr_id, status, opcode, qpn, byte_len: 0, imm: None, solicited: false }
    }

    #[test]
    fn poll__gives_what_was_held_and_then_says_overrun() {
        let mut t = CqTable::new(1);
        let cq = CqId(t.queues.insert(CompletionQueue::new(2)).unwrap());
        assert_eq!((t.push(cq, wc(1)), t.push(cq, wc(2))), (Ok(()), Ok(())));
        assert_eq!(t.push(cq, wc(3)), Err(CqError::Overrun));
        let q = t.queues.at_mut(cq.0).unwrap();
        assert_eq!(q.poll(), Ok(Some(wc(1))));
        assert_eq!(q.poll(), Ok(Some(wc(2))));
        assert_eq!(q.poll(), Err(CqError::Overrun));
    }

    #[test]
    fn take_event__is_true_once() {
        let mut t = CqTable::new(1);
        assert!(!t.take_event());
        assert_eq!(t.push(CqId(9), wc(1)), Err(CqError::Unknown));
        assert!(t.take_event());
        assert!(!t.take_event());
    }
}
