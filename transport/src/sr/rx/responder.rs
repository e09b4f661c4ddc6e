//! The responder: puts what comes where it belongs, in any order, and carries out in order what
//! must be.

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
use spanwire_wire::{NakCode, SrDataRepr, SrKind};
use std::collections::VecDeque;

/// Messages of which something has come.
///
/// A record for each receive request named, at most as many as there are, and one for each READ and
/// atomic that waits for its turn, at most `max_dest_rd_atomic`.
#[derive(Debug)]
pub(in crate::sr) struct Responder {
    /// The number of the oldest receive request that is not used up.
    first_receive: u32,
    /// What has come for each from there on.
    progress: VecDeque<Progress>,
    /// What is done once everything before it has arrived, in the order of the packets.
    waiting: VecDeque<(u64, Waiting)>,
    rd_atomic_waiting: usize,
    rd_atomic_max: usize,
    /// One past the highest receive number that any packet named.
    receives_named: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    bytes: u32,
    /// The message's last packet is here.
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    Ending(Ending),
    Read { message: u32, request: ReadRequest },
    Atomic { message: u32, request: AtomicRequest },
}

/// The end of a message that uses a receive request up.
#[derive(Clone, Copy, Debug)]
struct Ending {
    receive: u32,
    opcode: WcOpcode,
    len: u32,
    imm: Option<u32>,
    invalidates: Option<u32>,
    solicited: bool,
}

/// The tables that a packet is checked against and carried out on.
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
    pub(in crate::sr) fn new(qp: &'a mut Common, sh: &'a mut Shared<'_>) -> Self {
        Self {
            mrs: &mut *sh.mrs,
            srqs: &mut *sh.srqs,
            events: &mut *sh.events,
            receive: &mut qp.receive,
            pd: qp.pd,
            access: qp.access,
        }
    }
}

/// One packet of data, judged missing.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct Arrived<'a> {
    pub(in crate::sr) number: u64,
    /// Everything before it has arrived.
    pub(in crate::sr) in_order: bool,
    pub(in crate::sr) header: &'a SrDataRepr,
    pub(in crate::sr) data: Payload<'a>,
    pub(in crate::sr) solicited: bool,
}

/// Why a packet is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Rejection {
    /// There is no receive request for it yet.
    NoReceive,
    /// It breaks a rule. The receive request it names fails with the status, if there is one.
    Refused(NakCode, Option<WcStatus>),
}

/// What is due now that everything before it has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Due {
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
            waiting: VecDeque::new(),
            rd_atomic_waiting: 0,
            rd_atomic_max: rd_atomic_max.into(),
            receives_named: 0,
        }
    }

    /// How many READs and atomics the peer may have here from now on.
    pub(in crate::sr) fn set_rd_atomic_max(&mut self, max: u8) {
        self.rd_atomic_max = max.into();
    }

    /// READs and atomics that have come and wait for what is missing before them.
    pub(in crate::sr) fn rd_atomic_waiting(&self) -> usize {
        self.rd_atomic_waiting
    }

    /// The number of the oldest receive request that is not used up.
    pub(in crate::sr) fn first_receive(&self) -> u32 {
        self.first_receive
    }

    /// Some packet named a receive request at or above `limit`, or the last one below it: its
    /// sender may be waiting for more.
    pub(in crate::sr) fn has_reached(&self, limit: u32) -> bool {
        self.receives_named.wrapping_sub(limit) < 1 << 31
    }

    /// Puts the data of a request's packet where they belong.
    #[inline]
    pub(in crate::sr) fn place(
        &mut self,
        a: &Arrived<'_>,
        answering: usize,
        g: &mut Context<'_>,
    ) -> Result<(), Rejection> {
        match a.header.kind {
            SrKind::Send => self.place_send(a, g),
            SrKind::Write => self.place_write(a, g),
            SrKind::ReadRequest | SrKind::FetchAdd | SrKind::CmpSwap => {
                if self.rd_atomic_waiting + answering >= self.rd_atomic_max || a.data.len() > 0 {
                    return Err(INVALID);
                }
                self.wait(a.number, read_or_atomic(a.header).ok_or(INVALID)?);
                self.rd_atomic_waiting += 1;
                Ok(())
            }
            SrKind::ReadResponse | SrKind::AtomicResponse => Err(INVALID),
        }
    }

    /// What is next of that which is due when everything before the packet `next` has arrived, and
    /// the number of its packet. It has been carried out then, but for delivery.
    #[inline]
    pub(in crate::sr) fn next_due(&mut self, next: u64, g: &mut Context<'_>) -> Option<(u64, Due)> {
        let (number, waiting) = *self.waiting.front().filter(|(number, _)| *number < next)?;
        self.waiting.pop_front();
        let done = match waiting {
            Waiting::Ending(ending) => self.end(&ending, g),
            Waiting::Read { message, request } => {
                self.rd_atomic_waiting -= 1;
                let request_psn = wrap(number);
                let read = ReadToRespond { message, request_psn, request };
                check_read(&request, g).map(|()| Due::Read(read))
            }
            Waiting::Atomic { message, request } => {
                self.rd_atomic_waiting -= 1;
                let original = execute_atomic(&request, g);
                original.map(|original| Due::Atomic(AtomicToRespond { message, original }))
            }
        };
        Some((number, done.unwrap_or_else(Due::Refused)))
    }

    fn place_send(&mut self, a: &Arrived<'_>, g: &mut Context<'_>) -> Result<(), Rejection> {
        let header = a.header;
        let at = self.reach(a, g)?;
        let end = header.offset.checked_add(a.data.len()).ok_or(INVALID)?;
        let (pd, rwqe, sges) = g.receive.at(at).ok_or(Rejection::NoReceive)?;
        if end > rwqe.len {
            return Err(Rejection::Refused(NakCode::InvalidRequest, Some(WcStatus::LocLenErr)));
        }
        if header.ieth.is_some_and(|rkey| g.mrs.check_invalidate(g.pd, rkey).is_err()) {
            return Err(Rejection::Refused(NakCode::RemoteAccess, None));
        }
        if g.mrs.scatter(pd, sges, header.offset, a.data).is_err() {
            return Err(Rejection::Refused(NakCode::RemoteOperational, Some(WcStatus::LocProtErr)));
        }
        let progress = self.progress(at);
        progress.bytes = progress.bytes.saturating_add(a.data.len());
        if header.last {
            progress.ended = true;
            self.wait(a.number, Waiting::Ending(ending(a, WcOpcode::Recv, end)));
        }
        Ok(())
    }

    fn place_write(&mut self, a: &Arrived<'_>, g: &mut Context<'_>) -> Result<(), Rejection> {
        if !g.access.allows(Access::REMOTE_WRITE) {
            return Err(INVALID);
        }
        let at = match a.header.receive {
            Some(_) => Some(self.reach(a, g)?),
            None => None,
        };
        let len = a.data.len();
        let end = a.header.offset.checked_add(len).ok_or(INVALID)?;
        let reth = a.header.reth.filter(|r| r.dma_len == len).ok_or(INVALID)?;
        if len > 0 {
            let span = g.mrs.remote(g.pd, reth.rkey, reth.va, len, Access::REMOTE_WRITE);
            if !span.is_ok_and(|span| span.put(a.data)) {
                return Err(Rejection::Refused(NakCode::RemoteAccess, None));
            }
        }
        if let Some(at) = at {
            self.progress(at).ended = true;
            self.wait(a.number, Waiting::Ending(ending(a, WcOpcode::RecvRdmaWithImm, end)));
        }
        Ok(())
    }

    /// Finds the receive request that a packet names: its place from the oldest on.
    fn reach(&mut self, a: &Arrived<'_>, g: &mut Context<'_>) -> Result<u32, Rejection> {
        let receive = a.header.receive.ok_or(INVALID)?;
        let at = receive.wrapping_sub(self.first_receive);
        // In order, everything before it has been delivered: it is the oldest one's turn.
        if at >= 1 << 31 || a.in_order && at > 0 {
            return Err(INVALID);
        }
        let named = receive.wrapping_add(1);
        if named.wrapping_sub(self.receives_named) < 1 << 31 {
            self.receives_named = named;
        }
        if !g.receive.reach(at, g.srqs, g.events) {
            return Err(Rejection::NoReceive);
        }
        if self.progress(at).ended && a.header.last { Err(INVALID) } else { Ok(at) }
    }

    fn progress(&mut self, at: u32) -> &mut Progress {
        let at = at as usize;
        if at >= self.progress.len() {
            self.progress.resize(at + 1, Progress::default());
        }
        &mut self.progress[at]
    }

    fn wait(&mut self, number: u64, what: Waiting) {
        let place = self.waiting.partition_point(|(other, _)| *other < number);
        self.waiting.insert(place, (number, what));
    }

    /// A message is complete. The packets before it were each judged on their own; here they must
    /// add up.
    fn end(&mut self, e: &Ending, g: &mut Context<'_>) -> Result<Due, NakCode> {
        let bytes = self.progress.front().map(|p| p.bytes);
        let adds_up = e.opcode != WcOpcode::Recv || bytes == Some(e.len);
        if e.receive != self.first_receive || !adds_up {
            return Err(NakCode::InvalidRequest);
        }
        if let Some(rkey) = e.invalidates {
            // Another message may have taken it since this packet came.
            g.mrs.check_invalidate(g.pd, rkey).map_err(|_| NakCode::RemoteAccess)?;
            g.mrs.invalidate(rkey);
        }
        self.first_receive = self.first_receive.wrapping_add(1);
        self.progress.pop_front();
        let recv = g.receive.pop(g.srqs).map(|r| (r.wr_id, e.opcode));
        let &Ending { len, imm, invalidates: invalidated_rkey, solicited, .. } = e;
        Ok(Due::Deliver(Message { recv, len, imm, invalidated_rkey, solicited }))
    }
}

fn ending(a: &Arrived<'_>, opcode: WcOpcode, len: u32) -> Ending {
    let &SrDataRepr { imm, ieth: invalidates, .. } = a.header;
    let receive = a.header.receive.unwrap_or_default();
    Ending { receive, opcode, len, imm, invalidates, solicited: a.solicited }
}

fn read_or_atomic(header: &SrDataRepr) -> Option<Waiting> {
    let message = header.message;
    match header.kind {
        SrKind::ReadRequest => {
            let reth = header.reth?;
            let (va, rkey, len) = (reth.va, reth.rkey, reth.dma_len);
            Some(Waiting::Read { message, request: ReadRequest { va, rkey, len } })
        }
        kind => {
            let is_compare_swap = kind == SrKind::CmpSwap;
            let operands = header.atomic?;
            let request = AtomicRequest { is_compare_swap, operands };
            Some(Waiting::Atomic { message, request })
        }
    }
}

fn check_read(request: &ReadRequest, g: &Context<'_>) -> Result<(), NakCode> {
    if !g.access.allows(Access::REMOTE_READ) || request.len > MAX_DMA_BYTES {
        return Err(NakCode::InvalidRequest);
    }
    request.check(g.pd, g.mrs)
}

fn execute_atomic(request: &AtomicRequest, g: &Context<'_>) -> Result<u64, NakCode> {
    if !g.access.allows(Access::REMOTE_ATOMIC) {
        return Err(NakCode::InvalidRequest);
    }
    request.check(g.pd, g.mrs)?;
    request.execute(g.pd, g.mrs)
}

const INVALID: Rejection = Rejection::Refused(NakCode::InvalidRequest, None);
