//! Asynchronous events of queue pairs and queues, which no completion reports.

use crate::cq::CqId;
use crate::ids::SrqId;
use spanwire_wire::Qpn;
use std::collections::VecDeque;

/// An asynchronous event, as in verbs (`IBV_EVENT_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncEvent {
    /// The first request arrived before the transition to RTS (`COMM_EST`).
    CommEst(Qpn),
    /// The send queue is drained: all requests that had begun are complete (`SQ_DRAINED`).
    SqDrained(Qpn),
    /// We refused a request of the peer as invalid; the queue pair failed (`QP_REQ_ERR`).
    QpReqErr(Qpn),
    /// We refused the peer access to memory; the queue pair failed (`QP_ACCESS_ERR`).
    QpAccessErr(Qpn),
    /// The queue pair failed for a reason that no completion reports (`QP_FATAL`).
    QpFatal(Qpn),
    /// A failed queue pair takes no further request from its shared receive queue
    /// (`QP_LAST_WQE_REACHED`).
    LastWqeReached(Qpn),
    /// A shared receive queue fell below its limit (`SRQ_LIMIT_REACHED`).
    SrqLimitReached(SrqId),
    /// A completion queue overran (`CQ_ERR`).
    CqErr(CqId),
}

/// Unpolled events, oldest first. At most [`EVENTS_MAX`]; further ones are lost and counted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<AsyncEvent>,
    lost: u64,
    /// Events were added; the host then runs its application.
    has_new: bool,
}

impl AsyncEvent {
    /// The queue pair of the event, if it is of one.
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

    /// Removes the events of a destroyed object, whose number may be reused.
    pub(crate) fn remove(&mut self, gone: impl Fn(AsyncEvent) -> bool) {
        self.queue.retain(|event| !gone(*event));
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Events were added since the last [`Events::take_new`].
    pub(crate) fn has_new(&self) -> bool {
        self.has_new
    }

    /// Events were added since the last call.
    pub(crate) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.has_new)
    }
}

/// A queue pair has a handful of events in its lifetime. This is enough for all queue pairs of a
/// default endpoint to fail at once.
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
        assert_eq!(e.lost(), 5000 - 4096, "there was room");
    }
}
