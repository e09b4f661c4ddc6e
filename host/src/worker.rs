//! A worker: a thread with an engine, a port and one application, and a queue of commands from
//! other threads.

use crate::fabric::Link;
use spanwire_base::Time;
use spanwire_io::affinity;
use spanwire_io::clock::Clock;
use spanwire_io::doorbell::{BellPort, Doorbell};
use spanwire_io::driver::{Driver, DriverCounters, Polling};
use spanwire_transport::{App, Endpoint, Host};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

/// An application that executes commands of other threads.
pub trait Work: App {
    /// A command of another thread.
    type Command;

    /// Executes `command`.
    fn handle_command(&mut self, command: Self::Command, endpoint: &mut Endpoint);

    /// Processes state shared with other threads besides the commands. Called after each ring of
    /// the doorbell, once the commands are executed.
    fn handle_ring(&mut self, endpoint: &mut Endpoint);

    /// True if no work is left; then the worker ends.
    fn is_finished(&self) -> bool;

    /// Ends all work because of `why`. The worker ends afterwards.
    fn end(&mut self, endpoint: &mut Endpoint, why: &str);
}

/// A handle to send commands to a worker from any thread.
#[derive(Debug)]
pub struct Commands<C> {
    queue: Sender<QueuedCommand<C>>,
    bell: Arc<Doorbell>,
}

/// The worker's end of the command queue.
#[derive(Debug)]
pub struct Queue<C> {
    asks: Receiver<QueuedCommand<C>>,
    bell: Arc<Doorbell>,
}

#[derive(Debug)]
enum QueuedCommand<C> {
    Work(C),
    Port(PortCommand),
}

/// A command that only the thread with the port can execute.
#[derive(Debug)]
enum PortCommand {
    SidePoll(IpAddr, SyncSender<Option<u16>>),
    Greet(SocketAddr),
    Counters(SyncSender<Vec<(String, u64)>>),
}

/// An application and its commands, as one application of a [`Host`].
#[derive(Debug)]
struct Worker<W: Work> {
    work: W,
    queue: Queue<W::Command>,
    /// Commands that wait until the driver returns the port.
    for_port: VecDeque<PortCommand>,
}

/// Both ends of a command queue. Each command rings `bell`.
#[must_use]
pub fn commands<C>(bell: Arc<Doorbell>) -> (Commands<C>, Queue<C>) {
    let (queue, asks) = channel();
    (Commands { queue, bell: bell.clone() }, Queue { asks, bell })
}

impl<C> Commands<C> {
    /// Sends `command`. If the worker has ended, the command is dropped.
    pub fn send(&self, command: C) {
        self.push(QueuedCommand::Work(command));
    }

    /// Sends a command and waits for its reply. `None` if the worker has ended.
    pub fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> C) -> Option<T> {
        self.wait(|reply| QueuedCommand::Work(command(reply)))
    }

    /// Opens a side poll socket at `ip`; returns its UDP port, if it could be opened. `None` if the
    /// worker has ended.
    #[must_use]
    pub fn open_side_poll(&self, ip: IpAddr) -> Option<Option<u16>> {
        self.wait(|reply| QueuedCommand::Port(PortCommand::SidePoll(ip, reply)))
    }

    /// Sends the datagram by which the side poll socket at `peer` learns its receive queue.
    pub fn greet(&self, peer: SocketAddr) {
        self.push(QueuedCommand::Port(PortCommand::Greet(peer)));
    }

    /// Counters of engine, port and worker by name. `None` if the worker has ended.
    #[must_use]
    pub fn counters(&self) -> Option<Vec<(String, u64)>> {
        self.wait(|reply| QueuedCommand::Port(PortCommand::Counters(reply)))
    }

    fn wait<T>(&self, ask: impl FnOnce(SyncSender<T>) -> QueuedCommand<C>) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        self.push(ask(reply));
        answer.recv().ok()
    }

    fn push(&self, ask: QueuedCommand<C>) {
        let _ = self.queue.send(ask);
        self.bell.ring();
    }
}

impl<C> Clone for Commands<C> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bell: self.bell.clone() }
    }
}

/// Drives `work` on `endpoint` over `port` until its work ends.
///
/// # Errors
/// The port failed; the text says why.
pub fn run<W: Work>(
    work: W,
    queue: Queue<W::Command>,
    endpoint: Endpoint,
    port: Box<dyn Link + Send>,
    clock: Clock,
    polling: Polling,
) -> Result<(), String> {
    let mut driver = Driver::new(clock, polling);
    let mut port = BellPort::new(port, queue.bell.clone());
    let mut host = Host::new(endpoint, Worker { work, queue, for_port: VecDeque::new() });
    loop {
        let ran = driver.run_until(&mut host, &mut port, |host| {
            let (endpoint, worker) = host.parts_mut();
            worker.process_commands(endpoint);
            !worker.for_port.is_empty() || worker.work.is_finished()
        });
        let (endpoint, worker) = host.parts_mut();
        if let Err(e) = ran {
            let why = port_is_gone(&e);
            worker.work.end(endpoint, &why);
            return Err(why);
        }
        worker.serve_port(endpoint, &mut port, &driver.counters());
        if worker.work.is_finished() {
            worker.work.end(endpoint, "it was shut down");
            return Ok(());
        }
    }
}

impl<W: Work> Worker<W> {
    /// Executes the commands of other threads, if the doorbell has rung.
    fn process_commands(&mut self, endpoint: &mut Endpoint) {
        if !self.queue.bell.take() {
            return;
        }
        while let Ok(ask) = self.queue.asks.try_recv() {
            match ask {
                QueuedCommand::Work(command) => self.work.handle_command(command, endpoint),
                QueuedCommand::Port(command) => self.for_port.push_back(command),
            }
        }
        self.work.handle_ring(endpoint);
    }

    fn serve_port(&mut self, endpoint: &Endpoint, port: &mut impl Link, driven: &DriverCounters) {
        while let Some(command) = self.for_port.pop_front() {
            // An error means that the thread no longer waits for a reply.
            match command {
                PortCommand::SidePoll(ip, reply) => {
                    let _ = reply.send(port.open_side_poll(ip));
                }
                PortCommand::Greet(peer) => port.greet(peer),
                PortCommand::Counters(reply) => {
                    let mut counters = endpoint.counters().list();
                    counters.extend(port.counters());
                    let worker = [("worker_steps", driven.steps), ("worker_sleeps", driven.waits)];
                    counters.extend(worker.map(|(name, n)| (name.to_owned(), n)));
                    let _ = reply.send(counters);
                }
            }
        }
    }
}

impl<W: Work> App for Worker<W> {
    fn poll(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.work.poll(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.work.poll_timeout()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Attachment, Wrap};
    use crate::seed;
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

    #[test]
    fn run__carries_out_commands_until_the_work_is_over() {
        let (Attachment { port, clock, .. }, _peer) =
            Attachment::pipe([&Wrap::default(), &Wrap::default()]).unwrap();
        let endpoint = seed::endpoint(ValidConfig::default()).unwrap();
        let (commands, queue) = commands(Arc::new(Doorbell::new().unwrap()));
        let polling = Polling::Adaptive { spin: spanwire_base::Dur::from_us(5) };
        let work = move || run(Adder::default(), queue, endpoint, port, clock, polling).unwrap();
        let worker = spawn("adder", work).unwrap();
        for n in 1..=10 {
            commands.send(Command::Add(n));
        }
        let (sum, rings) = commands.ask(Command::Sum).unwrap();
        assert_eq!(sum, 55, "in order");
        assert!(rings <= 11, "a ring or less for each command: {rings}");
        assert_eq!(commands.open_side_poll([10, 0, 0, 1].into()), Some(None), "not over a pipe");
        let counters = commands.counters().unwrap();
        for name in ["pipe_rx_frames", "worker_steps"] {
            assert!(counters.iter().any(|(counted, _)| counted == name), "{name}");
        }
        assert_eq!(commands.ask(Command::Stop).unwrap(), "it was shut down");
        worker.join().unwrap();
        assert_eq!(commands.counters(), None);
    }
}
