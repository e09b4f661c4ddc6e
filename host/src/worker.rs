//! An engine with a port and one application, which threads share: commands of other threads, and
//! the steps of whichever thread drives it.

use crate::fabric::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spanwire_io::affinity;
use spanwire_io::clock::Clock;
use spanwire_io::driver::{Driver, Polling};
use spanwire_io::event::EventFd;
use spanwire_progress::{Door, Engine, Progress, Shared, Signal, Spin, Step};
use spanwire_transport::{App, Endpoint, Host};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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
    queue: Sender<QueuedCommand<C>>,
    bell: Arc<Bell>,
}

/// The runtime's end of the command queue.
#[derive(Debug)]
pub struct Queue<C> {
    asks: Receiver<QueuedCommand<C>>,
    bell: Arc<Bell>,
}

/// An engine, its port and its application, driven by the threads that wait for it.
pub struct Runtime<W: Work> {
    shared: Shared<Driven<W>, PortDoor>,
    commands: Commands<W::Command>,
    end: Arc<End>,
}

/// The end of a runtime.
#[derive(Debug)]
pub struct End {
    /// Why, if it failed.
    why: OnceLock<String>,
    /// Readable once it has ended.
    event: EventFd,
}

#[derive(Debug)]
enum QueuedCommand<C> {
    Work(C),
    Port(PortCommand),
}

/// A command to the port.
#[derive(Debug)]
enum PortCommand {
    SidePoll(IpAddr, SyncSender<Option<u16>>),
    Greet(SocketAddr),
    Counters(SyncSender<Vec<(String, u64)>>),
}

/// What is driven; none after the end.
struct Driven<W: Work> {
    parts: Option<Parts<W>>,
    end: Arc<End>,
}

struct Parts<W: Work> {
    driver: Driver,
    host: Host<W>,
    port: Box<dyn Link + Send>,
    queue: Receiver<QueuedCommand<W::Command>>,
}

/// Where threads sleep without the engine's lock.
#[derive(Debug)]
struct PortDoor {
    clock: Clock,
    /// Readable when a frame has arrived; a port without one is polled.
    port: Option<OwnedFd>,
}

/// A bell, and both ends of a command queue. Each command rings the bell.
///
/// # Errors
/// There are no descriptors left.
pub fn commands<C>(mode: Progress) -> io::Result<(Commands<C>, Queue<C>)> {
    let bell = Arc::new(Bell::new(mode, [EventFd::new()?, EventFd::new()?]));
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
        polling: Option<Polling>,
    ) -> io::Result<Self> {
        let end = Arc::new(End { why: OnceLock::new(), event: EventFd::new()? });
        let fd = port.poll_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
        let door = PortDoor { clock, port: fd };
        let spin = match polling {
            None => Spin::Tuned,
            Some(Polling::Busy) => Spin::Forever,
            Some(Polling::Adaptive { spin }) => Spin::For(spin.as_ns()),
        };
        let driver = Driver::new(clock, Polling::Busy);
        let (host, Queue { asks, bell }) = (Host::new(endpoint, work), queue);
        let parts = Some(Parts { driver, host, port, queue: asks });
        let driven = Driven { parts, end: end.clone() };
        Ok(Self { shared: Shared::new(bell, driven, door, spin), commands, end })
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
        self.shared.publish();
    }

    /// One step, unless another thread takes one. True if something was received, sent or due.
    pub fn turn(&self) -> bool {
        self.shared.turn()
    }

    /// Which threads drive it.
    pub fn progress(&self) -> Progress {
        self.commands.bell.progress()
    }

    /// True once it has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Drives it until something was received, sent or due, or until `deadline`.
    pub fn pause(&self, deadline: Option<Instant>) {
        self.shared.pause(deadline);
    }

    /// Steps it if no thread has for a while: for a thread that never has to wait.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// Blocks until `look` returns a value, or until `deadline`; see
    /// [`Shared::wait`](spanwire_progress::Shared::wait).
    pub fn wait<T>(
        &self,
        signal: &Signal<EventFd>,
        deadline: Option<Instant>,
        look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.shared.wait(signal, deadline, look)
    }

    fn reply<T>(&self, ask: impl FnOnce(SyncSender<T>) -> QueuedCommand<W::Command>) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        self.push(ask(reply));
        loop {
            match answer.recv_timeout(ASK_AGAIN) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                // Without a worker nobody else may be there to step it.
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.publish();
                }
            }
        }
    }

    fn push(&self, ask: QueuedCommand<W::Command>) {
        let _ = self.commands.queue.send(ask);
        self.shared.publish();
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

impl End {
    /// Why the runtime has failed, if it has.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    /// Readable once the runtime has ended.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.event
    }
}

impl<W: Work> Engine for Driven<W> {
    fn step(&mut self, rung: bool, quiet: bool) -> Step {
        let Some(parts) = &mut self.parts else { return Step::Ended };
        if rung {
            parts.process_commands();
        }
        let checked = if quiet { parts.port.wait(Duration::ZERO) } else { Ok(()) };
        let turned = checked.and_then(|()| parts.driver.turn(&mut parts.host, &mut parts.port));
        let (endpoint, work) = parts.host.parts_mut();
        match turned {
            Ok(progress) if !work.is_finished() => {
                let wakes_at = parts.driver.wakes_at(&parts.host, &parts.port).as_ns();
                return Step::Done { progress: !progress.is_idle(), wakes_at };
            }
            Ok(_) => work.end(endpoint, "it was shut down"),
            Err(e) => {
                let why = port_is_gone(&e);
                tracing::error!("{why}");
                work.end(endpoint, &why);
                let _ = self.end.why.set(why);
            }
        }
        self.parts = None;
        self.end.event.signal();
        Step::Ended
    }

    fn abandon(&mut self) {
        if self.parts.take().is_some() {
            let _ = self.end.why.set("one of its threads panicked".into());
            self.end.event.signal();
        }
    }
}

impl<W: Work> Parts<W> {
    /// Executes the commands of other threads.
    fn process_commands(&mut self) {
        while let Ok(ask) = self.queue.try_recv() {
            let (endpoint, work) = self.host.parts_mut();
            match ask {
                QueuedCommand::Work(command) => work.handle_command(command, endpoint),
                QueuedCommand::Port(command) => self.serve_port(command),
            }
        }
        let (endpoint, work) = self.host.parts_mut();
        work.handle_ring(endpoint);
    }

    fn serve_port(&mut self, command: PortCommand) {
        // An error means that the thread no longer waits for a reply.
        match command {
            PortCommand::SidePoll(ip, reply) => {
                let _ = reply.send(self.port.open_side_poll(ip));
            }
            PortCommand::Greet(peer) => self.port.greet(peer),
            PortCommand::Counters(reply) => {
                let mut counters = self.host.endpoint().counters().list();
                counters.extend(self.port.counters());
                counters.push(("worker_steps".to_owned(), self.driver.counters().steps));
                let _ = reply.send(counters);
            }
        }
    }
}

impl Door for PortDoor {
    type Event = EventFd;

    fn now_ns(&self) -> u64 {
        self.clock.now().as_ns()
    }

    fn sleep(&self, event: &EventFd, until: u64) -> bool {
        let Some(port) = &self.port else {
            // Nothing reports a frame: the port is polled.
            return sleep(&mut [entry(event)], self.left(until).min(POLL_INTERVAL)) && false;
        };
        sleep(&mut [entry(event), entry(port)], self.left(until))
    }

    fn nap(&self, event: &EventFd, until: u64) {
        sleep(&mut [entry(event)], self.left(until));
    }
}

impl PortDoor {
    fn left(&self, until: u64) -> Duration {
        Duration::from_nanos(until.saturating_sub(self.now_ns()))
    }
}

fn entry(fd: &impl AsFd) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)
}

/// Sleeps until one of `fds` is ready; false if none is.
fn sleep(fds: &mut [PollFd<'_>], within: Duration) -> bool {
    let within = Timespec::try_from(within).ok();
    // A signal ends the sleep early, and an error too; the caller then looks again.
    let ready = poll(fds, within.as_ref()).unwrap_or(0);
    let failed = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    ready > 0 && !fds.iter().any(|fd| fd.revents().intersects(failed))
}

/// The message for the error `e` of a port that has failed.
#[must_use]
pub fn port_is_gone(e: &io::Error) -> String {
    format!("the port is gone: {e}; start again once the interface is there")
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

/// Maximum sleep with a port that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Attachment, Wrap};
    use crate::seed;
    use spanwire_base::Time;
    use spanwire_transport::ValidConfig;

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
        let runtime = Runtime::new(Adder::default(), queue, endpoint, (port, clock), None);
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
