//! An engine behind its lock: the turns and waits of its threads.

use crate::bell::{Bell, Lead, Progress, Sleeper, Ticket};
use crate::signal::{Signal, Waited};
use crate::spin::Spinner;
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::{Event, Spin};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

/// An engine that one thread at a time steps.
pub trait Engine {
    /// Receives, handles due timers and transmits, without waiting. `rung`: something was published
    /// for it. `quiet`: a sleep at the port ended without a frame, so the port's state is to be
    /// checked.
    fn step(&mut self, rung: bool, quiet: bool) -> Step;

    /// Ends it: a thread panicked in a step. Later steps return [`Step::Ended`].
    fn abandon(&mut self);
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It was stepped.
    Done {
        /// Something was received, transmitted or due.
        progress: bool,
        /// When the next step is due without a frame, in ns of [`Door::now_ns`].
        wakes_at: u64,
    },
    /// It has ended, and is not stepped again.
    Ended,
}

/// What a thread needs to sleep at the port without the engine's lock.
pub trait Door {
    /// The descriptor that ends a sleep.
    type Event: Event;

    /// The engine's clock, in ns.
    fn now_ns(&self) -> u64;

    /// Sleeps until a frame arrives, `event` is ready, or the clock is at `until`. False if neither
    /// a frame nor the event ended the sleep.
    fn sleep(&self, event: &Self::Event, until: u64) -> bool;

    /// Sleeps until `event` is ready or the clock is at `until`.
    fn nap(&self, event: &Self::Event, until: u64);
}

/// An engine that several threads share.
#[derive(Debug)]
pub struct Shared<T, D: Door> {
    bell: Arc<Bell<D::Event>>,
    engine: Mutex<T>,
    door: D,
    spinner: Spinner,
    /// When the engine was stepped last.
    stepped_at: AtomicU64,
    /// Steps that made progress.
    steps: AtomicU64,
    ended: AtomicBool,
}

/// A leader while it waits.
struct Waiter<'a, D: Door> {
    sleeper: &'a Sleeper<D::Event>,
    /// What it waits for; none for the worker.
    signal: Option<&'a Signal<D::Event>>,
    /// How long, in ns of the engine's clock.
    until: u64,
}

/// Whether what a leader waits for has happened.
type Look<'a, R> = &'a mut dyn FnMut() -> Option<R>;

/// Why a leader has stopped.
enum Stop<R> {
    Found(R),
    Expired,
    /// Another thread has taken the lead.
    Lost,
    Ended,
}

impl<T: Engine, D: Door> Shared<T, D>
where
    D::Event: Event,
{
    /// Shares `engine`, whose threads sleep at `door`.
    pub fn new(bell: Arc<Bell<D::Event>>, engine: T, door: D, spin: Spin) -> Self {
        Self {
            bell,
            engine: Mutex::new(engine),
            door,
            spinner: Spinner::new(spin),
            stepped_at: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Its bell.
    pub fn bell(&self) -> &Arc<Bell<D::Event>> {
        &self.bell
    }

    /// True once a step has returned [`Step::Ended`].
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Tells the engine what the caller has published: in a step of the caller's thread, or of the
    /// thread that steps it just now. With [`Progress::Worker`] the worker is woken.
    pub fn publish(&self) {
        self.bell.ring();
        match self.bell.progress() {
            Progress::Worker => self.bell.wake(),
            Progress::Inline | Progress::Shared => {
                self.turn();
            }
        }
    }

    /// Steps the engine if no other thread does. True if it made progress.
    pub fn turn(&self) -> bool {
        let mut progressed = false;
        loop {
            let Some(step) = self.step(false, |_| {}) else { return progressed };
            let Step::Done { progress, .. } = step else { return progressed };
            progressed |= progress;
            if !self.bell.is_rung() {
                return progressed;
            }
        }
    }

    /// Steps the engine if nobody leads and it has not been stepped for a while: for a thread that
    /// always finds data and so never waits.
    pub fn refresh(&self) {
        if self.bell.leader() != Lead::Vacant || self.bell.progress() == Progress::Worker {
            return;
        }
        let since = self.door.now_ns().saturating_sub(self.stepped_at.load(Ordering::Relaxed));
        if since >= REFRESH_NS {
            self.turn();
        }
    }

    /// Blocks until `look` returns a value, or until `deadline`. `look` is called first, and
    /// whenever `signal` may have been raised. The caller drives the engine meanwhile, unless
    /// another thread does.
    pub fn wait<R>(
        &self,
        signal: &Signal<D::Event>,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let is_over = deadline.is_some_and(|at| at <= Instant::now());
            if is_over {
                return None;
            }
            if self.has_ended() {
                return signal.wait(deadline, look);
            }
            let Some(ticket) = self.bell.try_lead() else {
                if let Some(found) = self.follow(signal, deadline, &mut look) {
                    return Some(found);
                }
                continue;
            };
            let until = deadline.map_or(u64::MAX, |at| self.to_ns(at));
            let sleeper = &self.bell.application;
            let waiter = Waiter { sleeper, signal: Some(signal), until };
            if let Stop::Found(found) = self.lead(ticket, waiter, &mut look) {
                return Some(found);
            }
        }
    }

    /// Drives the engine until a step makes progress, or until `deadline`.
    pub fn pause(&self, deadline: Option<Instant>) {
        let before = self.steps.load(Ordering::Relaxed);
        let Some(ticket) = self.bell.try_lead() else { return };
        let until = deadline.map_or(u64::MAX, |at| self.to_ns(at));
        let waiter = Waiter { sleeper: &self.bell.application, signal: None, until };
        let has_moved = || self.steps.load(Ordering::Relaxed) != before;
        self.lead(ticket, waiter, &mut || has_moved().then_some(()));
    }

    /// The worker's thread: leads when it must, until the engine has ended.
    pub fn work(&self) {
        let mut seen = None;
        while !self.has_ended() {
            let found = self.bell.lead();
            let is_due = self.bell.progress() == Progress::Worker
                || self.bell.has_waiting()
                || seen == Some(found);
            match found.leader() {
                Lead::Vacant if is_due => {
                    if let Some(ticket) = self.bell.lead_as_worker(found) {
                        self.lead_as_worker(ticket);
                    }
                }
                Lead::Application if seen == Some(found) => self.park(found),
                Lead::Vacant | Lead::Application => {
                    // Acknowledgements and timers of applications that compute.
                    self.turn();
                    let is_due = || self.bell.leader() == Lead::Vacant && self.bell.has_waiting();
                    self.nap(TICK_NS, is_due);
                }
                Lead::Worker => unreachable!("only this thread leads as the worker"),
            }
            seen = Some(found);
        }
    }

    /// Follows the leader: sleeps once on `signal`.
    fn follow<R>(
        &self,
        signal: &Signal<D::Event>,
        deadline: Option<Instant>,
        look: &mut impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.bell.enter();
        // Without a worker nobody wakes a follower when the leader leaves.
        let slice = (self.bell.progress() == Progress::Inline).then_some(SLICE);
        let can_lead = || match self.bell.progress() {
            Progress::Inline => self.bell.leader() == Lead::Vacant,
            Progress::Shared | Progress::Worker => self.has_ended(),
        };
        let waited = signal.sleep(deadline, slice, can_lead, look);
        self.bell.leave();
        match waited {
            Waited::Found(found) => Some(found),
            Waited::Due | Waited::Slept => None,
        }
    }

    /// Drives the engine as the leader, and gives the lead up.
    fn lead<R>(&self, ticket: Ticket, waiter: Waiter<'_, D>, look: Look<'_, R>) -> Stop<R> {
        let stop = self.drive(ticket, &waiter, look);
        self.bell.release(ticket);
        // A thread that found the lock taken relies on the one that had it.
        if self.bell.is_rung() {
            self.turn();
        }
        stop
    }

    fn drive<R>(&self, ticket: Ticket, waiter: &Waiter<'_, D>, look: Look<'_, R>) -> Stop<R> {
        let mut spin = self.spinner.begin();
        let mut idle_since = None;
        let mut quiet = false;
        loop {
            // It sleeps unless something happens in this round.
            let is_tired = spin == 0;
            if is_tired {
                waiter.arm();
            }
            // A look after the signal was armed.
            if let Some(found) = look() {
                if !is_tired && idle_since.is_some() {
                    self.spinner.paid();
                }
                waiter.disarm();
                return Stop::Found(found);
            }
            let stepped = self.step(quiet, |wakes_at| {
                if is_tired {
                    waiter.sleeper.announce(wakes_at.min(waiter.until));
                }
            });
            quiet = false;
            let (progress, wakes_at) = match stepped {
                Some(Step::Done { progress, wakes_at }) => (progress, wakes_at.min(waiter.until)),
                Some(Step::Ended) => return Stop::Ended,
                None => {
                    // Another thread steps it, which does not last.
                    relax();
                    continue;
                }
            };
            if is_tired && !progress {
                quiet = !self.sleep(ticket, waiter, wakes_at);
            }
            waiter.disarm();
            if !self.bell.holds(ticket) {
                return Stop::Lost;
            }
            if progress {
                (spin, idle_since) = (self.spinner.begin(), None);
                continue;
            }
            let now = self.door.now_ns();
            if now >= waiter.until {
                return look().map_or(Stop::Expired, Stop::Found);
            }
            if !is_tired {
                if now - *idle_since.get_or_insert(now) >= spin {
                    self.spinner.missed();
                    spin = 0;
                }
                relax();
            }
        }
    }

    /// Sleeps as the leader, unless there is a reason to stay awake. False if the sleep ended
    /// without a frame or a wake-up.
    fn sleep(&self, ticket: Ticket, waiter: &Waiter<'_, D>, until: u64) -> bool {
        let is_due = self.bell.is_rung()
            || !self.bell.holds(ticket)
            || waiter.is_raised()
            || self.has_ended();
        let ready = is_due || self.door.sleep(&waiter.sleeper.event, until);
        waiter.sleeper.awake(!is_due);
        ready
    }

    /// Sleeps while an application thread leads, until it gives up the lead; then a stopped thread
    /// is looked for.
    fn park(&self, found: Ticket) {
        self.bell.set_parked(true);
        self.nap(PARK_NS, || !self.bell.holds(found));
        self.bell.set_parked(false);
        let is_asleep = self.bell.application.is_asleep();
        if self.bell.holds(found) && self.turn() && is_asleep && self.bell.holds(found) {
            // There was work at the port, and the thread that sleeps there was not woken by it: it
            // was stopped. The worker leads from now on.
            if let Some(ticket) = self.bell.lead_as_worker(found) {
                self.lead_as_worker(ticket);
            }
        }
    }

    fn lead_as_worker(&self, ticket: Ticket) {
        let waiter = Waiter { sleeper: &self.bell.worker, signal: None, until: u64::MAX };
        self.lead(ticket, waiter, &mut || None::<()>);
    }

    fn nap(&self, within: u64, is_due: impl FnOnce() -> bool) {
        let worker = &self.bell.worker;
        let until = self.door.now_ns().saturating_add(within);
        worker.announce(until);
        let sleeps = !is_due() && !self.has_ended();
        if sleeps {
            self.door.nap(&worker.event, until);
        }
        worker.awake(sleeps);
    }

    /// One step, unless another thread steps it. `idle` is called with the next deadline if nothing
    /// happened, before the lock is given back.
    fn step(&self, quiet: bool, idle: impl FnOnce(u64)) -> Option<Step> {
        let mut engine = self.try_lock()?;
        let step = engine.step(self.bell.take_ring(), quiet);
        match step {
            Step::Done { progress, wakes_at } => {
                // Sleepers know of an earlier deadline than theirs.
                self.bell.worker.wake_before(wakes_at);
                self.bell.application.wake_before(wakes_at);
                if progress {
                    let steps = self.steps.load(Ordering::Relaxed);
                    self.steps.store(steps + 1, Ordering::Relaxed);
                } else {
                    idle(wakes_at);
                }
            }
            Step::Ended => {
                self.ended.store(true, Ordering::Release);
                self.bell.wake();
            }
        }
        self.stepped_at.store(self.door.now_ns(), Ordering::Relaxed);
        drop(engine);
        // Before the caller looks at the bell: a thread that rings and does not get the lock relies
        // on it.
        fence(Ordering::SeqCst);
        Some(step)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut engine = poisoned.into_inner();
                engine.abandon();
                Some(engine)
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn to_ns(&self, at: Instant) -> u64 {
        let left = at.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.door.now_ns().saturating_add(left)
    }
}

impl<D: Door> Waiter<'_, D>
where
    D::Event: Event,
{
    fn arm(&self) {
        if let Some(signal) = self.signal {
            signal.arm_leader();
        }
    }

    fn disarm(&self) {
        if let Some(signal) = self.signal {
            signal.disarm_leader();
        }
    }

    fn is_raised(&self) -> bool {
        self.signal.is_some_and(|signal| !signal.is_armed())
    }
}

/// Lets another runnable thread have the core: the one with the lock, or the other end.
fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// How late timers and acknowledgements may be while all applications compute: at most two of
/// these pass until the worker leads.
const TICK_NS: u64 = 500_000;

/// How often the worker looks for an application thread that leads and was stopped.
const PARK_NS: u64 = 100_000_000;

/// How often a follower without a worker looks whether it can lead.
const SLICE: Duration = Duration::from_millis(1);

/// A thread that always finds data steps the engine this often, in ns: before a receive ring of
/// 2048 frames is full at 25 Gbit/s and 1500 bytes, ten times over.
const REFRESH_NS: u64 = 20_000;
