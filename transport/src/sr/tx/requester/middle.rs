//! The choice of a middle packet of a request: full, neither the first nor the last one, and sent
//! for the first time.

use super::Requester;
use crate::mr::{MrTable, PdId};
use crate::payload::PayloadMut;
use crate::sr::tx::plan::Segment;
use crate::verbs::WrOp;
use spanwire_wire::{RethRepr, SrMiddlePart};

/// A middle packet of a SEND or WRITE.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct Middle {
    pub(in crate::sr) segment: Segment,
    pub(in crate::sr) part: SrMiddlePart,
    is_inline: bool,
}

impl Requester {
    /// The next segment is not the first one of its request.
    #[inline]
    pub(in crate::sr) fn has_begun_message(&self) -> bool {
        self.offset > 0
    }

    /// The next segment, if it is a middle one of `segment_bytes` that the peer has a receive
    /// request for. Whether it may be sent otherwise is not looked at.
    #[inline]
    pub(in crate::sr) fn next_middle(
        &self,
        segment_bytes: u32,
        receive_limit: Option<u32>,
    ) -> Option<Middle> {
        let request = self.sq.at(self.current)?;
        let (offset, left) = (self.offset, request.wqe.len - self.offset);
        if offset == 0 || left <= segment_bytes || !request.has_receive_credit(receive_limit) {
            return None;
        }
        let part = match request.wqe.op {
            WrOp::Send | WrOp::SendImm { .. } | WrOp::SendInv { .. } => {
                SrMiddlePart::Send(request.receive)
            }
            WrOp::Write { remote } | WrOp::WriteImm { remote, .. } => {
                let va = remote.va.wrapping_add(offset.into());
                SrMiddlePart::Write(RethRepr { va, rkey: remote.rkey, dma_len: segment_bytes })
            }
            WrOp::Read { .. } | WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => return None,
        };
        let segment = Segment { message: request.message, offset, len: segment_bytes };
        Some(Middle { segment, part, is_inline: request.wqe.is_inline })
    }

    /// Advances past the outcome of [`Requester::next_middle`], once it was sent.
    #[inline]
    pub(in crate::sr) fn advance_middle(&mut self, middle: &Middle) {
        self.offset += middle.segment.len;
    }

    /// Copies the payload of the outcome of [`Requester::next_middle`]; false if its memory is no
    /// longer registered.
    #[inline]
    pub(in crate::sr) fn gather_middle(
        &mut self,
        middle: &Middle,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        self.sq.gather_part(self.current, middle.is_inline, middle.segment.offset, payload, mrs)
    }
}
