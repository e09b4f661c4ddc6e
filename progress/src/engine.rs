//! The engine and its port, as this crate sees them.

use crate::Event;
use spanwire_base::Awaited;

/// An engine that one thread at a time steps.
pub trait Engine {
    /// The part that calls use: queue pairs without their port.
    type Node;

    /// Receives, handles due timers and transmits, without waiting. `rung`: something was published
    /// for it. `quiet`: a sleep at the port ended without a frame, so the port's state is to be
    /// checked.
    fn step(&mut self, rung: bool, quiet: bool) -> Step;

    /// Its node.
    fn node(&mut self) -> &mut Self::Node;

    /// Its end, because of `why`; no other call follows.
    fn end(&mut self, why: &str);
}

/// The result of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// It was stepped.
    Done {
        /// Something was received, transmitted or due.
        progress: bool,
        /// When the next step is due without a frame, in ns of [`Door::now_ns`].
        wakes_at: u64,
        /// The event for which it waits until then.
        awaits: Awaited,
    },
    /// It has ended, for this reason if it failed, and is dropped.
    Ended(Option<String>),
}

/// The port, for a thread that sleeps at it without the engine's lock.
pub trait Door {
    /// The descriptor that ends a sleep.
    type Event: Event;

    /// False in a process that was forked from the one of the engine.
    fn is_here(&self) -> bool;

    /// The engine's clock, in ns.
    fn now_ns(&self) -> u64;

    /// The processor time of the calling thread, in ns.
    fn work_ns(&self) -> u64;

    /// By how many ns the kernel may delay the end of a sleep of the calling thread.
    fn slack_ns(&self) -> u64;

    /// Sleeps until a frame arrives, `event` is ready, or the clock is at `until`; clears `event`
    /// if it was ready. False if neither a frame nor the event ended the sleep.
    fn sleep(&self, event: &Self::Event, until: u64) -> bool;

    /// Sleeps until `event` is ready or the clock is at `until`; clears `event` if it was ready.
    fn nap(&self, event: &Self::Event, until: u64);
}
