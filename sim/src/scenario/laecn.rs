//! LAECN's experiments: bursts to the hosts of one leaf, by scheme.

use super::definition::{Scenario, large, longest, one_message};
use super::scheme::Scheme;
use crate::papers::{Bins, Metric};
use crate::params::{Params, Value};
use crate::plan::Plan;
use crate::setup::Setup;
use crate::topology::{LeafSpine, Topology};
use crate::workload::{self, Flow};
use spanwire_base::{Dur, Rate, Rng, Time};
use spanwire_switch::EcnAgentConfig;

/// # Source
/// LAECN II and V-A, figures 2a and 6 (networks `SECN_1` to 4): every fourth host of each leaf
/// sends to leaf 1. Destinations are random hosts there: one alone would leave nothing to tune.
pub(super) const BURST: Scenario = Scenario {
    name: "laecn-burst",
    about: "every fourth host of a leaf-spine network sends to the hosts of one leaf (LAECN)",
    params: |p| {
        common(p)
            .with("hosts", word("48", vec!["12", "24", "36", "48"]), "hosts of each leaf")
            .with("leaves", Value::Count { n: 12, min: 2, max: 12 }, "leaf switches")
            .with("bytes", Value::Bytes(5_000_000), "bytes of each flow")
    },
    plan: burst,
};

/// # Source
/// LAECN V-B, figures 3a and 8a: small flows to leaf 1 in a network of 192 hosts.
pub(super) const SMALL: Scenario = Scenario {
    name: "laecn-small",
    about: "small flows to the hosts of one leaf of a leaf-spine network (LAECN)",
    params: |p| {
        common(p)
            .with("flows", word("168", vec!["42", "84", "126", "168"]), "how many")
            .with("least", Value::Bytes(20_000), "bytes of the smallest flow")
            .with("bytes", Value::Bytes(100_000), "bytes of the largest flow")
            .with("sample", Value::Time(Dur::from_us(10)), "time from one sample to the next")
            .with("bin", Value::Time(Dur::from_us(50)), "bins of the throughput")
    },
    plan: small,
};

/// The common parameters.
fn common(p: Params) -> Params {
    let mtus = vec!["256", "512", "1024", "2048", "4096"];
    let first = Value::Count { n: OWN_PLACE, min: 0, max: OWN_PLACE };
    Scheme::param_of(large(p), SCHEMES)
        .without("rate")
        .without("delay")
        .without("message")
        .without("outstanding")
        .with("mtu", word("1024", mtus), "path MTU in bytes")
        .with("window", Value::count(65_536, 65_536), "outstanding packets of a queue pair")
        .with("buffer", Value::Bytes(32_000_000), "buffer that the ports of a switch share")
        .with("place", first, "marking thresholds by their place in LAECN's list; 45: DCQCN's")
        .with("bin", Value::Time(Dur::from_ms(5)), "bins of the throughput")
        .with("sample", Value::Time(Dur::from_us(500)), "time from one sample to the next")
}

fn burst(p: &Params, setup: Setup) -> Plan {
    let hosts: u32 = p.word("hosts").parse().expect("the parameter allows only numbers");
    let shape = LeafSpine {
        leaves: p.count("leaves"),
        hosts_per_leaf: hosts,
        spines: 6,
        links_per_spine: 1,
        host_rate: HOST_RATE,
        fabric_rate: FABRIC_RATE,
        host_delay: DELAY,
        fabric_delay: DELAY,
    };
    let mut rng = Rng::new(setup.seed ^ CAST_SEEDS);
    let senders = (0..shape.leaves * hosts).step_by(4);
    let flow =
        |src| Flow::new(src, to_first_leaf(src, hosts, &mut rng), Time::ZERO, p.bytes("bytes"));
    let flows = senders.map(flow).collect();
    plan(p, &shape, flows, setup)
}

fn small(p: &Params, setup: Setup) -> Plan {
    let shape = LeafSpine {
        leaves: 8,
        hosts_per_leaf: 24,
        spines: 4,
        links_per_spine: 2,
        host_rate: HOST_RATE,
        fabric_rate: FABRIC_RATE,
        host_delay: DELAY,
        fabric_delay: DELAY,
    };
    let mut rng = Rng::new(setup.seed ^ CAST_SEEDS);
    let mut senders: Vec<u32> = (0..shape.leaves * shape.hosts_per_leaf).collect();
    workload::shuffle(&mut senders, &mut rng);
    let flows: usize = p.word("flows").parse().expect("the parameter allows only numbers");
    let (least, most) = (p.bytes("least").min(p.bytes("bytes")), p.bytes("bytes"));
    let flow = |src: &u32| {
        let bytes = least + rng.below(most - least + 1);
        Flow::new(*src, to_first_leaf(*src, shape.hosts_per_leaf, &mut rng), Time::ZERO, bytes)
    };
    let flows = senders[..flows].iter().map(flow).collect();
    plan(p, &shape, flows, setup)
}

/// A random host of the first leaf, other than the source.
fn to_first_leaf(src: u32, hosts: u32, rng: &mut Rng) -> u32 {
    loop {
        let dst = u32::try_from(rng.below(hosts.into())).expect("below a u32");
        if dst != src {
            return dst;
        }
    }
}

fn plan(p: &Params, shape: &LeafSpine, flows: Vec<Flow>, mut setup: Setup) -> Plan {
    let scheme = Scheme::of(p.word("scheme"));
    scheme.apply(p, &mut setup);
    if let Some(ecn) = EcnAgentConfig::thresholds(p.count("place").into(), MARKS_AT, RTT)
        && let Some(own) = &mut setup.port.queues[0].ecn
    {
        *own = ecn;
    }
    if scheme.has_learned() {
        setup.agents = vec![EcnAgentConfig { rtt: RTT, ..EcnAgentConfig::default() }.into()];
    }
    one_message(&mut setup, longest(&flows));
    let topology = Topology::leaf_spine(shape);
    let first = topology.host_count();
    // From a spine down to the first leaf, which is end a of its links.
    let is_up = |link: &(usize, &crate::topology::Cable)| {
        link.1.a.node == first && !topology.is_host(link.1.b.node)
    };
    let links = topology.links.iter().enumerate().filter(is_up).map(|(n, _)| (n, true)).collect();
    let metric = Some(Metric::Bins(Bins { width: p.time("bin"), links }));
    Plan { metric, ..Plan::new("", topology, flows, setup) }
}

/// A plan of a training: flows in a network whose thresholds are chosen by this agent.
#[cfg(feature = "train")]
pub(super) fn training_plan(
    p: &Params,
    shape: &LeafSpine,
    flows: Vec<Flow>,
    setup: Setup,
    ecn: EcnAgentConfig,
) -> Plan {
    let mut plan = plan(p, shape, flows, setup);
    plan.setup.agents = vec![EcnAgentConfig { rtt: RTT, ..ecn }.into()];
    plan.metric = None;
    plan
}

fn word(word: &str, of: Vec<&'static str>) -> Value {
    Value::Word { word: word.to_owned(), of }
}

/// The schemes of LAECN's figures.
const SCHEMES: &[&str] = &["laecn", "dcqcn", "timely", "hpcc"];
/// The place of DCQCN's own thresholds, after those of the list.
const OWN_PLACE: u64 = 45;
/// The rate for which thresholds are given.
const MARKS_AT: Rate = Rate::from_gbps(25);
/// The round trip for which LAECN's intervals are given.
const RTT: Dur = Dur::from_us(8);
const HOST_RATE: Rate = Rate::from_gbps(25);
const FABRIC_RATE: Rate = Rate::from_gbps(100);
const DELAY: Dur = Dur::from_us(1);
/// Separates the draws of destinations from others.
const CAST_SEEDS: u64 = 0x6c61_6563_6e63_6173;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::MetricReport;
    use crate::run::Watch;

    fn plan(scenario: &Scenario, set: &[(&str, &str)]) -> Plan {
        scenario.plan(1, set.iter().copied()).unwrap()
    }

    #[test]
    fn burst__a_quarter_of_all_hosts_sends_to_the_first_leaf() {
        for (hosts, flows) in [("12", 36), ("24", 72), ("36", 108), ("48", 144)] {
            let plan = plan(&BURST, &[("hosts", hosts)]);
            let most: u32 = hosts.parse().unwrap();
            assert_eq!(plan.flows.len(), flows);
            assert!(plan.flows.iter().all(|f| f.dst < most && f.src != f.dst && f.src % 4 == 0));
            let Some(Metric::Bins(bins)) = &plan.metric else { panic!("{:?}", plan.metric) };
            assert_eq!(bins.links.len(), 6);
        }
    }

    #[test]
    fn small__flows_of_20_to_100_kb_from_different_hosts() {
        let plan = plan(&SMALL, &[]);
        let mut sources: Vec<u32> = plan.flows.iter().map(|f| f.src).collect();
        sources.sort_unstable();
        sources.dedup();
        assert_eq!(sources.len(), 168);
        assert!(plan.flows.iter().all(|f| (20_000..=100_000).contains(&f.bytes) && f.dst < 24));
    }

    #[test]
    fn plan__a_place_in_the_list_sets_thresholds() {
        let ecn = |set: &[(&str, &str)]| {
            let ecn = plan(&BURST, set).setup.port.queues[0].ecn;
            ecn.map(|ecn| (ecn.kmin_bytes, ecn.kmax_bytes))
        };
        assert_eq!(ecn(&[("scheme", "dcqcn")]), Some((100_000, 400_000)));
        assert_eq!(ecn(&[("scheme", "dcqcn"), ("place", "0")]), Some((20_000, 40_000)));
        assert_eq!(ecn(&[("scheme", "timely"), ("place", "0")]), None);
    }

    #[test]
    fn plan__networks_decide_alike_on_every_machine_in_debug_and_release() {
        let small = [("hosts", "12"), ("leaves", "3"), ("bytes", "300kB")];
        let runs = [(&BURST, &small[..], "8a4b35d8e44399df"), (&SMALL, &[("flows", "42")], HASH)];
        for (scenario, set, hash) in runs {
            for _ in 0..2 {
                let report = plan(scenario, set).run(Watch::default(), &mut ()).unwrap();
                assert_eq!(report.event_hash, hash, "{}", scenario.name);
            }
        }
    }

    /// Of `laecn-small` with 42 flows.
    const HASH: &str = "ae4d600ddf833132";

    #[test]
    fn plan__every_scheme_completes_and_is_measured() {
        for scheme in SCHEMES {
            let set = [("hosts", "12"), ("leaves", "3"), ("bytes", "300kB"), ("bin", "50us")];
            let set = set.into_iter().chain([("scheme", *scheme), ("sample", "10us")]);
            let plan = BURST.plan(1, set).unwrap();
            let report = plan.run(Watch::default(), &mut ()).unwrap();
            assert!(report.checkers_ok, "{scheme}: {:?}", report.violations);
            let Some(MetricReport::Bins(bins)) = &report.metric else { panic!("{scheme}") };
            let mean: f64 = report.flows.iter().filter_map(|f| f.fct_us).sum::<f64>() / 9.0;
            assert!(bins.afct_us.is_some_and(|afct| (afct - mean).abs() < 1e-6), "{bins:?}");
            assert!(bins.throughput_gbps.len() > 1 && bins.cv.is_some(), "{bins:?}");
            assert!((0.01..1.0).contains(&bins.link_utilisation), "{bins:?}");
            let sum: f64 = bins.throughput_gbps.iter().sum::<f64>() * 50.0 / 8e-3;
            assert!(sum <= 9.0 * 300_000.0 && sum > 5.0 * 300_000.0, "{sum}");
            assert_eq!(bins.decisions > 0, *scheme == "laecn");
            assert_eq!(bins.flops_decision, bins.decisions * 1024);
            assert_eq!(bins.flops_policy, bins.activations * 32_256);
        }
    }
}
