//! Periodic draining of send queues: RTS to SQD, and back to RTS on `SQ_DRAINED`.

use crate::setup::Drains;
use spanwire_base::{Time, usize_from};
use spanwire_transport::{Endpoint, QpAttr, QpState};
use spanwire_wire::Qpn;

/// Schedule of drains, and the queue pair that is draining.
#[derive(Debug)]
pub(crate) struct Draining {
    drains: Drains,
    next_at: Time,
    /// Drains that were due so far.
    turn: u64,
    /// The queue pair in SQD that has not reported `SQ_DRAINED`.
    draining_qpn: Option<Qpn>,
}

impl Draining {
    pub(crate) fn new(drains: Drains) -> Self {
        Self { drains, next_at: Time::ZERO + drains.every, turn: 0, draining_qpn: None }
    }

    /// When the next drain is due; `None` unless a flow `is_busy`.
    pub(crate) fn poll_timeout(&self, is_busy: bool) -> Option<Time> {
        (is_busy && self.next_at < self.drains.until).then_some(self.next_at)
    }

    /// A drain is due at `now`.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.poll_timeout(true).is_some_and(|at| at <= now)
    }

    /// Starts a drain that is due, on one of `qpns`, unless another is in progress.
    ///
    /// # Errors
    /// The engine rejects the transition.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Time,
        qpns: &[Qpn],
        endpoint: &mut Endpoint,
    ) -> Result<(), String> {
        self.next_at = now + self.drains.every;
        self.turn += 1;
        let state = |qpn: Qpn| endpoint.query_qp(qpn).map(|info| info.state);
        if self.draining_qpn.is_some_and(|qpn| state(qpn) == Some(QpState::Sqd)) || qpns.is_empty()
        {
            return Ok(());
        }
        let qpn = qpns[usize_from(self.turn) % qpns.len()];
        // A queue pair that has failed cannot leave the error state.
        if state(qpn) != Some(QpState::Rts) {
            return Ok(());
        }
        self.draining_qpn = Some(qpn);
        modify(qpn, QpState::Sqd, endpoint)
    }

    /// Handles `SQ_DRAINED`.
    ///
    /// # Errors
    /// The queue pair was not draining, or the engine rejects the transition.
    pub(crate) fn resume(&mut self, qpn: Qpn, endpoint: &mut Endpoint) -> Result<(), String> {
        if self.draining_qpn.take() != Some(qpn) {
            return Err(format!("{qpn:?} reports SQ_DRAINED, but was not draining"));
        }
        let state = endpoint.query_qp(qpn).map(|info| info.state);
        // The queue pair may have failed since.
        if state == Some(QpState::Sqd) { modify(qpn, QpState::Rts, endpoint) } else { Ok(()) }
    }
}

fn modify(qpn: Qpn, state: QpState, endpoint: &mut Endpoint) -> Result<(), String> {
    let attr = QpAttr { state: Some(state), ..QpAttr::default() };
    endpoint.modify_qp(qpn, &attr).map_err(|e| format!("{qpn:?} to {state:?}: {e}"))
}
