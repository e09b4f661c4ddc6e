//! How either half of a connection is waited for: by a thread, by a task, by a descriptor.

use crate::error::Error;
use crate::shared::Shared;
use crate::signal::Signal;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// One half of a connection at its application. What it attempts says [`Error::WouldBlock`] while
/// it is too early.
pub(crate) trait Half: Sized {
    /// What it shares with the worker.
    fn shared(&self) -> &Arc<Shared>;

    /// What tells that another attempt is worth it.
    fn signal(shared: &Shared) -> &Signal;

    /// `attempt` until it does not say [`Error::WouldBlock`], at most for `timeout`.
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

    /// `attempt` as a task does it: woken when it is worth another one.
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

    /// `attempt` for one who waits by the descriptor.
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
