//! The engine of a queue pair, RC or SR. No other file distinguishes them.

use super::common::{Common, Shared, Transmit};
use super::fail::Fail;
use super::path::Path;
use super::state::ModifyError;
use crate::attr::{QpAttr, Service, Wire, WireMode};
use crate::blocks::BlockMemory;
use crate::config::Config;
use crate::drop::DropReason;
use crate::rc::Rc;
use crate::schedule::WindowSpace;
use crate::sr::Sr;
use crate::sr::tx::int_request::IntRequest;
use crate::verbs::WorkRequest;
use spanwire_base::{Dur, Time};
use spanwire_cc::mlcc;
use spanwire_loadbalance::Balancer;
use spanwire_wire::{self as wire, Ecn, Packet, Psn};

/// The state of a connection's protocol.
#[derive(Debug)]
pub(crate) enum Engine {
    /// Before RTR, and after RESET.
    Unconnected,
    Rc(Box<Rc>),
    Sr(Box<Sr>),
}

impl Engine {
    /// Creates the engine at the transition to RTR, from the attributes in `qp.attr`. None if they
    /// have no path to a peer, which the transition has checked.
    pub(super) fn new(qp: &Common, config: &Config) -> Option<Self> {
        let (caps, attr) = (&qp.init.caps, &qp.attr);
        let path = path(qp)?;
        Some(match (qp.init.service, attr.wire.unwrap_or_default()) {
            (Service::Rc, Wire::Rc) => Self::Rc(Box::new(Rc::new(caps, attr, path))),
            (Service::Rc, Wire::Sr(options)) => {
                Self::Sr(Box::new(Sr::new(caps, attr, &options, path, config)))
            }
        })
    }

    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared<'_>,
    ) {
        match self {
            Self::Unconnected => sh.counters.drop(dropped_before_rtr(p)),
            Self::Rc(rc) => rc.handle_packet(qp, now, p, sh),
            Self::Sr(sr) => sr.handle_packet(qp, now, p, sh),
        }
    }

    #[inline]
    pub(super) fn handle_timeout(&mut self, qp: &mut Common, now: Time, sh: &mut Shared<'_>) {
        match self {
            Self::Unconnected => {}
            Self::Rc(rc) => rc.handle_timeout(qp, now, sh),
            Self::Sr(sr) => sr.handle_timeout(qp, now, sh),
        }
    }

    #[inline]
    pub(super) fn poll_transmit(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        match self {
            Self::Unconnected => Transmit::Idle,
            Self::Rc(rc) => rc.poll_transmit(qp, now, space, frame, sh),
            Self::Sr(sr) => sr.poll_transmit(qp, now, space, frame, sh),
        }
    }

    #[inline]
    pub(super) fn poll_control(
        &mut self,
        qp: &mut Common,
        now: Time,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        match self {
            Self::Unconnected => Transmit::Idle,
            Self::Rc(rc) => rc.poll_control(qp, frame, sh),
            Self::Sr(sr) => sr.send_ack(qp, now, frame, sh),
        }
    }

    #[inline]
    pub(super) fn is_control_due(&self, qp: &Common) -> bool {
        match self {
            Self::Unconnected => false,
            Self::Rc(rc) => rc.is_control_due(),
            Self::Sr(sr) => sr.is_ack_due(qp.state),
        }
    }

    #[inline]
    pub(super) fn next_deadline(&self, qp: &Common) -> Option<Time> {
        match self {
            Self::Unconnected => None,
            Self::Rc(rc) => rc.next_deadline().filter(|_| qp.state.sends()),
            Self::Sr(sr) => sr.next_deadline(qp.state),
        }
    }

    /// The timeout of requests whose packets are acknowledged only by request (RC); none in SR,
    /// where the receiver acknowledges all.
    pub(super) fn request_timeout(&self) -> Option<Dur> {
        match self {
            Self::Rc(rc) => rc.timeout(),
            Self::Unconnected | Self::Sr(_) => None,
        }
    }

    pub(super) fn needs_timer(&self) -> bool {
        match self {
            Self::Unconnected => false,
            Self::Rc(rc) => rc.needs_timer(),
            Self::Sr(sr) => sr.tx.needs_timer(),
        }
    }

    pub(super) fn has_nothing_in_flight(&self) -> bool {
        match self {
            Self::Unconnected => true,
            Self::Rc(rc) => rc.requester.in_flight_pkts() == 0,
            Self::Sr(sr) => sr.tx.has_nothing_in_flight(),
        }
    }

    /// The next expected PSN and the next PSN to send.
    pub(super) fn psns(&self) -> (Psn, Psn) {
        match self {
            Self::Unconnected => (Psn::default(), Psn::default()),
            Self::Rc(rc) => rc.psns(),
            Self::Sr(sr) => sr.psns(),
        }
    }

    #[inline]
    pub(super) fn in_flight_pkts(&self) -> u64 {
        match self {
            Self::Unconnected => 0,
            Self::Rc(rc) => rc.requester.in_flight_pkts(),
            Self::Sr(sr) => sr.tx.in_flight_pkts(),
        }
    }

    /// Packets in flight after the last one with AckReq. SR has none: its receiver sends ACKs
    /// without a request.
    #[inline]
    pub(super) fn no_ack_req_pkts(&self) -> u64 {
        match self {
            Self::Unconnected | Self::Sr(_) => 0,
            Self::Rc(rc) => rc.requester.no_ack_req_pkts(),
        }
    }

    pub(super) fn srtt(&self) -> Option<Dur> {
        match self {
            Self::Unconnected => None,
            Self::Rc(rc) => rc.srtt(),
            Self::Sr(sr) => sr.tx.srtt(),
        }
    }

    /// All requests whose transmission has begun are complete.
    pub(super) fn is_drained(&self) -> bool {
        match self {
            Self::Unconnected => true,
            Self::Rc(rc) => rc.requester.is_drained(),
            Self::Sr(sr) => sr.tx.is_drained(),
        }
    }

    /// READs or atomics are posted and not complete.
    pub(super) fn has_rd_atomic(&self) -> bool {
        match self {
            Self::Unconnected => false,
            Self::Rc(rc) => rc.requester.has_rd_atomic(),
            Self::Sr(sr) => sr.tx.has_rd_atomic(),
        }
    }

    /// Starts to send, at the transition to RTS.
    pub(super) fn start(&mut self, attr: &QpAttr, qp: &Common) {
        match self {
            Self::Unconnected => {}
            Self::Rc(rc) => rc.start(attr, qp.max_rd_atomic),
            Self::Sr(sr) => sr.start(&qp.attr),
        }
    }

    /// Stops the transmission of new requests, at the transition to SQD.
    pub(super) fn drain(&mut self) {
        if let Self::Rc(rc) = self {
            rc.requester.drain();
        }
    }

    /// Applies `given`, attributes that only a drained send queue may change; those in `qp.attr`
    /// are in force.
    pub(super) fn modify(&mut self, given: &QpAttr, qp: &Common) {
        let path = path(qp).filter(|_| given.av.is_some());
        match self {
            Self::Unconnected => {}
            Self::Rc(rc) => rc.modify(given, path),
            Self::Sr(sr) => sr.modify(&qp.attr, path),
        }
    }

    /// Sets the number of READs and atomics that the peer may have outstanding.
    ///
    /// # Errors
    /// More are being responded to.
    pub(super) fn set_max_dest_rd_atomic(&mut self, capacity: u8) -> Result<(), ModifyError> {
        let fits = match self {
            Self::Unconnected => true,
            Self::Rc(rc) => rc.responder.resources.resize(capacity).is_ok(),
            Self::Sr(sr) => sr.responding() <= capacity.into(),
        };
        let busy = ModifyError::OutOfRange("max_dest_rd_atomic (more are outstanding)");
        if fits { Ok(()) } else { Err(busy) }
    }

    /// Applies the options of sending, before the start. `base_rtt` is known, not measured.
    pub(super) fn set_options(&mut self, qp: &Common, base_rtt: Option<Dur>) {
        if let (Self::Sr(sr), Some(options)) = (self, qp.attr.sr()) {
            sr.tx.set_options(options, qp.qpn, base_rtt);
        }
    }

    /// Makes packets request this telemetry. Returns the payload bytes of a full packet, or `None`
    /// if the protocol has no telemetry.
    pub(super) fn request_int(&mut self, int: IntRequest, full_bytes: u32) -> Option<u32> {
        match self {
            Self::Unconnected | Self::Rc(_) => None,
            Self::Sr(sr) => Some(sr.tx.request_int(int, full_bytes)),
        }
    }

    /// Starts the receiver's part of MLCC, or ends it.
    pub(super) fn set_credit_loop(&mut self, receiver: Option<mlcc::Receiver>) {
        if let Self::Sr(sr) = self {
            sr.rx.set_credit_loop(receiver);
        }
    }

    pub(super) fn balancer(&self) -> Option<&Balancer> {
        match self {
            Self::Unconnected | Self::Rc(_) => None,
            Self::Sr(sr) => sr.tx.balancer(),
        }
    }

    /// The send queue is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Unconnected => true,
            Self::Rc(rc) => rc.requester.is_full(),
            Self::Sr(sr) => sr.tx.is_full(),
        }
    }

    /// Queues a checked work request of `len` bytes.
    pub(super) fn post(&mut self, wr: &WorkRequest<'_>, len: u32, qp: &Common) {
        match self {
            Self::Unconnected => {}
            Self::Rc(rc) => rc.requester.post(wr, len, qp.mtu),
            Self::Sr(sr) => sr.tx.post(wr, len),
        }
    }

    pub(super) fn on_receive_posted(&mut self) {
        if let Self::Sr(sr) = self {
            sr.rx.on_receive_posted();
        }
    }

    pub(super) fn free_blocks(&mut self, memory: &mut BlockMemory) {
        if let Self::Sr(sr) = self {
            sr.rx.free_blocks(memory);
        }
    }

    /// Stops responding and goes to the error state.
    pub(super) fn fail(&mut self, qp: &mut Common, sh: &mut Shared<'_>) {
        match self {
            Self::Unconnected => {
                if qp.enter_error() {
                    qp.flush_receives(sh);
                }
            }
            Self::Rc(rc) => rc.fail(qp, sh),
            Self::Sr(sr) => sr.fail(qp, sh),
        }
    }

    /// Asserts the invariants of the engine.
    pub(super) fn check_invariants(&self, qp: &Common) {
        match self {
            Self::Unconnected => {}
            Self::Rc(rc) => rc.check_invariants(qp),
            Self::Sr(sr) => sr.check_invariants(qp),
        }
    }
}

/// The path in force to the peer of a connection. Packets of SR are ECN-capable.
fn path(qp: &Common) -> Option<Path> {
    let (mut av, attr) = (qp.attr.av?, &qp.attr);
    if attr.mode() == WireMode::Sr {
        av.traffic_class = av.traffic_class & !Ecn::Ce.bits() | Ecn::Ect0.bits();
    }
    Path::new(av, qp.qpn, attr.dest_qpn.unwrap_or_default())
}

/// The reason to drop a packet that arrives before RTR, when no wire protocol is chosen.
fn dropped_before_rtr(p: &Packet<'_>) -> DropReason {
    match p.bth.opcode.props().service {
        wire::Service::Rc | wire::Service::Cnp => DropReason::QpNotReceiving,
        _ => DropReason::WrongService,
    }
}
