//! A fake node and a fake port log the order of their calls.

use super::*;
use crate::event::EventFd;
use crate::port::SlotToken;
use spanwire_base::{RxMeta, TxMeta};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Instant;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Call {
    RxBurst,
    HandlePacket(u8),
    HandleTimeout,
    TakeReady,
    SlotTake(bool),
    PollTransmit(bool),
    Commit,
    Release,
    Flush,
    Wait(Duration),
}
use Call::*;

type Log = Rc<RefCell<Vec<Call>>>;

/// A clock of the test's own: every reading takes a microsecond, and a port's sleep its timeout.
#[derive(Clone, Copy, Debug)]
struct TestClock<'a>(&'a Cell<Time>);

impl TestClock<'_> {
    fn pass(self, time: Dur) {
        self.0.set(self.0.get() + time);
    }
}

impl TimeSource for TestClock<'_> {
    fn now(&self) -> Time {
        self.pass(Dur::from_us(1));
        self.0.get()
    }

    fn of_monotonic_ns(&self, _: u64) -> Option<Time> {
        None
    }
}

/// A driver on `time`.
fn driver_on(time: &Cell<Time>, polling: Polling) -> Driver<TestClock<'_>> {
    Driver::new(TestClock(time), polling)
}

#[derive(Default)]
struct FakeNode {
    log: Log,
    /// Frames that it has to send.
    to_send: usize,
    ready: bool,
    deadline: Option<Time>,
    /// Each received frame queues one to send.
    echo: bool,
    seen: Vec<Time>,
}

impl Node for FakeNode {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        assert_eq!(port, PortId::HOST);
        assert!(meta.at <= now);
        self.seen.push(now);
        self.log.borrow_mut().push(HandlePacket(frame[0]));
        if self.echo {
            self.to_send += 1;
            self.ready = true;
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen.push(now);
        self.log.borrow_mut().push(HandleTimeout);
        self.deadline = None;
    }

    fn poll_transmit(&mut self, now: Time, _: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.seen.push(now);
        self.log.borrow_mut().push(PollTransmit(self.to_send > 0));
        self.to_send = self.to_send.checked_sub(1)?;
        frame[0] = 0xab;
        Some(TxMeta::whole(64))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }

    fn take_ready(&mut self) -> PortMask {
        self.log.borrow_mut().push(TakeReady);
        if std::mem::take(&mut self.ready) { PortMask::of(PortId::HOST) } else { PortMask::EMPTY }
    }
}

#[derive(Default)]
struct FakePort<'a> {
    log: Log,
    arrived: VecDeque<u8>,
    slots: usize,
    taken: usize,
    sent: usize,
    pending: usize,
    buffer: Vec<u8>,
    broken: bool,
    /// `wait` sleeps, in the time of this clock.
    sleeps: Option<TestClock<'a>>,
    /// The time that a flush takes.
    flush_takes: Dur,
    last_rx: Time,
    /// Readable when a frame has arrived.
    event: Option<EventFd>,
}

impl Port for FakePort<'_> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let now = clock.now();
        assert!(now >= self.last_rx, "now must never decrease");
        self.last_rx = now;
        self.log.borrow_mut().push(RxBurst);
        let count = max.min(self.arrived.len());
        for tag in self.arrived.drain(..count) {
            each(&[tag; 60], &RxMeta::whole(now));
        }
        count
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        self.log.borrow_mut().push(SlotTake(self.slots > 0));
        self.slots = self.slots.checked_sub(1)?;
        self.taken += 1;
        Some(SlotToken::new(7))
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        assert_eq!(slot.id(), 7);
        &mut self.buffer
    }

    fn slot_commit(&mut self, _: SlotToken, meta: TxMeta) {
        assert_eq!((self.buffer[0], meta.len), (0xab, 64));
        self.log.borrow_mut().push(Commit);
        self.taken -= 1;
        self.sent += 1;
    }

    fn slot_release(&mut self, _: SlotToken) {
        self.log.borrow_mut().push(Release);
        self.taken -= 1;
        self.slots += 1;
    }

    fn flush(&mut self, _: Time) -> io::Result<()> {
        self.log.borrow_mut().push(Flush);
        if let Some(clock) = self.sleeps {
            clock.pass(self.flush_takes);
        }
        if self.broken {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(())
    }

    fn frame_room(&self) -> usize {
        self.buffer.len()
    }

    fn tx_pending(&self) -> usize {
        self.pending
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.log.borrow_mut().push(Wait(timeout));
        if let Some(clock) = self.sleeps {
            clock.pass(Dur::from_ns(u64::try_from(timeout.as_nanos()).unwrap()));
        }
        Ok(())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }
}

fn pair<'a>() -> (FakeNode, FakePort<'a>, Log) {
    let log = Log::default();
    let node = FakeNode { log: Rc::clone(&log), ..FakeNode::default() };
    let port = FakePort {
        log: Rc::clone(&log),
        buffer: vec![0; 128],
        slots: 1_000,
        ..FakePort::default()
    };
    (node, port, log)
}

fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

fn run_step(node: &mut FakeNode, port: &mut FakePort<'_>, left: &mut PortMask) -> Progress {
    step(&at(10), node, port, left, Budget::default()).unwrap()
}

fn waits(log: &Log) -> Vec<Duration> {
    let waits = |call: &Call| match call {
        Wait(timeout) => Some(*timeout),
        _ => None,
    };
    log.borrow().iter().filter_map(waits).collect()
}

#[test]
fn step__keeps_the_order_of_the_node_contract() {
    let (mut node, mut port, log) = pair();
    port.arrived.extend([1, 2]);
    node.deadline = Some(at(10));
    node.ready = true;
    node.to_send = 1;
    let mut left = PortMask::EMPTY;
    let progress = run_step(&mut node, &mut port, &mut left);
    let expected = [
        RxBurst,
        HandlePacket(1),
        HandlePacket(2),
        HandleTimeout,
        TakeReady,
        SlotTake(true),
        PollTransmit(true),
        Commit,
        SlotTake(true),
        PollTransmit(false),
        Release,
        Flush,
    ];
    assert_eq!(*log.borrow(), expected);
    let done = Progress { rx: 2, tx: 1, timeout: true, port_full: false };
    assert_eq!(progress, done);
    assert!(left.is_empty());
    assert_eq!((port.taken, port.slots), (0, 999), "no slot leaks");
    assert!(node.seen.iter().all(|now| *now == at(10)), "one now a step");
}

/// A clock that advances by a microsecond with each reading.
#[derive(Default)]
struct Ticking(std::cell::Cell<u64>);

impl TimeSource for Ticking {
    fn now(&self) -> Time {
        self.0.set(self.0.get() + 1);
        at(self.0.get())
    }

    fn of_monotonic_ns(&self, _: u64) -> Option<Time> {
        None
    }
}

#[test]
fn step__dates_no_frame_before_its_arrival_and_no_departure_before_the_frames_before_it() {
    let (mut node, mut port, _log) = pair();
    port.arrived.extend([1, 2]);
    (node.ready, node.to_send) = (true, 1);
    let clock = Ticking::default();
    step(&clock, &mut node, &mut port, &mut PortMask::default(), Budget::default()).unwrap();
    // The port took the frames at 2 us, after the step had begun at 1 us.
    assert_eq!(port.last_rx, at(2));
    assert_eq!(node.seen, [at(2), at(2), at(3), at(3)]);
}

#[test]
fn step__responds_in_the_same_step() {
    let (mut node, mut port, _log) = pair();
    node.echo = true;
    port.arrived.extend([1, 2, 3]);
    let progress = run_step(&mut node, &mut port, &mut PortMask::default());
    assert_eq!((progress.rx, progress.tx), (3, 3));
}

#[test]
fn step__flushes_once_also_when_nothing_is_new() {
    let (mut node, mut port, log) = pair();
    let progress = run_step(&mut node, &mut port, &mut PortMask::default());
    assert!(progress.is_idle());
    assert_eq!(*log.borrow(), [RxBurst, TakeReady, Flush]);
}

#[test]
fn step__handles_a_timeout_at_its_deadline_and_not_before() {
    for (deadline, due) in [(at(9), true), (at(10), true), (at(11), false)] {
        let (mut node, mut port, log) = pair();
        node.deadline = Some(deadline);
        let progress = run_step(&mut node, &mut port, &mut PortMask::default());
        assert_eq!(progress.timeout, due, "{deadline:?}");
        assert_eq!(log.borrow().contains(&HandleTimeout), due);
    }
}

#[test]
fn step__polls_a_port_again_that_ran_out_of_slots() {
    let (mut node, mut port, _log) = pair();
    (node.ready, node.to_send, port.slots) = (true, 10, 4);
    let mut left = PortMask::EMPTY;
    assert_eq!(run_step(&mut node, &mut port, &mut left).tx, 4);
    assert!(left.has(PortId::HOST));
    assert_eq!(run_step(&mut node, &mut port, &mut left).tx, 0);
    // The node does not report ready again; the driver remembers it.
    port.slots = 100;
    assert_eq!(run_step(&mut node, &mut port, &mut left).tx, 6);
    assert!(left.is_empty());
    assert_eq!(port.sent, 10);
}

#[test]
fn step__polls_a_port_again_that_ran_out_of_slots_at_the_last_frame() {
    // Slots run out exactly at the node's last frame: only polling again detects that.
    let (mut node, mut port, log) = pair();
    (node.ready, node.to_send, port.slots) = (true, 1, 1);
    let mut left = PortMask::EMPTY;
    assert_eq!(run_step(&mut node, &mut port, &mut left).tx, 1);
    assert!(left.has(PortId::HOST));
    port.slots = 1;
    log.borrow_mut().clear();
    assert_eq!(run_step(&mut node, &mut port, &mut left).tx, 0);
    assert!(log.borrow().contains(&PollTransmit(false)));
    assert!(left.is_empty());
}

#[test]
fn step__sends_no_more_than_its_budget_before_it_receives_again() {
    let (mut node, mut port, log) = pair();
    (node.ready, node.to_send) = (true, 150);
    port.arrived.extend([0; 100]);
    let mut left = PortMask::EMPTY;
    let mut moved = Vec::new();
    for _ in 0..3 {
        let p = run_step(&mut node, &mut port, &mut left);
        moved.push((p.rx, p.tx));
    }
    assert_eq!(moved, [(64, 64), (36, 64), (0, 22)]);
    let flushes = log.borrow().iter().filter(|c| **c == Flush).count();
    assert_eq!(flushes, 3);
}

#[test]
fn step__reports_a_failed_port() {
    let (mut node, mut port, _log) = pair();
    port.broken = true;
    let mut left = PortMask::EMPTY;
    let result = step(&at(1), &mut node, &mut port, &mut left, Budget::default());
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
#[should_panic(expected = "halt")]
fn with_budget__rejects_zero() {
    let driver = Driver::new(Clock::start(), Polling::Busy);
    let _ = driver.with_budget(Budget { rx: 64, tx: 0 });
}

#[test]
fn run_until__calls_stop_before_the_first_step() {
    let (mut node, mut port, log) = pair();
    let mut driver = Driver::new(Clock::start(), Polling::Busy);
    driver.run_until(&mut node, &mut port, |_| true).unwrap();
    assert!(log.borrow().is_empty());
}

#[test]
fn turn__counts_how_long_the_port_was_full() {
    let (mut node, mut port, _log) = pair();
    (node.ready, node.to_send, port.slots) = (true, 3, 1);
    let time = Cell::default();
    let mut driver = driver_on(&time, Polling::Busy);
    let full: Vec<_> = (0..5)
        .map(|_| {
            let full = driver.counters().port_full;
            TestClock(&time).pass(Dur::from_ms(2));
            driver.turn(&mut node, &mut port).unwrap();
            full
        })
        .collect();
    // The first step finds the port full after one frame; each later one adds the time since. A
    // turn reads the clock four times.
    let turn = Dur::from_ms(2) + Dur::from_us(4);
    assert_eq!(full, [Dur::ZERO, Dur::ZERO, turn, turn * 2, turn * 3]);
    assert!(driver.counters().idle_steps >= 3, "waiting for the port is not work");
}

#[test]
fn run_until__busy_never_sleeps() {
    let (mut node, mut port, log) = pair();
    let mut driver = Driver::new(Clock::start(), Polling::Busy);
    let mut turns = 0;
    driver
        .run_until(&mut node, &mut port, |_| {
            turns += 1;
            turns > 1_000
        })
        .unwrap();
    assert!(waits(&log).is_empty());
    assert_eq!(driver.counters().steps, 1_000);
    assert_eq!(driver.counters().idle_steps, 1_000);
}

#[test]
fn run_until__sends_what_stop_posted_before_it_sleeps() {
    let (mut node, mut port, log) = pair();
    let mut driver = Driver::new(Clock::start(), Polling::Spin(Dur::ZERO));
    let mut turns = 0;
    driver
        .run_until(&mut node, &mut port, |node| {
            turns += 1;
            if turns == 2 {
                (node.ready, node.to_send) = (true, 1);
            }
            turns > 3
        })
        .unwrap();
    let shape: Vec<Call> =
        log.borrow().iter().filter(|call| matches!(call, Commit | Wait(_))).cloned().collect();
    // Idle (sleeps), posted (sends), idle again (sleeps).
    assert_eq!(shape, [Wait(SLEEP_MAX_STD), Commit, Wait(SLEEP_MAX_STD)]);
    assert_eq!(driver.counters().waits, 2);
    assert_eq!(driver.counters().tx_frames, 1);
}

const SLEEP_MAX_STD: Duration = Duration::from_millis(100);

#[test]
fn run_until__spins_for_the_configured_time_before_it_sleeps() {
    let (mut node, mut port, log) = pair();
    let time = Cell::default();
    let spin = Dur::from_ms(3);
    let mut driver = driver_on(&time, Polling::Spin(spin));
    let watch = Rc::clone(&log);
    driver.run_until(&mut node, &mut port, |_| !waits(&watch).is_empty()).unwrap();
    // An idle iteration reads the clock four times, the last one once more to sleep.
    assert_eq!(time.get().since(Time::ZERO), spin + Dur::from_us(5));
    assert_eq!(driver.counters().steps, 751, "it spun");
}

#[test]
fn run_until__adaptive_learns_whether_frames_come_soon() {
    // A frame comes so long after each idle step, whatever the driver does meanwhile.
    for (gap, sleeps) in [(Dur::from_us(8), false), (Dur::from_us(500), true)] {
        let (mut node, mut port, log) = pair();
        let time = Cell::default();
        port.sleeps = Some(TestClock(&time));
        let mut driver = driver_on(&time, Polling::Adaptive);
        let (mut next, mut frames) = (gap, 0);
        node.deadline = Some(Time::ZERO + gap);
        driver
            .run_until(&mut node, &mut port, |node| {
                // The node's timer stands for the frame.
                if node.deadline.is_none() {
                    frames += 1;
                    next = time.get().since(Time::ZERO) + gap;
                    node.deadline = Some(Time::ZERO + next);
                }
                frames > 500
            })
            .unwrap();
        let slept = waits(&log).len();
        assert_eq!(slept > 400, sleeps, "{gap:?}: {slept} sleeps of 500 waits");
        assert_eq!(slept < 100, !sleeps, "{gap:?}: {slept} sleeps of 500 waits");
    }
}

#[test]
fn run_until__progress_restarts_the_spin() {
    let (mut node, mut port, log) = pair();
    port.slots = usize::MAX;
    let time = Cell::default();
    let spin = Dur::from_ms(2);
    let mut driver = driver_on(&time, Polling::Spin(spin));
    // Frames to send in every step for five spin times: never idle, so never asleep.
    driver
        .run_until(&mut node, &mut port, |node| {
            (node.ready, node.to_send) = (true, 1);
            time.get().since(Time::ZERO) >= spin * 5
        })
        .unwrap();
    assert!(waits(&log).is_empty());
}

#[test]
fn run_until__does_not_miss_a_deadline_during_a_sleep() {
    let time = Cell::default();
    let (mut node, mut port, log) = pair();
    port.sleeps = Some(TestClock(&time));
    // The sleep must end at the deadline, although the step before it takes a part of the time.
    port.flush_takes = Dur::from_ms(2);
    let deadline = Time::ZERO + Dur::from_ms(20);
    node.deadline = Some(deadline);
    let mut driver = driver_on(&time, Polling::Spin(Dur::ZERO));
    driver.run_until(&mut node, &mut port, |node| node.deadline.is_none()).unwrap();
    let handled = *node.seen.last().expect("the timeout was handled");
    // It wakes at the deadline. Then the driver, the step, the port and the step read the clock.
    assert_eq!(handled, deadline + Dur::from_us(4));
    // Five readings before the sleep.
    assert_eq!(waits(&log), [Duration::from_micros(18_000 - 5)]);
    assert_eq!(driver.counters().timeouts, 1);
}

#[test]
fn sleep_for__is_the_time_to_the_deadline_within_its_bounds() {
    let us = Duration::from_micros;
    assert_eq!(sleep_for(at(0), None, 0), SLEEP_MAX_STD);
    assert_eq!(sleep_for(at(10), Some(at(25)), 0), us(15));
    assert_eq!(sleep_for(at(0), Some(at(10_000_000)), 0), SLEEP_MAX_STD);
    assert_eq!(sleep_for(at(10), Some(at(10)), 0), Duration::ZERO);
    assert_eq!(sleep_for(at(11), Some(at(10)), 0), Duration::ZERO);
    // Below a nanosecond it spins, because rounding up would be late.
    assert_eq!(sleep_for(at(0), Some(Time::from_ps(999)), 0), Duration::ZERO);
}

#[test]
fn sleep_for__is_short_while_frames_are_pending() {
    let us = Duration::from_micros;
    assert_eq!(sleep_for(at(0), None, 1), us(200));
    assert_eq!(sleep_for(at(0), Some(at(50)), 1), us(50));
}

#[test]
fn run_until_fd__a_frame_and_a_descriptor_end_a_sleep() {
    for readable in [0, 1] {
        let events = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        events[readable].signal();
        let (mut node, mut port, log) = pair();
        let [of_port, of_application] = events;
        port.event = Some(of_port);
        let mut driver = Driver::new(Clock::start(), Polling::Spin(Dur::ZERO));
        let (mut calls, begin) = (0, Instant::now());
        // Otherwise each of the sleeps lasts 100 ms.
        let stop = |_: &mut FakeNode| {
            calls += 1;
            assert!(begin.elapsed() < Duration::from_secs(120), "after {calls} steps");
            calls > 2000
        };
        let descriptors = [of_application.as_fd()];
        driver.run_until_fd(&mut node, &mut port, &descriptors, stop).unwrap();
        assert_eq!(waits(&log), [Duration::ZERO; 2000], "the port checks its state");
    }
}
