//! Scenarios in which flows share one queue, limited only by congestion control.

use super::Scenario;
use super::marking::{Marks, mark};
use crate::params::{CcChoice, Params, Value};
use crate::run::Plan;
use crate::setup::Setup;
use crate::sharing::Sharing;
use crate::topology::Topology;
use crate::workload::Flow;
use spanwire_base::{Dur, Rate, Time};
use spanwire_switch::{Impairments, Prob};

pub(super) const SOLO: Scenario = Scenario {
    name: "cc-solo",
    about: "one flow on a link half as fast as its host's, by congestion control",
    params: |p| {
        shared(p, Dur::from_ms(20))
            .with("host_rate", Value::Rate(Rate::from_gbps(200)), "rate of the hosts' links")
            .with("far", Value::Time(FAR), "propagation delay of the shared link")
            .with("loss", Value::Chance(Prob::ZERO), LOSS)
    },
    plan: |p, setup| dumbbell(p, 1, setup),
};

pub(super) const FAIRNESS: Scenario = Scenario {
    name: "cc-fairness",
    about: "flows begin one after another and share a link, by congestion control",
    params: |p| {
        shared(p, Dur::from_ms(60))
            .with("host_rate", Value::Rate(Rate::from_gbps(100)), "rate of the hosts' links")
            .with("far", Value::Time(FAR), "propagation delay of the shared link")
            .with("loss", Value::Chance(Prob::ZERO), LOSS)
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
            .with("senders", Value::count(32, 120), "hosts that send")
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
}

/// `n` flows from left to right, one after another.
fn dumbbell(p: &Params, n: u32, setup: Setup) -> Plan {
    let (rate, hosts) = (p.rate("rate"), p.rate("host_rate"));
    let mut topology = Topology::dumbbell(n, hosts, p.time("delay"), p.time("far"));
    let shared = topology.links.len() - 1;
    let middle = &mut topology.links[shared];
    middle.rate_bps = rate.as_bps();
    let queue = format!("left:{}", middle.a.port);
    let stagger = if n > 1 { p.time("stagger") } else { Dur::ZERO };
    let ends = (0..n).map(|i| (i, n + i, Time::ZERO + stagger * u64::from(i)));
    let plan = plan(p, topology, &ends.collect::<Vec<_>>(), queue, setup);
    match p.chance("loss") {
        Prob::ZERO => plan,
        loss => plan.with_fault(shared, &Impairments { loss, ..Impairments::default() }),
    }
}

fn incast(p: &Params, setup: Setup) -> Plan {
    let senders = p.count("senders");
    let topology = Topology::star(senders, p.rate("rate"), p.time("delay"));
    let ends: Vec<_> = (0..senders).map(|i| (i, senders, Time::ZERO)).collect();
    plan(p, topology, &ends, format!("hub:{senders}"), setup)
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
    let mut plan = plan(p, t, &ends, queue, setup);
    if let Some(sharing) = &mut plan.sharing {
        sharing.far = (intra..n).collect();
    }
    plan
}

/// Flows between the given pairs of hosts, from the given times on, through `queue`.
fn plan(
    p: &Params,
    topology: Topology,
    ends: &[(u32, u32, Time)],
    queue: String,
    mut setup: Setup,
) -> Plan {
    let rate = p.rate("rate");
    let from = ends.iter().map(|(_, _, start)| *start).max().unwrap_or(Time::ZERO);
    let until = from + p.time("time").max(Dur::from_us(10));
    // More than the link can carry.
    let bytes = rate.bytes_in(until.since(Time::ZERO)) * 2 + (1 << 30);
    let flows = ends.iter().map(|(src, dst, start)| Flow::new(*src, *dst, *start, bytes)).collect();
    let marks = Marks::of(p.word("mark"), setup.congestion.algorithm);
    mark(&mut setup, marks, rate);
    let sharing = Sharing {
        queue,
        rate,
        from,
        steady_from: from + p.time("time") / 2,
        smooth: p.time("smooth").max(Dur::from_ns(1)),
        far: Vec::new(),
    };
    let plan = Plan::new("", topology, flows, setup);
    Plan { until, sharing: Some(sharing), ..plan }
}

const LOSS: &str = "random losses of the shared link, in each direction";
/// With [`NEAR`] twice: round trips of 14 us, the length of Uno's inside a datacenter.
const FAR: Dur = Dur::from_ns(4_500);
/// Two links of this: the same round trip.
const NEAR: Dur = Dur::from_ns(3_330);
