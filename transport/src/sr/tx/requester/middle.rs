//! The choice of a plain packet of a request: one of a SEND or WRITE, without immediate data or a
//! key to invalidate, and sent for the first time.

use super::{Allowance, Requester};
use crate::mr::{MrTable, PdId};
use crate::payload::PayloadMut;
use crate::sr::tx::plan::{Contents, Plain, Segment};
use crate::verbs::WrOp;
use spanwire_wire::{RethRepr, SrUsualPart};

impl Requester {
    /// The next segment is one of a request with data.
    #[inline]
    pub(in crate::sr) fn is_at_data(&self) -> bool {
        self.sq.at(self.current).is_some_and(|request| !request.wqe.op.is_rd_atomic())
    }

    /// As [`Requester::next`], if the next segment is that of a plain packet, and waits for
    /// nothing.
    #[inline(always)]
    pub(in crate::sr::tx) fn next_plain(&self, allowance: &Allowance) -> Option<Plain> {
        let request = self.sq.at(self.current)?;
        let (wqe, offset) = (&request.wqe, self.offset);
        let is_fenced = wqe.fence && self.current > 0;
        if offset == 0 && (is_fenced || !allowance.begins_requests)
            || !request.has_receive_credit(allowance.receive_limit)
        {
            return None;
        }
        let left = wqe.len - offset;
        let (len, is_last) = (left.min(allowance.segment_bytes), left <= allowance.segment_bytes);
        let part = match wqe.op {
            WrOp::SendImm { .. } | WrOp::SendInv { .. } | WrOp::WriteImm { .. } if is_last => {
                return None;
            }
            WrOp::Send | WrOp::SendImm { .. } | WrOp::SendInv { .. } => {
                SrUsualPart::Send(request.receive)
            }
            WrOp::Write { remote } | WrOp::WriteImm { remote, .. } => {
                let va = remote.va.wrapping_add(offset.into());
                SrUsualPart::Write(RethRepr { va, rkey: remote.rkey, dma_len: len })
            }
            WrOp::Read { .. } | WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => return None,
        };
        let message = request.message;
        Some(Plain {
            contents: Contents::Request(Segment { message, offset, len }),
            message,
            offset,
            len,
            part,
            is_last,
            solicited: is_last && wqe.solicited && matches!(part, SrUsualPart::Send(_)),
            is_last_posted: is_last && message.wrapping_add(1) == self.next_message,
            is_inline: wqe.is_inline,
        })
    }

    /// Copies the payload of the outcome of [`Requester::next_plain`]; false if its memory is no
    /// longer registered.
    #[inline]
    pub(in crate::sr) fn gather_plain(
        &mut self,
        plain: &Plain,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        let &Plain { is_inline, offset, is_last, .. } = plain;
        match offset == 0 && is_last {
            true => self.sq.gather(self.current, is_inline, 0, payload, mrs),
            false => self.sq.gather_part(self.current, is_inline, offset, payload, mrs),
        }
    }
}
