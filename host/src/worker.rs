//! An engine with a port and one application, which threads share: commands of other threads, and
//! the steps of whichever thread drives it.

mod driven;
mod queue;

use crate::fabric::Link;
use driven::{Driven, PortDoor};
pub use driven::{End, port_is_gone};
pub use queue::{Bell, Commands, Queue, Work, commands};
use queue::{PortCommand, QueuedCommand};
use spanwire_io::affinity;
use spanwire_io::clock::Clock;
use spanwire_io::driver::Polling;
use spanwire_io::event::EventFd;
use spanwire_progress::{Progress, Shared, Signal};
use spanwire_transport::{Endpoint, Host};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An engine, its port and its application, driven by the threads that wait for it.
///
/// In a process that was forked from the one that made it, it has ended ([`End::is_forked`]): no
/// call has an effect.
pub struct Runtime<W: Work> {
    shared: Shared<Driven<W>, PortDoor>,
    commands: Commands<W::Command>,
    end: Arc<End>,
}

impl<W: Work> Runtime<W> {
    /// A runtime of `work` on `endpoint` over `port`.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(
        work: W,
        (commands, queue): (Commands<W::Command>, Queue<W::Command>),
        endpoint: Endpoint,
        (port, clock): (Box<dyn Link + Send>, Clock),
        polling: Polling,
    ) -> io::Result<Self> {
        let end = Arc::new(End::new()?);
        let door = PortDoor::new(clock, &*port)?;
        let Queue { asks, bell } = queue;
        let driven = Driven::new(Host::new(endpoint, work), (port, clock), asks, end.clone());
        Ok(Self { shared: Shared::new(bell, driven, door, polling), commands, end })
    }

    /// Its commands, for threads that do not drive it.
    pub fn commands(&self) -> &Commands<W::Command> {
        &self.commands
    }

    /// Its end.
    pub fn end(&self) -> &Arc<End> {
        &self.end
    }

    /// The worker's thread: drives it while no other thread does, until its end.
    pub fn work(&self) {
        let after = EndAfterPanic(self);
        self.shared.work();
        drop(after);
    }

    /// Sends `command`. If the runtime has ended, the command is dropped.
    pub fn send(&self, command: W::Command) {
        self.push(QueuedCommand::Work(command));
    }

    /// Sends a command and waits for its reply. `None` if the runtime has ended.
    pub fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> W::Command) -> Option<T> {
        self.reply(|reply| QueuedCommand::Work(command(reply)))
    }

    /// Opens a side poll socket at `ip`; returns its UDP port, if it could be opened. `None` if the
    /// runtime has ended.
    #[must_use]
    pub fn open_side_poll(&self, ip: IpAddr) -> Option<Option<u16>> {
        self.reply(|reply| QueuedCommand::Port(PortCommand::SidePoll(ip, reply)))
    }

    /// Sends the datagram by which the side poll socket at `peer` learns its receive queue.
    pub fn greet(&self, peer: SocketAddr) {
        self.push(QueuedCommand::Port(PortCommand::Greet(peer)));
    }

    /// Counters of engine, port and driver by name. `None` if the runtime has ended.
    #[must_use]
    pub fn counters(&self) -> Option<Vec<(String, u64)>> {
        self.reply(|reply| QueuedCommand::Port(PortCommand::Counters(reply)))
    }

    /// Tells the application that the calling thread has published something for it.
    pub fn publish(&self) {
        if !self.end.is_forked() {
            self.shared.publish();
        }
    }

    /// As [`Runtime::publish`], for a thread that will publish more, or wait, in a moment; see
    /// [`Shared::publish_soon`](spanwire_progress::Shared::publish_soon).
    pub fn publish_soon(&self) {
        if !self.end.is_forked() {
            self.shared.publish_soon();
        }
    }

    /// One step, unless another thread takes one. True if something was received, sent or due.
    pub fn turn(&self) -> bool {
        !self.end.is_forked() && self.shared.turn()
    }

    /// Which threads drive it.
    pub fn progress(&self) -> Progress {
        self.commands.bell.progress()
    }

    /// True once it has ended.
    pub fn has_ended(&self) -> bool {
        self.end.is_forked() || self.shared.has_ended()
    }

    /// Drives it until something was received, sent or due, or until `deadline`.
    pub fn pause(&self, deadline: Option<Instant>) {
        if !self.end.is_forked() {
            self.shared.pause(deadline);
        }
    }

    /// Steps it if no thread has for a while: for a thread that never has to wait.
    pub fn refresh(&self) {
        if !self.end.is_forked() {
            self.shared.refresh();
        }
    }

    /// Blocks until `look` returns a value, or until `deadline`; see
    /// [`Shared::wait`](spanwire_progress::Shared::wait).
    pub fn wait<T>(
        &self,
        signal: &Signal<EventFd>,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if self.end.is_forked() {
            return look();
        }
        self.shared.wait(signal, deadline, look)
    }

    fn reply<T>(&self, ask: impl FnOnce(SyncSender<T>) -> QueuedCommand<W::Command>) -> Option<T> {
        if self.end.is_forked() {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        self.push(ask(reply));
        loop {
            match answer.recv_timeout(ASK_AGAIN) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                // Without a worker no other thread may be there to step it.
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.publish();
                }
            }
        }
    }

    fn push(&self, ask: QueuedCommand<W::Command>) {
        if !self.end.is_forked() {
            let _ = self.commands.queue.send(ask);
            self.shared.publish();
        }
    }
}

impl<W: Work> fmt::Debug for Runtime<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("end", &self.end).finish_non_exhaustive()
    }
}

/// Ends a runtime whose worker's thread panicked, so that no application waits for ever.
struct EndAfterPanic<'a, W: Work>(&'a Runtime<W>);

impl<W: Work> Drop for EndAfterPanic<'_, W> {
    fn drop(&mut self) {
        self.0.turn();
    }
}

/// Starts a thread of that name.
///
/// # Errors
/// The system has no threads left.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Pins the calling thread to `core`, if one is given. A failure is only a warning.
pub fn pin(core: Option<usize>) {
    if let Some(Err(e)) = core.map(affinity::pin) {
        tracing::warn!("the worker is not pinned: {e}");
    }
}

/// How long a thread that has sent a command waits for another one to execute it, before it tries
/// again itself.
const ASK_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Attachment, Wrap};
    use crate::seed;
    use spanwire_base::Time;
    use spanwire_transport::{App, ValidConfig};

    /// An application that adds numbers until it is stopped.
    #[derive(Default)]
    struct Adder {
        sum: u64,
        rings: u64,
        stopped: bool,
        ended: Option<SyncSender<String>>,
    }

    enum Command {
        Add(u64),
        Sum(SyncSender<(u64, u64)>),
        Stop(SyncSender<String>),
        Panic,
    }

    impl App for Adder {
        fn poll(&mut self, _: Time, _: &mut Endpoint) {}
    }

    impl Work for Adder {
        type Command = Command;

        fn handle_command(&mut self, command: Command, _: &mut Endpoint) {
            match command {
                Command::Add(n) => self.sum += n,
                Command::Sum(reply) => reply.send((self.sum, self.rings)).unwrap(),
                Command::Panic => panic!("as told"),
                Command::Stop(ended) => (self.stopped, self.ended) = (true, Some(ended)),
            }
        }

        fn handle_ring(&mut self, _: &mut Endpoint) {
            self.rings += 1;
        }

        fn is_finished(&self) -> bool {
            self.stopped
        }

        fn end(&mut self, _: &mut Endpoint, why: &str) {
            self.ended.take().unwrap().send(why.to_owned()).unwrap();
        }
    }

    fn runtime(progress: Progress) -> (Arc<Runtime<Adder>>, Attachment) {
        let (Attachment { port, clock, .. }, peer) =
            Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
        let endpoint = seed::endpoint(ValidConfig::default()).unwrap();
        let queue = commands(progress).unwrap();
        let runtime =
            Runtime::new(Adder::default(), queue, endpoint, (port, clock), Polling::Adaptive);
        (Arc::new(runtime.unwrap()), peer)
    }

    #[test]
    fn ask__is_answered_in_each_way_of_progress_until_the_work_is_over() {
        for progress in [Progress::Inline, Progress::Shared, Progress::Worker] {
            let (runtime, _peer) = runtime(progress);
            let worker = (progress != Progress::Inline).then(|| {
                let driven = runtime.clone();
                spawn("adder", move || driven.work()).unwrap()
            });
            for n in 1..=10 {
                runtime.send(Command::Add(n));
            }
            let (sum, rings) = runtime.ask(Command::Sum).unwrap();
            assert_eq!(sum, 55, "in order");
            assert!(rings <= 11, "a ring or less for each command: {rings}");
            let port = runtime.open_side_poll([10, 0, 0, 1].into());
            assert_eq!(port, Some(None), "not over a pipe");
            let counters = runtime.counters().unwrap();
            for name in ["pipe_rx_frames", "worker_steps"] {
                assert!(counters.iter().any(|(counted, _)| counted == name), "{name}");
            }
            assert_eq!(runtime.ask(Command::Stop).unwrap(), "it was shut down");
            if let Some(worker) = worker {
                worker.join().unwrap();
            }
            assert_eq!(runtime.counters(), None);
            assert_eq!(runtime.end().why(), None);
        }
    }

    #[test]
    fn work__a_panic_of_one_thread_ends_it_for_all() {
        let (runtime, _peer) = runtime(Progress::Shared);
        let driven = runtime.clone();
        let worker = spawn("adder", move || driven.work()).unwrap();
        let panics = runtime.clone();
        let panicked = spawn("panics", move || panics.send(Command::Panic)).unwrap().join();
        assert!(panicked.is_err(), "it takes the step itself");
        worker.join().unwrap();
        assert_eq!(runtime.counters(), None);
        assert_eq!(runtime.end().why(), Some("one of its threads panicked"));
    }
}
