//! When to acknowledge, and what the acknowledgement says beside what has arrived.

mod invariants;

use crate::sr::crossing::AckDelay;
use spanwire_base::{Time, u64_from};
use spanwire_loadbalance::Entropy;
use spanwire_wire::{
    AckReason, Ecn, INT_HOP_LEN, IntStack, IpRepr, Packet, Refusal, SrAckRepr, SrDataRepr,
};

/// The receiver's account of a stream: totals since it began, and what of them the sender has not
/// been told.
#[derive(Debug)]
pub(in crate::sr) struct AckState {
    rx_pkts: u32,
    ce_pkts: u32,
    rx_bytes: u64,
    ce_bytes: u64,
    /// The last packet that came, duplicate or not.
    newest: Newest,
    /// Which of the packets up to the newest came marked: bit i is its PSN less i.
    marks: u64,
    /// Of the packets that are not told of, those that were marked.
    unacked_ce_pkts: u32,
    /// What switches have added to it: the records of at most
    /// [`INT_MAX_HOPS`](spanwire_wire::INT_MAX_HOPS), and no memory before the first.
    int: Vec<[u8; INT_HOP_LEN]>,
    /// Packets since the last acknowledgement.
    unacked_pkts: u32,
    /// When an acknowledgement is due, while something is untold.
    delayed_until: Option<Time>,
    /// One is due now.
    due_reason: Option<AckReason>,
    last_ce: bool,
    /// The packet with the highest number that asked, while what came before it is missing.
    pending_ack_req: Option<u64>,
    refusal: Option<Refusal>,
    /// The refusal is of one answer, and the connection goes on.
    is_refused_once: bool,
    /// Acknowledgements that have carried a refusal which ends the connection.
    refusals: u32,
    /// When the last acknowledgement left.
    last_ack_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    psn: u32,
    path: u16,
    hop_limit: u8,
    echo_ps: u64,
    at: Time,
    /// It was not taken, because it found no receive request.
    found_no_receive: bool,
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
            refusal: None,
            is_refused_once: false,
            refusals: 0,
            last_ack_at: None,
        }
    }

    /// Counts a data packet that arrived at `now`. `is_out_of_order` if it leaves or closes a gap.
    /// Between packets of different paths a gap only shows that the paths differ in length, and a
    /// mark is of one path: such packets are acknowledged a few at a time.
    #[inline]
    pub(in crate::sr) fn on_data(
        &mut self,
        now: Time,
        p: &Packet<'_>,
        header: &SrDataRepr,
        is_out_of_order: bool,
        delay: AckDelay,
    ) {
        let bytes = ip_bytes(p);
        let is_ce = p.ip.ecn() == Ecn::Ce;
        self.rx_pkts = self.rx_pkts.wrapping_add(1);
        self.rx_bytes = self.rx_bytes.wrapping_add(bytes);
        if is_ce {
            self.ce_pkts = self.ce_pkts.wrapping_add(1);
            self.ce_bytes = self.ce_bytes.wrapping_add(bytes);
            self.unacked_ce_pkts += 1;
        }
        self.record_ce_mark(header.psn, is_ce);
        let ce_changed = std::mem::replace(&mut self.last_ce, is_ce) != is_ce;
        let (psn, path, echo_ps) = (header.psn, header.path, header.sent_ps);
        let is_same_path = path == self.newest.path;
        let hop_limit = p.ip.hop_limit();
        self.newest = Newest { psn, path, hop_limit, echo_ps, at: now, found_no_receive: false };
        self.int.clear();
        if !p.trailer.is_empty() {
            self.store_int(p.trailer);
        }
        self.unacked_pkts += 1;
        self.delayed_until.get_or_insert(now + delay.time);
        if p.bth.ack_req {
            self.request_ack(AckReason::Asked);
        } else if (is_out_of_order || ce_changed)
            && (is_same_path || self.unacked_pkts >= MULTIPATH_ACK_PKTS)
        {
            self.request_ack(AckReason::Gap);
        } else if self.unacked_pkts >= delay.pkts {
            self.request_ack(AckReason::Count);
        }
    }

    /// The packet `number` came and all below `due` is here. Who asked behind a gap, and waits for
    /// an answer that has all of it, gets one when the gap closes.
    #[inline]
    pub(in crate::sr) fn track_ack_req(&mut self, number: u64, requests_ack: bool, data_next: u64) {
        if requests_ack && number >= data_next {
            self.pending_ack_req = self.pending_ack_req.max(Some(number));
        } else if self.pending_ack_req.is_some_and(|pending_ack_req| pending_ack_req < data_next) {
            self.pending_ack_req = None;
            self.request_ack(AckReason::Asked);
        }
    }

    /// The packet that [`AckState::on_data`] counted last found no receive request. The
    /// acknowledgement says so explicitly: SACK words may be cut, and their absence proves nothing.
    pub(in crate::sr) fn on_no_receive(&mut self) {
        self.newest.found_no_receive = true;
        // The flag alone decides the reason: a later packet may be the newest by then.
        self.request_ack(AckReason::Limit);
    }

    /// Remembers whether a packet was marked, beside the others near it.
    fn record_ce_mark(&mut self, psn: u32, is_ce: bool) {
        let ahead = psn.wrapping_sub(self.newest.psn).cast_signed();
        // Bits move with the newest, whichever way that goes.
        self.marks = match ahead {
            0.. => self.marks.checked_shl(ahead.unsigned_abs()),
            _ => self.marks.checked_shr(ahead.unsigned_abs()),
        }
        .unwrap_or(0);
        self.marks = self.marks & !1 | u64::from(is_ce);
    }

    /// Keeps the telemetry of the newest packet, if that is what lies behind it.
    #[inline(never)]
    fn store_int(&mut self, trailer: &[u8]) {
        if let Some(stack) = IntStack::parse(trailer) {
            self.int.extend_from_slice(stack.records());
        }
    }

    /// What switches have added to the newest packet.
    pub(in crate::sr) fn int(&self) -> &[[u8; INT_HOP_LEN]] {
        &self.int
    }

    /// An acknowledgement is due now.
    pub(in crate::sr) fn request_ack(&mut self, reason: AckReason) {
        self.due_reason.get_or_insert(reason);
    }

    /// Requests an acknowledgement, at most one each `delay.time`: a forger can send the packets
    /// that call it as often as it likes.
    pub(in crate::sr) fn request_ack_limited(&mut self, now: Time, delay: AckDelay) {
        let earliest = self.last_ack_at.map_or(now, |at| at + delay.time);
        if earliest <= now {
            self.request_ack(AckReason::Gap);
        } else {
            self.delayed_until = Some(self.delayed_until.map_or(earliest, |due| due.min(earliest)));
        }
    }

    /// The request of this packet will not be carried out; every acknowledgement says so from now.
    pub(in crate::sr) fn refuse(&mut self, refusal: Refusal) {
        (self.refusal, self.is_refused_once) = (Some(refusal), false);
        self.due_reason = Some(AckReason::Refused);
    }

    /// The answer to the request of this packet can not be given again; one acknowledgement says
    /// so.
    pub(in crate::sr) fn refuse_once(&mut self, refusal: Refusal) {
        if self.refusal.is_none() {
            (self.refusal, self.is_refused_once) = (Some(refusal), true);
            self.due_reason = Some(AckReason::Refused);
        }
    }

    /// A refusal was sent, and may be repeated for a peer that goes on sending. The number of
    /// repetitions is limited: a refusal of a forged packet matches no request of the peer, which
    /// then fails by its own retry limit only.
    pub(in crate::sr) fn may_repeat_refusal(&self) -> bool {
        self.has_refused() && self.refusals < REFUSALS_MAX
    }

    fn has_refused(&self) -> bool {
        self.refusal.is_some() && !self.is_refused_once
    }

    /// What has waited long enough is due now.
    pub(in crate::sr) fn handle_timeout(&mut self, now: Time) {
        if self.delayed_until.is_some_and(|at| at <= now) {
            self.delayed_until = None;
            self.request_ack(AckReason::Time);
        }
    }

    /// One is due now.
    pub(in crate::sr) fn is_due(&self) -> bool {
        self.due_reason.is_some()
    }

    /// When one will be due, if none is now.
    #[inline]
    pub(in crate::sr) fn next(&self) -> Option<Time> {
        self.delayed_until.filter(|_| self.due_reason.is_none())
    }

    /// Writes what it knows into an acknowledgement; the sender is told now.
    pub(in crate::sr) fn fill_ack(&mut self, now: Time, ack: &mut SrAckRepr<'_>) {
        let held = now.since(self.newest.at).as_ns();
        let reason = self.due_reason.take().unwrap_or(AckReason::Time);
        ack.reason = if self.newest.found_no_receive { AckReason::NoReceive } else { reason };
        ack.newest = self.newest.psn;
        ack.path = self.newest.path;
        ack.hop_limit = self.newest.hop_limit;
        ack.echo_ps = self.newest.echo_ps;
        ack.hold_ns = u32::try_from(held).unwrap_or(u32::MAX);
        (ack.rx_pkts, ack.ce_pkts) = (self.rx_pkts, self.ce_pkts);
        (ack.rx_bytes, ack.ce_bytes) = (self.rx_bytes, self.ce_bytes);
        let is_mixed = self.unacked_ce_pkts > 0 && self.unacked_ce_pkts < self.unacked_pkts;
        ack.marks = Some(self.marks).filter(|_| is_mixed);
        ack.refusal = self.refusal;
        self.refusals += u32::from(self.has_refused());
        if std::mem::take(&mut self.is_refused_once) {
            self.refusal = None;
        }
        (self.unacked_pkts, self.unacked_ce_pkts) = (0, 0);
        (self.delayed_until, self.last_ack_at) = (None, Some(now));
    }

    /// The path of the packet that came last; 0 if its sender chose none that there is.
    pub(in crate::sr) fn echoed_path(&self) -> u16 {
        let path = self.newest.path;
        if Entropy::from_port(path).port() == path { path } else { 0 }
    }

    /// Something has come, so there is somebody to tell.
    pub(in crate::sr) fn has_received(&self) -> bool {
        self.rx_pkts > 0
    }
}

/// Acknowledgements that carry a refusal. On a path that loses half of its packets, all of them are
/// lost once in 2^64.
const REFUSALS_MAX: u32 = 64;
/// Packets of several paths in an acknowledgement: a quarter of a full one.
const MULTIPATH_ACK_PKTS: u32 = 4;

/// Bytes of the IP packet.
pub(in crate::sr) fn ip_bytes(p: &Packet<'_>) -> u64 {
    u64_from(outside_bytes(&p.ip) + p.payload_len()) + u64::from(p.bth.pad)
}

/// Bytes of an IP packet outside SR's header and payload: IP, UDP, BTH and ICRC.
pub(in crate::sr) fn outside_bytes(ip: &IpRepr) -> usize {
    ip.header_len() + 8 + 12 + 4
}
