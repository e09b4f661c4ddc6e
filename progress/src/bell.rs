//! The state that threads of an engine share outside its lock: who leads, who sleeps, and whether
//! something was published for the engine.

use crate::Event;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Which threads drive the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// Application threads only, in their calls; there is no worker thread. Nothing happens between
    /// calls: for event loops and for one thread a core.
    Inline,
    /// The application thread that waits; the worker thread if none does.
    #[default]
    Shared,
    /// The worker thread only: for applications whose threads have other cores.
    Worker,
}

/// The leader, the sleeping threads, and whether something was published for the engine.
#[derive(Debug)]
pub struct Bell<E> {
    progress: Progress,
    /// Something was published that the engine has not seen.
    rung: AtomicBool,
    /// The leader (low two bits), and how often the lead was taken.
    lead: AtomicU32,
    /// Followers, and one for all tasks and users of descriptors.
    waiting: AtomicU32,
    /// There are tasks or users of descriptors.
    has_tasks: AtomicBool,
    pub(crate) worker: Sleeper<E>,
    /// Those of application threads that lead. A thread that was stopped and has lost the lead
    /// keeps its own until it is back, so it takes no wake-up of the next one.
    applications: [Sleeper<E>; APPLICATIONS],
    /// The worker sleeps until it is woken, and not for a tick.
    parked: AtomicBool,
}

/// The thread that waits at the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    Vacant,
    Worker,
    /// With the sleeper of that number.
    Application(u8),
}

/// The lead of a thread: it is lost if another thread takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u32);

/// A thread that sleeps at the port, and its descriptor.
#[derive(Debug)]
pub(crate) struct Sleeper<E> {
    /// When its sleep ends; [`AWAKE`] if it does not sleep.
    wakes_at: AtomicU64,
    /// A thread has it; only used for those of applications.
    is_taken: AtomicBool,
    pub(crate) event: E,
}

impl<E: Event> Bell<E> {
    /// A bell without a leader. The descriptors are those of the worker and of application threads
    /// that lead.
    pub fn new(progress: Progress, worker: E, applications: [E; APPLICATIONS]) -> Self {
        Self {
            progress,
            rung: AtomicBool::new(false),
            lead: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            has_tasks: AtomicBool::new(false),
            worker: Sleeper::new(worker),
            applications: applications.map(Sleeper::new),
            parked: AtomicBool::new(false),
        }
    }

    /// Which threads drive the engine.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Announces that something was published for the engine: the next turn sees it. The caller
    /// goes on with [`Worker::turn`](crate::Worker::turn), or with [`Bell::wake`] if it takes none.
    pub fn ring(&self) {
        // A swap: what an earlier ringer published must be visible too to the turn that sees this
        // ring only.
        self.rung.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// True once after a ring. What was published before that ring is visible afterwards.
    pub fn take_ring(&self) -> bool {
        // Not a swap each time: most turns find nothing.
        self.is_rung() && self.rung.swap(false, Ordering::AcqRel)
    }

    /// True if something was published that the engine has not seen.
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Wakes the threads that sleep at the port.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        for sleeper in self.sleepers() {
            sleeper.wake();
        }
    }

    /// Wakes the application threads that sleep at the port. The worker has no condition: if it
    /// leads, it is awake now, and else it naps on.
    pub(crate) fn wake_applications(&self) {
        fence(Ordering::SeqCst);
        for sleeper in &self.applications {
            sleeper.wake();
        }
    }

    /// Wakes the threads whose sleep would last longer than until `at`.
    pub(crate) fn wake_before(&self, at: u64) {
        for sleeper in self.sleepers() {
            sleeper.wake_before(at);
        }
    }

    /// The sleeper of a leader.
    pub(crate) fn sleeper(&self, ticket: Ticket) -> &Sleeper<E> {
        match ticket.leader() {
            Lead::Application(number) => &self.applications[usize::from(number)],
            Lead::Worker | Lead::Vacant => &self.worker,
        }
    }

    fn sleepers(&self) -> impl Iterator<Item = &Sleeper<E>> {
        [&self.worker].into_iter().chain(&self.applications)
    }

    /// Notes that a task or the user of a descriptor waits: from now on a thread always leads.
    pub(crate) fn note_task(&self) {
        if !self.has_tasks.load(Ordering::Relaxed) && !self.has_tasks.swap(true, Ordering::AcqRel) {
            self.enter();
        }
    }

    /// Counts the caller among those that wait while another thread leads. If none leads, the
    /// worker will.
    pub(crate) fn enter(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.leader() == Lead::Vacant {
            self.worker.wake();
        }
    }

    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn leader(&self) -> Lead {
        leader_of(self.lead.load(Ordering::Acquire))
    }

    /// The present lead, to tell later whether it has changed.
    pub(crate) fn lead(&self) -> Ticket {
        Ticket(self.lead.load(Ordering::Acquire))
    }

    pub(crate) fn holds(&self, ticket: Ticket) -> bool {
        self.lead() == ticket
    }

    /// Takes the lead for an application thread: if it is vacant, or from the worker unless other
    /// threads or tasks wait. They would need the worker again as soon as the caller has what it
    /// waits for. None too if stopped threads have all sleepers.
    pub(crate) fn try_lead(&self) -> Option<Ticket> {
        if self.progress == Progress::Worker {
            return None;
        }
        let found = self.lead.load(Ordering::Acquire);
        let from = leader_of(found);
        match from {
            Lead::Application(_) => return None,
            Lead::Worker if self.has_waiting() => return None,
            Lead::Worker | Lead::Vacant => {}
        }
        let (number, sleeper) = (0..).zip(&self.applications).find(|(_, s)| s.take())?;
        let Some(ticket) = self.replace(found, Lead::Application(number)) else {
            sleeper.give_back();
            return None;
        };
        if from == Lead::Worker {
            // Otherwise the next frame would wake both.
            self.wake_worker();
        }
        Some(ticket)
    }

    /// Takes the lead for the worker, if it is still `found`.
    pub(crate) fn lead_as_worker(&self, found: Ticket) -> Option<Ticket> {
        self.replace(found.0, Lead::Worker)
    }

    /// Gives the lead up, if it was not lost. The worker follows at once if another thread waits.
    pub(crate) fn release(&self, ticket: Ticket) {
        self.sleeper(ticket).give_back();
        if self.replace(ticket.0, Lead::Vacant).is_none() {
            return;
        }
        fence(Ordering::SeqCst);
        if self.has_waiting() || self.parked.load(Ordering::Relaxed) {
            self.worker.wake();
        }
    }

    /// The worker is about to sleep until it is woken (true), or for a tick.
    pub(crate) fn set_parked(&self, parked: bool) {
        self.parked.store(parked, Ordering::Relaxed);
    }

    fn wake_worker(&self) {
        fence(Ordering::SeqCst);
        self.worker.wake();
    }

    fn replace(&self, found: u32, leader: Lead) -> Option<Ticket> {
        let leader = match leader {
            Lead::Vacant => 0,
            Lead::Worker => WORKER,
            Lead::Application(number) => APPLICATION + u32::from(number),
        };
        let next = (found & !LEADER).wrapping_add(LEADER + 1) | leader;
        let swapped = self.lead.compare_exchange(found, next, Ordering::AcqRel, Ordering::Relaxed);
        swapped.ok().map(|_| Ticket(next))
    }
}

impl Ticket {
    pub(crate) fn leader(self) -> Lead {
        leader_of(self.0)
    }
}

impl<E: Event> Sleeper<E> {
    fn new(event: E) -> Self {
        Self { wakes_at: AtomicU64::new(AWAKE), is_taken: AtomicBool::new(false), event }
    }

    /// Takes it for a thread, if no other has it.
    fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    fn give_back(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    /// Ends its sleep. The caller has stored the reason before, and then a fence.
    pub(crate) fn wake(&self) {
        if self.is_asleep() {
            self.event.signal();
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.wakes_at.load(Ordering::Relaxed) != AWAKE
    }

    /// Ends its sleep if it would last longer than until `at`.
    fn wake_before(&self, at: u64) {
        let wakes_at = self.wakes_at.load(Ordering::Relaxed);
        if wakes_at != AWAKE && at < wakes_at {
            self.event.signal();
        }
    }

    /// Announces a sleep that ends at `at`. The caller then looks for reasons to stay awake, sleeps
    /// or not, and calls [`Sleeper::awake`].
    pub(crate) fn announce(&self, at: u64) {
        self.wakes_at.store(at.min(AWAKE - 1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends a sleep that was announced. A signal that came too late for it ends the next one.
    pub(crate) fn awake(&self) {
        self.wakes_at.store(AWAKE, Ordering::Relaxed);
    }
}

fn leader_of(lead: u32) -> Lead {
    match lead & LEADER {
        0 => Lead::Vacant,
        WORKER => Lead::Worker,
        APPLICATION => Lead::Application(0),
        _ => Lead::Application(1),
    }
}

/// How many application threads can sleep at the port: one that leads, and one that was stopped.
pub const APPLICATIONS: usize = 2;

const AWAKE: u64 = u64::MAX;

/// The bits of [`Bell::lead`] that name the leader.
const LEADER: u32 = 3;
const WORKER: u32 = 1;
/// And those after it.
const APPLICATION: u32 = 2;
