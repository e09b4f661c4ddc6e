//! The choice of a plain packet, and the payload of requests.

use super::{Allowance, Requester};
use crate::attr::Mtu;
use crate::mr::{MrTable, PdId};
use crate::payload::{Payload, PayloadMut};
use crate::rc::segment::Segment;
use crate::verbs::WrOp;
use spanwire_wire::{Opcode, Psn};

/// A middle packet of a SEND or WRITE, or the only one of a SEND.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextPlain {
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    pub(crate) ack_req: bool,
    pub(crate) solicited: bool,
    /// Bytes of its payload.
    pub(crate) len: u32,
    is_inline: bool,
    /// Bytes of the request before it.
    offset: u32,
}

impl Requester {
    /// The next packet was never sent, and is the only one of a SEND (true) or a middle one
    /// (false).
    #[inline]
    pub(crate) fn is_at_only(&self) -> Option<bool> {
        let request = self.sq.at(self.current).filter(|_| self.snd_nxt == self.snd_max)?;
        match self.snd_nxt > request.first {
            true => (self.snd_nxt + 1 < request.end()).then_some(false),
            false => (request.pkts == 1 && request.wqe.op == WrOp::Send).then_some(true),
        }
    }

    /// As [`Requester::next`], if the next packet is one of a SEND or WRITE and waits for nothing.
    /// `ONLY` is the result of [`Requester::is_at_only`].
    #[inline]
    pub(crate) fn next_plain<const ONLY: bool>(&self, may: &Allowance) -> Option<NextPlain> {
        let (request, number) = (self.sq.at(self.current)?, self.snd_nxt);
        if self.force_ack_req || may.qp_pkts == 0 || may.endpoint_pkts == 0 {
            return None;
        }
        let wqe = &request.wqe;
        if ONLY && (wqe.fence || !may.new_requests) {
            return None;
        }
        let opcode = match wqe.op {
            _ if ONLY => Opcode::RcSendOnly,
            WrOp::Write { .. } | WrOp::WriteImm { .. } => Opcode::RcWriteMiddle,
            WrOp::Send | WrOp::SendImm { .. } | WrOp::SendInv { .. } => Opcode::RcSendMiddle,
            WrOp::Read { .. } | WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => return None,
        };
        let ack_req = (ONLY && number + 1 == self.snd_end)
            || self.no_ack_req_pkts() + 1 >= may.ack_req_interval_pkts.into()
            || may.no_ack_req_pkts == 0;
        let (len, offset) = match ONLY {
            true => (wqe.len, 0),
            false => (may.mtu.bytes(), request.offset_of(number, may.mtu)),
        };
        let (psn, solicited, is_inline) = (self.psn(number), ONLY && wqe.solicited, wqe.is_inline);
        Some(NextPlain { opcode, psn, ack_req, solicited, len, is_inline, offset })
    }

    /// Advances past the outcome of [`Requester::next_plain`], once it was sent.
    #[inline]
    pub(crate) fn advance_plain<const ONLY: bool>(&mut self, plain: &NextPlain) {
        self.snd_nxt += 1;
        self.snd_max = self.snd_nxt;
        self.current += usize::from(ONLY);
        if plain.ack_req {
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

    /// As [`Requester::gather`], for the outcome of [`Requester::next_plain`].
    #[inline]
    pub(crate) fn gather_plain<const ONLY: bool>(
        &mut self,
        plain: &NextPlain,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        match ONLY {
            true => self.sq.gather(self.current, plain.is_inline, 0, payload, mrs),
            false => self.sq.gather_part(self.current, plain.is_inline, plain.offset, payload, mrs),
        }
    }

    /// The byte offset of the payload of the response `psn`, if that is the one expected next: a
    /// full one, and not the last one, of the oldest request, a READ.
    #[inline]
    pub(crate) fn expected_response(&self, psn: Psn, payload_len: u32, mtu: Mtu) -> Option<u32> {
        let (request, una) = (self.sq.at(0)?, self.snd_una);
        let is_next = request.wqe.op.is_read()
            && request.first <= una
            && una + 1 < request.end()
            && una < self.snd_max
            && psn == self.psn(una);
        (is_next && payload_len == mtu.bytes()).then(|| request.offset_of(una, mtu))
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
