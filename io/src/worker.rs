//! A worker: one lock around driver, port and node, for any number of threads.
//!
//! Verbs run in the thread that calls them ([`Worker::with`], [`Worker::submit`]). The thread that
//! waits drives ([`Worker::wait_for`]), and a thread of the worker's own stands in while none does
//! ([`Worker::work`]), unless [`Progress::Inline`] says that there is none. docs/decisions/0029 has
//! the rules.
//!
//! ```
//! use spanwire_io::clock::Clock;
//! use spanwire_io::driver::Polling;
//! use spanwire_io::pipe::{PipeConfig, pipe};
//! use spanwire_io::worker::{Progress, bell, worker};
//! # use spanwire_base::{Node, PortId, PortMask, RxMeta, Time, TxMeta};
//! # #[derive(Default)]
//! # struct Engine(usize);
//! # impl Node for Engine {
//! #     fn handle_packet(&mut self, _: Time, _: PortId, frame: &[u8], _: &RxMeta) {
//! #         self.0 += frame.len();
//! #     }
//! #     fn handle_timeout(&mut self, _: Time) {}
//! #     fn poll_transmit(&mut self, _: Time, _: PortId, _: &mut [u8]) -> Option<TxMeta> { None }
//! #     fn poll_timeout(&self) -> Option<Time> { None }
//! #     fn take_ready(&mut self) -> PortMask { PortMask::EMPTY }
//! # }
//!
//! let (port, _peer) = pipe(PipeConfig::default());
//! let bell = bell(Progress::Inline)?;
//! let worker = worker(bell, Engine::default(), port, Clock::start(), Polling::Adaptive)?;
//! let received = worker.with(|engine| engine.0);
//! assert_eq!(received, Some(0), "it has not ended");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::clock::Clock;
use crate::driver::{Driver, DriverCounters, Polling};
use crate::event::EventFd;
use crate::fork::{HereOnly, Origin};
use crate::poll::poll;
use crate::port::Port;
use crate::thread_time;
use spanwire_base::{Node, Time};
use spanwire_progress::{Engine, Step};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use spanwire_progress::{Door, Progress};

/// One lock around a node, its port and its driver. Forgotten, not dropped, in a forked process.
pub type Worker<N, P> = spanwire_progress::Worker<HereOnly<Core<N, P>>, PortDoor>;

/// The bell of a worker.
pub type Bell = spanwire_progress::Bell<EventFd>;

/// A condition for which threads of a worker wait.
pub type Signal = spanwire_progress::Signal<EventFd>;

/// The state under the lock of a worker.
#[derive(Debug)]
pub struct Core<N, P> {
    /// The engine.
    pub node: N,
    /// Its port.
    pub port: P,
    driver: Driver,
}

/// Where the threads of a worker sleep, without its lock.
pub struct PortDoor {
    clock: Clock,
    /// Readable when a frame has arrived; a port without one is polled.
    port: Option<OwnedFd>,
    origin: Origin,
    watch: OnceLock<Box<Watch>>,
}

/// Called with the times at which a sleep at a port begins and is planned to end.
type Watch = dyn Fn([Time; 2]) + Send + Sync;

/// A bell for [`worker`].
///
/// # Errors
/// There are no descriptors left.
pub fn bell(progress: Progress) -> io::Result<Arc<Bell>> {
    let applications = [EventFd::new()?, EventFd::new()?];
    Ok(Arc::new(Bell::new(progress, EventFd::new()?, applications)))
}

/// A worker of `node` over `port`, whose clock is `clock`.
///
/// # Errors
/// There are no descriptors left.
pub fn worker<N: Node, P: Port>(
    bell: Arc<Bell>,
    node: N,
    port: P,
    clock: Clock,
    polling: Polling,
) -> io::Result<Worker<N, P>> {
    let descriptor = port.poll_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
    let door = PortDoor { clock, port: descriptor, origin: Origin::here(), watch: OnceLock::new() };
    let events = [EventFd::new()?, EventFd::new()?];
    // It neither spins nor sleeps by itself.
    let driver = Driver::new(clock, Polling::Busy).with_budget(port.budget());
    let core = HereOnly::new(Core { node, port, driver });
    Ok(Worker::new((bell, events), core, door, polling))
}

impl<N, P> Core<N, P> {
    /// The same with another node.
    pub fn with_node<M>(self, change: impl FnOnce(N) -> M) -> Core<M, P> {
        Core { node: change(self.node), port: self.port, driver: self.driver }
    }

    /// The counters of the driver.
    pub fn driver(&self) -> DriverCounters {
        self.driver.counters()
    }

    /// The clock of its driver.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.driver.clock()
    }
}

impl<N: Node, P: Port> Engine for HereOnly<Core<N, P>> {
    type Node = N;

    fn node(&mut self) -> &mut N {
        &mut self.node
    }

    fn end(&mut self, why: &str) {
        self.node.end(why);
    }

    fn step(&mut self, rung: bool, quiet: bool) -> Step {
        let Core { node, port, driver } = &mut **self;
        if rung {
            node.handle_ring();
        }
        let checked = if quiet { port.wait(Duration::ZERO) } else { Ok(()) };
        match checked.and_then(|()| driver.turn(node, port)) {
            Ok(progress) if !node.is_finished() => Step::Done {
                progress: !progress.is_idle(),
                wakes_at: driver.wakes_at(node, port).as_ns(),
                awaits: node.awaited(),
            },
            Ok(_) => {
                node.end("it was shut down");
                Step::Ended(None)
            }
            Err(e) => {
                let why = port_is_gone(&e);
                tracing::error!("{why}");
                node.end(&why);
                Step::Ended(Some(why))
            }
        }
    }
}

impl Door for PortDoor {
    type Event = EventFd;

    fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().as_ns()
    }

    fn work_ns(&self) -> u64 {
        thread_time::work_ns()
    }

    fn slack_ns(&self) -> u64 {
        thread_time::slack_ns()
    }

    fn sleep(&self, event: &EventFd, until: u64) -> bool {
        if let Some(watch) = self.watch.get() {
            watch([self.clock.now(), Time::from_ns(until)]);
        }
        let Some(port) = &self.port else {
            // Nothing reports a frame: the port is polled.
            sleep(event, None, self.left(until).min(POLL_INTERVAL));
            return false;
        };
        sleep(event, Some(port), self.left(until))
    }

    fn nap(&self, event: &EventFd, until: u64) {
        sleep(event, None, self.left(until));
    }
}

impl PortDoor {
    /// Calls `watch` before each sleep at the port with the times of its begin and of its planned
    /// end; once.
    pub fn watch(&self, watch: impl Fn([Time; 2]) + Send + Sync + 'static) {
        let _ = self.watch.set(Box::new(watch));
    }

    /// The descriptor of the port, which is readable when a frame has arrived.
    #[must_use]
    pub fn port(&self) -> Option<BorrowedFd<'_>> {
        self.port.as_ref().map(AsFd::as_fd)
    }

    fn left(&self, until: u64) -> Duration {
        Duration::from_nanos(until.saturating_sub(self.now_ns()))
    }
}

impl fmt::Debug for PortDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortDoor").field("port", &self.port).finish_non_exhaustive()
    }
}

fn entry(fd: &impl AsFd) -> libc::pollfd {
    libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Sleeps until `event` or `port` is ready, and clears `event` if it was; false if none is.
fn sleep(event: &EventFd, port: Option<&OwnedFd>, within: Duration) -> bool {
    let mut fds = [entry(event), port.map_or(entry(event), entry)];
    let fds = &mut fds[..1 + usize::from(port.is_some())];
    // An error ends the sleep early; the caller then looks again.
    let ready = poll(fds, within).unwrap_or(0);
    if fds[0].revents != 0 {
        event.clear();
    }
    let failed = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    ready > 0 && !fds.iter().any(|fd| fd.revents & failed != 0)
}

/// Starts a thread of that name. It is born with all signals blocked: they are for the threads of
/// the program.
///
/// # Errors
/// The system has no threads left.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = block_signals();
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: a mask that the call before has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned
}

/// Blocks all signals of the calling thread, and returns those that were blocked before.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both calls fill a set; neither fails with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// The message for the error `e` of a port that has failed.
#[must_use]
pub fn port_is_gone(e: &io::Error) -> String {
    format!("the port is gone: {e}; start again once the interface is there")
}

/// Maximum sleep with a port that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests;
