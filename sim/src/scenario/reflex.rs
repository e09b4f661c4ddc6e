//! Reflex's experiments: completion times of flows within and between two datacenters.

use super::definition::{Scenario, large, longest, one_message, with_agents};
use crate::groups::Groups;
use crate::papers::Metric;
use crate::params::{CcChoice, Params, Value};
use crate::plan::Plan;
use crate::setup::{AgentSetup, Setup};
use crate::topology::Topology;
use crate::workload::{self, Cdf, Poisson};
use spanwire_base::{Dur, Rate, Rng, Time};
use spanwire_cc::Algorithm;
use spanwire_switch::{NdtConfig, NsfConfig};

/// # Source
/// Reflex II and IV, figures 1, 2, 6, 7 and 8.
pub(super) const FCT: Scenario = Scenario {
    name: "reflex-fct",
    about: "completion times within and between two datacenters 500 us apart (Reflex)",
    params: |p| common(p).with("cc", Value::Cc(named("timely-classic")), CC_ABOUT),
    plan: |p, setup| plan(p, p.cc("cc").algorithm(), setup),
};

/// # Source
/// Reflex II, figure 3.
pub(super) const THRESHOLDS: Scenario = Scenario {
    name: "reflex-thresholds",
    about: "the same under TIMELY with thresholds above the long round trip (Reflex)",
    params: |p| {
        common(p)
            .with("cc", Value::Cc(named("timely-classic")), CC_ABOUT)
            .with("low", Value::Time(Dur::from_us(1_000)), "TIMELY's low threshold")
            .with("high", Value::Time(Dur::from_us(1_100)), "TIMELY's high threshold")
    },
    plan: |p, setup| {
        let mut algorithm = p.cc("cc").algorithm();
        if let Some(timely @ Algorithm::Timely(_)) = &mut algorithm {
            for (field, name) in [("low_us", "low"), ("high_us", "high")] {
                let us = p.time(name).as_us().min(THRESHOLD_MAX_US);
                timely.set(field, &us.to_string()).expect("in the range of both");
            }
        }
        plan(p, algorithm, setup)
    },
};

fn common(p: Params) -> Params {
    let mtus = vec!["256", "512", "1024", "2048", "4096"];
    with_agents(large(p))
        .without("bytes")
        .without("rate")
        .without("delay")
        .with("mode", word("sr", vec!["sr", "rc"]), "wire mode; Reflex needs SR")
        .with("reflex", word("off", REFLEX.to_vec()), "agents of the border switches")
        .compared_by("reflex")
        .with("load", Value::count(70, 100), "per cent of what all hosts can send")
        .with("inter", Value::Count { n: 20, min: 0, max: 100 }, "flows between both, in per cent")
        .with("time", Value::Time(Dur::from_ms(31)), "flows start before")
        .with("first", Value::Time(Dur::ZERO), "flows that start before do not count")
        .with("sizes", word("websearch", Cdf::names().collect()), "distribution of sizes")
        .with("mtu", word("1024", mtus), "path MTU in bytes")
        .with("window", Value::count(65_536, 65_536), "outstanding packets of a queue pair")
        .without("message")
        .without("outstanding")
        .with("sample", Value::Time(Dur::from_ms(1)), "time from one sample to the next")
}

fn plan(p: &Params, algorithm: Option<Algorithm>, mut setup: Setup) -> Plan {
    let agents = Agents::of(p.word("reflex"));
    setup.agents = agents.setups(algorithm);
    setup.congestion.algorithm = algorithm.map(|algorithm| tuned(algorithm, own(&algorithm)));
    setup.congestion.far = algorithm
        .and_then(|algorithm| far(algorithm, agents.nsf))
        .map(|algorithm| (FAR_RTT_MIN, algorithm));
    let topology = Topology::reflex();
    let hosts = topology.host_count();
    let sizes = Cdf::named(p.word("sizes")).expect("the parameter allows only these");
    let load_permille = p.count("load") * 10;
    let draw = Poisson { hosts, host_rate: HOST_RATE, load_permille, sizes: &sizes };
    let inter = u64::from(p.count("inter"));
    let each = hosts / 2;
    let pair = |rng: &mut Rng| {
        let is_inter = rng.below(100) < inter;
        let (src, dst) = workload::any_pair(each, rng);
        let dc = each * workload::below(rng, 2);
        // Between datacenters any host may be the destination, also that of the same place.
        let far = each - dc + workload::below(rng, each);
        (dc + src, if is_inter { far } else { dc + dst })
    };
    let mut rng = Rng::new(setup.seed);
    let mut flows = workload::poisson_for(&draw, p.time("time"), &mut rng, pair);
    for flow in &mut flows {
        let is_counted = flow.start >= Time::ZERO + p.time("first");
        let is_inter = flow.src / each != flow.dst / each;
        flow.group = Some(u8::from(is_inter)).filter(|_| is_counted);
    }
    one_message(&mut setup, longest(&flows));
    let groups = Groups { names: vec!["intra", "inter"], sizes: SIZES.to_vec() };
    let metric = agents.ndt.then_some(Metric::Isolated);
    Plan { groups, metric, ..Plan::new("", topology, flows, setup) }
}

/// The agents of the border switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Agents {
    nsf: bool,
    ndt: bool,
}

impl Agents {
    /// Those of the parameter's word.
    fn of(word: &str) -> Self {
        let both = word == "on";
        Self { nsf: both || word == "nsf", ndt: both || word == "ndt" }
    }

    /// With the parameters of Reflex IV, and the interval of pseudo-ACKs for the algorithm.
    fn setups(self, algorithm: Option<Algorithm>) -> Vec<AgentSetup> {
        let interval = match algorithm {
            Some(Algorithm::Swift(_)) => Dur::from_us(3),
            _ => Dur::from_us(5),
        };
        let nsf = self.nsf.then(|| NsfConfig { interval, ..NsfConfig::default() });
        let ndt = self.ndt.then(NdtConfig::default);
        nsf.map(AgentSetup::Nsf).into_iter().chain(ndt.map(AgentSetup::Ndt)).collect()
    }
}

/// The algorithm of flows between the datacenters, if it differs from that of the others.
fn far(algorithm: Algorithm, has_near: bool) -> Option<Algorithm> {
    match (algorithm, has_near) {
        // Round trips are those to the border.
        (Algorithm::Timely(_) | Algorithm::Swift(_), true) => {
            let set = own(&algorithm).iter().chain(&[NEAR_BASE]).copied().collect::<Vec<_>>();
            Some(tuned(algorithm, &set))
        }
        // A target below the long round trip would keep the window at its minimum.
        (Algorithm::Swift(_), false) => Some(tuned(algorithm, SWIFT_FAR)),
        _ => None,
    }
}

/// The parameters of Reflex's simulations for this algorithm.
fn own(algorithm: &Algorithm) -> &'static [(&'static str, &'static str)] {
    match algorithm {
        Algorithm::Timely(_) => TIMELY,
        Algorithm::Swift(_) => SWIFT,
        _ => &[],
    }
}

/// The algorithm with these parameters, except for those that were set.
fn tuned(mut algorithm: Algorithm, own: &[(&str, &str)]) -> Algorithm {
    let plain = Algorithm::named(algorithm.name()).expect("its own name");
    let set = algorithm.differences(&plain);
    for (field, text) in own.iter().filter(|(field, _)| set.iter().all(|(f, _)| f != field)) {
        algorithm.set(field, text).expect("a test sets each");
    }
    algorithm
}

fn named(name: &str) -> CcChoice {
    CcChoice::named(name).expect("it is known")
}

fn word(word: &str, of: Vec<&'static str>) -> Value {
    Value::Word { word: word.to_owned(), of }
}

/// # Source
/// Thresholds of 50 and 500 us: TIMELY's authors and HPCC's artifact, which also divides gradients
/// by 20 us and has no window.
const TIMELY: &[(&str, &str)] =
    &[("low_us", "50"), ("high_us", "500"), ("min_rtt_us", "20"), ("window_rtts", "0")];
/// # Source
/// Reflex IV: 0.2 us and 1 us a hop. These count hops in both directions: 2 us for each hop of one
/// direction, and 2.4 us of serialisation. The first window is a bandwidth-delay product.
const SWIFT: &[(&str, &str)] =
    &[("base_target_us", "2.6"), ("hop_us", "2"), ("initial_pkts", "100000")];
/// Flows between the datacenters: the target follows from the base round trip of the path.
const SWIFT_FAR: &[(&str, &str)] = &[("hop_us", "2"), ("initial_pkts", "100000")];
/// The round trip to the border without queues: six links of 1 us, and three times the time of a
/// packet and a pseudo-ACK at 100 Gbit/s.
const NEAR_BASE: (&str, &str) = ("near_base_us", "6.3");
/// Values of the parameter `reflex`.
const REFLEX: &[&str] = &["off", "on", "nsf", "ndt"];
/// Between the round trips within a datacenter, 8 us, and between both, 1012 us.
const FAR_RTT_MIN: Dur = Dur::from_us(100);
const HOST_RATE: Rate = Rate::from_gbps(100);
/// The upper end of both thresholds' ranges.
const THRESHOLD_MAX_US: u64 = 1_000_000;
const CC_ABOUT: &str = "congestion control; TIMELY and Swift have Reflex's parameters unless set";
/// Decades, and around the bandwidth-delay product of the long path, 12.5 MB.
const SIZES: [[u64; 2]; 8] = [
    [0, 10_000],
    [10_000, 100_000],
    [100_000, 1_000_000],
    [1_000_000, 10_000_000],
    [10_000_000, u64::MAX],
    [0, 1_000_000],
    [1_000_000, 12_500_000],
    [12_500_000, u64::MAX],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Role;

    fn plan_of(scenario: &Scenario, set: &[(&str, &str)]) -> Plan {
        scenario.plan(1, set.iter().copied()).unwrap()
    }

    #[test]
    fn fct__a_fifth_of_the_flows_is_between_the_datacenters() {
        let plan = plan_of(&FCT, &[]);
        let dc = |host: u32| host / 16;
        for flow in &plan.flows {
            assert_eq!(flow.group, Some(u8::from(dc(flow.src) != dc(flow.dst))), "{flow:?}");
        }
        let inter = plan.flows.iter().filter(|f| f.group == Some(1)).count();
        // The paper has 1008 at 70 %.
        assert!((900..1_120).contains(&inter), "{inter} of {}", plan.flows.len());
        let message = u64::from(plan.setup.message_bytes);
        assert!(plan.flows.iter().all(|f| f.bytes <= message), "a flow is one message");
        let borders = (32..plan.topology.node_count())
            .filter(|node| plan.topology.role(*node) == Role::Border)
            .count();
        assert_eq!(borders, 2);
    }

    #[test]
    fn tuned__has_the_paper_s_parameters_except_for_those_set() {
        let text = |cc: &str| {
            let algorithm = CcChoice::parse(cc).unwrap().algorithm().unwrap();
            let algorithm = tuned(algorithm, own(&algorithm));
            let plain = Algorithm::named(algorithm.name()).unwrap();
            let mut all = algorithm.differences(&plain);
            all.sort_unstable();
            all.iter().map(|(f, v)| format!("{f}={v}")).collect::<Vec<_>>().join(",")
        };
        let timely = "high_us=500,low_us=50,min_rtt_us=20,patched=false,window_rtts=0";
        assert_eq!(text("timely-classic"), timely);
        assert_eq!(text("timely-classic,low_us=70"), timely.replace("=50,", "=70,"));
        assert_eq!(text("swift"), "base_target_us=2.6,hop_us=2,initial_pkts=100000");
        assert_eq!(text("hpcc"), "");
    }

    #[test]
    fn fct__swift_s_target_exceeds_the_round_trip_of_far_flows() {
        let of = |cc| plan_of(&FCT, &[("cc", cc), ("time", "1ms")]).setup.congestion;
        let base_target = |rtt| {
            let algorithm = of("swift").of(rtt).algorithm.unwrap();
            let set = algorithm.differences(&Algorithm::named("swift").unwrap());
            set.into_iter().find(|(field, _)| *field == "base_target_us").map(|(_, text)| text)
        };
        assert_eq!(base_target(Dur::from_us(8)).as_deref(), Some("2.6"));
        assert_eq!(base_target(Dur::from_us(1_012)), None, "it follows from the round trip");
        assert!(of("timely-classic").far.is_none());
    }

    #[test]
    fn fct__only_far_flows_follow_pseudo_acks() {
        let of = |cc, reflex| plan_of(&FCT, &[("cc", cc), ("reflex", reflex), ("time", "1ms")]);
        for cc in ["timely-classic", "swift", "timely-classic,near_ack=none"] {
            for (reflex, agents, is_near) in
                [("off", 0, false), ("ndt", 1, false), ("nsf", 1, true), ("on", 2, true)]
            {
                let plan = of(cc, reflex);
                let near_base = |rtt| {
                    let algorithm = plan.setup.congestion.of(rtt).algorithm.unwrap();
                    let plain = Algorithm::named(algorithm.name()).unwrap();
                    let set = algorithm.differences(&plain);
                    set.into_iter().find(|(field, _)| *field == "near_base_us").map(|(_, us)| us)
                };
                assert_eq!(near_base(Dur::from_us(8)), None, "{cc}, {reflex}");
                let far = near_base(Dur::from_us(1_012));
                assert_eq!(far.as_deref(), is_near.then_some("6.3"), "{cc}, {reflex}");
                assert_eq!(plan.setup.agents.len(), agents, "{cc}, {reflex}");
            }
        }
        let interval = |cc| match &of(cc, "nsf").setup.agents[..] {
            [AgentSetup::Nsf(nsf)] => nsf.interval,
            others => panic!("{others:?}"),
        };
        assert_eq!(["timely-classic", "swift"].map(interval), [5, 3].map(Dur::from_us));
    }

    #[test]
    fn fct__reflex_in_rc_is_refused_with_the_reason() {
        let error = FCT.plan(1, [("reflex", "nsf"), ("mode", "rc")]).unwrap_err().to_string();
        assert!(error.contains("mode") && error.contains("Reflex needs sr"), "{error}");
        assert!(FCT.plan(1, [("mode", "rc"), ("time", "1ms")]).is_ok());
    }

    #[test]
    fn thresholds__are_those_of_the_parameters() {
        let plan = plan_of(&THRESHOLDS, &[("high", "2ms"), ("time", "1ms")]);
        let algorithm = plan.setup.congestion.algorithm.unwrap();
        let set = algorithm.differences(&Algorithm::named("timely").unwrap());
        let value = |field| set.iter().find(|(f, _)| *f == field).map(|(_, v)| v.as_str());
        assert_eq!((value("low_us"), value("high_us")), (Some("1000"), Some("2000")));
    }
}
