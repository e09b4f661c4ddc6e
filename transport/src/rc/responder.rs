//! The responder: checks and executes requests. The checks are in `responder/checks.rs`, the
//! execution in `responder/execute.rs`.

mod checks;
mod execute;

use super::ack::PendingAck;
use super::outcome::RequestOutcome;
use super::resources::{AtomicAtPsn, ReadAtPsn, Resources};
use crate::attr::{Mtu, QpAttr};
use crate::drop::DropReason;
use crate::event::Events;
use crate::mr::{Access, MrTable, PdId, Resolved};
use crate::payload::Payload;
use crate::qp::common::{Common, Shared};
use crate::qp::outcome::Message;
use crate::qp::receive::Receive;
use crate::qp::remote::{AtomicRequest, MAX_DMA_BYTES, ReadRequest};
use crate::srq::SrqTable;
use crate::wc::{WcOpcode, WcStatus};
use spanwire_wire::{NakCode, OpKind, Opcode, OpcodeProps, Packet, PlainRc, Psn, RethRepr};

/// The expected PSN, the message in progress and responder resources.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) resources: Resources,
    /// Expected PSN.
    epsn: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    inbound: Option<MessageProgress>,
    /// A sequence or RNR NAK of `epsn` was sent. Later packets are dropped until `epsn` arrives.
    epsn_refused: bool,
}

/// A message of which some packets have arrived.
#[derive(Clone, Copy, Debug)]
struct MessageProgress {
    kind: OpKind,
    received: u32,
    /// The target of a WRITE.
    reth: Option<RethRepr>,
    /// Its memory, once a middle packet has arrived.
    resolved: Option<Resolved>,
}

/// The state that a request is checked against and executed on.
pub(crate) struct Context<'a> {
    pub(crate) mrs: &'a mut MrTable,
    pub(crate) srqs: &'a mut SrqTable,
    pub(crate) events: &'a mut Events,
    pub(crate) receive: &'a mut Receive,
    pub(crate) pd: PdId,
    pub(crate) mtu: Mtu,
    /// The peer's access rights through this queue pair.
    pub(crate) access: Access,
    pub(crate) attr: &'a QpAttr,
}

impl<'a> Context<'a> {
    #[inline]
    pub(crate) fn new(qp: &'a mut Common, sh: &'a mut Shared) -> Self {
        Self {
            mrs: &mut sh.mrs,
            srqs: &mut sh.srqs,
            events: &mut sh.events,
            receive: &mut qp.receive,
            pd: qp.pd,
            mtu: qp.mtu,
            access: qp.access,
            attr: &qp.attr,
        }
    }
}

type Step = Result<(), RequestOutcome>;

impl Responder {
    /// Creates a responder that expects `psn` and accepts up to `max_rd_atomic` outstanding READs
    /// and atomics.
    pub(crate) fn new(psn: Psn, max_rd_atomic: u8) -> Self {
        let mut resources = Resources::default();
        resources.start(max_rd_atomic);
        Self { resources, epsn: psn, msn: 0, inbound: None, epsn_refused: false }
    }

    /// Stops responding and drops the message in progress.
    pub(crate) fn stop(&mut self) {
        self.resources.stop();
        self.inbound = None;
    }

    /// Checks and executes one request packet, in the order of steps of rxe and of IBTA's
    /// responder. The first step that fails ends it; nothing has changed then except for its
    /// outcome.
    // One caller; out of line, the outcome would be returned through memory.
    #[inline]
    pub(crate) fn on_request(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> RequestOutcome {
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
            if let Err(outcome) = step(self, p, g) {
                return outcome;
            }
        }
        match p.bth.opcode.props().kind {
            OpKind::ReadRequest => self.begin_read(p, g),
            OpKind::Atomic => self.execute_atomic(p, g),
            _ => self.advance(p, g),
        }
    }

    /// As [`Responder::on_request`], for the middle packet of a SEND or WRITE that is expected, if
    /// it has no fault: the ACK that it requests. `None`, and nothing has changed, for any other.
    #[inline]
    pub(crate) fn on_middle(
        &mut self,
        middle: &PlainRc<'_>,
        payload: Payload<'_>,
        g: &mut Context<'_>,
        is_valid: impl FnOnce() -> bool,
    ) -> Option<Option<PendingAck>> {
        let inbound = self.inbound.as_mut().filter(|_| middle.psn == self.epsn)?;
        let len = payload.len();
        let received = inbound.received.checked_add(len).filter(|_| len == g.mtu.bytes())?;
        is_valid().then_some(())?;
        match (middle.opcode, inbound.kind) {
            (Opcode::RcWriteMiddle, OpKind::Write) => {
                let reth =
                    inbound.reth.as_ref().filter(|_| g.access.allows(Access::REMOTE_WRITE))?;
                if inbound.resolved.is_none_or(|of| !g.mrs.is_current(&of)) {
                    let (range, need) = ((reth.va, reth.dma_len), Access::REMOTE_WRITE);
                    inbound.resolved = g.mrs.resolve_remote(g.pd, reth.rkey, range, need);
                }
                let span = g.mrs.part(inbound.resolved.as_ref()?, inbound.received, len)?;
                let fits = received < reth.dma_len && reth.dma_len <= MAX_DMA_BYTES;
                (fits && span.put(payload)).then_some(())?;
            }
            (Opcode::RcSendMiddle, OpKind::Send) => {
                let (pd, _, sges) = g.receive.taken().filter(|(_, r, _)| received <= r.len)?;
                g.mrs.scatter(pd, sges, inbound.received, payload).ok()?;
            }
            _ => return None,
        }
        inbound.received = received;
        let psn = self.epsn;
        (self.epsn, self.epsn_refused) = (psn.next(), false);
        Some(middle.ack_req.then(|| PendingAck::ack(psn, self.msn)))
    }

    /// As [`Responder::on_request`], for the only packet of a SEND that is expected and consumes a
    /// request of the queue pair's own, if it has no fault: the ACK that it requests, and the
    /// message. `None`, and nothing has changed, for any other.
    #[inline]
    pub(crate) fn on_only(
        &mut self,
        only: &PlainRc<'_>,
        payload: Payload<'_>,
        g: &mut Context<'_>,
        is_valid: impl FnOnce() -> bool,
    ) -> Option<(Option<PendingAck>, Message)> {
        let (psn, len) = (self.epsn, payload.len());
        let begins = self.inbound.is_none() && g.receive.taken().is_none();
        let (pd, rwqe, sges) = g.receive.at(0).filter(|_| begins && only.psn == psn)?;
        (len <= rwqe.len.min(g.mtu.bytes()) && is_valid()).then_some(())?;
        g.mrs.scatter(pd, sges, 0, payload).ok()?;
        g.receive.pop(g.srqs);
        (self.epsn, self.epsn_refused) = (psn.next(), false);
        self.msn = next_msn(self.msn);
        let (recv, solicited) = (Some((rwqe.wr_id, WcOpcode::Recv)), only.solicited);
        let message = Message { recv, len, imm: None, invalidated_rkey: None, solicited };
        Some((only.ack_req.then(|| PendingAck::ack(psn, self.msn)), message))
    }

    /// Handles a packet before the expected PSN. The response to a READ or atomic is repeated; any
    /// other duplicate causes an ACK of the newest PSN.
    fn duplicate(&mut self, p: &Packet<'_>, mtu: Mtu) -> RequestOutcome {
        let (repeated, forgotten) = match p.bth.opcode.props().kind {
            OpKind::ReadRequest => (
                read_request(p).is_some_and(|r| self.resources.repeat_read(&r, mtu, self.msn)),
                DropReason::DuplicateReadForgotten,
            ),
            OpKind::Atomic => (
                atomic_request(p).is_some_and(|r| self.resources.repeat_atomic(&r, self.msn)),
                DropReason::DuplicateAtomicForgotten,
            ),
            _ => {
                let reply = Some(PendingAck::ack(self.epsn.minus(1), self.msn));
                return RequestOutcome::Duplicate { reply };
            }
        };
        match repeated {
            true => RequestOutcome::Duplicate { reply: None },
            false => RequestOutcome::Drop(forgotten),
        }
    }

    /// Refuses the packet at the expected PSN with a fatal NAK.
    fn refuse(&self, code: NakCode) -> RequestOutcome {
        let reply = PendingAck::nak(self.epsn, code, self.msn);
        RequestOutcome::Refused { reply, recv: None }
    }

    /// As [`Responder::refuse`], and the receive request in use fails too.
    fn refuse_recv(
        &mut self,
        code: NakCode,
        status: WcStatus,
        g: &mut Context<'_>,
    ) -> RequestOutcome {
        let reply = PendingAck::nak(self.epsn, code, self.msn);
        let recv = g.receive.finish(g.srqs).map(|r| (r.wr_id, status));
        RequestOutcome::Refused { reply, recv }
    }

    /// Messages completed, modulo 2^24.
    pub(crate) fn msn(&self) -> u32 {
        self.msn
    }

    /// The PSN expected next.
    pub(crate) fn epsn(&self) -> Psn {
        self.epsn
    }

    fn received(&self) -> u32 {
        self.inbound.map_or(0, |i| i.received)
    }

    /// The RETH of the message that `p` belongs to.
    fn reth(&self, p: &Packet<'_>) -> Option<RethRepr> {
        p.ext.reth.or_else(|| self.inbound.and_then(|i| i.reth))
    }
}

fn next_msn(msn: u32) -> u32 {
    (msn + 1) & Psn::MASK
}

fn starts(props: &OpcodeProps) -> bool {
    props.first || matches!(props.kind, OpKind::ReadRequest | OpKind::Atomic)
}

fn payload_len(p: &Packet<'_>) -> u32 {
    spanwire_base::u32_from(p.payload_len())
}

fn read_request(p: &Packet<'_>) -> Option<ReadAtPsn> {
    let RethRepr { va, rkey, dma_len } = p.ext.reth?;
    Some(ReadAtPsn { psn: p.bth.psn, read: ReadRequest { va, rkey, len: dma_len } })
}

fn atomic_request(p: &Packet<'_>) -> Option<AtomicAtPsn> {
    let is_compare_swap = p.bth.opcode == Opcode::RcCmpSwap;
    let atomic = AtomicRequest { is_compare_swap, operands: p.ext.atomic? };
    Some(AtomicAtPsn { psn: p.bth.psn, atomic })
}

#[cfg(test)]
mod tests;
