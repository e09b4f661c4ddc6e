//! Which thread drives an engine that several threads share, and how threads that wait are woken.
//!
//! An engine (queue pairs and a port) is driven by one thread at a time. A thread that hands every
//! message to another one pays two switches of context for it, several times the cost of the
//! message. So the thread that waits drives: it takes the engine, receives, answers and transmits
//! itself, and sleeps at the port. A worker thread stands in while no application thread does.
//!
//! | type | contents |
//! |---|---|
//! | [`Worker`] | the engine behind its lock, and the calls, turns and waits of its threads |
//! | [`Bell`] | who leads, who sleeps, and whether something was published for the engine |
//! | [`Signal`] | a condition that a thread, a task or a descriptor waits for |
//! | [`Engine`], [`Event`] | the engine and a descriptor, as this crate uses them |
//! | [`Spinner`] | whether a wait spins or sleeps, for drivers of one thread as well |
//!
//! # Roles
//! - The *leader* waits at the port. It is one application thread, or the worker, or none. It
//!   locks the engine for each turn, and never while it sleeps.
//! - Any thread may take a *turn*: it locks the engine, if no other thread has it, for one step. A
//!   message is transmitted that way by the thread that sends it, also while the leader sleeps.
//! - A thread that waits while another one leads is a *follower*: it sleeps on its signal.
//! - The *worker* leads while there are followers, or tasks, or users of descriptors, and after the
//!   lead was vacant for a tick: applications compute, and acknowledgements and timers are due.
//!
//! # No lost wake-up
//! All of them follow one pattern: each side stores its own state, then a sequentially consistent
//! fence, then reads the other's. So of two threads at least one sees the other's store. The model
//! checker loom runs the same code (`RUSTFLAGS="--cfg loom" cargo test -p spanwire-progress
//! --release`).
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod bell;
mod end;
mod engine;
mod lead;
mod publish;
mod signal;
mod spin;
mod sync;
#[cfg(test)]
mod tests;
mod wait;
mod worker;

pub use bell::{APPLICATIONS, Bell, Progress};
pub use engine::{Door, Engine, Step};
pub use signal::Signal;
pub use spin::{Polling, Spinner, Wait};
pub use worker::Worker;

/// A descriptor on which one thread sleeps, together with the port, and that others make ready.
pub trait Event {
    /// Makes it ready: a sleep on it ends, or does not begin.
    fn signal(&self);

    /// Makes it unready.
    fn clear(&self);
}
