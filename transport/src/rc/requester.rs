//! The requester: the send queue and the choice of the next request packet.

mod chunks;
mod invariants;
pub(super) mod middle;

use self::chunks::ReadChunks;
use super::request::Request;
use super::segment::{Position, Segment};
use crate::attr::Mtu;
use crate::qp::wq::{WorkQueue, Wqe};
use crate::verbs::WorkRequest;
use spanwire_wire::Psn;
use std::collections::VecDeque;

/// The send queue, and how much of it is sent and acknowledged.
///
/// PSNs are unwrapped: the first packet of the queue pair has number 0, and numbers never wrap. The
/// 24 bits of the wire are converted by [`Requester::psn`] and [`Requester::unwrap`]. Always
/// `snd_una <= snd_nxt <= snd_max <= snd_end`.
#[derive(Debug)]
pub(crate) struct Requester {
    sq: WorkQueue<Request>,
    /// The PSN on the wire of number 0.
    first_psn: Psn,
    /// Oldest number not acknowledged.
    snd_una: u64,
    /// Next number to send. A loss moves it back.
    snd_nxt: u64,
    /// One past the highest number ever sent.
    snd_max: u64,
    /// One past the last number of the last request posted.
    snd_end: u64,
    /// Index in `sq` of the request that holds `snd_nxt`; `sq.len()` when all is sent.
    current: usize,
    /// READ and atomic requests sent whose responses are not complete, oldest first.
    rd_atomic_out: VecDeque<RdAtomicOut>,
    chunks: ReadChunks,
    /// First number of every READ and atomic in `sq`, oldest first.
    rd_atomic_starts: VecDeque<u64>,
    /// One past the last packet sent with AckReq.
    ack_req_end: u64,
    /// The next packet must have AckReq.
    force_ack_req: bool,
}

#[derive(Clone, Copy, Debug)]
struct RdAtomicOut {
    first: u64,
    pkts: u64,
}

/// The limits on the next packet: windows and attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Space in the queue pair's window, in packets.
    pub(crate) qp_pkts: u32,
    /// Space in the endpoint's window, in packets.
    pub(crate) endpoint_pkts: u32,
    /// Packets without AckReq that the endpoint may still send.
    pub(crate) no_ack_req_pkts: u32,
    pub(crate) mtu: Mtu,
    pub(crate) max_rd_atomic: u8,
    pub(crate) read_chunk_pkts: u32,
    pub(crate) ack_req_interval_pkts: u32,
    /// A request that was never sent may begin; false while the send queue is drained.
    pub(crate) new_requests: bool,
}

/// Outcome of [`Requester::next`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// The next packet.
    Segment(Segment),
    /// Everything posted has been sent.
    Idle,
    /// The next packet waits for a response: `max_rd_atomic` or a fence applies.
    WaitsForPeer,
    /// The queue pair's window is full.
    WaitsForWindow,
    /// The endpoint's window is full.
    WaitsForEndpoint,
}

/// The position of a PSN from the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwrapped {
    /// Before `snd_una`.
    Stale,
    /// Sent and not acknowledged.
    Outstanding(u64),
    /// At or beyond `snd_max`.
    BeyondSent,
}

impl Requester {
    pub(crate) fn new(max_wr: u32, max_sge: u32, max_inline: u32) -> Self {
        Self {
            sq: WorkQueue::new(max_wr, max_sge, max_inline),
            first_psn: Psn::new(0),
            snd_una: 0,
            snd_nxt: 0,
            snd_max: 0,
            snd_end: 0,
            current: 0,
            rd_atomic_out: VecDeque::new(),
            chunks: ReadChunks::default(),
            rd_atomic_starts: VecDeque::with_capacity(max_wr as usize),
            ack_req_end: 0,
            force_ack_req: false,
        }
    }

    /// Resets the requester; `psn` is the first PSN.
    pub(crate) fn start(&mut self, psn: Psn, max_rd_atomic: u8) {
        self.reset();
        self.first_psn = psn;
        self.rd_atomic_out.reserve(max_rd_atomic.into());
    }

    /// Drops everything posted.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        self.rd_atomic_out.clear();
        self.chunks.clear();
        self.rd_atomic_starts.clear();
        (self.snd_una, self.snd_nxt, self.snd_max, self.snd_end) = (0, 0, 0, 0);
        (self.current, self.ack_req_end, self.force_ack_req) = (0, 0, false);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.sq.is_full()
    }

    /// Queues a checked work request of `len` bytes.
    pub(crate) fn post(&mut self, wr: &WorkRequest<'_>, len: u32, mtu: Mtu) {
        let pkts = u64::from(len.div_ceil(mtu.bytes()).max(1));
        let first = self.snd_end;
        let request = Request { wqe: Wqe::new(wr, len), first, pkts };
        self.sq.push(request, wr.sges, wr.inline.unwrap_or_default());
        if wr.op.is_rd_atomic() {
            self.rd_atomic_starts.push_back(first);
        }
        self.snd_end += pkts;
    }

    /// Everything posted has been sent.
    #[inline]
    pub(crate) fn has_sent_all(&self) -> bool {
        self.current >= self.sq.len()
    }

    /// The description of the next packet, if one may leave.
    #[inline]
    pub(crate) fn next(&self, may: &Allowance) -> Next {
        let Some(request) = self.sq.at(self.current) else {
            return Next::Idle;
        };
        let starts = self.snd_nxt == request.first;
        if starts && !may.new_requests && self.snd_nxt >= self.snd_max {
            return Next::Idle;
        }
        if starts && request.wqe.fence && !self.rd_atomic_out.is_empty() {
            return Next::WaitsForPeer;
        }
        let pkts = match request.wqe.op.is_rd_atomic() {
            true if self.rd_atomic_out.len() >= usize::from(may.max_rd_atomic) => {
                return Next::WaitsForPeer;
            }
            true if request.wqe.op.is_read() => {
                self.chunks.pkts(self.snd_nxt, request.end(), may.read_chunk_pkts.into())
            }
            _ => 1,
        };
        // After a timeout the window is one packet; a chunk of a READ may leave all the same.
        let alone = self.in_flight_pkts() == 0;
        let mut needs_ack_req = self.force_ack_req;
        if u64::from(may.qp_pkts) < pkts && !alone {
            if self.expects_ack() {
                return Next::WaitsForWindow;
            }
            needs_ack_req = true;
        }
        if u64::from(may.endpoint_pkts) < pkts {
            return Next::WaitsForEndpoint;
        }
        let pkts = u32::try_from(pkts).expect("a chunk is at most read_chunk_pkts, a u32");
        let end = self.snd_nxt + u64::from(pkts);
        let ack_req = end == self.snd_end
            // No packet follows that could have AckReq in its place.
            || (!may.new_requests && end == request.end())
            || needs_ack_req
            || self.no_ack_req_pkts() + 1 >= may.ack_req_interval_pkts.into()
            || may.no_ack_req_pkts == 0;
        let at = Position {
            wqe: self.current,
            number: self.snd_nxt,
            psn: self.psn(self.snd_nxt),
            pkts,
            ack_req,
            is_retransmission: self.snd_nxt < self.snd_max,
        };
        Next::Segment(Segment::new(request, &at, may.mtu))
    }

    /// Advances past `segment`, the outcome of [`Requester::next`], once it was sent.
    #[inline]
    pub(crate) fn advance(&mut self, segment: &Segment) {
        let pkts = u64::from(segment.pkts);
        if segment.is_rd_atomic() {
            self.rd_atomic_out.push_back(RdAtomicOut { first: self.snd_nxt, pkts });
        }
        self.snd_nxt += pkts;
        if segment.is_read() {
            self.chunks.on_sent(self.snd_nxt);
        }
        self.snd_max = self.snd_max.max(self.snd_nxt);
        if segment.ack_req {
            (self.ack_req_end, self.force_ack_req) = (self.snd_nxt, false);
        }
        if self.sq.at(self.current).is_some_and(|w| w.end() <= self.snd_nxt) {
            self.current += 1;
        }
    }

    /// Marks everything before `upto` as acknowledged. Call [`Requester::pop_acked`] next.
    pub(crate) fn acknowledge(&mut self, upto: u64) {
        assert!(upto <= self.snd_max, "an acknowledgement is checked against what was sent");
        self.snd_una = self.snd_una.max(upto);
        while self.rd_atomic_out.front().is_some_and(|r| r.first + r.pkts <= self.snd_una) {
            self.rd_atomic_out.pop_front();
        }
        self.chunks.acknowledge(self.snd_una);
        if self.snd_nxt < self.snd_una {
            // The ACK is of packets sent before the rewind; they need no retransmission.
            self.seek(self.snd_una);
        }
    }

    /// Removes the oldest request if it is fully acknowledged.
    pub(crate) fn pop_acked(&mut self) -> Option<Request> {
        if self.sq.at(0)?.end() > self.snd_una {
            return None;
        }
        self.pop_any()
    }

    /// Removes the oldest request, complete or not, to flush it.
    pub(crate) fn pop_any(&mut self) -> Option<Request> {
        let request = self.sq.pop_front()?;
        self.current = self.current.saturating_sub(1);
        if request.wqe.op.is_rd_atomic() {
            self.rd_atomic_starts.pop_front();
        }
        Some(request)
    }

    /// Go-back-N: everything from `to` on is to be retransmitted. Returns false if nothing is,
    /// because all of it is acknowledged or was never sent.
    pub(crate) fn rewind(&mut self, to: u64) -> bool {
        let to = to.max(self.snd_una);
        if to >= self.snd_nxt {
            return false;
        }
        self.seek(to);
        // The first retransmission has AckReq. After a timeout it is the only packet in flight, and
        // a responder that takes it as new sends an ACK only on AckReq.
        self.force_ack_req = true;
        true
    }

    /// Stops new requests.
    pub(crate) fn drain(&mut self) {
        let at_boundary = self.sq.at(self.current).is_none_or(|w| w.first == self.snd_nxt);
        if at_boundary && self.snd_nxt == self.snd_max {
            self.request_ack(self.snd_nxt);
        }
    }

    /// If no packet with AckReq covers the packets sent before `end`, retransmits the last of them
    /// with AckReq, and returns true: the packet that would have carried it is not sent.
    pub(crate) fn request_ack(&mut self, end: u64) -> bool {
        self.ack_req_end.max(self.snd_una) < end && self.rewind(end - 1)
    }

    /// A READ or an atomic is posted.
    pub(crate) fn has_rd_atomic(&self) -> bool {
        !self.rd_atomic_starts.is_empty()
    }

    /// The PSN on the wire of an unwrapped number.
    pub(crate) fn psn(&self, number: u64) -> Psn {
        let low = u32::try_from(number & u64::from(Psn::MASK)).expect("masked to 24 bits");
        self.first_psn.plus(low)
    }

    /// The unwrapped number of a PSN in a response.
    pub(crate) fn unwrap(&self, psn: Psn) -> Unwrapped {
        match u64::try_from(psn.since(self.psn(self.snd_una))) {
            Err(_) => Unwrapped::Stale,
            Ok(ahead) if self.snd_una + ahead < self.snd_max => {
                Unwrapped::Outstanding(self.snd_una + ahead)
            }
            Ok(_) => Unwrapped::BeyondSent,
        }
    }

    /// The number after the last one sent, if `psn` is its PSN and something is outstanding. A peer
    /// that has received everything expects it.
    pub(crate) fn next_unsent(&self, psn: Psn) -> Option<u64> {
        let is_next = self.has_outstanding() && psn == self.psn(self.snd_max);
        is_next.then_some(self.snd_max)
    }

    /// The number of the oldest missing READ or atomic response. A plain ACK cannot acknowledge it.
    pub(crate) fn first_missing_response(&self) -> Option<u64> {
        self.rd_atomic_starts.front().map(|first| (*first).max(self.snd_una))
    }

    /// The request that contains `number`, with its index.
    pub(crate) fn wqe_of(&self, number: u64) -> Option<(usize, &Request)> {
        // Responses are to the oldest request nearly always.
        let i = match self.sq.at(0)?.end() > number {
            true => 0,
            false => self.sq.partition_point(|w| w.end() <= number),
        };
        Some((i, self.sq.at(i)?))
    }

    /// All requests whose transmission has begun are acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.snd_una == self.snd_max && self.sq.at(0).is_none_or(|w| w.first >= self.snd_max)
    }

    pub(crate) fn snd_una(&self) -> u64 {
        self.snd_una
    }

    pub(crate) fn snd_max(&self) -> u64 {
        self.snd_max
    }

    pub(crate) fn snd_nxt(&self) -> u64 {
        self.snd_nxt
    }

    /// Packets and READ responses requested, sent and not acknowledged. A rewind removes them: they
    /// count as lost.
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        self.snd_nxt - self.snd_una
    }

    /// Packets in flight after the last one with AckReq: no ACK of them is on its way.
    pub(crate) fn no_ack_req_pkts(&self) -> u64 {
        self.snd_nxt - self.ack_req_end.max(self.snd_una)
    }

    /// A packet with AckReq is in flight. Otherwise no ACK is on its way. A window that congestion
    /// control has reduced below the packets in flight would then stay full until the timer
    /// expires, so one more packet may leave, with AckReq.
    fn expects_ack(&self) -> bool {
        self.ack_req_end > self.snd_una
    }

    /// A packet that was sent is not acknowledged.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.snd_una < self.snd_max
    }

    fn seek(&mut self, to: u64) {
        self.snd_nxt = to;
        self.ack_req_end = self.ack_req_end.min(to);
        while self.rd_atomic_out.back().is_some_and(|r| r.first + r.pkts > to) {
            self.rd_atomic_out.pop_back();
        }
        self.current = self.sq.partition_point(|w| w.end() <= to);
    }
}

#[cfg(test)]
impl Allowance {
    /// An allowance that limits no test which does not narrow it.
    pub(super) fn wide() -> Self {
        Self {
            qp_pkts: 128,
            endpoint_pkts: 128,
            no_ack_req_pkts: 128,
            mtu: Mtu::B256,
            max_rd_atomic: 4,
            read_chunk_pkts: 4,
            ack_req_interval_pkts: 16,
            new_requests: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{RemoteAddr, WrOp};
    use proptest::prelude::*;

    const REMOTE: RemoteAddr = RemoteAddr { va: 0, rkey: 5 };
    const READ: WrOp = WrOp::Read { remote: REMOTE };

    fn may() -> Allowance {
        Allowance { max_rd_atomic: 2, ..Allowance::wide() }
    }

    fn requester() -> Requester {
        let mut r = Requester::new(64, 1, 0);
        r.start(Psn::new(0xff_fffe), 2);
        r
    }

    fn post(r: &mut Requester, op: WrOp, pkts: u32) {
        r.post(&WorkRequest::new(0, op, &[]), pkts * 256, Mtu::B256);
    }

    /// Sends the next packet and returns (first number, PSNs, AckReq).
    fn send(r: &mut Requester, may: &Allowance) -> Option<(u64, u32, bool)> {
        let Next::Segment(s) = r.next(may) else {
            return None;
        };
        let number = r.snd_nxt();
        r.advance(&s);
        Some((number, s.pkts, s.ack_req))
    }

    fn drain(r: &mut Requester) -> Vec<(u64, u32, bool)> {
        std::iter::from_fn(|| send(r, &may())).collect()
    }

    #[test]
    fn next__ack_req_at_the_end_at_intervals_and_when_required() {
        let mut r = requester();
        post(&mut r, WrOp::Send, 20);
        let with_ack_req: Vec<u64> =
            drain(&mut r).iter().filter(|(.., ack_req)| *ack_req).map(|(n, ..)| *n).collect();
        assert_eq!(with_ack_req, [15, 19]);
        post(&mut r, WrOp::Send, 3);
        let none = Allowance { no_ack_req_pkts: 0, ..may() };
        assert_eq!(send(&mut r, &none), Some((20, 1, true)));
        assert_eq!(send(&mut r, &may()), Some((21, 1, false)));
        assert_eq!(r.no_ack_req_pkts(), 1);
    }

    #[test]
    fn next__reports_which_window_is_full() {
        let mut r = requester();
        assert!(matches!(r.next(&may()), Next::Idle));
        post(&mut r, WrOp::Send, 2);
        let qp = Allowance { qp_pkts: 0, ..may() };
        let endpoint = Allowance { endpoint_pkts: 0, ..may() };
        assert!(matches!(r.next(&endpoint), Next::WaitsForEndpoint));
        let none = Allowance { no_ack_req_pkts: 0, ..may() };
        assert_eq!(send(&mut r, &none), Some((0, 1, true)));
        assert!(matches!(r.next(&qp), Next::WaitsForWindow));
    }

    #[test]
    fn next__a_reduced_window_is_exceeded_by_one_packet_if_no_ack_is_requested() {
        let mut r = requester();
        post(&mut r, WrOp::Send, 40);
        for _ in 0..20 {
            send(&mut r, &may()).unwrap();
        }
        let full = Allowance { qp_pkts: 0, ..may() };
        assert!(matches!(r.next(&full), Next::WaitsForWindow), "packet 15 has AckReq");
        r.acknowledge(16);
        assert_eq!(r.no_ack_req_pkts(), 4);
        assert_eq!(send(&mut r, &full), Some((20, 1, true)));
        assert!(matches!(r.next(&full), Next::WaitsForWindow));
        r.acknowledge(21);
        assert_eq!(send(&mut r, &may()), Some((21, 1, false)));
    }

    #[test]
    fn next__a_read_exceeds_the_window_only_when_alone() {
        let narrow = Allowance { qp_pkts: 1, ..may() };
        let mut r = requester();
        post(&mut r, READ, 4);
        post(&mut r, READ, 4);
        assert_eq!(send(&mut r, &narrow), Some((0, 4, true)));
        assert!(matches!(r.next(&narrow), Next::WaitsForWindow));
        assert_eq!(send(&mut r, &may()), Some((4, 4, true)));
        post(&mut r, READ, 1);
        assert!(matches!(r.next(&may()), Next::WaitsForPeer), "two READs are outstanding");
        r.acknowledge(4);
        assert_eq!(send(&mut r, &may()), Some((8, 1, true)));
    }

    #[test]
    fn next__a_fence_waits_for_reads_only() {
        let fenced = WorkRequest { fence: true, ..WorkRequest::new(0, WrOp::Send, &[]) };
        let mut r = requester();
        post(&mut r, WrOp::Send, 1);
        r.post(&fenced, 0, Mtu::B256);
        assert_eq!(drain(&mut r).len(), 2, "no READ, no wait");
        post(&mut r, READ, 2);
        r.post(&fenced, 0, Mtu::B256);
        assert_eq!(drain(&mut r).len(), 1);
        r.acknowledge(3);
        assert!(matches!(r.next(&may()), Next::WaitsForPeer));
        r.acknowledge(4);
        assert_eq!(drain(&mut r), [(4, 1, true)]);
    }

    #[test]
    fn next__a_drained_queue_finishes_what_began_and_begins_nothing() {
        let mut r = requester();
        post(&mut r, WrOp::Send, 3);
        post(&mut r, WrOp::Send, 1);
        send(&mut r, &may()).unwrap();
        let draining = Allowance { new_requests: false, ..may() };
        while send(&mut r, &draining).is_some() {}
        assert_eq!((r.snd_nxt(), r.is_drained()), (3, false));
        r.rewind(1);
        while send(&mut r, &draining).is_some() {}
        assert_eq!(r.snd_nxt(), 3, "a retransmission begins no request");
        r.acknowledge(3);
        assert!(r.pop_acked().is_some());
        assert!(r.is_drained());
        assert!(matches!(r.next(&draining), Next::Idle));
        assert_eq!(drain(&mut r).len(), 1);
    }

    #[test]
    fn acknowledge__beyond_the_rewind_skips_retransmissions() {
        let mut r = requester();
        post(&mut r, WrOp::Send, 4);
        post(&mut r, WrOp::Send, 4);
        drain(&mut r);
        assert!(r.rewind(1));
        send(&mut r, &may()).unwrap();
        r.acknowledge(6);
        assert_eq!((r.snd_una(), r.snd_nxt()), (6, 6));
        assert!(r.has_outstanding());
        assert!(r.pop_acked().is_some() && r.pop_acked().is_none());
        assert_eq!(drain(&mut r), [(6, 1, false), (7, 1, true)]);
        r.acknowledge(8);
        assert!(!r.has_outstanding() && r.pop_acked().is_some());
    }

    #[test]
    fn rewind__into_a_chunk_requests_its_tail() {
        let mut r = requester();
        post(&mut r, READ, 10);
        assert_eq!(drain(&mut r), [(0, 4, true), (4, 4, true)]);
        r.acknowledge(2);
        assert!(r.rewind(2));
        assert_eq!(r.in_flight_pkts(), 0);
        assert_eq!(drain(&mut r), [(2, 2, true), (4, 4, true)]);
        assert!(!r.rewind(8), "nothing beyond was sent");
        r.acknowledge(5);
        assert_eq!(drain(&mut r), [(8, 2, true)]);
    }

    #[test]
    fn rewind__the_first_retransmission_has_ack_req() {
        let mut r = requester();
        post(&mut r, WrOp::Send, 10);
        drain(&mut r);
        assert!(r.rewind(0));
        let ack_req: Vec<bool> = drain(&mut r).iter().map(|s| s.2).collect();
        assert_eq!((ack_req[0], ack_req[1], ack_req[9]), (true, false, true));
    }

    #[test]
    fn unwrap__stale_outstanding_and_never_sent() {
        let mut r = requester();
        post(&mut r, WrOp::Send, 5);
        drain(&mut r);
        post(&mut r, WrOp::Send, 1);
        r.acknowledge(1);
        let at = |n| r.unwrap(Psn::new(n));
        assert_eq!(at(0xff_fffe), Unwrapped::Stale);
        assert_eq!(at(0xff_ffff), Unwrapped::Outstanding(1));
        assert_eq!(at(2), Unwrapped::Outstanding(4));
        assert_eq!(at(3), Unwrapped::BeyondSent);
        assert_eq!(at(0x40_0000), Unwrapped::BeyondSent);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Post(bool, u32),
        Send,
        Acknowledge(u64),
        Rewind(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (any::<bool>(), 0u32..12).prop_map(|(read, pkts)| Act::Post(read, pkts)),
            Just(Act::Send),
            Just(Act::Send),
            any::<u64>().prop_map(Act::Acknowledge),
            any::<u64>().prop_map(Act::Rewind),
        ]
    }

    proptest! {
        #[test]
        fn requester__agrees_with_a_naive_model(acts in prop::collection::vec(act(), 1..200)) {
            let mut r = requester();
            let mut reads: Vec<(u64, u64)> = Vec::new();
            for a in acts {
                match a {
                    Act::Post(read, pkts) if !r.is_full() => {
                        post(&mut r, if read { READ } else { WrOp::Send }, pkts);
                    }
                    Act::Post(..) => {}
                    Act::Send => {
                        if let Next::Segment(s) = r.next(&may()) {
                            let first = r.snd_nxt();
                            r.advance(&s);
                            if s.is_rd_atomic() {
                                reads.push((first, first + u64::from(s.pkts)));
                            }
                        }
                    }
                    Act::Acknowledge(n) => {
                        r.acknowledge(r.snd_una + n % (r.snd_max - r.snd_una + 1));
                        while r.pop_acked().is_some() {}
                    }
                    Act::Rewind(n) => {
                        r.rewind(r.snd_una + n % (r.snd_max - r.snd_una + 1));
                    }
                }
                prop_assert!(r.snd_una <= r.snd_nxt && r.snd_nxt <= r.snd_max);
                prop_assert!(r.snd_max <= r.snd_end && r.ack_req_end <= r.snd_nxt);
                reads.retain(|(_, end)| *end > r.snd_una && *end <= r.snd_nxt);
                let out: Vec<(u64, u64)> =
                    r.rd_atomic_out.iter().map(|o| (o.first, o.first + o.pkts)).collect();
                prop_assert_eq!(&out, &reads);
                match r.sq.at(r.current) {
                    Some(w) => prop_assert!(w.first <= r.snd_nxt && r.snd_nxt < w.end()),
                    None => prop_assert_eq!((r.current, r.snd_nxt), (r.sq.len(), r.snd_end)),
                }
                let first_read = (0..).map_while(|i| r.sq.at(i)).find(|r| r.wqe.op.is_rd_atomic());
                prop_assert_eq!(r.rd_atomic_starts.front(), first_read.map(|w| &w.first));
            }
        }
    }
}
