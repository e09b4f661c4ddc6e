//! Reflex's experiments: completion times of flows within and between two datacenters.

use super::definition::{Scenario, large, longest, one_message, with_agents};
use crate::groups::Groups;
use crate::papers::Metric;
use crate::params::{CcChoice, Params, Value};
use crate::plan::Plan;
use crate::record::to_f64;
use crate::setup::{AgentSetup, RoleSetup, Setup};
use crate::topology::{Role, Topology};
use crate::workload::{self, Cdf, Flow, Poisson};
use spanwire_base::{Dur, Rate, Rng, Time};
use spanwire_cc::Algorithm;
use spanwire_switch::{Human as _, NdtConfig, NsfConfig, Ratio};

/// # Source
/// Reflex II and IV, figures 1, 2, 6, 7 and 8.
pub(super) const FCT: Scenario = Scenario {
    name: "reflex-fct",
    about: "completion times within and between two datacenters 500 us apart (Reflex)",
    params: |p| common(p).with("cc", Value::Cc(named("timely-vwin")), CC_ABOUT),
    plan: |p, setup| plan(p, p.cc("cc").algorithm(), setup),
};

/// # Source
/// Reflex II, figure 3.
pub(super) const THRESHOLDS: Scenario = Scenario {
    name: "reflex-thresholds",
    about: "the same under TIMELY with thresholds above the long round trip (Reflex)",
    params: |p| {
        common(p)
            .with("cc", Value::Cc(named("timely-vwin")), CC_ABOUT)
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
        .with("inter", per_cent(20), "part of it that is between both, in per cent")
        .with("intra_load", per_cent(0), "load within, instead of its part of `load`; 0: that part")
        .with("inter_load", per_cent(0), "load between both, as `intra_load`")
        .with("time", Value::Time(Dur::from_ms(31)), "flows start before")
        .with("first", Value::Time(Dur::ZERO), "flows that start before do not count")
        .with("sizes", word("websearch", Cdf::names().collect()), "distribution of sizes")
        .with("intra_sizes", word(SAME, own_sizes()), "sizes within; `same` as `sizes`")
        .with("inter_sizes", word(SAME, own_sizes()), "sizes between both; `same` as `sizes`")
        .with("border_buffer", Value::Bytes(BORDER_BUFFER), "buffer of the border switches")
        .with("buffer", Value::Bytes(BUFFER), "buffer of the leaves and spines")
        .with("pfc_alpha", word("1/8", ALPHAS.to_vec()), "PFC's threshold, part of the free buffer")
        .with("pfc_resume", Value::Bytes(3_072), "distance below it at which sending resumes")
        .with(
            "inter_target",
            word("hops", vec!["hops", "rtt"]),
            "Swift's target between both without NSF: that of the paper, or above the round trip",
        )
        .with(
            "inter_min_rate",
            Value::Rate(Rate::from_bps(350_000_000)),
            "lowest rate of Swift between both with `inter_target=hops`",
        )
        .with("mtu", word("1024", mtus), "path MTU in bytes")
        .with("window", Value::count(65_536, 65_536), "outstanding packets of a queue pair")
        .without("message")
        .without("outstanding")
        .with("sample", Value::Time(Dur::from_ms(1)), "time from one sample to the next")
}

fn plan(p: &Params, algorithm: Option<Algorithm>, mut setup: Setup) -> Plan {
    set_buffer(p, &mut setup);
    let agents = Agents::of(p.word("reflex"));
    setup.agents = agents.setups(algorithm);
    setup.congestion.algorithm = algorithm.map(|algorithm| tuned(algorithm, own(&algorithm)));
    setup.congestion.far = algorithm
        .and_then(|algorithm| far(p, algorithm, agents.nsf, setup.mtu.bytes()))
        .map(|algorithm| (FAR_RTT_MIN, algorithm));
    let border = border(p.bytes("border_buffer"), &setup);
    setup.roles.insert(Role::Border, border);
    let topology = Topology::reflex();
    let flows = flows(p, setup.seed, topology.host_count());
    // One message a flow: no limit of outstanding messages is below the bandwidth-delay product.
    one_message(&mut setup, longest(&flows));
    let groups = Groups { names: vec!["intra", "inter"], sizes: SIZES.to_vec() };
    let metric = agents.ndt.then_some(Metric::Isolated);
    Plan { groups, metric, ..Plan::new("", topology, flows, setup) }
}

/// The flows of both classes, in the order of their starts.
fn flows(p: &Params, seed: u64, hosts: u32) -> Vec<Flow> {
    let each = hosts / 2;
    let pair = |is_inter: bool| {
        move |rng: &mut Rng| {
            let (src, dst) = workload::any_pair(each, rng);
            let dc = each * workload::below(rng, 2);
            // Between datacenters any host may be the destination, also that of the same place.
            let far = each - dc + workload::below(rng, each);
            (dc + src, if is_inter { far } else { dc + dst })
        }
    };
    let (mut all, mut seeds) = (Vec::new(), Rng::new(seed));
    for (group, class) in (0..).zip(&Class::both(p)) {
        let Class { load_permille, sizes } = class;
        // The flows of a class do not depend on the other one.
        let mut rng = seeds.fork();
        let draw = Poisson { hosts, host_rate: HOST_RATE, load_permille: *load_permille, sizes };
        if *load_permille > 0 {
            let flows = workload::poisson_for(&draw, p.time("time"), &mut rng, pair(group == 1));
            let is_counted = |flow: &Flow| flow.start >= Time::ZERO + p.time("first");
            let of_group =
                |flow: Flow| Flow { group: Some(group).filter(|_| is_counted(&flow)), ..flow };
            all.extend(flows.into_iter().map(of_group));
        }
    }
    all.sort_by_key(|flow| flow.start);
    all
}

/// A class of traffic: within the datacenters, or between both.
struct Class {
    load_permille: u32,
    sizes: Cdf,
}

impl Class {
    /// Traffic within, and between both.
    ///
    /// # Source
    /// Reflex gives the total load only. A fifth of it between both is 1008 flows at 70 % in 31 ms,
    /// the number that follows from its ablation (130 flows are 12.9 %).
    fn both(p: &Params) -> [Self; 2] {
        let all = p.count("load") * 10;
        let inter = all * p.count("inter") / 100;
        let class = |load: &str, part: u32, sizes: &str| {
            let load_permille = Some(p.count(load) * 10).filter(|own| *own > 0).unwrap_or(part);
            let word = Some(p.word(sizes)).filter(|word| *word != SAME);
            let named = Cdf::named(word.unwrap_or(p.word("sizes")));
            Self { load_permille, sizes: named.expect("the parameter allows only these") }
        };
        [class("intra_load", all - inter, "intra_sizes"), class("inter_load", inter, "inter_sizes")]
    }
}

/// The buffers of leaves and spines, and where ports of all switches pause.
fn set_buffer(p: &Params, setup: &mut Setup) {
    setup.buffer_bytes = p.bytes("buffer");
    for queue in &mut setup.port.queues {
        queue.limit_bytes = setup.buffer_bytes;
    }
    if let Some(pfc) = &mut setup.port.pfc {
        pfc.alpha = Ratio::parse(p.word("pfc_alpha")).expect("a test sets each");
        pfc.resume_offset_bytes = p.bytes("pfc_resume");
    }
}

/// Border switches. The long link has no PFC: a pause would take effect 200 MB later. Therefore
/// their buffer takes all bursts of the other datacenter, or the network would not be lossless.
fn border(buffer_bytes: u64, setup: &Setup) -> RoleSetup {
    let mut port = setup.port.clone();
    for queue in &mut port.queues {
        queue.limit_bytes = queue.limit_bytes.max(buffer_bytes);
    }
    RoleSetup { port: Some(port), buffer_bytes: Some(buffer_bytes) }
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
        nsf.map(AgentSetup::from).into_iter().chain(ndt.map(AgentSetup::from)).collect()
    }
}

/// The algorithm of flows between the datacenters, if it differs from that of the others.
fn far(p: &Params, algorithm: Algorithm, has_near: bool, mtu: u32) -> Option<Algorithm> {
    match (algorithm, has_near) {
        // Round trips are those to the border. The first window is a bandwidth-delay product of
        // this loop, 77 packets: from that of the path, seven halvings would pass before a sender
        // slows down.
        (Algorithm::Timely(_) | Algorithm::Swift(_), true) => {
            let set = own(&algorithm).iter().chain(&[NEAR_BASE]).copied().collect::<Vec<_>>();
            Some(tuned(algorithm, &set))
        }
        (Algorithm::Swift(_), false) if p.word("inter_target") == "rtt" => {
            Some(tuned(algorithm, SWIFT_FAR))
        }
        // The paper's target is below the long round trip, so each round trip halves the window.
        // But the first one is the bandwidth-delay product of the path: "these flows complete
        // transmission before the first ACK arrives, [...] transmitting at line rate" (II-C).
        (Algorithm::Swift(_), false) => {
            let bytes = p.rate("inter_min_rate").bytes_in(FAR_RTT).max(1);
            let pkts = format!("{:.3}", to_f64(bytes) / f64::from(mtu));
            let set = SWIFT.iter().copied().chain([("min_pkts", pkts.as_str())]);
            Some(tuned(algorithm, &set.collect::<Vec<_>>()))
        }
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

fn per_cent(n: u64) -> Value {
    Value::Count { n, min: 0, max: 100 }
}

/// Distributions of a class.
fn own_sizes() -> Vec<&'static str> {
    [SAME].into_iter().chain(Cdf::names()).collect()
}

fn word(word: &str, of: Vec<&'static str>) -> Value {
    Value::Word { word: word.to_owned(), of }
}

/// # Source
/// Thresholds of 50 and 500 us: TIMELY's authors and HPCC's artifact, which also divides gradients
/// by 20 us. It has TIMELY without a window and with one.
const TIMELY: &[(&str, &str)] =
    &[("low_us", "50"), ("high_us", "500"), ("min_rtt_us", "20"), ("window_rtts", "0")];
/// # Source
/// Reflex IV: 0.2 us and 1 us a hop. These count hops in both directions: 2 us for each hop of one
/// direction, and 2.4 us of serialisation. The first window is a bandwidth-delay product.
const SWIFT: &[(&str, &str)] =
    &[("base_target_us", "2.6"), ("hop_us", "2"), ("initial_pkts", "100000")];
/// Flows between the datacenters, if Swift were adapted to them: the target follows from the base
/// round trip of the path.
const SWIFT_FAR: &[(&str, &str)] = &[("hop_us", "2"), ("initial_pkts", "100000")];
/// The round trip to the border without queues: six links of 1 us, and three times the time of a
/// packet and a pseudo-ACK at 100 Gbit/s.
const NEAR_BASE: (&str, &str) = ("near_base_us", "6.3");
/// The round trip of flows between the datacenters without queues.
const FAR_RTT: Dur = Dur::from_us(1_012);
/// # Source
/// HPCC's artifact, in whose rule a port has headroom for three bandwidth-delay products of its
/// link, besides the shared 32 MB.
const BORDER_BUFFER: u64 = 332_000_000;
/// # Source
/// HPCC's artifact, also for the threshold of an eighth.
const BUFFER: u64 = 32_000_000;
/// Thresholds of PFC, as parts of a shared buffer's free bytes.
const ALPHAS: [&str; 7] = ["1/8", "1/4", "1/2", "1", "2", "4", "8"];
/// The distribution of a class is that of both.
const SAME: &str = "same";
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
    use spanwire_cc::{Controller as _, Path, PseudoAck};
    use spanwire_switch::AgentConfig;

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
        let window = timely.replace("window_rtts=0", "window_of=base,window_rtts=1");
        let window = window.replace("min_rtt", "min_rate=0.001,min_rtt");
        assert_eq!(text("timely-vwin"), window);
        assert_eq!(text("timely-classic,low_us=70"), timely.replace("=50,", "=70,"));
        assert_eq!(text("swift"), "base_target_us=2.6,hop_us=2,initial_pkts=100000");
        assert_eq!(text("hpcc"), "");
    }

    #[test]
    fn fct__swift_s_target_of_far_flows_is_the_paper_s_or_follows_from_the_round_trip() {
        let set_of = |target, rtt, field: &str| {
            let set = [("cc", "swift"), ("inter_target", target), ("time", "1ms")];
            let congestion = plan_of(&FCT, &set).setup.congestion;
            let algorithm = congestion.of(rtt).algorithm.unwrap();
            let set = algorithm.differences(&Algorithm::named("swift").unwrap());
            set.into_iter().find(|(f, _)| *f == field).map(|(_, text)| text)
        };
        let (near, far) = (Dur::from_us(8), Dur::from_us(1_012));
        for (target, base, least) in [("hops", Some("2.6"), Some("43.237")), ("rtt", None, None)] {
            assert_eq!(set_of(target, near, "base_target_us").as_deref(), Some("2.6"));
            assert_eq!(set_of(target, far, "base_target_us").as_deref(), base, "{target}");
            // 350 Mbit/s for 1012 us are 43.237 packets.
            assert_eq!(set_of(target, far, "min_pkts").as_deref(), least, "{target}");
            assert_eq!(set_of(target, near, "min_pkts"), None, "{target}");
        }
        let timely = plan_of(&FCT, &[("time", "1ms")]).setup.congestion;
        assert!(timely.far.is_none(), "one TIMELY for both");
    }

    #[test]
    fn fct__no_flow_is_capped_below_the_bandwidth_delay_product_of_the_long_path() {
        let rtt = FAR_RTT;
        let bdp = HOST_RATE.bytes_in(rtt);
        assert_eq!(bdp, 12_650_000);
        let all = ["timely-classic", "swift"].map(|cc| ["off", "nsf"].map(|reflex| (cc, reflex)));
        for (cc, reflex) in all.concat() {
            let set = [("cc", cc), ("reflex", reflex), ("sizes", "websearch")];
            let plan = plan_of(&FCT, &set);
            let setup = &plan.setup;
            // One message a flow; 64 Ki packets of it.
            assert_eq!(setup.outstanding, 1);
            let most = plan.flows.iter().map(|flow| flow.bytes).max().unwrap();
            assert!(u64::from(setup.message_bytes) == most && most > bdp, "{most}");
            assert!(u64::from(setup.window_pkts) * u64::from(setup.mtu.bytes()) > bdp);
            // The first window of the control, before any feedback. TIMELY has none, which would
            // cap bursts.
            let path = Path { mtu_bytes: 1024, line_rate: HOST_RATE, base_rtt: Some(rtt) };
            let control = setup.congestion.of(rtt).algorithm.unwrap().start(&path);
            let cwnd = control.cwnd_bytes();
            match cc {
                "swift" => assert!(cwnd.abs_diff(bdp) <= 1024, "{cc}, {reflex}: {cwnd}"),
                _ => assert_eq!(cwnd, u64::MAX, "{cc}, {reflex}"),
            }
        }
    }

    #[test]
    fn fct__with_pseudo_acks_swift_begins_with_the_window_of_the_near_loop() {
        let plan = plan_of(&FCT, &[("cc", "swift"), ("reflex", "nsf"), ("time", "1ms")]);
        let path = Path { mtu_bytes: 1024, line_rate: HOST_RATE, base_rtt: Some(FAR_RTT) };
        let mut control = plan.setup.congestion.of(FAR_RTT).algorithm.unwrap().start(&path);
        // The second of two halvings, each a near round trip after the one before, is at a quarter
        // of the line. From the 12,353 packets of the path, both would leave it at the line rate.
        for us in [20, 200] {
            let rtt = Dur::from_us(100);
            let near = PseudoAck { rtt, sent_at: Time::ZERO, sent_bytes: 0, hops: Some(2) };
            control.on_pseudo_ack(Time::ZERO + Dur::from_us(us), &near);
        }
        let rate = control.rate().unwrap();
        assert!(rate < Rate::from_gbps(25), "{rate:?}");
    }

    #[test]
    fn flows__classes_have_loads_and_sizes_of_their_own() {
        let flows = |set: &[(&str, &str)]| plan_of(&FCT, set).flows;
        let of = |flows: &[Flow], group| -> Vec<Flow> {
            flows.iter().copied().filter(|flow| flow.group == Some(group)).collect()
        };
        let all = flows(&[("load", "50")]);
        assert!(all.is_sorted_by_key(|flow| flow.start));
        let own = flows(&[
            ("load", "50"),
            ("inter_load", "20"),
            ("inter_sizes", "fb_hadoop"),
            ("sizes", "websearch"),
        ]);
        assert_eq!(of(&all, 0), of(&own, 0), "one class does not depend on the other");
        // 31 ms of 32 hosts at 100 Gbit/s.
        let load = |flows: &[Flow]| {
            let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
            bytes * 100 / (HOST_RATE.bytes_in(Dur::from_ms(31)) * 32)
        };
        assert!((35..=45).contains(&load(&of(&all, 0))), "{}", load(&of(&all, 0)));
        assert!((7..=13).contains(&load(&of(&all, 1))), "{}", load(&of(&all, 1)));
        assert!((18..=22).contains(&load(&of(&own, 1))), "{}", load(&of(&own, 1)));
        let longest = |flows: &[Flow]| flows.iter().map(|flow| flow.bytes).max();
        assert!(longest(&of(&own, 1)) < longest(&of(&own, 0)), "fb_hadoop ends at 10 MB");
        assert!(of(&flows(&[("inter", "0"), ("time", "2ms")]), 1).is_empty());
        assert!(of(&flows(&[("inter", "100"), ("time", "2ms")]), 0).is_empty());
    }

    #[test]
    fn border__its_buffer_takes_what_arrives_in_a_round_trip_of_the_long_link() {
        let plan = plan_of(&FCT, &[("time", "1ms")]);
        let long = Rate::from_gbps(1600).bytes_in(Dur::from_ms(1));
        assert!(plan.setup.buffer_of(Role::Border) > long);
        assert_eq!(plan.setup.buffer_of(Role::Leaf), 32_000_000);
        let port = plan.setup.port_of(Role::Border, HOST_RATE);
        assert!(port.queues[0].limit_bytes > long && port.pfc.is_some());
        let own = plan_of(&FCT, &[("time", "1ms"), ("border_buffer", "40MB")]);
        assert_eq!(own.setup.buffer_of(Role::Border), 40_000_000);
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
        let interval = |cc| match &of(cc, "nsf").setup.agents[0].config {
            AgentConfig::Nsf(nsf) => nsf.interval,
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
