//! PACC's experiments: bursts, steady state, fairness and completion times, by scheme.

use super::definition::{Scenario, large, longest, one_message};
use super::scheme::Scheme;
use crate::groups::Groups;
use crate::papers::{Burst, Disturbed, Metric, Recover, Stage, Stages, Steady};
use crate::params::{Params, Value};
use crate::plan::Plan;
use crate::setup::Setup;
use crate::topology::{FatTree, Role, Topology};
use crate::workload::{self, Cdf, Flow, Poisson, long};
use spanwire_base::{Dur, Rate, Rng, Time};

/// # Source
/// PACC II, figures 1 and 2: two long flows from one edge switch to two hosts of another; at
/// 600 us nine hosts of three edge switches send 64 KB each to one of the two.
pub(super) const BURST: Scenario = Scenario {
    name: "pacc-burst",
    about: "nine hosts of a fat tree burst into the queue of a long flow (PACC)",
    params: |p| {
        tree(p, Dur::from_ms(2))
            .with("bytes", Value::Bytes(64_000), "bytes of each flow of the burst")
            .with(
                "at",
                Value::Time(Dur::from_us(600)),
                "when the burst begins, or up to 80 us later",
            )
            .with("span", Value::Time(Dur::from_us(200)), "how long rates and CNPs are measured")
    },
    plan: burst,
};

/// # Source
/// PACC II, figure 3: two long flows to one host, a burst of 30 KB from each of nine others, and
/// from 800 us on a long flow from each of the nine to a host of its own.
pub(super) const MICRO: Scenario = Scenario {
    name: "pacc-micro",
    about: "a burst shorter than a round trip, and long flows of the same hosts (PACC)",
    params: |p| {
        tree(p, Dur::from_ms(2))
            .with("bytes", Value::Bytes(30_000), "bytes of each flow of the burst")
            .with(
                "at",
                Value::Time(Dur::from_us(600)),
                "when the burst begins, or up to 80 us later",
            )
            .with(
                "next",
                Value::Time(Dur::from_us(800)),
                "when its hosts begin long flows, as much later",
            )
    },
    plan: micro,
};

/// # Source
/// PACC IV-C, figure 5: its analysis of stability; the simulation is ours.
pub(super) const STEADY: Scenario = Scenario {
    name: "pacc-steady",
    about: "the length of the queue of long flows into one host in the steady state (PACC)",
    params: |p| {
        star(p, Dur::from_ms(60))
            .with("senders", Value::count(4, 100), "long flows, each of its own host")
            .with("sample", Value::Time(Dur::from_us(2)), "time from one sample to the next")
    },
    plan: steady,
};

/// # Source
/// PACC V-A, figure 6: four flows at one switch.
pub(super) const JOIN: Scenario = Scenario {
    name: "pacc-join",
    about: "four flows into one host join and leave one after another (PACC)",
    params: |p| {
        star(p, Dur::from_ms(50))
            .without("time")
            .with("stage", Value::Time(Dur::from_ms(50)), "from one change to the next")
            .with("sample", Value::Time(Dur::from_us(100)), "time from one sample to the next")
    },
    plan: join,
};

/// # Source
/// PACC V-B, figures 7 to 10. The loads are not stated.
pub(super) const FCT: Scenario = Scenario {
    name: "pacc-fct",
    about: "completion times of a workload in a fat tree of 320 hosts (PACC)",
    params: |p| {
        let names = Cdf::names().collect();
        tree(p, Dur::from_ms(20))
            .with("load", Value::count(50, 100), "per cent of what all hosts can send")
            .with("sizes", word("websearch", names), "distribution of sizes")
            .with("first", Value::Time(Dur::from_ms(4)), "flows that start before do not count")
            .without("message")
            .without("outstanding")
            .with("sample", Value::Time(Dur::from_ms(1)), "time from one sample to the next")
    },
    plan: fct,
};

/// The common parameters; flows start within `time`.
fn common(p: Params, time: Dur) -> Params {
    let mtus = vec!["256", "512", "1024", "2048", "4096"];
    Scheme::param(large(p))
        .without("bytes")
        .without("rate")
        .without("delay")
        .with("time", Value::Time(time), "when flows end at the latest to begin or to post")
        .with("mtu", word("1024", mtus), "path MTU in bytes")
        .with("window", Value::count(65_536, 65_536), "outstanding packets of a queue pair")
        .with("message", Value::Bytes(256 << 10), "longest message, at least 8 bytes")
        .with("outstanding", Value::count(8, 8192), "messages of a flow outstanding at once")
        .with("buffer", Value::Bytes(8_000_000), "buffer that the ports of a switch share")
        .with("sample", Value::Time(Dur::from_us(1)), "time from one sample to the next")
}

/// Adds the size of the fat tree, so that smaller ones can be tested.
fn tree(p: Params, time: Dur) -> Params {
    common(p, time)
        .with("pods", Value::Count { n: 5, min: 2, max: 5 }, "pods of four edge switches")
        .with("hosts", Value::Count { n: 16, min: 10, max: 16 }, "hosts of each edge switch")
}

fn star(p: Params, time: Dur) -> Params {
    common(p, time).with("rate", Value::Rate(Rate::from_gbps(25)), "rate of every link").with(
        "delay",
        Value::Time(Dur::from_us(1)),
        "propagation delay of every link",
    )
}

fn shape(p: &Params) -> FatTree {
    FatTree { pods: p.count("pods"), hosts_per_edge: p.count("hosts"), ..FatTree::pacc() }
}

/// Hosts of the burst experiments, drawn by the seed.
struct Cast {
    /// The sources of the long flows, at one edge switch.
    long: [u32; 2],
    /// Hosts of another edge switch; the first receives the burst.
    receivers: Vec<u32>,
    /// The sources of the burst: three of each of three others.
    burst: Vec<u32>,
    /// From the time of the parameter until the burst: PACC's timer has any phase then.
    phase: Dur,
}

impl Cast {
    fn draw(shape: &FatTree, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ CAST_SEEDS);
        let mut edges: Vec<u32> = (0..shape.pods * shape.edges).collect();
        workload::shuffle(&mut edges, &mut rng);
        let mut hosts_of = |edge: u32| {
            let first = edge * shape.hosts_per_edge;
            let mut hosts: Vec<u32> = (first..first + shape.hosts_per_edge).collect();
            workload::shuffle(&mut hosts, &mut rng);
            hosts
        };
        let long = hosts_of(edges[0]);
        let receivers = hosts_of(edges[1]);
        let burst = edges[2..5].iter().flat_map(|edge| hosts_of(*edge)[..3].to_vec()).collect();
        let phase = Dur::from_ps(rng.below(PERIOD.as_ps()));
        Self { long: [long[0], long[1]], receivers, burst, phase }
    }
}

/// The queue before a host, as in reports.
fn queue_before(topology: &Topology, host: u32) -> String {
    let cable = topology.links.iter().find(|c| c.a.node == host || c.b.node == host);
    let cable = cable.expect("every host has a link");
    let end = if cable.a.node == host { cable.b } else { cable.a };
    format!("{}:{}", topology.name(end.node), end.port)
}

fn plan(p: &Params, topology: Topology, mut flows: Vec<Flow>, mut setup: Setup) -> Plan {
    workload::jitter(&mut flows, setup.seed);
    Scheme::of(p.word("scheme")).apply(p, &mut setup);
    // Flows that stop have nothing in flight a few round trips later.
    let last = flows.iter().filter_map(|flow| flow.stops_at).max();
    let series_until = last.map_or(Time::MAX, |last| last + SERIES_REST);
    Plan { series_until, ..Plan::new("", topology, flows, setup) }
}

fn burst(p: &Params, setup: Setup) -> Plan {
    let shape = shape(p);
    let cast = Cast::draw(&shape, setup.seed);
    let (at, end) = (Time::ZERO + p.time("at") + cast.phase, Time::ZERO + p.time("time"));
    let to = |i: usize| long(cast.long[i], cast.receivers[i], [Time::ZERO, end]);
    let mut flows = vec![to(0), to(1)];
    let receiver = cast.receivers[0];
    flows.extend(cast.burst.iter().map(|src| Flow::new(*src, receiver, at, p.bytes("bytes"))));
    let topology = Topology::fat_tree(&shape);
    let metric = Metric::Burst(Burst {
        queue: queue_before(&topology, receiver),
        at,
        until: at + p.time("span"),
        long: 0,
        short: (2..11).collect(),
    });
    Plan { metric: Some(metric), ..plan(p, topology, flows, setup) }
}

fn micro(p: &Params, setup: Setup) -> Plan {
    let shape = shape(p);
    let cast = Cast::draw(&shape, setup.seed);
    let [at, next] = ["at", "next"].map(|name| Time::ZERO + p.time(name) + cast.phase);
    let end = Time::ZERO + p.time("time");
    let receiver = cast.receivers[0];
    let mut flows: Vec<Flow> =
        cast.long.iter().map(|src| long(*src, receiver, [Time::ZERO, end])).collect();
    flows.extend(cast.burst.iter().map(|src| Flow::new(*src, receiver, at, p.bytes("bytes"))));
    let own = cast.burst.iter().zip(&cast.receivers[1..]);
    flows.extend(own.map(|(src, dst)| long(*src, *dst, [next, end])));
    let half = |from: Time, to: Time| [from + to.since(from) / 2, to];
    let shared = Disturbed { flows: vec![0, 1], at, reference: half(Time::ZERO, at) };
    let own = |flow| Disturbed { flows: vec![flow], at: next, reference: half(next, end) };
    let links = [shared].into_iter().chain((11..20).map(own)).collect();
    let metric = Some(Metric::Recover(Recover { links }));
    Plan { metric, ..plan(p, Topology::fat_tree(&shape), flows, setup) }
}

/// Senders and one receiver, the last host, at one edge switch.
fn one_switch(p: &Params, senders: u32) -> Topology {
    let topology = Topology::star(senders, p.rate("rate"), p.time("delay"));
    Topology { roles: vec![Role::Edge], ..topology }
}

fn steady(p: &Params, setup: Setup) -> Plan {
    let (senders, end) = (p.count("senders"), Time::ZERO + p.time("time"));
    let topology = one_switch(p, senders);
    let flows = (0..senders).map(|src| long(src, senders, [Time::ZERO, end])).collect();
    let queue = queue_before(&topology, senders);
    let from = Time::ZERO + p.time("time") / 2;
    let metric = Some(Metric::Steady(Steady { queue, from, until: end }));
    Plan { metric, ..plan(p, topology, flows, setup) }
}

fn join(p: &Params, setup: Setup) -> Plan {
    let stage = p.time("stage");
    let at = |n: u32| Time::ZERO + stage * u64::from(n);
    let flows = (0..JOINING).map(|i| long(i, JOINING, [at(i), at(i + JOINING)])).collect();
    let measured = |n: u32| Stage {
        // 20 of 50 ms.
        from: at(n) + stage * 2 / 5,
        until: at(n + 1),
        flows: (0..JOINING).filter(|i| (*i..i + JOINING).contains(&n)).collect(),
    };
    let stages = (0..2 * JOINING - 1).map(measured).collect();
    let metric = Some(Metric::Stages(Stages { stages }));
    Plan { metric, ..plan(p, one_switch(p, JOINING), flows, setup) }
}

fn fct(p: &Params, mut setup: Setup) -> Plan {
    let shape = shape(p);
    let topology = Topology::fat_tree(&shape);
    let hosts = topology.host_count();
    let sizes = Cdf::named(p.word("sizes")).expect("the parameter allows only these");
    let load_permille = p.count("load") * 10;
    let draw = Poisson { hosts, host_rate: shape.host_rate, load_permille, sizes: &sizes };
    let mut rng = Rng::new(setup.seed);
    let pair = |rng: &mut Rng| workload::any_pair(hosts, rng);
    let mut flows = workload::poisson_for(&draw, p.time("time"), &mut rng, pair);
    let counted_from = Time::ZERO + p.time("first");
    flows.iter_mut().for_each(|f| f.group = Some(0).filter(|_| f.start >= counted_from));
    one_message(&mut setup, longest(&flows));
    let groups = Groups { names: vec!["all"], sizes: SIZES.to_vec() };
    Plan { groups, ..plan(p, topology, flows, setup) }
}

fn word(word: &str, of: Vec<&'static str>) -> Value {
    Value::Word { word: word.to_owned(), of }
}

/// How long series go on after the last flow has stopped.
const SERIES_REST: Dur = Dur::from_us(500);
/// The period of PACC's timer.
const PERIOD: Dur = Dur::from_us(80);
/// Flows that join and leave.
const JOINING: u32 = 4;
/// Separates the draws of hosts from others.
const CAST_SEEDS: u64 = 0x7061_6363_6361_7374;
/// Decades, and the two classes of PACC's figures 9 and 10: up to 100 KB and above.
const SIZES: [[u64; 2]; 7] = [
    [0, 10_000],
    [10_000, 100_000],
    [100_000, 1_000_000],
    [1_000_000, 10_000_000],
    [10_000_000, u64::MAX],
    [0, 100_000],
    [100_000, u64::MAX],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Watch;
    use std::collections::BTreeSet;

    fn plan(scenario: &Scenario, seed: u64, set: &[(&str, &str)]) -> Plan {
        scenario.plan(seed, set.iter().copied()).unwrap()
    }

    #[test]
    fn burst__hosts_are_those_of_the_figure_and_drawn_by_the_seed() {
        let mut all = BTreeSet::new();
        for seed in 0..20 {
            let plan = plan(&BURST, seed, &[]);
            assert_eq!(plan.topology.host_count(), 320);
            let edge = |host: u32| host / 16;
            let ends: Vec<(u32, u32)> = plan.flows.iter().map(|f| (f.src, f.dst)).collect();
            let [(a, to_a), (b, to_b), burst @ ..] = &ends[..] else { panic!("{ends:?}") };
            assert!(edge(*a) == edge(*b) && edge(*to_a) == edge(*to_b) && to_a != to_b);
            assert!(burst.len() == 9 && burst.iter().all(|(_, to)| to == to_a));
            let sources: BTreeSet<u32> = ends.iter().map(|(src, _)| *src).collect();
            let edges: BTreeSet<u32> = ends.iter().flat_map(|e| [edge(e.0), edge(e.1)]).collect();
            assert_eq!((sources.len(), edges.len()), (11, 5));
            let Some(Metric::Burst(metric)) = plan.metric else { panic!("{:?}", plan.metric) };
            assert!(metric.queue.starts_with(&format!("edge{}.{}:", to_a / 64, to_a / 16 % 4)));
            all.insert(ends.clone());
        }
        assert_eq!(all.len(), 20);
    }

    #[test]
    fn burst__a_scheme_sets_control_mode_and_marks() {
        for (scheme, sr, int, marks) in [
            ("dcqcn", false, false, true),
            ("timely", false, false, false),
            ("hpcc", true, true, false),
        ] {
            let setup = plan(&BURST, 1, &[("scheme", scheme)]).setup;
            assert!(setup.congestion.algorithm.unwrap().name().starts_with(scheme));
            assert_eq!((setup.offer.sr.is_some(), setup.port.int), (sr, int), "{scheme}");
            assert_eq!(setup.port.queues[0].ecn.is_some(), marks, "{scheme}");
            assert_eq!((setup.full_payload([0, 1]), setup.window_pkts), (1024, 65_536));
        }
    }

    #[test]
    fn plan__full_packets_of_every_scheme_have_the_payload_of_the_mtu() {
        for scheme in Scheme::names() {
            let mut plan = plan(&JOIN, 1, &[("stage", "500us"), ("scheme", scheme)]);
            // HPCC's five hops.
            assert_eq!(plan.setup.int.room_bytes(), 48);
            assert_eq!((plan.setup.mtu.bytes(), plan.setup.full_payload([0, 4])), (1024, 1024));
            plan.setup.message_bytes = 1024 * 100;
            let report = plan.run(Watch::default(), &mut ()).unwrap();
            let count = |name: &str| report.engine.get(name).copied().unwrap_or(0);
            let data = count("tx_packets") - count("tx_acks") - count("np_cnp_sent");
            assert_eq!(count("tx_payload_bytes"), data * 1024, "{scheme}: {:?}", report.engine);
            assert!(data > 1_000, "{scheme}: {data}");
        }
    }

    #[test]
    fn steady__its_metric_needs_no_other_series_and_they_end() {
        let plan = plan(&STEADY, 1, &[("time", "1ms"), ("scheme", "pacc")]);
        let run = |series| plan.run(Watch { series, ..Watch::default() }, &mut ()).unwrap();
        let (with, without) = (run(true), run(false));
        assert!(with.metric.is_some() && with.metric == without.metric, "{:?}", without.metric);
        assert_eq!(with.event_hash, without.event_hash);
        let series = with.series.expect("they were asked for");
        // Local ACK timers expire 67 ms later.
        assert!(series.at_us.last() <= Some(&1_501.0) && with.simulated_us > 10_000.0);
    }

    #[test]
    fn micro__each_sender_of_the_burst_has_a_receiver_of_its_own_afterwards() {
        let plan = plan(&MICRO, 1, &[("hosts", "10")]);
        let (burst, own) = (&plan.flows[2..11], &plan.flows[11..]);
        assert!(burst.iter().zip(own).all(|(b, o)| b.src == o.src && b.dst != o.dst));
        let receivers: BTreeSet<u32> = own.iter().map(|f| f.dst).collect();
        assert_eq!((own.len(), receivers.len()), (9, 9));
    }

    #[test]
    fn join__each_stage_has_the_flows_between_their_start_and_stop() {
        let plan = plan(&JOIN, 1, &[]);
        let Some(Metric::Stages(stages)) = &plan.metric else { panic!("{:?}", plan.metric) };
        let n: Vec<usize> = stages.stages.iter().map(|s| s.flows.len()).collect();
        assert_eq!(n, [1, 2, 3, 4, 3, 2, 1]);
        for stage in &stages.stages {
            for (i, flow) in (0..).zip(&plan.flows) {
                let active = flow.start < stage.from && flow.stops_at >= Some(stage.until);
                assert_eq!(stage.flows.contains(&i), active, "{stage:?} {flow:?}");
            }
        }
    }

    #[test]
    fn fct__flows_before_the_first_that_counts_are_in_no_group() {
        let plan = plan(&FCT, 1, &[("time", "2ms"), ("first", "1ms"), ("pods", "2")]);
        let from = Time::ZERO + Dur::from_ms(1);
        assert!(plan.flows.iter().all(|f| f.group.is_some() == (f.start >= from)));
        assert!(plan.flows.iter().any(|f| f.group.is_none()));
        let message = u64::from(plan.setup.message_bytes);
        assert!(plan.flows.iter().all(|f| f.bytes <= message), "a flow is one message");
        assert_eq!(plan.topology.role(plan.topology.host_count()), Role::Edge);
    }
}
