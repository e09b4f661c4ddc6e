//! Wake-ups from the worker to a waiting application: a blocked call, a task, or its own event loop
//! on a descriptor.

use spanwire_io::doorbell::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// A condition to wait for: that data can be received, or sent.
///
/// No wake-up is lost: a waiter arms the signal and then checks the condition again. The worker
/// publishes first and then checks whether the signal is armed. Both have a fence between their two
/// steps. Raising a signal that is not armed costs a fence and a load.
#[derive(Debug)]
pub(crate) struct Signal {
    armed: AtomicBool,
    waker: Mutex<Option<Waker>>,
    raised: Condvar,
    event: EventFd,
    /// The descriptor was requested.
    event_is_used: AtomicBool,
}

impl Signal {
    /// # Errors
    /// There are no descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            armed: AtomicBool::new(false),
            waker: Mutex::new(None),
            raised: Condvar::new(),
            event: EventFd::new()?,
            event_is_used: AtomicBool::new(false),
        })
    }

    /// Wakes the waiters. The state they wait for must have been published before.
    pub(crate) fn raise(&self) {
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Relaxed) {
            return;
        }
        let waker = {
            let mut waker = self.lock();
            self.armed.store(false, Ordering::Relaxed);
            self.raised.notify_all();
            waker.take()
        };
        if self.event_is_used.load(Ordering::Relaxed) {
            self.event.signal();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Arms the signal after a failed check: the next [`Signal::raise`] makes the descriptor
    /// readable and wakes `waker`. The caller must check again afterwards.
    pub(crate) fn arm(&self, waker: Option<&Waker>) {
        if self.event_is_used.load(Ordering::Relaxed) {
            self.event.clear();
        }
        let mut kept = self.lock();
        if let Some(waker) = waker {
            match &mut *kept {
                Some(kept) => kept.clone_from(waker),
                empty => *empty = Some(waker.clone()),
            }
        }
        self.armed.store(true, Ordering::Relaxed);
        drop(kept);
        fence(Ordering::SeqCst);
    }

    /// Blocks until `look` returns a value, or until `deadline`. `look` is called first, and after
    /// every raise.
    pub(crate) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let guard = self.lock();
            self.armed.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // A raise from here on needs the lock, which only the wait releases.
            if let Some(found) = look() {
                return Some(found);
            }
            match deadline {
                None => drop(self.raised.wait(guard)),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left == Duration::ZERO {
                        return None;
                    }
                    drop(self.raised.wait_timeout(guard, left));
                }
            }
        }
    }

    /// The descriptor. It is readable at first, so that its user tries before it waits.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        if !self.event_is_used.swap(true, Ordering::Relaxed) {
            self.event.signal();
        }
        self.event.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use std::thread;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_readable(signal: &Signal) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(signal.descriptor(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).expect("polls") == 1
    }

    #[test]
    fn raise__wakes_the_last_waker_once() {
        let signal = Signal::new().unwrap();
        let [old, new] = [(); 2].map(|()| Arc::new(Count::default()));
        signal.raise();
        signal.arm(Some(&old.clone().into()));
        signal.arm(Some(&new.clone().into()));
        signal.raise();
        signal.raise();
        assert_eq!([old, new].map(|c| c.0.load(Ordering::Relaxed)), [0, 1]);
    }

    #[test]
    fn descriptor__is_readable_first_and_then_after_each_raise() {
        let signal = Signal::new().unwrap();
        assert!(is_readable(&signal), "its user must try once");
        signal.arm(None);
        assert!(!is_readable(&signal));
        signal.raise();
        assert!(is_readable(&signal));
        signal.arm(None);
        assert!(!is_readable(&signal));
    }

    #[test]
    fn wait__ends_at_its_deadline() {
        let signal = Signal::new().unwrap();
        let begin = Instant::now();
        let deadline = Some(begin + Duration::from_millis(5));
        assert_eq!(signal.wait(deadline, || None::<()>), None);
        assert!(begin.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn wait__no_raise_is_lost_in_a_ping_pong() {
        let signals = [Signal::new().unwrap(), Signal::new().unwrap()];
        let count = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let play = |me: usize| {
            for round in 1..=5000 {
                if me == 0 {
                    count[0].store(round, Ordering::Release);
                    signals[1].raise();
                }
                let there = || (count[1 - me].load(Ordering::Acquire) >= round).then_some(());
                let deadline = Some(Instant::now() + Duration::from_secs(120));
                assert!(signals[me].wait(deadline, there).is_some(), "round {round} was lost");
                if me == 1 {
                    count[1].store(round, Ordering::Release);
                    signals[0].raise();
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(1));
            play(0);
        });
    }
}
