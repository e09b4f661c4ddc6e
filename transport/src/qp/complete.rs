//! How a request ends: with a completion, with a failure, or flushed.

use super::outcome::{Message, Over};
use super::{QueuePair, Shared};
use crate::cq::CqId;
use crate::event::AsyncEvent;
use crate::qp::state::QpState;
use crate::wc::{Wc, WcOpcode, WcStatus};

impl QueuePair {
    /// Gives the receiver of a message its completion.
    pub(super) fn deliver(&mut self, m: &Message, sh: &mut Shared<'_>) {
        let Some((wr_id, opcode)) = m.recv else {
            return;
        };
        let &Message { imm, invalidated_rkey, solicited, len: byte_len, .. } = m;
        let plain = self.wc(wr_id, WcStatus::Success, opcode);
        let wc = Wc { byte_len, imm, invalidated_rkey, solicited, ..plain };
        self.complete(self.recv_cq, wc, sh);
    }

    pub(super) fn complete(&mut self, cq: CqId, wc: Wc, sh: &mut Shared<'_>) {
        match wc.status {
            WcStatus::Success => {}
            WcStatus::WrFlushErr => sh.counters.flushed += 1,
            _ if matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) => {
                sh.counters.resp_cqe_error += 1;
            }
            _ => sh.counters.req_cqe_error += 1,
        }
        if let Err(lost) = sh.cqs.push(cq, wc) {
            sh.counters.cq_overrun += 1;
            if lost.first {
                sh.events.push(AsyncEvent::CqErr(cq));
            }
            // The completion is lost, so the queue pair's history is: no way on from here.
            if self.state != QpState::Err {
                sh.events.push(AsyncEvent::QpFatal(self.qpn));
                self.fail(sh);
            }
        }
    }

    /// Fails the oldest request with `status`, then the queue pair.
    pub(super) fn fail_oldest(&mut self, status: WcStatus, sh: &mut Shared<'_>) {
        if let Some(over) = self.pop_send() {
            let wc = self.send_wc(&over, status);
            self.complete(self.send_cq, wc, sh);
        }
        self.fail(sh);
    }

    /// A local fault in the request at `snd_nxt`. Earlier requests are flushed rather than waited
    /// for; the faulty one still tells its own status.
    pub(super) fn fail_oldest_unless_answered(&mut self, status: WcStatus, sh: &mut Shared<'_>) {
        let at = self.requester.snd_nxt();
        while self.requester.wqe_of(at).is_some_and(|(i, _)| i > 0) {
            self.flush_one(sh);
        }
        self.fail_oldest(status, sh);
    }

    /// Stops answering and goes to the error state.
    pub(super) fn fail(&mut self, sh: &mut Shared<'_>) {
        self.responder.stop();
        if let Some(sr) = &mut self.selective {
            sr.stop_answering();
        }
        self.enter_error(sh);
    }

    /// Goes to the error state, once: flushes both queues, oldest first, and stops all timers.
    pub(super) fn enter_error(&mut self, sh: &mut Shared<'_>) {
        if std::mem::replace(&mut self.state, QpState::Err) == QpState::Err {
            return;
        }
        self.loss.stop();
        if let Some(sr) = &mut self.selective {
            sr.stop();
        }
        self.forget_blocks(sh.block_memory);
        while self.flush_one(sh) {}
        while let Some(recv) = self.responder.receive.pop(sh.srqs) {
            let wc = self.wc(recv.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv);
            self.complete(self.recv_cq, wc, sh);
        }
        self.requester.reset();
        if self.responder.receive.srq().is_some() {
            sh.events.push(AsyncEvent::LastWqeReached(self.qpn));
        }
    }

    pub(super) fn flush_one(&mut self, sh: &mut Shared<'_>) -> bool {
        let Some(over) = self.pop_send() else {
            return false;
        };
        let wc = self.send_wc(&over, WcStatus::WrFlushErr);
        self.complete(self.send_cq, wc, sh);
        true
    }

    /// Takes the oldest send request out, done or not.
    fn pop_send(&mut self) -> Option<Over> {
        match &mut self.selective {
            None => self.requester.pop_any().map(|w| Over::from(&w)),
            Some(sr) => sr.sender.pop_any(),
        }
    }

    pub(super) fn send_wc(&self, over: &Over, status: WcStatus) -> Wc {
        Wc { byte_len: over.len, ..self.wc(over.wr_id, status, over.op.wc_opcode()) }
    }

    pub(super) fn wc(&self, wr_id: u64, status: WcStatus, opcode: WcOpcode) -> Wc {
        let (imm, invalidated_rkey, solicited) = (None, None, false);
        let qpn = self.qpn;
        Wc { wr_id, status, opcode, qpn, byte_len: 0, imm, invalidated_rkey, solicited }
    }
}
