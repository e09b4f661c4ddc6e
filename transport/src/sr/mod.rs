//! SR: selective repeat. Each direction numbers its packets, the receiver places them in any order
//! and acknowledges them one by one, and only lost packets are retransmitted (docs/protocol/sr.md).
//!
//! [`Tx`] is the sending direction with all its loss recovery, [`Rx`] the receiving one. Neither
//! knows the other. [`Sr`] passes these values between them:
//!
//! | from | to | value |
//! |---|---|---|
//! | rx | tx | READs and atomics to respond to, in order |
//! | rx | tx | a response that arrived, for the request that it completes |
//! | rx | tx | the path of the newest packet, echoed by a sender without a load balancer |
//! | tx | rx | the delay of acknowledgements, a part of the round trip |
//! | tx | rx | READs and atomics being responded to, which count against their limit |

pub(crate) mod crossing;
mod expected;
mod invariants;
pub(crate) mod number;
mod on_ack;
mod on_data;
mod on_near;
mod recover;
pub(crate) mod rx;
mod send;
pub(crate) mod tx;

use crate::attr::{QpAttr, QpCaps, SrOptions};
use crate::config::Config;
use crate::drop::DropReason;
use crate::event::AsyncEvent;
use crate::qp::common::{Common, Shared};
use crate::qp::fail::Fail;
use crate::qp::flow::Flow;
use crate::qp::outcome::Completed;
use crate::qp::path::Path;
use crate::qp::state::QpState;
use crate::timer::earlier;
use crate::wc::WcStatus;
use rx::Rx;
use rx::ack::Outer;
use spanwire_base::Time;
use spanwire_wire::{OpKind, Packet, Psn, Service};
use tx::Tx;

/// The state of one SR connection.
#[derive(Debug)]
pub(crate) struct Sr {
    pub(crate) path: Path,
    pub(crate) tx: Tx,
    pub(crate) rx: Rx,
}

impl Sr {
    /// An engine that receives. `attr` holds all attributes in force.
    pub(crate) fn new(
        caps: &QpCaps,
        attr: &QpAttr,
        options: &SrOptions,
        path: Path,
        config: &Config,
    ) -> Self {
        Self { path, tx: Tx::new(caps, attr, options), rx: Rx::new(attr, config) }
    }

    /// Starts sending. The peer's address is valid from now on.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        self.tx.start(attr);
        self.rx.validate_peer();
    }

    /// Applies the attributes that may change in SQD, and a new path; `attr` holds all attributes
    /// in force.
    pub(crate) fn modify(&mut self, attr: &QpAttr, path: Option<Path>) {
        if let Some(path) = path {
            self.path = path;
        }
        self.tx.modify(attr);
        self.rx.modify(attr);
    }

    /// Processes a received packet whose bytes have passed the checks of `wire`.
    // Not inlined: RC's path would have to save registers and stack for this function too.
    #[inline(never)]
    pub(crate) fn handle_packet(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) {
        let checked = qp.check_packet(p, Service::Sr, &self.path);
        let outer = Outer::of(p);
        if let Ok(()) | Err(DropReason::QpNotReceiving) = checked {
            self.rx.on_ip_bytes(outer.ip_bytes);
        }
        let accepted = match (checked, p.bth.opcode.props().kind) {
            (Err(reason), _) => Err(reason),
            (Ok(()), OpKind::SrData | OpKind::SrParity) => self.on_data(qp, now, (p, &outer), sh),
            (Ok(()), OpKind::SrAck) => self.on_ack(qp, now, p, sh).map(|()| 0),
            (Ok(()), OpKind::SrNear) => self.on_near(qp, now, p, sh).map(|()| 0),
            // A CNP. SR's ACKs carry the ECN counts, and a forger has to guess their PSNs.
            (Ok(()), _) => Err(DropReason::IgnoredCnp),
        };
        self.count(now, accepted, outer.is_ce, sh);
    }

    /// Counts a packet and its payload bytes, or why it was dropped.
    #[inline(always)]
    fn count(
        &mut self,
        now: Time,
        accepted: Result<u32, DropReason>,
        is_ce: bool,
        sh: &mut Shared,
    ) {
        match accepted {
            Ok(bytes) => {
                sh.counters.rx_packets += 1;
                sh.counters.rx_payload_bytes += u64::from(bytes);
                sh.counters.np_ecn_marked_roce_packets += u64::from(is_ce);
            }
            Err(reason) => {
                if reason == DropReason::QpNotReceiving {
                    self.rx.repeat_nak(now, self.tx.ack_delay());
                }
                sh.counters.drop(reason);
            }
        }
    }

    /// Handles the timers that are due at `now`.
    pub(crate) fn handle_timeout(&mut self, qp: &mut Common, now: Time, sh: &mut Shared) {
        self.rx.handle_timeout(now, sh);
        if !qp.state.sends() {
            return;
        }
        let (timeouts, in_flight) = (self.tx.timers.rto_count(), self.tx.in_flight_pkts());
        let is_exhausted = self.tx.handle_timeout(now, &mut sh.counters, qp.flow.as_deref_mut());
        if let Some(path_mtu) = qp.path_mtu.as_deref_mut()
            && self.tx.timers.rto_count() > timeouts
        {
            path_mtu.on_timeout(self.tx.timers.rto_count(), in_flight);
        }
        if is_exhausted {
            if self.tx.has_no_requests() {
                // Only responses are unacknowledged: no completion reports the failure.
                sh.events.push(AsyncEvent::QpFatal(qp.qpn));
            }
            self.fail_oldest(qp, WcStatus::RetryExcErr, sh);
        }
    }

    /// The time of the next [`Sr::handle_timeout`] or delayed ACK.
    #[inline(never)]
    pub(crate) fn next_deadline(&self, state: QpState) -> Option<Time> {
        let rx_deadline = self.rx.next_deadline().filter(|_| state.receives());
        if !state.sends() {
            return rx_deadline;
        }
        earlier(rx_deadline, self.tx.next_deadline())
    }

    /// The next PSN to receive and the next PSN to send, as in the BTH: the lower 24 bits.
    pub(crate) fn psns(&self) -> (Psn, Psn) {
        (number::bth_psn(self.rx.received.next()), number::bth_psn(self.tx.sent.next()))
    }

    /// READs and atomics received whose responses have not been sent in full.
    pub(crate) fn responding(&self) -> usize {
        self.rx.responder.rd_atomic_pending() + self.tx.responding()
    }

    /// False if [`Sr::poll_transmit`] would find nothing and change nothing.
    #[inline]
    pub(crate) fn may_send(&self, qp: &Common) -> bool {
        let nak_waits = self.rx.ack.is_due() && !self.is_ack_due(qp.state);
        let is_idle = |flow: &Flow| flow.is_idle(self.tx.sent.in_flight_bytes());
        nak_waits || self.tx.may_send() || qp.flow.as_ref().is_some_and(|flow| !is_idle(flow))
    }

    /// An ACK is due and may be sent. A NAK waits for the responses to all earlier requests.
    #[inline]
    pub(crate) fn is_ack_due(&self, state: QpState) -> bool {
        let responses_first =
            state == QpState::Err && self.rx.is_peer_valid() && self.tx.responding() > 0;
        self.rx.ack.is_due() && !responses_first
    }

    /// Reports the end of draining, if the send queue is drained now.
    fn report_drained(&self, qp: &mut Common, sh: &mut Shared) {
        if qp.is_draining {
            qp.report_drained(self.tx.is_drained(), sh);
        }
    }

    /// Fails a message that has a local error, and the queue pair, if all requests before it are
    /// complete; otherwise changes nothing and returns false.
    fn fail_in_order(
        &mut self,
        qp: &mut Common,
        message: u32,
        status: WcStatus,
        sh: &mut Shared,
    ) -> bool {
        let is_oldest = self.tx.requester.oldest() == Some(message);
        if is_oldest {
            self.fail_oldest(qp, status, sh);
        }
        is_oldest
    }

    /// Fails a message that the peer refused, and the queue pair. Incomplete requests before it are
    /// flushed.
    fn fail_message(&mut self, qp: &mut Common, message: u32, status: WcStatus, sh: &mut Shared) {
        while self.tx.requester.oldest().is_some_and(|oldest| oldest != message) {
            self.flush_one(qp, sh);
        }
        self.fail_oldest(qp, status, sh);
    }
}

impl Fail for Sr {
    fn stop_responding(&mut self) {
        self.tx.stop_responding();
    }

    fn stop_sending(&mut self, sh: &mut Shared) {
        self.tx.stop();
        self.rx.free_blocks(&mut sh.block_memory);
    }

    fn pop_oldest(&mut self) -> Option<Completed> {
        self.tx.requester.pop_oldest()
    }
}
