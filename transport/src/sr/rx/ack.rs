//! ACK generation: when an ACK is due, and its fields other than the received packet numbers.

mod invariants;

use crate::sr::crossing::AckDelay;
use spanwire_base::{Dur, RxMeta, Time, u64_from};
use spanwire_loadbalance::Entropy;
use spanwire_wire::{AckReason, Ecn, IntRecords, IntStack, IpRepr, Packet, SrAckRepr, SrNak};

/// The receiver's counters of a stream, and the state of delayed and immediate ACKs.
#[derive(Debug)]
pub(in crate::sr) struct AckState {
    rx_pkts: u32,
    ce_pkts: u32,
    rx_bytes: u64,
    ce_bytes: u64,
    /// The last packet received, duplicate or not.
    newest: Newest,
    /// CE marks of the packets up to the newest: bit i is the newest PSN minus i.
    marks: u64,
    /// CE-marked packets among `unacked_pkts`.
    unacked_ce_pkts: u32,
    /// The echo of the newest packet's INT records; empty without any. Allocated when the first
    /// arrive.
    int: Vec<u8>,
    /// Packets received since the last ACK.
    unacked_pkts: u32,
    /// When a delayed ACK is due; none if every packet is acknowledged.
    delayed_until: Option<Time>,
    /// The reason of the ACK that is due now.
    due_reason: Option<AckReason>,
    last_ce: bool,
    /// The highest out-of-order packet with an AckReq, until the gap before it is filled.
    pending_ack_req: Option<u64>,
    nak: Option<SrNak>,
    /// The NAK is of one retransmitted response, and the connection continues.
    is_nak_once: bool,
    /// ACKs sent with a NAK that ends the connection.
    naks: u32,
    /// When the last ACK was sent.
    last_ack_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    psn: u32,
    path: u16,
    hop_limit: u8,
    echo_ps: u64,
    at: Time,
    /// It may have arrived earlier than `at` by so much.
    rx_delay: Dur,
    /// It was not accepted, because no receive request was posted for it.
    found_no_receive: bool,
}

/// The fields of a data packet outside of SR's header.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct Outer<'a> {
    /// Bytes of the IP packet.
    pub(in crate::sr) ip_bytes: u64,
    pub(in crate::sr) is_ce: bool,
    pub(in crate::sr) hop_limit: u8,
    pub(in crate::sr) ack_req: bool,
    /// The bytes after the IP packet.
    pub(in crate::sr) trailer: &'a [u8],
}

impl<'a> Outer<'a> {
    pub(in crate::sr) fn of(p: &Packet<'a>) -> Self {
        Self {
            ip_bytes: u64_from(outside_bytes(&p.ip) + p.payload_len()) + u64::from(p.bth.pad),
            is_ce: p.ip.ecn() == Ecn::Ce,
            hop_limit: p.ip.hop_limit(),
            ack_req: p.bth.ack_req,
            trailer: p.trailer,
        }
    }
}

impl AckState {
    pub(in crate::sr) fn new() -> Self {
        Self {
            rx_pkts: 0,
            ce_pkts: 0,
            rx_bytes: 0,
            ce_bytes: 0,
            newest: Newest::default(),
            marks: 0,
            unacked_ce_pkts: 0,
            int: Vec::new(),
            unacked_pkts: 0,
            delayed_until: None,
            due_reason: None,
            last_ce: false,
            pending_ack_req: None,
            nak: None,
            is_nak_once: false,
            naks: 0,
            last_ack_at: None,
        }
    }

    /// Counts a source or parity packet that is processed at `times.0` and arrived as `times.1`
    /// says, with this number, path and send time.
    ///
    /// A packet that opens or fills a gap, and a change of the CE mark, are acknowledged at once.
    /// If the packet took another path than the one before, a few are acknowledged together,
    /// because unequal path lengths cause gaps and a mark concerns one path only.
    #[inline(always)]
    pub(in crate::sr) fn on_data(
        &mut self,
        times: (Time, RxMeta),
        outer: &Outer<'_>,
        (psn, path, echo_ps): (u32, u16, u64),
        is_out_of_order: bool,
        delay: AckDelay,
    ) {
        let (now, arrival) = times;
        let &Outer { ip_bytes: bytes, is_ce, hop_limit, .. } = outer;
        self.rx_pkts = self.rx_pkts.wrapping_add(1);
        self.rx_bytes = self.rx_bytes.wrapping_add(bytes);
        if is_ce {
            self.ce_pkts = self.ce_pkts.wrapping_add(1);
            self.ce_bytes = self.ce_bytes.wrapping_add(bytes);
            self.unacked_ce_pkts += 1;
        }
        self.record_ce_mark(psn, is_ce);
        let ce_changed = std::mem::replace(&mut self.last_ce, is_ce) != is_ce;
        let is_same_path = path == self.newest.path;
        self.newest = Newest {
            psn,
            path,
            hop_limit,
            echo_ps,
            at: arrival.at,
            rx_delay: arrival.at.since(arrival.earliest),
            found_no_receive: false,
        };
        self.int.clear();
        if !outer.trailer.is_empty() {
            self.store_int(outer.trailer);
        }
        self.unacked_pkts += 1;
        self.delayed_until.get_or_insert(now + delay.time);
        if outer.ack_req {
            self.request_ack(AckReason::Requested);
        } else if (is_out_of_order || ce_changed)
            && (is_same_path || self.unacked_pkts >= MULTIPATH_ACK_PKTS)
        {
            self.request_ack(AckReason::Gap);
        } else if self.unacked_pkts >= delay.pkts {
            self.request_ack(AckReason::Count);
        }
    }

    /// Answers an out-of-order AckReq once the gap before it is filled.
    ///
    /// The packet `number` has arrived, and all data below `data_next`. The sender then gets an ACK
    /// of everything up to its AckReq.
    #[inline(always)]
    pub(in crate::sr) fn track_ack_req(&mut self, number: u64, requests_ack: bool, data_next: u64) {
        if requests_ack && number >= data_next {
            self.pending_ack_req = self.pending_ack_req.max(Some(number));
        } else if self.pending_ack_req.is_some_and(|pending_ack_req| pending_ack_req < data_next) {
            self.pending_ack_req = None;
            self.request_ack(AckReason::Requested);
        }
    }

    /// Reports that no receive request was posted for the packet that [`AckState::on_data`] counted
    /// last. The ACK needs a flag for that: SACK words may be cut, so a missing bit proves nothing.
    pub(in crate::sr) fn on_no_receive(&mut self) {
        self.newest.found_no_receive = true;
        // `fill_ack` sets the reason by the flag, since a later packet may be the newest by then.
        self.request_ack(AckReason::Limit);
    }

    /// Records the CE mark of a packet in the bitmap of recent packets.
    fn record_ce_mark(&mut self, psn: u32, is_ce: bool) {
        let ahead = psn.wrapping_sub(self.newest.psn).cast_signed();
        // The bitmap is relative to the newest packet, whose PSN may be lower than the last one's.
        self.marks = match ahead {
            0.. => self.marks.checked_shl(ahead.unsigned_abs()),
            _ => self.marks.checked_shr(ahead.unsigned_abs()),
        }
        .unwrap_or(0);
        self.marks = self.marks & !1 | u64::from(is_ce);
    }

    /// Stores the telemetry of the newest packet, if its trailer is an INT stack of version 1. The
    /// records of version 2 are for the receiver itself.
    #[inline(never)]
    fn store_int(&mut self, trailer: &[u8]) {
        let stack = IntStack::parse(trailer).filter(|stack| stack.credit().is_none());
        if let Some(stack) = stack.filter(|stack| !stack.is_empty()) {
            self.int.extend_from_slice(&stack.echo_header());
            self.int.extend_from_slice(stack.records());
        }
    }

    /// The echo of the newest packet's INT records.
    pub(in crate::sr) fn int(&self) -> IntRecords<'_> {
        IntRecords::parse(&self.int)
    }

    /// Makes an ACK due now. The first reason is reported.
    pub(in crate::sr) fn request_ack(&mut self, reason: AckReason) {
        self.due_reason.get_or_insert(reason);
    }

    /// Requests an ACK, at most one each `delay.time`.
    ///
    /// Duplicates and packets after a NAK cause such ACKs. An attacker can forge them at any
    /// rate, which must not cause as many ACKs.
    pub(in crate::sr) fn request_ack_limited(&mut self, now: Time, delay: AckDelay) {
        let earliest = self.last_ack_at.map_or(now, |at| at + delay.time);
        if earliest <= now {
            self.request_ack(AckReason::Gap);
        } else {
            self.delayed_until = Some(self.delayed_until.map_or(earliest, |due| due.min(earliest)));
        }
    }

    /// Rejects the request of this packet. Every ACK carries the NAK from now on.
    pub(in crate::sr) fn nak(&mut self, nak: SrNak) {
        (self.nak, self.is_nak_once) = (Some(nak), false);
        self.due_reason = Some(AckReason::Nak);
    }

    /// Rejects the repeated response to the request of this packet. One ACK carries the NAK.
    pub(in crate::sr) fn nak_once(&mut self, nak: SrNak) {
        if self.nak.is_none() {
            (self.nak, self.is_nak_once) = (Some(nak), true);
            self.due_reason = Some(AckReason::Nak);
        }
    }

    /// A NAK was sent, and may be repeated for a peer that continues to send.
    ///
    /// The number of repetitions is limited: the NAK of a forged packet matches no request of
    /// the peer, which then fails only by its own retry limit.
    pub(in crate::sr) fn may_repeat_nak(&self) -> bool {
        self.has_nak() && self.naks < NAKS_MAX
    }

    fn has_nak(&self) -> bool {
        self.nak.is_some() && !self.is_nak_once
    }

    /// Makes a delayed ACK due if its time has passed.
    pub(in crate::sr) fn handle_timeout(&mut self, now: Time) {
        if self.delayed_until.is_some_and(|at| at <= now) {
            self.delayed_until = None;
            self.request_ack(AckReason::Time);
        }
    }

    /// An ACK is due now.
    pub(in crate::sr) fn is_due(&self) -> bool {
        self.due_reason.is_some()
    }

    /// When the delayed ACK is due; none if an ACK is due now.
    #[inline]
    pub(in crate::sr) fn next(&self) -> Option<Time> {
        self.delayed_until.filter(|_| self.due_reason.is_none())
    }

    /// Fills the fields of an ACK, and resets the state of delayed ACKs.
    pub(in crate::sr) fn fill_ack(&mut self, now: Time, ack: &mut SrAckRepr<'_>) {
        let held = now.since(self.newest.at).as_ns();
        let reason = self.due_reason.take().unwrap_or(AckReason::Time);
        ack.reason = if self.newest.found_no_receive { AckReason::NoReceive } else { reason };
        ack.newest = self.newest.psn;
        ack.path = self.newest.path;
        ack.hop_limit = self.newest.hop_limit;
        ack.echo_ps = self.newest.echo_ps;
        ack.ack_delay_ns = u32::try_from(held).unwrap_or(u32::MAX);
        let rx_delay_ns = self.newest.rx_delay.as_ns();
        ack.rx_delay_ns = u32::try_from(rx_delay_ns).unwrap_or(u32::MAX);
        (ack.rx_pkts, ack.ce_pkts) = (self.rx_pkts, self.ce_pkts);
        (ack.rx_bytes, ack.ce_bytes) = (self.rx_bytes, self.ce_bytes);
        let is_mixed = self.unacked_ce_pkts > 0 && self.unacked_ce_pkts < self.unacked_pkts;
        ack.marks = Some(self.marks).filter(|_| is_mixed);
        ack.nak = self.nak;
        self.naks += u32::from(self.has_nak());
        if std::mem::take(&mut self.is_nak_once) {
            self.nak = None;
        }
        (self.unacked_pkts, self.unacked_ce_pkts) = (0, 0);
        (self.delayed_until, self.last_ack_at) = (None, Some(now));
    }

    /// The entropy of the newest packet; 0 if it is not a valid one.
    pub(in crate::sr) fn echoed_path(&self) -> u16 {
        let path = self.newest.path;
        if Entropy::from_port(path).port() == path { path } else { 0 }
    }

    /// A packet has been received, so an ACK has content.
    pub(in crate::sr) fn has_received(&self) -> bool {
        self.rx_pkts > 0
    }
}

/// ACKs that carry a NAK. If a path loses half of its packets, the probability that all of them
/// are lost is 2^-64.
const NAKS_MAX: u32 = 64;
/// Packets of different paths that one immediate ACK acknowledges: a quarter of a full delayed ACK.
const MULTIPATH_ACK_PKTS: u32 = 4;

/// Bytes of an IP packet outside SR's header and payload: IP, UDP, BTH and ICRC.
pub(in crate::sr) fn outside_bytes(ip: &IpRepr) -> usize {
    ip.header_len() + 8 + 12 + 4
}
