//! The loop around a node and its port or ports.
//!
//! [`step`] is one turn of the crank: what arrived, what was due, what may leave; [`step_ports`] is
//! the same for a node with several ports. [`Driver`] turns it, and decides between two turns
//! whether to spin or to sleep. None of them knows a protocol.

mod ports;

pub use ports::step_ports;

use crate::clock::Clock;
use crate::port::{Port, reserve};
use spanwire_base::{Dur, Node, PortId, PortMask, Time};
use std::io;
use std::time::Duration;

/// How many frames one step may move each way.
///
/// Both are bounded so that neither direction starves the other, nor the timers: a flood of input
/// still lets ACKs out every 64 frames, a full send queue still reads its ACKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Frames received at most, 1 and up. Default 64: a NAPI poll's weight in Linux.
    pub rx: usize,
    /// Frames sent at most, 1 and up. Default 64, so that sending keeps up with receiving.
    pub tx: usize,
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Frames handed to the node.
    pub rx: usize,
    /// Frames written by the node and committed to the port.
    pub tx: usize,
    /// The node's timer was due and has been handled.
    pub timeout: bool,
    /// The node had something to send, and the port no place for it.
    pub port_full: bool,
}

/// How a driver passes the time when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polling {
    /// Spins: the lowest latency, a whole core.
    Busy,
    /// Spins for this long without progress, then sleeps in [`Port::wait`] until a frame arrives
    /// or the node's next deadline: several workers share a core, an idle one costs next to
    /// nothing. Zero sleeps at once.
    Adaptive {
        /// How long to spin. About the round-trip time: an answer then finds us awake.
        spin: Dur,
    },
}

/// What a driver has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverCounters {
    /// Steps taken.
    pub steps: u64,
    /// Steps that received, sent or timed out nothing.
    pub idle_steps: u64,
    /// Frames handed to the node.
    pub rx_frames: u64,
    /// Frames committed to the port.
    pub tx_frames: u64,
    /// Due timers handled.
    pub timeouts: u64,
    /// Times it slept.
    pub waits: u64,
    /// For how long the node had something to send and the port no place for it; of one port
    /// ([`Driver::run_until`]).
    pub port_full: Dur,
}

/// Runs one node over its ports: a host over one ([`Driver::run_until`]), a switch over several
/// ([`Driver::run_ports_until`]).
#[derive(Debug)]
pub struct Driver {
    clock: Clock,
    polling: Polling,
    budget: Budget,
    unfinished: PortMask,
    idle_since: Option<Time>,
    full_since: Option<Time>,
    counters: DriverCounters,
}

impl Default for Budget {
    fn default() -> Self {
        Self { rx: 64, tx: 64 }
    }
}

impl Progress {
    /// True when nothing at all happened.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.rx == 0 && self.tx == 0 && !self.timeout
    }
}

/// One turn: frames in, timers, frames out, flush. The order is [`Node`]'s contract.
///
/// `unfinished` is the caller's memory between steps, empty at first: a node reports a port ready
/// only once, so a port that ran out of buffers or of `budget.tx` stays in there to be asked again.
///
/// # Errors
/// The port is gone; the node may be driven on over another one.
///
/// # Panics
/// If the node claims a frame longer than the buffer it was offered, or elides payload.
pub fn step(
    now: Time,
    node: &mut dyn Node,
    port: &mut dyn Port,
    unfinished: &mut PortMask,
    budget: Budget,
) -> io::Result<Progress> {
    let mut progress = Progress {
        rx: port.rx_burst(now, budget.rx, &mut |frame, meta| {
            node.handle_packet(now, PortId::HOST, frame, meta);
        }),
        ..Progress::default()
    };
    if node.poll_timeout().is_some_and(|at| at <= now) {
        node.handle_timeout(now);
        progress.timeout = true;
    }
    unfinished.merge(node.take_ready());
    while unfinished.has(PortId::HOST) && progress.tx < budget.tx {
        // The buffer first: a packet already built when the ring is full would have to be kept.
        let Some(mut slot) = reserve(port) else {
            progress.port_full = true;
            break;
        };
        match node.poll_transmit(now, PortId::HOST, slot.bytes()) {
            Some(meta) => {
                slot.commit(meta);
                progress.tx += 1;
            }
            None => *unfinished = PortMask::EMPTY,
        }
    }
    // Also when nothing is new: the port may hold frames the machine would not take before.
    port.flush(now)?;
    Ok(progress)
}

impl Driver {
    /// A driver on `clock`, with the default [`Budget`].
    #[must_use]
    pub fn new(clock: Clock, polling: Polling) -> Self {
        Self {
            clock,
            polling,
            budget: Budget::default(),
            unfinished: PortMask::EMPTY,
            idle_since: None,
            full_since: None,
            counters: DriverCounters::default(),
        }
    }

    /// The same driver with another budget.
    ///
    /// # Panics
    /// If either direction is zero: it would never move a frame.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        assert!(budget.rx > 0 && budget.tx > 0, "a budget of zero is a halt");
        self.budget = budget;
        self
    }

    /// Its clock, to tell applications the node's time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> DriverCounters {
        self.counters
    }

    /// Drives `node` over `port`, its [`PortId::HOST`], until `stop` says true. `stop` is asked
    /// before every step, also before the first, and at least every 100 ms; it may work on the node
    /// (post, poll completions): what it posts leaves in the step that follows, before any sleep.
    ///
    /// # Errors
    /// The port is gone.
    pub fn run_until<N: Node>(
        &mut self,
        node: &mut N,
        port: &mut dyn Port,
        mut stop: impl FnMut(&mut N) -> bool,
    ) -> io::Result<()> {
        self.run_watched(node, port, |node, _| stop(node))
    }

    /// As [`Driver::run_until`], for who looks at the driver's counters too.
    ///
    /// # Errors
    /// The port is gone.
    pub fn run_watched<N: Node>(
        &mut self,
        node: &mut N,
        port: &mut dyn Port,
        mut stop: impl FnMut(&mut N, &DriverCounters) -> bool,
    ) -> io::Result<()> {
        while !stop(node, &self.counters) {
            // Read once: everything in a step happens at one time.
            let now = self.clock.now();
            if let Some(since) = self.full_since.take() {
                self.counters.port_full = self.counters.port_full + now.since(since);
            }
            let progress = step(now, node, port, &mut self.unfinished, self.budget)?;
            self.full_since = progress.port_full.then_some(now);
            self.count(progress);
            if progress.is_idle() {
                let pending = port.tx_pending();
                self.idle(now, node.poll_timeout(), pending, |sleep| port.wait(sleep))?;
            } else {
                self.idle_since = None;
            }
        }
        Ok(())
    }

    /// Passes the time after a step at `now` in which nothing happened. `wait` sleeps.
    fn idle(
        &mut self,
        now: Time,
        deadline: Option<Time>,
        tx_pending: usize,
        wait: impl FnOnce(Duration) -> io::Result<()>,
    ) -> io::Result<()> {
        let since = *self.idle_since.get_or_insert(now);
        let sleep = match self.polling {
            Polling::Adaptive { spin } if now.since(since) >= spin => {
                // Read again: the step itself took time, and a sleep must not end late.
                sleep_for(self.clock.now(), deadline, tx_pending)
            }
            Polling::Adaptive { .. } | Polling::Busy => Duration::ZERO,
        };
        if sleep.is_zero() {
            std::hint::spin_loop();
            return Ok(());
        }
        self.counters.waits += 1;
        wait(sleep)
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

/// How long a worker may sleep: until the deadline, rounded down so that it wakes early rather
/// than late, and within the two bounds below. Zero: do not sleep.
fn sleep_for(now: Time, deadline: Option<Time>, tx_pending: usize) -> Duration {
    let bound = if tx_pending > 0 { SLEEP_PENDING_MAX } else { SLEEP_MAX };
    let left = deadline.map_or(Dur::MAX, |at| at.since(now));
    Duration::from_nanos(left.min(bound).as_ns())
}

/// The longest sleep: what a stop condition waits for in the worst case, at ten wake-ups a second.
const SLEEP_MAX: Dur = Dur::from_ms(100);

/// The longest sleep while the port holds frames that only another flush may push out: short
/// against a retransmission timeout, long against a system call.
const SLEEP_PENDING_MAX: Dur = Dur::from_us(200);

#[cfg(test)]
mod tests;
