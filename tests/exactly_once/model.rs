//! What two engines must have done: memory, receive requests, completions. It sees what is posted
//! and which packets arrive whole, and knows nothing of how the engines work.

mod selective;

use selective::Stream;
use spanwire_transport::{Wc, WcOpcode, WcStatus};
use spanwire_wire::{OpKind, Opcode, Packet, Psn};
use std::collections::VecDeque;

/// Both sides' memory and queue pairs as they must be.
pub(crate) struct Model {
    pub(crate) mtu: usize,
    /// Both sides speak SRC: a message is one number, whatever its packets.
    src: bool,
    pub(crate) sides: [Side; 2],
}

/// One side as it must be.
pub(crate) struct Side {
    pub(crate) memory: Vec<u8>,
    pub(crate) qps: Vec<Qp>,
    /// Receives of a shared queue, when there is one.
    pub(crate) srq: Option<VecDeque<Recv>>,
    /// What may, but need not, have reached memory: the results of requests under way.
    pending: Vec<Pending>,
}

/// One queue pair as it must be.
#[derive(Default)]
pub(crate) struct Qp {
    /// The PSN of its number 0 as a requester.
    pub(crate) first_psn: u32,
    /// Everything it ever posted to send, oldest first.
    pub(crate) posted: Vec<Message>,
    /// How many of those are over.
    pub(crate) over: usize,
    pub(crate) recvs: VecDeque<Recv>,
    taken: Option<Recv>,
    /// SRC: out of the shared queue, and how many were ever used up.
    ahead: VecDeque<Recv>,
    received: usize,
    /// SRC: what has come of the peer's packets.
    stream: Stream,
    /// As a responder: the number of the peer's packet that comes next; of its message in SRC.
    expected: u64,
    /// Receive completions that must come, in this order.
    due: VecDeque<Delivery>,
    /// A READ or an atomic of the peer was carried out.
    pub(crate) has_answered: bool,
    /// It failed: its peer stayed silent too long.
    pub(crate) dead: bool,
}

/// A request and what must come of it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    /// First number and how many.
    pub(crate) first: u64,
    pub(crate) pkts: u64,
    /// Bytes that it carries or that it must bring.
    pub(crate) data: Vec<u8>,
    /// Offset in the peer's memory.
    pub(crate) remote: usize,
    /// Offset in our own memory where a result lands.
    pub(crate) local: usize,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidates: Option<u32>,
}

/// What a request does.
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

/// A receive completion that must come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Delivery {
    recv: Recv,
    opcode: WcOpcode,
    len: usize,
    imm: Option<u32>,
    invalidated: Option<u32>,
    solicited: bool,
}

/// Bytes that may still be what they were.
struct Pending {
    qp: usize,
    number: u64,
    at: usize,
    data: Vec<u8>,
}

/// What the application learns from a completion.
pub(crate) enum Finished {
    /// Requests `from..to` of the queue pair are over; they succeeded.
    Sent { from: usize, to: usize },
    /// A receive was used.
    Received { recv: Recv, invalidated: Option<u32> },
    /// A request or a receive failed.
    Failed,
}

impl Model {
    pub(crate) fn new(
        mtu: usize,
        src: bool,
        memory: [Vec<u8>; 2],
        qps: usize,
        srq: [bool; 2],
    ) -> Self {
        let side = |memory, srq: bool| Side {
            memory,
            qps: (0..qps).map(|_| Qp::default()).collect(),
            srq: srq.then(VecDeque::new),
            pending: Vec::new(),
        };
        let [a, b] = memory;
        Self { mtu, src, sides: [side(a, srq[0]), side(b, srq[1])] }
    }

    /// Takes note of a request; fills in its numbers.
    pub(crate) fn post(&mut self, side: usize, qp: usize, mut m: Message) {
        let posted = &mut self.sides[side].qps[qp].posted;
        m.first = posted.last().map_or(0, |l| l.first + l.pkts);
        m.pkts = match self.src {
            true => 1,
            false => m.data.len().div_ceil(self.mtu).max(1) as u64,
        };
        posted.push(m);
    }

    /// A request packet arrives whole at `side`: carries it out if it is the next one.
    pub(crate) fn deliver(&mut self, side: usize, qp: usize, p: &Packet<'_>) {
        if matches!(p.bth.opcode, Opcode::SrcData | Opcode::SrcParity) {
            return self.deliver_src(side, qp, p);
        }
        let peer = 1 - side;
        let first_psn = Psn::new(self.sides[peer].qps[qp].first_psn);
        let here = &self.sides[side].qps[qp];
        let low = u32::try_from(here.expected & 0xff_ffff).expect("24 bits");
        if here.dead || p.bth.psn != first_psn.plus(low) {
            return;
        }
        let number = here.expected;
        let posted = &self.sides[peer].qps[qp].posted;
        let i = posted.partition_point(|m| m.first + m.pkts <= number);
        let m =
            posted.get(i).cloned().unwrap_or_else(|| panic!("packet {number} was never posted"));
        match p.bth.opcode.props().kind {
            OpKind::Send | OpKind::Write => self.place(side, qp, number, &m, p),
            OpKind::ReadRequest => self.read(side, qp, number, i, &m, p),
            OpKind::Atomic => self.atomic(side, qp, number, i, &m),
            other => panic!("{other:?} is no request"),
        }
    }

    fn place(&mut self, side: usize, qp: usize, number: u64, m: &Message, p: &Packet<'_>) {
        let at = usize::try_from(number - m.first).expect("small") * self.mtu;
        let (first, last) = (number == m.first, number + 1 == m.first + m.pkts);
        let len = (m.data.len() - at).min(self.mtu);
        assert_eq!(p.payload, &m.data[at..at + len], "the payload of packet {number}");
        let props = p.bth.opcode.props();
        assert_eq!((props.first, props.last), (first, last), "the place of packet {number}");
        let takes = match m.kind {
            Kind::Send => first,
            Kind::WriteImm => last,
            _ => false,
        };
        if takes && !self.sides[side].take(qp) {
            return; // Not ready: it will come again.
        }
        let to = match m.kind {
            Kind::Send => self.sides[side].qps[qp].taken.expect("taken above or before").at,
            _ => m.remote,
        };
        let here = &mut self.sides[side];
        here.memory[to + at..to + at + len].copy_from_slice(&m.data[at..at + len]);
        let q = &mut here.qps[qp];
        q.expected += 1;
        if last && m.kind != Kind::Write {
            let recv = q.taken.take().expect("taken above or before");
            let opcode = match m.kind {
                Kind::Send => WcOpcode::Recv,
                _ => WcOpcode::RecvRdmaWithImm,
            };
            let (imm, invalidated, solicited) = (m.imm, m.invalidates, m.solicited);
            let len = m.data.len();
            q.due.push_back(Delivery { recv, opcode, len, imm, invalidated, solicited });
        }
    }

    /// A READ request speaks of `reth.dma_len` bytes, from where it stands in its message.
    fn read(&mut self, side: usize, qp: usize, number: u64, i: usize, m: &Message, p: &Packet<'_>) {
        assert_eq!(m.kind, Kind::Read, "packet {number}");
        let at = usize::try_from(number - m.first).expect("small") * self.mtu;
        let len = p.ext.reth.expect("a READ has one").dma_len as usize;
        assert!(at + len <= m.data.len(), "a READ for more than was posted");
        let from = m.remote + at;
        let data = self.sides[side].memory[from..from + len].to_vec();
        self.sides[side].qps[qp].expected += len.div_ceil(self.mtu).max(1) as u64;
        self.bring(1 - side, qp, number, i, at, data);
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
        self.bring(1 - side, qp, number, i, 0, old.to_ne_bytes().to_vec());
    }

    /// From now on a result may land at the side that asked.
    fn bring(&mut self, side: usize, qp: usize, number: u64, i: usize, at: usize, data: Vec<u8>) {
        self.sides[1 - side].qps[qp].has_answered = true;
        let here = &mut self.sides[side];
        let m = &mut here.qps[qp].posted[i];
        m.data[at..at + data.len()].copy_from_slice(&data);
        here.pending.push(Pending { qp, number, at: m.local + at, data });
    }

    /// Checks a completion of `side` and takes note of what it means.
    pub(crate) fn complete(&mut self, side: usize, qp: usize, wc: &Wc) -> Finished {
        match wc.opcode {
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => self.complete_recv(side, qp, wc),
            _ => self.complete_send(side, qp, wc),
        }
    }

    fn complete_send(&mut self, side: usize, qp: usize, wc: &Wc) -> Finished {
        let arrived = self.sides[1 - side].qps[qp].expected;
        let here = &mut self.sides[side];
        let q = &mut here.qps[qp];
        let (from, i) = (q.over, usize::try_from(wc.wr_id).expect("small"));
        assert!(i >= from && i < q.posted.len(), "{wc:?}: {from} were over before");
        for m in &q.posted[from..i] {
            assert!(!m.signaled, "{wc:?}: an earlier request had no completion: {m:?}");
            assert!(m.first + m.pkts <= arrived, "{wc:?}: {m:?} was not carried out");
        }
        let m = &q.posted[i];
        q.over = i + 1;
        if wc.status == WcStatus::Success {
            assert!(m.signaled && !q.dead, "{wc:?}: nobody asked for it");
            assert!(m.first + m.pkts <= arrived, "{wc:?}: {m:?} was not carried out");
            assert_eq!(wc.byte_len as usize, m.data.len(), "{wc:?}");
            here.land(qp, from, i + 1);
            return Finished::Sent { from, to: i + 1 };
        }
        let want = if q.dead { WcStatus::WrFlushErr } else { WcStatus::RetryExcErr };
        assert_eq!(wc.status, want, "{wc:?}");
        assert!(!q.dead || i == from, "{wc:?}: flushed out of order");
        if !std::mem::replace(&mut q.dead, true) {
            // Those before the one that failed went well; from here on nothing is certain.
            here.land(qp, from, i);
        }
        Finished::Failed
    }

    fn complete_recv(&mut self, side: usize, qp: usize, wc: &Wc) -> Finished {
        let q = &mut self.sides[side].qps[qp];
        if wc.status != WcStatus::Success {
            // An end of SRC that only answers gives a silent peer up as well.
            let gave_up = self.src && q.over == q.posted.len() && q.has_answered;
            q.dead |= gave_up;
            assert!(q.dead && wc.status == WcStatus::WrFlushErr, "{wc:?}");
            assert!(q.due.is_empty(), "{wc:?}: {:?} come first", q.due);
            let next = q.taken.take().or_else(|| q.ahead.pop_front());
            let next = next.or_else(|| q.recvs.pop_front());
            assert_eq!(next.map(|r| r.wr_id), Some(wc.wr_id), "{wc:?}: flushed out of order");
            return Finished::Failed;
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

    /// Every receive completion that must have come has come.
    pub(crate) fn check_told(&self, side: usize) {
        for (i, q) in self.sides[side].qps.iter().enumerate() {
            assert!(q.due.is_empty(), "queue pair {i} of side {side}: missing {:?}", q.due);
        }
    }

    /// Compares `side`'s real memory with what it must be. A result under way may have landed, byte
    /// by byte; what has landed once stays.
    pub(crate) fn check_memory(&mut self, side: usize, real: &[u8]) {
        let here = &mut self.sides[side];
        assert_eq!(real.len(), here.memory.len(), "the same memory");
        let blocks = real.chunks(BLOCK_BYTES).zip(here.memory.chunks_mut(BLOCK_BYTES));
        for (i, (real, model)) in blocks.enumerate().filter(|(_, (real, model))| real != model) {
            for (j, (got, want)) in real.iter().zip(model).enumerate() {
                let at = i * BLOCK_BYTES + j;
                let landed = |p: &Pending| {
                    (p.at..p.at + p.data.len()).contains(&at) && p.data[at - p.at] == *got
                };
                if *got != *want && !here.pending.iter().any(landed) {
                    panic!("memory of side {side} at {at}: {got:#04x}, must be {want:#04x}");
                }
                *want = *got;
            }
        }
    }
}

impl Side {
    /// Overwrites bytes: what comes late must not be able to hide.
    pub(crate) fn scribble(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn take(&mut self, qp: usize) -> bool {
        let q = &mut self.qps[qp];
        if q.taken.is_none() {
            q.taken = match &mut self.srq {
                Some(shared) => shared.pop_front(),
                None => q.recvs.pop_front(),
            };
        }
        q.taken.is_some()
    }

    /// The results of requests `from..to` are in memory, whole.
    fn land(&mut self, qp: usize, from: usize, to: usize) {
        let q = &self.qps[qp];
        let Some(end) = to.checked_sub(1).map(|i| q.posted[i].first + q.posted[i].pkts) else {
            return;
        };
        let memory = &mut self.memory;
        self.pending.retain(|p| {
            let done = p.qp == qp && p.number < end;
            if done {
                memory[p.at..p.at + p.data.len()].copy_from_slice(&p.data);
            }
            !done
        });
        debug_assert!(from <= to, "requests are over in order");
    }
}

/// Memory is compared a block at a time, and only a block that differs byte by byte.
const BLOCK_BYTES: usize = 4096;
