//! The event loop of a node and its port or ports.
//!
//! [`step`] is one iteration: received frames, due timers, frames to transmit; [`step_ports`] is
//! the same for a node with several ports. [`Driver`] runs it, and spins or sleeps between two
//! iterations. The loop is independent of the protocol.

mod descriptors;
mod ports;

pub use ports::step_ports;

use crate::clock::{Clock, TimeSource};
pub use crate::port::Budget;
use crate::port::{Burst, Port};
use crate::thread_time;
use spanwire_base::{Awaited, Dur, Node, PortId, PortMask, Time};
pub use spanwire_progress::Polling;
use spanwire_progress::{Spinner, Wait};
use std::io;
use std::time::Duration;

/// The result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Frames handed to the node.
    pub rx: usize,
    /// Frames written by the node and committed to the port.
    pub tx: usize,
    /// The node's timer was due and was handled.
    pub timeout: bool,
    /// The node had a frame to send and the port had no transmit buffer.
    pub port_full: bool,
}

/// A driver's counters since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverCounters {
    /// Steps taken.
    pub steps: u64,
    /// Steps without received frames, sent frames or timeouts.
    pub idle_steps: u64,
    /// Frames handed to the node.
    pub rx_frames: u64,
    /// Frames committed to the port.
    pub tx_frames: u64,
    /// Due timers handled.
    pub timeouts: u64,
    /// Number of sleeps.
    pub waits: u64,
    /// Time during which the node had a frame to send and the port no transmit buffer; for one port
    /// ([`Driver::run_until`]).
    pub port_full: Dur,
}

/// Runs one node over its ports: a host over one ([`Driver::run_until`]), a switch over several
/// ([`Driver::run_ports_until`]). `C` is its source of time, by default the machine's clock.
#[derive(Debug)]
pub struct Driver<C = Clock> {
    clock: C,
    spinner: Spinner,
    budget: Budget,
    unfinished: PortMask,
    /// Since when nothing has happened.
    idle: Option<(Time, Wait)>,
    full_since: Option<Time>,
    counters: DriverCounters,
}

impl Progress {
    /// True if nothing happened.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.rx == 0 && self.tx == 0 && !self.timeout
    }
}

/// One iteration: receive, timers, transmit, flush. The order is [`Node`]'s contract.
///
/// The clock is read before the frames are received, and again before timers and transmission.
///
/// `unfinished` is the caller's state between steps, empty at first. A node reports a port ready
/// only once, so a port that ran out of buffers or of `budget.tx` stays in it and is polled again.
///
/// # Errors
/// The port has failed; the node can continue over another one.
///
/// # Panics
/// If the node returns a frame longer than its buffer, or elides payload.
pub fn step(
    clock: &dyn TimeSource,
    node: &mut dyn Node,
    port: &mut dyn Port,
    unfinished: &mut PortMask,
    budget: Budget,
) -> io::Result<Progress> {
    let mut now = clock.now();
    let rx = port.rx_burst(clock, budget.rx, &mut |frame, meta| {
        now = now.max(meta.at);
        node.handle_packet(now, PortId::HOST, frame, meta);
    });
    // Reading the ring took time. Departures must not be dated before their frames are written.
    let now = clock.now();
    let mut progress = Progress { rx, ..Progress::default() };
    if node.poll_timeout().is_some_and(|at| at <= now) {
        node.handle_timeout(now);
        progress.timeout = true;
    }
    unfinished.merge(node.take_ready());
    if unfinished.has(PortId::HOST) {
        let mut burst = Burst::new(port, budget.tx);
        if node.transmit_burst(now, PortId::HOST, &mut burst) {
            *unfinished = PortMask::EMPTY;
        }
        (progress.tx, progress.port_full) = (burst.sent, burst.is_full);
    }
    // Also without new frames: the port may hold frames that the kernel has not accepted yet.
    port.flush(now)?;
    Ok(progress)
}

impl<C: TimeSource + Copy> Driver<C> {
    /// A driver on `clock`, with the default [`Budget`].
    #[must_use]
    pub fn new(clock: C, polling: Polling) -> Self {
        Self {
            clock,
            spinner: Spinner::new(polling),
            budget: Budget::default(),
            unfinished: PortMask::EMPTY,
            idle: None,
            full_since: None,
            counters: DriverCounters::default(),
        }
    }

    /// Sets the budget.
    ///
    /// # Panics
    /// If either direction is zero, because no frame would move.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        assert!(budget.rx > 0 && budget.tx > 0, "a budget of zero is a halt");
        self.budget = budget;
        self
    }

    /// The driver's clock, the time base of the node's applications.
    #[must_use]
    pub fn clock(&self) -> C {
        self.clock
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> DriverCounters {
        self.counters
    }

    /// Drives `node` over `port`, its [`PortId::HOST`], until `stop` returns true. `stop` is called
    /// before every step, including the first, and at least every 100 ms. It may use the node
    /// (post, poll completions): what it posts is sent in the following step, before any sleep.
    ///
    /// # Errors
    /// The port has failed.
    pub fn run_until<N: Node>(
        &mut self,
        node: &mut N,
        port: &mut dyn Port,
        stop: impl FnMut(&mut N) -> bool,
    ) -> io::Result<()> {
        self.run_with(node, port, stop, |port, within| port.wait(within))
    }

    /// As [`Driver::run_until`]; `wait` sleeps at the port.
    fn run_with<N: Node>(
        &mut self,
        node: &mut N,
        port: &mut dyn Port,
        mut stop: impl FnMut(&mut N) -> bool,
        wait: impl Fn(&mut dyn Port, Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        while !stop(node) {
            let now = self.clock.now();
            if self.turn_at(now, node, port)?.is_idle() {
                let pending = port.tx_pending();
                let next = (node.awaited(), node.poll_timeout());
                self.idle(now, next, pending, |sleep| wait(port, sleep))?;
            } else {
                self.end_wait(now);
            }
        }
        Ok(())
    }

    /// One step, for a caller that waits between steps itself: until [`Driver::wakes_at`].
    ///
    /// # Errors
    /// The port has failed.
    pub fn turn<N: Node>(&mut self, node: &mut N, port: &mut dyn Port) -> io::Result<Progress> {
        self.turn_at(self.clock.now(), node, port)
    }

    /// When the next step is due if no frame arrives: at the node's deadline, or when the port must
    /// be flushed or checked again.
    pub fn wakes_at<N: Node>(&self, node: &N, port: &dyn Port) -> Time {
        let bound = if port.tx_pending() > 0 { SLEEP_PENDING_MAX } else { SLEEP_MAX };
        let latest = self.clock.now() + bound;
        node.poll_timeout().map_or(latest, |at| at.min(latest))
    }

    fn turn_at<N: Node>(
        &mut self,
        now: Time,
        node: &mut N,
        port: &mut dyn Port,
    ) -> io::Result<Progress> {
        if let Some(since) = self.full_since.take() {
            self.counters.port_full = self.counters.port_full + now.since(since);
        }
        let progress = step(&self.clock, node, port, &mut self.unfinished, self.budget)?;
        self.full_since = progress.port_full.then_some(now);
        self.count(progress);
        Ok(progress)
    }

    /// Waits after an idle step at `now`, for the `awaited` event and until `deadline`. `wait`
    /// sleeps.
    fn idle(
        &mut self,
        now: Time,
        (awaited, deadline): (Awaited, Option<Time>),
        tx_pending: usize,
        wait: impl FnOnce(Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let (since, idle) = *self.idle.get_or_insert_with(|| (now, self.spinner.begin(awaited)));
        let mut sleep = Duration::ZERO;
        if now.since(since).as_ns() >= idle.spin_ns() {
            // Read again: the step itself took time, and a sleep must not end late.
            let now = self.clock.now();
            if !deadline.is_some_and(|at| idle.spins_for(at.since(now).as_ns())) {
                sleep = sleep_for(now, deadline, tx_pending);
            }
        }
        if sleep.is_zero() {
            std::hint::spin_loop();
            return Ok(());
        }
        self.counters.waits += 1;
        if !self.spinner.measures_sleep() {
            return wait(sleep);
        }
        self.measure(sleep, wait)
    }

    /// As `wait`; tells the spinner what the sleep has cost.
    fn measure(
        &self,
        sleep: Duration,
        wait: impl FnOnce(Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let (slack_ns, before, began) =
            (thread_time::slack_ns(), thread_time::work_ns(), self.clock.now());
        wait(sleep)?;
        let slept = self.clock.now().since(began).as_ns();
        let planned = u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX);
        let late = slept.checked_sub(planned.saturating_add(slack_ns));
        self.spinner.slept(late, thread_time::work_ns().saturating_sub(before));
        Ok(())
    }

    /// Something has happened in a step that began at `now`.
    fn end_wait(&mut self, now: Time) {
        if let Some((since, wait)) = self.idle.take() {
            self.spinner.ended(wait, now.since(since).as_ns());
        }
    }

    fn count(&mut self, progress: Progress) {
        let c = &mut self.counters;
        c.steps += 1;
        c.idle_steps += u64::from(progress.is_idle());
        c.rx_frames += spanwire_base::u64_from(progress.rx);
        c.tx_frames += spanwire_base::u64_from(progress.tx);
        c.timeouts += u64::from(progress.timeout);
    }
}

/// How long a worker may sleep: until the deadline, rounded down so that it wakes early rather than
/// late, and within the two bounds below. Zero: no sleep.
fn sleep_for(now: Time, deadline: Option<Time>, tx_pending: usize) -> Duration {
    let bound = if tx_pending > 0 { SLEEP_PENDING_MAX } else { SLEEP_MAX };
    let left = deadline.map_or(Dur::MAX, |at| at.since(now));
    Duration::from_nanos(left.min(bound).as_ns())
}

/// The longest sleep: the maximum latency of a stop condition, at ten wakeups a second.
const SLEEP_MAX: Dur = Dur::from_ms(100);

/// The longest sleep while the port holds frames that only another flush sends: short compared with
/// a retransmission timeout, long compared with a system call.
const SLEEP_PENDING_MAX: Dur = Dur::from_us(200);

#[cfg(test)]
mod tests;
