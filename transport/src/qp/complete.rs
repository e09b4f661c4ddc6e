//! Completion of requests, and flushing.

use super::common::{Common, Shared};
use super::outcome::{Completed, Message};
use crate::cq::CqId;
use crate::event::AsyncEvent;
use crate::qp::state::QpState;
use crate::wc::{Wc, WcOpcode, WcStatus};

/// A completion was lost because its queue is full. The queue pair's history is incomplete then, so
/// its engine must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CqOverrun;

impl Common {
    /// Adds the completion of a received message, if it consumed a receive request.
    ///
    /// # Errors
    /// See [`Common::complete`].
    pub(crate) fn deliver(&self, m: &Message, sh: &mut Shared) -> Result<(), CqOverrun> {
        let Some((wr_id, opcode)) = m.recv else {
            return Ok(());
        };
        let &Message { imm, invalidated_rkey, solicited, len: byte_len, .. } = m;
        let plain = self.wc(wr_id, WcStatus::Success, opcode);
        let wc = Wc { byte_len, imm, invalidated_rkey, solicited, ..plain };
        self.complete(self.recv_cq, wc, sh)
    }

    /// Adds a completion to `cq`.
    ///
    /// # Errors
    /// The completion queue is full and the queue pair has not failed yet: its engine must fail.
    pub(crate) fn complete(&self, cq: CqId, wc: Wc, sh: &mut Shared) -> Result<(), CqOverrun> {
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
            if self.state != QpState::Err {
                sh.events.push(AsyncEvent::QpFatal(self.qpn));
                return Err(CqOverrun);
            }
        }
        Ok(())
    }

    /// Completes a request of the send queue with `status`.
    ///
    /// # Errors
    /// See [`Common::complete`].
    pub(crate) fn complete_send(
        &self,
        completed: &Completed,
        status: WcStatus,
        sh: &mut Shared,
    ) -> Result<(), CqOverrun> {
        let plain = self.wc(completed.wr_id, status, completed.opcode);
        self.complete(self.send_cq, Wc { byte_len: completed.len, ..plain }, sh)
    }

    /// Goes to the error state; false if the queue pair is in it already. The engine then stops,
    /// flushes its send queue and calls [`Common::flush_receives`].
    pub(crate) fn enter_error(&mut self) -> bool {
        std::mem::replace(&mut self.state, QpState::Err) != QpState::Err
    }

    /// Flushes the receive queue, oldest first. The last step into the error state.
    pub(crate) fn flush_receives(&mut self, sh: &mut Shared) {
        debug_assert_eq!(self.state, QpState::Err, "only a failed queue pair flushes");
        while let Some(recv) = self.receive.pop(&mut sh.srqs) {
            let wc = self.wc(recv.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv);
            let flushed = self.complete(self.recv_cq, wc, sh);
            debug_assert_eq!(flushed, Ok(()), "a failed queue pair does not fail again");
        }
        if self.receive.srq().is_some() {
            sh.events.push(AsyncEvent::LastWqeReached(self.qpn));
        }
    }

    pub(crate) fn wc(&self, wr_id: u64, status: WcStatus, opcode: WcOpcode) -> Wc {
        let (imm, invalidated_rkey, solicited) = (None, None, false);
        let qpn = self.qpn;
        Wc { wr_id, status, opcode, qpn, byte_len: 0, imm, invalidated_rkey, solicited }
    }
}
