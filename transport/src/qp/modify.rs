//! Execution of `modify_qp`: the effects of a transition.

use super::QueuePair;
use super::common::{Common, Shared};
use super::engine::Engine;
use super::path_mtu::PathMtu;
use super::state::{ModifyError, QpState};
use super::transitions::{OF_A_DRAINED_QUEUE, check_modify};
use crate::attr::{Mtu, QpAttr, WireMode};
use crate::config::Config;
use crate::event::AsyncEvent;
use spanwire_wire::KnownHeads;

impl QueuePair {
    /// Applies `attr`, all of it or nothing.
    pub(crate) fn modify(&mut self, attr: &QpAttr, sh: &mut Shared) -> Result<(), ModifyError> {
        let from = self.common.state;
        let to = check_modify(self.common.init.service, from, attr)?;
        if (from, to) == (QpState::Sqd, QpState::Sqd) {
            self.modify_drained(attr)?;
        }
        // Those of another path are not of the peer.
        self.heads = KnownHeads::default();
        match to {
            QpState::Reset => self.common.attr = QpAttr::default(),
            _ => self.common.attr.merge(attr),
        }
        if let Some(access) = attr.access {
            self.common.access = access;
        }
        match (from, to) {
            (_, QpState::Reset) => {
                self.free_blocks(&mut sh.block_memory);
                self.return_receives(&mut sh.srqs);
                sh.cqs.forget([self.common.send_cq, self.common.recv_cq], self.common.qpn);
                self.reset();
                self.places = self.places.take().map(|_| Box::default());
            }
            (QpState::Err, QpState::Err) => {}
            (_, QpState::Err) => self.engine.fail(&mut self.common, sh),
            (QpState::Init, QpState::Rtr) => self.ready_to_receive(attr, &sh.config),
            (QpState::Rtr, QpState::Rts) => self.ready_to_send(attr, &sh.config),
            (_, QpState::Rts) => {
                if let Some(choice) = attr.congestion {
                    self.set_congestion(choice, &sh.config);
                }
            }
            (QpState::Rts, QpState::Sqd) => {
                self.common.is_draining = true;
                self.common.state = to;
                self.engine.drain();
                let is_drained = self.engine.is_drained();
                self.common.report_drained(is_drained, sh);
            }
            _ => {}
        }
        self.common.state = to;
        self.check_invariants();
        Ok(())
    }

    /// Applies attributes that only a drained send queue may change, because no packet in flight
    /// depends on them then.
    fn modify_drained(&mut self, attr: &QpAttr) -> Result<(), ModifyError> {
        let mut needs_drained = OF_A_DRAINED_QUEUE.into_iter();
        if let Some(given) = needs_drained.find(|one| one.is_given(attr))
            && !self.engine.is_drained()
        {
            return Err(ModifyError::NotDrained(given.name()));
        }
        self.engine.limit_rd_atomic(attr.max_rd_atomic, attr.max_dest_rd_atomic)?;
        let common = &mut self.common;
        if let (Some(_), Some(flow)) = (attr.av, common.flow.as_deref_mut()) {
            flow.on_path_change();
        }
        common.max_rd_atomic = attr.max_rd_atomic.unwrap_or(common.max_rd_atomic);
        common.attr.merge(attr);
        self.engine.modify(attr, common);
        Ok(())
    }

    fn ready_to_receive(&mut self, attr: &QpAttr, config: &Config) {
        // Required at this transition, by the table in transitions.rs.
        let common = &mut self.common;
        common.mtu = attr.path_mtu.unwrap_or(Mtu::B256);
        let takes_fragments = attr.av.is_some_and(|av| av.takes_fragments);
        common.path_mtu = (config.fragments && takes_fragments).then(|| {
            let is_sr = common.attr.mode() == WireMode::Sr;
            Box::new(PathMtu::new(common.full_bytes(), is_sr))
        });
        common.has_icrc = common.attr.sr().is_none_or(|options| options.icrc);
        self.engine = Engine::new(common, config).unwrap_or(Engine::Unconnected);
    }

    /// The options of SR come first: the payload of full packets, which congestion control needs,
    /// depends on them. A queue pair that sends has the default congestion control if no attribute
    /// chose one.
    fn ready_to_send(&mut self, attr: &QpAttr, config: &Config) {
        let congestion = attr.congestion.unwrap_or_default();
        if let (Some(sr), Some(options)) = (self.engine.sr_mut(), self.common.attr.sr()) {
            sr.tx.set_options(options, self.common.qpn, congestion.base_rtt);
        }
        self.set_congestion(congestion, config);
        self.common.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0);
        self.engine.start(attr, &self.common);
    }

    fn reset(&mut self) {
        self.engine = Engine::Unconnected;
        let common = &mut self.common;
        (common.is_draining, common.is_established, common.has_icrc) = (false, false, true);
        (common.flow, common.path_mtu) = (None, None);
    }
}

impl Common {
    /// Reports once that a draining send queue has no unfinished request.
    pub(crate) fn report_drained(&mut self, is_drained: bool, sh: &mut Shared) {
        if self.is_draining && self.state == QpState::Sqd && is_drained {
            self.is_draining = false;
            sh.events.push(AsyncEvent::SqDrained(self.qpn));
        }
    }
}
