//! The queue pair: the only control flow between the wire and the rooms beside this one.
//!
//! Calls go down, values come up: the responder, the completer and the requester return what they
//! found, and it is applied here. All branching of the receive path is in
//! [`QueuePair::handle_packet`], all of the send path in [`QueuePair::poll_transmit`].

mod ack;
mod answered;
mod cnp;
mod complete;
mod completer;
mod congestion;
pub(crate) mod flow;
mod loss;
mod modify;
mod outcome;
mod owed;
mod path;
pub(crate) mod post;
pub(crate) mod receive;
mod requested;
mod requester;
mod resources;
mod responder;
mod segment;
mod selective;
mod send;
pub(crate) mod state;
pub(crate) mod wq;

#[cfg(test)]
mod tests;

use crate::attr::{Mtu, QpAttr, QpInit};
use crate::blocks::BlockMemory;
use crate::config::Config;
use crate::counters::Counters;
use crate::cq::{CqId, CqTable};
use crate::drop::DropReason;
use crate::event::{AsyncEvent, Events};
use crate::mr::{MrTable, PdId};
use crate::schedule::{Held, Room};
use crate::srq::{SrqId, SrqTable};
use crate::wc::WcStatus;
use ack::Acks;
use cnp::Cnps;
use flow::{Flow, FlowLimit};
use loss::{Fired, Loss};
use path::Path;
use receive::Receive;
use requester::{Next, Requester};
use responder::Responder;
use selective::Selective;
use spanwire_base::{Dur, Time, TxMeta};
use spanwire_cc::LossKind;
use spanwire_wire::{Ecn, OpClass, OpKind, Packet, Qpn, Service};
use state::QpState;

/// One Reliable Connection queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    qpn: Qpn,
    pd: PdId,
    send_cq: CqId,
    recv_cq: CqId,
    init: QpInit,
    /// What it was given, to tell; what is needed at every packet has a place of its own.
    attr: QpAttr,
    state: QpState,
    dest_qpn: Qpn,
    mtu: Mtu,
    max_rd_atomic: u8,
    path: Option<Path>,
    requester: Requester,
    responder: Responder,
    acks: Acks,
    loss: Loss,
    /// Responses with data sent since a request last had its chance.
    responses_in_a_row: u32,
    /// It was told to drain its send queue and has not said yet that it is.
    tells_drained: bool,
    /// A request of the peer has come.
    established: bool,
    cnps: Cnps,
    /// Congestion control and pacer, if it was given one.
    flow: Option<Box<Flow>>,
    /// The half that takes over in [`WireMode::Sr`](crate::WireMode::Sr).
    selective: Option<Box<Selective>>,
}

/// The endpoint's tables, lent to a queue pair for one call.
pub(crate) struct Shared<'a> {
    pub(crate) mrs: &'a mut MrTable,
    pub(crate) cqs: &'a mut CqTable,
    pub(crate) srqs: &'a mut SrqTable,
    pub(crate) events: &'a mut Events,
    pub(crate) counters: &'a mut Counters,
    pub(crate) block_memory: &'a mut BlockMemory,
    pub(crate) config: &'a Config,
}

/// Answer of [`QueuePair::poll_transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transmit {
    /// A packet was written.
    Sent(TxMeta),
    /// Nothing may leave now; something else will make this queue pair ready again.
    Idle,
    /// A request may leave as soon as the endpoint's window has room.
    Blocked,
    /// A packet may leave at this time.
    Paced(Time),
}

impl QueuePair {
    pub(crate) fn new(qpn: Qpn, init: &QpInit) -> Self {
        let caps = &init.caps;
        let receive = match init.srq {
            Some(srq) => Receive::shared(srq),
            None => Receive::own(init.pd, caps.max_recv_wr, caps.max_recv_sge),
        };
        Self {
            qpn,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            init: *init,
            attr: QpAttr::default(),
            state: QpState::Reset,
            dest_qpn: Qpn::new(0),
            mtu: Mtu::B256,
            max_rd_atomic: 0,
            path: None,
            requester: Requester::new(caps.max_send_wr, caps.max_send_sge, caps.max_inline_data),
            responder: Responder::new(receive),
            acks: Acks::default(),
            loss: Loss::new(),
            responses_in_a_row: 0,
            tells_drained: false,
            established: false,
            cnps: Cnps::default(),
            flow: None,
            selective: None,
        }
    }

    /// Takes a packet addressed to this queue pair. The bytes have passed the wire's checks.
    pub(crate) fn handle_packet(&mut self, now: Time, p: &Packet<'_>, sh: &mut Shared<'_>) {
        let props = p.bth.opcode.props();
        if self.selective.is_some() {
            return self.handle_sr_packet(now, p, sh);
        }
        let taken = match self.check_packet(p, Service::Rc) {
            Err(reason) => Err(reason),
            Ok(()) => match props.class {
                OpClass::Request => self.on_request(p, sh),
                OpClass::Response if props.kind == OpKind::ReadResponse => {
                    self.on_read_response(now, p, sh)
                }
                OpClass::Response if props.kind == OpKind::Ack => self.on_ack(now, p, sh),
                OpClass::Response => self.on_atomic_ack(now, p, sh),
                OpClass::Notification => self.on_cnp(now, sh),
            },
        };
        match taken {
            Ok(()) => {
                if p.ip.ecn() == Ecn::Ce {
                    sh.counters.np_ecn_marked_roce_packets += 1;
                    self.cnps.on_marked(now, props.class);
                }
                sh.counters.rx_packets += 1;
                sh.counters.rx_payload_bytes += spanwire_base::u64_from(p.payload_len());
            }
            Err(reason) => sh.counters.drop(reason),
        }
    }

    /// Does what is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time, sh: &mut Shared<'_>) {
        let sends = self.state.sends();
        if let Some(flow) = self.flow.as_deref_mut().filter(|_| sends) {
            flow.handle_timeout(now);
        }
        self.blocks_overdue(now, sh);
        if let Some(sr) = &mut self.selective {
            if sr.handle_timeout(now, sends, sh.counters, self.flow.as_deref_mut()) {
                if sr.sender.is_empty() {
                    // Answers are waited for as well, and no completion tells of them.
                    sh.events.push(AsyncEvent::QpFatal(self.qpn));
                }
                self.fail_oldest(WcStatus::RetryExcErr, sh);
            }
            return;
        }
        if !sends {
            return;
        }
        let nothing_out = self.requester.in_flight_pkts() == 0;
        if nothing_out && !self.loss.is_waiting() {
            // What was to be sent again has not left yet: the silence is ours, not the peer's.
            self.loss.on_stalled(now);
            return;
        }
        match self.loss.handle_timeout(now) {
            Fired::Nothing | Fired::Resume => {}
            Fired::Retransmit => {
                sh.counters.local_ack_timeout_err += 1;
                let una = self.requester.snd_una();
                self.lost_from(now, una, LossKind::Timeout(self.loss.timeouts()));
                self.loss.begin_recovery(una);
                self.rewind(una);
            }
            Fired::Exhausted => self.fail_oldest(WcStatus::RetryExcErr, sh),
        }
    }

    /// Writes the next packet with data, if one may leave. The questions in order; a "no" ends it
    /// and consumes nothing.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        room: Room,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        if self.selective.is_some() {
            return self.poll_sr(now, room, frame, sh);
        }
        // Responses first. A request may overtake them: a peer that never stops reading must not
        // keep us from sending.
        while !self.responder.resources.is_idle() {
            if self.responses_in_a_row >= RESPONSES_IN_A_ROW_MAX {
                self.responses_in_a_row = 0;
                let sent = self.send_request(now, room, frame, sh);
                if matches!(sent, Transmit::Sent(_)) {
                    return sent;
                }
            }
            self.responses_in_a_row += 1;
            if let Some(sent) = self.send_response(frame, sh) {
                return sent;
            }
        }
        self.send_request(now, room, frame, sh)
    }

    /// What is next, and how much is allowed?
    fn send_request(
        &mut self,
        now: Time,
        room: Room,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        if !self.state.sends() {
            return Transmit::Idle;
        }
        if self.loss.is_waiting() {
            return self.limited(now, FlowLimit::Receiver, Transmit::Idle);
        }
        match self.requester.next(&self.allowance(room, sh.config)) {
            Next::Segment(segment) => match self.paced_until(now) {
                Some(at) => Transmit::Paced(at),
                None => self.send_segment(now, &segment, frame, sh),
            },
            Next::Idle => self.limited(now, FlowLimit::Application, Transmit::Idle),
            Next::WaitsForPeer => self.limited(now, FlowLimit::Receiver, Transmit::Idle),
            Next::WaitsForWindow => self.window_full(now, sh.config.qp_window_pkts),
            Next::WaitsForEndpoint => self.limited(now, FlowLimit::Endpoint, Transmit::Blocked),
        }
    }

    /// When [`QueuePair::handle_timeout`] has something to do: nothing unless it sends, or the
    /// driver would be woken for a timer that nobody takes down.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let own = match &self.selective {
            None => self.loss.next_deadline().filter(|_| self.state.sends()),
            Some(sr) => sr.next_deadline(self.state),
        };
        match &self.flow {
            None => own,
            Some(flow) => {
                let flows = flow.next_deadline().filter(|_| self.state.sends());
                [own, flows].into_iter().flatten().min()
            }
        }
    }

    /// As [`QueuePair::next_deadline`], where that may have come nearer because nothing could be
    /// sent.
    pub(crate) fn idle_deadline(&self) -> Option<Time> {
        self.selective.as_ref()?;
        self.next_deadline()
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    pub(crate) fn state(&self) -> QpState {
        self.state
    }

    /// An answer is outstanding, so a timer must run, unless it is to wait for ever.
    pub(crate) fn needs_timer(&self) -> bool {
        self.state.sends()
            && match &self.selective {
                None => self.requester.has_outstanding() && self.loss.has_timeout(),
                // Of parity behind what is over nobody need ever hear.
                Some(sr) => sr.waits_for_peer() && !sr.owes_only_parity(),
            }
    }

    /// It has gone back and not sent again yet: its turn in the schedule drives it, not a timer.
    pub(crate) fn has_gone_back(&self) -> bool {
        match &self.selective {
            None => self.requester.in_flight_pkts() == 0,
            Some(sr) => sr.has_nothing_out(),
        }
    }

    pub(crate) fn init(&self) -> &QpInit {
        &self.init
    }

    /// Its attributes, as they are now.
    pub(crate) fn attr(&self) -> QpAttr {
        let state = Some(self.state);
        let (rq_psn, sq_psn) = match &self.selective {
            None => (self.responder.epsn(), self.requester.psn(self.requester.snd_max())),
            Some(sr) => sr.psns(),
        };
        let rq_psn = self.attr.rq_psn.map(|_| rq_psn);
        let sq_psn = self.attr.sq_psn.map(|_| sq_psn);
        QpAttr { state, rq_psn, sq_psn, ..self.attr }
    }

    pub(crate) fn uses_cq(&self, cq: CqId) -> bool {
        self.send_cq == cq || self.recv_cq == cq
    }

    pub(crate) fn uses_srq(&self, srq: SrqId) -> bool {
        self.responder.receive.srq() == Some(srq)
    }

    /// Packets this queue pair holds of the endpoint's window.
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        match &self.selective {
            None => self.requester.in_flight_pkts(),
            Some(sr) => sr.in_flight_pkts(),
        }
    }

    /// What it holds of the endpoint's windows.
    pub(crate) fn held(&self) -> Held {
        // Nothing waits in SR for being asked about.
        Held { pkts: self.in_flight_pkts(), unasked_pkts: self.requester.unasked_pkts() }
    }

    pub(crate) fn srtt(&self) -> Option<Dur> {
        match &self.selective {
            None => self.path.as_ref().and_then(Path::srtt),
            Some(sr) => sr.srtt(),
        }
    }

    /// What every packet must satisfy, whatever it is.
    #[inline]
    fn check_packet(&self, p: &Packet<'_>, service: Service) -> Result<(), DropReason> {
        let props = p.bth.opcode.props();
        let ours = match props.class {
            OpClass::Request if !self.state.receives() => Err(DropReason::QpNotReceiving),
            OpClass::Response if !self.state.sends() => Err(DropReason::QpNotSending),
            _ => Ok(()),
        };
        match (&self.path, props.service) {
            (_, other) if other != service && other != Service::Cnp => {
                Err(DropReason::WrongService)
            }
            (None, _) => Err(DropReason::QpNotReceiving),
            (Some(path), _) if !path.matches(p) => Err(DropReason::WrongPeer),
            _ if p.bth.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff => Err(DropReason::BadPkey),
            _ => ours,
        }
    }
}

/// Responses with data after which one request may go first. A burst of the schedule: both
/// directions get their share of the wire when both want it.
const RESPONSES_IN_A_ROW_MAX: u32 = 16;

/// The default partition, full member: what rxe sends.
const DEFAULT_PKEY: u16 = 0xffff;
