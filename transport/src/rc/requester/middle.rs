//! The choice of a middle packet, and the payload of requests.

use super::{Allowance, Requester};
use crate::mr::{MrTable, PdId};
use crate::payload::{Payload, PayloadMut};
use crate::rc::request::Request;
use crate::rc::segment::Segment;
use crate::verbs::WrOp;
use spanwire_wire::{Opcode, Psn};

/// A middle packet of a SEND or WRITE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextMiddle {
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    pub(crate) ack_req: bool,
    is_inline: bool,
    /// Bytes of the request before it.
    offset: u32,
}

impl Requester {
    /// The next packet is a middle one, and was never sent.
    #[inline]
    pub(crate) fn is_at_middle(&self) -> bool {
        let is_middle = |r: &Request| self.snd_nxt > r.first && self.snd_nxt + 1 < r.end();
        self.snd_nxt == self.snd_max && self.sq.at(self.current).is_some_and(is_middle)
    }

    /// As [`Requester::next`], if the next packet is one of a SEND or WRITE and waits for nothing.
    /// The caller has called [`Requester::is_at_middle`].
    #[inline]
    pub(crate) fn next_middle(&self, may: &Allowance) -> Option<NextMiddle> {
        let (request, number) = (self.sq.at(self.current)?, self.snd_nxt);
        if self.force_ack_req || may.qp_pkts == 0 || may.endpoint_pkts == 0 {
            return None;
        }
        let opcode = match request.wqe.op {
            WrOp::Write { .. } | WrOp::WriteImm { .. } => Opcode::RcWriteMiddle,
            WrOp::Send | WrOp::SendImm { .. } | WrOp::SendInv { .. } => Opcode::RcSendMiddle,
            WrOp::Read { .. } | WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => return None,
        };
        let ack_req = self.no_ack_req_pkts() + 1 >= may.ack_req_interval_pkts.into()
            || may.no_ack_req_pkts == 0;
        let offset = request.offset_of(number, may.mtu);
        let (psn, is_inline) = (self.psn(number), request.wqe.is_inline);
        Some(NextMiddle { opcode, psn, ack_req, is_inline, offset })
    }

    /// Advances past the outcome of [`Requester::next_middle`], once it was sent.
    #[inline]
    pub(crate) fn advance_middle(&mut self, middle: &NextMiddle) {
        self.snd_nxt += 1;
        self.snd_max = self.snd_nxt;
        if middle.ack_req {
            self.ack_req_end = self.snd_nxt;
        }
    }

    /// Copies the payload of `segment`; false if its memory is no longer registered.
    #[inline]
    pub(crate) fn gather(
        &self,
        segment: &Segment,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        self.sq.gather(segment.wqe, segment.is_inline, segment.offset, payload, mrs)
    }

    /// As [`Requester::gather`], for the outcome of [`Requester::next_middle`].
    #[inline]
    pub(crate) fn gather_middle(
        &mut self,
        middle: &NextMiddle,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        self.sq.gather_part(self.current, middle.is_inline, middle.offset, payload, mrs)
    }

    /// Copies a part of the response to the request `wqe` to its byte `offset`; false if its memory
    /// is no longer registered.
    pub(crate) fn scatter(
        &mut self,
        wqe: usize,
        offset: u32,
        data: Payload<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        self.sq.scatter_part(wqe, offset, data, mrs)
    }
}
