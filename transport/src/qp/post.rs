//! Posting: what is checked at once.

use super::{QueuePair, Shared};
use crate::mr::{Access, MrTable, PdId};
use crate::qp::state::QpState;
use crate::verbs::{PostError, RecvRequest, Sge, WorkRequest};
use crate::wc::{WcOpcode, WcStatus};

impl QueuePair {
    /// Queues a send work request. In the error state it is flushed at once, as verbs have it.
    pub(crate) fn post_send(
        &mut self,
        wr: &WorkRequest<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let queue = self.send_queue();
        if wr.sges.len() > queue.max_sge {
            return Err(PostError::TooManySges);
        }
        match self.state {
            QpState::Rts | QpState::Sqd => {}
            QpState::Err | QpState::Sqe => {
                let wc = self.wc(wr.wr_id, WcStatus::WrFlushErr, wr.op.wc_opcode());
                self.complete(self.send_cq, wc, sh);
                return Ok(());
            }
            _ => return Err(PostError::BadState),
        }
        if queue.is_full {
            return Err(PostError::QueueFull);
        }
        if let Some(bytes) = wr.inline {
            let alone = wr.sges.is_empty() && !wr.op.is_rd_atomic();
            if !alone || bytes.len() > queue.max_inline {
                return Err(PostError::BadInline);
            }
            self.enqueue(wr, spanwire_base::u32_from(bytes.len()));
            return Ok(());
        }
        let need = if wr.op.is_rd_atomic() { Access::LOCAL_WRITE } else { Access::LOCAL_READ };
        let len = check_sges(sh.mrs, self.pd, wr.sges, need, sh.config.max_msg_bytes)?;
        if wr.op.is_atomic() && len != ATOMIC_BYTES {
            return Err(PostError::NotEightBytes);
        }
        if wr.op.is_rd_atomic() && self.max_rd_atomic == 0 {
            // It could never leave.
            return Err(PostError::BadState);
        }
        self.enqueue(wr, len);
        Ok(())
    }

    /// Queues a receive request. In the error state it is flushed at once.
    pub(crate) fn post_recv(
        &mut self,
        wr: &RecvRequest<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<(), PostError> {
        let Some(queue) = self.responder.receive.own_queue() else {
            return Err(PostError::UsesSrq);
        };
        let (is_full, max_sge) = (queue.is_full(), queue.max_sge());
        if wr.sges.len() > max_sge {
            return Err(PostError::TooManySges);
        }
        match self.state {
            QpState::Reset => return Err(PostError::BadState),
            QpState::Err => {
                let wc = self.wc(wr.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv);
                self.complete(self.recv_cq, wc, sh);
                return Ok(());
            }
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        }
        if is_full {
            return Err(PostError::QueueFull);
        }
        let max = u32::MAX;
        let len = check_sges(sh.mrs, self.pd, wr.sges, Access::LOCAL_WRITE, max)?;
        self.responder.receive.post(wr, len);
        self.on_receive_posted();
        Ok(())
    }

    /// There is a receive request more: a peer that may be waiting for it is told.
    pub(crate) fn on_receive_posted(&mut self) {
        if let Some(sr) = &mut self.selective {
            sr.on_receive_posted();
        }
    }

    fn send_queue(&self) -> SendQueue {
        match &self.selective {
            None => SendQueue {
                max_sge: self.requester.max_sge(),
                max_inline: self.requester.max_inline(),
                is_full: self.requester.is_full(),
            },
            Some(sr) => SendQueue {
                max_sge: sr.sender.max_sge(),
                max_inline: sr.sender.max_inline(),
                is_full: sr.sender.is_full(),
            },
        }
    }

    /// Queues a checked work request of `len` bytes.
    fn enqueue(&mut self, wr: &WorkRequest<'_>, len: u32) {
        match &mut self.selective {
            None => self.requester.post(wr, len, self.mtu),
            Some(sr) => sr.sender.post(wr, len),
        }
    }
}

/// What the send queue takes.
struct SendQueue {
    max_sge: usize,
    max_inline: usize,
    is_full: bool,
}

/// What an atomic operation works on.
const ATOMIC_BYTES: u32 = 8;

/// Checks every SGE and returns the bytes of all.
pub(crate) fn check_sges(
    mrs: &MrTable,
    pd: PdId,
    sges: &[Sge],
    need: Access,
    max_bytes: u32,
) -> Result<u32, PostError> {
    let mut total = 0u32;
    for sge in sges.iter().filter(|s| s.len > 0) {
        mrs.local(pd, sge, need).map_err(|_| PostError::BadSge)?;
        total = total.checked_add(sge.len).ok_or(PostError::TooLong)?;
    }
    if total > max_bytes { Err(PostError::TooLong) } else { Ok(total) }
}
