//! The sending direction of SR: requests and responses to send, sent packets, loss recovery, and
//! the choice of the next packet.

mod balance;
mod bits;
pub(crate) mod coding;
mod credit;
pub(crate) mod int_request;
mod invariants;
mod lost;
mod margin;
mod middle;
mod near;
pub(crate) mod on_ack;
mod paths;
pub(crate) mod plan;
mod reorder;
pub(crate) mod requester;
pub(crate) mod responses;
mod rtt;
pub(crate) mod schedule;
pub(crate) mod sent;
pub(crate) mod timers;
mod write;

use crate::attr::{Mtu, QpAttr, QpCaps, SrOptions};
use crate::config::SEGMENT_BYTES;
use crate::counters::Counters;
use crate::qp::flow::Flow;
use crate::qp::timeouts::ack_timeout;
use crate::sr::crossing::AckDelay;
use crate::sr::number::first_number;
use crate::timer::earlier;
use crate::verbs::WorkRequest;
use coding::Coding;
use credit::Credit;
use int_request::IntRequest;
use paths::Paths;
use plan::Contents;
use requester::Requester;
use responses::Responses;
use rtt::Rtt;
use sent::Sent;
use spanwire_base::{Dur, Time};
use spanwire_cc::LossKind;
use spanwire_loadbalance::{self as lb, Balancer};
use spanwire_wire::Qpn;
use timers::{TimerEvent, Timers};

/// The state of the sending direction.
#[derive(Debug)]
pub(crate) struct Tx {
    pub(super) requester: Requester,
    /// READs and atomics of the peer that await a response.
    pub(super) responses: Responses,
    pub(super) sent: Sent<Contents>,
    rtt: Rtt,
    pub(super) timers: Timers,
    /// The RACK timer: when packets in flight may become presumed lost.
    loss_timer: Option<Time>,
    /// The recovery period ends when all packets below this number are acknowledged.
    recovery_end: Option<u64>,
    /// A probe, sent before all other packets and whatever the windows allow.
    probe: Option<Probe>,
    /// The next packet waits for the pacer, as of the last choice.
    is_paced: bool,
    credit: Credit,
    /// The peer's PSN limit; none before the first ACK.
    psn_limit: Option<u64>,
    /// The PSN limit before the first ACK, relative to the lowest missing packet.
    initial_window_pkts: u32,
    /// Packets of responses since the last packet of a request.
    responses_in_a_row: u32,
    max_rd_atomic: u32,
    segment_bytes: u32,
    /// As agreed: `segment_bytes` may be less on a path with a smaller MTU.
    full_segment_bytes: u32,
    /// The telemetry that packets request.
    pub(super) int: IntRequest,
    /// The peer knows MLCC, so its ACKs may carry a credit.
    pub(super) accepts_credit: bool,
    /// Our QPN, which data carry if feedback of switches is requested.
    source_qpn: Option<Qpn>,
    /// The hop limit of sent packets.
    hop_limit: u8,
    /// The peer's counts of received and of CE-marked bytes, as of its last ACK.
    peer_counts: (u64, u64),
    has_failed: bool,
    /// Erasure coding, if it was agreed on.
    coding: Option<Box<Coding>>,
    /// The load balancer, if there is one.
    paths: Option<Box<Paths>>,
}

/// A packet that elicits an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// Tail loss probe: the newest packet.
    Tail,
    /// The next packet, although it lacks receive credit.
    Receive,
}

impl Tx {
    pub(super) fn new(caps: &QpCaps, attr: &QpAttr, options: &SrOptions) -> Self {
        let mtu = attr.path_mtu.map_or(0, Mtu::bytes);
        let segment_bytes = options.segment_bytes.unwrap_or(mtu);
        Self {
            requester: Requester::new(caps.max_send_wr, caps.max_send_sge, caps.max_inline_data),
            responses: Responses::default(),
            sent: Sent::new(0),
            rtt: Rtt::default(),
            timers: timers(attr),
            loss_timer: None,
            recovery_end: None,
            probe: None,
            is_paced: false,
            credit: Credit::new(attr),
            psn_limit: None,
            initial_window_pkts: options.peer_reorder_pkts,
            responses_in_a_row: 0,
            max_rd_atomic: 0,
            segment_bytes,
            full_segment_bytes: segment_bytes,
            int: IntRequest::default(),
            accepts_credit: false,
            source_qpn: None,
            hop_limit: hop_limit(attr),
            peer_counts: (0, 0),
            has_failed: false,
            coding: None,
            paths: None,
        }
    }

    /// Starts sending.
    pub(super) fn start(&mut self, attr: &QpAttr) {
        let first = first_number(attr.sq_psn.unwrap_or_default());
        self.sent = Sent::new(first);
        if self.paths.is_some() {
            self.sent.track_paths();
        }
        self.credit = Credit::new(attr);
        self.timers = timers(attr);
        self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0).into();
    }

    /// Applies the attributes that may change in SQD; `attr` holds all attributes in force.
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        if !self.waits_for_peer() {
            self.timers = timers(attr);
        }
        self.credit.modify(attr);
        self.hop_limit = hop_limit(attr);
        self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0).into();
    }

    /// Packets request this telemetry from now on. Returns the payload of a full packet:
    /// `full_bytes` less the room for telemetry, for erasure coding, and for our QPN if feedback of
    /// switches is requested.
    pub(crate) fn request_int(&mut self, int: IntRequest, full_bytes: u32) -> u32 {
        let overhead = int.room_bytes()
            + match (&self.coding, self.source_qpn) {
                (Some(_), _) => coding::OVERHEAD_BYTES,
                (None, Some(_)) => coding::SOURCE_QPN_BYTES,
                (None, None) => 0,
            };
        self.int = int;
        let least = full_bytes.min(*SEGMENT_BYTES.start());
        self.full_segment_bytes = full_bytes.saturating_sub(overhead).max(least);
        self.segment_bytes = self.full_segment_bytes;
        self.segment_bytes
    }

    /// Applies the options of sending, before the start. `qpn` is our own, which data carry if
    /// feedback of switches is requested. [`Tx::request_int`] computes the payload of full packets
    /// afterwards.
    pub(crate) fn set_options(&mut self, options: &SrOptions, qpn: Qpn, base_rtt: Option<Dur>) {
        self.source_qpn = options.near.then_some(qpn);
        self.accepts_credit = options.credit;
        self.coding = options.erasure.map(|choice| Box::new(Coding::new(choice, base_rtt)));
        let paths = |balance| Box::new(Paths::new(balance, qpn, base_rtt));
        self.paths = options.balance.as_ref().map(paths);
    }

    pub(crate) fn balancer(&self) -> Option<&Balancer> {
        self.paths.as_ref().map(|paths| paths.balancer())
    }

    /// Queues a checked work request of `len` bytes.
    pub(crate) fn post(&mut self, wr: &WorkRequest<'_>, len: u32) {
        self.requester.post(wr, len);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.requester.is_full()
    }

    /// No work request is in the send queue.
    pub(super) fn has_no_requests(&self) -> bool {
        self.requester.is_empty()
    }

    /// Every request that has begun is complete.
    pub(crate) fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }

    /// READs or atomics are posted and not complete.
    pub(crate) fn has_rd_atomic(&self) -> bool {
        self.requester.has_rd_atomic()
    }

    /// READs and atomics of the peer whose responses have not been sent in full.
    pub(super) fn responding(&self) -> usize {
        self.responses.len()
    }

    /// Handles the timers that are due at `now`. True when the retry limit is reached.
    #[inline(never)]
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        counters: &mut Counters,
        mut flow: Option<&mut Flow>,
    ) -> bool {
        if self.loss_timer.is_some_and(|at| at <= now) {
            self.detect_lost(now, counters, flow.as_deref_mut());
            self.report_to_balancer(now, None, lb::LossKind::Rack);
        }
        if self.credit.handle_timeout(now) {
            counters.receive_limit_probes += 1;
            // The probe's ACK restarts the RTO, so the RTO cannot retransmit these data.
            self.sent.retransmit_oldest();
            self.probe = Some(Probe::Receive);
        }
        // Nothing is in flight that the peer could acknowledge, so the timers restart. A TLP of an
        // own READ would delay every response that waits for the pacer.
        let is_paced = self.is_paced && self.sent.in_flight_pkts() == 0;
        if self.has_nothing_in_flight() || self.probe.is_some() || is_paced {
            self.timers.restart(now);
            return false;
        }
        match self.timers.poll_expired(now, &self.rtt, self.sent.oldest_at()) {
            TimerEvent::Nothing => {}
            // A packet that waits for the pacer elicits an ACK as a TLP does, and a TLP would delay
            // it. The RTO of packets in flight is not affected.
            TimerEvent::Probe if self.is_paced => self.timers.defer_probe(),
            TimerEvent::Probe => {
                counters.tail_loss_probes += 1;
                self.probe = Some(Probe::Tail);
            }
            TimerEvent::Timeout => self.on_timeout(now, counters, flow),
            TimerEvent::Exhausted if self.is_complete() => self.abandon_rest(),
            TimerEvent::Exhausted => return true,
        }
        false
    }

    /// The RTO expired: everything in flight is presumed lost.
    fn on_timeout(&mut self, now: Time, counters: &mut Counters, flow: Option<&mut Flow>) {
        counters.local_ack_timeout_err += 1;
        if let Some(flow) = flow {
            let (kind, lost) =
                (LossKind::Timeout(self.timers.rto_count()), self.sent.in_flight_bytes());
            flow.on_loss(now, kind, lost, 0);
        }
        let before = self.sent.counters().presumed_lost;
        self.sent.mark_all_lost();
        counters.presumed_lost_packets += self.sent.counters().presumed_lost - before;
        self.report_to_balancer(now, None, lb::LossKind::Timeout);
        if !self.sent.has_lost() {
            self.probe = Some(Probe::Tail);
        }
    }

    /// The time of the next [`Tx::handle_timeout`].
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let timers = self.timers.next(&self.rtt, self.sent.oldest_at());
        earlier(self.loss_timer, earlier(self.credit.next(), timers))
    }

    /// An ACK or a response that the peer must send is outstanding, so a timer must run.
    pub(crate) fn needs_timer(&self) -> bool {
        self.waits_for_peer() && !self.is_complete()
    }

    /// An ACK or a response is outstanding.
    fn waits_for_peer(&self) -> bool {
        !self.sent.is_empty() || self.requester.awaits_response()
    }

    /// Packets in flight. The last responses of a failed queue pair do not count.
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        if self.has_failed { 0 } else { self.sent.in_flight_pkts() }
    }

    /// Every packet sent was lost or has arrived, and some are to be retransmitted, so the peer has
    /// nothing to acknowledge. Losses left to recovery count as in flight here.
    pub(crate) fn has_nothing_in_flight(&self) -> bool {
        !self.sent.is_empty() && self.sent.in_flight_pkts() == 0 && self.sent.has_lost()
    }

    pub(crate) fn srtt(&self) -> Option<Dur> {
        self.rtt.srtt()
    }

    /// The limits of delayed ACKs to the peer.
    pub(super) fn ack_delay(&self) -> AckDelay {
        let time = match self.rtt.srtt() {
            Some(_) => (self.rtt.min_rtt() / 4).clamp(ACK_DELAY_MIN, ACK_DELAY_MAX),
            None => ACK_DELAY_UNKNOWN,
        };
        AckDelay { pkts: ACK_PKTS, time }
    }

    /// Stops all timers and discards sent packets: the queue pair has failed.
    pub(super) fn stop(&mut self) {
        self.timers.stop();
        self.sent.clear();
        self.coding.iter_mut().for_each(|coding| coding.abandon());
        (self.loss_timer, self.probe, self.has_failed) = (None, None, true);
        self.credit.stop();
    }

    /// Drops the responses that were not sent.
    pub(super) fn stop_responding(&mut self) {
        self.responses.clear();
        self.coding.iter_mut().for_each(|coding| coding.abandon());
    }
}

fn hop_limit(attr: &QpAttr) -> u8 {
    attr.av.map_or(0, |av| av.hop_limit)
}

fn timers(attr: &QpAttr) -> Timers {
    let exponent = attr.timeout.unwrap_or(0);
    let retry_cnt = attr.retry_cnt.unwrap_or(0);
    match exponent {
        0 => Timers::new(RTO_MIN, ack_timeout(DEFAULT_TIMEOUT), u8::MAX, Dur::MAX),
        n => {
            let initial_rto = ack_timeout(n);
            let min_outage = initial_rto * (TIMEOUTS_PER_RETRY * (u64::from(retry_cnt) + 1));
            Timers::new(RTO_MIN.min(initial_rto), initial_rto, retry_cnt, min_outage)
        }
    }
}

/// The least RTO. Hosts that share a core are descheduled for as long at any time, and a TLP is
/// sent long before.
const RTO_MIN: Dur = Dur::from_ms(1);
/// The timeout exponent before the first RTT sample, of a queue pair with an infinite timeout.
const DEFAULT_TIMEOUT: u8 = 14;
/// The least outage before `RETRY_EXC_ERR`, in timeouts for each transmission. RC's backoff of 1,
/// 2, 4, 4 ... amounts to about the same.
const TIMEOUTS_PER_RETRY: u64 = 3;
/// Packets per delayed ACK. An ACK costs about as much as a data packet; one in 16 is 6 %.
pub(super) const ACK_PKTS: u32 = 16;
/// The delay of an ACK is at most a quarter of the minimum RTT, within these bounds.
const ACK_DELAY_MIN: Dur = Dur::from_us(1);
const ACK_DELAY_MAX: Dur = Dur::from_ms(1);
/// The delay of an ACK before the first RTT sample, suitable for a local network.
const ACK_DELAY_UNKNOWN: Dur = Dur::from_us(20);
