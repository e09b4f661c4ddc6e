//! Received ACKs: [`Tx`](super::tx::Tx) applies them; requests complete or fail as a result.

use super::Sr;
use crate::drop::DropReason;
use crate::qp::common::{Common, Shared};
use crate::qp::fail::Fail;
use crate::qp::outcome::Completed;
use crate::wc::WcStatus;
use spanwire_base::Time;
use spanwire_wire::{NakCode, Packet, SrAckRepr};

impl Sr {
    /// Processes an ACK.
    ///
    /// # Errors
    /// The ACK is malformed, or acknowledges packets that were not sent; it changes nothing then.
    pub(super) fn on_ack(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let parsed = SrAckRepr::parse(p.bth.psn.get(), p.payload);
        // By reference, since it has room for many words, which would be copied.
        let ack = parsed.as_ref().map_err(|reason| DropReason::Wire(*reason))?;
        if ack.credit.is_some() && !self.tx.accepts_credit {
            return Err(DropReason::Wire(spanwire_wire::DropReason::SrFeature));
        }
        let refused = match ack.nak {
            None => None,
            // Looked up before the ACK is applied, which removes acknowledged packets.
            Some(r) => Some((self.tx.message_of(r.psn), status_of(r.code)?)),
        };
        let is_rnr_exhausted =
            self.tx.on_ack((now, qp.arrival), ack, &mut sh.counters, qp.flow.as_deref_mut())?;
        qp.on_path_acked(now, self.tx.sent.una(), Some(ack.rx_pkts), &mut sh.counters);
        if let (Some(credit), Some(flow)) = (&ack.credit, qp.flow.as_deref_mut()) {
            flow.on_credit(now, credit);
        }
        match refused {
            Some((Some(message), status)) => {
                self.finish_requests(qp, Some(message), sh);
                self.fail_message(qp, message, status, sh);
            }
            Some((None, _)) => {
                // The peer cannot retransmit a response that has arrived: its ACK was lost.
                self.rx.ack.request_ack_limited(now, self.tx.ack_delay());
                self.finish_requests(qp, None, sh);
            }
            None => self.finish_requests(qp, None, sh),
        }
        if is_rnr_exhausted {
            self.fail_oldest(qp, WcStatus::RnrRetryExcErr, sh);
        }
        Ok(())
    }

    /// Completes finished requests in order, up to but excluding the message `before`.
    #[inline]
    pub(super) fn finish_requests(
        &mut self,
        qp: &mut Common,
        before: Option<u32>,
        sh: &mut Shared,
    ) {
        while before.is_none() || self.tx.requester.oldest() != before {
            let Some((oldest, signaled)) = self.tx.requester.pop_completed(self.tx.sent.data_una())
            else {
                break;
            };
            if signaled {
                self.complete(qp, &oldest, sh);
            }
        }
        self.report_drained(qp, sh);
    }

    // Not inlined: a response, after which nothing is complete, would save registers for it.
    #[inline(never)]
    fn complete(&mut self, qp: &mut Common, request: &Completed, sh: &mut Shared) {
        let completed = qp.complete_send(request, WcStatus::Success, sh);
        self.fail_if_overrun(qp, completed, sh);
    }
}

fn status_of(code: NakCode) -> Result<WcStatus, DropReason> {
    match code {
        NakCode::InvalidRequest => Ok(WcStatus::RemInvReqErr),
        NakCode::RemoteAccess => Ok(WcStatus::RemAccessErr),
        NakCode::RemoteOperational => Ok(WcStatus::RemOpErr),
        NakCode::SequenceError | NakCode::InvalidRd => Err(DropReason::BadSyndrome),
    }
}
