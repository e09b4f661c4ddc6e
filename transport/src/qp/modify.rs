//! What a change of state sets up and takes down.

use super::ack::Acks;
use super::cnp::Cnps;
use super::path::Path;
use super::selective::Selective;
use super::state::{ModifyError, QpState, check_modify};
use super::{QueuePair, Shared};
use crate::attr::{AddressVector, Mtu, QpAttr, WireMode};
use crate::config::Config;
use crate::event::AsyncEvent;
use crate::srq::SrqTable;
use spanwire_wire::Ecn;

impl QueuePair {
    /// Applies `attr`, all of it or nothing.
    pub(crate) fn modify(&mut self, attr: &QpAttr, sh: &mut Shared<'_>) -> Result<(), ModifyError> {
        let to = check_modify(self.state, attr)?;
        if (self.state, to) == (QpState::Sqd, QpState::Sqd) {
            self.change_drained(attr)?;
        }
        let is_rc = self.selective.is_none();
        for (name, given) in
            [("erasure", attr.erasure.is_some()), ("balance", attr.balance.is_some())]
        {
            if given && is_rc {
                return Err(ModifyError::NotNow(name));
            }
        }
        match to {
            QpState::Reset => self.attr = QpAttr::default(),
            _ => self.attr.merge(attr),
        }
        if let Some(access) = attr.access {
            self.responder.set_access(access);
        }
        self.set_erasure_and_balance(attr, sh.config);
        if let Some(choice) = attr.congestion {
            self.set_congestion(&choice, sh.config);
        }
        if let Some(code) = attr.min_rnr_timer {
            self.responder.set_min_rnr_timer(code);
        }
        match (self.state, to) {
            (_, QpState::Reset) => {
                self.forget_blocks(sh.block_memory);
                self.give_back(sh.srqs);
                self.reset();
            }
            (QpState::Err, QpState::Err) => {}
            (_, QpState::Err) => self.fail(sh),
            (QpState::Init, QpState::Rtr) => self.ready_to_receive(attr, sh.config),
            (QpState::Rtr, QpState::Rts) => {
                self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0);
                self.requester.start(attr.sq_psn.unwrap_or_default(), self.max_rd_atomic);
                self.loss.start(attr);
                if let Some(sr) = &mut self.selective {
                    sr.start(&self.attr);
                }
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
        if self.tells_drained && self.state == QpState::Sqd && self.is_drained() {
            self.tells_drained = false;
            sh.events.push(AsyncEvent::SqDrained(self.qpn));
        }
    }

    /// Nothing to send that had begun is left.
    fn is_drained(&self) -> bool {
        match &self.selective {
            None => self.requester.is_drained(),
            Some(sr) => sr.sender.is_drained(),
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
            Some((name, _)) if !self.is_drained() => {
                return Err(ModifyError::NotDrained(name));
            }
            _ => {}
        }
        if attr.max_rd_atomic == Some(0) && self.has_rd_atomic() {
            // They could never leave.
            return Err(ModifyError::OutOfRange("max_rd_atomic (READs or atomics are posted)"));
        }
        let still_owed = "max_dest_rd_atomic (more are being answered)";
        if let (Some(sr), Some(capacity)) = (&self.selective, attr.max_dest_rd_atomic) {
            if sr.answering() > capacity.into() {
                return Err(ModifyError::OutOfRange(still_owed));
            }
        } else if let Some(capacity) = attr.max_dest_rd_atomic {
            let resized = self.responder.resources.resize(capacity);
            resized.map_err(|_| ModifyError::OutOfRange(still_owed))?;
        }
        if let Some(av) = attr.av {
            self.path = self.path_of(av);
            if let Some(flow) = self.flow.as_deref_mut() {
                flow.on_path_change();
            }
        }
        self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(self.max_rd_atomic);
        self.loss.change(attr);
        if let Some(sr) = &mut self.selective {
            let mut all = self.attr;
            all.merge(attr);
            sr.change(&all);
        }
        Ok(())
    }

    /// The way to the peer. SR's packets say that they may be marked instead of dropped.
    fn path_of(&self, mut av: AddressVector) -> Option<Path> {
        if self.attr.wire_mode == Some(WireMode::Sr) {
            av.traffic_class = av.traffic_class & !Ecn::Ce.bits() | Ecn::Ect0.bits();
        }
        Path::new(av, self.qpn, self.dest_qpn)
    }

    fn has_rd_atomic(&self) -> bool {
        match &self.selective {
            None => self.requester.has_rd_atomic(),
            Some(sr) => sr.sender.has_rd_atomic(),
        }
    }

    fn ready_to_receive(&mut self, attr: &QpAttr, config: &Config) {
        // The table in state.rs has made sure that these are given.
        self.dest_qpn = attr.dest_qpn.unwrap_or_default();
        self.mtu = attr.path_mtu.unwrap_or(Mtu::B256);
        self.path = attr.av.and_then(|av| self.path_of(av));
        let reads = attr.max_dest_rd_atomic.unwrap_or(0);
        self.responder.start(attr.rq_psn.unwrap_or_default(), reads);
        if attr.wire_mode == Some(WireMode::Sr) {
            self.selective = Some(Box::new(Selective::new(&self.init.caps, &self.attr, config)));
        }
    }

    /// Drops the receive requests without completions; those of a shared queue return to it.
    pub(crate) fn give_back(&mut self, srqs: &mut SrqTable) {
        self.responder.receive.clear(srqs);
    }

    fn reset(&mut self) {
        self.loss.stop();
        self.tells_drained = false;
        self.established = false;
        self.requester.reset();
        self.responder.stop();
        self.acks = Acks::default();
        self.cnps = Cnps::default();
        self.selective = None;
        self.flow = None;
        self.path = None;
    }
}
