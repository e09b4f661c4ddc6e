//! The requester: which segment of which request is next, and which requests are done.

use crate::qp::outcome::Over;
use crate::qp::wq::WorkQueue;
use crate::stream::received::wrap;
use crate::verbs::{RemoteAddr, Sge, WorkRequest, WrOp};
use spanwire_base::usize_from;
use spanwire_wire::{AtomicEthRepr, RethRepr, SrDataRepr, SrKind};

/// The send queue. Messages are numbered from 0 in the order of posting, what uses a receive
/// request of the peer's likewise.
#[derive(Debug)]
pub(in crate::qp) struct Sender {
    sq: WorkQueue<Wqe>,
    /// The number of the oldest request in `sq`.
    first_message: u32,
    next_message: u32,
    next_receive: u32,
    /// The request that is being sent, and its bytes that were.
    current: usize,
    offset: u32,
    /// READs and atomics sent and not answered.
    rd_atomic_out: u32,
    /// READs and atomics in `sq`.
    rd_atomic_posted: u32,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
struct Wqe {
    wr_id: u64,
    op: WrOp,
    len: u32,
    signaled: bool,
    solicited: bool,
    fence: bool,
    is_inline: bool,
    message: u32,
    receive: u32,
    /// One past the number of its last packet, once that was sent.
    end: Option<u64>,
    /// Bytes that responses have brought.
    answered: u32,
    is_answered: bool,
}

/// A segment of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) message: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// What may be sent, decided outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct May {
    pub(super) segment_bytes: u32,
    pub(super) max_rd_atomic: u32,
    /// Receive requests that the peer has, counted from the first; none before it has said.
    pub(super) receive_limit: Option<u32>,
    /// A request that was never sent may begin.
    pub(super) begins: bool,
}

/// What is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Segment(Segment),
    /// Nothing is posted that was not sent, or it waits for a response.
    Idle,
    /// The peer has no receive request for it.
    NoReceive(Segment),
}

impl Sender {
    pub(super) fn new(max_wr: u32, max_sge: u32, max_inline: u32) -> Self {
        Self {
            sq: WorkQueue::new(max_wr, max_sge, max_inline),
            first_message: 0,
            next_message: 0,
            next_receive: 0,
            current: 0,
            offset: 0,
            rd_atomic_out: 0,
            rd_atomic_posted: 0,
        }
    }

    pub(in crate::qp) fn is_full(&self) -> bool {
        self.sq.is_full()
    }

    pub(in crate::qp) fn max_sge(&self) -> usize {
        self.sq.max_sge()
    }

    pub(in crate::qp) fn max_inline(&self) -> usize {
        self.sq.max_inline()
    }

    pub(in crate::qp) fn is_empty(&self) -> bool {
        self.sq.len() == 0
    }

    /// Queues a checked work request of `len` bytes.
    pub(in crate::qp) fn post(&mut self, wr: &WorkRequest<'_>, len: u32) {
        let &WorkRequest { wr_id, op, signaled, solicited, fence, .. } = wr;
        let wqe = Wqe {
            wr_id,
            op,
            len,
            signaled,
            solicited,
            fence,
            is_inline: wr.inline.is_some(),
            message: self.next_message,
            receive: self.next_receive,
            end: None,
            answered: 0,
            is_answered: false,
        };
        self.sq.push(wqe, wr.sges, wr.inline.unwrap_or_default());
        self.next_message = self.next_message.wrapping_add(1);
        self.rd_atomic_posted += u32::from(op.is_rd_atomic());
        if op.completes_a_receive() {
            self.next_receive = self.next_receive.wrapping_add(1);
        }
    }

    /// The next segment that was never sent.
    #[inline]
    pub(super) fn next(&self, may: &May) -> Next {
        let Some(wqe) = self.sq.at(self.current) else { return Next::Idle };
        if self.offset == 0 {
            let waits = !may.begins
                || wqe.fence && self.current > 0
                || wqe.op.is_rd_atomic() && self.rd_atomic_out >= may.max_rd_atomic;
            if waits {
                return Next::Idle;
            }
        }
        let len = match wqe.op.is_rd_atomic() {
            true => wqe.len,
            false => (wqe.len - self.offset).min(may.segment_bytes),
        };
        let segment = Segment { message: wqe.message, offset: self.offset, len };
        match wqe.finds_receive(may.receive_limit) {
            true => Next::Segment(segment),
            false => Next::NoReceive(segment),
        }
    }

    /// Something is posted that was not sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.sq.at(self.current).is_some()
    }

    /// Nothing is posted behind this segment.
    #[inline]
    pub(super) fn is_last(&self, segment: &Segment) -> bool {
        self.wqe(segment.message).is_none_or(|w| w.ends(segment))
            && segment.message.wrapping_add(1) == self.next_message
    }

    /// The segment is of a request that uses a receive request of the peer's.
    pub(super) fn uses_receive(&self, segment: &Segment) -> bool {
        self.wqe(segment.message).is_some_and(|w| w.op.completes_a_receive())
    }

    /// Bytes of data that its request has from this segment on; none of one that carries none.
    pub(super) fn data_left(&self, segment: &Segment) -> u32 {
        let wqe = self.wqe(segment.message).filter(|w| !w.op.is_rd_atomic());
        wqe.map_or(0, |w| w.len - segment.offset)
    }

    /// The peer has a receive request for this segment, or it needs none.
    #[inline]
    pub(super) fn finds_receive(&self, segment: &Segment, receive_limit: Option<u32>) -> bool {
        self.wqe(segment.message).is_none_or(|w| w.finds_receive(receive_limit))
    }

    /// The segment that [`Sender::next`] described was sent as packet `number`.
    #[inline]
    pub(super) fn advance(&mut self, segment: &Segment, number: u64) {
        let Some(wqe) = self.wqe_mut(segment.message) else { return };
        let ends = wqe.ends(segment);
        let is_rd_atomic = wqe.op.is_rd_atomic();
        if ends {
            wqe.end = Some(number + 1);
            self.current += 1;
            self.offset = 0;
            self.rd_atomic_out += u32::from(is_rd_atomic);
        } else {
            self.offset += segment.len;
        }
    }

    /// The header of a segment; none when its request is over.
    #[inline]
    pub(super) fn header(&self, segment: &Segment, psn: u32) -> Option<SrDataRepr> {
        let wqe = self.wqe(segment.message)?;
        let ends = wqe.ends(segment);
        let mut header = SrDataRepr {
            first: segment.offset == 0,
            last: ends,
            offset: segment.offset,
            ..SrDataRepr::new(kind(wqe.op), psn, wqe.message)
        };
        let reth = |remote: RemoteAddr, len| {
            let va = remote.va.wrapping_add(segment.offset.into());
            Some(RethRepr { va, rkey: remote.rkey, dma_len: len })
        };
        match wqe.op {
            WrOp::Send | WrOp::SendImm { .. } | WrOp::SendInv { .. } => {
                header.receive = Some(wqe.receive);
            }
            WrOp::Write { remote } | WrOp::Read { remote } => {
                header.reth = reth(remote, segment.len);
            }
            WrOp::WriteImm { remote, .. } => {
                header.reth = reth(remote, segment.len);
                header.receive = ends.then_some(wqe.receive);
            }
            WrOp::FetchAdd { remote, add } => {
                header.atomic = Some(operands(remote, add, 0));
            }
            WrOp::CmpSwap { remote, compare, swap } => {
                header.atomic = Some(operands(remote, swap, compare));
            }
        }
        header.imm = wqe.op.imm().filter(|_| ends);
        header.ieth = match wqe.op {
            WrOp::SendInv { rkey } if ends => Some(rkey),
            _ => None,
        };
        Some(header)
    }

    /// A segment's last packet is solicited.
    #[inline]
    pub(super) fn is_solicited(&self, segment: &Segment) -> bool {
        self.wqe(segment.message)
            .is_some_and(|w| w.solicited && w.op.completes_a_receive() && w.ends(segment))
    }

    /// The bytes of a segment are here: inline, or in SGEs.
    #[inline]
    pub(super) fn inline(&self, message: u32) -> Option<&[u8]> {
        let is_inline = self.wqe(message)?.is_inline;
        is_inline.then(|| self.sq.inline(self.index(message)))
    }

    #[inline]
    pub(super) fn sges(&self, message: u32) -> &[Sge] {
        self.sq.sges(self.index(message))
    }

    /// A response of this kind to `message` was asked for.
    pub(super) fn awaits(&self, message: u32, kind: SrKind) -> bool {
        self.wqe(message).is_some_and(|w| {
            let fits = match w.op {
                WrOp::Read { .. } => kind == SrKind::ReadResponse,
                WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => kind == SrKind::AtomicResponse,
                _ => false,
            };
            fits && w.end.is_some() && !w.is_answered
        })
    }

    /// The bytes of a response are some of those that `message` asked for; the last ones if it says
    /// so, and only then.
    pub(super) fn takes(&self, message: u32, offset: u32, len: u32, last: bool) -> bool {
        self.wqe(message).is_some_and(|w| match w.op {
            WrOp::Read { .. } => {
                let end = offset.checked_add(len);
                end.is_some_and(|end| end <= w.len && (end == w.len) == last)
            }
            _ => len == 0,
        })
    }

    /// The request is in the queue.
    pub(super) fn has(&self, message: u32) -> bool {
        self.wqe(message).is_some()
    }

    /// A response of `len` bytes was put where it belongs.
    pub(super) fn answered(&mut self, message: u32, len: u32) {
        let Some(wqe) = self.wqe_mut(message) else { return };
        wqe.answered = wqe.answered.saturating_add(len);
        let done = wqe.op.is_atomic() || wqe.answered >= wqe.len;
        if done && !std::mem::replace(&mut wqe.is_answered, true) {
            self.rd_atomic_out = self.rd_atomic_out.saturating_sub(1);
        }
    }

    /// Takes the oldest request out if it is done: everything before `una` has arrived.
    ///
    /// Returns it, and whether it asked for a completion.
    pub(super) fn pop_done(&mut self, una: u64) -> Option<(Over, bool)> {
        let oldest = self.sq.at(0)?;
        let arrived = oldest.end.is_some_and(|end| end <= una);
        let done = arrived && (oldest.is_answered || !oldest.op.is_rd_atomic());
        let signaled = oldest.signaled;
        if done { self.pop_any().map(|over| (over, signaled)) } else { None }
    }

    /// Takes the oldest request out, done or not.
    pub(in crate::qp) fn pop_any(&mut self) -> Option<Over> {
        let wqe = self.sq.pop_front()?;
        self.rd_atomic_posted -= u32::from(wqe.op.is_rd_atomic());
        self.first_message = self.first_message.wrapping_add(1);
        if self.current > 0 {
            self.current -= 1;
        } else {
            self.offset = 0;
        }
        Some(Over { wr_id: wqe.wr_id, op: wqe.op, len: wqe.len })
    }

    /// Nothing that has begun is unfinished.
    pub(in crate::qp) fn is_drained(&self) -> bool {
        self.current == 0 && self.offset == 0
    }

    /// READs or atomics are posted and not over.
    pub(in crate::qp) fn has_rd_atomic(&self) -> bool {
        self.rd_atomic_posted > 0
    }

    /// Something was sent that only a response completes, and it has not come.
    pub(super) fn awaits_response(&self) -> bool {
        self.rd_atomic_out > 0
    }

    /// The oldest READ or atomic that was sent and not answered: its packet's number and segment.
    pub(super) fn oldest_unanswered(&self) -> Option<(u64, Segment)> {
        let sent = (0..self.current).filter_map(|i| self.sq.at(i));
        let mut waiting = sent.filter(|w| w.op.is_rd_atomic() && !w.is_answered);
        let wqe = waiting.next()?;
        Some((wqe.end? - 1, Segment { message: wqe.message, offset: 0, len: wqe.len }))
    }

    /// The unanswered READ or atomic that was sent as the packet `psn`.
    pub(super) fn asked_by(&self, psn: u32) -> Option<u32> {
        let sent = (0..self.current).filter_map(|i| self.sq.at(i));
        let mut waiting = sent.filter(|w| w.op.is_rd_atomic() && !w.is_answered);
        waiting.find(|w| w.end.is_some_and(|end| wrap(end - 1) == psn)).map(|w| w.message)
    }

    /// The oldest request's message number.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.sq.at(0).map(|w| w.message)
    }

    fn index(&self, message: u32) -> usize {
        usize_from(u64::from(message.wrapping_sub(self.first_message)))
    }

    fn wqe(&self, message: u32) -> Option<&Wqe> {
        self.sq.at(self.index(message))
    }

    fn wqe_mut(&mut self, message: u32) -> Option<&mut Wqe> {
        let index = self.index(message);
        self.sq.at_mut(index)
    }
}

impl Wqe {
    /// The segment is the last one of its request.
    fn ends(&self, segment: &Segment) -> bool {
        self.op.is_rd_atomic() || segment.offset + segment.len == self.len
    }

    fn finds_receive(&self, limit: Option<u32>) -> bool {
        // A serial comparison: numbers wrap.
        let is_there = |limit: u32| limit.wrapping_sub(self.receive).wrapping_sub(1) < 1 << 31;
        !self.op.completes_a_receive() || limit.is_none_or(is_there)
    }
}

fn kind(op: WrOp) -> SrKind {
    match op {
        WrOp::Send | WrOp::SendImm { .. } | WrOp::SendInv { .. } => SrKind::Send,
        WrOp::Write { .. } | WrOp::WriteImm { .. } => SrKind::Write,
        WrOp::Read { .. } => SrKind::ReadRequest,
        WrOp::FetchAdd { .. } => SrKind::FetchAdd,
        WrOp::CmpSwap { .. } => SrKind::CmpSwap,
    }
}

fn operands(remote: RemoteAddr, swap_or_add: u64, compare: u64) -> AtomicEthRepr {
    AtomicEthRepr { va: remote.va, rkey: remote.rkey, swap_or_add, compare }
}
