//! Operations that set up or end a network or connection without blocking their caller.

use crate::error::SetupError;
use crate::threads::start;
use spanwire_io::event::EventFd;
use spanwire_io::fork::Origin;
use spanwire_io::worker::Signal;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// An operation that a thread of its own carries out, and its result: the form of
/// [`Network::open`](crate::Network::open), `connect` and `shutdown` for tasks and event loops.
///
/// It is a [`Future`]. The result is taken once; after that it stays pending. Its descriptor is
/// readable when [`Pending::try_take`] may succeed. If it is dropped, the operation goes on, and
/// its result is dropped too: a connection is then closed.
#[derive(Debug)]
#[must_use = "dropped, its result is dropped"]
pub struct Pending<T> {
    outcome: Arc<Outcome<T>>,
}

#[derive(Debug)]
struct Outcome<T> {
    result: Mutex<Option<Result<T, SetupError>>>,
    ready: Signal,
    origin: Origin,
}

/// Gives a result even if the operation panics, so that no task waits for ever.
struct Completion<T>(Arc<Outcome<T>>);

impl<T: Send + 'static> Pending<T> {
    /// Carries out `work` in a thread of that name.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce() -> Result<T, SetupError> + Send + 'static,
    ) -> Result<Self, SetupError> {
        let event = EventFd::new().map_err(|e| SetupError::Io("make a descriptor", e))?;
        let ready = Signal::new(event, None);
        let outcome = Arc::new(Outcome { result: Mutex::new(None), ready, origin: Origin::here() });
        let completion = Completion(outcome.clone());
        start(name, move || {
            let result = work();
            *completion.0.lock() = Some(result);
        })?;
        Ok(Self { outcome })
    }
}

impl<T> Pending<T> {
    /// Blocks until the operation is complete.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait(self) -> Result<T, SetupError> {
        self.outcome.ready.wait(None, || self.outcome.take()).expect("without a time limit")
    }

    /// The result, if the operation is complete.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn try_take(&mut self) -> Result<Option<T>, SetupError> {
        if let Some(result) = self.outcome.take() {
            return result.map(Some);
        }
        self.outcome.ready.arm(None);
        self.outcome.take().transpose()
    }

    /// The result. If the operation is not complete, the task is woken when it is.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, SetupError>> {
        if let Some(result) = self.outcome.take() {
            return Poll::Ready(result);
        }
        self.outcome.ready.arm(Some(cx.waker()));
        self.outcome.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, SetupError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_take(cx)
    }
}

/// Readable when [`Pending::try_take`] may succeed.
impl<T> AsFd for Pending<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outcome.ready.descriptor()
    }
}

impl<T> Outcome<T> {
    /// The result, if there is one and it was not taken.
    fn take(&self) -> Option<Result<T, SetupError>> {
        if !self.origin.is_here() {
            let why = "the operation goes on in the process that this one was forked from";
            return Some(Err(SetupError::NetworkGone(why.into())));
        }
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<T, SetupError>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        let panicked = || Err(SetupError::NetworkGone("a thread that set it up panicked".into()));
        self.0.lock().get_or_insert_with(panicked);
        self.0.ready.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::task::Waker;

    #[test]
    fn poll_take__is_pending_until_the_operation_is_complete() {
        let (go, wait) = channel();
        let mut pending = Pending::start("spanwire-test", move || Ok(wait.recv())).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pending.poll_take(&mut cx).is_pending());
        assert!(pending.try_take().unwrap().is_none());
        go.send(7).unwrap();
        assert_eq!(pending.wait().unwrap(), Ok(7));
    }

    #[test]
    fn wait__a_panic_is_an_error() {
        let mut pending = Pending::<()>::start("spanwire-test", || panic!("as told")).unwrap();
        let error = loop {
            match pending.try_take() {
                Ok(None) => std::thread::yield_now(),
                Ok(Some(())) => panic!("there is no result"),
                Err(e) => break e,
            }
        };
        assert!(matches!(error, SetupError::NetworkGone(_)), "{error}");
    }
}
