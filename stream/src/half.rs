//! Waiting on a half of a connection: by a thread, by a task, or by a descriptor.

use crate::engine::Engine;
use crate::error::{Cause, Error};
use crate::shared::Shared;
use spanwire_io::worker::{Progress, Signal};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// One half of a connection at its application. Its attempts return [`Error::WouldBlock`] until
/// they can succeed.
pub(crate) trait Half: Sized {
    /// The state shared with the worker.
    fn shared(&self) -> &Arc<Shared>;

    /// The engine that the caller drives while it waits; none in tests without one.
    fn engine(&self) -> Option<&Arc<Engine>>;

    /// The signal that another attempt may succeed.
    fn signal(shared: &Shared) -> &Signal;

    /// Tells the engine what the application did, which must have been published before.
    fn notify_engine(&self) {
        if self.shared().is_forked() {
            return;
        }
        // A ring that is pending may be one that `notify_of_message` left to the next call.
        if self.shared().enqueue() || self.shared().is_rung() {
            match self.engine() {
                Some(engine) => engine.publish(),
                None => self.shared().ring(),
            }
        }
    }

    /// As [`Half::notify_engine`], after a message. If the calling thread has more to read, it will
    /// be back in a moment, and its messages share a step; a lone one is transmitted at once.
    fn notify_of_message(&self) {
        match self.engine() {
            Some(engine) if self.shared().has_more_to_read() => {
                self.shared().enqueue();
                engine.publish_soon();
            }
            _ => self.notify_engine(),
        }
    }

    /// Repeats `attempt` while it returns [`Error::WouldBlock`], at most for `timeout`. The calling
    /// thread drives the engine meanwhile, if no other one does.
    fn block<T>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.check_process()?;
        match attempt(self) {
            Err(Error::WouldBlock) => {}
            other => {
                self.refresh();
                return other;
            }
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let (shared, engine) = (self.shared().clone(), self.engine().cloned());
        let signal = Self::signal(&shared);
        let look = || match attempt(self) {
            Err(Error::WouldBlock) => None,
            other => Some(other),
        };
        let done = match engine {
            Some(engine) => engine.wait(signal, deadline, look),
            None => signal.wait(deadline, look),
        };
        done.unwrap_or_else(|| Err(Error::TimedOut(timeout.unwrap_or_default())))
    }

    /// Calls `attempt` for a task, which is woken when another attempt may succeed.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        match self.arm_after(attempt, |signal| signal.arm(Some(cx.waker()))) {
            Err(Error::WouldBlock) => Poll::Pending,
            other => Poll::Ready(other),
        }
    }

    /// Calls `attempt` for an application that waits by the descriptor.
    fn attempt<T>(
        &mut self,
        attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.arm_after(attempt, |signal| signal.arm(None))
    }

    /// Calls `attempt`; if it cannot succeed yet, steps the engine and tries again, and before the
    /// last try calls `arm`.
    fn arm_after<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Error>,
        arm: impl Fn(&Signal),
    ) -> Result<T, Error> {
        self.check_process()?;
        match attempt(self) {
            Err(Error::WouldBlock) => {}
            other => {
                self.refresh();
                return other;
            }
        }
        if let Some(engine) = self.engine()
            && engine.bell().progress() != Progress::Worker
        {
            engine.turn();
        }
        arm(Self::signal(self.shared()));
        attempt(self)
    }

    /// Fails in a process that was forked from the one that has the connection.
    fn check_process(&self) -> Result<(), Error> {
        if self.shared().is_forked() { Err(Cause::Forked.into()) } else { Ok(()) }
    }

    fn refresh(&self) {
        if let Some(engine) = self.engine() {
            engine.refresh();
        }
    }
}
