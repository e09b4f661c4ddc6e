//! The requester: which packet of which request is next (*what* is sent).

use crate::attr::Mtu;
use crate::qp::segment::{Position, Segment};
use crate::qp::wq::WorkQueue;
use crate::verbs::{Sge, WorkRequest, WrOp};
use spanwire_wire::{Opcode, Psn};
use std::collections::VecDeque;

/// The send queue and how far it has been sent and acknowledged.
///
/// PSNs are unwrapped here: the first packet of the queue pair's life is number 0 and nothing ever
/// wraps. The 24 bits of the wire are made and read at the edge ([`Requester::psn`],
/// [`Requester::unwrap`]). Always `snd_una <= snd_nxt <= snd_max <= snd_end`.
#[derive(Debug)]
pub(crate) struct Requester {
    sq: WorkQueue<Wqe>,
    /// The wire's PSN of number 0.
    first_psn: Psn,
    /// Oldest number not acknowledged.
    snd_una: u64,
    /// Next number to send. Goes back on loss.
    snd_nxt: u64,
    /// One past the highest number ever sent.
    snd_max: u64,
    /// One past the last number of the last request posted.
    snd_end: u64,
    /// Index in `sq` of the request that holds `snd_nxt`; `sq.len()` when all is sent.
    current: usize,
    /// READ requests sent and not fully answered, oldest first.
    reads_out: VecDeque<ReadOut>,
    /// First number of every READ in `sq`, oldest first.
    read_starts: VecDeque<u64>,
    /// One past the last packet that asked for an answer.
    asked: u64,
    /// The next packet asks, whatever it is.
    asks_next: bool,
}

/// A send work request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: WrOp,
    pub(crate) len: u32,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// First number and how many.
    pub(crate) first: u64,
    pub(crate) pkts: u64,
}

#[derive(Clone, Copy, Debug)]
struct ReadOut {
    first: u64,
    pkts: u64,
}

/// What may be sent, decided outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Packets the queue pair's own window still takes.
    pub(crate) qp_pkts: u32,
    /// Packets the endpoint's window still takes.
    pub(crate) endpoint_pkts: u32,
    /// Packets the endpoint may still send without asking for an acknowledgement.
    pub(crate) unasked_pkts: u32,
    pub(crate) mtu: Mtu,
    pub(crate) max_rd_atomic: u8,
    pub(crate) read_chunk_pkts: u32,
    pub(crate) ack_req_interval_pkts: u32,
}

/// Answer of [`Requester::next`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// Send this.
    Segment(Segment),
    /// Nothing is posted that was not sent.
    Idle,
    /// The queue pair's window, its READ limit or a fence holds the next packet back until a
    /// response arrives.
    WaitsForPeer,
    /// The endpoint's window holds the next packet back.
    WaitsForEndpoint,
}

/// Where a PSN from the wire lies.
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
    pub(crate) fn new(max_wr: u32, max_sge: u32) -> Self {
        Self {
            sq: WorkQueue::new(max_wr, max_sge),
            first_psn: Psn::new(0),
            snd_una: 0,
            snd_nxt: 0,
            snd_max: 0,
            snd_end: 0,
            current: 0,
            reads_out: VecDeque::new(),
            read_starts: VecDeque::with_capacity(max_wr as usize),
            asked: 0,
            asks_next: false,
        }
    }

    /// Starts afresh at `psn`.
    pub(crate) fn start(&mut self, psn: Psn, max_rd_atomic: u8) {
        self.reset();
        self.first_psn = psn;
        self.reads_out.reserve(max_rd_atomic.into());
    }

    /// Forgets everything posted.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        self.reads_out.clear();
        self.read_starts.clear();
        (self.snd_una, self.snd_nxt, self.snd_max, self.snd_end) = (0, 0, 0, 0);
        (self.current, self.asked, self.asks_next) = (0, 0, false);
    }

    pub(crate) fn max_sge(&self) -> usize {
        self.sq.max_sge()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.sq.is_full()
    }

    /// Queues a checked work request of `len` bytes.
    pub(crate) fn post(&mut self, wr: &WorkRequest<'_>, len: u32, mtu: Mtu) {
        let pkts = u64::from(len.div_ceil(mtu.bytes()).max(1));
        let &WorkRequest {
            wr_id,
            op,
            signaled,
            solicited,
            fence,
            ..
        } = wr;
        let first = self.snd_end;
        self.sq.push(
            Wqe {
                wr_id,
                op,
                len,
                signaled,
                solicited,
                fence,
                first,
                pkts,
            },
            wr.sges,
        );
        if op.is_read() {
            self.read_starts.push_back(first);
        }
        self.snd_end += pkts;
    }

    /// Describes the next packet, if one may leave.
    pub(crate) fn next(&self, may: &Allowance) -> Next {
        let Some(wqe) = self.sq.at(self.current) else {
            return Next::Idle;
        };
        let starts = self.snd_nxt == wqe.first;
        if starts && wqe.fence && !self.reads_out.is_empty() {
            return Next::WaitsForPeer;
        }
        let pkts = match wqe.op.is_read() {
            true if self.reads_out.len() >= usize::from(may.max_rd_atomic) => {
                return Next::WaitsForPeer;
            }
            true => wqe.chunk_from(self.snd_nxt, may.read_chunk_pkts.into()),
            false => 1,
        };
        // While it probes a silent peer with a window of one, a READ still goes out whole.
        let alone = self.in_flight_pkts() == 0;
        if u64::from(may.qp_pkts) < pkts && !alone {
            return Next::WaitsForPeer;
        }
        if u64::from(may.endpoint_pkts) < pkts {
            return Next::WaitsForEndpoint;
        }
        let pkts = u32::try_from(pkts).expect("a chunk is at most read_chunk_pkts, a u32");
        let asks = self.snd_nxt + u64::from(pkts) == self.snd_end
            || self.asks_next
            || self.unasked_pkts() + 1 >= may.ack_req_interval_pkts.into()
            || may.unasked_pkts == 0;
        let at = Position {
            wqe: self.current,
            number: self.snd_nxt,
            psn: self.psn(self.snd_nxt),
            pkts,
            asks,
            is_retransmission: self.snd_nxt < self.snd_max,
        };
        Next::Segment(Segment::new(wqe, &at, may))
    }

    /// Takes note that `segment`, the answer of [`Requester::next`], was sent.
    pub(crate) fn advance(&mut self, segment: &Segment) {
        let pkts = u64::from(segment.pkts);
        if segment.opcode == Opcode::RcReadRequest {
            self.reads_out.push_back(ReadOut {
                first: self.snd_nxt,
                pkts,
            });
        }
        self.snd_nxt += pkts;
        self.snd_max = self.snd_max.max(self.snd_nxt);
        if segment.ack_req {
            (self.asked, self.asks_next) = (self.snd_nxt, false);
        }
        if self
            .sq
            .at(self.current)
            .is_some_and(|w| w.end() <= self.snd_nxt)
        {
            self.current += 1;
        }
    }

    /// Takes everything before `upto` as acknowledged. Follow with [`Requester::pop_done`].
    pub(crate) fn acknowledge(&mut self, upto: u64) {
        assert!(
            upto <= self.snd_max,
            "an acknowledgement is checked against what was sent"
        );
        self.snd_una = self.snd_una.max(upto);
        while self
            .reads_out
            .front()
            .is_some_and(|r| r.first + r.pkts <= self.snd_una)
        {
            self.reads_out.pop_front();
        }
        if self.snd_nxt < self.snd_una {
            // An answer to what was sent before going back: no need to send it again.
            self.seek(self.snd_una);
        }
    }

    /// Takes the oldest request out if it is fully acknowledged.
    pub(crate) fn pop_done(&mut self) -> Option<Wqe> {
        if self.sq.at(0)?.end() > self.snd_una {
            return None;
        }
        self.pop_any()
    }

    /// Takes the oldest request out, done or not: for flushing.
    pub(crate) fn pop_any(&mut self) -> Option<Wqe> {
        let wqe = self.sq.pop_front()?;
        self.current = self.current.saturating_sub(1);
        if wqe.op.is_read() {
            self.read_starts.pop_front();
        }
        Some(wqe)
    }

    /// Goes back: everything from `to` on is sent again. Returns false when there is nothing to
    /// send again, because all of it is acknowledged or was never sent.
    pub(crate) fn rewind(&mut self, to: u64) -> bool {
        let to = to.max(self.snd_una);
        if to >= self.snd_nxt {
            return false;
        }
        self.seek(to);
        // The first packet again asks at once: while a silent peer is probed it is the only one,
        // and a peer that takes it as new answers only if it is asked.
        self.asks_next = true;
        true
    }

    /// The wire's PSN of an unwrapped number.
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

    /// The number of the oldest READ response still missing, if any READ is in the queue: a plain
    /// acknowledgement never reaches past it.
    pub(crate) fn first_missing_response(&self) -> Option<u64> {
        self.read_starts
            .front()
            .map(|first| (*first).max(self.snd_una))
    }

    /// The request that holds `number`, with its index.
    pub(crate) fn wqe_of(&self, number: u64) -> Option<(usize, &Wqe)> {
        let i = self.sq.partition_point(|w| w.end() <= number);
        Some((i, self.sq.at(i)?))
    }

    pub(crate) fn sges(&self, wqe: usize) -> &[Sge] {
        self.sq.sges(wqe)
    }

    pub(crate) fn snd_una(&self) -> u64 {
        self.snd_una
    }

    pub(crate) fn snd_nxt(&self) -> u64 {
        self.snd_nxt
    }

    /// Packets sent, or READ responses asked for, and not acknowledged. Going back takes them off:
    /// they count as lost.
    pub(crate) fn in_flight_pkts(&self) -> u64 {
        self.snd_nxt - self.snd_una
    }

    /// Packets in flight that no later packet asked about: no answer to them is on its way.
    pub(crate) fn unasked_pkts(&self) -> u64 {
        self.snd_nxt - self.asked.max(self.snd_una)
    }

    /// Anything sent lacks its acknowledgement.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.snd_una < self.snd_max
    }

    fn seek(&mut self, to: u64) {
        self.snd_nxt = to;
        self.asked = self.asked.min(to);
        while self.reads_out.back().is_some_and(|r| r.first + r.pkts > to) {
            self.reads_out.pop_back();
        }
        self.current = self.sq.partition_point(|w| w.end() <= to);
    }
}

impl Wqe {
    /// One past its last number.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.pkts
    }

    /// Packets from `number` to the end of its chunk. Chunks are counted from the start of the
    /// READ, so that asking again always asks for the tail of one earlier request: the peer
    /// remembers requests, not messages.
    fn chunk_from(&self, number: u64, chunk: u64) -> u64 {
        let done = number - self.first;
        let boundary = (done / chunk + 1) * chunk;
        boundary.min(self.pkts) - done
    }

    /// Bytes of the message before the packet `number`, which must be one of its own.
    pub(crate) fn offset_of(&self, number: u64, mtu: Mtu) -> u32 {
        let bytes = (number - self.first) * u64::from(mtu.bytes());
        u32::try_from(bytes).expect("messages are below 4 GiB")
    }
}
