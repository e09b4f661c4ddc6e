//! The worker, and posts that leave their transmission to the poll that follows.
//!
//! A step over UDP sockets is a system call or two, which may carry 64 packets. A program that
//! posts a burst and then polls needs one step for the burst. One that posts and then spins on its
//! memory would wait for the thread of the library, up to a millisecond: if a poll comes late,
//! posts are transmitted at once for a while.

use spanwire_host::fabric::Link;
use spanwire_io::worker::Door as _;
use spanwire_transport::Endpoint;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An endpoint with a port, and the lock around both.
pub(crate) type Worker = spanwire_io::worker::Worker<Endpoint, Box<dyn Link + Send>>;

/// Whether posts of a program are left to its polls. Threads may race: the worst is a step more, or
/// one that comes later.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    /// When the last step was before the oldest post that was left, and no poll of the program has
    /// come since; zero if none was left.
    left_ns: AtomicU64,
    /// Posts since that one.
    left: AtomicU32,
    /// So many posts are transmitted at once.
    at_once: AtomicU32,
}

impl Bursts {
    /// Requests were posted: transmits them, now or with the next poll.
    pub(crate) fn posted(&self, worker: &Worker) {
        let (posts, left) =
            (self.at_once.load(Ordering::Relaxed), self.left.load(Ordering::Relaxed));
        if posts > 0 {
            self.at_once.store(posts - 1, Ordering::Relaxed);
            worker.publish();
        } else if !left.is_multiple_of(CLOCK_EVERY) {
            self.left.store(left.wrapping_add(1), Ordering::Relaxed);
        } else if let Some(stepped_at) = worker.recent_step() {
            if left == 0 {
                self.left_ns.store(stepped_at, Ordering::Relaxed);
            }
            self.left.store(left.wrapping_add(1), Ordering::Relaxed);
        } else {
            self.polls(worker);
            worker.publish();
        }
    }

    /// The program polls, which takes a step; or it posts, long after.
    pub(crate) fn polls(&self, worker: &Worker) {
        let left_ns = self.left_ns.load(Ordering::Relaxed);
        if left_ns == 0 {
            return;
        }
        self.left_ns.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        if worker.door().now_ns().saturating_sub(left_ns) > LATE_NS {
            self.at_once.store(AT_ONCE, Ordering::Relaxed);
        }
    }
}

/// A poll that comes so long after a post was left is late: the thread of the library has probably
/// transmitted it.
const LATE_NS: u64 = 400_000;

/// Of a burst, so many posts share a look at the clock: a sixth of what a post costs.
const CLOCK_EVERY: u32 = 4;

/// A wait of a millisecond for so many posts: 4 us each.
const AT_ONCE: u32 = 256;
