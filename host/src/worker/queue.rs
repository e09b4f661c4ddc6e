//! The work of a runtime, and the commands of other threads to it.

use spanwire_io::event::EventFd;
use spanwire_progress::Progress;
use spanwire_transport::{App, Endpoint};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};

/// An application that executes commands of other threads.
pub trait Work: App {
    /// A command of another thread.
    type Command;

    /// Executes `command`.
    fn handle_command(&mut self, command: Self::Command, endpoint: &mut Endpoint);

    /// Processes state shared with other threads besides the commands. Called after each ring of
    /// the bell, once the commands are executed.
    fn handle_ring(&mut self, endpoint: &mut Endpoint);

    /// True if no work is left; then the runtime ends.
    fn is_finished(&self) -> bool;

    /// Ends all work because of `why`. The runtime ends afterwards.
    fn end(&mut self, endpoint: &mut Endpoint, why: &str);
}

/// The bell of a runtime.
pub type Bell = spanwire_progress::Bell<EventFd>;

/// A handle to send commands to a runtime from any thread.
#[derive(Debug)]
pub struct Commands<C> {
    pub(super) queue: Sender<QueuedCommand<C>>,
    pub(super) bell: Arc<Bell>,
}

/// The runtime's end of the command queue.
#[derive(Debug)]
pub struct Queue<C> {
    pub(super) asks: Receiver<QueuedCommand<C>>,
    pub(super) bell: Arc<Bell>,
}

#[derive(Debug)]
pub(super) enum QueuedCommand<C> {
    Work(C),
    Port(PortCommand),
}

/// A command to the port.
#[derive(Debug)]
pub(super) enum PortCommand {
    SidePoll(IpAddr, SyncSender<Option<u16>>),
    Greet(SocketAddr),
    Counters(SyncSender<Vec<(String, u64)>>),
}

/// A bell, and both ends of a command queue. Each command rings the bell.
///
/// # Errors
/// There are no descriptors left.
pub fn commands<C>(mode: Progress) -> io::Result<(Commands<C>, Queue<C>)> {
    let bell = Arc::new(Bell::new(mode, EventFd::new()?, [EventFd::new()?, EventFd::new()?]));
    let (queue, asks) = channel();
    Ok((Commands { queue, bell: bell.clone() }, Queue { asks, bell }))
}

impl<C> Commands<C> {
    /// Sends `command`. If the runtime has ended, the command is dropped.
    pub fn send(&self, command: C) {
        self.push(QueuedCommand::Work(command));
    }

    /// The bell.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn push(&self, ask: QueuedCommand<C>) {
        let _ = self.queue.send(ask);
        self.bell.ring();
        self.bell.wake();
    }
}

impl<C> Clone for Commands<C> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bell: self.bell.clone() }
    }
}
