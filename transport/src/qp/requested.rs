//! What a request changes: it is answered, or refused. What it means was found in `responder.rs`;
//! here it is applied.

use super::ack::Owed;
use super::outcome::RequestOutcome;
use super::responder::Ground;
use super::state::QpState;
use super::{QueuePair, Shared};
use crate::drop::DropReason;
use crate::event::AsyncEvent;
use crate::wc::WcOpcode;
use spanwire_wire::{NakCode, Packet, Syndrome};

impl QueuePair {
    #[inline]
    pub(super) fn on_request(
        &mut self,
        p: &Packet<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<(), DropReason> {
        let (pd, mtu) = (self.pd, self.mtu);
        let (mrs, srqs, events) = (&mut *sh.mrs, &mut *sh.srqs, &mut *sh.events);
        if !std::mem::replace(&mut self.established, true) && self.state == QpState::Rtr {
            events.push(AsyncEvent::CommEst(self.qpn));
        }
        match self.responder.on_request(p, &mut Ground { mrs, srqs, events, pd, mtu }) {
            RequestOutcome::Done { reply, message } => {
                if let Some(message) = message {
                    sh.counters.rx_messages += 1;
                    self.deliver(&message, sh);
                }
                if !self.state.receives() {
                    // Its completion is lost: the peer must not take the message for received.
                    let (code, msn) = (NakCode::RemoteOperational, self.responder.msn());
                    sh.counters.tx_fatal_naks += 1;
                    self.acks.owe(Owed::nak(p.bth.psn, code, msn));
                } else if let Some(owed) = reply {
                    self.acks.owe(owed);
                }
            }
            RequestOutcome::ReadBegun => {
                sh.counters.rx_read_requests += 1;
                self.acks.subsume();
            }
            RequestOutcome::AtomicDone => {
                sh.counters.rx_atomic_requests += 1;
                self.acks.subsume();
            }
            RequestOutcome::Duplicate { reply } => {
                sh.counters.duplicate_request += 1;
                if let Some(owed) = reply {
                    self.acks.owe(owed);
                }
            }
            RequestOutcome::Gap { reply } => {
                sh.counters.out_of_sequence += 1;
                self.acks.owe(reply);
            }
            RequestOutcome::NotReady { reply } => {
                sh.counters.out_of_buffer += 1;
                self.acks.owe(reply);
            }
            RequestOutcome::Refused { reply, recv } => {
                sh.counters.tx_fatal_naks += 1;
                sh.events.push(self.refusal(reply.syndrome));
                self.acks.owe(reply);
                if let Some((wr_id, status)) = recv {
                    self.complete(self.recv_cq, self.wc(wr_id, status, WcOpcode::Recv), sh);
                }
                // What was owed for the requests before this one still goes out, then the NAK.
                self.enter_error(sh);
            }
            RequestOutcome::Drop(reason) => return Err(reason),
        }
        Ok(())
    }

    /// The event that tells our own side what its peer is told by a fatal NAK.
    pub(super) fn refusal(&self, syndrome: Syndrome) -> AsyncEvent {
        match syndrome {
            Syndrome::Nak(NakCode::InvalidRequest) => AsyncEvent::QpReqErr(self.qpn),
            Syndrome::Nak(NakCode::RemoteAccess) => AsyncEvent::QpAccessErr(self.qpn),
            _ => AsyncEvent::QpFatal(self.qpn),
        }
    }
}
