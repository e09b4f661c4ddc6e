//! Wake-ups of a waiting application: a blocked call, a task, or its own event loop on a
//! descriptor.

use crate::sync::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering, fence};
use crate::{Bell, Event};
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// A condition to wait for: that data can be received, or sent.
///
/// No wake-up is lost: a waiter arms the signal and then checks the condition again. The engine's
/// thread publishes first and then checks whether the signal is armed. Both have a fence between
/// their two steps. Raising a signal that is not armed costs a fence and a load.
#[derive(Debug)]
pub struct Signal<E> {
    armed: AtomicBool,
    /// How often it was raised while it was armed.
    raises: AtomicU32,
    waiters: Mutex<Waiters>,
    raised: Condvar,
    event: E,
    /// The descriptor was requested.
    event_is_used: AtomicBool,
    /// The waiter leads: it sleeps at the port and not on this signal.
    leads: AtomicBool,
    /// The bell of the engine that raises it; none if its waiters never lead.
    bell: Option<Arc<Bell<E>>>,
}

/// Those that the next raise wakes.
#[derive(Debug, Default)]
struct Waiters {
    waker: Option<Waker>,
    /// Threads that sleep: to wake none costs a system call too.
    sleeping: u32,
}

impl<E: Event> Signal<E> {
    /// A signal that is not armed. Waiters lead the engine of `bell`, if one is given.
    pub fn new(event: E, bell: Option<Arc<Bell<E>>>) -> Self {
        Self {
            armed: AtomicBool::new(false),
            raises: AtomicU32::new(0),
            waiters: Mutex::default(),
            raised: Condvar::new(),
            event,
            event_is_used: AtomicBool::new(false),
            leads: AtomicBool::new(false),
            bell,
        }
    }

    /// Wakes the waiters. The state they wait for must have been published before.
    pub fn raise(&self) {
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Relaxed) {
            return;
        }
        let waker = {
            let mut waiters = self.lock();
            self.armed.store(false, Ordering::Relaxed);
            self.raises.fetch_add(1, Ordering::Relaxed);
            if waiters.sleeping > 0 {
                self.raised.notify_all();
            }
            waiters.waker.take()
        };
        if self.event_is_used.load(Ordering::Relaxed) {
            self.event.signal();
        }
        if self.leads.load(Ordering::Relaxed)
            && let Some(bell) = &self.bell
        {
            bell.wake_applications();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Arms the signal after a failed check: the next [`Signal::raise`] makes the descriptor
    /// readable and wakes `waker`. The caller must check again afterwards.
    pub fn arm(&self, waker: Option<&Waker>) {
        let uses_event = self.event_is_used.load(Ordering::Relaxed);
        if uses_event {
            self.event.clear();
        }
        if let Some(bell) = &self.bell
            && (uses_event || waker.is_some())
        {
            bell.note_task();
        }
        let mut waiters = self.lock();
        if let Some(waker) = waker {
            match &mut waiters.waker {
                Some(kept) => kept.clone_from(waker),
                empty => *empty = Some(waker.clone()),
            }
        }
        self.armed.store(true, Ordering::Relaxed);
        drop(waiters);
        fence(Ordering::SeqCst);
    }

    /// Blocks until `look` returns a value, or until `deadline`. `look` is called first, and after
    /// every raise.
    pub fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            if let Waited::Found(found) = self.sleep(deadline, None, || false, &mut look) {
                return Some(found);
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return None;
            }
        }
    }

    /// Arms the signal and sleeps once, at most for `slice`, unless `look` returns a value or
    /// `is_due` true.
    pub(crate) fn sleep<T>(
        &self,
        deadline: Option<Instant>,
        slice: Option<Duration>,
        is_due: impl FnOnce() -> bool,
        look: &mut impl FnMut() -> Option<T>,
    ) -> Waited<T> {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let raises = {
            let _guard = self.lock();
            self.armed.store(true, Ordering::Relaxed);
            self.raises()
        };
        fence(Ordering::SeqCst);
        if let Some(found) = look() {
            return Waited::Found(found);
        }
        if is_due() {
            return Waited::Due;
        }
        let mut waiters = self.lock();
        let left = left.into_iter().chain(slice).min();
        // A raise from here on needs the lock, which only the wait releases.
        if self.raises() != raises || left == Some(Duration::ZERO) {
            return Waited::Slept;
        }
        waiters.sleeping += 1;
        let mut waiters = match left {
            None => self.raised.wait(waiters).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                let woken = self.raised.wait_timeout(waiters, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        waiters.sleeping -= 1;
        Waited::Slept
    }

    /// Arms the signal for a waiter that leads; returns [`Signal::raises`].
    pub(crate) fn arm_leader(&self) -> u32 {
        let raises = self.raises();
        self.leads.store(true, Ordering::Relaxed);
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        raises
    }

    /// Ends [`Signal::arm_leader`].
    pub(crate) fn disarm_leader(&self) {
        self.leads.store(false, Ordering::Relaxed);
    }

    /// How often it was raised while it was armed. Not whether it is armed: several threads may
    /// arm it.
    pub(crate) fn raises(&self) -> u32 {
        self.raises.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a sleep on a signal ended.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    Found(T),
    Due,
    Slept,
}

#[cfg(not(loom))]
impl<E: Event + std::os::fd::AsFd> Signal<E> {
    /// The descriptor. It is readable at first, so that its user tries before it waits.
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        if !self.event_is_used.swap(true, Ordering::Relaxed) {
            self.event.signal();
            if let Some(bell) = &self.bell {
                bell.note_task();
            }
        }
        self.event.as_fd()
    }
}
