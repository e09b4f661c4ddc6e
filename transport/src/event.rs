//! Asynchronous events: what happened to an object without a request to say it.

use crate::cq::CqId;
use crate::ids::SrqId;
use spanwire_wire::Qpn;
use std::collections::VecDeque;

/// Something that happened to an object, with the meaning verbs give it (`IBV_EVENT_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncEvent {
    /// The first request arrived before the queue pair was told to send (`COMM_EST`).
    CommEst(Qpn),
    /// The send queue is drained: nothing that had begun is left (`SQ_DRAINED`).
    SqDrained(Qpn),
    /// We refused a request of the peer as invalid; the queue pair failed (`QP_REQ_ERR`).
    QpReqErr(Qpn),
    /// We refused the peer access to memory; the queue pair failed (`QP_ACCESS_ERR`).
    QpAccessErr(Qpn),
    /// The queue pair failed for a reason that no completion tells (`QP_FATAL`).
    QpFatal(Qpn),
    /// A failed queue pair will take nothing more from its shared receive queue
    /// (`QP_LAST_WQE_REACHED`).
    LastWqeReached(Qpn),
    /// A shared receive queue fell below its limit (`SRQ_LIMIT_REACHED`).
    SrqLimitReached(SrqId),
    /// A completion queue overran (`CQ_ERR`).
    CqErr(CqId),
}

/// The events nobody has polled yet, oldest first. At most [`EVENTS_MAX`]: a further one is lost
/// and counted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<AsyncEvent>,
    lost: u64,
    /// Set by every push: the host runs its application then.
    has_new: bool,
}

impl AsyncEvent {
    /// The queue pair it is of, if it is of one.
    #[must_use]
    pub const fn qpn(self) -> Option<Qpn> {
        match self {
            Self::CommEst(qpn)
            | Self::SqDrained(qpn)
            | Self::QpReqErr(qpn)
            | Self::QpAccessErr(qpn)
            | Self::QpFatal(qpn)
            | Self::LastWqeReached(qpn) => Some(qpn),
            Self::SrqLimitReached(_) | Self::CqErr(_) => None,
        }
    }

    /// The standard name without its `IBV_EVENT_` prefix, e.g. `SQ_DRAINED`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommEst(_) => "COMM_EST",
            Self::SqDrained(_) => "SQ_DRAINED",
            Self::QpReqErr(_) => "QP_REQ_ERR",
            Self::QpAccessErr(_) => "QP_ACCESS_ERR",
            Self::QpFatal(_) => "QP_FATAL",
            Self::LastWqeReached(_) => "QP_LAST_WQE_REACHED",
            Self::SrqLimitReached(_) => "SRQ_LIMIT_REACHED",
            Self::CqErr(_) => "CQ_ERR",
        }
    }
}

impl Events {
    pub(crate) fn push(&mut self, event: AsyncEvent) {
        self.has_new = true;
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<AsyncEvent> {
        self.queue.pop_front()
    }

    /// Forgets the events of an object that is gone: its number may come back.
    pub(crate) fn forget(&mut self, gone: impl Fn(AsyncEvent) -> bool) {
        self.queue.retain(|event| !gone(*event));
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// True while events were added that nobody was told of.
    pub(crate) fn has_new(&self) -> bool {
        self.has_new
    }

    /// True once after any event was added.
    pub(crate) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.has_new)
    }
}

/// A queue pair makes a handful of events in its life: this is enough for all of them to fail at
/// once in an endpoint of the default size.
const EVENTS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push__beyond_the_limit_is_counted_and_lost() {
        let mut e = Events::default();
        for n in 0..5000 {
            e.push(AsyncEvent::QpFatal(Qpn::new(n)));
        }
        assert_eq!(e.lost(), 5000 - 4096);
        assert_eq!(e.pop(), Some(AsyncEvent::QpFatal(Qpn::new(0))));
        e.push(AsyncEvent::CqErr(CqId(1)));
        assert_eq!(e.lost(), 5000 - 4096, "there was room again");
    }
}
