//! The engine of a queue pair, RC or SR. Other files know of SR only by [`Engine::sr`].

use super::common::{Common, Shared, Transmit};
use super::fail::Fail;
use super::path::Path;
use super::state::ModifyError;
use crate::attr::{QpAttr, Service, Wire, WireMode};
use crate::config::Config;
use crate::drop::DropReason;
use crate::rc::Rc;
use crate::schedule::{InFlight, WindowSpace};
use crate::sr::Sr;
use crate::verbs::WorkRequest;
use spanwire_base::{Dur, Time};
use spanwire_wire::{self as wire, Ecn, IpRepr, Packet, Psn};

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
        sh: &mut Shared,
    ) {
        match self {
            Self::Unconnected => sh.counters.drop(dropped_before_rtr(p)),
            Self::Rc(rc) => rc.handle_packet(qp, now, p, sh),
            Self::Sr(sr) => sr.handle_packet(qp, now, p, sh),
        }
    }

    #[inline]
    pub(super) fn handle_timeout(&mut self, qp: &mut Common, now: Time, sh: &mut Shared) {
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
        sh: &mut Shared,
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
        sh: &mut Shared,
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

    /// The packets that count against windows.
    #[inline]
    pub(super) fn in_flight(&self) -> InFlight {
        match self {
            Self::Unconnected => InFlight { pkts: 0, no_ack_req_pkts: 0 },
            Self::Rc(rc) => InFlight {
                pkts: rc.requester.in_flight_pkts(),
                no_ack_req_pkts: rc.requester.no_ack_req_pkts(),
            },
            // The receiver sends ACKs without a request.
            Self::Sr(sr) => InFlight { pkts: sr.tx.in_flight_pkts(), no_ack_req_pkts: 0 },
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

    /// Limits the READs and atomics that this end and the peer may have outstanding.
    ///
    /// # Errors
    /// Some are posted, or more are being responded to.
    pub(super) fn limit_rd_atomic(
        &mut self,
        own: Option<u8>,
        of_peer: Option<u8>,
    ) -> Result<(), ModifyError> {
        let has_posted = match self {
            Self::Unconnected => false,
            Self::Rc(rc) => rc.requester.has_rd_atomic(),
            Self::Sr(sr) => sr.tx.has_rd_atomic(),
        };
        if own == Some(0) && has_posted {
            // They could never be sent.
            return Err(ModifyError::OutOfRange("max_rd_atomic (READs or atomics are posted)"));
        }
        let fits = of_peer.is_none_or(|n| match self {
            Self::Unconnected => true,
            Self::Rc(rc) => rc.responder.resources.resize(n).is_ok(),
            Self::Sr(sr) => sr.responding() <= n.into(),
        });
        let busy = ModifyError::OutOfRange("max_dest_rd_atomic (more are outstanding)");
        if fits { Ok(()) } else { Err(busy) }
    }

    /// A packet with this header comes from the peer and is addressed to us.
    pub(super) fn is_from_peer(&self, ip: &IpRepr) -> bool {
        match self {
            Self::Unconnected => false,
            Self::Rc(rc) => rc.path.matches(ip),
            Self::Sr(sr) => sr.path.matches(ip),
        }
    }

    /// The protocol of its own, if it is SR.
    pub(super) fn sr(&self) -> Option<&Sr> {
        match self {
            Self::Unconnected | Self::Rc(_) => None,
            Self::Sr(sr) => Some(sr),
        }
    }

    /// As [`Engine::sr`], mutable.
    pub(super) fn sr_mut(&mut self) -> Option<&mut Sr> {
        match self {
            Self::Unconnected | Self::Rc(_) => None,
            Self::Sr(sr) => Some(sr),
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

    /// Stops responding and goes to the error state.
    pub(super) fn fail(&mut self, qp: &mut Common, sh: &mut Shared) {
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
