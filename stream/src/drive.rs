//! How an application's thread drives the engine of its network.

use spanwire_host::worker::{Runtime, Work};
use spanwire_io::event::EventFd;
use spanwire_progress::Progress;
use std::fmt::Debug;
use std::time::Instant;

/// A condition to wait for: that data can be received, or sent.
pub(crate) type Signal = spanwire_progress::Signal<EventFd>;

/// The engine of a network, as the handles of its connections see it.
pub(crate) trait Drive: Debug + Send + Sync {
    /// Tells the engine that the calling thread has published something for it.
    fn publish(&self);

    /// As [`Drive::publish`], for a thread that will publish more, or wait, in a moment.
    fn publish_soon(&self);

    /// A step by the calling thread, if threads of applications take steps.
    fn turn(&self);

    /// Steps the engine if no thread has for a while.
    fn refresh(&self);

    /// Blocks until `look` returns true, or until `deadline`; drives the engine meanwhile.
    fn wait(&self, signal: &Signal, deadline: Option<Instant>, look: &mut dyn FnMut() -> bool);
}

impl<W: Work + Send> Drive for Runtime<W>
where
    W::Command: Send,
    Self: Debug,
{
    fn publish(&self) {
        Self::publish(self);
    }

    fn publish_soon(&self) {
        Self::publish_soon(self);
    }

    fn turn(&self) {
        if self.progress() != Progress::Worker {
            Self::turn(self);
        }
    }

    fn refresh(&self) {
        Self::refresh(self);
    }

    fn wait(&self, signal: &Signal, deadline: Option<Instant>, look: &mut dyn FnMut() -> bool) {
        Self::wait(self, signal, deadline, || look().then_some(()));
    }
}
