//! Scenarios in which flows share one queue, limited only by congestion control.

use super::definition::Scenario;
use super::marking::{Marks, mark, ramp};
use crate::params::{CcChoice, Params, Value};
use crate::plan::{Fault, Plan};
use crate::setup::Setup;
use crate::sharing::Sharing;
use crate::topology::Topology;
use crate::workload::{Flow, FlowOp};
use spanwire_base::{Dur, Rate, Rng, Time};
use spanwire_switch::{Impairments, Prob, Reorder};

pub(super) const SOLO: Scenario = Scenario {
    name: "cc-solo",
    about: "one flow on a link half as fast as its host's, by congestion control",
    params: |p| {
        shared(p, Dur::from_ms(20))
            .with("host_rate", Value::Rate(Rate::from_gbps(200)), "rate of the hosts' links")
            .with("far", Value::Time(FAR), "propagation delay of the shared link")
            .with("paths", Value::count(1, 100), PATHS_ABOUT)
    },
    plan: solo,
};

pub(super) const FAIRNESS: Scenario = Scenario {
    name: "cc-fairness",
    about: "flows begin one after another and share a link, by congestion control",
    params: |p| {
        shared(p, Dur::from_ms(60))
            .with("host_rate", Value::Rate(Rate::from_gbps(100)), "rate of the hosts' links")
            .with("far", Value::Time(FAR), "propagation delay of the shared link")
            .with("flows", Value::count(4, 60), "how many")
            .with("smooth", Value::Time(Dur::from_ms(2)), "rates over time are means over so long")
            .with("stagger", Value::Time(Dur::from_ms(2)), "from one's beginning to the next's")
    },
    plan: |p, setup| dumbbell(p, p.count("flows"), setup),
};

pub(super) const INCAST: Scenario = Scenario {
    name: "cc-incast",
    about: "hosts send to one without end, by congestion control",
    params: |p| {
        shared(p, Dur::from_ms(20))
            .with("delay", Value::Time(NEAR), "propagation delay of every link")
            .with("senders", Value::count(32, 960), "hosts that send")
            .with("pfc", Value::Flag(true), "lossless: switches pause, hosts obey")
            .with("smooth", Value::Time(Dur::from_ms(2)), "rates over time are means over so long")
    },
    plan: incast,
};

pub(super) const MIXED_RTT: Scenario = Scenario {
    name: "cc-mixed-rtt",
    about: "flows from near and from far away share a link, by congestion control",
    params: |p| {
        let about = "congestion control of flows from far away; none: as the others";
        shared(p, Dur::from_ms(200))
            .with("host_rate", Value::Rate(Rate::from_gbps(100)), "rate of the hosts' links")
            .with("far", Value::Time(FAR), "propagation delay of the shared link")
            .with("queue", Value::Bytes(1_000_000), "limit of each switch queue when not lossless")
            .with("intra", Value::count(4, 60), "flows from near")
            .with("inter", Value::count(4, 60), "flows from far away")
            .with("trips", Value::count(128, 10_000), "their round trip, in those of the others")
            .with("cc_inter", Value::Cc(CcChoice::default()), about)
            .with("smooth", Value::Time(Dur::from_ms(4)), "rates over time are means over so long")
            .with("sample", Value::Time(Dur::from_us(50)), "time from one sample to the next")
            .with("outstanding", Value::count(128, 8192), "messages of a flow outstanding at once")
            .with("window", Value::count(32_768, 65_536), "outstanding packets of a queue pair")
            .with("timeout", Value::Time(Dur::from_ms(67)), "local ACK timeout")
    },
    plan: mixed_rtt,
};

/// The common parameters: a shared link of `rate`, flows that are never application-limited, and no
/// limit but congestion control.
fn shared(p: Params, time: Dur) -> Params {
    let word = |word: &str, of: Vec<&'static str>| Value::Word { word: word.to_owned(), of };
    p.without("bytes")
        .with("rate", Value::Rate(Rate::from_gbps(100)), "rate of the shared link")
        .with("mode", word("sr", vec!["rc", "sr"]), "wire mode; marks reach RC as notifications")
        .with("payload", word("elided", vec!["real", "elided"]), "elided: headers only")
        .with("message", Value::Bytes(1 << 20), "longest message, at least 8 bytes")
        .with("outstanding", Value::count(64, 8192), "messages of a flow outstanding at once")
        .with("window", Value::count(8_192, 65_536), "outstanding packets of a queue pair")
        .with("timeout", Value::Time(Dur::from_ms(8)), "local ACK timeout")
        .with("queue", Value::Bytes(4 << 20), "limit of each switch queue when not lossless")
        .with(
            "mark",
            word("fit", Marks::WORDS.to_vec()),
            "congestion signal of switches; fit: the one that cc uses",
        )
        .with("time", Value::Time(time), "how long it runs after the last flow has begun")
        .with("smooth", Value::Time(Dur::from_us(500)), "rates over time are means over so long")
        .with("kmin", Value::Count { n: 0, min: 0, max: 1 << 30 }, "with `kmax`: marks begin here")
        .with("kmax", Value::Count { n: 0, min: 0, max: 1 << 30 }, KMAX_ABOUT)
        .with("loss", Value::Chance(Prob::ZERO), "frames lost on the shared link, each way")
        .with("overtaken", Value::Chance(Prob::ZERO), "frames reordered there, each way")
        .with("late", Value::Time(Dur::from_us(10)), "extra delay of reordered frames")
        .with("op", word("write", vec!["write", "send", "read"]), "operation of the flows")
        .with("jitter", Value::Time(Dur::ZERO), "flows start later by up to this, drawn")
}

/// One flow; through several links between the switches if there are several paths.
fn solo(p: &Params, setup: Setup) -> Plan {
    let paths = p.count("paths");
    if paths == 1 {
        return dumbbell(p, 1, setup);
    }
    let (rate, delay) = (p.rate("rate"), p.time("delay"));
    let mut t = Topology::default();
    let [sender, receiver] = ["sender", "receiver"].map(|name| t.add_host(name));
    let [left, right] = ["left", "right"].map(|name| t.add_switch(name));
    t.connect(sender, left, p.rate("host_rate"), delay);
    (0..paths).for_each(|_| _ = t.connect(left, right, rate, p.time("far")));
    // The bottleneck of all paths together.
    let shared = t.connect(right, receiver, rate, delay);
    let queue = format!("right:{}", t.links[shared].a.port);
    plan(p, t, &[(0, 1, Time::ZERO)], (shared, queue), setup)
}

/// `n` flows from left to right, one after another.
fn dumbbell(p: &Params, n: u32, setup: Setup) -> Plan {
    let (rate, hosts) = (p.rate("rate"), p.rate("host_rate"));
    let mut topology = Topology::dumbbell(n, hosts, p.time("delay"), p.time("far"));
    let shared = topology.links.len() - 1;
    let middle = topology.links.last_mut().expect("a dumbbell has a shared link");
    middle.rate_bps = rate.as_bps();
    let queue = format!("left:{}", middle.a.port);
    let stagger = if n > 1 { p.time("stagger") } else { Dur::ZERO };
    let ends = (0..n).map(|i| (i, n + i, Time::ZERO + stagger * u64::from(i)));
    plan(p, topology, &ends.collect::<Vec<_>>(), (shared, queue), setup)
}

fn incast(p: &Params, setup: Setup) -> Plan {
    let senders = p.count("senders");
    let (rate, delay) = (p.rate("rate"), p.time("delay"));
    let topology = match senders <= STAR_MAX {
        true => Topology::star(senders, rate, delay),
        false => tree(senders, rate, delay),
    };
    let shared = topology.links.len() - 1;
    let hub = topology.links[shared];
    let port = if topology.is_host(hub.a.node) { hub.b.port } else { hub.a.port };
    let ends: Vec<_> = (0..senders).map(|i| (i, senders, Time::ZERO)).collect();
    plan(p, topology, &ends, (shared, format!("hub:{port}")), setup)
}

/// Senders at leaf switches, each as fast to the hub as its hosts together, and one receiver, the
/// last host, at the hub.
fn tree(senders: u32, rate: Rate, delay: Dur) -> Topology {
    let mut t = Topology::default();
    (0..=senders).for_each(|host| _ = t.add_host(format!("h{host}")));
    let hub = t.add_switch("hub");
    for first in (0..senders).step_by(LEAF as usize) {
        let leaf = t.add_switch(format!("leaf{}", first / LEAF));
        (first..senders.min(first + LEAF)).for_each(|host| _ = t.connect(host, leaf, rate, delay));
        let uplink = Rate::from_bps(rate.as_bps().saturating_mul(LEAF.into()));
        t.connect(leaf, hub, uplink, Dur::ZERO);
    }
    t.connect(senders, hub, rate, delay);
    t
}

/// Near senders at the left switch, far senders at a switch behind it, receivers at the right
/// switch.
fn mixed_rtt(p: &Params, mut setup: Setup) -> Plan {
    let (intra, inter) = (p.count("intra"), p.count("inter"));
    let (rate, hosts, delay) = (p.rate("rate"), p.rate("host_rate"), p.time("delay"));
    let n = intra + inter;
    let mut t = Topology::default();
    (0..2 * n).for_each(|host| _ = t.add_host(format!("h{host}")));
    let [left, right, away] = ["left", "right", "away"].map(|name| t.add_switch(name));
    for host in 0..2 * n {
        let at = if host < intra {
            left
        } else if host < n {
            away
        } else {
            right
        };
        t.connect(host, at, hosts, delay);
    }
    let shared = t.connect(left, right, rate, p.time("far"));
    // As fast as all flows that cross it, so that it is not the bottleneck.
    let trunk = Rate::from_bps(hosts.as_bps().saturating_mul(inter.into()));
    let trunk = t.connect(away, left, trunk, Dur::ZERO);
    let queue = format!("left:{}", t.links[shared].a.port);
    let routes = t.routes();
    let rtt = |t: &Topology, src: u32| {
        let path = t.path(&routes, src, n + src).expect("all hosts are connected");
        setup.base_rtt([src, n + src], &path)
    };
    let near = rtt(&t, 0);
    let longer =
        (near * u64::from(p.count("trips"))).as_ps().saturating_sub(rtt(&t, intra).as_ps());
    t.links[trunk].delay_ps = longer / 2;
    if let Some(algorithm) = p.cc("cc_inter").algorithm() {
        setup.congestion.far = Some((near * 2, algorithm));
    }
    let ends: Vec<_> = (0..n).map(|i| (i, n + i, Time::ZERO)).collect();
    let mut plan = plan(p, t, &ends, (shared, queue), setup);
    if let Some(sharing) = &mut plan.sharing {
        sharing.far = (intra..n).collect();
    }
    plan
}

/// Flows between the given pairs of hosts, from the given times on, through a link and the queue
/// before it.
fn plan(
    p: &Params,
    topology: Topology,
    ends: &[(u32, u32, Time)],
    (shared, queue): (usize, String),
    mut setup: Setup,
) -> Plan {
    let rate = p.rate("rate");
    let mut starts = ends.iter().map(|(_, _, start)| *start).collect::<Vec<_>>();
    delay_starts(&mut starts, p.time("jitter"), setup.seed);
    let from = starts.iter().copied().max().unwrap_or(Time::ZERO);
    let until = from + p.time("time").max(Dur::from_us(10));
    // More than the link can carry.
    let bytes = rate.bytes_in(until.since(Time::ZERO)) * 2 + (1 << 30);
    let op = match p.word("op") {
        "read" => FlowOp::Read,
        "send" => FlowOp::Send,
        _ => FlowOp::Write,
    };
    let flow = |((src, dst, _), start): (&(u32, u32, Time), Time)| {
        let flow = Flow::new(*src, *dst, start, bytes);
        Flow { op, ..flow }
    };
    let flows = ends.iter().zip(starts).map(flow).collect();
    let marks = Marks::of(p.word("mark"), setup.congestion.algorithm);
    mark(&mut setup, marks, rate);
    if p.count("kmax") > 0 {
        ramp(&mut setup, p.count("kmin").into(), p.count("kmax").into());
    }
    let sharing = Sharing {
        queue,
        rate,
        from,
        steady_from: from + p.time("time") / 2,
        smooth: p.time("smooth").max(Dur::from_ns(1)),
        far: Vec::new(),
    };
    let faults = faults(p, shared);
    Plan { until, faults, sharing: Some(sharing), ..Plan::new("", topology, flows, setup) }
}

/// Delays each start by a time below `jitter`.
fn delay_starts(starts: &mut [Time], jitter: Dur, seed: u64) {
    if jitter > Dur::ZERO {
        let mut rng = Rng::new(seed ^ START_SEEDS);
        starts.iter_mut().for_each(|at| *at += Dur::from_ps(rng.below(jitter.as_ps())));
    }
}

/// Loss and reordering of a link, each way; empty without any.
fn faults(p: &Params, link: usize) -> Vec<Fault> {
    let (loss, probability) = (p.chance("loss"), p.chance("overtaken"));
    if loss.is_zero() && probability.is_zero() {
        return Vec::new();
    }
    let reorder = Reorder { probability, extra_delay: p.time("late") };
    let reorder = Some(reorder).filter(|_| !probability.is_zero());
    let impairments = Impairments { loss, reorder, ..Impairments::default() };
    [false, true]
        .map(|backwards| Fault { link, backwards, impairments: impairments.clone() })
        .into()
}

const PATHS_ABOUT: &str = "links between the switches; the receiver's link is as slow as one";
const KMAX_ABOUT: &str = "bytes in a queue from which every packet is marked; 0: as `mark` says";
/// Senders of a star: a switch has at most 128 ports.
const STAR_MAX: u32 = 120;
/// Senders at a leaf switch.
const LEAF: u32 = 32;
/// Separates the draws of starts from others.
const START_SEEDS: u64 = 0x7374_6172_7473_2121;
/// With [`NEAR`] twice: round trips of 14 us, the length of Uno's inside a datacenter.
const FAR: Dur = Dur::from_ns(4_500);
/// Two links of this: the same round trip.
const NEAR: Dur = Dur::from_ns(3_330);
