//! Packets of SENDs that arrive in order.

use super::{Context, Responder};
use crate::payload::Payload;
use crate::qp::outcome::Message;
use crate::wc::WcOpcode;

impl Responder {
    /// As [`Responder::place`] and [`Responder::next_in_order`], for a packet of a SEND that is in
    /// order, as all of its message before it, if it has no fault: the message, if it is the last
    /// packet. `None`, and nothing has changed, for any other.
    #[inline(always)]
    pub(in crate::sr) fn on_send(
        &mut self,
        (receive, offset, last, solicited): (u32, u32, bool, bool),
        data: Payload<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<Option<Message>> {
        let progress = self.progress.front().copied().unwrap_or_default();
        let is_next = progress.bytes == offset && !progress.has_last;
        let len = offset.checked_add(data.len()).filter(|_| is_next)?;
        let (pd, rwqe, sges) = ctx.receive.at(0).filter(|(_, rwqe, _)| len <= rwqe.len)?;
        if receive != self.first_receive || ctx.mrs.scatter(pd, sges, offset, data).is_err() {
            return None;
        }
        self.name_receive(receive);
        if !last {
            self.progress(0).bytes = len;
            return Some(None);
        }
        ctx.receive.pop(ctx.srqs);
        self.first_receive = receive.wrapping_add(1);
        self.progress.pop_front();
        let recv = Some((rwqe.wr_id, WcOpcode::Recv));
        Some(Some(Message { recv, len, imm: None, invalidated_rkey: None, solicited }))
    }
}
