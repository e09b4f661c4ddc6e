//! The checks of a request packet, step by step.

use super::{Context, Responder, Step, atomic_request, payload_len, read_request, starts};
use crate::drop::DropReason;
use crate::mr::Access;
use crate::qp::remote::MAX_DMA_BYTES;
use crate::rc::ack::PendingAck;
use crate::rc::outcome::RequestOutcome;
use crate::rc::resources::packets;
use crate::wc::WcStatus;
use spanwire_wire::{NakCode, OpKind, Packet, Syndrome};

impl Responder {
    #[inline]
    pub(super) fn check_psn(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        match p.bth.psn.since(self.epsn) {
            0 => {
                self.epsn_refused = false;
                Ok(())
            }
            AHEAD_MAX.. => Err(RequestOutcome::Drop(DropReason::BeyondPsnLimit)),
            1.. if self.epsn_refused => Err(RequestOutcome::Drop(DropReason::AfterSequenceGap)),
            1.. => {
                self.epsn_refused = true;
                let reply = PendingAck::nak(self.epsn, NakCode::SequenceError, self.msn);
                Err(RequestOutcome::Gap { reply })
            }
            _ => Err(self.duplicate(p, g.mtu)),
        }
    }

    #[inline]
    pub(super) fn check_op_seq(&mut self, p: &Packet<'_>, _: &mut Context<'_>) -> Step {
        let props = p.bth.opcode.props();
        let fits = match self.inbound {
            None => starts(props),
            Some(inbound) => !starts(props) && inbound.kind == props.kind,
        };
        if fits { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    pub(super) fn check_op_valid(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        let allowed = match p.bth.opcode.props().kind {
            OpKind::Send => true,
            OpKind::Write => g.access.allows(Access::REMOTE_WRITE),
            OpKind::ReadRequest => g.access.allows(Access::REMOTE_READ),
            OpKind::Atomic => g.access.allows(Access::REMOTE_ATOMIC),
            _ => false,
        };
        if allowed { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    #[inline]
    pub(super) fn check_resource(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        let props = p.bth.opcode.props();
        let consumes = match props.kind {
            OpKind::Send => props.first,
            OpKind::Write => props.imm,
            OpKind::ReadRequest | OpKind::Atomic => {
                let room = self.resources.check_room();
                return room.map_err(|_| self.refuse(NakCode::InvalidRequest));
            }
            _ => false,
        };
        if consumes && !g.receive.take(g.srqs, g.events) {
            self.epsn_refused = true;
            let timer = g.attr.min_rnr_timer.unwrap_or_default();
            let syndrome = Syndrome::RnrNak { timer };
            let reply = PendingAck { psn: self.epsn, syndrome, msn: self.msn };
            return Err(RequestOutcome::NotReady { reply });
        }
        Ok(())
    }

    /// IBTA C9-92: First and Middle packets carry exactly the path MTU, Only and Last packets at
    /// most that, and Last at least a byte. IBTA C9-94: a DMA length is at most 2^31.
    #[inline]
    pub(super) fn check_length(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        let props = p.bth.opcode.props();
        let (len, mtu) = (payload_len(p), g.mtu.bytes());
        let shape = match (props.kind, props.first, props.last) {
            (OpKind::ReadRequest | OpKind::Atomic, ..) => len == 0,
            (_, _, false) => len == mtu,
            (_, true, true) => len <= mtu,
            (_, false, true) => (1..=mtu).contains(&len),
        };
        let after = self.received().saturating_add(len);
        let fits = match props.kind {
            OpKind::Send => {
                if g.receive.taken().is_some_and(|(_, rwqe, _)| after > rwqe.len) {
                    return Err(self.refuse_recv(NakCode::InvalidRequest, WcStatus::LocLenErr, g));
                }
                true
            }
            OpKind::Write => self.reth(p).is_some_and(|r| {
                let complete = if props.last { after == r.dma_len } else { after < r.dma_len };
                complete && r.dma_len <= MAX_DMA_BYTES
            }),
            OpKind::Atomic => true,
            _ => read_request(p)
                .map(|r| r.read.len)
                .is_some_and(|len| len <= MAX_DMA_BYTES && packets(len, g.mtu) < MAX_READ_PKTS),
        };
        if shape && fits { Ok(()) } else { Err(self.refuse(NakCode::InvalidRequest)) }
    }

    /// A zero-length request touches no memory, so its key and address are not checked (IBTA C9-88;
    /// rxe does the same). A WRITE's first packet is checked for the whole message, and each later
    /// one for its own bytes: the region may have been deregistered since.
    #[inline]
    pub(super) fn check_rkey(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        let props = p.bth.opcode.props();
        let need = match props.kind {
            OpKind::Write => Access::REMOTE_WRITE,
            OpKind::ReadRequest => Access::REMOTE_READ,
            OpKind::Atomic => return self.check_atomic(p, g),
            _ => return self.check_invalidate(p, g),
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
        match g.mrs.remote(g.pd, reth.rkey, va, len, need) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.refuse(NakCode::RemoteAccess)),
        }
    }

    fn check_atomic(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        let Some(request) = atomic_request(p) else {
            return Err(self.refuse(NakCode::InvalidRequest));
        };
        request.atomic.check(g.pd, g.mrs).map_err(|code| self.refuse(code))
    }

    /// Checks the rkey of a SEND with invalidate, in its last packet.
    fn check_invalidate(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        match p.ext.ieth {
            Some(rkey) if g.mrs.check_invalidate(g.pd, rkey).is_err() => {
                Err(self.refuse(NakCode::RemoteAccess))
            }
            _ => Ok(()),
        }
    }
}

/// A request this far ahead exceeds our widest send window. Without this limit, a forger could
/// provoke go-back-N with each packet, whatever PSN it guesses.
const AHEAD_MAX: i32 = (1 << 16) + 1;
/// Half the PSN space. Beyond it, earlier and later PSNs are indistinguishable.
const MAX_READ_PKTS: u32 = 1 << 23;
