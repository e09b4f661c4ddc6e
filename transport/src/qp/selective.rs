//! The selective half of a queue pair, for SR (selective repeat): each end numbers its
//! packets in one stream, tells what has arrived of the other's, and sends again only what is lost
//! (docs/PROTOCOL.md, "SR").
//!
//! What is sent is decided here; what comes is in `selective/data.rs` and `selective/acked.rs`, how
//! a packet is written in `selective/write.rs`.

mod acked;
mod answers;
mod choose;
mod coder;
mod credit;
mod data;
mod feedback;
mod inbound;
mod pace;
mod paths;
mod rebuild;
mod recover;
mod sender;
mod write;

use crate::attr::{Mtu, QpAttr, QpCaps};
use crate::config::{Config, MIN_REORDER_PKTS};
use crate::counters::Counters;
use crate::qp::flow::Flow;
use crate::qp::loss::ack_timeout;
use crate::qp::state::{QpState, SEGMENT_BYTES};
use crate::stream::received::{Received, first_number};
use crate::stream::rtt::Rtt;
use crate::stream::sent::Sent;
use crate::stream::timers::{Silence, Timers};
use crate::timer::earlier;
use answers::{Answers, ReadPart};
use coder::Coder;
use credit::Credit;
use feedback::{Feedback, Lag};
use inbound::Inbound;
use paths::Paths;
use rebuild::Rebuild;
use sender::{Segment, Sender};
use spanwire_base::{Dur, Time, u32_from, u64_from, usize_from};
use spanwire_cc::LossKind;
use spanwire_loadbalance as lb;
use spanwire_wire::{INT_HEADER_LEN, INT_HOP_LEN, Psn, SACK_WORDS_MAX, SackWord, SrAckRepr};
use std::net::{IpAddr, Ipv4Addr};

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Selective {
    pub(super) sender: Sender,
    /// Our stream: what was sent.
    sent: Sent<Part>,
    rtt: Rtt,
    timers: Timers,
    /// When packets in flight may have to be taken for lost.
    look_at: Option<Time>,
    /// What must have arrived for the recovery that runs to be over.
    recovery: Option<u64>,
    /// A packet that leaves before all others, whatever the windows say.
    probe: Option<Probe>,
    /// The next packet waits for the pacer, as of the last choice.
    is_paced: bool,
    credit: Credit,
    /// The peer takes no packet at or above this; none before it has said.
    psn_limit: Option<u64>,
    /// How far beyond the lowest missing one it is until the peer has said.
    first_window_pkts: u32,
    /// The peer's stream: what has arrived.
    received: Received,
    feedback: Feedback,
    inbound: Inbound,
    answers: Answers,
    /// What the peer was last told of our receive requests.
    told_receive_limit: u32,
    /// Parts of answers sent since a request last had its chance.
    answers_in_a_row: u32,
    max_rd_atomic: u32,
    segment_bytes: u32,
    /// Switches whose telemetry packets ask for; 0 if they do not.
    int_hops: u8,
    /// What our packets leave with.
    hop_limit: u8,
    /// Bytes that the peer had received, and received marked, when it last said.
    counted: (u64, u64),
    has_failed: bool,
    /// What cuts our data into blocks, if anything does.
    coder: Option<Box<Coder>>,
    /// Blocks of the peer's.
    rebuild: Box<Rebuild>,
    /// Which way our packets take, if anybody chooses.
    paths: Option<Box<Paths>>,
    /// Bytes of the peer's that were not answered, until we are told to send: who told us its
    /// address may not be who has it, and would get no more than was sent in its name.
    unproven: Option<u64>,
}

/// What a packet of our stream carries: enough to write it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Request(Segment),
    Read(ReadPart),
    Atomic {
        answers: u32,
        original: u64,
    },
    /// Parity of a block. Its bytes are gone once it has left.
    Parity,
}

/// A packet that asks the peer for a sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// Nothing was heard: the newest one.
    Tail,
    /// The next one that waits for a receive request.
    Receive,
}

impl Selective {
    /// Begins to receive. `attr` is what the queue pair was given so far.
    pub(super) fn new(caps: &QpCaps, attr: &QpAttr, config: &Config) -> Self {
        let mtu = attr.path_mtu.map_or(0, Mtu::bytes);
        Self {
            sender: Sender::new(caps.max_send_wr, caps.max_send_sge, caps.max_inline_data),
            sent: Sent::new(0),
            rtt: Rtt::default(),
            timers: timers(attr),
            look_at: None,
            recovery: None,
            probe: None,
            is_paced: false,
            credit: Credit::new(attr),
            psn_limit: None,
            first_window_pkts: attr.peer_reorder_pkts.unwrap_or(MIN_REORDER_PKTS),
            told_receive_limit: 0,
            received: Received::new(
                first_number(attr.rq_psn.unwrap_or_default()),
                config.reorder_pkts,
            ),
            feedback: Feedback::new(),
            inbound: Inbound::new(attr.max_dest_rd_atomic.unwrap_or(0)),
            answers: Answers::default(),
            answers_in_a_row: 0,
            max_rd_atomic: 0,
            segment_bytes: attr.segment_bytes.unwrap_or(mtu),
            int_hops: 0,
            hop_limit: hop_limit(attr),
            counted: (0, 0),
            has_failed: false,
            coder: None,
            rebuild: Box::new(Rebuild::new(
                attr.av.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |av| av.dst_ip),
                config.block_bytes_qp,
            )),
            paths: None,
            unproven: Some(0),
        }
    }

    /// Begins to send.
    pub(super) fn start(&mut self, attr: &QpAttr) {
        let first = first_number(attr.sq_psn.unwrap_or_default());
        self.sent = Sent::new(first);
        if self.paths.is_some() {
            self.sent.watch_paths();
        }
        self.unproven = None;
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
        self.inbound.set_rd_atomic_max(attr.max_dest_rd_atomic.unwrap_or(0));
    }

    /// Packets ask for the telemetry of so many switches from now on. Returns the payload of a full
    /// packet, which is shorter than `full_bytes` by the room that it takes, and a block's header
    /// if data are coded.
    pub(super) fn ask_for_int(&mut self, hops: u8, full_bytes: u32) -> u32 {
        let room = match hops {
            0 => 0,
            n => u32_from(INT_HEADER_LEN + usize::from(n) * INT_HOP_LEN),
        };
        let room = room + if self.coder.is_some() { BLOCK_BYTES } else { 0 };
        self.int_hops = hops;
        let least = full_bytes.min(*SEGMENT_BYTES.start());
        self.segment_bytes = full_bytes.saturating_sub(room).max(least);
        self.segment_bytes
    }

    /// Does what is due at `now`: `sends` when it is more than an acknowledgement. True when the
    /// peer is given up.
    #[inline(never)]
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        sends: bool,
        counters: &mut Counters,
        mut flow: Option<&mut Flow>,
    ) -> bool {
        self.feedback.handle_timeout(now);
        if !sends {
            return false;
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.find_lost(now, counters, flow.as_deref_mut());
            self.tell_paths(now, None, lb::LossKind::Overdue);
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
        if self.has_nothing_out() || self.probe.is_some() || is_paced {
            self.timers.restart(now);
            return false;
        }
        match self.timers.fire(now, &self.rtt, self.sent.oldest_at()) {
            Silence::Nothing => {}
            // A packet that waits for the pacer elicits an ACK as a probe does, and a probe would
            // delay it. The retransmission timeout of packets in flight is not affected.
            Silence::Probe if self.is_paced => self.timers.defer_probe(),
            Silence::Probe => {
                counters.tail_loss_probes += 1;
                self.probe = Some(Probe::Tail);
            }
            Silence::Timeout => {
                counters.local_ack_timeout_err += 1;
                if let Some(flow) = flow {
                    let (kind, lost) =
                        (LossKind::Timeout(self.timers.expired()), self.sent.in_flight_bytes());
                    flow.on_loss(now, kind, lost, 0);
                }
                let before = self.sent.counters().presumed_lost;
                self.sent.lose_all();
                counters.presumed_lost_packets += self.sent.counters().presumed_lost - before;
                self.tell_paths(now, None, lb::LossKind::Timeout);
                if !self.sent.has_lost() {
                    self.probe = Some(Probe::Tail);
                }
            }
            Silence::Exhausted if self.owes_only_parity() => self.abandon_parity(),
            Silence::Exhausted => return true,
        }
        false
    }

    /// When [`Selective::handle_timeout`] has something to do, or an acknowledgement is due.
    #[inline(never)]
    pub(super) fn next_deadline(&self, state: QpState) -> Option<Time> {
        let told = earlier(self.feedback.next(), self.rebuild.next_deadline());
        let told = told.filter(|_| state.receives());
        if !state.sends() {
            return told;
        }
        let timers = self.timers.next(&self.rtt, self.sent.oldest_at());
        earlier(earlier(told, self.look_at), earlier(self.credit.next(), timers))
    }

    /// A packet of the peer's with so many bytes of IP came.
    pub(super) fn on_bytes(&mut self, bytes: u64) {
        if let Some(unanswered) = &mut self.unproven {
            *unanswered = unanswered.saturating_add(bytes);
        }
    }

    /// It has been told to send: data may leave, and what it says may be of any length.
    fn is_proven(&self) -> bool {
        self.unproven.is_none()
    }

    /// Bitmap words that an acknowledgement may have with `outside` bytes of other headers; `None`
    /// when not even one without may leave yet.
    fn words_allowed(&self, outside: usize) -> Option<usize> {
        let Some(bytes) = self.unproven else { return Some(SACK_WORDS_MAX) };
        let fixed = u64_from(LINK_BYTES + outside + SrAckRepr::WORDLESS_LEN);
        let words = bytes.checked_sub(fixed)? / u64_from(SackWord::LEN);
        Some(usize_from(words.min(u64_from(SACK_WORDS_MAX))))
    }

    /// An acknowledgement of so many bytes of IP leaves.
    fn on_told(&mut self, bytes: usize) {
        if let Some(unanswered) = &mut self.unproven {
            *unanswered = unanswered.saturating_sub(u64_from(LINK_BYTES + bytes));
        }
    }

    /// It waits for the peer, so a timer must run.
    pub(super) fn waits_for_peer(&self) -> bool {
        !self.sent.is_empty() || self.sender.awaits_response()
    }

    /// Packets in flight. The last answers of a failed queue pair are nobody's concern.
    pub(super) fn in_flight_pkts(&self) -> u64 {
        if self.has_failed { 0 } else { self.sent.in_flight_pkts() }
    }

    /// Everything sent was lost, or has arrived, and something is to be sent again: it is our turn,
    /// not the peer's. What is lost and left to parity is the peer's.
    pub(super) fn has_nothing_out(&self) -> bool {
        !self.sent.is_empty() && self.sent.in_flight_pkts() == 0 && self.sent.has_lost()
    }

    pub(super) fn srtt(&self) -> Option<Dur> {
        self.rtt.smoothed()
    }

    /// The PSN that comes next from the peer, and the one that is sent next, as the BTH has them:
    /// their lower 24 bits.
    pub(super) fn psns(&self) -> (Psn, Psn) {
        let low = |number: u64| Psn::new(crate::stream::received::wrap(number) & Psn::MASK);
        (low(self.received.next()), low(self.sent.next()))
    }

    /// READs and atomics of the peer that are here.
    pub(super) fn answering(&self) -> usize {
        self.inbound.rd_atomic_waiting() + self.answers.len()
    }

    /// The queue pair has failed: nothing is waited for any more.
    pub(super) fn stop(&mut self) {
        self.timers.stop();
        self.sent.forget();
        if let Some(coder) = &mut self.coder {
            coder.abandon();
        }
        (self.look_at, self.probe, self.has_failed) = (None, None, true);
        self.credit.stop();
    }

    pub(super) fn stop_answering(&mut self) {
        self.answers.clear();
        if let Some(coder) = &mut self.coder {
            coder.abandon();
        }
    }

    /// How far acknowledgements may lag behind.
    fn lag(&self) -> Lag {
        let time = match self.rtt.smoothed() {
            Some(_) => (self.rtt.smallest() / 4).clamp(LAG_MIN, LAG_MAX),
            None => LAG_UNKNOWN,
        };
        Lag { pkts: ACK_PKTS, time }
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
            let unknown = ack_timeout(n);
            let patience = unknown * (PATIENCE * (u64::from(retry_cnt) + 1));
            Timers::new(RTO_MIN.min(unknown), unknown, retry_cnt, patience)
        }
    }
}

/// What a place in a block and its length take in the longest header.
const BLOCK_BYTES: u32 = 8;
/// The header of the link, counted for what leaves and not for what came: neither many small
/// answers to few large packets nor a large one to many small packets is more than came.
const LINK_BYTES: usize = 14;
/// The least retransmission timeout: on hosts that share a core, a peer is away for as long as this
/// all the time, and a tail is probed for long before.
const RTO_MIN: Dur = Dur::from_ms(1);
/// The timeout before a round trip is known, of a queue pair that waits for ever.
const DEFAULT_TIMEOUT: u8 = 14;
/// The verdict takes at least this many timeouts for each transmission: RC's waits of 1, 2, 4, 4
/// ... come to about as much.
const PATIENCE: u64 = 3;
/// An acknowledgement costs about as much as a data packet; at one in 16 that is 6 %.
const ACK_PKTS: u32 = 16;
/// A quarter of the smallest round trip, between these, is how long an acknowledgement may wait.
const LAG_MIN: Dur = Dur::from_us(1);
const LAG_MAX: Dur = Dur::from_ms(1);
/// Before a round trip is known: that of a host's own network.
const LAG_UNKNOWN: Dur = Dur::from_us(20);
