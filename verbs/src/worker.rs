//! The worker, and posts that leave their transmission to the poll that follows.
//!
//! A step over UDP sockets is a system call or two, which may carry 64 packets. A program that
//! posts a burst and then polls needs one step for the burst. One that posts and then spins on its
//! memory would wait for the thread of the library, up to a millisecond: if that thread has found
//! something that was left, posts are transmitted at once for a while.

use spanwire_host::fabric::Link;
use spanwire_transport::Endpoint;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// An endpoint with a port, and the lock around both.
pub(crate) type Worker = spanwire_io::worker::Worker<Endpoint, Box<dyn Link + Send>>;

/// Whether posts of a program are left to its polls. Threads may race: the worst is a step more, or
/// one that comes later.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    /// A post was left, and no poll of the program has come since.
    is_left: AtomicBool,
    /// So many posts are transmitted at once.
    at_once: AtomicU32,
}

impl Bursts {
    /// Requests were posted: transmits them, now or with the next poll.
    pub(crate) fn posted(&self, worker: &Worker) {
        self.learn(worker);
        match self.at_once.load(Ordering::Relaxed) {
            0 => self.is_left.store(worker.publish_soon(), Ordering::Relaxed),
            posts => {
                self.at_once.store(posts - 1, Ordering::Relaxed);
                worker.publish();
            }
        }
    }

    /// The program polls, and takes a step.
    pub(crate) fn polls(&self, worker: &Worker) {
        self.learn(worker);
        self.is_left.store(false, Ordering::Relaxed);
    }

    /// Another thread than the program's has transmitted what was left.
    fn learn(&self, worker: &Worker) {
        if self.is_left.load(Ordering::Relaxed) && !worker.bell().is_rung() {
            self.is_left.store(false, Ordering::Relaxed);
            self.at_once.store(AT_ONCE, Ordering::Relaxed);
        }
    }
}

/// A wait of a millisecond for so many posts: a microsecond each.
const AT_ONCE: u32 = 1024;
