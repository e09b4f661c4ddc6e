//! Random events, applied to both algorithms.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use spanwire_base::{Dur, Rate, Time};
use spanwire_cc::{Ack, Algorithm, Controller, Delivery, Hop, Loss, LossKind, Path, Sent};

/// The acknowledgement sample of the second algorithm: times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckSample {
    pub(crate) acked: f64,
    pub(crate) pkts: f64,
    pub(crate) marked: f64,
    pub(crate) rtt: Option<f64>,
    /// The time the peer held the acknowledgement.
    pub(crate) ends: f64,
    pub(crate) sent_at: f64,
    pub(crate) number: f64,
    pub(crate) is_retransmission: bool,
    pub(crate) inflight: f64,
    pub(crate) cwnd_limited: bool,
    pub(crate) hops: Option<f64>,
    pub(crate) path: u16,
    pub(crate) int: Vec<HopSample>,
    pub(crate) delivery: Option<DeliverySample>,
}

/// A telemetry record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopSample {
    pub(crate) at: f64,
    pub(crate) tx: f64,
    pub(crate) queue: f64,
    /// Bytes a nanosecond.
    pub(crate) rate: f64,
}

/// A delivery rate sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliverySample {
    pub(crate) total: f64,
    pub(crate) at_send: f64,
    pub(crate) interval: f64,
    pub(crate) app_limited: bool,
}

/// The second algorithm.
pub(crate) trait Oracle {
    fn ack(&mut self, now: f64, a: &AckSample);
    fn loss(&mut self, now: f64, kind: LossKind, bytes: f64, inflight: f64);
    fn cnp(&mut self, _now: f64) {}
    fn sent(&mut self, _bytes: f64, _paced: f64) {}
    /// Applies the timers up to `now`.
    fn run_to(&mut self, _now: f64) {}
    fn path_change(&mut self) {}
    /// Bytes; infinite without one.
    fn window(&self) -> f64;
    /// Bytes a nanosecond.
    fn rate(&self) -> Option<f64>;
    /// Nanoseconds.
    fn gap(&self) -> f64 {
        0.0
    }
}

/// The path of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathModel {
    pub(crate) mtu: f64,
    /// Bytes a nanosecond.
    pub(crate) line: f64,
    /// Nanoseconds.
    pub(crate) base: f64,
}

impl PathModel {
    pub(crate) fn bdp(&self) -> f64 {
        self.line * self.base
    }
}

#[derive(Clone, Debug)]
enum Event {
    Ack(Box<AckEvent>),
    /// Bytes lost, and the number of repetitions.
    Loss(LossKind, u32, u8),
    Cnp,
    Sent(u32, u32),
    PathChange,
    /// Nanoseconds without an event.
    Pause(u32),
}

#[derive(Clone, Debug)]
struct AckEvent {
    pkts: u32,
    /// Bytes that the last packet is short of a full one.
    short: u32,
    marked_pkts: u32,
    /// In thousandths of the base round trip.
    rtt: Option<u32>,
    ends_ns: u32,
    age: u32,
    back: u32,
    is_retransmission: bool,
    inflight: u32,
    cwnd_limited: bool,
    hops: Option<u8>,
    path: u16,
    int: Vec<(u32, u32, u32)>,
    interval: u32,
    at_send: u32,
    app_limited: bool,
}

fn ack() -> impl Strategy<Value = AckEvent> {
    let bytes = (0..33_u32, 0..4096_u32, prop_oneof![3 => Just(0), 2 => 0..33_u32], 0..40_u32);
    let times = (proptest::option::weighted(0.95, 900..4000_u32), 0..3000_u32, 0..4000_u32);
    let flags = (any::<bool>(), 0..9_000_000_u32, any::<bool>(), any::<bool>());
    let route = (
        proptest::option::of(1..8_u8),
        prop_oneof![30 => Just(0_u16), 1 => 0..3_u16],
        prop_oneof![
            8 => proptest::collection::vec((0..3000_u32, 0..1200_u32, 0..2_000_000_u32), 3),
            1 => Just(vec![]),
        ],
    );
    let rate = (1..4000_u32, 0..2000_u32);
    (bytes, times, flags, route, rate).prop_map(|(bytes, times, flags, route, rate)| AckEvent {
        pkts: bytes.0,
        short: bytes.1,
        marked_pkts: bytes.2,
        back: bytes.3,
        rtt: times.0,
        ends_ns: times.1,
        age: times.2,
        is_retransmission: flags.0 && bytes.3 % 4 == 0,
        inflight: flags.1,
        cwnd_limited: flags.2,
        app_limited: flags.3,
        hops: route.0,
        path: route.1,
        int: route.2,
        interval: rate.0,
        at_send: rate.1,
    })
}

/// Properties of a whole trace: an event that is always present hides effects of its absence.
#[derive(Clone, Copy, Debug)]
struct Conditions {
    cnps: bool,
    losses: bool,
    marks: bool,
    queue: Queue,
}

/// The change of round trips from one acknowledgement to the next.
#[derive(Clone, Copy, Debug)]
enum Queue {
    /// Independent of the previous one.
    Any,
    /// Slowly up, then empty, in steps of this many thousandths of the base round trip.
    Grows(u32),
    /// Slowly down, then full, in the same steps.
    Drains(u32),
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let mostly = || prop_oneof![2 => Just(true), 1 => Just(false)];
    let queue = prop_oneof![
        2 => Just(Queue::Any),
        1 => (1..60_u32).prop_map(Queue::Grows),
        1 => (1..60_u32).prop_map(Queue::Drains),
    ];
    (mostly(), mostly(), mostly(), queue).prop_map(|(cnps, losses, marks, queue)| Conditions {
        cnps,
        losses,
        marks,
        queue,
    })
}

impl Queue {
    /// The round trip of the `n`th event in thousandths; `any` is its independent value.
    fn rtt(self, n: usize, any: u32) -> u32 {
        let n = u32::try_from(n).unwrap();
        match self {
            Self::Any => any,
            Self::Grows(step) => 950 + n * step % 3000 + any % 7,
            Self::Drains(step) => 3950 - n * step % 3000 + any % 7,
        }
    }
}

fn event() -> impl Strategy<Value = (u32, Event)> {
    let kind = prop_oneof![
        3 => Just(LossKind::Recovery),
        2 => (1..8_u32).prop_map(LossKind::Timeout),
        1 => Just(LossKind::Block),
    ];
    let what = prop_oneof![
        60 => ack().prop_map(|a| Event::Ack(Box::new(a))),
        2 => (kind, 0..200_000_u32, prop_oneof![Just(1_u8), 1..9_u8])
            .prop_map(|(kind, bytes, times)| Event::Loss(kind, bytes, times)),
        4 => Just(Event::Cnp),
        10 => (1..4097_u32, 0..400_000_u32).prop_map(|(bytes, others)| Event::Sent(bytes, others)),
        1 => Just(Event::PathChange),
        1 => (0..30_000_000_u32).prop_map(Event::Pause),
    ];
    (1..12_000_u32, what)
}

/// A first and a second algorithm of one flow.
struct Both<O> {
    cc: spanwire_cc::Cc,
    oracle: O,
    base_ns: u64,
    conditions: Conditions,
    now_ns: u64,
    number: u64,
    delivered: u64,
    /// Telemetry: bytes sent by each of three ports.
    tx: [u64; 3],
    stamped_ns: [u64; 3],
}

/// Applies random events to algorithm `name`, with parameters as text, and to the one `oracle`
/// makes.
pub(crate) fn compare<O: Oracle>(
    name: &str,
    set: &[(&str, &str)],
    oracle: impl Fn(PathModel) -> O,
) {
    let mut algorithm = Algorithm::named(name).unwrap();
    for (field, value) in set {
        algorithm.set(field, value).unwrap();
    }
    let trace = (
        prop_oneof![Just(14_000_u64), Just(2_000_000), 5_000..400_000_u64],
        conditions(),
        proptest::collection::vec(event(), 1..250),
    );
    // More traces than the default: each takes a different path through the rules.
    let config = Config { cases: Config::default().cases.max(400), ..Config::default() };
    let config = Config { failure_persistence: None, ..config };
    let outcome = TestRunner::new(config).run(&trace, |(base_ns, conditions, events)| {
        let line_rate = Rate::from_gbps(100);
        let base_rtt = Some(Dur::from_ns(base_ns));
        let path = Path { mtu_bytes: 4096, line_rate, base_rtt };
        let model = PathModel { mtu: 4096.0, line: 12.5, base: float(base_ns) };
        let mut both = Both {
            cc: algorithm.start(&path),
            oracle: oracle(model),
            base_ns,
            conditions,
            now_ns: 1_000_000_000,
            number: 1000,
            delivered: 0,
            tx: [0; 3],
            stamped_ns: [999_000_000; 3],
        };
        both.compare_state("at first")?;
        for (n, (gap_ns, event)) in events.iter().enumerate() {
            both.now_ns += u64::from(*gap_ns);
            both.apply(n, event);
            both.compare_state(&format!("after event {n} at {} ns", both.now_ns))?;
        }
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("{name}: {e}");
    }
}

impl<O: Oracle> Both<O> {
    fn apply(&mut self, n: usize, event: &Event) {
        if let Event::Pause(ns) = event {
            self.now_ns += u64::from(*ns);
        }
        let (now, now_f) = self.run_timers();
        match event {
            Event::Ack(a) => self.apply_ack(n, a),
            Event::Loss(kind, bytes, times) if self.conditions.losses => {
                let (bytes, inflight_bytes) = (u64::from(*bytes), u64::from(*bytes) * 3);
                for _ in 0..*times {
                    self.now_ns += self.base_ns * 3 / 4;
                    let (now, now_f) = self.run_timers();
                    self.cc.on_loss(now, &Loss { kind: *kind, bytes, inflight_bytes });
                    self.oracle.loss(now_f, *kind, float(bytes), float(inflight_bytes));
                }
            }
            Event::Cnp if self.conditions.cnps => {
                self.cc.on_cnp(now);
                self.oracle.cnp(now_f);
            }
            Event::Sent(bytes, others) => {
                let inflight_bytes = u64::from(*bytes) + u64::from(*others / 1000 * 1000);
                // Headers of a quarter of the payload, and of 24 bytes.
                let paced_bytes = bytes + bytes / 4 + 24;
                self.cc.on_sent(
                    now,
                    &Sent {
                        bytes: *bytes,
                        paced_bytes,
                        frame_bytes: 0,
                        inflight_bytes,
                        is_retransmission: false,
                    },
                );
                self.oracle.sent(f64::from(*bytes), f64::from(paced_bytes));
            }
            Event::PathChange => {
                self.cc.on_path_change(now);
                self.oracle.path_change();
            }
            Event::Loss(..) | Event::Cnp | Event::Pause(_) => {}
        }
    }

    /// Applies expired timers, late, as a worker does.
    fn run_timers(&mut self) -> (Time, f64) {
        let (now, now_f) = (time(self.now_ns), float(self.now_ns));
        while self.cc.poll_timeout().is_some_and(|due| due <= now) {
            self.cc.handle_timeout(now);
        }
        self.oracle.run_to(now_f);
        (now, now_f)
    }

    fn apply_ack(&mut self, n: usize, e: &AckEvent) {
        let base_ns = self.base_ns;
        let scale = |thousandths: u32| base_ns * u64::from(thousandths) / 1000;
        let acked = (u64::from(e.pkts) * 4096).saturating_sub(u64::from(e.short));
        let marked_pkts = if self.conditions.marks { e.marked_pkts } else { 0 };
        let marked = (u64::from(marked_pkts) * 4096).min(acked);
        let rtt_ns = e.rtt.map(|any| scale(self.conditions.queue.rtt(n, any)));
        let sent_ns = self.now_ns.saturating_sub(scale(e.age));
        let (interval_ns, at_send_back) = (scale(e.interval), u64::from(e.at_send) * 1000);
        self.number += u64::from(e.pkts);
        self.delivered += acked;
        let number = self.number.saturating_sub(u64::from(e.back));
        let mut int = Vec::new();
        for (i, (after, load, queue)) in e.int.iter().enumerate() {
            // Stamps sometimes go back, and sometimes do not advance.
            let span = u64::from(after.saturating_sub(300)) * 10;
            self.stamped_ns[i] += span;
            self.tx[i] += span * u64::from(*load) * 125 / 10_000;
            int.push(Hop {
                at: time(self.stamped_ns[i]),
                tx_bytes: self.tx[i],
                queue_bytes: u64::from(*queue),
                rate: Rate::from_gbps(100),
            });
        }
        let delivery = Delivery {
            total_bytes: self.delivered,
            total_at_send_bytes: self.delivered.saturating_sub(at_send_back),
            interval: Dur::from_ns(interval_ns),
            app_limited: e.app_limited && e.back % 4 == 1,
        };
        let ack_delay_ns = u64::from(e.ends_ns);
        // In two steps, so that a new field of `Ack` keeps its default.
        let newest = Ack {
            rtt: rtt_ns.map(Dur::from_ns),
            ack_delay: Dur::from_ns(ack_delay_ns),
            sent_at: time(sent_ns),
            number,
            is_retransmission: e.is_retransmission,
            ..Ack::default()
        };
        let ack = Ack {
            acked_bytes: acked,
            acked_pkts: u64::from(e.pkts),
            marked_bytes: marked,
            una: number,
            next: self.number,
            inflight_bytes: u64::from(e.inflight),
            cwnd_limited: e.cwnd_limited,
            hops: e.hops,
            path: e.path,
            int: &int,
            delivery: Some(delivery),
            ..newest
        };
        self.cc.on_ack(time(self.now_ns), &ack);
        let sample = AckSample {
            acked: float(acked),
            pkts: f64::from(e.pkts),
            marked: float(marked),
            rtt: rtt_ns.map(float),
            ends: float(ack_delay_ns),
            sent_at: float(sent_ns),
            number: float(number),
            is_retransmission: e.is_retransmission,
            inflight: f64::from(e.inflight),
            cwnd_limited: e.cwnd_limited,
            hops: e.hops.map(f64::from),
            path: e.path,
            int: int.iter().map(HopSample::of).collect(),
            delivery: Some(DeliverySample {
                total: float(delivery.total_bytes),
                at_send: float(delivery.total_at_send_bytes),
                interval: float(interval_ns),
                app_limited: delivery.app_limited,
            }),
        };
        self.oracle.ack(float(self.now_ns), &sample);
    }

    fn compare_state(&self, when: &str) -> Result<(), TestCaseError> {
        let window = self.oracle.window();
        match self.cc.cwnd_bytes() {
            u64::MAX => prop_assert!(window.is_infinite(), "no window, but {window} {when}"),
            ours => {
                let ours = float(ours);
                prop_assert!(near(ours, window, 1.0), "window {ours}, not {window}, {when}");
            }
        }
        let (ours, theirs) = (self.cc.rate(), self.oracle.rate());
        prop_assert_eq!(ours.is_some(), theirs.is_some(), "a rate {}", when);
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let (ours, theirs) = (float(ours.as_bps()), theirs * 8e9);
            prop_assert!(near(ours, theirs, 1.0), "rate {ours}, not {theirs}, {when}");
        }
        let (ours, theirs) = (float(self.cc.min_gap().as_ps()), self.oracle.gap() * 1e3);
        prop_assert!(near(ours, theirs, 1.0), "gap {ours}, not {theirs} ps, {when}");
        Ok(())
    }
}

impl HopSample {
    fn of(hop: &Hop) -> Self {
        Self {
            at: float(hop.at.as_ns()),
            tx: float(hop.tx_bytes),
            queue: float(hop.queue_bytes),
            rate: float(hop.rate.as_bps()) / 8e9,
        }
    }
}

/// Equal to one part in 10^9 plus `unit`, to which the interface is rounded.
fn near(a: f64, b: f64, unit: f64) -> bool {
    (a - b).abs() <= unit + 1e-9 * a.abs().max(b.abs())
}

fn time(ns: u64) -> Time {
    Time::ZERO + Dur::from_ns(ns)
}

#[expect(clippy::cast_precision_loss, reason = "traces stay below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}
