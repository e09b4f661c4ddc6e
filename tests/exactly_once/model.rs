//! The reference model of two engines: memory, receive requests, completions. Its inputs are the
//! posted requests and the packets that arrive intact; it is independent of the engines'
//! implementation.

mod history;
mod selective;

use history::History;
use selective::Stream;
use spanwire_transport::{Wc, WcOpcode, WcStatus};
use spanwire_wire::{OpKind, Opcode, Packet, Psn};
use std::collections::{BTreeMap, VecDeque};

/// Expected state of both sides' memory and queue pairs.
pub(crate) struct Model {
    pub(crate) mtu: usize,
    /// Both sides use SR, so each message has one number, regardless of its packets.
    sr: bool,
    /// The RNR retry count of all queue pairs; 7 retries forever.
    rnr_retry: u8,
    pub(crate) sides: [Side; 2],
    /// Values that each side's application overwrote while requests may have read them.
    pub(crate) history: [History; 2],
}

/// Expected state of one side.
pub(crate) struct Side {
    pub(crate) memory: Vec<u8>,
    pub(crate) qps: Vec<Qp>,
    /// Receives of the shared queue, if there is one.
    pub(crate) srq: Option<VecDeque<Recv>>,
    /// Results of outstanding requests, which may or may not have reached memory.
    pending: Vec<Pending>,
    /// Results that the next comparison must find in memory.
    landed: Vec<Pending>,
}

/// Expected state of one queue pair.
#[derive(Default)]
pub(crate) struct Qp {
    /// The PSN of its first request packet.
    pub(crate) first_psn: u32,
    /// All requests ever posted to the send queue, oldest first.
    pub(crate) posted: Vec<Message>,
    /// How many of those have completed.
    pub(crate) completed: usize,
    pub(crate) recvs: VecDeque<Recv>,
    current_recv: Option<Recv>,
    /// SR: receives taken out of the shared queue, and how many were ever consumed.
    ahead: VecDeque<Recv>,
    received: usize,
    /// SR: what has arrived of the peer's stream.
    stream: Stream,
    /// As a responder: the number of the next expected packet of the peer; in SR of its next
    /// message.
    expected: u64,
    /// Expected receive completions, in order.
    due: VecDeque<Delivery>,
    /// A READ or an atomic of the peer was executed.
    pub(crate) has_answered: bool,
    /// It failed: its peer sent nothing for too long, or had no receive request too often.
    pub(crate) failed: bool,
    /// How often the packets of each message arrived without a receive request (RNR).
    rnr_naks: BTreeMap<usize, u32>,
}

/// A request and its expected effects.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    /// Its first number and its count of numbers.
    pub(crate) first: u64,
    pub(crate) pkts: u64,
    /// Bytes that it carries or must return.
    pub(crate) data: Vec<u8>,
    /// Source of its bytes until it completes; `None` if they were copied when it was posted.
    pub(crate) source: Option<Source>,
    /// Offset in the peer's memory.
    pub(crate) remote: usize,
    /// Offset in the local memory where a result is written.
    pub(crate) local: usize,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidates: Option<u32>,
}

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    FetchAdd(u64),
    CmpSwap(u64, u64),
}

/// A posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recv {
    pub(crate) wr_id: u64,
    pub(crate) at: usize,
}

/// An expected receive completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Delivery {
    recv: Recv,
    opcode: WcOpcode,
    len: usize,
    imm: Option<u32>,
    invalidated: Option<u32>,
    solicited: bool,
}

/// Memory that a request reads, and that may change before it completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// The side that owns the memory, and the offset.
    pub(crate) side: usize,
    pub(crate) at: usize,
    /// Number of changes when reading could begin.
    pub(crate) since: usize,
}

/// Bytes whose previous values are also allowed.
struct Pending {
    qp: usize,
    number: u64,
    at: usize,
    data: Vec<u8>,
    /// `data` was read from there at its `since`.
    source: Option<Source>,
}

/// The meaning of a completion for the application.
pub(crate) enum Finished {
    /// Requests `from..to` of the queue pair completed successfully.
    Sent { from: usize, to: usize },
    /// A receive was consumed.
    Received { recv: Recv, invalidated: Option<u32> },
    /// A receive was flushed.
    Flushed { recv: Recv },
    /// A request failed.
    Failed,
}

impl Model {
    pub(crate) fn new(
        mtu: usize,
        sr: bool,
        memory: [Vec<u8>; 2],
        qps: usize,
        srq: [bool; 2],
        rnr_retry: u8,
    ) -> Self {
        let side = |memory, srq: bool| Side {
            memory,
            qps: (0..qps).map(|_| Qp::default()).collect(),
            srq: srq.then(VecDeque::new),
            pending: Vec::new(),
            landed: Vec::new(),
        };
        let [a, b] = memory;
        let (sides, history) = ([side(a, srq[0]), side(b, srq[1])], Default::default());
        Self { mtu, sr, rnr_retry, sides, history }
    }

    /// Records a request and fills in its numbers.
    pub(crate) fn post(&mut self, side: usize, qp: usize, mut m: Message) {
        let posted = &mut self.sides[side].qps[qp].posted;
        m.first = posted.last().map_or(0, |l| l.first + l.pkts);
        m.pkts = match self.sr {
            true => 1,
            false => m.data.len().div_ceil(self.mtu).max(1) as u64,
        };
        posted.push(m);
    }

    /// A request packet arrives intact at `side`: executes it if it is the expected one.
    pub(crate) fn deliver(&mut self, side: usize, qp: usize, p: &Packet<'_>) {
        if matches!(p.bth.opcode, Opcode::SrData | Opcode::SrParity) {
            return self.deliver_sr(side, qp, p);
        }
        let peer = 1 - side;
        let first_psn = Psn::new(self.sides[peer].qps[qp].first_psn);
        let here = &self.sides[side].qps[qp];
        let low = u32::try_from(here.expected & 0xff_ffff).expect("24 bits");
        if here.failed || p.bth.psn != first_psn.plus(low) {
            return;
        }
        let number = here.expected;
        let posted = &self.sides[peer].qps[qp].posted;
        let i = posted.partition_point(|m| m.first + m.pkts <= number);
        let m =
            posted.get(i).cloned().unwrap_or_else(|| panic!("packet {number} was never posted"));
        match p.bth.opcode.props().kind {
            OpKind::Send | OpKind::Write => self.place(side, qp, (number, i), &m, p),
            OpKind::ReadRequest => self.read(side, qp, number, i, &m, p),
            OpKind::Atomic => self.atomic(side, qp, number, i, &m),
            other => panic!("{other:?} is not a request"),
        }
    }

    fn place(
        &mut self,
        side: usize,
        qp: usize,
        (number, i): (u64, usize),
        m: &Message,
        p: &Packet<'_>,
    ) {
        let at = usize::try_from(number - m.first).expect("small") * self.mtu;
        let (first, last) = (number == m.first, number + 1 == m.first + m.pkts);
        let len = (m.data.len() - at).min(self.mtu);
        assert_eq!(p.payload.len(), len, "the payload of packet {number}");
        self.check_payload(m, at, p.payload);
        let props = p.bth.opcode.props();
        assert_eq!((props.first, props.last), (first, last), "the place of packet {number}");
        let takes = match m.kind {
            Kind::Send => first,
            Kind::WriteImm => last,
            _ => false,
        };
        if takes && !self.sides[side].take(qp) {
            self.note_rnr_nak(1 - side, qp, i);
            return; // RNR: it will be retransmitted.
        }
        let to = match m.kind {
            Kind::Send => self.sides[side].qps[qp].current_recv.expect("taken above or before").at,
            _ => m.remote,
        };
        let here = &mut self.sides[side];
        here.memory[to + at..to + at + len].copy_from_slice(p.payload);
        let q = &mut here.qps[qp];
        q.expected += 1;
        if last && m.kind != Kind::Write {
            let recv = q.current_recv.take().expect("taken above or before");
            let opcode = match m.kind {
                Kind::Send => WcOpcode::Recv,
                _ => WcOpcode::RecvRdmaWithImm,
            };
            let (imm, invalidated, solicited) = (m.imm, m.invalidates, m.solicited);
            let len = m.data.len();
            q.due.push_back(Delivery { recv, opcode, len, imm, invalidated, solicited });
        }
    }

    /// A READ request asks for `reth.dma_len` bytes from its offset in the message.
    fn read(&mut self, side: usize, qp: usize, number: u64, i: usize, m: &Message, p: &Packet<'_>) {
        assert_eq!(m.kind, Kind::Read, "packet {number}");
        let at = usize::try_from(number - m.first).expect("small") * self.mtu;
        let len = p.ext.reth.expect("a READ has one").dma_len as usize;
        assert!(at + len <= m.data.len(), "a READ of more bytes than were posted");
        let from = m.remote + at;
        let data = self.sides[side].memory[from..from + len].to_vec();
        self.sides[side].qps[qp].expected += len.div_ceil(self.mtu).max(1) as u64;
        self.expect_result(1 - side, qp, number, i, at, data);
    }

    fn atomic(&mut self, side: usize, qp: usize, number: u64, i: usize, m: &Message) {
        let word = &mut self.sides[side].memory[m.remote..m.remote + 8];
        let old = u64::from_ne_bytes((&*word).try_into().expect("eight bytes"));
        let new = match m.kind {
            Kind::FetchAdd(add) => old.wrapping_add(add),
            Kind::CmpSwap(compare, swap) if old == compare => swap,
            Kind::CmpSwap(..) => old,
            other => panic!("packet {number} is an atomic, posted was {other:?}"),
        };
        word.copy_from_slice(&new.to_ne_bytes());
        self.sides[side].qps[qp].expected += 1;
        self.expect_result(1 - side, qp, number, i, 0, old.to_ne_bytes().to_vec());
    }

    /// A result may be written at the requester from now on. A READ reads its source from now on.
    fn expect_result(
        &mut self,
        side: usize,
        qp: usize,
        number: u64,
        i: usize,
        at: usize,
        data: Vec<u8>,
    ) {
        let peer = 1 - side;
        self.sides[peer].qps[qp].has_answered = true;
        let since = self.history[peer].len();
        let here = &mut self.sides[side];
        let m = &mut here.qps[qp].posted[i];
        m.data[at..at + data.len()].copy_from_slice(&data);
        let source = Source { side: peer, at: m.remote + at, since };
        let source = (m.kind == Kind::Read).then_some(source);
        here.pending.push(Pending { qp, number, at: m.local + at, data, source });
    }

    /// Checks that a packet carries values that its memory held, byte by byte, at some time since
    /// the message was posted.
    fn check_payload(&self, m: &Message, at: usize, payload: &[u8]) {
        for (i, byte) in payload.iter().enumerate().filter(|(i, b)| **b != m.data[at + i]) {
            let had = m.source.is_some_and(|s| self.history[s.side].had(&s, at + i, *byte));
            assert!(had, "byte {} of {m:?} leaves as {byte:#04x}", at + i);
        }
    }

    /// A packet of message `i` of `side` found no receive request.
    fn note_rnr_nak(&mut self, side: usize, qp: usize, i: usize) {
        *self.sides[side].qps[qp].rnr_naks.entry(i).or_default() += 1;
    }

    /// The application of `side` overwrites memory that requests may be reading.
    pub(crate) fn change(&mut self, side: usize, at: usize, bytes: &[u8]) {
        self.sides[side].overwrite(at, bytes);
        self.history[side].note(at, bytes);
    }

    /// Checks a completion of `side` and records its effects.
    pub(crate) fn complete(&mut self, side: usize, qp: usize, wc: &Wc) -> Finished {
        match wc.opcode {
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => self.complete_recv(side, qp, wc),
            _ => self.complete_send(side, qp, wc),
        }
    }

    fn complete_send(&mut self, side: usize, qp: usize, wc: &Wc) -> Finished {
        let arrived = self.sides[1 - side].qps[qp].expected;
        let rnr_retry = self.rnr_retry;
        let here = &mut self.sides[side];
        let q = &mut here.qps[qp];
        let (from, i) = (q.completed, usize::try_from(wc.wr_id).expect("small"));
        assert!(i >= from && i < q.posted.len(), "{wc:?}: {from} had completed before");
        for m in &q.posted[from..i] {
            assert!(!m.signaled, "{wc:?}: an earlier request had no completion: {m:?}");
            assert!(m.first + m.pkts <= arrived, "{wc:?}: {m:?} was not executed");
        }
        let m = &q.posted[i];
        q.completed = i + 1;
        if wc.status == WcStatus::Success {
            assert!(m.signaled && !q.failed, "{wc:?}: it was not requested");
            assert!(m.first + m.pkts <= arrived, "{wc:?}: {m:?} was not executed");
            assert_eq!(wc.byte_len as usize, m.data.len(), "{wc:?}");
            here.land(qp, from, i + 1);
            return Finished::Sent { from, to: i + 1 };
        }
        match wc.status {
            WcStatus::WrFlushErr => assert!(q.failed, "{wc:?}"),
            WcStatus::RetryExcErr => assert!(!q.failed, "{wc:?}"),
            // The minimum number of RNR NAKs that the peer must have sent for incomplete messages.
            // In RC a duplicated NAK is indistinguishable from a second one.
            WcStatus::RnrRetryExcErr => {
                let times: u32 = q.rnr_naks.range(from..).map(|(_, times)| times).sum();
                let enough = if self.sr { u32::from(rnr_retry) } else { 0 };
                let justified = rnr_retry < RNR_RETRY_INFINITE && times > enough;
                assert!(!q.failed && justified, "{wc:?}: RNR NAKs {times} of {rnr_retry}");
            }
            _ => panic!("{wc:?}"),
        }
        assert!(!q.failed || i == from, "{wc:?}: flushed out of order");
        if !std::mem::replace(&mut q.failed, true) {
            // Those before the failed one succeeded; from here on nothing is certain.
            here.land(qp, from, i);
        }
        Finished::Failed
    }

    fn complete_recv(&mut self, side: usize, qp: usize, wc: &Wc) -> Finished {
        if wc.status != WcStatus::Success && !self.sides[side].qps[qp].failed {
            self.fail_responder(side, qp);
        }
        let q = &mut self.sides[side].qps[qp];
        if wc.status != WcStatus::Success {
            assert!(q.failed && wc.status == WcStatus::WrFlushErr, "{wc:?}");
            assert!(q.due.is_empty(), "{wc:?}: {:?} come first", q.due);
            let next = q.current_recv.take().or_else(|| q.ahead.pop_front());
            let next = next.or_else(|| q.recvs.pop_front());
            let recv = next.filter(|r| r.wr_id == wc.wr_id);
            let recv = recv.unwrap_or_else(|| panic!("{wc:?}: flushed out of order"));
            return Finished::Flushed { recv };
        }
        let due = q.due.pop_front().unwrap_or_else(|| panic!("{wc:?}: nothing was delivered"));
        let got = Delivery {
            recv: Recv { wr_id: wc.wr_id, ..due.recv },
            opcode: wc.opcode,
            len: wc.byte_len as usize,
            imm: wc.imm,
            invalidated: wc.invalidated_rkey,
            solicited: wc.solicited,
        };
        assert_eq!(got, due);
        Finished::Received { recv: due.recv, invalidated: due.invalidated }
    }

    /// An SR responder also fails if its peer sends nothing.
    ///
    /// # Panics If it is not SR, has an outstanding request (which must fail instead), or has
    /// executed no READ or atomic.
    pub(crate) fn fail_responder(&mut self, side: usize, qp: usize) {
        let is_busy = self.is_busy(side, qp);
        let q = &mut self.sides[side].qps[qp];
        let answers_only = !is_busy && q.has_answered;
        assert!(
            self.sr && answers_only,
            "queue pair {qp} of side {side} failed with {} of {}, {:?}",
            q.completed,
            q.posted.len(),
            q.posted.get(q.completed)
        );
        let (from, to) = (q.completed, q.posted.len());
        (q.failed, q.completed) = (true, to);
        self.sides[side].land(qp, from, to);
    }

    /// True if a request is outstanding from its application's view. An executed unsignaled request
    /// may be.
    pub(crate) fn is_busy(&self, side: usize, qp: usize) -> bool {
        let arrived = self.sides[1 - side].qps[qp].expected;
        let q = &self.sides[side].qps[qp];
        q.posted[q.completed..].iter().any(|m| m.signaled || m.first + m.pkts > arrived)
    }

    /// Checks that every expected receive completion has been delivered.
    pub(crate) fn check_deliveries(&self, side: usize) {
        for (i, q) in self.sides[side].qps.iter().enumerate() {
            assert!(q.due.is_empty(), "queue pair {i} of side {side}: missing {:?}", q.due);
        }
    }

    /// Compares `side`'s real memory with the expected one. A pending result may be present byte by
    /// byte; once complete it stays.
    pub(crate) fn check_memory(&mut self, side: usize, real: &[u8]) {
        let (here, history) = (&mut self.sides[side], &self.history);
        assert_eq!(real.len(), here.memory.len(), "the same memory");
        for p in here.landed.drain(..) {
            let range = p.at..p.at + p.data.len();
            for at in range.clone().filter(|at| real[*at] != p.data[at - p.at]) {
                let (got, want) = (real[at], p.data[at - p.at]);
                let landed = p.allows(at, got, history);
                assert!(
                    landed,
                    "memory of side {side} at {at}: {got:#04x}, expected result {want:#04x}"
                );
            }
            here.memory[range.clone()].copy_from_slice(&real[range]);
        }
        let blocks = real.chunks(BLOCK_BYTES).zip(here.memory.chunks_mut(BLOCK_BYTES));
        for (i, (real, model)) in blocks.enumerate().filter(|(_, (real, model))| real != model) {
            for (j, (got, want)) in real.iter().zip(model).enumerate() {
                let at = i * BLOCK_BYTES + j;
                if *got != *want && !here.pending.iter().any(|p| p.allows(at, *got, history)) {
                    panic!("memory of side {side} at {at}: {got:#04x}, expected {want:#04x}");
                }
                *want = *got;
            }
        }
    }
}

impl Side {
    /// Overwrites bytes, so that a late write is detected.
    pub(crate) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn take(&mut self, qp: usize) -> bool {
        let q = &mut self.qps[qp];
        if q.current_recv.is_none() {
            q.current_recv = match &mut self.srq {
                Some(shared) => shared.pop_front(),
                None => q.recvs.pop_front(),
            };
        }
        q.current_recv.is_some()
    }

    /// The results of requests `from..to` are complete in memory, as the next comparison must find.
    fn land(&mut self, qp: usize, from: usize, to: usize) {
        let q = &self.qps[qp];
        let Some(end) = to.checked_sub(1).map(|i| q.posted[i].first + q.posted[i].pkts) else {
            return;
        };
        self.landed.extend(self.pending.extract_if(.., |p| p.qp == qp && p.number < end));
        debug_assert!(from <= to, "requests complete in order");
    }
}

impl Pending {
    /// True if the byte at `at` may be `got` once this is complete.
    fn allows(&self, at: usize, got: u8, history: &[History; 2]) -> bool {
        let Some(i) = at.checked_sub(self.at).filter(|i| *i < self.data.len()) else {
            return false;
        };
        self.data[i] == got || self.source.is_some_and(|s| history[s.side].had(&s, i, got))
    }
}

/// The verbs' code for infinite retries.
const RNR_RETRY_INFINITE: u8 = 7;
/// Memory is compared by block, and only a differing block byte by byte.
const BLOCK_BYTES: usize = 4096;
