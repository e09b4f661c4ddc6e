//! The timing of a host's driver: steps, wakeups, stalls and bounded rings.
//!
//! An ideal host processes each frame when it arrives and sends whenever its link is free. A real
//! one polls: it is late to receive, reads the clock once for many frames, and its frames leave
//! together. [`PolledHost`] puts such a driver before any node.

mod lateness;
mod node;
mod presets;

pub use lateness::Lateness;

use spanwire_base::{Dur, Node, PortId, Rng, RxMeta, Time, u64_from};
use std::collections::VecDeque;

/// The timing of a host's driver.
///
/// A step receives up to `batch` frames, handles timers and sends up to `batch` frames. It costs
/// CPU time; its frames leave when it ends. An idle host spins, then sleeps until a frame arrives
/// or its timer is due, and wakes late.
///
/// ACKs have no delay of their own: the responder sends them in the step that receives the data.
/// So they are late by the wakeup, the stalls and the steps of the responder, and RTT samples
/// include that time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostModel {
    /// CPU time of a step without frames.
    pub step: Dur,
    /// CPU time to receive a frame.
    pub rx_frame: Dur,
    /// CPU time to send a frame.
    pub tx_frame: Dur,
    /// CPU time per 1024 bytes of a frame, received or sent: copies and checksums.
    pub kibibyte: Dur,
    /// Maximum frames received and maximum frames sent in a step, at least 1.
    pub batch: usize,
    /// Maximum frames waiting to be received; further ones are lost. At least 1.
    pub rx_ring: usize,
    /// Maximum frames waiting to leave, at least 1.
    pub tx_ring: usize,
    /// How long an idle host spins before it sleeps.
    pub spin: Dur,
    /// Time from the arrival of a frame or the deadline of a timer to the first step of a host that
    /// slept.
    pub wakeup: Lateness,
    /// Mean running time between two stalls: intervals without CPU. Zero for none. It is drawn from
    /// the exponential distribution, and does not pass during a sleep.
    pub stall_interval: Dur,
    /// The length of a stall.
    pub stall: Lateness,
    /// Arrivals are dated by a timestamp of the kernel or of the card; otherwise by the step.
    pub timestamps: bool,
}

impl HostModel {
    /// An upper bound of the time from an arrival or a deadline to the end of the step that
    /// processes it, with a full receive ring before it: a wakeup, two stalls and the steps. A
    /// third stall in this time is possible, but rare if stalls are.
    #[must_use]
    pub fn delay_max(&self) -> Dur {
        let frames = u64_from(self.batch);
        let both = self.rx_frame + self.tx_frame + self.kibibyte * (2 * FRAME_KIB_MAX);
        let steps = u64_from(self.rx_ring.div_ceil(self.batch)) + 1;
        let running = (self.step + both * frames) * steps;
        let stalls = if self.stall_interval > Dur::ZERO { 2 } else { 0 };
        self.wakeup.max() + self.stall.max() * stalls + running + self.spin + PENDING_POLL
    }
}

/// Counters of a polled host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCounters {
    /// Steps.
    pub steps: u64,
    /// Wakeups from sleep.
    pub wakeups: u64,
    /// Stalls.
    pub stalls: u64,
    /// Frames lost because the receive ring was full.
    pub drop_rx_ring: u64,
    /// Frames received so far, and the sum of their waits from arrival to processing, ps.
    pub rx_frames: u64,
    /// The sum of the times from arrival to processing, ps.
    pub rx_wait_ps: u64,
}

/// A node behind a driver with the timing of a [`HostModel`], or behind none.
#[derive(Debug)]
pub struct PolledHost<N> {
    node: N,
    driver: Option<Box<Driver>>,
}

/// The state of the driver.
#[derive(Debug)]
struct Driver {
    model: HostModel,
    rng: Rng,
    received: VecDeque<Waiting>,
    leaving: VecDeque<Waiting>,
    /// Buffers of frames that are gone.
    spare: Vec<Vec<u8>>,
    frame: Vec<u8>,
    state: State,
    /// The end of the last step.
    free_at: Time,
    /// The receive ring was empty at this time.
    empty_at: Time,
    stall_at: Time,
    /// The node may have frames to send.
    is_unfinished: bool,
    /// Frames may leave that `take_ready` has not reported.
    is_ready: bool,
    /// Departures until then were reported; the link polls for them by itself.
    reported_until: Time,
    counters: HostCounters,
}

/// A frame in a ring.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    elided_bytes: u32,
    /// When it arrived, or when it may leave.
    at: Time,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next step is at this time.
    Busy { next: Time },
    /// There is no work. The host sleeps from `sleeps_at` on, and steps at `next` for a timer.
    Idle { sleeps_at: Time, next: Option<Time> },
}

impl<N: Node> PolledHost<N> {
    /// A node behind a driver; without a model, frames and timers reach it at once. `frame_bytes`
    /// is the longest frame that the node writes.
    pub fn new(node: N, model: Option<&HostModel>, seed: u64, frame_bytes: usize) -> Self {
        let driver = model.map(|model| Box::new(Driver::new(model, seed, frame_bytes)));
        Self { node, driver }
    }

    /// The node.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// The node, mutable. The driver polls it soon.
    pub fn node_mut(&mut self) -> &mut N {
        if let Some(driver) = &mut self.driver {
            driver.state = State::Busy { next: driver.free_at };
        }
        &mut self.node
    }

    /// The counters; zero without a model.
    pub fn counters(&self) -> HostCounters {
        self.driver.as_ref().map_or_else(HostCounters::default, |driver| driver.counters)
    }
}

impl Driver {
    fn new(model: &HostModel, seed: u64, frame_bytes: usize) -> Self {
        let mut driver = Self {
            model: model.clone(),
            rng: Rng::new(seed),
            received: VecDeque::new(),
            leaving: VecDeque::new(),
            spare: Vec::new(),
            frame: vec![0; frame_bytes],
            state: State::Busy { next: Time::ZERO },
            free_at: Time::ZERO,
            empty_at: Time::ZERO,
            stall_at: Time::MAX,
            is_unfinished: false,
            is_ready: false,
            reported_until: Time::ZERO,
            counters: HostCounters::default(),
        };
        driver.draw_stall(Time::ZERO);
        driver
    }

    /// Draws when the next stall begins.
    fn draw_stall(&mut self, now: Time) {
        if self.model.stall_interval > Dur::ZERO {
            let running = crate::workload::exponential(self.model.stall_interval, &mut self.rng);
            self.stall_at = now + running;
        }
    }

    /// The length of a stall that begins before `now`, else zero.
    fn take_stall(&mut self, now: Time) -> Dur {
        if self.stall_at > now {
            return Dur::ZERO;
        }
        let stall = self.model.stall.draw(&mut self.rng);
        self.counters.stalls += 1;
        self.draw_stall(now + stall);
        stall
    }

    /// A frame arrived at the port.
    fn on_arrival(&mut self, now: Time, frame: &[u8], meta: RxMeta) {
        if self.received.len() >= self.model.rx_ring {
            self.counters.drop_rx_ring += 1;
            return;
        }
        let waiting = self.copy(frame, meta.elided_bytes, meta.at);
        self.received.push_back(waiting);
        if let State::Idle { sleeps_at, next } = self.state {
            let wakes_at = match now < sleeps_at {
                // It spins: the next look into the ring is within a step.
                true => now + self.model.step / 2,
                false => now + self.wakeup(),
            };
            self.empty_at = now.min(sleeps_at);
            self.end_sleep(sleeps_at, wakes_at);
            let next = next.map_or(wakes_at, |next| next.min(wakes_at));
            self.state = State::Busy { next: next.max(self.free_at) };
        }
    }

    /// The host slept from `sleeps_at` to `now`, unless that is before `sleeps_at`.
    fn end_sleep(&mut self, sleeps_at: Time, now: Time) {
        // A stall may have outlasted the spin.
        let since = sleeps_at.max(self.free_at);
        if self.stall_at > since {
            self.stall_at += now.since(since);
        }
    }

    fn wakeup(&mut self) -> Dur {
        self.counters.wakeups += 1;
        self.model.wakeup.draw(&mut self.rng)
    }

    fn copy(&mut self, frame: &[u8], elided_bytes: u32, at: Time) -> Waiting {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        Waiting { bytes, elided_bytes, at }
    }

    /// CPU time of a frame.
    fn cost(&self, each: Dur, waiting: &Waiting) -> Dur {
        let bytes = u64_from(waiting.bytes.len()) + u64::from(waiting.elided_bytes);
        each + Dur::from_ps(self.model.kibibyte.as_ps() * bytes / 1024)
    }

    /// Receives a batch. Returns the CPU time that it took.
    fn receive(&mut self, now: Time, node: &mut impl Node) -> Dur {
        let mut took = Dur::ZERO;
        for _ in 0..self.model.batch {
            let Some(frame) = self.received.pop_front() else { break };
            took = took + self.cost(self.model.rx_frame, &frame);
            let dated = match self.model.timestamps {
                true => RxMeta::whole(frame.at),
                false => RxMeta::between(self.empty_at, now),
            };
            let meta = RxMeta { elided_bytes: frame.elided_bytes, ..dated };
            self.counters.rx_frames += 1;
            self.counters.rx_wait_ps += now.since(frame.at).as_ps();
            node.handle_packet(now, PortId::HOST, &frame.bytes, meta);
            self.spare.push(frame.bytes);
        }
        if self.received.is_empty() {
            self.empty_at = now;
        }
        took
    }

    /// Takes a batch of frames from the node at `now`. Returns their number and CPU time.
    fn send(&mut self, now: Time, node: &mut impl Node) -> (usize, Dur) {
        let (mut sent, mut took) = (0, Dur::ZERO);
        while self.is_unfinished
            && sent < self.model.batch
            && self.leaving.len() < self.model.tx_ring
        {
            let mut frame = std::mem::take(&mut self.frame);
            let meta = node.poll_transmit(now, PortId::HOST, &mut frame);
            match meta {
                Some(meta) => {
                    let waiting = self.copy(&frame[..meta.len], meta.elided_bytes, Time::MAX);
                    took = took + self.cost(self.model.tx_frame, &waiting);
                    self.leaving.push_back(waiting);
                    sent += 1;
                }
                None => self.is_unfinished = false,
            }
            self.frame = frame;
        }
        (sent, took)
    }

    /// One step of the driver.
    fn step(&mut self, now: Time, node: &mut impl Node) {
        debug_assert!(now >= self.free_at, "steps do not overlap");
        self.counters.steps += 1;
        if let State::Idle { sleeps_at, .. } = self.state {
            self.end_sleep(sleeps_at, now);
        }
        let has_received = !self.received.is_empty();
        let took = self.receive(now, node) + self.model.step;
        let mut end = now + took;
        let has_timer = node.poll_timeout().is_some_and(|at| at <= end);
        if has_timer {
            node.handle_timeout(end);
        }
        self.is_unfinished |= node.take_ready().has(PortId::HOST);
        let (sent, took) = self.send(end, node);
        // A stall delays the frames of the step as often as it does not.
        let stall = self.take_stall(end + took);
        let is_before_departure = stall > Dur::ZERO && self.rng.below(2) == 0;
        end += took;
        if is_before_departure {
            end += stall;
        }
        let len = self.leaving.len();
        for frame in self.leaving.range_mut(len - sent..) {
            frame.at = end;
        }
        if !is_before_departure {
            end += stall;
        }
        self.free_at = end;
        let is_busy = has_received || sent > 0 || has_timer || !self.received.is_empty();
        let waits_for_ring = self.is_unfinished && self.leaving.len() >= self.model.tx_ring;
        self.state = match is_busy || self.is_unfinished && !waits_for_ring {
            true => State::Busy { next: end },
            false => self.idle(now, end, node.poll_timeout()),
        };
    }

    /// The state after a step without work, `from` `now` to `end`.
    fn idle(&mut self, now: Time, end: Time, deadline: Option<Time>) -> State {
        let sleeps_at = now + self.model.spin;
        // While frames of its own leave, a driver looks again soon.
        let deadline = match self.leaving.is_empty() {
            true => deadline,
            false => Some(deadline.map_or(end + PENDING_POLL, |at| at.min(end + PENDING_POLL))),
        };
        let next = deadline.map(|at| {
            let late = if at < sleeps_at { Dur::ZERO } else { self.wakeup() };
            // A stall may have outlasted the spin.
            (at + late).max(end)
        });
        State::Idle { sleeps_at, next }
    }

    fn next_step(&self) -> Option<Time> {
        match self.state {
            State::Busy { next } => Some(next),
            State::Idle { next, .. } => next,
        }
    }
}

/// The longest frame in units of 1024 bytes, rounded up.
const FRAME_KIB_MAX: u64 = 10;

/// How soon a driver polls a port again that has frames to send.
const PENDING_POLL: Dur = Dur::from_us(200);

#[cfg(test)]
mod tests;
