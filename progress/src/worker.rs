//! An engine behind its lock: the calls, turns and waits of its threads.

use crate::bell::{Bell, Progress};
use crate::end::{End, FORKED, PANICKED};
use crate::engine::{Door, Engine, Step};
use crate::signal::Signal;
use crate::spin::{Spinner, Wait};
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::{Event, Polling};
use spanwire_base::Awaited;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Instant;

/// An engine that several threads share.
///
/// A thread that panics while it has the lock ends it for all: its state may be half changed. In a
/// process that was forked from the engine's own ([`Door::is_here`]) it has ended.
pub struct Worker<T, D: Door> {
    pub(crate) bell: Arc<Bell<D::Event>>,
    /// None after the end.
    engine: Mutex<Option<T>>,
    /// Threads that wait for the lock.
    pub(crate) callers: AtomicU32,
    pub(crate) door: D,
    pub(crate) spinner: Spinner,
    /// When the engine was stepped last.
    pub(crate) stepped_at: AtomicU64,
    /// A leader that spins keeps its core until then.
    pub(crate) yields_at: AtomicU64,
    /// Raised after steps with progress, and after [`Worker::submit`]: one may have completed
    /// something.
    moved: Signal<D::Event>,
    /// Steps that made progress.
    steps: AtomicU64,
    pub(crate) outcome: End<D::Event>,
    /// The event for which the engine waits since its last step, an index of [`Awaited::ALL`].
    awaits: AtomicUsize,
}

impl<T, D: Door> Worker<T, D>
where
    D::Event: Event,
{
    /// Shares `engine`, whose threads sleep at `door`. The descriptors are that of
    /// [`Worker::moved`], and one that becomes ready at the end.
    pub fn new(
        (bell, [moved, ended]): (Arc<Bell<D::Event>>, [D::Event; 2]),
        engine: T,
        door: D,
        polling: Polling,
    ) -> Self {
        Self {
            moved: Signal::new(moved, Some(bell.clone())),
            bell,
            engine: Mutex::new(Some(engine)),
            callers: AtomicU32::new(0),
            door,
            spinner: Spinner::new(polling),
            stepped_at: AtomicU64::new(0),
            yields_at: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            outcome: End::new(ended),
            awaits: AtomicUsize::new(0),
        }
    }

    /// The same with another engine in place of its own, unless it has ended: for the only thread
    /// that has it.
    #[must_use]
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Worker<U, D> {
        let engine = self.engine.into_inner().unwrap_or_else(PoisonError::into_inner);
        Worker {
            bell: self.bell,
            engine: Mutex::new(engine.map(change)),
            callers: self.callers,
            door: self.door,
            spinner: self.spinner,
            stepped_at: self.stepped_at,
            yields_at: self.yields_at,
            moved: self.moved,
            steps: self.steps,
            outcome: self.outcome,
            awaits: self.awaits,
        }
    }

    /// Its engine, for the only thread that has it. `None` after the end.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.engine.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut()
    }

    /// Where its threads sleep.
    pub fn door(&self) -> &D {
        &self.door
    }

    /// Its bell.
    pub fn bell(&self) -> &Arc<Bell<D::Event>> {
        &self.bell
    }

    /// Raised when a step, or a call by [`Worker::submit`], may have completed something.
    pub fn moved(&self) -> &Signal<D::Event> {
        &self.moved
    }

    /// True once it has ended, or in a forked process.
    pub fn has_ended(&self) -> bool {
        !self.door.is_here() || self.outcome.has_come()
    }

    /// Why it has ended, if it has failed.
    pub fn why(&self) -> Option<&str> {
        if self.door.is_here() { self.outcome.why() } else { Some(FORKED) }
    }

    /// Ready once it has ended.
    pub fn ended(&self) -> &D::Event {
        self.outcome.event()
    }

    /// True in a process that was forked from the one of the engine: no call has an effect.
    pub fn is_forked(&self) -> bool {
        !self.door.is_here()
    }

    /// A wait of the engine begins.
    pub(crate) fn begin_wait(&self) -> Wait {
        self.spinner.begin(Awaited::ALL[self.awaits.load(Ordering::Relaxed)])
    }

    pub(crate) fn since_step(&self) -> u64 {
        self.door.now_ns().saturating_sub(self.stepped_at.load(Ordering::Relaxed))
    }
}

impl<T: Engine, D: Door> Worker<T, D>
where
    D::Event: Event,
{
    /// Runs `call` with the engine's node, in the calling thread: at once if no other thread has
    /// the lock. `None` after the end.
    ///
    /// Requests that it posts are transmitted in the next step: by a thread that leads and spins,
    /// or see [`Worker::submit`].
    ///
    /// # Panics
    /// As `call`; the engine has ended then. Never from within `call` of another one: it would wait
    /// for itself.
    pub fn with<R>(&self, call: impl FnOnce(&mut T::Node) -> R) -> Option<R> {
        self.with_engine(|engine| call(engine.node()))
    }

    /// As [`Worker::with`], with all of the engine.
    pub fn with_engine<R>(&self, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.call(call)
    }

    /// As [`Worker::with`], for a call that posts or completes requests: threads that wait look
    /// again, and requests are transmitted before it returns, or by the thread that steps the
    /// engine just now. With [`Progress::Worker`] the worker is woken.
    pub fn submit<R>(&self, call: impl FnOnce(&mut T::Node) -> R) -> Option<R> {
        let result = self.with(call);
        self.moved.raise();
        self.publish();
        result
    }

    /// Drives the engine, unless another thread does, until `look` returns a value, or until
    /// `deadline`. `look` is called before each step of the calling thread, and whenever something
    /// may have completed. If it returns a value it may have changed what others wait for (a polled
    /// completion frees a place in the send queue), so they look again. `None` at the deadline and
    /// after the end.
    pub fn wait_for<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let found = self.wait(&self.moved, deadline, || match self.call(&mut look) {
            Some(None) => None,
            found_or_ended => Some(found_or_ended.flatten()),
        });
        let found = found.flatten();
        if found.is_some() {
            self.moved.raise();
        }
        found
    }

    /// Drives the engine until a step makes progress, or until `deadline`.
    pub fn pause(&self, deadline: Option<Instant>) {
        let before = self.steps.load(Ordering::Relaxed);
        let has_moved = || self.has_ended() || self.steps.load(Ordering::Relaxed) != before;
        self.wait(&self.moved, deadline, || has_moved().then_some(()));
    }

    /// Ends it because of `why`, which is no failure: later calls return `None`, and threads that
    /// wait for it return.
    pub fn end(&self, why: &str) {
        // The lock is kept to the end, so that no step comes between.
        if !self.is_forked()
            && let Some(mut ended) = self.lock().take()
        {
            ended.end(why);
            drop(ended);
            self.announce_end(None);
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

    /// One step, unless another thread has the lock. `idle` is called with the next deadline if
    /// nothing happened, before the lock is given back.
    pub(crate) fn step(&self, quiet: bool, idle: impl FnOnce(u64)) -> Option<Step> {
        if self.is_forked() {
            return Some(Step::Ended(None));
        }
        let after = EndAfterPanic(self);
        let Some(mut engine) = self.try_lock() else {
            after.disarm();
            return None;
        };
        let step = match &mut *engine {
            Some(engine) => engine.step(self.bell.take_ring(), quiet),
            None => Step::Ended(None),
        };
        let mut has_moved = true;
        match &step {
            Step::Done { progress, wakes_at, awaits } => {
                self.awaits.store(*awaits as usize, Ordering::Relaxed);
                // Sleepers know of an earlier deadline than theirs.
                self.bell.wake_before(*wakes_at);
                has_moved = *progress;
                if has_moved {
                    let steps = self.steps.load(Ordering::Relaxed);
                    self.steps.store(steps + 1, Ordering::Relaxed);
                } else {
                    idle(*wakes_at);
                }
            }
            Step::Ended(why) => {
                if engine.take().is_some() {
                    self.announce_end(why.clone());
                }
            }
        }
        self.stepped_at.store(self.door.now_ns(), Ordering::Relaxed);
        drop(engine);
        after.disarm();
        // Before the caller looks at the bell: a thread that rings and does not get the lock relies
        // on it.
        match has_moved {
            true => self.moved.raise(),
            false => fence(Ordering::SeqCst),
        }
        Some(step)
    }

    /// Runs `call` under the lock, and then a turn if the bell was rung meanwhile.
    fn call<R>(&self, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_forked() {
            return None;
        }
        let after = EndAfterPanic(self);
        let mut engine = self.lock();
        let result = engine.as_mut().map(call);
        drop(engine);
        after.disarm();
        fence(Ordering::SeqCst);
        if self.bell.is_rung() && self.bell.progress() != Progress::Worker {
            self.turn();
        }
        result
    }

    /// The lock, after a short spin: a step lasts a few microseconds.
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        for _ in 0..LOCK_SPINS {
            if let Some(engine) = self.try_lock() {
                return engine;
            }
            std::hint::spin_loop();
        }
        self.callers.fetch_add(1, Ordering::Relaxed);
        let engine = self.engine.lock();
        self.callers.fetch_sub(1, Ordering::Relaxed);
        engine.unwrap_or_else(|poisoned| self.abandon(poisoned.into_inner()))
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<T>>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.abandon(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends it: a thread has panicked with the lock.
    fn abandon<'a>(&self, mut engine: MutexGuard<'a, Option<T>>) -> MutexGuard<'a, Option<T>> {
        if engine.take().is_some() {
            self.announce_end(Some(PANICKED.to_owned()));
        }
        engine
    }

    fn announce_end(&self, why: Option<String>) {
        self.outcome.announce(why);
        self.bell.wake();
        self.moved.raise();
    }
}

/// Ends the engine if the thread panics with the lock, so that no other one waits for it. Dropped
/// after the lock was given back.
struct EndAfterPanic<'a, T: Engine, D: Door>(&'a Worker<T, D>)
where
    D::Event: Event;

impl<T: Engine, D: Door> EndAfterPanic<'_, T, D>
where
    D::Event: Event,
{
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<T: Engine, D: Door> Drop for EndAfterPanic<'_, T, D>
where
    D::Event: Event,
{
    fn drop(&mut self) {
        drop(self.0.try_lock());
    }
}

impl<T, D: Door> fmt::Debug for Worker<T, D>
where
    D::Event: Event,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("has_ended", &self.has_ended()).finish_non_exhaustive()
    }
}

/// Tries to get the lock before the thread sleeps for it: some 2 us.
const LOCK_SPINS: u32 = if cfg!(loom) { 1 } else { 200 };
