//! The execution of a request packet that has passed all checks.

use super::{
    Context, MessageProgress, Responder, Step, atomic_request, next_msn, payload_len, read_request,
};
use crate::mr::Access;
use crate::payload::Payload;
use crate::qp::outcome::Message;
use crate::rc::ack::PendingAck;
use crate::rc::outcome::RequestOutcome;
use crate::rc::resources::packets;
use crate::wc::{WcOpcode, WcStatus};
use spanwire_wire::{NakCode, OpKind, Packet};

impl Responder {
    /// Places the payload. The last step that may fail: the memory may have been deregistered since
    /// the check.
    pub(super) fn place_payload(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> Step {
        let len = payload_len(p);
        match p.bth.opcode.props().kind {
            OpKind::Send => {
                let received = self.received();
                let placed = g.receive.taken().is_some_and(|(pd, _, sges)| {
                    g.mrs.scatter(pd, sges, received, Payload::of(p)).is_ok()
                });
                if placed {
                    return Ok(());
                }
                Err(self.refuse_recv(NakCode::RemoteOperational, WcStatus::LocProtErr, g))
            }
            OpKind::Write if len > 0 => {
                let Some(reth) = self.reth(p) else {
                    return Err(self.refuse(NakCode::InvalidRequest));
                };
                let va = reth.va.wrapping_add(self.received().into());
                let placed = g
                    .mrs
                    .remote(g.pd, reth.rkey, va, len, Access::REMOTE_WRITE)
                    .is_ok_and(|span| span.put(Payload::of(p)));
                if placed { Ok(()) } else { Err(self.refuse(NakCode::RemoteAccess)) }
            }
            _ => Ok(()),
        }
    }

    /// Advances past a packet of a SEND or WRITE whose payload is placed. The outcome has the
    /// message that it completes.
    #[inline]
    pub(super) fn advance(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> RequestOutcome {
        let props = p.bth.opcode.props();
        let (psn, received) = (self.epsn, self.received() + payload_len(p));
        self.epsn = self.epsn.next();
        let reth = self.reth(p);
        let mut message = None;
        let resolved = self.inbound.and_then(|inbound| inbound.resolved);
        self.inbound = Some(MessageProgress { kind: props.kind, received, reth, resolved });
        if props.last {
            self.inbound = None;
            self.msn = next_msn(self.msn);
            let opcode = match props.kind {
                OpKind::Send => Some(WcOpcode::Recv),
                _ if props.imm => Some(WcOpcode::RecvRdmaWithImm),
                _ => None,
            };
            let recv = opcode.and_then(|op| Some((g.receive.finish(g.srqs)?.wr_id, op)));
            let invalidated_rkey = p.ext.ieth;
            if let Some(rkey) = invalidated_rkey {
                g.mrs.invalidate(rkey);
            }
            let (imm, solicited) = (p.ext.imm, p.bth.solicited);
            message = Some(Message { recv, len: received, imm, invalidated_rkey, solicited });
        }
        let reply = p.bth.ack_req.then(|| PendingAck::ack(psn, self.msn));
        RequestOutcome::Done { reply, message }
    }

    pub(super) fn begin_read(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> RequestOutcome {
        let Some(read) = read_request(p) else {
            return self.refuse(NakCode::InvalidRequest);
        };
        self.msn = next_msn(self.msn);
        self.epsn = self.epsn.plus(packets(read.read.len, g.mtu));
        self.resources.begin_read(read, self.msn);
        RequestOutcome::ReadBegun
    }

    pub(super) fn execute_atomic(&mut self, p: &Packet<'_>, g: &mut Context<'_>) -> RequestOutcome {
        let Some(request) = atomic_request(p) else {
            return self.refuse(NakCode::InvalidRequest);
        };
        let original = match request.atomic.execute(g.pd, g.mrs) {
            Ok(original) => original,
            Err(code) => return self.refuse(code),
        };
        self.msn = next_msn(self.msn);
        self.epsn = self.epsn.next();
        self.resources.begin_atomic(request, original, self.msn);
        RequestOutcome::AtomicDone
    }
}
