//! The steps of a runtime, and the sleep at its port.

use super::queue::{PortCommand, QueuedCommand, Work};
use crate::fabric::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spanwire_base::Node;
use spanwire_io::clock::Clock;
use spanwire_io::driver::{Driver, Polling};
use spanwire_io::event::EventFd;
use spanwire_io::fork::Origin;
use spanwire_io::thread_time;
use spanwire_progress::{Door, Engine, Step};
use spanwire_transport::Host;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The end of a runtime.
#[derive(Debug)]
pub struct End {
    /// It has ended, for whatever reason.
    is_over: AtomicBool,
    /// Why, if it failed.
    why: OnceLock<String>,
    /// Readable once it has ended.
    event: EventFd,
    origin: Origin,
}

/// Engine, port and application; none after the end.
pub(super) struct Driven<W: Work> {
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
pub(super) struct PortDoor {
    clock: Clock,
    /// Readable when a frame has arrived; a port without one is polled.
    port: Option<OwnedFd>,
}

impl End {
    pub(super) fn new() -> io::Result<Self> {
        let is_over = AtomicBool::new(false);
        Ok(Self { is_over, why: OnceLock::new(), event: EventFd::new()?, origin: Origin::here() })
    }

    fn announce(&self) {
        self.is_over.store(true, Ordering::Release);
        self.event.signal();
    }

    /// True in a process that was forked from the one of the runtime. It has the descriptors, but
    /// must not use them, and none of the threads.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    /// Why the runtime has failed, if it has.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        if self.is_forked() { Some(FORKED) } else { self.why.get().map(String::as_str) }
    }

    /// True once the runtime has ended; true when [`End::event`] is readable.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.is_forked() || self.is_over.load(Ordering::Acquire)
    }

    /// Readable once the runtime has ended.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.event
    }
}

impl<W: Work> Drop for Driven<W> {
    fn drop(&mut self) {
        if self.end.is_forked() {
            // The port and its threads are those of another process, and what is buffered is its.
            std::mem::forget(self.parts.take());
        }
    }
}

impl<W: Work> Driven<W> {
    pub(super) fn new(
        host: Host<W>,
        (port, clock): (Box<dyn Link + Send>, Clock),
        queue: Receiver<QueuedCommand<W::Command>>,
        end: Arc<End>,
    ) -> Self {
        let driver = Driver::new(clock, Polling::Busy).with_budget(port.budget());
        Self { parts: Some(Parts { driver, host, port, queue }), end }
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
                let awaits = parts.host.awaited();
                return Step::Done { progress: !progress.is_idle(), wakes_at, awaits };
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
        self.end.announce();
        Step::Ended
    }

    fn abandon(&mut self) {
        if self.parts.take().is_some() {
            let _ = self.end.why.set("one of its threads panicked".into());
            self.end.announce();
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
            sleep(&mut [entry(event)], self.left(until).min(POLL_INTERVAL));
            return false;
        };
        sleep(&mut [entry(event), entry(port)], self.left(until))
    }

    fn work_ns(&self) -> u64 {
        thread_time::work_ns()
    }

    fn slack_ns(&self) -> u64 {
        thread_time::slack_ns()
    }

    fn nap(&self, event: &EventFd, until: u64) {
        sleep(&mut [entry(event)], self.left(until));
    }
}

impl PortDoor {
    pub(super) fn new(clock: Clock, port: &dyn Link) -> io::Result<Self> {
        let port = port.poll_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
        Ok(Self { clock, port })
    }

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

/// The reason of the end in a process that was forked from the one of the runtime.
const FORKED: &str = "it belongs to the process that this one was forked from; open it after fork";

/// Maximum sleep with a port that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
