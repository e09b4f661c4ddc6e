//! Posting, with the checks at that time.

use super::QueuePair;
use super::common::Shared;
use crate::cq::CqId;
use crate::qp::state::QpState;
use crate::verbs::{PostError, RecvRequest, Sge, WorkRequest};
use crate::wc::{Wc, WcOpcode, WcStatus};
use spanwire_base::{u32_from, usize_from};

impl QueuePair {
    /// Queues a send work request. In the error state it is flushed at once, as verbs have it.
    pub(crate) fn post_send(
        &mut self,
        wr: &WorkRequest<'_>,
        sh: &mut Shared,
    ) -> Result<(), PostError> {
        let common = &self.common;
        let caps = common.init.caps;
        let has_failed = match common.state {
            QpState::Rts | QpState::Sqd => false,
            QpState::Err | QpState::Sqe => true,
            _ => return Err(PostError::BadState),
        };
        // The queue of a failed queue pair is empty, but perhaps one of no requests.
        let is_taken = self.places.as_ref().is_some_and(|p| p.taken() >= caps.max_send_wr);
        if (self.engine.is_full() || is_taken) && (!has_failed || caps.max_send_wr == 0) {
            return Err(PostError::QueueFull);
        }
        if wr.sges.len() > usize_from(caps.max_send_sge.into()) {
            return Err(PostError::TooManySges);
        }
        if has_failed {
            let wc = common.wc(wr.wr_id, WcStatus::WrFlushErr, wr.op.wc_opcode());
            self.flush(common.send_cq, wc, sh);
            return Ok(());
        }
        if let Some(bytes) = wr.inline {
            let alone = wr.sges.is_empty() && !wr.op.is_rd_atomic();
            if !alone || bytes.len() > usize_from(caps.max_inline_data.into()) {
                return Err(PostError::BadInline);
            }
            self.engine.post(wr, u32_from(bytes.len()), common);
            self.take_place(wr);
            return Ok(());
        }
        let len = total_bytes(wr.sges, sh.config.max_msg_bytes)?;
        if wr.op.is_atomic() && len != ATOMIC_BYTES {
            return Err(PostError::NotEightBytes);
        }
        if wr.op.is_rd_atomic() && common.max_rd_atomic == 0 {
            // It could never be sent.
            return Err(PostError::BadState);
        }
        self.engine.post(wr, len, common);
        self.take_place(wr);
        Ok(())
    }

    fn take_place(&mut self, wr: &WorkRequest<'_>) {
        if let Some(places) = &mut self.places {
            places.take(wr.signaled);
        }
    }

    /// Queues a receive request. In the error state it is flushed at once.
    pub(crate) fn post_recv(
        &mut self,
        wr: &RecvRequest<'_>,
        sh: &mut Shared,
    ) -> Result<(), PostError> {
        let common = &mut self.common;
        let Some(queue) = common.receive.own_queue() else {
            return Err(PostError::UsesSrq);
        };
        let (is_full, max_sge) = (queue.is_full(), queue.max_sge());
        if common.state == QpState::Reset {
            return Err(PostError::BadState);
        }
        if is_full {
            return Err(PostError::QueueFull);
        }
        if wr.sges.len() > max_sge {
            return Err(PostError::TooManySges);
        }
        if common.state == QpState::Err {
            let wc = common.wc(wr.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv);
            let cq = common.recv_cq;
            self.flush(cq, wc, sh);
            return Ok(());
        }
        common.receive.post(wr, total_bytes(wr.sges, u32::MAX)?);
        self.on_receive_posted();
        Ok(())
    }

    /// Completes a request that was posted in an error state.
    fn flush(&mut self, cq: CqId, wc: Wc, sh: &mut Shared) {
        if self.common.complete(cq, wc, sh).is_err() {
            self.engine.fail(&mut self.common, sh);
        }
    }
}

/// Bytes of an atomic's operand.
const ATOMIC_BYTES: u32 = 8;

/// The bytes of all SGEs, at most `max_bytes`. Whether they may be accessed is checked with each
/// access: until then memory may be registered or deregistered.
pub(crate) fn total_bytes(sges: &[Sge], max_bytes: u32) -> Result<u32, PostError> {
    let mut total = 0u32;
    for sge in sges {
        total = total.checked_add(sge.len).ok_or(PostError::TooLong)?;
    }
    if total > max_bytes { Err(PostError::TooLong) } else { Ok(total) }
}
