//! Shared receive queues (SRQ): receive requests for several queue pairs.

use crate::event::{AsyncEvent, Events};
use crate::ids::SrqId;
use crate::mr::PdId;
use crate::qp::wq::{Rwqe, WorkQueue};
use crate::tables::WorkerSlab;
use crate::verbs::{RecvRequest, Sge};
use std::fmt;

/// The attributes of `create_srq`.
#[derive(Clone, Copy, Debug)]
pub struct SrqInit {
    /// Protection domain of the memory of its receive requests; queue pairs may have another.
    pub pd: PdId,
    /// Receive requests, 1..=`Config::max_wr`.
    pub max_wr: u32,
    /// SGEs of a receive request, 1..=16.
    pub max_sge: u32,
}

/// Sizes and state of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInfo {
    /// Capacity in receive requests, including those in use by messages.
    pub max_wr: u32,
    /// SGEs of a receive request.
    pub max_sge: u32,
    /// Receive requests posted that no message has taken.
    pub posted: u32,
    /// The armed limit; 0 if none is.
    pub limit: u32,
}

/// The reason why a shared receive queue was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrqError {
    /// There is no such queue.
    Unknown,
    /// The limit is above the queue's capacity.
    LimitTooHigh,
    /// Queue pairs still use it.
    InUse,
}

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) pd: PdId,
    pub(crate) queue: WorkQueue<Rwqe>,
    max_wr: u32,
    /// Requests that queue pairs have taken and not used up: they may return.
    taken: u32,
    /// One event if fewer requests than this are left; 0 if not armed.
    limit: u32,
    /// A peer may need a receive request.
    needs_credit_update: bool,
}

/// All shared receive queues of an endpoint. Passed to queue pairs, never stored in one.
#[derive(Debug)]
pub(crate) struct SrqTable {
    pub(crate) queues: WorkerSlab<SharedReceiveQueue>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(init: &SrqInit) -> Self {
        let &SrqInit { pd, max_wr, max_sge } = init;
        let queue = WorkQueue::new(max_wr, max_sge, 0);
        Self { pd, queue, max_wr, taken: 0, limit: 0, needs_credit_update: false }
    }

    /// The queue is full. A request in use keeps its slot until it completes.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() + self.taken as usize >= self.max_wr as usize
    }

    /// Queues a checked receive request of `len` bytes.
    pub(crate) fn post(&mut self, wr: &RecvRequest<'_>, len: u32) {
        self.queue.push(Rwqe { wr_id: wr.wr_id, len }, wr.sges, &[]);
    }

    /// A peer may need a receive request since the last call ([`SrqTable::request_credit_update`]).
    pub(crate) fn take_credit_update(&mut self) -> bool {
        std::mem::take(&mut self.needs_credit_update)
    }

    /// Arms the limit: one event when fewer than `limit` requests are left. 0 disarms it.
    pub(crate) fn set_limit(&mut self, limit: u32) -> Result<(), SrqError> {
        if limit > self.max_wr {
            return Err(SrqError::LimitTooHigh);
        }
        self.limit = limit;
        Ok(())
    }

    pub(crate) fn info(&self) -> SrqInfo {
        SrqInfo {
            max_wr: self.max_wr,
            max_sge: spanwire_base::u32_from(self.queue.max_sge()),
            posted: spanwire_base::u32_from(self.queue.len()),
            limit: self.limit,
        }
    }
}

impl SrqTable {
    pub(crate) fn new(max_srqs: u32, worker: u8) -> Self {
        Self { queues: WorkerSlab::new(max_srqs, worker) }
    }

    /// A peer may need a request of this queue: the next one posted must be advertised.
    pub(crate) fn request_credit_update(&mut self, srq: SrqId) {
        if let Some(q) = self.queues.at_mut(srq.0) {
            q.needs_credit_update = true;
        }
    }

    /// Takes the oldest request of a queue, its SGEs into `sges`.
    pub(crate) fn take(
        &mut self,
        srq: SrqId,
        sges: &mut impl Extend<Sge>,
        events: &mut Events,
    ) -> Option<(PdId, Rwqe)> {
        let q = self.queues.at_mut(srq.0)?;
        sges.extend(q.queue.sges(0).iter().copied());
        let rwqe = q.queue.pop_front()?;
        q.taken += 1;
        if q.queue.len() < q.limit as usize {
            q.limit = 0;
            events.push(AsyncEvent::SrqLimitReached(srq));
        }
        Some((q.pd, rwqe))
    }

    /// A request from [`SrqTable::take`] has completed.
    pub(crate) fn used_up(&mut self, srq: SrqId) {
        if let Some(q) = self.queues.at_mut(srq.0) {
            q.taken = q.taken.saturating_sub(1);
        }
    }

    /// Returns an unused request from [`SrqTable::take`]: it becomes the oldest.
    pub(crate) fn return_request(&mut self, srq: SrqId, rwqe: Rwqe, sges: &[Sge]) {
        if let Some(q) = self.queues.at_mut(srq.0) {
            q.taken = q.taken.saturating_sub(1);
            q.queue.push_front(rwqe, sges);
        }
    }
}

impl fmt::Display for SrqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such shared receive queue",
            Self::LimitTooHigh => "the limit is above the queue's max_wr",
            Self::InUse => "queue pairs still use the shared receive queue: destroy them first",
        })
    }
}

impl std::error::Error for SrqError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(max_wr: u32) -> (SrqTable, SrqId) {
        let mut t = SrqTable::new(1, 0);
        let init = SrqInit { pd: PdId(3), max_wr, max_sge: 2 };
        let id = SrqId(t.queues.insert(SharedReceiveQueue::new(&init)).unwrap());
        (t, id)
    }

    #[test]
    fn take__returns_the_oldest_with_its_sges() {
        let (mut t, id) = table(4);
        let sge = |addr| Sge { addr, len: 1, lkey: 1 };
        for i in 0..2 {
            let sges = [sge(i), sge(i + 100)];
            t.queues.at_mut(id.0).unwrap().post(&RecvRequest { wr_id: i, sges: &sges }, 2);
        }
        let mut events = Events::default();
        for i in 0..2 {
            let mut sges = Vec::new();
            let (pd, rwqe) = t.take(id, &mut sges, &mut events).unwrap();
            assert_eq!((pd, rwqe.wr_id, rwqe.len), (PdId(3), i, 2));
            assert_eq!(sges, [sge(i), sge(i + 100)]);
        }
        assert!(t.take(id, &mut Vec::new(), &mut events).is_none());
        assert!(t.take(SrqId(9), &mut Vec::new(), &mut events).is_none());
    }

    #[test]
    fn return_request__becomes_the_oldest_in_the_slot_that_was_kept() {
        let (mut t, id) = table(3);
        let sge = |addr| Sge { addr, len: 1, lkey: 1 };
        let q = t.queues.at_mut(id.0).unwrap();
        for i in 0..3 {
            q.post(&RecvRequest { wr_id: i, sges: &[sge(i)] }, 1);
        }
        let mut events = Events::default();
        let mut take = |t: &mut SrqTable| {
            let mut sges = arrayvec::ArrayVec::new();
            let (pd, rwqe) = t.take(id, &mut sges, &mut events).unwrap();
            crate::qp::wq::Taken { rwqe, pd, sges }
        };
        let (first, second) = (take(&mut t), take(&mut t));
        assert!(t.queues.at(id.0).unwrap().is_full(), "both slots are kept");
        t.used_up(id);
        assert!(!t.queues.at(id.0).unwrap().is_full());
        t.return_request(id, second.rwqe, &second.sges);
        let returned = take(&mut t);
        assert_eq!((returned.rwqe.wr_id, &returned.sges[..]), (1, &[sge(1)][..]));
        assert_eq!((first.rwqe.wr_id, take(&mut t).rwqe.wr_id), (0, 2));
        // Nothing returns to a destroyed queue.
        t.queues.remove(id.0);
        t.used_up(id);
        t.return_request(id, returned.rwqe, &returned.sges);
    }

    #[test]
    fn set_limit__causes_one_event_each_time_it_is_armed() {
        let (mut t, id) = table(4);
        let q = t.queues.at_mut(id.0).unwrap();
        assert_eq!(q.set_limit(5), Err(SrqError::LimitTooHigh));
        let mut events = Events::default();
        for _ in 0..2 {
            let q = t.queues.at_mut(id.0).unwrap();
            q.set_limit(2).unwrap();
            while !q.queue.is_full() {
                q.post(&RecvRequest { wr_id: 0, sges: &[] }, 0);
            }
            let events: Vec<bool> = (0..4)
                .map(|_| {
                    t.take(id, &mut Vec::new(), &mut events);
                    events.pop().is_some()
                })
                .collect();
            assert_eq!(events, [false, false, true, false], "one left of four is below two");
        }
    }
}
