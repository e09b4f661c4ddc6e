//! The responder: places data in any order, and executes in order the operations that require it.

mod in_order;
mod invariants;

use crate::event::Events;
use crate::mr::{Access, MrTable, PdId};
use crate::payload::Payload;
use crate::qp::common::{Common, Shared};
use crate::qp::outcome::Message;
use crate::qp::receive::Receive;
use crate::qp::remote::{AtomicRequest, MAX_DMA_BYTES, ReadRequest};
use crate::sr::crossing::{AtomicToRespond, ReadToRespond};
use crate::sr::number::wrap;
use crate::srq::SrqTable;
use crate::wc::{WcOpcode, WcStatus};
use spanwire_wire::{NakCode, RethRepr, SrDataRepr, SrKind};
use std::collections::VecDeque;

/// The messages of which a packet has arrived.
///
/// There is one record for each receive request that a packet named, at most as many as are posted,
/// and one for each pending READ and atomic, at most `max_dest_rd_atomic`.
#[derive(Debug)]
pub(in crate::sr) struct Responder {
    /// The number of the oldest receive request that is not completed.
    first_receive: u32,
    /// The progress of each receive request from `first_receive` on.
    progress: VecDeque<Progress>,
    /// Operations to execute once all packets before them have arrived, in packet order.
    pending: VecDeque<(u64, Pending)>,
    rd_atomic_pending: usize,
    rd_atomic_max: usize,
    /// One past the highest receive number that a packet named.
    named_receive_end: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    bytes: u32,
    /// The message's last packet has arrived.
    has_last: bool,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    MessageEnd(MessageEnd),
    Read { message: u32, request: ReadRequest },
    Atomic { message: u32, request: AtomicRequest },
}

/// The end of a message that completes a receive request.
#[derive(Clone, Copy, Debug)]
struct MessageEnd {
    receive: u32,
    opcode: WcOpcode,
    len: u32,
    imm: Option<u32>,
    invalidates: Option<u32>,
    solicited: bool,
}

/// The tables that a packet's checks and execution need.
pub(in crate::sr) struct Context<'a> {
    pub(in crate::sr) mrs: &'a mut MrTable,
    pub(in crate::sr) srqs: &'a mut SrqTable,
    pub(in crate::sr) events: &'a mut Events,
    pub(in crate::sr) receive: &'a mut Receive,
    pub(in crate::sr) pd: PdId,
    pub(in crate::sr) access: Access,
}

impl<'a> Context<'a> {
    #[inline]
    pub(in crate::sr) fn new(qp: &'a mut Common, sh: &'a mut Shared) -> Self {
        Self {
            mrs: &mut sh.mrs,
            srqs: &mut sh.srqs,
            events: &mut sh.events,
            receive: &mut qp.receive,
            pd: qp.pd,
            access: qp.access,
        }
    }
}

/// A source packet that was missing.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct ReceivedPacket<'a> {
    pub(in crate::sr) number: u64,
    /// All data before it have arrived.
    pub(in crate::sr) in_order: bool,
    pub(in crate::sr) header: &'a SrDataRepr,
    pub(in crate::sr) data: Payload<'a>,
    pub(in crate::sr) solicited: bool,
}

/// The reason why a packet is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Rejection {
    /// No receive request is posted for it yet.
    NoReceive,
    /// It violates a rule. If there is a status, the receive request that it names fails with it.
    Refused(NakCode, Option<WcStatus>),
}

/// An operation that is in order: all packets before it have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr) enum InOrderAction {
    Deliver(Message),
    Read(ReadToRespond),
    Atomic(AtomicToRespond),
    Refused(NakCode),
}

impl Responder {
    pub(in crate::sr) fn new(rd_atomic_max: u8) -> Self {
        Self {
            first_receive: 0,
            progress: VecDeque::new(),
            pending: VecDeque::new(),
            rd_atomic_pending: 0,
            rd_atomic_max: rd_atomic_max.into(),
            named_receive_end: 0,
        }
    }

    /// Sets the limit of the peer's outstanding READs and atomics.
    pub(in crate::sr) fn set_rd_atomic_max(&mut self, max: u8) {
        self.rd_atomic_max = max.into();
    }

    /// READs and atomics that have arrived out of order.
    pub(in crate::sr) fn rd_atomic_pending(&self) -> usize {
        self.rd_atomic_pending
    }

    /// The number of the oldest receive request that is not completed.
    pub(in crate::sr) fn first_receive(&self) -> u32 {
        self.first_receive
    }

    /// A packet named the last receive request below `limit`, or one beyond it. Its sender may have
    /// no receive credit left.
    pub(in crate::sr) fn exhausts(&self, limit: u32) -> bool {
        self.named_receive_end.wrapping_sub(limit) < 1 << 31
    }

    /// Checks a request's packet, places its data, and queues the operation that it completes.
    #[inline]
    pub(in crate::sr) fn place(
        &mut self,
        a: &ReceivedPacket<'_>,
        responding: usize,
        ctx: &mut Context<'_>,
    ) -> Result<(), Rejection> {
        match a.header.kind {
            SrKind::Send => self.place_send(a, ctx),
            SrKind::Write => self.place_write(a, ctx),
            SrKind::ReadRequest | SrKind::FetchAdd | SrKind::CmpSwap => {
                if self.rd_atomic_pending + responding >= self.rd_atomic_max || a.data.len() > 0 {
                    return Err(INVALID);
                }
                self.enqueue(a.number, read_or_atomic(a.header).ok_or(INVALID)?);
                self.rd_atomic_pending += 1;
                Ok(())
            }
            SrKind::ReadResponse | SrKind::AtomicResponse => Err(INVALID),
        }
    }

    /// The next operation in order, and the number of its packet; all packets before `next` have
    /// arrived. Atomics are executed and READs checked; the caller delivers messages.
    #[inline]
    pub(in crate::sr) fn next_in_order(
        &mut self,
        next: u64,
        ctx: &mut Context<'_>,
    ) -> Option<(u64, InOrderAction)> {
        let (number, pending) = *self.pending.front().filter(|(number, _)| *number < next)?;
        self.pending.pop_front();
        let done = match pending {
            Pending::MessageEnd(end) => self.complete_message(&end, ctx),
            Pending::Read { message, request } => {
                self.rd_atomic_pending -= 1;
                let request_psn = wrap(number);
                let read = ReadToRespond { message, request_psn, request };
                check_read(&request, ctx).map(|()| InOrderAction::Read(read))
            }
            Pending::Atomic { message, request } => {
                self.rd_atomic_pending -= 1;
                let original = execute_atomic(&request, ctx);
                original
                    .map(|original| InOrderAction::Atomic(AtomicToRespond { message, original }))
            }
        };
        Some((number, done.unwrap_or_else(InOrderAction::Refused)))
    }

    /// Writes the payload of a WRITE's packet at byte `offset` of its message, if it may.
    #[inline(always)]
    pub(in crate::sr) fn write(
        &self,
        reth: &RethRepr,
        offset: u32,
        data: Payload<'_>,
        ctx: &Context<'_>,
    ) -> Result<(), Rejection> {
        let len = data.len();
        let fits = reth.dma_len == len && offset.checked_add(len).is_some();
        if !fits || !ctx.access.allows(Access::REMOTE_WRITE) {
            return Err(INVALID);
        }
        if len > 0 {
            let span = ctx.mrs.remote(ctx.pd, reth.rkey, reth.va, len, Access::REMOTE_WRITE);
            if !span.is_ok_and(|span| span.put(data)) {
                return Err(Rejection::Refused(NakCode::RemoteAccess, None));
            }
        }
        Ok(())
    }

    fn place_send(
        &mut self,
        a: &ReceivedPacket<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Rejection> {
        let header = a.header;
        let at = self.find_receive(a, ctx)?;
        let end = header.offset.checked_add(a.data.len()).ok_or(INVALID)?;
        let (pd, rwqe, sges) = ctx.receive.at(at).ok_or(Rejection::NoReceive)?;
        if end > rwqe.len {
            return Err(Rejection::Refused(NakCode::InvalidRequest, Some(WcStatus::LocLenErr)));
        }
        if header.ieth.is_some_and(|rkey| ctx.mrs.check_invalidate(ctx.pd, rkey).is_err()) {
            return Err(Rejection::Refused(NakCode::RemoteAccess, None));
        }
        if ctx.mrs.scatter(pd, sges, header.offset, a.data).is_err() {
            return Err(Rejection::Refused(NakCode::RemoteOperational, Some(WcStatus::LocProtErr)));
        }
        let progress = self.progress(at);
        progress.bytes = progress.bytes.saturating_add(a.data.len());
        if header.last {
            progress.has_last = true;
            self.enqueue(a.number, Pending::MessageEnd(message_end(a, WcOpcode::Recv, end)));
        }
        Ok(())
    }

    fn place_write(
        &mut self,
        a: &ReceivedPacket<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Rejection> {
        if !ctx.access.allows(Access::REMOTE_WRITE) {
            return Err(INVALID);
        }
        let at = match a.header.receive {
            Some(_) => Some(self.find_receive(a, ctx)?),
            None => None,
        };
        let reth = a.header.reth.ok_or(INVALID)?;
        self.write(&reth, a.header.offset, a.data, ctx)?;
        if let Some(at) = at {
            self.progress(at).has_last = true;
            let end = a.header.offset + a.data.len();
            self.enqueue(
                a.number,
                Pending::MessageEnd(message_end(a, WcOpcode::RecvRdmaWithImm, end)),
            );
        }
        Ok(())
    }

    /// Finds the receive request that a packet names. Returns its index from the oldest on.
    fn find_receive(
        &mut self,
        a: &ReceivedPacket<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<u32, Rejection> {
        let receive = a.header.receive.ok_or(INVALID)?;
        let at = receive.wrapping_sub(self.first_receive);
        // If the packet is in order, all messages before it are delivered, so it must name the
        // oldest receive request.
        if at >= 1 << 31 || a.in_order && at > 0 {
            return Err(INVALID);
        }
        self.name_receive(receive);
        if !ctx.receive.reach(at, ctx.srqs, ctx.events) {
            return Err(Rejection::NoReceive);
        }
        if self.progress(at).has_last && a.header.last { Err(INVALID) } else { Ok(at) }
    }

    /// A packet named this receive request.
    #[inline]
    fn name_receive(&mut self, receive: u32) {
        let named = receive.wrapping_add(1);
        if named.wrapping_sub(self.named_receive_end) < 1 << 31 {
            self.named_receive_end = named;
        }
    }

    fn progress(&mut self, at: u32) -> &mut Progress {
        let at = at as usize;
        if at >= self.progress.len() {
            self.progress.resize(at + 1, Progress::default());
        }
        &mut self.progress[at]
    }

    fn enqueue(&mut self, number: u64, pending: Pending) {
        let place = self.pending.partition_point(|(other, _)| *other < number);
        self.pending.insert(place, (number, pending));
    }

    /// Completes a message. Each packet was checked on its own before; here the sum of their bytes
    /// must equal the message's length.
    fn complete_message(
        &mut self,
        e: &MessageEnd,
        ctx: &mut Context<'_>,
    ) -> Result<InOrderAction, NakCode> {
        let bytes = self.progress.front().map(|p| p.bytes);
        let adds_up = e.opcode != WcOpcode::Recv || bytes == Some(e.len);
        if e.receive != self.first_receive || !adds_up {
            return Err(NakCode::InvalidRequest);
        }
        if let Some(rkey) = e.invalidates {
            // Another message may have invalidated the rkey since this packet arrived.
            ctx.mrs.check_invalidate(ctx.pd, rkey).map_err(|_| NakCode::RemoteAccess)?;
            ctx.mrs.invalidate(rkey);
        }
        self.first_receive = self.first_receive.wrapping_add(1);
        self.progress.pop_front();
        let recv = ctx.receive.pop(ctx.srqs).map(|r| (r.wr_id, e.opcode));
        let &MessageEnd { len, imm, invalidates: invalidated_rkey, solicited, .. } = e;
        Ok(InOrderAction::Deliver(Message { recv, len, imm, invalidated_rkey, solicited }))
    }
}

fn message_end(a: &ReceivedPacket<'_>, opcode: WcOpcode, len: u32) -> MessageEnd {
    let &SrDataRepr { imm, ieth: invalidates, .. } = a.header;
    let receive = a.header.receive.unwrap_or_default();
    MessageEnd { receive, opcode, len, imm, invalidates, solicited: a.solicited }
}

fn read_or_atomic(header: &SrDataRepr) -> Option<Pending> {
    let message = header.message;
    match header.kind {
        SrKind::ReadRequest => {
            let reth = header.reth?;
            let (va, rkey, len) = (reth.va, reth.rkey, reth.dma_len);
            Some(Pending::Read { message, request: ReadRequest { va, rkey, len } })
        }
        kind => {
            let is_compare_swap = kind == SrKind::CmpSwap;
            let operands = header.atomic?;
            let request = AtomicRequest { is_compare_swap, operands };
            Some(Pending::Atomic { message, request })
        }
    }
}

fn check_read(request: &ReadRequest, ctx: &Context<'_>) -> Result<(), NakCode> {
    if !ctx.access.allows(Access::REMOTE_READ) || request.len > MAX_DMA_BYTES {
        return Err(NakCode::InvalidRequest);
    }
    request.check(ctx.pd, ctx.mrs)
}

fn execute_atomic(request: &AtomicRequest, ctx: &Context<'_>) -> Result<u64, NakCode> {
    if !ctx.access.allows(Access::REMOTE_ATOMIC) {
        return Err(NakCode::InvalidRequest);
    }
    request.check(ctx.pd, ctx.mrs)?;
    request.execute(ctx.pd, ctx.mrs)
}

const INVALID: Rejection = Rejection::Refused(NakCode::InvalidRequest, None);
