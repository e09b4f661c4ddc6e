//! An engine behind its lock: the turns and waits of its threads.

use crate::bell::{Bell, Lead, Progress};
use crate::engine::{Door, Engine, Step};
use crate::spin::{Spinner, Wait};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::{Event, Polling};
use spanwire_base::Awaited;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, TryLockError};

/// An engine that several threads share.
#[derive(Debug)]
pub struct Shared<T, D: Door> {
    pub(crate) bell: Arc<Bell<D::Event>>,
    engine: Mutex<T>,
    pub(crate) door: D,
    pub(crate) spinner: Spinner,
    /// When the engine was stepped last.
    stepped_at: AtomicU64,
    /// Steps that made progress.
    pub(crate) steps: AtomicU64,
    ended: AtomicBool,
    /// The event for which the engine waits since its last step, an index of [`Awaited::ALL`].
    awaits: AtomicUsize,
}

impl<T: Engine, D: Door> Shared<T, D>
where
    D::Event: Event,
{
    /// Shares `engine`, whose threads sleep at `door`.
    pub fn new(bell: Arc<Bell<D::Event>>, engine: T, door: D, polling: Polling) -> Self {
        Self {
            bell,
            engine: Mutex::new(engine),
            door,
            spinner: Spinner::new(polling),
            stepped_at: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            awaits: AtomicUsize::new(0),
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

    /// As [`Shared::publish`], for a thread that will publish more, or wait, in a moment. The step
    /// is left to that call, so that several messages share it, unless another thread leads or the
    /// last step was long ago.
    pub fn publish_soon(&self) {
        let shares = self.bell.progress() != Progress::Worker
            && self.bell.leader() == Lead::Vacant
            && self.since_step() < REFRESH_NS;
        if shares {
            self.bell.ring();
        } else {
            self.publish();
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

    /// Steps the engine if no thread leads and none has stepped it for a while: for a thread that
    /// always finds data and so never waits.
    pub fn refresh(&self) {
        if self.bell.leader() != Lead::Vacant || self.bell.progress() == Progress::Worker {
            return;
        }
        if self.since_step() >= REFRESH_NS {
            self.turn();
        }
    }

    /// A wait of the engine begins.
    pub(crate) fn begin_wait(&self) -> Wait {
        self.spinner.begin(Awaited::ALL[self.awaits.load(Ordering::Relaxed)])
    }

    pub(crate) fn since_step(&self) -> u64 {
        self.door.now_ns().saturating_sub(self.stepped_at.load(Ordering::Relaxed))
    }

    /// One step, unless another thread steps it. `idle` is called with the next deadline if nothing
    /// happened, before the lock is given back.
    pub(crate) fn step(&self, quiet: bool, idle: impl FnOnce(u64)) -> Option<Step> {
        let mut engine = self.try_lock()?;
        let step = engine.step(self.bell.take_ring(), quiet);
        match step {
            Step::Done { progress, wakes_at, awaits } => {
                self.awaits.store(awaits as usize, Ordering::Relaxed);
                // Sleepers know of an earlier deadline than theirs.
                self.bell.wake_before(wakes_at);
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
}

/// A thread that always finds data steps the engine this often, in ns: before a receive ring of
/// 2048 frames is full at 25 Gbit/s and 1500 bytes, ten times over.
const REFRESH_NS: u64 = 20_000;
