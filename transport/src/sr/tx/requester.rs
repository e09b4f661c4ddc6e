//! The requester: the next segment of the requests, and their completion.

mod invariants;
mod middle;

use super::plan::{Contents, Segment};
use crate::drop::DropReason;
use crate::mr::{MrTable, PdId};
use crate::payload::{Payload, PayloadMut};
use crate::qp::outcome::Completed;
use crate::qp::wq::{WorkQueue, Wqe};
use crate::sr::number::wrap;
use crate::verbs::{WorkRequest, WrOp};
use spanwire_base::usize_from;
use spanwire_wire::{RethRepr, SrDataRepr, SrKind};

/// The send queue. Messages are numbered from 0 in the order of posting, and so are those that use
/// a receive request of the peer.
#[derive(Debug)]
pub(in crate::sr) struct Requester {
    sq: WorkQueue<Request>,
    /// The number of the oldest request in `sq`.
    first_message: u32,
    next_message: u32,
    next_receive: u32,
    /// The index in `sq` of the request that is being sent, and its bytes sent.
    current: usize,
    offset: u32,
    /// READs and atomics that were sent and await a response.
    rd_atomic_out: u32,
    /// READs and atomics in `sq`.
    rd_atomic_posted: u32,
}

/// A send work request and the numbers of its message.
#[derive(Clone, Copy, Debug)]
struct Request {
    wqe: Wqe,
    message: u32,
    receive: u32,
    /// One past the number of its last packet, once that was sent.
    end: Option<u64>,
    /// Bytes of the responses that arrived.
    response_bytes: u32,
    is_response_complete: bool,
}

/// The limits of sending requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) segment_bytes: u32,
    pub(super) max_rd_atomic: u32,
    /// The peer's receive limit; none before the first ACK.
    pub(super) receive_limit: Option<u32>,
    /// A new request may begin.
    pub(super) begins_requests: bool,
}

/// The next segment to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Segment(Segment),
    /// No segment is posted, or the next request waits for a response.
    Idle,
    /// The peer has no receive request for this segment.
    NoReceive(Segment),
}

impl Requester {
    pub(in crate::sr) fn new(max_wr: u32, max_sge: u32, max_inline: u32) -> Self {
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

    pub(in crate::sr) fn is_full(&self) -> bool {
        self.sq.is_full()
    }

    pub(in crate::sr) fn is_empty(&self) -> bool {
        self.sq.len() == 0
    }

    /// Queues a checked work request of `len` bytes.
    pub(in crate::sr) fn post(&mut self, wr: &WorkRequest<'_>, len: u32) {
        let op = wr.op;
        let request = Request {
            wqe: Wqe::new(wr, len),
            message: self.next_message,
            receive: self.next_receive,
            end: None,
            response_bytes: 0,
            is_response_complete: false,
        };
        self.sq.push(request, wr.sges, wr.inline.unwrap_or_default());
        self.next_message = self.next_message.wrapping_add(1);
        self.rd_atomic_posted += u32::from(op.is_rd_atomic());
        if op.completes_a_receive() {
            self.next_receive = self.next_receive.wrapping_add(1);
        }
    }

    /// The next unsent segment.
    #[inline]
    pub(super) fn next(&self, allowance: &Allowance) -> Next {
        let Some(request) = self.sq.at(self.current) else { return Next::Idle };
        if self.offset == 0 {
            let waits = !allowance.begins_requests
                || request.wqe.fence && self.current > 0
                || request.wqe.op.is_rd_atomic() && self.rd_atomic_out >= allowance.max_rd_atomic;
            if waits {
                return Next::Idle;
            }
        }
        let len = match request.wqe.op.is_rd_atomic() {
            true => request.wqe.len,
            false => (request.wqe.len - self.offset).min(allowance.segment_bytes),
        };
        let segment = Segment { message: request.message, offset: self.offset, len };
        match request.has_receive_credit(allowance.receive_limit) {
            true => Next::Segment(segment),
            false => Next::NoReceive(segment),
        }
    }

    /// An unsent request, or part of one, is posted.
    pub(super) fn has_unsent(&self) -> bool {
        self.sq.at(self.current).is_some()
    }

    /// No data are posted after this segment.
    #[inline]
    pub(super) fn is_last_posted(&self, segment: &Segment) -> bool {
        self.request(segment.message).is_none_or(|r| r.is_last_segment(segment))
            && segment.message.wrapping_add(1) == self.next_message
    }

    /// The segment's request uses a receive request of the peer.
    pub(super) fn uses_receive(&self, segment: &Segment) -> bool {
        self.request(segment.message).is_some_and(|r| r.wqe.op.completes_a_receive())
    }

    /// Bytes of its request's data from this segment on; 0 if the request carries none.
    pub(super) fn remaining_data(&self, segment: &Segment) -> u32 {
        let request = self.request(segment.message).filter(|r| !r.wqe.op.is_rd_atomic());
        request.map_or(0, |r| r.wqe.len - segment.offset)
    }

    /// The peer has a receive request for this segment, or it needs none.
    #[inline]
    pub(super) fn has_receive_credit(&self, segment: &Segment, receive_limit: Option<u32>) -> bool {
        self.request(segment.message).is_none_or(|r| r.has_receive_credit(receive_limit))
    }

    /// The peer has a receive request for this packet, or it needs none.
    #[inline]
    pub(super) fn has_credit_for(&self, contents: &Contents, receive_limit: Option<u32>) -> bool {
        match contents {
            Contents::Request(segment) => self.has_receive_credit(segment, receive_limit),
            _ => true,
        }
    }

    /// The segment that [`Requester::next`] returned was sent as packet `number`.
    #[inline]
    pub(super) fn advance(&mut self, segment: &Segment, number: u64) {
        let Some(request) = self.sq.at_mut(self.current) else { return };
        debug_assert_eq!(request.message, segment.message, "it is the one that is being sent");
        if request.is_last_segment(segment) {
            request.end = Some(number + 1);
            self.rd_atomic_out += u32::from(request.wqe.op.is_rd_atomic());
            (self.current, self.offset) = (self.current + 1, 0);
        } else {
            self.offset += segment.len;
        }
    }

    /// The header of a segment; none if its request is complete.
    #[inline]
    pub(super) fn header(&self, segment: &Segment, psn: u32) -> Option<SrDataRepr> {
        let request = self.request(segment.message)?;
        let is_last = request.is_last_segment(segment);
        let mut header = SrDataRepr {
            first: segment.offset == 0,
            last: is_last,
            offset: segment.offset,
            ..SrDataRepr::new(kind(request.wqe.op), psn, request.message)
        };
        let op = request.wqe.op;
        header.reth = op.remote().filter(|_| !op.is_atomic()).map(|remote| {
            let va = remote.va.wrapping_add(segment.offset.into());
            RethRepr { va, rkey: remote.rkey, dma_len: segment.len }
        });
        let uses_receive = op.completes_a_receive() && (header.kind == SrKind::Send || is_last);
        header.receive = uses_receive.then_some(request.receive);
        header.atomic = op.operands();
        header.imm = request.wqe.op.imm().filter(|_| is_last);
        header.ieth = match request.wqe.op {
            WrOp::SendInv { rkey } if is_last => Some(rkey),
            _ => None,
        };
        Some(header)
    }

    /// The segment's packet is solicited.
    #[inline]
    pub(super) fn is_solicited(&self, segment: &Segment) -> bool {
        self.request(segment.message).is_some_and(|r| {
            r.wqe.solicited && r.wqe.op.completes_a_receive() && r.is_last_segment(segment)
        })
    }

    /// Copies the payload of a segment; false if its memory is no longer registered.
    #[inline]
    pub(super) fn gather(
        &self,
        segment: &Segment,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        let is_inline = self.request(segment.message).is_some_and(|r| r.wqe.is_inline);
        let i = self.index(segment.message);
        self.sq.gather(i, is_inline, segment.offset, payload, mrs)
    }

    /// The request is in the queue.
    pub(in crate::sr) fn contains(&self, message: u32) -> bool {
        self.request(message).is_some()
    }

    /// Scatters `data` from byte `offset` of the response to `message` on to the SGEs. `len` are
    /// its payload bytes, which an atomic's has none of. The inner error is the message whose
    /// memory is no longer registered.
    ///
    /// # Errors
    /// No such response is outstanding, or its range does not fit the request.
    #[inline(always)]
    pub(in crate::sr) fn place_response(
        &mut self,
        (message, kind): (u32, SrKind),
        (offset, len, last): (u32, u32, bool),
        data: Payload<'_>,
        mrs: (PdId, &MrTable),
    ) -> Result<Result<(), u32>, DropReason> {
        let index = self.index(message);
        let request = self.sq.at(index).filter(|request| request.expects_response(kind));
        if !request.ok_or(DropReason::ResponseToNothing)?.response_fits(offset, len, last) {
            return Err(DropReason::BadResponseLength);
        }
        if !self.sq.scatter_part(index, offset, data, mrs) {
            return Ok(Err(message));
        }
        let request = self.sq.at_mut(index).ok_or(DropReason::ResponseToNothing)?;
        request.response_bytes = request.response_bytes.saturating_add(len);
        if request.wqe.op.is_atomic() || request.response_bytes >= request.wqe.len {
            request.is_response_complete = true;
            self.rd_atomic_out = self.rd_atomic_out.saturating_sub(1);
        }
        Ok(Ok(()))
    }

    /// Removes the oldest request if it is complete: all packets before `una` have arrived, and its
    /// response.
    ///
    /// Returns it, and whether it is signaled.
    #[inline]
    pub(in crate::sr) fn pop_completed(&mut self, una: u64) -> Option<(Completed, bool)> {
        let oldest = self.sq.at(0)?;
        let arrived = oldest.end.is_some_and(|end| end <= una);
        let done = arrived && (oldest.is_response_complete || !oldest.wqe.op.is_rd_atomic());
        let signaled = oldest.wqe.signaled;
        if done { self.pop_oldest().map(|completed| (completed, signaled)) } else { None }
    }

    /// Removes the oldest request, complete or not.
    pub(in crate::sr) fn pop_oldest(&mut self) -> Option<Completed> {
        let request = self.sq.pop_front()?;
        let is_rd_atomic = request.wqe.op.is_rd_atomic();
        self.rd_atomic_posted -= u32::from(is_rd_atomic);
        // A request that is flushed awaits no response any more.
        let awaits = is_rd_atomic && request.end.is_some() && !request.is_response_complete;
        self.rd_atomic_out -= u32::from(awaits);
        self.first_message = self.first_message.wrapping_add(1);
        if self.current > 0 {
            self.current -= 1;
        } else {
            self.offset = 0;
        }
        Some(request.wqe.completed())
    }

    /// Every request that has begun is complete.
    pub(in crate::sr) fn is_drained(&self) -> bool {
        self.current == 0 && self.offset == 0
    }

    /// READs or atomics are posted and not complete.
    pub(in crate::sr) fn has_rd_atomic(&self) -> bool {
        self.rd_atomic_posted > 0
    }

    /// A READ or atomic was sent whose response has not arrived.
    pub(in crate::sr) fn awaits_response(&self) -> bool {
        self.rd_atomic_out > 0
    }

    /// The oldest outstanding READ or atomic: its packet's number and segment.
    pub(super) fn oldest_outstanding_rd_atomic(&self) -> Option<(u64, Segment)> {
        let sent = (0..self.current).filter_map(|i| self.sq.at(i));
        let mut waiting = sent.filter(|r| r.wqe.op.is_rd_atomic() && !r.is_response_complete);
        let request = waiting.next()?;
        Some((
            request.end? - 1,
            Segment { message: request.message, offset: 0, len: request.wqe.len },
        ))
    }

    /// The outstanding READ or atomic that was sent as the packet `psn`.
    pub(super) fn outstanding_rd_atomic(&self, psn: u32) -> Option<u32> {
        let sent = (0..self.current).filter_map(|i| self.sq.at(i));
        let mut waiting = sent.filter(|r| r.wqe.op.is_rd_atomic() && !r.is_response_complete);
        waiting.find(|r| r.end.is_some_and(|end| wrap(end - 1) == psn)).map(|r| r.message)
    }

    /// The oldest request's message number.
    pub(in crate::sr) fn oldest(&self) -> Option<u32> {
        self.sq.at(0).map(|r| r.message)
    }

    fn index(&self, message: u32) -> usize {
        usize_from(u64::from(message.wrapping_sub(self.first_message)))
    }

    fn request(&self, message: u32) -> Option<&Request> {
        self.sq.at(self.index(message))
    }
}

impl Request {
    /// The segment is the last one of its request.
    fn is_last_segment(&self, segment: &Segment) -> bool {
        self.wqe.op.is_rd_atomic() || segment.offset + segment.len == self.wqe.len
    }

    /// A response of this kind is outstanding.
    fn expects_response(&self, kind: SrKind) -> bool {
        let fits = match self.wqe.op {
            WrOp::Read { .. } => kind == SrKind::ReadResponse,
            WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => kind == SrKind::AtomicResponse,
            _ => false,
        };
        fits && self.end.is_some() && !self.is_response_complete
    }

    /// The range of a response lies within that of the request, and ends with it if and only if it
    /// is the last one.
    fn response_fits(&self, offset: u32, len: u32, last: bool) -> bool {
        match self.wqe.op {
            WrOp::Read { .. } => {
                let end = offset.checked_add(len);
                end.is_some_and(|end| end <= self.wqe.len && (end == self.wqe.len) == last)
            }
            _ => len == 0,
        }
    }

    fn has_receive_credit(&self, limit: Option<u32>) -> bool {
        // A serial comparison, because numbers wrap.
        let is_there = |limit: u32| limit.wrapping_sub(self.receive).wrapping_sub(1) < 1 << 31;
        !self.wqe.op.completes_a_receive() || limit.is_none_or(is_there)
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
