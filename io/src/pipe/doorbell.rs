//! How one end of a pipe wakes the other, at the price of one load when it is awake.

use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Where one thread sleeps and another wakes it.
///
/// No wake-up is lost: the sleeper first says that it sleeps and then looks at the rings, the
/// ringer first fills the rings and then looks whether anyone sleeps. With a sequentially
/// consistent fence between the two halves on both sides, at least one of them sees the other.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// [`AWAKE`] or what the sleeper [`Wants`].
    asleep: AtomicU8,
    lock: Mutex<()>,
    rung: Condvar,
}

/// What a sleeper wants; as news, what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    /// A frame to receive. News of a frame wakes every sleeper.
    Frames,
    /// Also a buffer to send with. News of a buffer wakes only a sleeper that wants one.
    FramesOrBuffers,
}

impl Doorbell {
    /// Tells the sleeper, if there is one that wants it, of a frame or a buffer now in a ring.
    pub(super) fn ring(&self, news: Wants) {
        fence(Ordering::SeqCst);
        if self.is_wanted(news) {
            // The sleeper holds the lock from its look at the rings until it sleeps: whoever gets
            // the lock after it finds it asleep.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.rung.notify_one();
        }
    }

    /// Sleeps until `ready` or until `timeout` has passed. `ready` must look at nothing but what
    /// `ring` is called for.
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

    /// True when someone sleeps whom this news should wake.
    fn is_wanted(&self, news: Wants) -> bool {
        self.asleep.load(Ordering::Relaxed) >= level(news)
    }
}

/// The least `asleep` that this news wakes, and what a sleeper with these wants stores.
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

    const LONG: Duration = Duration::from_secs(20);

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
    fn ring__news_of_a_buffer_leaves_a_sleeper_that_wants_frames_alone() {
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
