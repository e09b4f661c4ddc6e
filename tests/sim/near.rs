//! Reflex's near loop as users get it: calibrated, on the network of `docs/examples/reflex.sh`,
//! whose bottleneck of 200 Mbit/s is before the border, and the other datacenter 20 ms away.

use spanwire_base::{Dur, Rate, Time};
use spanwire_cc::Algorithm;
use spanwire_sim::workload::Flow;
use spanwire_sim::{AgentSetup, HostModel, Plan, Report, Role, Setup, Topology, Watch};
use spanwire_switch::NsfConfig;
use spanwire_transport::{Config, Mtu, Offer, Preset};

const FAST: Rate = Rate::from_gbps(10);
const LINK: Rate = Rate::from_bps(200_000_000);
const HOPS: Dur = Dur::from_us(100);
/// The senders between and within, and their receivers.
const BETWEEN: [u32; 2] = [0, 3];
const WITHIN: [u32; 2] = [1, 2];

/// `hosts` is the rate of the senders' links, and `trunk` that of the link to the border.
fn network([hosts, trunk]: [Rate; 2]) -> Topology {
    let mut t = Topology::default();
    let [far_sender, sender, near, far] = ["n0", "n1", "near", "far"].map(|name| t.add_host(name));
    let leaf = t.add_switch_as(Role::Leaf, "leaf");
    let [border, other] = ["border", "other"].map(|name| t.add_switch_as(Role::Border, name));
    for host in [far_sender, sender] {
        t.connect(host, leaf, hosts, HOPS);
    }
    t.connect(leaf, border, trunk, HOPS);
    t.connect(border, near, FAST, HOPS);
    t.connect(border, other, FAST, Dur::from_ms(10));
    t.connect(other, far, FAST, HOPS);
    t
}

/// Runs flows between such hosts, with the near loop of `cc` if `near` is its base, in us. A user
/// gives it, since a sender cannot know the border.
fn run(cc: &str, near: &str, host: &str, rates: [Rate; 2], flows: Vec<Flow>) -> Report {
    let named = |text: &str| Algorithm::parse(text).expect("it is known");
    let far = if near.is_empty() { cc.to_owned() } else { format!("{cc},near_base_us={near}") };
    let mut setup = Setup {
        seed: 1,
        offer: Offer::of(&Config::default(), Some(1_408)),
        mtu: Mtu::B1024,
        elided: true,
        message_bytes: 65_536,
        outstanding: 16,
        window_pkts: 16_384,
        timeout: Dur::from_ms(67),
        host: HostModel::named(host),
        ..Setup::default()
    };
    setup.congestion.algorithm = Some(named(cc));
    setup.congestion.far = Some((Dur::from_ms(5), named(&far)));
    setup.congestion.preset = Preset::Calibrated;
    setup.congestion.measures_rtt = true;
    // The times of docs/examples/reflex.toml. Clocks agree here.
    let (threshold, interval) = (Dur::from_us(1_200), Dur::from_us(2_500));
    setup.agents =
        vec![AgentSetup::from(NsfConfig { threshold, interval, ..NsfConfig::default() })];
    let report = Plan::new("near", network(rates), flows, setup).run(Watch::default(), &mut ());
    let report = report.expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{cc}, {host}");
    report
}

fn flow([src, dst]: [u32; 2], start: Time, bytes: u64) -> Flow {
    Flow::new(src, dst, start, bytes)
}

fn fct_ms(report: &Report, flow: usize) -> f64 {
    report.flows[flow].fct_us.expect("it completes") / 1e3
}

fn count(report: &Report, name: &str) -> u64 {
    report.engine.get(name).copied().unwrap_or(0)
}

/// 40 MB take 1.6 s at the rate of the link.
const BYTES: u64 = 40_000_000;

#[test]
fn near__a_flow_alone_fills_its_bottleneck_before_the_border() {
    for cc in ["swift", "timely"] {
        // With the time that it takes to find the rate; other processes cost more.
        for (host, most_ms) in [("ideal", 2_000.0), ("veth", 2_000.0), ("busy", 2_200.0)] {
            let one = || vec![flow(BETWEEN, Time::ZERO, BYTES)];
            let report = run(cc, "600", host, [FAST, LINK], one());
            let ms = fct_ms(&report, 0);
            assert!(ms < most_ms, "{cc}, {host}: {ms} ms");
            assert!(count(&report, "rp_pseudo_acks") > 0, "it makes a queue: {cc}, {host}");
            assert_eq!(count(&report, "spurious_lost_packets"), 0, "{cc}, {host}");

            // Its own link is the bottleneck, and no switch has a queue.
            let report = run(cc, "600", host, [LINK, FAST], one());
            let ms = fct_ms(&report, 0);
            assert!(ms < most_ms, "{cc}, {host}: {ms} ms at its own link");
            // Other hosts are late by more than the threshold.
            let reported = count(&report, "rp_pseudo_acks");
            assert!(host != "ideal" || reported == 0, "{cc}: {reported}");
            assert_eq!(count(&report, "spurious_lost_packets"), 0, "{cc}, {host}");
        }
    }
}

/// Without feedback a flow within has a sixteenth of the link. It gains nothing if acknowledgements
/// grow the other one before the switch reports again, 2.5 ms later.
#[test]
fn near__a_flow_from_afar_leaves_room_for_one_within() {
    for cc in ["swift", "timely"] {
        let within = |near| {
            let at = |ms| Time::ZERO + Dur::from_ms(ms);
            let flows = vec![flow(WITHIN, at(1_000), BYTES / 4), flow(BETWEEN, at(0), 5 * BYTES)];
            fct_ms(&run(cc, near, "veth", [FAST, LINK], flows), 0)
        };
        let [without, with, early] = ["", "600", "600,near_every_us=1500"].map(within);
        assert!(with < 0.5 * without, "{cc}: {with} ms with Reflex, {without} without");
        assert!(early > 0.9 * without, "{cc}: {early} ms, {without} without");
    }
}
