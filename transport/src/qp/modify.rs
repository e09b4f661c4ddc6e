//! What a change of state sets up and takes down.

use super::ack::Acks;
use super::path::Path;
use super::state::{ModifyError, QpState, check_modify};
use super::{QueuePair, Shared};
use crate::attr::{Mtu, QpAttr};
use crate::event::AsyncEvent;

impl QueuePair {
    /// Applies `attr`, all of it or nothing.
    pub(crate) fn modify(&mut self, attr: &QpAttr, sh: &mut Shared<'_>) -> Result<(), ModifyError> {
        let to = check_modify(self.state, attr)?;
        if (self.state, to) == (QpState::Sqd, QpState::Sqd) {
            self.change_drained(attr)?;
        }
        match to {
            QpState::Reset => self.attr = QpAttr::default(),
            _ => self.attr.merge(attr),
        }
        if let Some(access) = attr.access {
            self.responder.set_access(access);
        }
        if let Some(code) = attr.min_rnr_timer {
            self.responder.set_min_rnr_timer(code);
        }
        match (self.state, to) {
            (_, QpState::Reset) => self.reset(),
            (QpState::Err, QpState::Err) => {}
            (_, QpState::Err) => self.fail(sh),
            (QpState::Init, QpState::Rtr) => self.ready_to_receive(attr),
            (QpState::Rtr, QpState::Rts) => {
                self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0);
                self.requester.start(attr.sq_psn.unwrap_or_default(), self.max_rd_atomic);
                self.loss.start(attr);
            }
            (QpState::Rts, QpState::Sqd) => {
                self.tells_drained = true;
                self.state = to;
                self.requester.drain();
                self.tell_if_drained(sh);
            }
            _ => {}
        }
        self.state = to;
        Ok(())
    }

    /// Tells once that a draining send queue has nothing left that had begun.
    pub(super) fn tell_if_drained(&mut self, sh: &mut Shared<'_>) {
        if self.tells_drained && self.state == QpState::Sqd && self.requester.is_drained() {
            self.tells_drained = false;
            sh.events.push(AsyncEvent::SqDrained(self.qpn));
        }
    }

    /// What only a drained send queue may change: nothing on its way then depends on it.
    fn change_drained(&mut self, attr: &QpAttr) -> Result<(), ModifyError> {
        let given = [
            ("av", attr.av.is_some()),
            ("max_rd_atomic", attr.max_rd_atomic.is_some()),
            ("timeout", attr.timeout.is_some()),
            ("retry_cnt", attr.retry_cnt.is_some()),
            ("rnr_retry", attr.rnr_retry.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) if !self.requester.is_drained() => {
                return Err(ModifyError::NotDrained(name));
            }
            _ => {}
        }
        if attr.max_rd_atomic == Some(0) && self.requester.has_rd_atomic() {
            // They could never leave.
            return Err(ModifyError::OutOfRange("max_rd_atomic (READs or atomics are posted)"));
        }
        if let Some(capacity) = attr.max_dest_rd_atomic {
            let still_owed = "max_dest_rd_atomic (more are being answered)";
            let resized = self.responder.resources.resize(capacity);
            resized.map_err(|_| ModifyError::OutOfRange(still_owed))?;
        }
        if let Some(av) = attr.av {
            self.path = Path::new(av, self.qpn, self.dest_qpn);
        }
        self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(self.max_rd_atomic);
        self.loss.change(attr);
        Ok(())
    }

    fn ready_to_receive(&mut self, attr: &QpAttr) {
        // The table in state.rs has made sure that these are given.
        self.dest_qpn = attr.dest_qpn.unwrap_or_default();
        self.mtu = attr.path_mtu.unwrap_or(Mtu::B256);
        self.path = attr.av.and_then(|av| Path::new(av, self.qpn, self.dest_qpn));
        let reads = attr.max_dest_rd_atomic.unwrap_or(0);
        self.responder.start(attr.rq_psn.unwrap_or_default(), reads);
    }

    fn reset(&mut self) {
        self.loss.stop();
        self.tells_drained = false;
        self.established = false;
        self.requester.reset();
        self.responder.reset();
        self.acks = Acks::default();
        self.path = None;
    }
}
