//! The receive requests of a queue pair: its own queue or a shared one, and the request in use.

use super::wq::WorkQueue;
use crate::config::MAX_SGE;
use crate::event::Events;
use crate::mr::PdId;
use crate::srq::{SrqId, SrqTable};
use crate::verbs::{RecvRequest, Sge};
use arrayvec::ArrayVec;

/// A receive request in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rwqe {
    pub(crate) wr_id: u64,
    /// Bytes of all its SGEs.
    pub(crate) len: u32,
}

/// Where receive requests come from, and the one that the message in progress fills.
///
/// A request is taken when its message begins and held until it ends: a shared queue goes on
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Receive {
    source: Source,
    taken: Option<Taken>,
}

#[derive(Debug)]
enum Source {
    Own(PdId, WorkQueue<Rwqe>),
    Shared(SrqId),
}

/// A request out of its queue.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) rwqe: Rwqe,
    /// Whose keys its SGEs name.
    pub(crate) pd: PdId,
    pub(crate) sges: ArrayVec<Sge, { MAX_SGE as usize }>,
}

impl Receive {
    /// A queue of the queue pair's own.
    pub(crate) fn own(pd: PdId, max_wr: u32, max_sge: u32) -> Self {
        Self { source: Source::Own(pd, WorkQueue::new(max_wr, max_sge, 0)), taken: None }
    }

    /// From a shared queue.
    pub(crate) fn shared(srq: SrqId) -> Self {
        Self { source: Source::Shared(srq), taken: None }
    }

    /// The own queue, if there is one: what may be posted to.
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

    /// Queues a checked receive request of `len` bytes; false when the queue is a shared one.
    pub(crate) fn post(&mut self, wr: &RecvRequest<'_>, len: u32) -> bool {
        match &mut self.source {
            Source::Own(_, queue) => {
                queue.push(Rwqe { wr_id: wr.wr_id, len }, wr.sges, &[]);
                true
            }
            Source::Shared(_) => false,
        }
    }

    /// Makes sure that a request is in use. Returns false when there is none to take.
    pub(crate) fn take(&mut self, srqs: &mut SrqTable, events: &mut Events) -> bool {
        if self.taken.is_some() {
            return true;
        }
        let mut sges = ArrayVec::new();
        let next = match &mut self.source {
            Source::Own(pd, queue) => {
                sges.extend(queue.sges(0).iter().copied());
                queue.pop_front().map(|rwqe| (*pd, rwqe))
            }
            Source::Shared(srq) => srqs.take(*srq, &mut sges, events),
        };
        self.taken = next.map(|(pd, rwqe)| Taken { rwqe, pd, sges });
        self.taken.is_some()
    }

    /// The request in use.
    pub(crate) fn taken(&self) -> Option<&Taken> {
        self.taken.as_ref()
    }

    /// The message that used it is over, well or not.
    pub(crate) fn finish(&mut self) -> Option<Rwqe> {
        self.taken.take().map(|t| t.rwqe)
    }

    /// Takes the oldest request out: for flushing. What is left of a shared queue stays there.
    pub(crate) fn pop(&mut self) -> Option<Rwqe> {
        self.finish().or_else(|| match &mut self.source {
            Source::Own(_, queue) => queue.pop_front(),
            Source::Shared(_) => None,
        })
    }

    /// Forgets everything posted, without completions.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__holds_one_until_it_is_finished() {
        let (mut srqs, mut events) = (SrqTable::new(1), Events::default());
        let mut r = Receive::own(PdId(1), 4, 1);
        assert!(!r.take(&mut srqs, &mut events));
        for wr_id in [1, 2] {
            assert!(r.post(&RecvRequest { wr_id, sges: &[Sge { len: 9, ..Sge::default() }] }, 9));
        }
        for _ in 0..2 {
            assert!(r.take(&mut srqs, &mut events));
        }
        let taken = r.taken().unwrap();
        assert_eq!((taken.rwqe.wr_id, taken.sges.len(), taken.pd), (1, 1, PdId(1)));
        assert_eq!(r.pop().map(|w| w.wr_id), Some(1), "flushed first");
        assert_eq!(r.pop().map(|w| w.wr_id), Some(2));
        assert_eq!(r.pop(), None);
    }

    #[test]
    fn post__a_shared_queue_is_not_posted_to_through_a_queue_pair() {
        let mut r = Receive::shared(SrqId(0));
        assert!(!r.post(&RecvRequest { wr_id: 1, sges: &[] }, 0));
        assert!(r.own_queue().is_none());
    }
}
