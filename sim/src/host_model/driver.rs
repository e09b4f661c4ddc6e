//! The driver of a polled host: its steps, sleeps and stalls.

use super::model::{HostModel, PENDING_POLL};
use super::sockets::{Run, Sockets};
use super::waits::Waits;
use spanwire_base::{Dur, Node, PortId, Rng, RxMeta, Time, u64_from};
use spanwire_progress::Polling;
use std::collections::VecDeque;

/// Counters of a polled host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCounters {
    /// Steps.
    pub steps: u64,
    /// Wakeups from sleep.
    pub wakeups: u64,
    /// Stalls.
    pub stalls: u64,
    /// Frames lost because the receive ring or buffer was full.
    pub drop_rx_ring: u64,
    /// Frames received so far, and the sum of their waits from arrival to processing, ps.
    pub rx_frames: u64,
    /// The sum of the times from arrival to processing, ps.
    pub rx_wait_ps: u64,
    /// Runs of frames that one system call received; with rings, frames.
    pub rx_runs: u64,
    /// Runs of frames that one system call sent; with rings, frames.
    pub tx_runs: u64,
}

/// The state of the driver.
#[derive(Debug)]
pub(super) struct Driver {
    model: HostModel,
    rng: Rng,
    waits: Waits,
    pub(super) received: Queue,
    pub(super) leaving: Queue,
    /// The run that arrives and its last arrival.
    arriving: Option<(Run, Time)>,
    /// The last run of each flow in the batch that is being sent.
    sending: Vec<Run>,
    /// The arrival of the run that is being received.
    run_at: Time,
    /// Buffers of frames that are gone.
    pub(super) spare: Vec<Vec<u8>>,
    frame: Vec<u8>,
    pub(super) state: State,
    /// The end of the last step.
    pub(super) free_at: Time,
    /// The receive ring was empty at this time.
    empty_at: Time,
    stall_at: Time,
    /// The node may have frames to send.
    is_unfinished: bool,
    /// Frames may leave that `take_ready` has not reported.
    pub(super) is_ready: bool,
    /// Departures until then were reported; the link polls for them by itself.
    pub(super) reported_until: Time,
    pub(super) counters: HostCounters,
}

/// A frame in a ring.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) bytes: Vec<u8>,
    pub(super) elided_bytes: u32,
    /// When it arrived, or when it may leave.
    pub(super) at: Time,
    /// It takes a system call of its own, or the first place in that of others.
    starts_run: bool,
}

/// A ring, or the buffer of a socket.
#[derive(Debug, Default)]
pub(super) struct Queue {
    frames: VecDeque<Waiting>,
    /// Bytes of all frames, as the kernel counts them.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// The next step is at this time.
    Busy { next: Time },
    /// There is no work. The host sleeps from `sleeps_at` on, if a timer is due after it until
    /// `until`, and steps at `next` for a timer.
    Idle { sleeps_at: Time, until: Option<Time>, next: Option<Time> },
}

impl Driver {
    pub(super) fn new(model: &HostModel, seed: u64, frame_bytes: usize) -> Self {
        let mut driver = Self {
            model: model.clone(),
            rng: Rng::new(seed),
            waits: Waits::new(model.polling),
            received: Queue::default(),
            leaving: Queue::default(),
            arriving: None,
            sending: Vec::new(),
            run_at: Time::ZERO,
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
    pub(super) fn on_arrival(&mut self, now: Time, frame: &[u8], meta: &RxMeta) {
        let mut waiting = self.copy(frame, meta.elided_bytes, meta.at);
        if !self.has_rx_room(&waiting) {
            self.counters.drop_rx_ring += 1;
            self.spare.push(waiting.bytes);
            self.arriving = None;
            return;
        }
        waiting.starts_run = self.starts_arriving_run(now, &waiting);
        self.received.push(waiting);
        if let State::Idle { sleeps_at, until, next } = self.state {
            let is_asleep = now >= sleeps_at;
            let wakes_at = match is_asleep {
                true => now + self.model.wakeup.draw(&mut self.rng),
                // It spins: the next look into the ring is within a step.
                false => now + self.model.step / 2,
            };
            self.empty_at = now.min(sleeps_at);
            self.end_sleep(sleeps_at, wakes_at);
            let next = next.map_or(wakes_at, |next| next.min(wakes_at)).max(self.free_at);
            if is_asleep {
                self.wake(until, next);
            }
            self.state = State::Busy { next };
        }
    }

    fn has_rx_room(&self, frame: &Waiting) -> bool {
        let has_bytes = |sockets: &Sockets| {
            self.received.is_empty() || self.received.bytes + frame.counted() <= sockets.rx_bytes
        };
        self.received.len() < self.model.rx_ring
            && self.model.sockets.as_ref().is_none_or(has_bytes)
    }

    /// False for a frame that the kernel coalesces with those before it.
    fn starts_arriving_run(&mut self, now: Time, frame: &Waiting) -> bool {
        let Some(sockets) = &self.model.sockets else { return true };
        if let Some((run, at)) = &mut self.arriving
            && !self.received.is_empty()
            && now.since(*at) <= sockets.rx_call
            && run.is_of(&frame.bytes)
            && run.take(frame.len(), sockets.run_frames)
        {
            *at = now;
            return false;
        }
        self.arriving = Some((Run::of(&frame.bytes, frame.len()), now));
        true
    }

    /// False for a frame that leaves with others of the step.
    fn starts_leaving_run(&mut self, frame: &Waiting) -> bool {
        let Some(sockets) = &self.model.sockets else { return true };
        let Some(run) = self.sending.iter_mut().find(|run| run.is_of(&frame.bytes)) else {
            self.sending.push(Run::of(&frame.bytes, frame.len()));
            return true;
        };
        let joins = run.take(frame.len(), sockets.run_frames);
        if !joins {
            *run = Run::of(&frame.bytes, frame.len());
        }
        !joins
    }

    /// The host slept from `sleeps_at` to `now`, unless that is before `sleeps_at`.
    fn end_sleep(&mut self, sleeps_at: Time, now: Time) {
        // A stall may have outlasted the spin.
        let since = sleeps_at.max(self.free_at);
        if self.stall_at > since {
            self.stall_at += now.since(since);
        }
    }

    /// A sleep that was planned until `until` ends at `now`.
    fn wake(&mut self, until: Option<Time>, now: Time) {
        self.counters.wakeups += 1;
        self.waits.slept(until, now);
    }

    fn copy(&mut self, frame: &[u8], elided_bytes: u32, at: Time) -> Waiting {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        Waiting { bytes, elided_bytes, at, starts_run: true }
    }

    /// CPU time of a frame, with that of the call `each_run` if it starts a run.
    fn cost(&self, each: Dur, each_run: fn(&Sockets) -> Dur, waiting: &Waiting) -> Dur {
        let bytes = Dur::from_ps(self.model.kibibyte.as_ps() * waiting.len() / 1024);
        let sockets = self.model.sockets.as_ref().filter(|_| waiting.starts_run);
        each + bytes + sockets.map_or(Dur::ZERO, each_run)
    }

    /// Receives a batch. Returns the CPU time that it took.
    fn receive(&mut self, now: Time, node: &mut impl Node) -> Dur {
        let mut took = Dur::ZERO;
        for _ in 0..self.model.batch {
            let Some(frame) = self.received.pop() else { break };
            took = took + self.cost(self.model.rx_frame, |sockets| sockets.rx_call, &frame);
            let dated = match (self.model.timestamps, frame.starts_run) {
                (true, true) => RxMeta::whole(frame.at),
                (true, false) => RxMeta::between(self.run_at, now),
                // A frame that was handed over may have arrived before the ring was empty.
                (false, _) => RxMeta::between(self.empty_at.min(frame.at), now),
            };
            let meta = RxMeta { elided_bytes: frame.elided_bytes, ..dated };
            self.counters.rx_frames += 1;
            if frame.starts_run {
                self.counters.rx_runs += 1;
                self.run_at = frame.at;
            }
            self.counters.rx_wait_ps += now.since(frame.at).as_ps();
            node.handle_packet(now, PortId::HOST, &frame.bytes, &meta);
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
        self.sending.clear();
        while self.is_unfinished && sent < self.model.batch && self.has_tx_room() {
            let mut frame = std::mem::take(&mut self.frame);
            let meta = node.poll_transmit(now, PortId::HOST, &mut frame);
            match meta {
                Some(meta) => {
                    let mut waiting = self.copy(&frame[..meta.len], meta.elided_bytes, Time::MAX);
                    waiting.starts_run = self.starts_leaving_run(&waiting);
                    self.counters.tx_runs += u64::from(waiting.starts_run);
                    let call = |sockets: &Sockets| sockets.tx_call;
                    took = took + self.cost(self.model.tx_frame, call, &waiting);
                    self.leaving.push(waiting);
                    sent += 1;
                }
                None => self.is_unfinished = false,
            }
            self.frame = frame;
        }
        (sent, took)
    }

    fn has_tx_room(&self) -> bool {
        let has_bytes = |sockets: &Sockets| self.leaving.bytes < sockets.tx_bytes;
        self.leaving.len() < self.model.tx_ring && self.model.sockets.as_ref().is_none_or(has_bytes)
    }

    /// One step of the driver.
    pub(super) fn step(&mut self, now: Time, node: &mut impl Node) {
        debug_assert!(now >= self.free_at, "steps do not overlap");
        self.counters.steps += 1;
        if let State::Idle { sleeps_at, until, .. } = self.state {
            self.end_sleep(sleeps_at, now);
            if until.is_some() {
                self.wake(until, now);
            }
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
        self.leaving.date_last(sent, end);
        if !is_before_departure {
            end += stall;
        }
        self.free_at = end;
        let is_busy = has_received || sent > 0 || has_timer || !self.received.is_empty();
        if is_busy {
            self.waits.ended(now);
        }
        let waits_for_ring = self.is_unfinished && !self.has_tx_room();
        self.state = match is_busy || self.is_unfinished && !waits_for_ring {
            true => State::Busy { next: end },
            false => self.idle(now, end, node),
        };
    }

    /// The state after a step without work, from `now` to `end`.
    fn idle(&mut self, now: Time, end: Time, node: &mut impl Node) -> State {
        // While frames of its own leave, a driver looks again soon.
        let looks_again = match self.model.polling {
            Polling::Spin(_) => !self.leaving.is_empty(),
            // The kernel has taken them, unless the ring was full.
            Polling::Adaptive | Polling::Busy => self.is_unfinished,
        };
        let deadline = node.poll_timeout().into_iter();
        let deadline = deadline.chain(looks_again.then_some(end + PENDING_POLL)).min();
        let sleeps_at = self.waits.sleeps_at(now, node.awaited(), deadline);
        let until = deadline.filter(|at| *at >= sleeps_at);
        let late = until.map_or(Dur::ZERO, |_| self.model.wakeup.draw(&mut self.rng));
        // A stall may have outlasted the spin.
        let next = deadline.map(|at| (at + late).max(end));
        State::Idle { sleeps_at, until, next }
    }

    pub(super) fn next_step(&self) -> Option<Time> {
        match self.state {
            State::Busy { next } => Some(next),
            State::Idle { next, .. } => next,
        }
    }
}

impl Waiting {
    /// Bytes of the frame, with elided ones.
    fn len(&self) -> u64 {
        u64_from(self.bytes.len()) + u64::from(self.elided_bytes)
    }

    /// Bytes that it takes of a socket's buffer.
    fn counted(&self) -> u64 {
        self.len() + Sockets::SKB_BYTES
    }
}

impl Queue {
    fn push(&mut self, frame: Waiting) {
        self.bytes += frame.counted();
        self.frames.push_back(frame);
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.counted();
        Some(frame)
    }

    pub(super) fn front(&self) -> Option<&Waiting> {
        self.frames.front()
    }

    fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The last `count` frames leave at `at`.
    fn date_last(&mut self, count: usize, at: Time) {
        let len = self.len();
        for frame in self.frames.range_mut(len - count..) {
            frame.at = at;
        }
    }
}
