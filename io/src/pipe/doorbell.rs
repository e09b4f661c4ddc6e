//! Wakeup of one end of a pipe by the other, at the cost of one load while it is awake.

use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes a thread that sleeps.
///
/// No wakeup is lost. The sleeper sets `asleep` and then checks the rings; the ringer fills the
/// rings and then reads `asleep`. Both have a sequentially consistent fence in between, so at least
/// one of them sees the other's store.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// [`AWAKE`] or what the sleeper [`Wants`].
    asleep: AtomicU8,
    lock: Mutex<()>,
    rung: Condvar,
}

/// The resource that a sleeper waits for, or that has become available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    /// A frame to receive. It wakes every sleeper.
    Frames,
    /// Also a transmit buffer. A buffer wakes only a sleeper that waits for one.
    FramesOrBuffers,
}

impl Doorbell {
    /// Wakes the sleeper if it waits for the frame or buffer now in a ring.
    pub(super) fn ring(&self, news: Wants) {
        fence(Ordering::SeqCst);
        if self.is_wanted(news) {
            // The sleeper holds the lock from its check of the rings until it sleeps, so the ringer
            // finds it asleep once it gets the lock.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.rung.notify_one();
        }
    }

    /// Sleeps until `ready` or until `timeout` has passed. `ready` must depend only on what `ring`
    /// is called for.
    pub(super) fn wait(&self, wants: Wants, timeout: Duration, ready: impl Fn() -> bool) {
        if ready() {
            return;
        }
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.store(level(wants), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let woken = self.rung.wait_timeout_while(guard, timeout, |()| !ready());
        self.asleep.store(AWAKE, Ordering::Relaxed);
        drop(woken);
    }

    /// True if a sleeper waits for `news`.
    fn is_wanted(&self, news: Wants) -> bool {
        self.asleep.load(Ordering::Relaxed) >= level(news)
    }
}

/// The least `asleep` that `news` wakes, and the value that a sleeper with these wants stores.
fn level(wants: Wants) -> u8 {
    match wants {
        Wants::Frames => 1,
        Wants::FramesOrBuffers => 2,
    }
}

const AWAKE: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn wait__returns_at_once_when_ready_and_after_its_timeout_otherwise() {
        let bell = Doorbell::default();
        let begin = Instant::now();
        bell.wait(Wants::Frames, LONG, || true);
        assert!(begin.elapsed() < LONG);
        let begin = Instant::now();
        bell.wait(Wants::Frames, Duration::from_millis(5), || false);
        assert!(begin.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn ring__is_never_lost_in_a_ping_pong() {
        let bells = [Doorbell::default(), Doorbell::default()];
        let count = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let play = |me: usize| {
            for round in 1..=20_000 {
                if me == 0 {
                    count[0].store(round, Ordering::Release);
                    bells[1].ring(Wants::Frames);
                }
                let there = || count[1 - me].load(Ordering::Acquire) >= round;
                let begin = Instant::now();
                bells[me].wait(Wants::Frames, LONG, there);
                assert!(there(), "round {round} lost after {:?}", begin.elapsed());
                if me == 1 {
                    count[1].store(round, Ordering::Release);
                    bells[0].ring(Wants::Frames);
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(1));
            play(0);
        });
    }

    #[test]
    fn ring__a_buffer_does_not_wake_a_sleeper_that_waits_for_frames() {
        let wakes = |asleep, news| {
            let bell = Doorbell::default();
            bell.asleep.store(asleep, Ordering::Relaxed);
            bell.is_wanted(news)
        };
        let (frames, both) = (Wants::Frames, Wants::FramesOrBuffers);
        assert!(!wakes(AWAKE, frames) && !wakes(AWAKE, both));
        assert!(wakes(level(frames), frames) && !wakes(level(frames), both));
        assert!(wakes(level(both), frames) && wakes(level(both), both));
    }
}
