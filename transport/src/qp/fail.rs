//! Failure of a queue pair: the same steps in the same order for both engines.

use super::common::{Common, Shared};
use super::complete::CqOverrun;
use super::outcome::Completed;
use crate::wc::WcStatus;

/// An engine that can fail. It defines the first three methods; the others are the same for both.
pub(crate) trait Fail {
    /// Drops the responses that were not sent.
    fn stop_responding(&mut self);

    /// Stops all timers and drops what was sent. The send queue is flushed already.
    fn stop_sending(&mut self, sh: &mut Shared);

    /// Removes the oldest request, complete or not.
    fn pop_oldest(&mut self) -> Option<Completed>;

    /// Stops responding and goes to the error state.
    fn fail(&mut self, qp: &mut Common, sh: &mut Shared) {
        self.stop_responding();
        self.enter_error(qp, sh);
    }

    /// Goes to the error state, once: flushes both queues, oldest first, and stops all timers.
    fn enter_error(&mut self, qp: &mut Common, sh: &mut Shared) {
        if !qp.enter_error() {
            return;
        }
        while self.flush_one(qp, sh) {}
        self.stop_sending(sh);
        qp.flush_receives(sh);
    }

    /// Fails the oldest request with `status`, then the queue pair.
    fn fail_oldest(&mut self, qp: &mut Common, status: WcStatus, sh: &mut Shared) {
        self.complete_oldest(qp, status, sh);
        self.fail(qp, sh);
    }

    /// Flushes the oldest request; false if there is none.
    fn flush_one(&mut self, qp: &mut Common, sh: &mut Shared) -> bool {
        self.complete_oldest(qp, WcStatus::WrFlushErr, sh)
    }

    /// Completes the oldest request with `status`; false if there is none.
    fn complete_oldest(&mut self, qp: &mut Common, status: WcStatus, sh: &mut Shared) -> bool {
        let Some(oldest) = self.pop_oldest() else {
            return false;
        };
        let completed = qp.complete_send(&oldest, status, sh);
        self.fail_if_overrun(qp, completed, sh);
        true
    }

    /// Fails the queue pair if a completion was lost.
    #[inline]
    fn fail_if_overrun(
        &mut self,
        qp: &mut Common,
        completed: Result<(), CqOverrun>,
        sh: &mut Shared,
    ) {
        if completed.is_err() {
            self.fail(qp, sh);
        }
    }
}
