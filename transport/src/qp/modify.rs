//! What a change of state sets up and takes down.

use super::ack::Acks;
use super::path::Path;
use super::state::{ModifyError, QpState, check_modify};
use super::{QueuePair, Shared};
use crate::attr::{Mtu, QpAttr};

impl QueuePair {
    /// Applies `attr`, all of it or nothing.
    pub(crate) fn modify(&mut self, attr: &QpAttr, sh: &mut Shared<'_>) -> Result<(), ModifyError> {
        let to = check_modify(self.state, attr)?;
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
            _ => {}
        }
        self.state = to;
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
        self.requester.reset();
        self.responder.reset();
        self.acks = Acks::default();
        self.path = None;
    }
}
