//! The responder: what a request does here.

use crate::attr::Mtu;
use crate::drop::DropReason;
use crate::mr::{Access, MrTable, PdId};
use crate::qp::ack::Owed;
use crate::qp::outcome::{Message, RequestOutcome};
use crate::qp::resources::{AtomicRequest, ReadRequest, Resources, packets};
use crate::qp::wq::WorkQueue;
use crate::verbs::RecvRequest;
use crate::wc::{WcOpcode, WcStatus};
use spanwire_wire::{
    AtomicEthRepr, NakCode, OpKind, Opcode, OpcodeProps, Packet, Psn, RethRepr, Syndrome,
};

/// The receive queue, the expected PSN and the message in progress.
#[derive(Debug)]
pub(crate) struct Responder {
    rq: WorkQueue<Rwqe>,
    pub(crate) resources: Resources,
    /// Expected PSN.
    epsn: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    inbound: Option<Inbound>,
    /// `epsn` was refused with a sequence or RNR NAK; what follows it is dropped until it comes.
    epsn_refused: bool,
    /// What the peer may do through this queue pair.
    access: Access,
    min_rnr_timer: u8,
}

/// A receive request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rwqe {
    pub(crate) wr_id: u64,
    /// Bytes of all its SGEs.
    len: u32,
}

/// A message of which some packets have come.
#[derive(Clone, Copy, Debug)]
struct Inbound {
    kind: OpKind,
    received: u32,
    /// Where a WRITE goes.
    reth: Option<RethRepr>,
}

/// The tables a request is checked against.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) mrs: &'a MrTable,
    pub(crate) pd: PdId,
    pub(crate) mtu: Mtu,
}

type Step = Result<(), RequestOutcome>;

impl Responder {
    pub(crate) fn new(max_wr: u32, max_sge: u32) -> Self {
        Self {
            rq: WorkQueue::new(max_wr, max_sge),
            resources: Resources::default(),
            epsn: Psn::new(0),
            msn: 0,
            inbound: None,
            epsn_refused: false,
            access: Access::default(),
            min_rnr_timer: 0,
        }
    }

    /// Starts to expect `psn`, answering up to `max_rd_atomic` READs and atomics at a time.
    pub(crate) fn start(&mut self, psn: Psn, max_rd_atomic: u8) {
        (self.epsn, self.msn) = (psn, 0);
        (self.inbound, self.epsn_refused) = (None, false);
        self.resources.start(max_rd_atomic);
    }

    pub(crate) fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    pub(crate) fn set_min_rnr_timer(&mut self, code: u8) {
        self.min_rnr_timer = code;
    }

    pub(crate) fn max_sge(&self) -> usize {
        self.rq.max_sge()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rq.is_full()
    }

    /// Queues a checked receive request of `len` bytes.
    pub(crate) fn post(&mut self, wr: &RecvRequest<'_>, len: u32) {
        self.rq.push(Rwqe { wr_id: wr.wr_id, len }, wr.sges);
    }

    /// Takes the oldest receive request out: for flushing.
    pub(crate) fn pop_recv(&mut self) -> Option<Rwqe> {
        self.rq.pop_front()
    }

    /// Stops answering and forgets the message in progress.
    pub(crate) fn stop(&mut self) {
        self.resources.stop();
        self.inbound = None;
    }

    /// Forgets the receive queue as well.
    pub(crate) fn reset(&mut self) {
        self.stop();
        self.rq.clear();
    }

    /// Takes one request packet through the steps, in the order rxe and IBTA's responder have them.
    /// The first step that objects ends it; nothing has changed then but what its outcome says.
    pub(crate) fn on_request(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> RequestOutcome {
        let steps = [
            Self::check_psn,
            Self::check_op_seq,
            Self::check_op_valid,
            Self::check_resource,
            Self::check_length,
            Self::check_rkey,
            Self::place_payload,
        ];
        for step in steps {
            if let Err(outcome) = step(self, p, ground) {
                return outcome;
            }
        }
        self.complete(p, ground)
    }

    fn check_psn(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> Step {
        match p.bth.psn.since(self.epsn) {
            0 => {
                self.epsn_refused = false;
                Ok(())
            }
            1.. if self.epsn_refused => Err(RequestOutcome::Drop(DropReason::AfterSequenceGap)),
            1.. => {
                self.epsn_refused = true;
                let reply = Owed::nak(self.epsn, NakCode::SequenceError, self.msn);
                Err(RequestOutcome::Gap { reply })
            }
            _ => Err(self.duplicate(p, ground)),
        }
    }

    /// A packet from before the expected PSN: a READ is answered again, an atomic gets its result
    /// again, everything else is only acknowledged again, with the newest PSN.
    fn duplicate(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> RequestOutcome {
        match (p.bth.opcode.props().kind, read_request(p)) {
            (OpKind::ReadRequest, Some(read)) if self.resources.repeat_read(&read, ground.mtu) => {
                RequestOutcome::Duplicate { reply: None }
            }
            (OpKind::ReadRequest, _) => RequestOutcome::Drop(DropReason::DuplicateReadForgotten),
            (OpKind::Atomic, _) => match atomic_request(p) {
                Some(atomic) if self.resources.repeat_atomic(&atomic) => {
                    RequestOutcome::Duplicate { reply: None }
                }
                _ => RequestOutcome::Drop(DropReason::DuplicateAtomicForgotten),
            },
            _ => {
                let reply = Some(Owed::ack(self.epsn.minus(1), self.msn));
                RequestOutcome::Duplicate { reply }
            }
        }
    }

    fn check_op_seq(&mut self, p: &Packet<'_>, _: Ground<'_>) -> Step {
        let props = p.bth.opcode.props();
        let fits = match self.inbound {
            None => starts(props),
            Some(inbound) => !starts(props) && inbound.kind == props.kind,
        };
        if fits { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    fn check_op_valid(&mut self, p: &Packet<'_>, _: Ground<'_>) -> Step {
        let props = p.bth.opcode.props();
        let allowed = match props.kind {
            OpKind::Send => !props.ieth,
            OpKind::Write => self.access.allows(Access::REMOTE_WRITE),
            OpKind::ReadRequest => self.access.allows(Access::REMOTE_READ),
            OpKind::Atomic => self.access.allows(Access::REMOTE_ATOMIC),
            _ => false,
        };
        if allowed { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    fn check_resource(&mut self, p: &Packet<'_>, _: Ground<'_>) -> Step {
        let props = p.bth.opcode.props();
        let consumes = match props.kind {
            OpKind::Send => props.first,
            OpKind::Write => props.imm,
            OpKind::ReadRequest | OpKind::Atomic => {
                return self
                    .resources
                    .check_room()
                    .map_err(|_| self.refuse(NakCode::InvalidRequest));
            }
            _ => false,
        };
        if consumes && self.rq.len() == 0 {
            self.epsn_refused = true;
            let syndrome = Syndrome::RnrNak { timer: self.min_rnr_timer };
            let reply = Owed { psn: self.epsn, syndrome, msn: self.msn };
            return Err(RequestOutcome::NotReady { reply });
        }
        Ok(())
    }

    fn check_length(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> Step {
        let props = p.bth.opcode.props();
        let (len, mtu) = (payload_len(p), ground.mtu.bytes());
        let shape = match (props.kind, props.first, props.last) {
            (OpKind::ReadRequest | OpKind::Atomic, ..) => len == 0,
            (_, _, false) => len == mtu,
            (_, true, true) => len <= mtu,
            (_, false, true) => (1..=mtu).contains(&len),
        };
        let after = self.received().saturating_add(len);
        let fits = match props.kind {
            OpKind::Send => {
                if self.rq.at(0).is_some_and(|r| after > r.len) {
                    return Err(self.refuse_recv(NakCode::InvalidRequest, WcStatus::LocLenErr));
                }
                true
            }
            OpKind::Write => self.reth(p).is_some_and(|r| {
                let complete = if props.last { after == r.dma_len } else { after < r.dma_len };
                complete && r.dma_len <= MAX_DMA_BYTES
            }),
            OpKind::Atomic => true,
            _ => read_request(p).is_some_and(|r| {
                r.len <= MAX_DMA_BYTES && packets(r.len, ground.mtu) < MAX_READ_PKTS
            }),
        };
        if shape && fits { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    /// A zero-length request touches no memory, so its key and address are not looked at (rxe does
    /// the same). A WRITE's first packet is checked for the whole message, every later one again
    /// for its own bytes: the region may have gone since.
    fn check_rkey(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> Step {
        let props = p.bth.opcode.props();
        let need = match props.kind {
            OpKind::Write => Access::REMOTE_WRITE,
            OpKind::ReadRequest => Access::REMOTE_READ,
            OpKind::Atomic => return self.check_atomic(p, ground),
            _ => return Ok(()),
        };
        let Some(reth) = self.reth(p) else {
            return Err(self.refuse(NakCode::InvalidRequest));
        };
        let (va, len) = match starts(props) {
            true => (reth.va, reth.dma_len),
            false => (reth.va.wrapping_add(self.received().into()), payload_len(p)),
        };
        if len == 0 {
            return Ok(());
        }
        match ground.mrs.remote(ground.pd, reth.rkey, va, len, need) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.refuse(NakCode::RemoteAccess)),
        }
    }

    /// The word's key and bounds first, then its alignment (rxe has the same order).
    fn check_atomic(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> Step {
        let Some(AtomicEthRepr { va, rkey, .. }) = p.ext.atomic else {
            return Err(self.refuse(NakCode::InvalidRequest));
        };
        let need = Access::REMOTE_ATOMIC;
        if ground.mrs.remote(ground.pd, rkey, va, WORD_BYTES, need).is_err() {
            return Err(self.refuse(NakCode::RemoteAccess));
        }
        let aligned = va.is_multiple_of(WORD_BYTES.into());
        if aligned { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    fn place_payload(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> Step {
        let (mrs, pd) = (ground.mrs, ground.pd);
        let len = payload_len(p);
        match p.bth.opcode.props().kind {
            OpKind::Send => {
                let placed = mrs.scatter(pd, self.rq.sges(0), self.received(), p.payload);
                placed
                    .map_err(|_| self.refuse_recv(NakCode::RemoteOperational, WcStatus::LocProtErr))
            }
            OpKind::Write if len > 0 => {
                let Some(reth) = self.reth(p) else {
                    return Err(self.refuse(NakCode::InvalidRequest));
                };
                let va = reth.va.wrapping_add(self.received().into());
                let placed = mrs
                    .remote(pd, reth.rkey, va, len, Access::REMOTE_WRITE)
                    .is_ok_and(|span| span.region.copy_in(span.offset, p.payload).is_ok());
                if placed { Ok(()) } else { Err(self.refuse(NakCode::RemoteAccess)) }
            }
            _ => Ok(()),
        }
    }

    /// The packet has been carried out: moves on, and tells what that completes.
    fn complete(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> RequestOutcome {
        let props = p.bth.opcode.props();
        match props.kind {
            OpKind::ReadRequest => return self.begin_read(p, ground),
            OpKind::Atomic => return self.execute_atomic(p, ground),
            _ => {}
        }
        let (psn, received) = (self.epsn, self.received() + payload_len(p));
        self.epsn = self.epsn.next();
        let reth = self.reth(p);
        let mut message = None;
        self.inbound = Some(Inbound { kind: props.kind, received, reth });
        if props.last {
            self.inbound = None;
            self.msn = next_msn(self.msn);
            let recv = match props.kind {
                OpKind::Send => self.rq.pop_front().map(|r| (r.wr_id, WcOpcode::Recv)),
                _ if props.imm => self.rq.pop_front().map(|r| (r.wr_id, WcOpcode::RecvRdmaWithImm)),
                _ => None,
            };
            let (imm, solicited) = (p.ext.imm, p.bth.solicited);
            message = Some(Message { recv, len: received, imm, solicited });
        }
        let reply = p.bth.ack_req.then(|| Owed::ack(psn, self.msn));
        RequestOutcome::Done { reply, message }
    }

    fn begin_read(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> RequestOutcome {
        let Some(read) = read_request(p) else {
            return self.refuse(NakCode::InvalidRequest);
        };
        self.msn = next_msn(self.msn);
        self.epsn = self.epsn.plus(packets(read.len, ground.mtu));
        self.resources.begin_read(read, self.msn);
        RequestOutcome::ReadBegun
    }

    fn execute_atomic(&mut self, p: &Packet<'_>, ground: Ground<'_>) -> RequestOutcome {
        let Some(request) = atomic_request(p) else {
            return self.refuse(NakCode::InvalidRequest);
        };
        let AtomicEthRepr { va, rkey, swap_or_add, compare } = request.operands;
        let found = ground
            .mrs
            .remote(ground.pd, rkey, va, WORD_BYTES, Access::REMOTE_ATOMIC)
            .ok()
            .and_then(|span| {
                let (region, offset) = (span.region, span.offset);
                let done = match request.opcode {
                    Opcode::RcCmpSwap => region.compare_swap(offset, compare, swap_or_add),
                    _ => region.fetch_add(offset, swap_or_add),
                };
                done.ok()
            });
        let Some(original) = found else {
            return self.refuse(NakCode::RemoteAccess);
        };
        self.msn = next_msn(self.msn);
        self.epsn = self.epsn.next();
        self.resources.begin_atomic(request, original, self.msn);
        RequestOutcome::AtomicDone
    }

    /// A NAK that ends the connection, for the packet at the expected PSN.
    pub(crate) fn refuse(&mut self, code: NakCode) -> RequestOutcome {
        let reply = Owed::nak(self.epsn, code, self.msn);
        RequestOutcome::Refused { reply, recv: None }
    }

    /// As [`Responder::refuse`], and the receive request at the head fails too.
    fn refuse_recv(&mut self, code: NakCode, status: WcStatus) -> RequestOutcome {
        let reply = Owed::nak(self.epsn, code, self.msn);
        let recv = self.rq.pop_front().map(|r| (r.wr_id, status));
        RequestOutcome::Refused { reply, recv }
    }

    fn received(&self) -> u32 {
        self.inbound.map_or(0, |i| i.received)
    }

    /// The RETH of the message that `p` belongs to.
    fn reth(&self, p: &Packet<'_>) -> Option<RethRepr> {
        p.ext.reth.or_else(|| self.inbound.and_then(|i| i.reth))
    }
}

fn starts(props: &OpcodeProps) -> bool {
    props.first || matches!(props.kind, OpKind::ReadRequest | OpKind::Atomic)
}

fn payload_len(p: &Packet<'_>) -> u32 {
    spanwire_base::u32_from(p.payload.len())
}

fn read_request(p: &Packet<'_>) -> Option<ReadRequest> {
    let RethRepr { va, rkey, dma_len } = p.ext.reth?;
    Some(ReadRequest { psn: p.bth.psn, va, rkey, len: dma_len })
}

fn atomic_request(p: &Packet<'_>) -> Option<AtomicRequest> {
    Some(AtomicRequest { psn: p.bth.psn, opcode: p.bth.opcode, operands: p.ext.atomic? })
}

fn next_msn(msn: u32) -> u32 {
    (msn + 1) & Psn::MASK
}

/// IBTA: a message is at most 2^31 bytes.
const MAX_DMA_BYTES: u32 = 1 << 31;
/// What an atomic operation works on.
const WORD_BYTES: u32 = 8;
/// Half the PSN space: beyond it, before and after cannot be told apart.
const MAX_READ_PKTS: u32 = 1 << 23;

#[cfg(test)]
mod tests;
