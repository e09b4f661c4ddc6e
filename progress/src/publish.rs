//! When the engine learns what was published for it: in the caller's step, or in a later one.

use crate::Event;
use crate::bell::{Lead, Progress};
use crate::engine::{Door, Engine};
use crate::sync::Ordering;
use crate::worker::Worker;

impl<T: Engine, D: Door> Worker<T, D>
where
    D::Event: Event,
{
    /// Tells the engine what the caller has published: in a step of the caller's thread, or of the
    /// thread that steps it just now. With [`Progress::Worker`] the worker is woken.
    pub fn publish(&self) {
        if self.is_forked() {
            return;
        }
        self.bell.ring();
        match self.bell.progress() {
            Progress::Worker => self.bell.wake(),
            Progress::Inline | Progress::Shared => {
                self.turn();
            }
        }
    }

    /// As [`Worker::publish`], for a thread that will publish more, or wait, in a moment. The step
    /// is left to that call, so that several messages share it, unless another thread leads or the
    /// last step was long ago.
    pub fn publish_soon(&self) {
        if self.recent_step().is_some() {
            self.bell.ring();
        } else {
            self.publish();
        }
    }

    /// When the last step was, in ns of [`Door::now_ns`], if application threads step the engine
    /// and it was in the last 20 us.
    pub fn recent_step(&self) -> Option<u64> {
        let is_left_to_callers =
            self.bell.progress() != Progress::Worker && self.bell.leader() == Lead::Vacant;
        let stepped_at = self.stepped_at.load(Ordering::Relaxed);
        (is_left_to_callers && self.door.now_ns().saturating_sub(stepped_at) < REFRESH_NS)
            .then_some(stepped_at)
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
}

/// A thread that always finds data steps the engine this often, in ns: before a receive ring of
/// 2048 frames is full at 25 Gbit/s and 1500 bytes, ten times over.
const REFRESH_NS: u64 = 20_000;
