//! The responder: checks a request of the peer and carries it out. The checks are in
//! `responder/checks.rs`, the effects in `responder/execute.rs`.

mod checks;
mod execute;

use super::ack::PendingAck;
use super::outcome::RequestOutcome;
use super::resources::{AtomicAtPsn, ReadAtPsn, Resources};
use crate::attr::{Mtu, QpAttr};
use crate::drop::DropReason;
use crate::event::Events;
use crate::mr::{Access, MrTable, PdId};
use crate::qp::common::{Common, Shared};
use crate::qp::receive::Receive;
use crate::qp::remote::{AtomicRequest, ReadRequest};
use crate::srq::SrqTable;
use crate::wc::WcStatus;
use spanwire_wire::{NakCode, OpKind, Opcode, OpcodeProps, Packet, Psn, RethRepr};

/// The expected PSN, the message in progress and responder resources.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) resources: Resources,
    /// Expected PSN.
    epsn: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    inbound: Option<MessageProgress>,
    /// `epsn` was refused with a sequence or RNR NAK; what follows it is dropped until it comes.
    epsn_refused: bool,
}

/// A message of which some packets have come.
#[derive(Clone, Copy, Debug)]
struct MessageProgress {
    kind: OpKind,
    received: u32,
    /// Where a WRITE goes.
    reth: Option<RethRepr>,
}

/// What a request is checked against and carried out on.
pub(crate) struct Context<'a> {
    pub(crate) mrs: &'a mut MrTable,
    pub(crate) srqs: &'a mut SrqTable,
    pub(crate) events: &'a mut Events,
    pub(crate) receive: &'a mut Receive,
    pub(crate) pd: PdId,
    pub(crate) mtu: Mtu,
    /// What the peer may do through this queue pair.
    pub(crate) access: Access,
    pub(crate) attr: &'a QpAttr,
}

impl<'a> Context<'a> {
    #[inline]
    pub(crate) fn new(qp: &'a mut Common, sh: &'a mut Shared<'_>) -> Self {
        Self {
            mrs: &mut *sh.mrs,
            srqs: &mut *sh.srqs,
            events: &mut *sh.events,
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
    /// A responder that expects `psn` and answers up to `max_rd_atomic` READs and atomics at a
    /// time.
    pub(crate) fn new(psn: Psn, max_rd_atomic: u8) -> Self {
        let mut resources = Resources::default();
        resources.start(max_rd_atomic);
        Self { resources, epsn: psn, msn: 0, inbound: None, epsn_refused: false }
    }

    /// Stops answering and forgets the message in progress.
    pub(crate) fn stop(&mut self) {
        self.resources.stop();
        self.inbound = None;
    }

    /// Takes one request packet through the steps, in the order rxe and IBTA's responder have them.
    /// The first step that objects ends it; nothing has changed then but what its outcome says.
    // One caller: out of line, the outcome goes through memory.
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

    /// A packet from before the expected PSN: a READ is answered again, an atomic gets its result
    /// again, everything else is only acknowledged again, with the newest PSN.
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

    /// A NAK that ends the connection, for the packet at the expected PSN.
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
