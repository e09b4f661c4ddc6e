//! The queue pair as the verbs see it. Only this module knows its engine.
//!
//! [`Common`] is the state that both protocols share. An [`Engine`] is RC ([`crate::rc`]) or SR
//! ([`crate::sr`]). It is chosen at the transition to RTR and borrows [`Common`] and the endpoint's
//! tables for one call. Each operation that depends on the protocol is one method in `engine.rs`.

pub(crate) mod common;
pub(crate) mod complete;
pub(crate) mod congestion;
pub(crate) mod engine;
pub(crate) mod fail;
pub(crate) mod flow;
mod invariants;
mod known;
mod modify;
pub(crate) mod outcome;
pub(crate) mod path;
pub(crate) mod path_mtu;
mod places;
pub(crate) mod post;
pub(crate) mod receive;
pub(crate) mod remote;
pub(crate) mod state;
pub(crate) mod timeouts;
pub(crate) mod transitions;
pub(crate) mod wq;
pub(crate) mod write;

#[cfg(test)]
mod tests;

use crate::attr::{QpAttr, QpInit};
use crate::blocks::BlockMemory;
use crate::config::Config;
use crate::cq::CqId;
use crate::ids::SrqId;
use crate::mr::PdId;
use crate::schedule::{InFlight, WindowSpace};
use crate::srq::SrqTable;
use crate::wc::{Wc, WcOpcode};
use common::{Common, Shared, Transmit};
use engine::Engine;
use flow::FlowInfo;
use places::Places;
use spanwire_base::{Dur, RxMeta, Time, TxBurst};
use spanwire_loadbalance::Balancer;
use spanwire_wire::{KnownHeads, Packet, Qpn};
use state::QpState;

/// A queue pair of a reliable connection.
#[derive(Debug)]
pub(crate) struct QueuePair {
    common: Common,
    engine: Engine,
    /// The outer headers of received packets.
    heads: KnownHeads,
    /// Places of the send queue until they are polled; none if they are free at the completion.
    places: Option<Box<Places>>,
}

impl QueuePair {
    pub(crate) fn new(qpn: Qpn, init: &QpInit) -> Self {
        let (common, heads) = (Common::new(qpn, init), KnownHeads::default());
        let places = init.places_until_polled.then(Box::default);
        Self { common, engine: Engine::Unconnected, heads, places }
    }

    /// The completion `wc` of this queue pair was polled.
    pub(crate) fn on_polled(&mut self, wc: &Wc) {
        let is_send = !matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        if let Some(places) = self.places.as_mut().filter(|_| is_send) {
            places.release(wc.status);
        }
    }

    /// Handles a packet addressed to this queue pair. Its headers and ICRC have been checked.
    pub(crate) fn handle_packet(
        &mut self,
        now: Time,
        arrival: RxMeta,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) {
        self.common.arrival = arrival;
        self.engine.handle_packet(&mut self.common, now, p, sh);
        self.check_invariants();
    }

    /// Handles the timers that are due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time, sh: &mut Shared) {
        let sends = self.common.state.sends();
        if let Some(flow) = self.common.flow.as_deref_mut().filter(|_| sends) {
            flow.handle_timeout(now);
        }
        self.engine.handle_timeout(&mut self.common, now, sh);
        self.check_invariants();
    }

    /// Asserts the invariants, in builds with debug assertions.
    #[inline]
    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            invariants::check(&self.common, &self.engine);
        }
    }

    /// The next packet may be one that [`QueuePair::send_run`] writes.
    #[inline]
    pub(crate) fn is_at_run(&self) -> bool {
        match &self.engine {
            Engine::Unconnected => false,
            Engine::Rc(rc) => rc.is_at_run(),
            Engine::Sr(sr) => sr.tx.is_at_plain(),
        }
    }

    /// Writes the next packets, if they are plain ones in a row that may leave now, until they are
    /// `turn_bytes` or more. Returns their bytes as frames.
    pub(crate) fn send_run(
        &mut self,
        (now, turn_bytes): (Time, i64),
        space: WindowSpace,
        burst: &mut dyn TxBurst,
        sh: &mut Shared,
    ) -> u32 {
        let common = &mut self.common;
        let bytes = match &mut self.engine {
            Engine::Unconnected => 0,
            Engine::Rc(rc) => rc.send_run(common, (now, turn_bytes), space, burst, sh),
            Engine::Sr(sr) => sr.send_run(common, (now, turn_bytes), space, burst, sh),
        };
        self.check_invariants();
        bytes
    }

    /// Writes the next packet with data, if one may leave now.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        let sent = self.engine.poll_transmit(&mut self.common, now, space, frame, sh);
        self.check_invariants();
        sent
    }

    /// False if an attempt to send data would find nothing and change nothing.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        match &self.engine {
            Engine::Unconnected => true,
            Engine::Rc(rc) => rc.may_send(&self.common),
            Engine::Sr(sr) => sr.may_send(&self.common),
        }
    }

    /// Writes the control packet that is due ([`QueuePair::is_control_due`]).
    pub(crate) fn poll_control(
        &mut self,
        now: Time,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        if !self.is_control_due() {
            return Transmit::Idle;
        }
        self.engine.poll_control(&mut self.common, now, frame, sh)
    }

    /// An ACK, NAK or CNP is due: a packet without data.
    #[inline]
    pub(crate) fn is_control_due(&self) -> bool {
        self.engine.is_control_due(&self.common)
    }

    /// The next deadline for [`QueuePair::handle_timeout`]. Timers of a queue pair that does not
    /// send are not reported, because nothing would stop them.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let own = self.engine.next_deadline(&self.common);
        match &self.common.flow {
            None => own,
            Some(flow) => {
                let flows = flow.next_deadline().filter(|_| self.common.state.sends());
                [own, flows].into_iter().flatten().min()
            }
        }
    }

    /// The next packet waits for the rate of the port.
    pub(crate) fn on_port_paced(&mut self, now: Time) {
        if let Some(flow) = self.common.flow.as_deref_mut() {
            flow.on_port_paced(now);
        }
    }

    /// If packets are acknowledged only by request: the bytes between two that request it, and the
    /// timeout by which one must have left.
    pub(crate) fn ack_req_interval(&self, config: &Config) -> Option<(u64, Dur)> {
        let timeout = self.engine.request_timeout()?;
        let pkts = u64::from(config.ack_req_interval_pkts);
        Some((pkts * u64::from(self.common.mtu.bytes()), timeout))
    }

    /// Packets have an ICRC, which must be right.
    #[inline]
    pub(crate) fn has_icrc(&self) -> bool {
        self.common.has_icrc
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.common.qpn
    }

    pub(crate) fn pd(&self) -> PdId {
        self.common.pd
    }

    pub(crate) fn state(&self) -> QpState {
        self.common.state
    }

    /// A packet or a response is outstanding and the timeout is finite, so a timer must run.
    pub(crate) fn needs_timer(&self) -> bool {
        self.common.state.sends() && self.engine.needs_timer()
    }

    /// Everything outstanding waits for its retransmission. The schedule drives the queue pair
    /// then, not a timer.
    pub(crate) fn has_nothing_in_flight(&self) -> bool {
        self.engine.has_nothing_in_flight()
    }

    pub(crate) fn init(&self) -> &QpInit {
        &self.common.init
    }

    /// The attributes in force, with the current PSNs.
    pub(crate) fn attr(&self) -> QpAttr {
        let attr = self.common.attr;
        let state = Some(self.common.state);
        let (rq_psn, sq_psn) = self.engine.psns();
        let rq_psn = attr.rq_psn.map(|_| rq_psn);
        let sq_psn = attr.sq_psn.map(|_| sq_psn);
        QpAttr { state, rq_psn, sq_psn, ..attr }
    }

    pub(crate) fn uses_cq(&self, cq: CqId) -> bool {
        self.common.send_cq == cq || self.common.recv_cq == cq
    }

    pub(crate) fn uses_srq(&self, srq: SrqId) -> bool {
        self.common.receive.srq() == Some(srq)
    }

    /// The packets that count against the endpoint's windows.
    #[inline]
    pub(crate) fn in_flight(&self) -> InFlight {
        self.engine.in_flight()
    }

    pub(crate) fn srtt(&self) -> Option<Dur> {
        self.engine.srtt()
    }

    /// The weight in deficit round robin.
    pub(crate) fn weight(&self) -> u8 {
        self.common.attr.weight.unwrap_or(1)
    }

    /// The load balancer, if the queue pair has one.
    pub(crate) fn balancer(&self) -> Option<&Balancer> {
        self.engine.sr()?.tx.balancer()
    }

    /// Payload of the longest packet that is sent whole, if that is not a full one.
    pub(crate) fn reduced_bytes(&self) -> Option<u32> {
        self.common.path_mtu.as_ref().and_then(|path_mtu| path_mtu.reduced())
    }

    /// Congestion control, if the queue pair has it.
    pub(crate) fn flow_info(&self) -> Option<FlowInfo> {
        self.common.flow.as_ref().map(|flow| flow.info())
    }

    /// Frees the memory of FEC blocks. Nothing is received afterwards.
    pub(crate) fn free_blocks(&mut self, memory: &mut BlockMemory) {
        if let Some(sr) = self.engine.sr_mut() {
            sr.rx.free_blocks(memory);
        }
    }

    /// Drops the receive requests without completions. Those taken from a shared queue return to
    /// it.
    pub(crate) fn return_receives(&mut self, srqs: &mut SrqTable) {
        self.common.receive.clear(srqs);
    }

    /// A receive request was posted: the engine advertises it to a peer that may need one.
    pub(crate) fn on_receive_posted(&mut self) {
        if let Some(sr) = self.engine.sr_mut() {
            sr.rx.on_receive_posted();
        }
    }
}
