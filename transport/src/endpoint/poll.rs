//! Completions and events.

use super::{Endpoint, Entry};
use crate::config::ValidConfig;
use crate::cq::{CompletionQueue, CqError, CqId, Notify};
use crate::event::AsyncEvent;
use crate::qp::common::Shared;
use crate::tables::Slab;
use crate::wc::Wc;

impl Endpoint {
    /// The oldest completion of a queue, if there is one.
    ///
    /// # Errors
    /// See [`CqError`].
    #[inline]
    pub fn poll_cq(&mut self, cq: CqId) -> Result<Option<Wc>, CqError> {
        // An application that polls busily finds nothing most of the time.
        match self.shared.cqs.queues.at(cq.0).is_some_and(CompletionQueue::is_idle) {
            true => Ok(None),
            false => self.poll_ready(cq),
        }
    }

    #[inline(never)]
    fn poll_ready(&mut self, cq: CqId) -> Result<Option<Wc>, CqError> {
        let queue = self.shared.cqs.queues.at_mut(cq.0).ok_or(CqError::Unknown)?;
        let wc = queue.take_oldest().ok_or(CqError::Overrun)?;
        if self.counts_polled {
            note_polled(&mut self.qps, &self.shared.config, &wc);
        }
        Ok(Some(wc))
    }

    /// Passes the completions of a queue to `each`, oldest first, at most `max`, and returns their
    /// number. Allocates nothing.
    ///
    /// # Errors
    /// See [`CqError`]; there was no completion.
    pub fn poll_cq_into(
        &mut self,
        cq: CqId,
        max: usize,
        mut each: impl FnMut(Wc),
    ) -> Result<usize, CqError> {
        let Self { shared: Shared { cqs, config, .. }, qps, counts_polled, .. } = self;
        let queue = cqs.queues.at_mut(cq.0).ok_or(CqError::Unknown)?;
        if !*counts_polled {
            return queue.poll_into(max, each);
        }
        queue.poll_into(max, |wc| {
            note_polled(qps, config, &wc);
            each(wc);
        })
    }

    /// Arms a completion queue: the next completion that `notify` names makes
    /// [`Endpoint::poll_cq_event`] return the queue, once. Completions already in the queue cause
    /// no event, so poll the queue once more after arming it.
    ///
    /// # Errors
    /// [`CqError::Unknown`].
    pub fn req_notify_cq(&mut self, cq: CqId, notify: Notify) -> Result<(), CqError> {
        self.shared.cqs.arm(cq, notify)
    }

    /// The next completion queue whose armed event has occurred.
    pub fn poll_cq_event(&mut self) -> Option<CqId> {
        self.shared.cqs.pop_notification()
    }

    /// The oldest asynchronous event. At most 4096 are queued; further ones are lost and counted
    /// ([`Endpoint::async_events_lost`]).
    pub fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.shared.events.pop()
    }
}

/// Tells the queue pair of a completion that it was polled.
#[inline]
fn note_polled(qps: &mut Slab<Entry>, config: &ValidConfig, wc: &Wc) {
    let slot = config.slot_of(wc.qpn);
    if let Some(entry) = qps.at_mut(slot).filter(|entry| entry.qp.qpn() == wc.qpn) {
        entry.qp.on_polled(wc);
    }
}
