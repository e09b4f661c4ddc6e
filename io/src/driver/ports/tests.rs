//! A hub over pipes: frames received on one port leave through all others.

use super::super::Polling;
use super::*;
use crate::clock::Clock;
use crate::pipe::{PipeConfig, PipePort, pipe};
use crate::port::reserve;
use crate::port::{SlotToken, slots_of_inner};
use spanwire_base::{RxMeta, TxMeta};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

struct Hub {
    queues: Vec<VecDeque<Vec<u8>>>,
    ready: PortMask,
    deadline: Option<Time>,
    timeouts: Vec<Time>,
    calls: Vec<String>,
}

impl Hub {
    fn new(ports: usize) -> Self {
        Self {
            queues: vec![VecDeque::new(); ports],
            ready: PortMask::EMPTY,
            deadline: None,
            timeouts: Vec::new(),
            calls: Vec::new(),
        }
    }
}

impl Node for Hub {
    fn handle_packet(&mut self, _: Time, port: PortId, frame: &[u8], _: &RxMeta) {
        self.calls.push(format!("rx {}", port.index()));
        for (n, queue) in self.queues.iter_mut().enumerate() {
            if n != port.index() {
                queue.push_back(frame.to_vec());
                self.ready.insert(port_id(n));
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.calls.push("timeout".to_owned());
        self.timeouts.push(now);
        self.deadline = None;
    }

    fn poll_transmit(&mut self, _: Time, port: PortId, into: &mut [u8]) -> Option<TxMeta> {
        self.calls.push(format!("tx {}", port.index()));
        let frame = self.queues[port.index()].pop_front()?;
        into[..frame.len()].copy_from_slice(&frame);
        Some(TxMeta::whole(frame.len()))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }

    fn take_ready(&mut self) -> PortMask {
        self.calls.push("ready".to_owned());
        self.ready.take()
    }
}

/// A hub of `n` ports, the ports, and the far ends of their pipes.
fn hub(n: usize, ring: usize) -> (Hub, Vec<PipePort>, Vec<PipePort>) {
    let (near, far) = (0..n).map(|_| pipe(PipeConfig { ring, ..PipeConfig::default() })).unzip();
    (Hub::new(n), near, far)
}

/// A pipe that counts the sleeps of its driver, if it has a counter. It has no descriptor; the
/// driver asks for one before each sleep.
struct WatchedPort<'a> {
    inner: PipePort,
    sleeps: Option<&'a AtomicU64>,
}

impl Port for WatchedPort<'_> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        self.inner.rx_burst(clock, max, each)
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.inner.slot_commit(slot, meta);
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.wait(timeout)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        if let Some(sleeps) = self.sleeps {
            sleeps.fetch_add(1, Ordering::SeqCst);
        }
        None
    }
}

/// `ports`, the first of which counts sleeps in `sleeps`.
fn watched(ports: Vec<PipePort>, sleeps: &AtomicU64) -> Vec<WatchedPort<'_>> {
    let counters = std::iter::once(Some(sleeps)).chain(std::iter::repeat(None));
    ports.into_iter().zip(counters).map(|(inner, sleeps)| WatchedPort { inner, sleeps }).collect()
}

fn send(port: &mut PipePort, tag: u8) {
    let mut slot = reserve(port).expect("a buffer");
    slot.bytes()[0] = tag;
    slot.commit(TxMeta::whole(60));
    port.flush(Time::ZERO).expect("a pipe");
}

fn received(port: &mut PipePort) -> Vec<u8> {
    let mut tags = Vec::new();
    port.rx_burst(&Time::ZERO, usize::MAX, &mut |frame, _| tags.push(frame[0]));
    tags
}

fn step_of(hub: &mut Hub, ports: &mut [PipePort], left: &mut PortMask, budget: Budget) -> Progress {
    step_ports(&Time::ZERO, hub, ports, left, budget).expect("pipes stay")
}

#[test]
fn step_ports__floods_in_the_order_of_the_node_contract() {
    let (mut hub, mut ports, mut far) = hub(3, 256);
    send(&mut far[0], 10);
    send(&mut far[2], 12);
    hub.deadline = Some(Time::ZERO);
    let mut left = PortMask::EMPTY;
    let progress = step_of(&mut hub, &mut ports, &mut left, Budget::default());
    assert_eq!(progress, Progress { rx: 2, tx: 4, timeout: true, port_full: false });
    let expected = [
        "rx 0", "rx 2", "timeout", "ready", // The poll after the last frame finds no more.
        "tx 0", "tx 0", "tx 1", "tx 1", "tx 1", "tx 2", "tx 2",
    ];
    assert_eq!(hub.calls, expected);
    assert!(left.is_empty());
    let tags: Vec<_> = far.iter_mut().map(received).collect();
    assert_eq!(tags, [vec![12], vec![10, 12], vec![10]]);
}

#[test]
fn step_ports__polls_unfinished_ports_again() {
    let (mut hub, mut ports, mut far) = hub(3, 4);
    // Port 1 has no buffers, because its peer does not receive.
    for _ in 0..4 {
        send(&mut ports[1], 0);
    }
    for tag in 1..=3 {
        send(&mut far[0], tag);
    }
    let mut left = PortMask::EMPTY;
    let budget = Budget { rx: 64, tx: 2 };
    assert_eq!(step_of(&mut hub, &mut ports, &mut left, budget).tx, 2, "two by port 2");
    assert!(left.has(port_id(1)) && left.has(port_id(2)) && !left.has(port_id(0)));
    assert_eq!(step_of(&mut hub, &mut ports, &mut left, budget).tx, 1, "the budget's rest");
    assert!(left.has(port_id(1)) && !left.has(port_id(2)));
    assert_eq!(received(&mut far[1]), [0; 4]);
    assert_eq!(step_of(&mut hub, &mut ports, &mut left, budget).tx, 2);
    assert_eq!(step_of(&mut hub, &mut ports, &mut left, budget).tx, 1);
    assert!(left.is_empty());
    assert_eq!(received(&mut far[1]), [1, 2, 3]);
    assert_eq!(received(&mut far[2]), [1, 2, 3]);
}

#[test]
fn step_ports__receives_no_more_than_its_budget_from_each_port() {
    let (mut hub, mut ports, mut far) = hub(2, 256);
    for n in 0..100 {
        send(&mut far[0], n);
        send(&mut far[1], n);
    }
    let mut left = PortMask::EMPTY;
    let moved: Vec<_> = (0..3)
        .map(|_| step_of(&mut hub, &mut ports, &mut left, Budget::default()))
        .map(|progress| (progress.rx, progress.tx))
        .collect();
    assert_eq!(moved, [(128, 128), (72, 72), (0, 0)]);
}

#[test]
fn step_ports__skips_a_port_that_the_driver_does_not_have() {
    let (mut hub, mut ports, mut far) = hub(3, 256);
    ports.truncate(2);
    send(&mut far[0], 7);
    let mut left = PortMask::EMPTY;
    assert_eq!(step_of(&mut hub, &mut ports, &mut left, Budget::default()).tx, 1);
    assert!(left.is_empty(), "otherwise it would be polled forever");
}

#[test]
fn run_ports_until__forwards_asleep_and_awake() {
    const FRAMES: u8 = 200;
    const BATCH: u8 = 20;
    let (mut hub, ports, mut far) = hub(3, 256);
    let (mut last, mut first) = (far.pop().expect("three"), far.remove(0));
    let sleeps = AtomicU64::new(0);
    let mut ports = watched(ports, &sleeps);
    let mut driver = Driver::new(Clock::start(), Polling::Spin(Dur::ZERO));
    let mut tags = Vec::new();
    let deadline = Instant::now() + LATE;
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..FRAMES {
                // Before each batch the driver goes to sleep.
                let before = sleeps.load(Ordering::SeqCst);
                while tag % BATCH == 0 && sleeps.load(Ordering::SeqCst) == before {
                    assert!(Instant::now() < deadline, "the driver does not sleep before {tag}");
                    thread::yield_now();
                }
                send(&mut first, tag);
            }
        });
        driver
            .run_ports_until(&mut hub, &mut ports, |_| {
                tags.extend(received(&mut last));
                tags.len() == usize::from(FRAMES) || Instant::now() > deadline
            })
            .expect("pipes stay");
    });
    assert_eq!(tags, (0..FRAMES).collect::<Vec<_>>());
    let counters = driver.counters();
    assert_eq!((counters.rx_frames, counters.tx_frames), (200, 400));
    assert!(counters.waits >= u64::from(FRAMES / BATCH), "{counters:?}");
}

#[test]
fn slice__is_short_with_a_port_that_has_no_descriptor() {
    let us = Duration::from_micros;
    assert_eq!([slice(us(150), true), slice(us(100_000), true)], [us(150), us(200)]);
    assert_eq!([slice(us(150), false), slice(us(100_000), false)], [us(150), us(100_000)]);
}

#[test]
fn wake_at__is_early_once_for_each_distant_deadline() {
    let at = |us| Time::ZERO + Dur::from_us(us);
    let mut alarm = Alarm::default();
    assert_eq!(alarm.wake_at(at(0), at(199)), at(199), "close: sleeps until it is due");
    assert_eq!(alarm.wake_at(at(0), at(1_000)), at(950));
    // After waking early or for a frame, it spins once for the same deadline.
    assert_eq!(alarm.wake_at(at(900), at(1_000)), at(950));
    assert_eq!(alarm.wake_at(at(951), at(1_000)), at(950));
    assert_eq!(alarm.wake_at(at(951), at(1_010)), at(1_010), "another one, close");
    assert_eq!(alarm.wake_at(at(1_010), at(2_000)), at(1_950));
}

/// Pipes have no descriptor, so the sleep is split; the timer must still be on time.
#[test]
fn run_ports_until__wakes_for_the_deadline() {
    let (mut hub, ports, _far) = hub(2, 16);
    let sleeps = AtomicU64::new(0);
    let mut ports = watched(ports, &sleeps);
    let clock = Clock::start();
    let mut due = Time::MAX;
    let mut driver = Driver::new(clock, Polling::Spin(Dur::ZERO));
    driver
        .run_ports_until(&mut hub, &mut ports, |hub| {
            if due == Time::MAX && sleeps.load(Ordering::SeqCst) >= 3 {
                due = clock.now() + Dur::from_ms(1);
                hub.deadline = Some(due);
            }
            !hub.timeouts.is_empty()
        })
        .expect("pipes stay");
    assert!(hub.timeouts[0] >= due);
    assert!(driver.counters().waits > 2, "{:?}", driver.counters());
}
