//! Completion queues.

use crate::tables::Slab;
use crate::wc::{Wc, WcStatus};
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

/// A completion found no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    /// The queue had lost none before.
    pub(crate) first: bool,
}

/// A bounded queue of completions, oldest first.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ready: VecDeque<Wc>,
    capacity: usize,
    overrun: bool,
    /// What is waited for, once.
    armed: Option<Notify>,
}

/// Which completion an armed queue tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next that the sender marked as solicited, or that has an error status.
    Solicited,
}

/// All completion queues of an endpoint. Passed to queue pairs, never stored in one.
#[derive(Debug)]
pub(crate) struct CqTable {
    pub(crate) queues: Slab<CompletionQueue>,
    /// Set by every push: the host runs its application then.
    has_new: bool,
    /// Armed queues that got what they were armed for, each once.
    notifications: VecDeque<CqId>,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        let ready = VecDeque::with_capacity(capacity);
        Self { ready, capacity, overrun: false, armed: None }
    }

    fn push(&mut self, wc: Wc) -> Result<(), Lost> {
        if self.ready.len() == self.capacity {
            let again = std::mem::replace(&mut self.overrun, true);
            return Err(Lost { first: !again });
        }
        self.ready.push_back(wc);
        Ok(())
    }

    /// True once when `wc` is what the queue was armed for. An overrun is told of in any case.
    fn disarm_for(&mut self, wc: &Wc) -> bool {
        let due = match self.armed {
            None => false,
            Some(Notify::Next) => true,
            Some(Notify::Solicited) => {
                self.overrun || wc.solicited || wc.status != WcStatus::Success
            }
        };
        if due {
            self.armed = None;
        }
        due
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
        Self { queues: Slab::new(max_cqs), has_new: false, notifications: VecDeque::new() }
    }

    /// Adds a completion, or reports that it is lost.
    pub(crate) fn push(&mut self, cq: CqId, wc: Wc) -> Result<(), Lost> {
        self.has_new = true;
        let queue = self.queues.at_mut(cq.0).ok_or(Lost { first: false })?;
        let pushed = queue.push(wc);
        if queue.disarm_for(&wc) && !self.notifications.contains(&cq) {
            self.notifications.push_back(cq);
        }
        pushed
    }

    /// Arms a queue for one event.
    pub(crate) fn arm(&mut self, cq: CqId, notify: Notify) -> Result<(), CqError> {
        let queue = self.queues.at_mut(cq.0).ok_or(CqError::Unknown)?;
        // The wider wish wins, as ibv_req_notify_cq has it.
        if queue.armed != Some(Notify::Next) {
            queue.armed = Some(notify);
        }
        Ok(())
    }

    /// The next queue that got what it was armed for.
    pub(crate) fn pop_notification(&mut self) -> Option<CqId> {
        self.notifications.pop_front()
    }

    /// Removes a queue, and what would still be told of it.
    pub(crate) fn remove(&mut self, cq: CqId) -> bool {
        self.notifications.retain(|notified| *notified != cq);
        self.queues.remove(cq.0).is_some()
    }

    /// True while completions were added that nobody was told of.
    pub(crate) fn has_new(&self) -> bool {
        self.has_new
    }

    /// True once after any completion was added.
    pub(crate) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.has_new)
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
    use crate::wc::WcOpcode;
    use spanwire_wire::Qpn;

    fn wc(wr_id: u64) -> Wc {
        let (status, opcode) = (WcStatus::Success, WcOpcode::Send);
        let qpn = Qpn::new(7);
        let (imm, invalidated_rkey, solicited) = (None, None, false);
        Wc { wr_id, status, opcode, qpn, byte_len: 0, imm, invalidated_rkey, solicited }
    }

    #[test]
    fn arm__notifies_once_of_the_completion_it_names() {
        let mut t = CqTable::new(2);
        let [a, b] = [0, 1].map(|_| CqId(t.queues.insert(CompletionQueue::new(9)).unwrap()));
        assert_eq!(t.arm(CqId(7), Notify::Next), Err(CqError::Unknown));
        t.push(a, wc(1)).unwrap();
        assert_eq!(t.pop_notification(), None, "not armed");
        t.arm(a, Notify::Solicited).unwrap();
        t.push(a, wc(2)).unwrap();
        t.push(b, wc(3)).unwrap();
        assert_eq!(t.pop_notification(), None);
        t.push(a, Wc { solicited: true, ..wc(4) }).unwrap();
        t.push(a, Wc { solicited: true, ..wc(5) }).unwrap();
        assert_eq!((t.pop_notification(), t.pop_notification()), (Some(a), None));
        t.arm(a, Notify::Solicited).unwrap();
        t.push(a, Wc { status: WcStatus::WrFlushErr, ..wc(6) }).unwrap();
        t.arm(b, Notify::Next).unwrap();
        t.arm(b, Notify::Solicited).unwrap();
        t.push(b, wc(7)).unwrap();
        assert_eq!(
            (t.pop_notification(), t.pop_notification(), t.pop_notification()),
            (Some(a), Some(b), None)
        );
    }

    #[test]
    fn poll__gives_what_was_held_and_then_says_overrun() {
        let mut t = CqTable::new(1);
        let cq = CqId(t.queues.insert(CompletionQueue::new(2)).unwrap());
        assert_eq!((t.push(cq, wc(1)), t.push(cq, wc(2))), (Ok(()), Ok(())));
        assert_eq!(t.push(cq, wc(3)), Err(Lost { first: true }));
        assert_eq!(t.push(cq, wc(4)), Err(Lost { first: false }));
        let q = t.queues.at_mut(cq.0).unwrap();
        assert_eq!(q.poll(), Ok(Some(wc(1))));
        assert_eq!(q.poll(), Ok(Some(wc(2))));
        assert_eq!(q.poll(), Err(CqError::Overrun));
    }

    #[test]
    fn take_event__is_true_once() {
        let mut t = CqTable::new(1);
        assert!(!t.take_new());
        assert_eq!(t.push(CqId(9), wc(1)), Err(Lost { first: false }));
        assert!(t.take_new());
        assert!(!t.take_new());
    }
}
