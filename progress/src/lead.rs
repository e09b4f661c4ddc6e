//! The thread that leads: it steps the engine and sleeps at the port.

use crate::Event;
use crate::bell::{Bell, Sleeper, Ticket};
use crate::engine::{Door, Engine, Step};
use crate::signal::Signal;
use crate::spin::Wait;
use crate::sync::Ordering;
use crate::worker::Worker;

/// A leader while it waits.
pub(crate) struct Waiter<'a, D: Door> {
    /// Its condition; none for the worker.
    pub(crate) signal: Option<&'a Signal<D::Event>>,
    /// How long, in ns of the engine's clock.
    pub(crate) until: u64,
}

/// Looks whether the condition of a leader holds.
pub(crate) type Look<'a, R> = &'a mut dyn FnMut() -> Option<R>;

/// Why a leader has stopped.
pub(crate) enum Stop<R> {
    Found(R),
    Expired,
    /// Another thread has taken the lead.
    Lost,
    Ended,
}

impl<T: Engine, D: Door> Worker<T, D>
where
    D::Event: Event,
{
    /// Drives the engine as the leader, and gives the lead up, also if `look` panics.
    pub(crate) fn lead<R>(
        &self,
        ticket: Ticket,
        waiter: &Waiter<'_, D>,
        look: Look<'_, R>,
    ) -> Stop<R> {
        let leading = Leading(&self.bell, ticket);
        let stop = self.drive(ticket, waiter, look);
        drop(leading);
        // A thread that found the lock taken relies on the one that had it.
        if self.bell.is_rung() {
            self.turn();
        }
        stop
    }

    fn drive<R>(&self, ticket: Ticket, waiter: &Waiter<'_, D>, look: Look<'_, R>) -> Stop<R> {
        let sleeper = self.bell.sleeper(ticket);
        let mut wait = self.begin_wait();
        let mut idle_since = None;
        let mut is_tired = wait.spin_ns() == 0;
        let (mut quiet, mut seen) = (false, 0);
        loop {
            self.let_callers_in();
            // A tired thread sleeps unless something happens in this round.
            if is_tired {
                seen = waiter.arm();
            }
            // A look after the signal was armed.
            if let Some(found) = look() {
                self.note_wait(wait, idle_since);
                waiter.disarm();
                return Stop::Found(found);
            }
            let stepped = self.step(quiet, |wakes_at| {
                if is_tired {
                    sleeper.announce(wakes_at.min(waiter.until));
                }
            });
            quiet = false;
            let (progress, wakes_at) = match stepped {
                Some(Step::Done { progress, wakes_at, .. }) => {
                    (progress, wakes_at.min(waiter.until))
                }
                Some(Step::Ended(_)) => {
                    waiter.disarm();
                    return Stop::Ended;
                }
                None => {
                    // Another thread steps it, which does not last.
                    relax();
                    continue;
                }
            };
            if progress {
                self.note_wait(wait, idle_since);
                wait = self.begin_wait();
                (idle_since, is_tired) = (None, wait.spin_ns() == 0);
            } else {
                let since = *idle_since.get_or_insert_with(|| self.door.now_ns());
                if is_tired {
                    quiet = !self.sleep((ticket, sleeper), (waiter, seen), (wait, wakes_at));
                } else {
                    let now = self.door.now_ns();
                    is_tired = now.saturating_sub(since) >= wait.spin_ns();
                    self.spin(wait, now);
                }
            }
            waiter.disarm();
            if !self.bell.holds(ticket) {
                return Stop::Lost;
            }
            if !progress && self.door.now_ns() >= waiter.until {
                return look().map_or(Stop::Expired, Stop::Found);
            }
        }
    }

    /// Gives threads that wait for the lock the time to take it, which a leader that spins has
    /// nearly always.
    fn let_callers_in(&self) {
        let mut rounds = if cfg!(loom) { 0 } else { CALLER_ROUNDS };
        while rounds > 0 && self.callers.load(Ordering::Relaxed) > 0 {
            relax();
            rounds -= 1;
        }
    }

    /// A round of a spin. Now and then it lets another runnable thread have the core, which may be
    /// the other end; not for a while after one has kept it for long, if it sleeps later anyway.
    fn spin(&self, wait: Wait, now: u64) {
        let yields_at = if cfg!(loom) { 0 } else { self.yields_at.load(Ordering::Relaxed) };
        if now < yields_at {
            std::hint::spin_loop();
            return;
        }
        relax();
        let back = self.door.now_ns();
        let is_long = back.saturating_sub(now) > LONG_YIELD_NS && wait.spin_ns() < u64::MAX;
        let pause = if is_long { KEEP_NS } else { YIELD_EVERY_NS };
        self.yields_at.store(back + pause, Ordering::Relaxed);
    }

    fn note_wait(&self, wait: Wait, idle_since: Option<u64>) {
        if let Some(since) = idle_since {
            self.spinner.ended(wait, self.door.now_ns().saturating_sub(since));
        }
    }

    /// Sleeps as the leader until `until`, unless there is a reason to stay awake. False if the
    /// sleep ended without a frame or a wake-up.
    fn sleep(
        &self,
        (ticket, sleeper): (Ticket, &Sleeper<D::Event>),
        (waiter, seen): (&Waiter<'_, D>, u32),
        (wait, until): (Wait, u64),
    ) -> bool {
        let left = until.saturating_sub(self.door.now_ns());
        let is_near = wait.spins_for(left);
        let is_due = is_near
            || self.bell.is_rung()
            || !self.bell.holds(ticket)
            || waiter.is_raised(seen)
            || self.has_ended();
        if is_due {
            sleeper.awake();
            if is_near {
                relax();
            }
            return true;
        }
        let began = self.spinner.measures_sleep().then(|| self.door.work_ns());
        let ready = self.door.sleep(&sleeper.event, until);
        sleeper.awake();
        if let Some(began) = began {
            let late = self.door.now_ns().checked_sub(until.saturating_add(self.door.slack_ns()));
            self.spinner.slept(late, self.door.work_ns().saturating_sub(began));
        }
        ready
    }
}

impl<D: Door> Waiter<'_, D>
where
    D::Event: Event,
{
    /// Returns how often its signal was raised before.
    fn arm(&self) -> u32 {
        self.signal.map_or(0, Signal::arm_leader)
    }

    fn disarm(&self) {
        if let Some(signal) = self.signal {
            signal.disarm_leader();
        }
    }

    fn is_raised(&self, seen: u32) -> bool {
        self.signal.is_some_and(|signal| signal.raises() != seen)
    }
}

/// The lead of a thread, which is given up when this is dropped.
struct Leading<'a, E: Event>(&'a Bell<E>, Ticket);

impl<E: Event> Drop for Leading<'_, E> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

/// Lets another runnable thread have the core: the one with the lock, or the other end.
fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// How often a leader yields to a thread that waits for the lock, and was perhaps stopped.
const CALLER_ROUNDS: u32 = 100;

/// A leader that spins yields its core this often: a system call of 0.2 us.
const YIELD_EVERY_NS: u64 = 5_000;

/// The other end answers sooner. A thread that keeps the core for longer computes.
const LONG_YIELD_NS: u64 = 200_000;

/// So long a leader keeps its core after such a yield: one wait in some thousands is long then.
const KEEP_NS: u64 = 100_000_000;
