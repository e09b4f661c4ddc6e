//! The sending direction of SR: requests and responses to send, packets sent, loss recovery, and
//! the choice of the next packet.

mod balance;
mod bits;
mod credit;
mod encoder;
mod invariants;
mod lost;
mod margin;
pub(crate) mod on_ack;
mod paths;
mod place;
pub(crate) mod plan;
mod reorder;
pub(crate) mod requester;
pub(crate) mod responses;
mod rtt;
pub(crate) mod schedule;
pub(crate) mod sent;
mod timers;
mod write;

use crate::attr::{Balance, Mtu, QpAttr, QpCaps};
use crate::coding::ErasureCoding;
use crate::config::{MIN_REORDER_PKTS, SEGMENT_BYTES};
use crate::counters::Counters;
use crate::qp::flow::Flow;
use crate::qp::timeouts::ack_timeout;
use crate::sr::crossing::AckDelay;
use crate::sr::number::first_number;
use crate::timer::earlier;
use crate::verbs::WorkRequest;
use credit::Credit;
use encoder::Encoder;
use paths::Paths;
use plan::Contents;
use requester::Requester;
use responses::Responses;
use rtt::Rtt;
use sent::Sent;
use spanwire_base::{Dur, Time, u32_from};
use spanwire_cc::LossKind;
use spanwire_loadbalance::{self as lb, Balancer};
use spanwire_wire::{INT_HEADER_LEN, INT_HOP_LEN, Qpn};
use timers::{TimerEvent, Timers};

/// The state of the sending direction.
#[derive(Debug)]
pub(crate) struct Tx {
    pub(super) requester: Requester,
    /// READs and atomics of the peer to respond to.
    pub(super) responses: Responses,
    pub(super) sent: Sent<Contents>,
    rtt: Rtt,
    pub(super) timers: Timers,
    /// When packets in flight may become presumed lost.
    loss_timer: Option<Time>,
    /// The recovery period ends when all below this number is acknowledged.
    recovery_end: Option<u64>,
    /// A packet that leaves before all others, whatever the windows say.
    probe: Option<Probe>,
    /// The next packet waits for the pacer, as of the last choice.
    is_paced: bool,
    credit: Credit,
    /// The peer takes no packet at or above this; none before it has advertised a limit.
    psn_limit: Option<u64>,
    /// How far beyond the lowest missing packet the limit is before that.
    initial_window_pkts: u32,
    /// Parts of responses sent since a request last had its chance.
    responses_in_a_row: u32,
    max_rd_atomic: u32,
    segment_bytes: u32,
    /// Switches whose telemetry packets request; 0 if they do not.
    pub(super) int_hops: u8,
    /// The hop limit of our packets.
    hop_limit: u8,
    /// Bytes that the peer had received, and received marked, as of its last ACK.
    peer_counts: (u64, u64),
    has_failed: bool,
    /// The FEC encoder, if data are coded.
    encoder: Option<Box<Encoder>>,
    /// The load balancer, if there is one.
    paths: Option<Box<Paths>>,
}

/// A packet that elicits an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// Tail loss probe: the newest packet.
    Tail,
    /// The next packet that waits for a receive request.
    Receive,
}

impl Tx {
    pub(super) fn new(caps: &QpCaps, attr: &QpAttr) -> Self {
        let mtu = attr.path_mtu.map_or(0, Mtu::bytes);
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
            initial_window_pkts: attr.peer_reorder_pkts.unwrap_or(MIN_REORDER_PKTS),
            responses_in_a_row: 0,
            max_rd_atomic: 0,
            segment_bytes: attr.segment_bytes.unwrap_or(mtu),
            int_hops: 0,
            hop_limit: hop_limit(attr),
            peer_counts: (0, 0),
            has_failed: false,
            encoder: None,
            paths: None,
        }
    }

    /// Begins to send.
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

    /// Takes over what a drained send queue may change; `attr` is all that is in force now.
    pub(super) fn change(&mut self, attr: &QpAttr) {
        if !self.waits_for_peer() {
            self.timers = timers(attr);
        }
        self.credit.change(attr);
        self.hop_limit = hop_limit(attr);
        self.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0).into();
    }

    /// Packets request the telemetry of so many switches from now on. Returns the payload of a full
    /// packet: `full_bytes` less the room of the telemetry, and of a block's header if data are
    /// coded.
    pub(crate) fn request_int(&mut self, hops: u8, full_bytes: u32) -> u32 {
        let room = match hops {
            0 => 0,
            n => u32_from(INT_HEADER_LEN + usize::from(n) * INT_HOP_LEN),
        };
        let room = room + if self.encoder.is_some() { BLOCK_BYTES } else { 0 };
        self.int_hops = hops;
        let least = full_bytes.min(*SEGMENT_BYTES.start());
        self.segment_bytes = full_bytes.saturating_sub(room).max(least);
        self.segment_bytes
    }

    /// Data leave in blocks from now on, in packets of at most `full_bytes` of payload less the
    /// block's header.
    pub(crate) fn set_erasure(
        &mut self,
        choice: ErasureCoding,
        base_rtt: Option<Dur>,
        full_bytes: u32,
    ) {
        self.encoder = Some(Box::new(Encoder::new(choice, base_rtt)));
        self.request_int(self.int_hops, full_bytes);
    }

    /// Packets take the paths of this load balancer from now on.
    pub(crate) fn set_balance(&mut self, balance: &Balance, qpn: Qpn, base_rtt: Option<Dur>) {
        self.paths = Some(Box::new(Paths::new(balance, qpn, base_rtt)));
        self.sent.track_paths();
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

    /// READs and atomics of the peer whose response has not left whole.
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
            self.report_to_balancer(now, None, lb::LossKind::Overdue);
        }
        if self.credit.handle_timeout(now) {
            counters.receive_limit_probes += 1;
            // The probe's ACK restarts the RTO, so the RTO cannot retransmit these data.
            self.sent.retransmit_oldest_block();
            self.probe = Some(Probe::Receive);
        }
        // Nothing is in flight that the peer could acknowledge: the timers restart. Probes of an
        // own READ would delay each response that waits for the pacer.
        let is_paced = self.is_paced && self.sent.in_flight_pkts() == 0;
        if self.has_nothing_in_flight() || self.probe.is_some() || is_paced {
            self.timers.restart(now);
            return false;
        }
        match self.timers.poll_expired(now, &self.rtt, self.sent.oldest_at()) {
            TimerEvent::Nothing => {}
            // A packet that waits for the pacer elicits an ACK as a probe does, and a probe would
            // delay it. The retransmission timeout of packets in flight is not affected.
            TimerEvent::Probe if self.is_paced => self.timers.defer_probe(),
            TimerEvent::Probe => {
                counters.tail_loss_probes += 1;
                self.probe = Some(Probe::Tail);
            }
            TimerEvent::Timeout => self.on_timeout(now, counters, flow),
            TimerEvent::Exhausted if self.has_only_parity() => self.abandon_parity(),
            TimerEvent::Exhausted => return true,
        }
        false
    }

    /// The RTO expired: everything in flight is lost.
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

    /// When [`Tx::handle_timeout`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let timers = self.timers.next(&self.rtt, self.sent.oldest_at());
        earlier(self.loss_timer, earlier(self.credit.next(), timers))
    }

    /// An acknowledgement or a response is outstanding, so a timer must run. Parity of completed
    /// requests needs none: a peer that has closed need not acknowledge it.
    pub(crate) fn needs_timer(&self) -> bool {
        self.waits_for_peer() && !self.has_only_parity()
    }

    /// An acknowledgement or a response is outstanding.
    fn waits_for_peer(&self) -> bool {
        !self.sent.is_empty() || self.requester.awaits_response()
    }

    /// Packets in flight. The last responses of a failed queue pair do not count.
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        if self.has_failed { 0 } else { self.sent.in_flight_pkts() }
    }

    /// Everything sent was lost, or has arrived, and something is to be retransmitted: the peer has
    /// nothing to acknowledge. Losses left to parity are in flight by this definition.
    pub(crate) fn has_nothing_in_flight(&self) -> bool {
        !self.sent.is_empty() && self.sent.in_flight_pkts() == 0 && self.sent.has_lost()
    }

    /// Only parity of completed requests is unacknowledged.
    fn has_only_parity(&self) -> bool {
        self.requester.oldest().is_none() && self.sent.has_only_parity()
    }

    /// Stops waiting for the acknowledgement of parity: a peer that has closed need not send it.
    /// The parity is not retransmitted and takes no place in the window of later requests.
    fn abandon_parity(&mut self) {
        self.timers.reset();
        self.sent.abandon_all();
    }

    pub(crate) fn srtt(&self) -> Option<Dur> {
        self.rtt.srtt()
    }

    /// The limits of delaying acknowledgements to the peer.
    pub(super) fn ack_delay(&self) -> AckDelay {
        let time = match self.rtt.srtt() {
            Some(_) => (self.rtt.min_rtt() / 4).clamp(ACK_DELAY_MIN, ACK_DELAY_MAX),
            None => ACK_DELAY_UNKNOWN,
        };
        AckDelay { pkts: ACK_PKTS, time }
    }

    /// The queue pair has failed: no acknowledgement is awaited any more.
    pub(super) fn stop(&mut self) {
        self.timers.stop();
        self.sent.forget();
        if let Some(encoder) = &mut self.encoder {
            encoder.abandon();
        }
        (self.loss_timer, self.probe, self.has_failed) = (None, None, true);
        self.credit.stop();
    }

    /// Drops the responses that have not left.
    pub(super) fn stop_responding(&mut self) {
        self.responses.clear();
        if let Some(encoder) = &mut self.encoder {
            encoder.abandon();
        }
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

/// The position in a block and the block's length in the longest header.
const BLOCK_BYTES: u32 = 8;
/// The least retransmission timeout. Hosts that share a core are away for as long as this all the
/// time, and a tail loss probe is sent long before.
const RTO_MIN: Dur = Dur::from_ms(1);
/// The timeout before a round trip is known, of a queue pair with an infinite timeout.
const DEFAULT_TIMEOUT: u8 = 14;
/// `RETRY_EXC_ERR` takes at least this many timeouts for each transmission: RC's waits of 1, 2, 4,
/// 4 ... come to about as much.
const TIMEOUTS_PER_RETRY: u64 = 3;
/// An acknowledgement costs about as much as a data packet; at one in 16 that is 6 %.
pub(super) const ACK_PKTS: u32 = 16;
/// An acknowledgement is delayed by at most a quarter of the smallest round trip, between these.
const ACK_DELAY_MIN: Dur = Dur::from_us(1);
const ACK_DELAY_MAX: Dur = Dur::from_ms(1);
/// The delay before a round trip is known: one that suits a local network.
const ACK_DELAY_UNKNOWN: Dur = Dur::from_us(20);
