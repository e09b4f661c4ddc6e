//! Waiting: by an application thread that leads or follows, and the worker that stands in.

use crate::Event;
use crate::bell::{Lead, Progress, Ticket};
use crate::engine::{Door, Engine};
use crate::lead::{Stop, Waiter};
use crate::signal::{Signal, Waited};
use crate::worker::Worker;
use std::time::{Duration, Instant};

impl<T: Engine, D: Door> Worker<T, D>
where
    D::Event: Event,
{
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
            if self.is_forked() {
                return None;
            }
            let is_over = deadline.is_some_and(|at| at <= Instant::now());
            if is_over {
                // Even without time to wait: without a worker no other step may be taken.
                if self.bell.progress() != Progress::Worker {
                    self.turn();
                }
                return look();
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
            let waiter = Waiter { signal: Some(signal), until };
            if let Stop::Found(found) = self.lead(ticket, &waiter, &mut look) {
                return Some(found);
            }
        }
    }

    /// As [`Worker::turn`], for a thread that polls and never waits. If the worker's thread sleeps
    /// at the port it gives up the lead, or each frame would wake both, and it stands in again once
    /// no thread polls.
    pub fn turn_of_poller(&self) -> bool {
        if self.bell.leader() == Lead::Worker
            && let Some(ticket) = self.bell.try_lead()
        {
            self.bell.release(ticket);
        }
        self.turn()
    }

    /// The worker's thread: leads when it must, until the engine has ended.
    pub fn work(&self) {
        let (mut seen, mut ticks, mut stands_in) = (None, 0, false);
        while !self.has_ended() {
            let found = self.bell.lead();
            ticks = if seen == Some(found) { ticks + 1 } else { 0 };
            let is_due = self.bell.progress() == Progress::Worker
                || self.bell.has_waiting()
                || ticks > 0 && stands_in;
            match found.leader() {
                Lead::Vacant if is_due => {
                    if let Some(ticket) = self.bell.lead_as_worker(found) {
                        self.lead_as_worker(ticket);
                    }
                }
                Lead::Application(_) if ticks >= PARK_AFTER => self.park(found),
                Lead::Vacant | Lead::Application(_) => {
                    let is_due = || self.bell.leader() == Lead::Vacant && self.bell.has_waiting();
                    self.nap(TICK_NS, is_due);
                    // Acknowledgements and timers of applications that compute. Those that step the
                    // engine themselves are left alone.
                    stands_in = self.since_step() >= TICK_NS;
                    if stands_in {
                        self.turn();
                    }
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
        // Without a worker no thread wakes a follower when the leader leaves.
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

    /// Sleeps while an application thread leads, until it gives up the lead; then a stopped thread
    /// is looked for.
    fn park(&self, found: Ticket) {
        self.bell.set_parked(true);
        self.nap(PARK_NS, || !self.bell.holds(found));
        self.bell.set_parked(false);
        let is_asleep = self.bell.sleeper(found).is_asleep();
        if self.bell.holds(found) && self.turn() && is_asleep && self.bell.holds(found) {
            // There was work at the port, and the thread that sleeps there was not woken by it: it
            // was stopped. The worker leads from now on.
            if let Some(ticket) = self.bell.lead_as_worker(found) {
                self.lead_as_worker(ticket);
            }
        }
    }

    fn lead_as_worker(&self, ticket: Ticket) {
        let waiter = Waiter { signal: None, until: u64::MAX };
        self.lead(ticket, &waiter, &mut || None::<()>);
    }

    fn nap(&self, within: u64, is_due: impl FnOnce() -> bool) {
        let worker = &self.bell.worker;
        let until = self.door.now_ns().saturating_add(within);
        // No earlier deadline ends it: what is due then is done by the thread that found out, or
        // after the next tick.
        worker.announce(0);
        let sleeps = !is_due() && !self.has_ended();
        if sleeps {
            self.door.nap(&worker.event, until);
        }
        worker.awake();
    }

    fn to_ns(&self, at: Instant) -> u64 {
        let left = at.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.door.now_ns().saturating_add(left)
    }
}

/// How late timers and acknowledgements may be while all applications compute: at most two of
/// these pass until the worker leads.
const TICK_NS: u64 = 500_000;

/// Ticks of one application's lead after which the worker sleeps until it ends. Shorter ones would
/// cost the thread that leads a wake-up of the worker each.
pub(crate) const PARK_AFTER: u32 = if cfg!(loom) { 1 } else { 20 };

/// How often the worker looks for an application thread that leads and was stopped.
const PARK_NS: u64 = 100_000_000;

/// How often a follower without a worker looks whether it can lead.
const SLICE: Duration = Duration::from_millis(1);
