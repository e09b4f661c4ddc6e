//! The interleaved run: every subject once a round, in reverse order every other round, so that
//! slow periods and drift of the machine affect all alike.

use crate::engine;
use crate::quiet::{Disturbance, Limits, Stolen, core_distance_ns};
use crate::raw::{self, Blast, Touch};
use crate::rtt;
use crate::sample::{Error, Reading, Sample};
use crate::tcp::{self, Wait};
use serde::Serialize;
use spanwire_host::oob::Op;
use spanwire_io::affinity;
use spanwire_io::net::{LabConfig, Offloads, TwoHosts};
use spanwire_transport::Mtu;
use std::time::{Duration, Instant};

/// A subject of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Raw AF_XDP one way.
    Raw {
        /// The treatment of the payload.
        touch: Touch,
        /// The most frames in flight.
        window: u64,
    },
    /// The engine one way.
    Engine(Op),
    /// A kernel TCP stream, with all offloads or none.
    Tcp {
        /// TSO, GSO, GRO and checksums on both ends.
        offloads: bool,
    },
    /// Round trips of a small raw AF_XDP frame.
    RawPing {
        /// Both ends poll the interface themselves.
        side_poll: bool,
    },
    /// A small message of the engine: SEND and SEND back, or WRITE to its completion.
    EnginePing(Op),
    /// Round trips of a small kernel TCP message.
    TcpPing(Wait),
}

/// A subject on a veth pair of one MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// The subject.
    pub subject: Subject,
    /// The interfaces' MTU.
    pub link_mtu: u32,
    /// The engine's path MTU there, and the payload of a raw frame.
    pub path_mtu: u32,
}

/// The plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// Samples of each variant, 1 and up.
    pub rounds: usize,
    /// Milliseconds of a sample, 10 and up.
    pub ms: u64,
    /// MTUs of the veth pairs, 1280 to 3506: beyond, a frame does not fit one buffer.
    pub link_mtus: Vec<u32>,
    /// The limits of an undisturbed sample.
    pub limits: Limits,
    /// Retries of a disturbed sample before the round goes without it.
    pub repeats: u32,
    /// Milliseconds to wait, before each attempt, for cores in different complexes to come
    /// together.
    pub wait_ms: u64,
    /// The cores of the sending and the receiving thread.
    pub cores: [usize; 2],
    /// Measures only subjects whose name contains this, to profile one alone.
    pub only: Option<String>,
}

/// The samples of a variant.
#[derive(Clone, Debug)]
pub struct Series {
    /// The variant.
    pub variant: Variant,
    /// One reading a round, `None` if every attempt was disturbed.
    pub rounds: Vec<Option<Reading>>,
    /// The reasons of dropped samples, in order.
    pub dropped: Vec<Disturbance>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Results {
    /// The variants in the order of the first round.
    pub series: Vec<Series>,
    /// The cores' distance before and after every attempt, dropped ones too, in nanoseconds.
    pub distances_ns: Vec<f64>,
}

/// The hosts of one MTU. TCP has its own, with veth's own default of no queue, and without XDP.
struct Lab {
    link_mtu: u32,
    ports: TwoHosts,
    tcp: TwoHosts,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rounds: 7,
            ms: 300,
            link_mtus: vec![1500, LINK_MTU_MAX],
            limits: Limits::default(),
            repeats: 4,
            wait_ms: 500,
            cores: [0, 1],
            only: None,
        }
    }
}

impl Plan {
    /// Every subject on every MTU; latencies, which do not depend on the MTU, on the first only.
    ///
    /// # Errors
    /// An MTU is out of range, or no subject is selected.
    pub fn variants(&self) -> Result<Vec<Variant>, Error> {
        let mut variants = Vec::new();
        for (n, link_mtu) in self.link_mtus.iter().copied().enumerate() {
            if !(LINK_MTU_MIN..=LINK_MTU_MAX).contains(&link_mtu) {
                let range = format!("{LINK_MTU_MIN}..={LINK_MTU_MAX}");
                return Err(format!("MTU {link_mtu} is not in {range}").into());
            }
            let path_mtu = Mtu::for_link(link_mtu).expect("1280 bytes carry RoCEv2");
            let latencies = if n == 0 { &LATENCIES[..] } else { &[] };
            let subjects = RATES.iter().chain(latencies);
            let subjects = subjects.filter(|subject| self.wants(**subject));
            variants.extend(subjects.map(|subject| Variant {
                subject: *subject,
                link_mtu,
                path_mtu: path_mtu.bytes(),
            }));
        }
        if variants.is_empty() {
            let only = self.only.as_deref().unwrap_or_default();
            return Err(format!("no subject has {only:?} in its name").into());
        }
        Ok(variants)
    }

    fn wants(&self, subject: Subject) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| subject.name().contains(only))
    }
}

/// Makes the run. `watch` receives the next variant and cancels the run by returning true.
///
/// # Errors
/// No privilege, fewer than two cores, or a measurement fails (a disturbed one does not).
pub fn run(plan: &Plan, mut watch: impl FnMut(usize, Variant) -> bool) -> Result<Results, Error> {
    let variants = plan.variants()?;
    let usable = affinity::usable_cores();
    if !plan.cores.iter().all(|core| usable.contains(core)) || plan.cores[0] == plan.cores[1] {
        let [a, b] = plan.cores;
        return Err(format!("needs two cores, {a} and {b}; usable are {usable:?}").into());
    }
    let labs =
        plan.link_mtus.iter().map(|mtu| Lab::new(*mtu)).collect::<Result<Vec<Lab>, Error>>()?;
    let series = |variant: &Variant| Series {
        variant: *variant,
        rounds: vec![None; plan.rounds],
        dropped: Vec::new(),
    };
    let mut results =
        Results { series: variants.iter().map(series).collect(), distances_ns: Vec::new() };
    for round in 0..plan.rounds {
        for n in order(round, variants.len()) {
            let variant = variants[n];
            if watch(round, variant) {
                return Err("interrupted".into());
            }
            let lab = labs.iter().find(|lab| lab.link_mtu == variant.link_mtu);
            let lab = lab.expect("every variant's MTU has a lab");
            let series = &mut results.series[n];
            series.rounds[round] = attempt(
                plan,
                || lab.measure(plan, variant),
                &mut results.distances_ns,
                &mut series.dropped,
            )?;
        }
    }
    Ok(results)
}

/// Measures until a sample is undisturbed or the plan's retries are used up.
fn attempt(
    plan: &Plan,
    mut measure: impl FnMut() -> Result<Sample, Error>,
    distances_ns: &mut Vec<f64>,
    dropped: &mut Vec<Disturbance>,
) -> Result<Option<Reading>, Error> {
    for _ in 0..=plan.repeats {
        let before = settled_distance_ns(plan)?;
        distances_ns.push(before);
        let untouched = [Stolen::default(); 2];
        if let Some(why) = plan.limits.check([before; 2], untouched) {
            // Known to be disturbed: not measured.
            dropped.push(why);
            continue;
        }
        let sample = measure()?;
        let after = core_distance_ns(plan.cores)?;
        distances_ns.push(after);
        match plan.limits.check([before, after], sample.stolen) {
            None => return Ok(Some(sample.reading)),
            Some(why) => dropped.push(why),
        }
    }
    Ok(None)
}

/// The cores' distance once it is within the limit, or after the plan's wait.
fn settled_distance_ns(plan: &Plan) -> Result<f64, Error> {
    let start = Instant::now();
    loop {
        let distance_ns = core_distance_ns(plan.cores)?;
        let waited = start.elapsed() >= Duration::from_millis(plan.wait_ms);
        if distance_ns <= plan.limits.distance_ns || waited {
            return Ok(distance_ns);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The order of a round.
fn order(round: usize, variants: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..variants).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

impl Lab {
    fn new(link_mtu: u32) -> Result<Self, Error> {
        let config = LabConfig { mtu: link_mtu, ..LabConfig::default() };
        Ok(Self {
            link_mtu,
            ports: TwoHosts::anonymous(&config)?,
            tcp: TwoHosts::anonymous(&LabConfig { pfifo: None, ..config })?,
        })
    }

    fn measure(&self, plan: &Plan, variant: Variant) -> Result<Sample, Error> {
        let (cores, time) = (plan.cores, Duration::from_millis(plan.ms));
        let payload = spanwire_base::usize_from(variant.path_mtu.into());
        match variant.subject {
            Subject::Raw { touch, window } => {
                let blast = Blast { payload, touch, window, time };
                raw::blast(&self.ports, cores, blast)
            }
            Subject::Engine(op) => {
                let job = engine::bandwidth(op, variant.path_mtu, time);
                engine::run(&self.ports, cores, job)
            }
            Subject::Tcp { offloads } => {
                let offloads = if offloads { Offloads::ON } else { Offloads::OFF };
                tcp::stream(&self.tcp, cores, &offloads, time)
            }
            Subject::RawPing { side_poll } => {
                rtt::ping_pong(&self.ports, cores, PING_BYTES, side_poll, time)
            }
            Subject::EnginePing(op) => {
                let bytes = spanwire_base::u32_from(PING_BYTES);
                let job = engine::latency(op, bytes, variant.path_mtu, time);
                engine::run(&self.ports, cores, job)
            }
            Subject::TcpPing(wait) => tcp::ping_pong(&self.tcp, cores, PING_BYTES, wait, time),
        }
    }
}

impl Subject {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> String {
        let op_name = spanwire_bins::report::op_name;
        match self {
            Self::Raw { touch, window } => match touch {
                Touch::Copy => format!("raw AF_XDP, copying, window {window}"),
                Touch::Headers => format!("raw AF_XDP, headers only, window {window}"),
            },
            Self::Engine(op) => format!("spanwire {}", op_name(op).to_uppercase()),
            Self::Tcp { offloads: true } => "kernel TCP, offloads on".to_owned(),
            Self::Tcp { offloads: false } => "kernel TCP, offloads off".to_owned(),
            Self::RawPing { side_poll: true } => "raw AF_XDP ping-pong".to_owned(),
            Self::RawPing { side_poll: false } => "raw AF_XDP ping-pong, no side poll".to_owned(),
            Self::EnginePing(Op::Send) => "spanwire SEND ping-pong".to_owned(),
            Self::EnginePing(op) => {
                format!("spanwire {} to completion", op_name(op).to_uppercase())
            }
            Self::TcpPing(Wait::Spin) => "kernel TCP ping-pong, spinning".to_owned(),
            Self::TcpPing(Wait::Block) => "kernel TCP ping-pong, blocking".to_owned(),
        }
    }

    /// True for raw AF_XDP in one direction, with this treatment of the payload.
    #[must_use]
    pub fn is_raw(self, wanted: Touch) -> bool {
        matches!(self, Self::Raw { touch, .. } if touch == wanted)
    }
}

/// The windows: the engine's maximum for one queue pair, and the maximum of a veth.
const RATES: [Subject; 8] = [
    Subject::Raw { touch: Touch::Copy, window: 128 },
    Subject::Raw { touch: Touch::Copy, window: 200 },
    Subject::Raw { touch: Touch::Headers, window: 200 },
    Subject::Engine(Op::Write),
    Subject::Engine(Op::Read),
    Subject::Engine(Op::Send),
    Subject::Tcp { offloads: true },
    Subject::Tcp { offloads: false },
];
const LATENCIES: [Subject; 6] = [
    Subject::RawPing { side_poll: true },
    Subject::RawPing { side_poll: false },
    Subject::EnginePing(Op::Send),
    Subject::EnginePing(Op::Write),
    Subject::TcpPing(Wait::Spin),
    Subject::TcpPing(Wait::Block),
];

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of a small message.
pub const PING_BYTES: usize = 64;
/// The smallest MTU with IPv6, which every host here has.
pub const LINK_MTU_MIN: u32 = 1280;
/// The largest MTU at which a veth takes a program without multi-buffer support.
pub const LINK_MTU_MAX: u32 = 3506;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Rate;

    fn sample(gbps: f64, stolen: f64) -> Sample {
        Sample {
            reading: Reading::Rate(Rate { goodput_gbps: gbps, packets_per_s: 1.0, lost: 0 }),
            stolen: [Stolen(stolen), Stolen(0.0)],
        }
    }

    #[test]
    fn variants__both_mtus_have_rates_and_the_first_has_latencies() {
        let plan = Plan::default();
        let variants = plan.variants().unwrap();
        assert_eq!(variants.len(), 2 * RATES.len() + LATENCIES.len());
        let mtus = |v: &Variant| (v.link_mtu, v.path_mtu);
        assert_eq!(mtus(&variants[0]), (1500, 1024));
        assert_eq!(mtus(variants.last().unwrap()), (3506, 2048));
        let mut names: Vec<_> = variants.iter().map(|v| (v.subject.name(), v.link_mtu)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), variants.len(), "two variants share a name");
    }

    #[test]
    fn variants__an_mtu_out_of_range_is_rejected() {
        for link_mtu in [1279, 3507] {
            let plan = Plan { link_mtus: vec![link_mtu], ..Plan::default() };
            assert!(plan.variants().is_err(), "{link_mtu}");
        }
    }

    #[test]
    fn variants__only_one_subject_if_wanted() {
        let mut plan = Plan { only: Some("spanwire WRITE".to_owned()), ..Plan::default() };
        let subjects: Vec<_> = plan.variants().unwrap().iter().map(|v| v.subject).collect();
        let write = Subject::Engine(Op::Write);
        assert_eq!(subjects, [write, Subject::EnginePing(Op::Write), write]);
        plan.only = Some("iperf".to_owned());
        assert!(plan.variants().is_err());
    }

    #[test]
    fn run__one_core_for_both_is_rejected() {
        let core = affinity::usable_cores()[0];
        let plan = Plan { cores: [core, core], ..Plan::default() };
        assert!(run(&plan, |_, _| false).is_err());
    }

    #[test]
    fn order__every_other_round_is_reversed() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
        assert_eq!(order(2, 3), [0, 1, 2]);
    }

    #[test]
    fn attempt__retries_disturbed_samples_up_to_the_limit() {
        let [a, b, ..] = affinity::usable_cores()[..] else {
            eprintln!("SKIPPED: one core only");
            return;
        };
        let mut plan = Plan { repeats: 2, cores: [a, b], ..Plan::default() };
        plan.limits.distance_ns = f64::INFINITY;
        let (mut distances, mut dropped) = (Vec::new(), Vec::new());
        let mut script = [sample(1.0, 0.9), sample(2.0, 0.0)].into_iter();
        let measure = || Ok(script.next().unwrap());
        let kept = attempt(&plan, measure, &mut distances, &mut dropped).unwrap();
        assert_eq!(kept, Some(sample(2.0, 0.0).reading));
        assert_eq!(dropped, [Disturbance::Stolen]);
        assert_eq!(distances.len(), 4);

        dropped.clear();
        let always = || Ok(sample(1.0, 0.9));
        let kept = attempt(&plan, always, &mut distances, &mut dropped).unwrap();
        assert_eq!(kept, None);
        assert_eq!(dropped.len(), 3);

        plan.limits.distance_ns = 0.0;
        dropped.clear();
        let never = || panic!("a disturbed sample is not measured");
        let apart = attempt(&plan, never, &mut distances, &mut dropped);
        assert_eq!(apart.unwrap(), None);
        assert_eq!(dropped, [Disturbance::CoresApart; 3]);
    }
}
