//! Waiting on a half of a connection: by a thread, by a task, or by a descriptor.

use crate::error::Error;
use crate::shared::Shared;
use crate::signal::Signal;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// One half of a connection at its application. Its attempts return [`Error::WouldBlock`] until
/// they can succeed.
pub(crate) trait Half: Sized {
    /// The state shared with the worker.
    fn shared(&self) -> &Arc<Shared>;

    /// The signal that another attempt may succeed.
    fn signal(shared: &Shared) -> &Signal;

    /// Repeats `attempt` while it returns [`Error::WouldBlock`], at most for `timeout`.
    fn block<T>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let shared = self.shared().clone();
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let done = Self::signal(&shared).wait(deadline, || match attempt(self) {
            Err(Error::WouldBlock) => None,
            other => Some(other),
        });
        done.unwrap_or_else(|| Err(Error::TimedOut(timeout.unwrap_or_default())))
    }

    /// Calls `attempt` for a task, which is woken when another attempt may succeed.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        for is_armed in [false, true] {
            match attempt(self) {
                Err(Error::WouldBlock) if is_armed => {}
                Err(Error::WouldBlock) => Self::signal(self.shared()).arm(Some(cx.waker())),
                other => return Poll::Ready(other),
            }
        }
        Poll::Pending
    }

    /// Calls `attempt` for an application that waits by the descriptor.
    fn attempt<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match attempt(self) {
            Err(Error::WouldBlock) => {
                Self::signal(self.shared()).arm(None);
                attempt(self)
            }
            other => other,
        }
    }
}
