//! Applies the responder's outcome of a request: an ACK, a completion, or a NAK.

use super::Rc;
use super::ack::PendingAck;
use super::outcome::RequestOutcome;
use super::responder::Context;
use crate::drop::DropReason;
use crate::event::AsyncEvent;
use crate::qp::common::{Common, Shared};
use crate::qp::fail::Fail;
use crate::qp::outcome::Message;
use crate::wc::WcOpcode;
use spanwire_wire::{NakCode, Packet, Psn, Syndrome};

impl Rc {
    #[inline]
    pub(super) fn on_request(
        &mut self,
        qp: &mut Common,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        qp.on_request_arrived(&mut sh.events);
        match self.responder.on_request(p, &mut Context::new(qp, sh)) {
            RequestOutcome::Done { reply, message } => {
                self.on_done(qp, p.bth.psn, (reply, message), sh);
            }
            RequestOutcome::ReadBegun => {
                sh.counters.rx_read_requests += 1;
                self.acks.cancel();
            }
            RequestOutcome::AtomicDone => {
                sh.counters.rx_atomic_requests += 1;
                self.acks.cancel();
            }
            RequestOutcome::Duplicate { reply } => {
                sh.counters.duplicate_request += 1;
                if let Some(ack) = reply {
                    self.acks.schedule(ack);
                }
            }
            RequestOutcome::Gap { reply } => {
                sh.counters.out_of_sequence += 1;
                self.acks.schedule(reply);
            }
            RequestOutcome::NotReady { reply } => {
                sh.counters.out_of_buffer += 1;
                self.acks.schedule(reply);
            }
            RequestOutcome::Refused { reply, recv } => {
                sh.counters.tx_fatal_naks += 1;
                sh.events.push(nak_event(qp, reply.syndrome));
                self.acks.schedule(reply);
                if let Some((wr_id, status)) = recv {
                    let wc = qp.wc(wr_id, status, WcOpcode::Recv);
                    let completed = qp.complete(qp.recv_cq, wc, sh);
                    self.fail_if_overrun(qp, completed, sh);
                }
                // Responses and the ACK of earlier requests are still sent, then the NAK.
                self.enter_error(qp, sh);
            }
            RequestOutcome::Drop(reason) => return Err(reason),
        }
        Ok(())
    }

    /// Completes the message that the packet `psn` completed, if any, and acknowledges it if the
    /// packet requests that.
    #[inline]
    pub(super) fn on_done(
        &mut self,
        qp: &mut Common,
        psn: Psn,
        (reply, message): (Option<PendingAck>, Option<Message>),
        sh: &mut Shared,
    ) {
        if let Some(message) = message {
            sh.counters.rx_messages += 1;
            let delivered = qp.deliver(&message, sh);
            self.fail_if_overrun(qp, delivered, sh);
        }
        if !qp.state.receives() {
            // The completion is lost, so the message must not be acknowledged.
            let (code, msn) = (NakCode::RemoteOperational, self.responder.msn());
            sh.counters.tx_fatal_naks += 1;
            self.acks.schedule(PendingAck::nak(psn, code, msn));
        } else if let Some(ack) = reply {
            self.acks.schedule(ack);
        }
    }
}

/// The asynchronous event of our own side for a fatal NAK.
pub(super) fn nak_event(qp: &Common, syndrome: Syndrome) -> AsyncEvent {
    match syndrome {
        Syndrome::Nak(code) => qp.nak_event(code),
        _ => AsyncEvent::QpFatal(qp.qpn),
    }
}
