//! RC: the RoCEv2 Reliable Connection, interoperable with adapters and Linux rxe. Packets are
//! accepted in order, and losses are recovered by go-back-N.
//!
//! A request goes to the [`Responder`], an ACK or response to the completer. Both return an
//! outcome, which `on_request.rs` and `on_response.rs` apply. The [`Requester`] describes the next
//! packet and `send.rs` writes it.

mod ack;
mod cnp;
mod completer;
mod congestion;
mod invariants;
mod loss;
mod middle;
mod on_request;
mod on_response;
mod outcome;
mod request;
pub(crate) mod requester;
mod resources;
pub(crate) mod responder;
mod segment;
mod send;
mod timing;

use crate::attr::{QpAttr, QpCaps};
use crate::qp::common::{Common, Shared, Transmit};
use crate::qp::fail::Fail;
use crate::qp::flow::FlowLimit;
use crate::qp::outcome::Completed;
use crate::qp::path::Path;
use crate::schedule::WindowSpace;
use crate::wc::WcStatus;
use ack::Acks;
use cnp::Cnps;
use loss::{Loss, TimerEvent};
use requester::Next;
pub(crate) use requester::Requester;
pub(crate) use responder::Responder;
use spanwire_base::{Dur, Time};
use spanwire_cc::LossKind;
use spanwire_wire::{Ecn, OpClass, OpKind, Packet, Psn, Service};
use timing::RttTimer;

/// The state of one RC connection.
#[derive(Debug)]
pub(crate) struct Rc {
    pub(crate) path: Path,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    acks: Acks,
    cnps: Cnps,
    loss: Loss,
    rtt: RttTimer,
    /// Packets of responses sent in a row since a request could last be sent.
    responses_in_a_row: u32,
}

impl Rc {
    /// Creates the engine at the transition to RTR; `attr` are the attributes in force.
    pub(crate) fn new(caps: &QpCaps, attr: &QpAttr, path: Path) -> Self {
        let max_dest_rd_atomic = attr.max_dest_rd_atomic.unwrap_or(0);
        Self {
            path,
            requester: Requester::new(caps.max_send_wr, caps.max_send_sge, caps.max_inline_data),
            responder: Responder::new(attr.rq_psn.unwrap_or_default(), max_dest_rd_atomic),
            acks: Acks::default(),
            cnps: Cnps::default(),
            loss: Loss::new(),
            rtt: RttTimer::default(),
            responses_in_a_row: 0,
        }
    }

    /// Starts to send, at the transition to RTS.
    pub(crate) fn start(&mut self, attr: &QpAttr, max_rd_atomic: u8) {
        self.requester.start(attr.sq_psn.unwrap_or_default(), max_rd_atomic);
        self.loss.start(attr);
    }

    /// Applies attributes that a drained send queue may change, and a new path; `None` keeps one.
    pub(crate) fn modify(&mut self, attr: &QpAttr, path: Option<Path>) {
        if let Some(path) = path {
            self.path = path;
            self.rtt = RttTimer::default();
        }
        self.loss.modify(attr);
    }

    /// Handles a packet. Its headers and ICRC have been checked.
    #[inline]
    pub(crate) fn handle_packet(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) {
        let props = p.bth.opcode.props();
        let result = match qp.check_packet(p, Service::Rc, &self.path) {
            Err(reason) => Err(reason),
            Ok(()) => match props.class {
                OpClass::Request => self.on_request(qp, p, sh),
                OpClass::Response if props.kind == OpKind::ReadResponse => {
                    self.on_read_response(qp, now, p, sh)
                }
                OpClass::Response if props.kind == OpKind::Ack => self.on_ack(qp, now, p, sh),
                OpClass::Response => self.on_atomic_ack(qp, now, p, sh),
                OpClass::Notification => self.on_cnp(qp, now, sh),
            },
        };
        match result {
            Ok(()) => {
                if p.ip.ecn() == Ecn::Ce {
                    sh.counters.np_ecn_marked_roce_packets += 1;
                    match props.kind {
                        OpKind::ReadResponse => self.on_marked_response(qp, now, &sh.config),
                        _ => self.cnps.on_marked(now, props.class, sh.config.cnp_interval),
                    }
                }
                sh.counters.rx_packets += 1;
                sh.counters.rx_payload_bytes += spanwire_base::u64_from(p.payload_len());
            }
            Err(reason) => sh.counters.drop(reason),
        }
    }

    /// Handles the timers that are due at `now`.
    pub(crate) fn handle_timeout(&mut self, qp: &mut Common, now: Time, sh: &mut Shared) {
        if !qp.state.sends() {
            return;
        }
        let nothing_in_flight = self.requester.in_flight_pkts() == 0;
        if nothing_in_flight && !self.loss.is_rnr_waiting() {
            // The retransmission has not left yet, so this timeout does not show a loss.
            self.loss.on_stalled(now);
            return;
        }
        match self.loss.handle_timeout(now) {
            TimerEvent::Nothing | TimerEvent::Resume => {}
            TimerEvent::Retransmit => {
                sh.counters.local_ack_timeout_err += 1;
                let una = self.requester.snd_una();
                self.report_loss(qp, now, una, LossKind::Timeout(self.loss.timeouts()));
                if let Some(path_mtu) = qp.path_mtu.as_deref_mut() {
                    // The responder acknowledges none of the packets after the first lost one.
                    path_mtu.on_timeout(self.loss.timeouts(), 1);
                }
                self.loss.begin_recovery(una);
                self.rewind(una);
            }
            TimerEvent::Exhausted => self.fail_oldest(qp, WcStatus::RetryExcErr, sh),
        }
    }

    /// Writes the next packet with data, if one may leave. The checks are in order; the first that
    /// fails ends the attempt and consumes nothing.
    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        if sh.config.fast_paths
            && let Some(is_only) = self.requester.is_at_only()
            && self.responder.resources.is_idle()
        {
            let sent = match is_only {
                false => self.send_plain::<false>(qp, now, space, frame, sh),
                true => self.send_plain::<true>(qp, now, space, frame, sh),
            };
            if let Some(sent) = sent {
                return sent;
            }
        }
        // Responses go first, up to a limit in a row: a peer that reads without end must not starve
        // our requests.
        while !self.responder.resources.is_idle() {
            if self.responses_in_a_row >= RESPONSES_IN_A_ROW_MAX {
                self.responses_in_a_row = 0;
                let sent = self.send_request(qp, now, space, frame, sh);
                if matches!(sent, Transmit::Sent(_)) {
                    return sent;
                }
            }
            self.responses_in_a_row += 1;
            if let Some(sent) = self.send_response(qp, frame, sh) {
                return sent;
            }
        }
        self.send_request(qp, now, space, frame, sh)
    }

    /// False if [`Rc::poll_transmit`] would find nothing and change nothing.
    #[inline]
    pub(crate) fn may_send(&self, qp: &Common) -> bool {
        !self.requester.has_sent_all()
            || !self.responder.resources.is_idle()
            || qp.flow.as_ref().is_some_and(|flow| !flow.is_idle(self.in_flight_bytes(qp.mtu)))
    }

    /// Writes the next packet of a request, if the windows and the pacer allow it.
    #[inline]
    fn send_request(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        if !qp.state.sends() {
            return Transmit::Idle;
        }
        if self.loss.is_rnr_waiting() {
            return self.limited(qp, now, FlowLimit::Receiver, Transmit::Idle);
        }
        if self.requester.has_sent_all() {
            return self.limited(qp, now, FlowLimit::Application, Transmit::Idle);
        }
        match self.requester.next(&self.allowance(qp, space, &sh.config)) {
            Next::Segment(segment) => match qp.paced_until(now) {
                Some(at) => Transmit::Paced(at),
                None => self.send_segment(qp, now, &segment, frame, sh),
            },
            Next::Idle => self.limited(qp, now, FlowLimit::Application, Transmit::Idle),
            Next::WaitsForPeer => self.limited(qp, now, FlowLimit::Receiver, Transmit::Idle),
            Next::WaitsForWindow => self.window_full(qp, now, &sh.config),
            Next::WaitsForEndpoint => self.limited(qp, now, FlowLimit::Endpoint, Transmit::Blocked),
        }
    }

    /// Writes the control packet that is due.
    pub(crate) fn poll_control(
        &mut self,
        qp: &mut Common,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        if self.cnps.is_due() {
            return self.send_cnp(qp, frame, sh);
        }
        self.send_ack(qp, frame, sh)
    }

    /// An ACK, NAK or CNP is due. An ACK must not overtake the responses to earlier requests.
    #[inline]
    pub(crate) fn is_control_due(&self) -> bool {
        let acks = self.acks.is_due() && self.responder.resources.is_idle();
        acks || self.cnps.is_due()
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.loss.next_deadline()
    }

    /// A request is unacknowledged, and the timeout is finite.
    pub(crate) fn needs_timer(&self) -> bool {
        self.requester.has_outstanding() && self.loss.has_timeout()
    }

    /// The local ACK timeout; `None` is infinite.
    pub(crate) fn timeout(&self) -> Option<Dur> {
        self.loss.timeout()
    }

    pub(crate) fn srtt(&self) -> Option<Dur> {
        self.rtt.srtt()
    }

    pub(crate) fn psns(&self) -> (Psn, Psn) {
        (self.responder.epsn(), self.requester.psn(self.requester.snd_max()))
    }

    /// Reports `SqDrained` if the send queue is draining and drained now.
    fn report_drained(&self, qp: &mut Common, sh: &mut Shared) {
        if qp.is_draining {
            qp.report_drained(self.requester.is_drained(), sh);
        }
    }

    /// Fails the request at `snd_nxt`, which has a local error, and the queue pair, if all earlier
    /// requests are complete. Otherwise nothing is sent until they are: every event of the queue
    /// pair attempts the packet again.
    #[cold]
    fn fail_at_snd_nxt(
        &mut self,
        qp: &mut Common,
        now: Time,
        status: WcStatus,
        sh: &mut Shared,
    ) -> Transmit {
        let failed = self.requester.wqe_of(self.requester.snd_nxt());
        match failed.map(|(i, request)| (i, request.first)) {
            Some((1.., first)) if self.requester.request_ack(first) => Transmit::Paced(now),
            Some((1.., _)) => self.limited(qp, now, FlowLimit::Receiver, Transmit::Idle),
            _ => {
                self.fail_oldest(qp, status, sh);
                Transmit::Idle
            }
        }
    }
}

impl Fail for Rc {
    fn stop_responding(&mut self) {
        self.responder.stop();
    }

    fn stop_sending(&mut self, _: &mut Shared) {
        self.loss.stop();
        self.requester.reset();
    }

    fn pop_oldest(&mut self) -> Option<Completed> {
        self.requester.pop_any().map(|request| request.wqe.completed())
    }
}

/// Packets of responses in a row after which one request packet may go first, so that both
/// directions get their share of the port.
const RESPONSES_IN_A_ROW_MAX: u32 = 16;
