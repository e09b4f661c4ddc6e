//! MLCC's experiments: flows between two datacenters 3 ms apart, beside flows within each.

use super::definition::{Scenario, large};
use super::marking::{Marks, mark};
use crate::papers::{Dci, IntraStage, Metric};
use crate::params::{CcChoice, Params, Value};
use crate::plan::Plan;
use crate::setup::{RoleSetup, Setup, Telemetry};
use crate::topology::{Role, Topology};
use crate::workload::{self, Flow, long};
use spanwire_base::{Dur, Rate, Rng, Time, usize_from};
use spanwire_cc::Algorithm;
use spanwire_switch::{EcnConfig, FlowsConfig, MlccConfig, QueueConfig};
use spanwire_wire::{INT_MAX_HOPS, IntFormat};

/// # Source
/// MLCC II, figure 2.
pub(super) const FIG2: Scenario = Scenario {
    name: "mlcc-fig2",
    about: "four flows from another datacenter join one each at four hosts (MLCC)",
    params: |p| common(p, Dur::from_ms(30), Dur::from_us(10)),
    plan: |p, setup| joined(p, setup, Pattern::Pairs, false),
};

/// # Source
/// MLCC II, figure 3: flows share one spine, since otherwise the links suffice for all.
pub(super) const FIG3: Scenario = Scenario {
    name: "mlcc-fig3",
    about: "four flows to another datacenter join four within, one after another (MLCC)",
    params: |p| {
        let spacing = Value::Time(Dur::from_ms(1));
        common(p, Dur::from_ms(40), Dur::from_us(100)).with(
            "spacing",
            spacing,
            "from the start of one flow that crosses to the next",
        )
    },
    plan: |p, setup| sender_side(p, setup, true),
};

/// # Source
/// MLCC II, figure 4.
pub(super) const FIG4: Scenario = Scenario {
    name: "mlcc-fig4",
    about: "eight flows from another datacenter to one host (MLCC)",
    params: |p| common(p, Dur::from_ms(100), Dur::from_us(100)),
    plan: |p, setup| joined(p, setup, Pattern::OneHost(8), false),
};

/// # Source
/// MLCC IV-B, figure 7.
pub(super) const FIG7: Scenario = Scenario {
    name: "mlcc-fig7",
    about: "flows to another datacenter share a link of their own (MLCC)",
    params: |p| starts(common(p, Dur::from_ms(40), Dur::from_us(50))),
    plan: |p, setup| sender_side(p, setup, false),
};

/// # Source
/// MLCC IV-B, figure 8.
pub(super) const FIG8: Scenario = Scenario {
    name: "mlcc-fig8",
    about: "flows from another datacenter share the link of one host (MLCC)",
    params: |p| starts(common(p, Dur::from_ms(100), Dur::from_us(100))),
    plan: |p, setup| {
        let is_staggered = p.word("start") == "staggered";
        joined(p, setup, Pattern::OneHost(4), is_staggered)
    },
};

/// # Source
/// MLCC IV-C, figure 9.
pub(super) const FIG9: Scenario = Scenario {
    name: "mlcc-fig9",
    about: "the queue of four flows from another datacenter, at once (MLCC)",
    params: |p| common(p, Dur::from_ms(200), Dur::from_us(100)),
    plan: |p, setup| joined(p, setup, Pattern::Pairs, false),
};

/// # Source
/// MLCC IV-C, figure 10.
pub(super) const FIG10: Scenario = Scenario {
    name: "mlcc-fig10",
    about: "the queue of four flows from another datacenter, one after another (MLCC)",
    params: |p| {
        let spacing = Value::Time(Dur::from_ms(20));
        common(p, Dur::from_ms(180), Dur::from_us(100)).with(
            "spacing",
            spacing,
            "from the start of one flow that crosses to the next",
        )
    },
    plan: |p, setup| joined(p, setup, Pattern::Pairs, true),
};

fn common(p: Params, time: Dur, sample: Dur) -> Params {
    let word = |word: &str, of| Value::Word { word: word.to_owned(), of };
    let hops = Value::Count { n: INT_HOPS, min: 1, max: INT_MAX_HOPS.into() };
    let mtus = vec!["256", "512", "1024", "2048", "4096"];
    large(p)
        .without("cc")
        .without("bytes")
        .without("rate")
        .without("delay")
        .with("mode", word("sr", vec!["sr"]), "wire mode; telemetry needs SR")
        .with("scheme", word(SCHEMES[0], SCHEMES.to_vec()), "congestion control and its signal")
        .compared_by("scheme")
        .with("theta", Value::Time(Dur::from_ms(18)), "time in which MLCC removes an excess")
        .with("target", Value::Time(Dur::from_ms(1)), "D_t, the queueing delay that MLCC keeps")
        .with("law", word("hpcc", vec!["hpcc", "powertcp"]), "the law of MLCC's short loops")
        .with("dqm", word(DQM[0], DQM.to_vec()), "the form of MLCC's queue management")
        .with("cross", Value::Count { n: 4, min: 1, max: 32 }, "flows that cross")
        .with("far", Value::Time(Dur::from_ms(3)), "delay of the long link")
        .with("time", Value::Time(time), "when flows stop to post messages")
        .with("dci_mark", Value::Bytes(10_000_000), "Kmin of DCQCN at DCI ports; Kmax is 4 times")
        .with("int_hops", hops, "switches whose telemetry a packet has room for")
        .with("mtu", word("1024", mtus), "path MTU in bytes")
        .with("window", Value::count(32_768, 65_536), "outstanding packets of a queue pair")
        .with("message", Value::Bytes(16 << 20), "longest message, at least 8 bytes")
        .with("outstanding", Value::count(4, 8192), "messages of a flow outstanding at once")
        .with("buffer", Value::Bytes(22_000_000), "buffer that the ports of a switch share")
        .with("dci_buffer", Value::Bytes(128_000_000), "buffer of DCI switches")
        .with("timeout", Value::Time(Dur::from_ms(67)), "local ACK timeout")
        .with("sample", Value::Time(sample), "time from one sample to the next")
}

fn starts(p: Params) -> Params {
    let of = vec!["together", "staggered"];
    p.with("start", Value::Word { word: "together".to_owned(), of }, "how flows that cross begin")
        .with("spacing", Value::Time(Dur::from_ms(1)), "from one start to the next, if staggered")
}

/// Where flows that cross go.
#[derive(Clone, Copy)]
enum Pattern {
    /// To one host each, which also receives a flow of its own datacenter.
    Pairs,
    /// So many to one host, with nothing beside them.
    OneHost(u32),
}

/// Flows that meet in the receivers' datacenter.
fn joined(p: &Params, setup: Setup, pattern: Pattern, is_staggered: bool) -> Plan {
    let racks = Racks::draw(setup.seed);
    let end = Time::ZERO + p.time("time");
    let (mut flows, cross) = (
        Vec::new(),
        match pattern {
            Pattern::Pairs => p.count("cross"),
            Pattern::OneHost(n) => n * p.count("cross") / 4,
        },
    );
    let host = |rack, place| racks.host(rack, place);
    if let Pattern::Pairs = pattern {
        let intra = |n| long(host(4, n), host(5, n), [INTRA_START, end]);
        flows.extend((0..cross).map(intra));
    }
    let spacing = if is_staggered { p.time("spacing") } else { Dur::ZERO };
    let start = |n: u32| CROSS_START + spacing * u64::from(n);
    flows.extend((0..cross).map(|n| match pattern {
        Pattern::Pairs => long(host(0, n), host(5, n), [start(n), end]),
        // The first half from one rack, the others from another.
        Pattern::OneHost(_) => {
            let src = if n < cross.div_ceil(2) { host(0, n) } else { host(3, n) };
            long(src, host(5, 0), [start(n), end])
        }
    }));
    let fair_gbps = match pattern {
        Pattern::Pairs => HOST_GBPS / 2.0,
        Pattern::OneHost(_) => HOST_GBPS / f64::from(cross.max(1)),
    };
    let starts = [CROSS_START, start(cross.saturating_sub(1))];
    plan(p, setup, Topology::mlcc(p.time("far")), flows, |dci| Dci { starts, fair_gbps, ..dci })
}

/// Flows that meet in the senders' datacenter, on the links of one spine.
fn sender_side(p: &Params, setup: Setup, has_intra: bool) -> Plan {
    let racks = Racks::draw(setup.seed);
    let end = Time::ZERO + p.time("time");
    let host = |rack, place| racks.host(rack, place);
    let intra = if has_intra { 4 } else { 0 };
    // Without flows within, twice as many as the link carries.
    let cross = if has_intra { p.count("cross") } else { 2 * p.count("cross") };
    let mut flows: Vec<Flow> =
        (0..intra).map(|n| long(host(0, n), host(1, n), [INTRA_START, end])).collect();
    let is_staggered = has_intra || p.word("start") == "staggered";
    let spacing = if is_staggered { p.time("spacing") } else { Dur::ZERO };
    let start = |n: u32| CROSS_START + spacing * u64::from(n);
    flows.extend((0..cross).map(|n| long(host(0, intra + n), host(4, n), [start(n), end])));
    let payload = setup_payload_part(p);
    let stage = |n: u32| {
        let from = if n == 0 { INTRA_START } else { start(n - 1) };
        let until = if n == cross { end } else { start(n) };
        let share = (FABRIC_GBPS / f64::from(intra + n)).min(HOST_GBPS);
        let fair_gbps = share * f64::from(intra) * payload;
        // Of the last stage all that follows a round trip of the datacenter; of the others the
        // second half.
        let from = if n == cross { from } else { from + until.since(from) / 2 };
        IntraStage { from, until, fair_gbps }
    };
    let stages = if has_intra { (0..=cross).map(stage).collect() } else { Vec::new() };
    let starts = [CROSS_START, start(cross.saturating_sub(1))];
    let fair_gbps = FABRIC_GBPS / f64::from(intra + cross);
    let metric = |dci| Dci { starts, fair_gbps, stages, intra: (0..intra).collect(), ..dci };
    plan(p, setup, Topology::mlcc_of(1, p.time("far")), flows, metric)
}

fn plan(
    p: &Params,
    mut setup: Setup,
    topology: Topology,
    mut flows: Vec<Flow>,
    metric: impl FnOnce(Dci) -> Dci,
) -> Plan {
    workload::jitter(&mut flows, setup.seed);
    apply(p, &mut setup);
    let far = p.time("far");
    let until = Time::ZERO + p.time("time");
    let dci = metric(Dci {
        switch: "dc1.dci".to_owned(),
        starts: [CROSS_START; 2],
        way: far + INNER_WAY,
        rtt_d: INNER_WAY * 2,
        until,
        fair_gbps: HOST_GBPS,
        intra: Vec::new(),
        stages: Vec::new(),
    });
    let metric = Some(Metric::Dci(dci));
    // What was posted until the end is still to arrive.
    Plan { metric, series_until: until, ..Plan::new("", topology, flows, setup) }
}

/// Configures the scheme: congestion control of hosts, and signals of switches.
fn apply(p: &Params, setup: &mut Setup) {
    let scheme = p.word("scheme");
    let hops = u8::try_from(p.count("int_hops")).expect("at most 16");
    setup.int = Telemetry { hops, format: IntFormat::Compact, on_top: true };
    let named = |name: &str| {
        let choice = CcChoice::parse(name).expect("a test parses each");
        choice.algorithm().expect("a test starts each")
    };
    let is_mlcc = scheme.starts_with("mlcc");
    setup.congestion.algorithm = Some(match scheme {
        "dcqcn" => named("dcqcn-ns3"),
        "timely" => named("timely-ns3"),
        "powertcp" => named("powertcp"),
        "hpcc" => named("hpcc"),
        // With the increase of MLCC's own law, 80 bytes: shares are in proportion to it.
        _ => named("hpcc,flows=47"),
    });
    match scheme {
        "timely" => {}
        "dcqcn" => mark(setup, Marks::Dcqcn, MARKS_AT),
        _ => setup.port.int = true,
    }
    setup.marks_at = Some(MARKS_AT);
    if is_mlcc {
        setup.congestion.far = Some((FAR_RTT_MIN, mlcc(p)));
        let initial = Some(Rate::from_gbps(25));
        let config = MlccConfig { rtt_d: INNER_WAY * 2, initial, ..MlccConfig::default() };
        setup.agents = vec![config.into()];
    }
    setup.roles.insert(Role::Border, dci(p, setup, is_mlcc));
}

/// MLCC of hosts with the parameters of the scenario.
fn mlcc(p: &Params) -> Algorithm {
    let us = |time: Dur| {
        let ns = time.as_ns();
        format!("{}.{:03}", ns / 1000, ns % 1000)
    };
    let theta = p.time("theta").as_ns();
    let mut algorithm = Algorithm::named("mlcc").expect("it is known");
    let mut set = |name: &str, value: &str| {
        algorithm.set(name, value).expect("the ranges of the scenario's parameters are narrower");
    };
    set("rtt_c_us", &us((p.time("far") + INNER_WAY * 2) * 2));
    set("rtt_d_us", &us(INNER_WAY * 2));
    set("theta_ms", &format!("{}.{:06}", theta / 1_000_000, theta % 1_000_000));
    set("target_us", &us(p.time("target")));
    set("law", p.word("law"));
    set("dqm", p.word("dqm"));
    match p.word("scheme") {
        // The near-source loop alone.
        "mlcc-ns" => {
            set("credit_loop", "false");
            set("dqm", "off");
        }
        // The credit loop alone.
        "mlcc-credit" => {
            set("near_loop", "false");
            set("dqm", "off");
        }
        "mlcc-nodqm" => set("dqm", "off"),
        _ => {}
    }
    algorithm
}

/// DCI switches. Without PFC on the long link their buffer takes all bursts of the other
/// datacenter.
fn dci(p: &Params, setup: &Setup, is_mlcc: bool) -> RoleSetup {
    let mut port = setup.port.clone();
    let buffer = p.bytes("dci_buffer");
    let queue: &mut QueueConfig = &mut port.queues[0];
    queue.limit_bytes = buffer;
    if queue.ecn.is_some() {
        // Of a port of the links between switches, scaled back.
        let kmin = p.bytes("dci_mark") / 4;
        queue.ecn = Some(EcnConfig::red(kmin.max(1), 4 * kmin.max(1), PMAX));
    }
    if is_mlcc {
        let (max_flows, rate) = (1024, None);
        let (limit_bytes, quantum_bytes) = (None, 2048);
        queue.flows = Some(FlowsConfig { max_flows, rate, limit_bytes, quantum_bytes });
    }
    RoleSetup { port: Some(port), buffer_bytes: Some(buffer) }
}

/// The hosts of all racks, in an order that the seed draws. With their addresses it decides the
/// paths.
struct Racks(Vec<Vec<u32>>);

impl Racks {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ CAST_SEEDS);
        let rack = |rack: u32| {
            let mut hosts: Vec<u32> = (rack * RACK..(rack + 1) * RACK).collect();
            workload::shuffle(&mut hosts, &mut rng);
            hosts
        };
        Self((0..RACKS).map(rack).collect())
    }

    fn host(&self, rack: u32, place: u32) -> u32 {
        self.0[usize_from(rack.into())][usize_from((place % RACK).into())]
    }
}

/// The payload of full packets as a part of what a link carries, without telemetry.
fn setup_payload_part(p: &Params) -> f64 {
    let mtu: f64 = p.word("mtu").parse().expect("only numbers are offered");
    mtu / (mtu + SR_HEADERS)
}

const SCHEMES: &[&str] =
    &["mlcc", "dcqcn", "timely", "hpcc", "powertcp", "mlcc-ns", "mlcc-credit", "mlcc-nodqm"];
const DQM: &[&str] = &["smoothed", "credit", "printed", "off"];
/// Racks of both datacenters.
const RACKS: u32 = 8;
/// Hosts of a rack.
const RACK: u32 = 32;
/// From a host to the DCI switch of its datacenter: 1, 5 and 5 us.
const INNER_WAY: Dur = Dur::from_us(11);
const HOST_GBPS: f64 = 25.0;
const FABRIC_GBPS: f64 = 100.0;
/// Ethernet, IPv4, UDP, BTH, SR and ICRC.
const SR_HEADERS: f64 = 82.0;
/// Six switches are on the way between the datacenters.
const INT_HOPS: u64 = 6;
/// The rate of hosts' ports, for which thresholds of DCQCN are given.
const MARKS_AT: Rate = Rate::from_gbps(25);
const PMAX: spanwire_switch::Prob = spanwire_switch::Prob::from_ppm(200_000);
/// Between the round trips within a datacenter and between both.
const FAR_RTT_MIN: Dur = Dur::from_us(300);
/// # Source
/// MLCC II.
const INTRA_START: Time = Time::from_ns(1_000_000);
const CROSS_START: Time = Time::from_ns(2_000_000);
/// Separates the draws of hosts from others.
const CAST_SEEDS: u64 = 0x6d6c_6363_6361_7374;

#[cfg(test)]
mod tests;
