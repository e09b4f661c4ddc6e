//! A node that answers each frame with one, behind drivers of known timing.

mod polling;
mod sockets;
mod workers;

use super::*;
use crate::ids::LinkId;
use crate::workload::Flow;
use crate::world::Observer;
use crate::{Plan, Setup, Topology, Watch};
use spanwire_base::{Dur, PortId, PortMask, Rate, RxMeta, Time, TxMeta};
use spanwire_progress::Polling;

/// Answers each frame with a frame of 100 bytes.
#[derive(Debug, Default)]
struct Echo {
    seen: Vec<(Time, RxMeta)>,
    to_send: usize,
    sent_at: Vec<Time>,
    deadline: Option<Time>,
    ready: bool,
}

impl Node for Echo {
    fn handle_packet(&mut self, now: Time, _: PortId, _: &[u8], meta: &RxMeta) {
        self.seen.push((now, *meta));
        self.to_send += 1;
        self.ready = true;
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            self.seen.push((now, RxMeta::whole(now)));
        }
    }

    fn poll_transmit(&mut self, now: Time, _: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.to_send = self.to_send.checked_sub(1)?;
        // UDP over IPv4.
        frame[..100].fill(0);
        (frame[12], frame[23]) = (8, 17);
        self.sent_at.push(now);
        Some(TxMeta::whole(100))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }

    fn take_ready(&mut self) -> PortMask {
        if std::mem::take(&mut self.ready) { PortMask::of(PortId::HOST) } else { PortMask::EMPTY }
    }
}

fn us(n: u64) -> Time {
    Time::ZERO + Dur::from_us(n)
}

/// A microsecond for a step and for each frame; wakes after 50 us; no stalls.
fn model() -> HostModel {
    HostModel {
        step: Dur::from_us(1),
        rx_frame: Dur::from_us(1),
        tx_frame: Dur::from_us(1),
        kibibyte: Dur::ZERO,
        batch: 4,
        rx_ring: 10,
        tx_ring: 10,
        polling: Polling::Spin(Dur::from_us(20)),
        wakeup: Lateness::new(&[(0, Dur::from_us(50)), (1_000_000, Dur::from_us(50))]),
        stall_interval: Dur::ZERO,
        stall: Lateness::none(),
        timestamps: false,
        sockets: None,
    }
}

fn host(model: &HostModel) -> PolledHost<Echo> {
    let mut host = PolledHost::new(Echo::default(), Some(model), 7, 2048);
    // The step at the start finds nothing.
    host.handle_timeout(Time::ZERO);
    host
}

fn arrive(host: &mut PolledHost<Echo>, at: Time) {
    host.handle_packet(at, PortId::HOST, &[0; 64], &RxMeta::whole(at));
}

/// Runs until nothing is due before `until`; returns when frames left.
fn run(host: &mut PolledHost<Echo>, until: Time) -> Vec<Time> {
    let mut left = Vec::new();
    while let Some(at) = host.poll_timeout().filter(|at| *at <= until) {
        host.handle_timeout(at);
        if host.take_ready().has(PortId::HOST) {
            while host.poll_transmit(at, PortId::HOST, &mut [0; 2048]).is_some() {
                left.push(at);
            }
        }
    }
    left
}

#[test]
fn polled_host__without_a_model_is_the_node_itself() {
    let mut host = PolledHost::new(Echo::default(), None, 7, 2048);
    arrive(&mut host, us(3));
    assert_eq!(host.node().seen, [(us(3), RxMeta::whole(us(3)))]);
    assert!(host.take_ready().has(PortId::HOST));
    assert!(host.poll_transmit(us(3), PortId::HOST, &mut [0; 2048]).is_some());
    assert_eq!(host.counters(), HostCounters::default());
}

#[test]
fn polled_host__sleeps_wakes_late_and_sends_at_the_end_of_the_step() {
    let mut host = host(&model());
    arrive(&mut host, us(100));
    let left = run(&mut host, us(1_000));
    // It spins until 20 us. The step at 150 us receives, 1 us each for step and frame, and sends,
    // which takes another.
    assert_eq!(host.node().seen, [(us(150), RxMeta::between(us(20), us(150)))]);
    assert_eq!((host.node().sent_at.as_slice(), left.as_slice()), (&[us(152)][..], &[us(153)][..]));
    assert_eq!(host.counters().rx_wait_ps, Dur::from_us(50).as_ps());
}

#[test]
fn polled_host__that_spins_is_prompt() {
    let mut host = host(&model());
    arrive(&mut host, us(10));
    run(&mut host, us(1_000));
    let (now, meta) = host.node().seen[0];
    assert_eq!((now.as_ps(), meta.earliest), (10_500_000, us(10)));
}

#[test]
fn polled_host__a_step_has_one_time_and_a_batch() {
    let mut host = host(&model());
    (0..6).for_each(|n| arrive(&mut host, us(100 + n)));
    run(&mut host, us(1_000));
    let times: Vec<Time> = host.node().seen.iter().map(|(now, _)| *now).collect();
    // The first step takes 1 + 4 us to receive and 4 us to send.
    assert_eq!(times, [us(150), us(150), us(150), us(150), us(159), us(159)]);
    let earliest: Vec<Time> = host.node().seen.iter().map(|(_, meta)| meta.earliest).collect();
    assert_eq!(earliest, [us(20); 6], "the ring was not empty in between");
}

#[test]
fn polled_host__timestamps_are_exact_however_late_the_step() {
    let mut host = host(&HostModel { timestamps: true, ..model() });
    arrive(&mut host, us(100));
    arrive(&mut host, us(120));
    run(&mut host, us(1_000));
    let metas: Vec<RxMeta> = host.node().seen.iter().map(|(_, meta)| *meta).collect();
    assert_eq!(metas, [RxMeta::whole(us(100)), RxMeta::whole(us(120))]);
}

#[test]
fn polled_host__loses_frames_beyond_its_ring() {
    let mut host = host(&model());
    (0..25).for_each(|_| arrive(&mut host, us(100)));
    run(&mut host, us(1_000));
    assert_eq!((host.node().seen.len(), host.counters().drop_rx_ring), (10, 15));
}

#[test]
fn polled_host__wakes_late_for_a_timer() {
    let mut host = host(&model());
    host.node_mut().deadline = Some(us(500));
    run(&mut host, us(1_000));
    // The step's own microsecond passes before timers are handled.
    assert_eq!(host.node().seen[0].0, us(551));
    assert_eq!(host.counters().wakeups, 1);
}

#[test]
fn polled_host__a_stall_delays_the_next_step() {
    let stall = Lateness::new(&[(0, Dur::from_ms(5)), (1_000_000, Dur::from_ms(5))]);
    let mut host = host(&HostModel { stall_interval: Dur::from_us(1), stall, ..model() });
    for n in 0..20 {
        arrive(&mut host, us(100 + 10_000 * n));
        run(&mut host, us(10_000 * (n + 1)));
    }
    assert_eq!(host.node().seen.len(), 20);
    assert!(host.counters().stalls >= 20, "{:?}", host.counters());
}

#[test]
fn polled_host__stalls_only_while_it_runs() {
    let stall = Lateness::new(&[(0, Dur::from_us(10)), (1_000_000, Dur::from_us(10))]);
    let mut host = host(&HostModel { stall_interval: Dur::from_ms(1), stall, ..model() });
    for n in 0..1_000 {
        arrive(&mut host, us(100 + 10_000 * n));
        run(&mut host, us(10_000 * (n + 1)));
    }
    // It runs and spins for 24 us of every 10 ms, and for 21 when it polls for its departed frame.
    assert!((25..70).contains(&host.counters().stalls), "{:?}", host.counters());
}

/// Round trips of a flow with one packet outstanding, as the network sees them.
#[derive(Debug, Default)]
struct RoundTrips {
    /// The link from the requester, and when it last sent.
    data: Option<(LinkId, Time)>,
    all: Vec<Dur>,
}

impl Observer for RoundTrips {
    fn on_sent(&mut self, now: Time, link: LinkId, _: &[u8], _: TxMeta) {
        let (data, at) = self.data.get_or_insert((link, now));
        if *data == link {
            *at = now;
        }
    }

    fn on_arrived(&mut self, now: Time, link: LinkId, _: &[u8], _: RxMeta) {
        self.all.extend(self.data.filter(|(data, _)| *data != link).map(|(_, at)| now.since(at)));
    }
}

#[test]
fn polled_host__acknowledgements_are_late_by_the_wakeup_of_the_responder() {
    let round_trips = |host: Option<HostModel>| {
        let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
        let flow = Flow::new(0, 1, Time::ZERO, 100_000);
        let timeout = Dur::from_ms(100);
        let setup =
            Setup { message_bytes: 1_000, outstanding: 1, timeout, host, ..Setup::default() };
        let mut seen = RoundTrips::default();
        let plan = Plan::new("test", topology, vec![flow], setup);
        let report = plan.run(Watch::default(), &mut seen).expect("it can be built");
        assert_eq!(report.violations, [] as [&str; 0]);
        assert_eq!(seen.all.len(), 100);
        seen.all
    };
    let sleeps = HostModel { polling: Polling::Spin(Dur::ZERO), ..model() };
    let [ideal, late] = [None, Some(sleeps)].map(round_trips);
    // It wakes after 50 us, and takes 3 us to step, receive and send.
    let expected = ideal[50] + Dur::from_us(53);
    assert!(late[1..99].iter().all(|rtt| *rtt == expected), "{expected:?}: {late:?}");
}

#[test]
fn named__every_preset_is_valid() {
    for name in HostModel::NAMES {
        let Some(model) = HostModel::named(name) else { continue };
        assert!(model.batch > 0 && model.rx_ring > 0 && model.tx_ring > 0, "{name}");
    }
    assert_eq!(HostModel::named("ideal"), None);
}
