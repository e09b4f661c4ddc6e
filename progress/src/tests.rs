//! Threads of an engine in a small world: under the model checker loom all interleavings (with at
//! most two preemptions, or one with four threads), otherwise many of those that happen.

use crate::sync::{AtomicBool, AtomicU32, Condvar, Mutex, Ordering};
use crate::wait::PARK_AFTER;
use crate::{Bell, Door, Engine, Event, Polling, Progress, Signal, Step, Worker};
#[cfg(loom)]
use loom::thread;
use spanwire_base::{Awaited, Dur};
use std::sync::Arc;
#[cfg(not(loom))]
use std::thread;

/// The kernel: frames that have arrived, and descriptors.
#[derive(Default)]
struct Kernel {
    state: Mutex<KernelState>,
    changed: Condvar,
}

#[derive(Default)]
struct KernelState {
    frames: u32,
    ready: [bool; EVENTS],
    /// A thread that sleeps at the port with this event does not come back: it was stopped.
    stopped: Option<usize>,
    /// Wake-ups of the worker.
    worker_signals: u32,
    /// Naps that end by their time limit. The others have none: no wake-up may depend on a tick.
    ticks: u32,
}

const EVENTS: usize = 7;
const MOVED: usize = 5;
const ENDED: usize = 6;

struct KernelEvent(Arc<Kernel>, usize);

impl Kernel {
    fn change(&self, change: impl FnOnce(&mut KernelState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn sleep_until(&self, is_over: impl Fn(&KernelState) -> bool) {
        let mut state = self.state.lock().unwrap();
        while !is_over(&state) {
            state = self.changed.wait(state).unwrap();
        }
    }
}

impl Event for KernelEvent {
    fn signal(&self) {
        self.0.change(|state| {
            state.ready[self.1] = true;
            state.worker_signals += u32::from(self.1 == 0);
        });
    }

    fn clear(&self) {
        self.0.change(|state| state.ready[self.1] = false);
    }
}

impl Door for Arc<Kernel> {
    type Event = KernelEvent;

    fn is_here(&self) -> bool {
        true
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn sleep(&self, event: &KernelEvent, _until: u64) -> bool {
        let is_stopped = |state: &KernelState| state.stopped == Some(event.1);
        self.sleep_until(|s| !is_stopped(s) && (s.frames > 0 || s.ready[event.1]));
        self.state.lock().unwrap().ready[event.1] = false;
        true
    }

    fn work_ns(&self) -> u64 {
        0
    }

    fn slack_ns(&self) -> u64 {
        0
    }

    fn nap(&self, event: &KernelEvent, _until: u64) {
        self.sleep_until(|state| state.ready[event.1] || state.ticks > 0);
        let mut state = self.state.lock().unwrap();
        if !std::mem::take(&mut state.ready[event.1]) {
            state.ticks -= 1;
        }
    }
}

/// The state that threads and engine share: counters of messages, as the rings of a connection.
struct Connection {
    sent: AtomicU32,
    arrived: AtomicU32,
    receivable: Signal<KernelEvent>,
}

impl Connection {
    fn look(&self, count: u32) -> Option<()> {
        (self.arrived.load(Ordering::Acquire) >= count).then_some(())
    }
}

/// An engine whose connections receive the frames in turn, and the messages of each other.
struct Loop {
    kernel: Arc<Kernel>,
    connections: Vec<Arc<Connection>>,
    sent: Vec<u32>,
    /// Messages for the first connection that a call has posted.
    posted: u32,
    stop: Arc<AtomicBool>,
    ended: bool,
}

impl Engine for Loop {
    type Node = Self;

    fn node(&mut self) -> &mut Self {
        self
    }

    fn end(&mut self, _why: &str) {}

    fn step(&mut self, rung: bool, _quiet: bool) -> Step {
        let mut arrived = vec![0; self.connections.len()];
        arrived[0] = std::mem::take(&mut self.posted);
        {
            let mut state = self.kernel.state.lock().unwrap();
            // One frame for each connection in turn.
            while state.frames > 0 {
                state.frames -= 1;
                arrived[state.frames as usize % self.connections.len()] += 1;
            }
        }
        if rung {
            for (from, connection) in self.connections.iter().enumerate() {
                let sent = connection.sent.load(Ordering::Acquire);
                let to = (from + 1) % self.connections.len();
                arrived[to] += sent - std::mem::replace(&mut self.sent[from], sent);
            }
            self.ended = self.stop.load(Ordering::Acquire);
        }
        let progress = arrived.iter().any(|n| *n > 0);
        for (connection, n) in self.connections.iter().zip(arrived) {
            if n > 0 {
                connection.arrived.fetch_add(n, Ordering::AcqRel);
                connection.receivable.raise();
            }
        }
        if self.ended {
            return Step::Ended(None);
        }
        Step::Done { progress, wakes_at: u64::MAX, awaits: Awaited::Anything }
    }
}

struct World {
    kernel: Arc<Kernel>,
    worker: Worker<Loop, Arc<Kernel>>,
    connections: Vec<Arc<Connection>>,
    stop: Arc<AtomicBool>,
}

impl World {
    fn new(progress: Progress, connections: usize) -> Arc<Self> {
        let kernel = Arc::new(Kernel::default());
        let event = |number| KernelEvent(kernel.clone(), number);
        let bell = Arc::new(Bell::new(progress, event(0), [event(1), event(2)]));
        let connections: Vec<_> = (0..connections)
            .map(|number| {
                let receivable = Signal::new(event(3 + number), Some(bell.clone()));
                let (sent, arrived) = (AtomicU32::new(0), AtomicU32::new(0));
                Arc::new(Connection { sent, arrived, receivable })
            })
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let engine = Loop {
            kernel: kernel.clone(),
            connections: connections.clone(),
            sent: vec![0; connections.len()],
            posted: 0,
            stop: stop.clone(),
            ended: false,
        };
        let events = [event(MOVED), event(ENDED)];
        let worker = Worker::new((bell, events), engine, kernel.clone(), Polling::Spin(Dur::ZERO));
        Arc::new(Self { kernel, worker, connections, stop })
    }

    fn frame(&self) {
        self.kernel.change(|state| state.frames += 1);
    }

    fn send(&self, connection: usize) {
        self.connections[connection].sent.fetch_add(1, Ordering::AcqRel);
        self.worker.publish();
    }

    fn recv(&self, connection: usize, count: u32) {
        let connection = &self.connections[connection];
        let came = self.worker.wait(&connection.receivable, None, || connection.look(count));
        assert!(came.is_some());
    }

    /// Hands a message over, as the worker of another engine: it takes no turn of this one.
    fn hand_over(&self, connection: usize) {
        self.connections[connection].sent.fetch_add(1, Ordering::AcqRel);
        self.worker.bell().ring();
        self.worker.bell().wake();
    }

    /// Posts a message by a call.
    fn post(&self) {
        self.worker.submit(|engine| engine.posted += 1).expect("it has not ended");
    }

    /// Takes one of the messages that arrive for the first connection, as a completion.
    fn take(&self) {
        let took = self.worker.wait_for(None, |engine| {
            let arrived = &engine.connections[0].arrived;
            let has_one = arrived.load(Ordering::Acquire) > 0;
            has_one.then(|| arrived.fetch_sub(1, Ordering::AcqRel))
        });
        took.expect("it has not ended");
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.worker.publish();
    }
}

fn start(world: &Arc<World>, work: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

fn every_way(run: impl Fn() + Sync + Send + 'static) {
    every_way_with(2, run);
}

/// As [`every_way`], with another number of preemptions.
fn every_way_with(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(run);
    }
    #[cfg(not(loom))]
    for _ in 0..1000 * preemptions {
        run();
    }
}

#[test]
fn wait__the_only_thread_receives_what_arrives() {
    every_way(|| {
        let world = World::new(Progress::Inline, 1);
        let network = start(&world, World::frame);
        world.recv(0, 1);
        network.join().unwrap();
    });
}

#[test]
fn wait__a_leader_that_receives_wakes_no_worker() {
    every_way(|| {
        let world = World::new(Progress::Shared, 1);
        let worker = start(&world, |world| world.worker.work());
        let network = start(&world, World::frame);
        world.recv(0, 1);
        assert_eq!(world.kernel.state.lock().unwrap().worker_signals, 0);
        network.join().unwrap();
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn wait__a_sleeping_leader_is_woken_by_the_turn_of_another_thread() {
    every_way(|| {
        let world = World::new(Progress::Inline, 2);
        let sender = start(&world, |world| world.send(0));
        world.recv(1, 1);
        sender.join().unwrap();
    });
}

#[test]
fn wake__a_message_handed_over_is_received_by_whoever_leads() {
    every_way(|| {
        let world = World::new(Progress::Inline, 2);
        let other = start(&world, |world| world.hand_over(0));
        world.recv(1, 1);
        other.join().unwrap();
    });
    every_way(|| {
        let world = World::new(Progress::Worker, 2);
        let worker = start(&world, |world| world.worker.work());
        world.hand_over(0);
        world.recv(1, 1);
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn publish__of_two_threads_reaches_the_engine_from_both() {
    every_way(|| {
        let world = World::new(Progress::Shared, 2);
        let other = start(&world, |world| world.send(0));
        world.send(1);
        other.join().unwrap();
        let arrived = |n: usize| world.connections[n].arrived.load(Ordering::Acquire);
        assert_eq!([arrived(0), arrived(1)], [1, 1], "nobody waits, and nothing is left");
    });
}

#[test]
fn wait__the_worker_serves_the_threads_that_a_leader_leaves_behind() {
    every_way(|| {
        let world = World::new(Progress::Shared, 2);
        let worker = start(&world, |world| world.worker.work());
        let other = start(&world, |world| world.recv(1, 1));
        world.kernel.change(|state| state.frames += 2);
        world.recv(0, 1);
        other.join().unwrap();
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn work__a_worker_that_always_leads_answers_and_ends() {
    every_way(|| {
        let world = World::new(Progress::Worker, 2);
        let worker = start(&world, |world| world.worker.work());
        world.send(0);
        world.recv(1, 1);
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn wait__the_lead_comes_back_from_the_worker() {
    every_way(|| {
        let world = World::new(Progress::Shared, 2);
        let worker = start(&world, |world| world.worker.work());
        world.send(0);
        world.recv(1, 1);
        world.send(0);
        world.recv(1, 2);
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn work__takes_the_lead_from_a_stopped_thread_which_keeps_its_own_wake_up() {
    every_way_with(1, || {
        let world = World::new(Progress::Shared, 2);
        world.kernel.change(|state| (state.stopped, state.ticks) = (Some(1), 1 + PARK_AFTER));
        let worker = start(&world, |world| world.worker.work());
        let stopped = start(&world, |world| world.recv(0, 1));
        let next = start(&world, |world| world.recv(1, 1));
        world.kernel.change(|state| state.frames += 2);
        world.kernel.change(|state| state.stopped = None);
        for thread in [stopped, next] {
            thread.join().unwrap();
        }
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn submit__of_two_threads_is_transmitted_without_a_worker() {
    every_way(|| {
        let world = World::new(Progress::Inline, 1);
        let other = start(&world, World::post);
        world.post();
        other.join().unwrap();
        let arrived = world.connections[0].arrived.load(Ordering::Acquire);
        assert_eq!(arrived, 2, "nobody waits, and nothing is left");
    });
}

#[test]
fn submit__wakes_a_leader_that_sleeps() {
    every_way(|| {
        let world = World::new(Progress::Inline, 1);
        let poster = start(&world, World::post);
        world.recv(0, 1);
        poster.join().unwrap();
    });
}

#[test]
fn submit__beside_a_worker_that_always_leads() {
    every_way_with(1, || {
        let world = World::new(Progress::Worker, 1);
        let worker = start(&world, |world| world.worker.work());
        let other = start(&world, World::post);
        world.post();
        world.recv(0, 2);
        other.join().unwrap();
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn wait_for__two_threads_poll_and_nothing_is_lost() {
    every_way_with(1, || {
        let world = World::new(Progress::Shared, 1);
        let worker = start(&world, |world| world.worker.work());
        let other = start(&world, World::take);
        world.post();
        world.frame();
        world.take();
        other.join().unwrap();
        world.end();
        worker.join().unwrap();
        assert_eq!(world.worker.with(|_| ()), None);
        assert_eq!(world.worker.wait_for(None, |_| Some(())), None);
    });
}

#[test]
fn with__beside_a_turn_leaves_nothing_that_was_rung_for() {
    every_way(|| {
        let world = World::new(Progress::Inline, 2);
        let caller = start(&world, |world| {
            world.worker.with(|engine| assert_eq!(engine.posted, 0)).expect("it has not ended");
        });
        world.send(0);
        caller.join().unwrap();
        assert_eq!(world.connections[1].arrived.load(Ordering::Acquire), 1);
    });
}

#[cfg(not(loom))]
#[test]
fn with__a_panic_under_the_lock_ends_it_for_all_and_strands_nobody() {
    let world = World::new(Progress::Shared, 1);
    let worker = start(&world, |world| world.worker.work());
    let follower = start(&world, |world| {
        assert_eq!(world.worker.wait_for(None, |_| None::<()>), None);
    });
    let panics = start(&world, |world| {
        world.worker.with(|_| panic!("as told"));
    });
    assert!(panics.join().is_err());
    follower.join().unwrap();
    worker.join().unwrap();
    assert_eq!(world.worker.with(|_| ()), None);
    assert_eq!(world.worker.why(), Some("one of its threads panicked"));
}

#[cfg(not(loom))]
#[test]
fn wait__a_panic_of_the_leader_outside_the_lock_stops_nobody() {
    let world = World::new(Progress::Inline, 1);
    let mut looks = 0;
    let leader = start(&world, move |world| {
        world.worker.wait(world.worker.moved(), None, || {
            looks += 1;
            assert!(looks < 3, "as told");
            None::<()>
        });
    });
    world.frame();
    assert!(leader.join().is_err());
    world.frame();
    world.recv(0, 2);
}
