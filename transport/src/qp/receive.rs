//! The receive requests of a queue pair: its own queue or a shared one, and the request in use.

use super::wq::{Rwqe, Taken, WorkQueue};
use crate::config::MAX_SGE;
use crate::event::Events;
use crate::ids::SrqId;
use crate::mr::PdId;
use crate::srq::SrqTable;
use crate::verbs::{RecvRequest, Sge};
use arrayvec::ArrayVec;
use spanwire_base::u32_from;
use std::collections::VecDeque;

/// The source of receive requests, and the request that the message in progress fills.
///
/// A request is taken when its message begins and kept until it ends; other queue pairs use a
/// shared queue meanwhile.
#[derive(Debug)]
pub(crate) struct Receive {
    source: Source,
    /// The request in use with its protection domain; its SGEs are in `sges`.
    taken: Option<(PdId, Rwqe)>,
    sges: ArrayVec<Sge, { MAX_SGE as usize }>,
    /// Requests taken from a shared queue ahead, for messages whose packets arrive out of order.
    ahead: VecDeque<Taken>,
}

#[derive(Debug)]
enum Source {
    Own(PdId, WorkQueue<Rwqe>),
    Shared(SrqId),
}

impl Receive {
    /// A queue of the queue pair's own.
    pub(crate) fn own(pd: PdId, max_wr: u32, max_sge: u32) -> Self {
        Self::new(Source::Own(pd, WorkQueue::new(max_wr, max_sge, 0)))
    }

    /// From a shared queue.
    pub(crate) fn shared(srq: SrqId) -> Self {
        Self::new(Source::Shared(srq))
    }

    fn new(source: Source) -> Self {
        Self { source, taken: None, sges: ArrayVec::new(), ahead: VecDeque::new() }
    }

    /// The queue pair's own queue, if it has one.
    pub(crate) fn own_queue(&self) -> Option<&WorkQueue<Rwqe>> {
        match &self.source {
            Source::Own(_, queue) => Some(queue),
            Source::Shared(_) => None,
        }
    }

    pub(crate) fn srq(&self) -> Option<SrqId> {
        match self.source {
            Source::Own(..) => None,
            Source::Shared(srq) => Some(srq),
        }
    }

    /// Queues a checked receive request of `len` bytes. False if the queue is a shared one.
    pub(crate) fn post(&mut self, wr: &RecvRequest<'_>, len: u32) -> bool {
        match &mut self.source {
            Source::Own(_, queue) => {
                queue.push(Rwqe { wr_id: wr.wr_id, len }, wr.sges, &[]);
                true
            }
            Source::Shared(_) => false,
        }
    }

    /// Takes a request for the message in progress, unless it has one. False if none is posted.
    pub(crate) fn take(&mut self, srqs: &mut SrqTable, events: &mut Events) -> bool {
        if self.taken.is_some() {
            return true;
        }
        self.sges.clear();
        self.taken = match &mut self.source {
            Source::Own(pd, queue) => {
                self.sges.extend(queue.sges(0).iter().copied());
                queue.pop_front().map(|rwqe| (*pd, rwqe))
            }
            Source::Shared(srq) => srqs.take(*srq, &mut self.sges, events),
        };
        self.taken.is_some()
    }

    /// The request in use: protection domain, request, SGEs.
    #[inline]
    pub(crate) fn taken(&self) -> Option<(PdId, Rwqe, &[Sge])> {
        self.taken.map(|(pd, rwqe)| (pd, rwqe, &self.sges[..]))
    }

    /// The number of unfinished messages that can have a receive request, oldest first.
    pub(crate) fn reachable(&self, srqs: &SrqTable) -> u32 {
        let n = match &self.source {
            Source::Own(_, queue) => queue.len(),
            Source::Shared(srq) => {
                let posted = srqs.queues.at(srq.0).map_or(0, |q| q.queue.len());
                (self.ahead.len() + posted).min(AHEAD_MAX)
            }
        };
        u32_from(n)
    }

    /// Takes requests from a shared queue until the `i`-th oldest unused one is available. False if
    /// there are fewer.
    pub(crate) fn reach(&mut self, i: u32, srqs: &mut SrqTable, events: &mut Events) -> bool {
        if i >= self.reachable(srqs) {
            return false;
        }
        if let Source::Shared(srq) = self.source {
            while self.ahead.len() <= i as usize {
                let mut sges = ArrayVec::new();
                let Some((pd, rwqe)) = srqs.take(srq, &mut sges, events) else { return false };
                self.ahead.push_back(Taken { rwqe, pd, sges });
            }
        }
        true
    }

    /// The `i`-th oldest unused request, after [`Receive::reach`]: protection domain, request,
    /// SGEs.
    #[inline]
    pub(crate) fn at(&self, i: u32) -> Option<(PdId, Rwqe, &[Sge])> {
        let i = i as usize;
        match &self.source {
            Source::Own(pd, queue) => queue.at(i).map(|rwqe| (*pd, *rwqe, queue.sges(i))),
            Source::Shared(_) => self.ahead.get(i).map(|t| (t.pd, t.rwqe, &t.sges[..])),
        }
    }

    /// Removes the request in use: its message ended, with or without success.
    #[inline]
    pub(crate) fn finish(&mut self, srqs: &mut SrqTable) -> Option<Rwqe> {
        let (_, rwqe) = self.taken.take()?;
        self.used_up(srqs);
        Some(rwqe)
    }

    /// Removes the oldest request: its message is complete, or it is flushed. Requests not taken
    /// from a shared queue stay there.
    #[inline]
    pub(crate) fn pop(&mut self, srqs: &mut SrqTable) -> Option<Rwqe> {
        if self.taken.is_some() {
            return self.finish(srqs);
        }
        if let Some(taken) = self.ahead.pop_front() {
            self.used_up(srqs);
            return Some(taken.rwqe);
        }
        match &mut self.source {
            Source::Own(_, queue) => queue.pop_front(),
            Source::Shared(_) => None,
        }
    }

    /// Drops all requests without completions. Those taken from a shared queue return to its front,
    /// in order.
    pub(crate) fn clear(&mut self, srqs: &mut SrqTable) {
        match &mut self.source {
            Source::Own(_, queue) => {
                self.taken = None;
                queue.clear();
            }
            Source::Shared(srq) => {
                while let Some(taken) = self.ahead.pop_back() {
                    srqs.return_request(*srq, taken.rwqe, &taken.sges);
                }
                if let Some((_, rwqe)) = self.taken.take() {
                    srqs.return_request(*srq, rwqe, &self.sges);
                }
            }
        }
    }

    #[inline]
    fn used_up(&self, srqs: &mut SrqTable) {
        if let Source::Shared(srq) = self.source {
            srqs.used_up(srq);
        }
    }
}

/// Requests that one queue pair may take from a shared queue ahead. The peer determines how many it
/// uses, and other queue pairs need some.
const AHEAD_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srq::{SharedReceiveQueue, SrqInit};

    #[test]
    fn take__keeps_one_until_it_is_finished() {
        let (mut srqs, mut events) = (SrqTable::new(1, 0), Events::default());
        let mut r = Receive::own(PdId(1), 4, 1);
        assert!(!r.take(&mut srqs, &mut events));
        for wr_id in [1, 2] {
            assert!(r.post(&RecvRequest { wr_id, sges: &[Sge { len: 9, ..Sge::default() }] }, 9));
        }
        for _ in 0..2 {
            assert!(r.take(&mut srqs, &mut events));
        }
        let (pd, rwqe, sges) = r.taken().unwrap();
        assert_eq!((rwqe.wr_id, sges.len(), pd), (1, 1, PdId(1)));
        assert_eq!(r.pop(&mut srqs).map(|w| w.wr_id), Some(1), "flushed first");
        assert_eq!(r.pop(&mut srqs).map(|w| w.wr_id), Some(2));
        assert_eq!(r.pop(&mut srqs), None);
    }

    #[test]
    fn reach__takes_at_most_the_limit_from_a_shared_queue() {
        let (mut srqs, mut events) = (SrqTable::new(1, 0), Events::default());
        let init = SrqInit { pd: PdId(3), max_wr: 100, max_sge: 1 };
        let srq = SrqId(srqs.queues.insert(SharedReceiveQueue::new(&init)).unwrap());
        for wr_id in 0..100 {
            let recv = RecvRequest { wr_id, sges: &[] };
            srqs.queues.at_mut(srq.0).unwrap().post(&recv, 9);
        }
        let mut r = Receive::shared(srq);
        assert_eq!(r.reachable(&srqs), 64);
        assert!(!r.reach(64, &mut srqs, &mut events));
        assert_eq!(srqs.queues.at(srq.0).unwrap().info().posted, 100, "nothing was taken");
        assert!(r.reach(2, &mut srqs, &mut events));
        assert_eq!(srqs.queues.at(srq.0).unwrap().info().posted, 97);
        assert_eq!(r.at(2).map(|(pd, w, _)| (pd, w.wr_id)), Some((PdId(3), 2)));
        assert_eq!(r.at(3).map(|(_, w, _)| w.wr_id), None);
        let popped: Vec<u64> = std::iter::from_fn(|| r.pop(&mut srqs)).map(|w| w.wr_id).collect();
        assert_eq!(popped, [0, 1, 2]);
    }

    #[test]
    fn reach__an_own_queue_keeps_requests_until_they_are_used() {
        let (mut srqs, mut events) = (SrqTable::new(1, 0), Events::default());
        let mut r = Receive::own(PdId(1), 4, 1);
        for wr_id in [1, 2] {
            r.post(&RecvRequest { wr_id, sges: &[] }, 9);
        }
        assert!(r.reach(1, &mut srqs, &mut events));
        assert!(!r.reach(2, &mut srqs, &mut events));
        assert_eq!(r.pop(&mut srqs).map(|w| w.wr_id), Some(1));
        assert_eq!((r.at(0).map(|(_, w, _)| w.wr_id), r.reachable(&srqs)), (Some(2), 1));
    }

    #[test]
    fn post__a_shared_queue_is_not_posted_to_through_a_queue_pair() {
        let mut r = Receive::shared(SrqId(0));
        assert!(!r.post(&RecvRequest { wr_id: 1, sges: &[] }, 0));
        assert!(r.own_queue().is_none());
    }
}
