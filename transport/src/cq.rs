//! Completion queues.

use crate::tables::WorkerSlab;
use crate::wc::{Wc, WcStatus};
use spanwire_base::u32_from;
use spanwire_wire::Qpn;
use std::collections::VecDeque;
use std::fmt;

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub(crate) u32);

/// The reason why completions cannot be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CqError {
    /// There is no such queue.
    Unknown,
    /// More completions were added than the queue holds. Some are lost, so the queue is unusable,
    /// and the queue pairs that overran it are in the error state. A completion queue must hold all
    /// requests that may be outstanding on it.
    Overrun,
}

/// A completion was lost, because its queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    /// No completion of this queue was lost before.
    pub(crate) first: bool,
}

/// A bounded queue of completions, oldest first.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    ready: VecDeque<Wc>,
    capacity: usize,
    overrun: bool,
    /// The completion that the queue is armed for.
    armed: Option<Notify>,
}

/// The completion that an armed queue notifies of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next solicited one, or one with an error status.
    Solicited,
}

/// All completion queues of an endpoint. Passed to queue pairs, never stored in one.
#[derive(Debug)]
pub(crate) struct CqTable {
    pub(crate) queues: WorkerSlab<CompletionQueue>,
    /// Completions were added; the host then runs its application.
    has_new: bool,
    /// Queues whose armed event has occurred, each once.
    notifications: VecDeque<CqId>,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        let ready = VecDeque::with_capacity(capacity);
        Self { ready, capacity, overrun: false, armed: None }
    }

    #[inline]
    fn push(&mut self, wc: Wc) -> Result<(), Lost> {
        if self.ready.len() == self.capacity {
            let was_overrun = std::mem::replace(&mut self.overrun, true);
            return Err(Lost { first: !was_overrun });
        }
        self.ready.push_back(wc);
        Ok(())
    }

    /// Disarms the queue if it is armed for `wc`, and returns whether it was. An overrun matches in
    /// any case.
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

    /// Passes at most `max` completions to `each`. A queue that overran returns the error once it
    /// is empty.
    pub(crate) fn poll_into(&mut self, max: usize, each: impl FnMut(Wc)) -> Result<usize, CqError> {
        if self.ready.is_empty() && self.overrun {
            return Err(CqError::Overrun);
        }
        let n = max.min(self.ready.len());
        self.ready.drain(..n).for_each(each);
        Ok(n)
    }

    /// Polling returns neither a completion nor an error. A queue that overran returns the
    /// completions that it holds, then the error.
    pub(crate) fn is_idle(&self) -> bool {
        self.ready.is_empty() && !self.overrun
    }

    /// Removes the oldest completion.
    pub(crate) fn take_oldest(&mut self) -> Option<Wc> {
        self.ready.pop_front()
    }
}

impl CqTable {
    pub(crate) fn new(max_cqs: u32, worker: u8) -> Self {
        Self {
            queues: WorkerSlab::new(max_cqs, worker),
            has_new: false,
            notifications: VecDeque::new(),
        }
    }

    /// Completions that the largest queue holds.
    pub(crate) fn max_capacity(&self) -> u32 {
        let capacities = self.queues.objects().map(|q| q.capacity);
        u32_from(capacities.max().unwrap_or(0))
    }

    /// Adds a completion, or reports that it is lost.
    #[inline]
    pub(crate) fn push(&mut self, cq: CqId, wc: Wc) -> Result<(), Lost> {
        self.has_new = true;
        let queue = self.queues.at_mut(cq.0).ok_or(Lost { first: false })?;
        let pushed = queue.push(wc);
        if queue.disarm_for(&wc) && !self.notifications.contains(&cq) {
            self.notifications.push_back(cq);
        }
        pushed
    }

    /// Removes the completions of a queue pair that is destroyed or reset from its queues: their
    /// `wr_id` may name freed memory.
    pub(crate) fn forget(&mut self, cqs: [CqId; 2], qpn: Qpn) {
        for cq in cqs {
            if let Some(queue) = self.queues.at_mut(cq.0) {
                queue.ready.retain(|wc| wc.qpn != qpn);
            }
        }
    }

    /// Arms a queue for one event.
    pub(crate) fn arm(&mut self, cq: CqId, notify: Notify) -> Result<(), CqError> {
        let queue = self.queues.at_mut(cq.0).ok_or(CqError::Unknown)?;
        // `Next` overrides `Solicited`, as in ibv_req_notify_cq.
        if queue.armed != Some(Notify::Next) {
            queue.armed = Some(notify);
        }
        Ok(())
    }

    /// The next queue whose armed event has occurred.
    pub(crate) fn pop_notification(&mut self) -> Option<CqId> {
        self.notifications.pop_front()
    }

    /// Removes a queue and its pending notification.
    pub(crate) fn remove(&mut self, cq: CqId) -> bool {
        self.notifications.retain(|notified| *notified != cq);
        self.queues.remove(cq.0).is_some()
    }

    /// Completions were added since the last [`CqTable::take_new`].
    pub(crate) fn has_new(&self) -> bool {
        self.has_new
    }

    /// Completions were added since the last call.
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

    fn wc(wr_id: u64) -> Wc {
        let (status, opcode) = (WcStatus::Success, WcOpcode::Send);
        let qpn = Qpn::new(7);
        let (imm, invalidated_rkey, solicited) = (None, None, false);
        Wc { wr_id, status, opcode, qpn, byte_len: 0, imm, invalidated_rkey, solicited }
    }

    #[test]
    fn arm__notifies_once_of_the_completion_it_names() {
        let mut t = CqTable::new(2, 0);
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
    fn poll__returns_the_completions_held_and_then_overrun() {
        let mut t = CqTable::new(1, 0);
        let cq = CqId(t.queues.insert(CompletionQueue::new(2)).unwrap());
        assert_eq!((t.push(cq, wc(1)), t.push(cq, wc(2))), (Ok(()), Ok(())));
        assert_eq!(t.push(cq, wc(3)), Err(Lost { first: true }));
        assert_eq!(t.push(cq, wc(4)), Err(Lost { first: false }));
        let q = t.queues.at_mut(cq.0).unwrap();
        assert_eq!([(); 3].map(|()| q.take_oldest()), [Some(wc(1)), Some(wc(2)), None]);
        assert!(!q.is_idle());
        assert_eq!(q.poll_into(1, drop), Err(CqError::Overrun));
    }

    #[test]
    fn take_new__is_true_once() {
        let mut t = CqTable::new(1, 0);
        assert!(!t.take_new());
        assert_eq!(t.push(CqId(9), wc(1)), Err(Lost { first: false }));
        assert!(t.take_new());
        assert!(!t.take_new());
    }
}
