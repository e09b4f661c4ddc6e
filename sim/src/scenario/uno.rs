//! Uno's failure experiments: flows between two datacenters over dead or lossy border links, by
//! load balancer, with and without erasure coding; and messages over one lossy WAN.

use super::definition::{Scenario, large, one_message};
use crate::measure::Measure;
use crate::params::{CcChoice, Params, Value};
use crate::plan::{Fault, Plan};
use crate::setup::Setup;
use crate::topology::Topology;
use crate::workload::{Flow, FlowOp};
use spanwire_base::{Dur, Rate, Time};
use spanwire_switch::{BlockLoss, BurstLoss, Impairments, Interval, PhantomConfig, Prob, Ratio};

/// # Source
/// Uno (SC'25), figure 13A and its artifact: eight flows of 5 MB, one of the eight border links
/// dead from the beginning.
pub(super) const FIG13A: Scenario = Scenario {
    name: "uno-fig13a",
    about: "eight flows between two datacenters, one of eight border links is dead (Uno)",
    params: |p| failures(p).with("dead", word("forward", DEAD), DEAD_ABOUT),
    plan: |p, setup| between(p, &PAIRS, setup),
};

/// # Source
/// Uno, figure 13B: one flow and the losses of table 1. The artifact's script of that name kills a
/// border link instead; this scenario follows the paper.
pub(super) const FIG13B: Scenario = Scenario {
    name: "uno-fig13b",
    about: "one flow between two datacenters, border links lose packets of a block (Uno)",
    params: |p| failures(p).with("loss", word("setup1", LOSS), LOSS_ABOUT),
    plan: |p, setup| between(p, &PAIRS[..1], setup),
};

/// # Source
/// Uno, figure 13C and its artifact: eight flows of 35 MB, an iteration of an all-reduce, over a
/// round trip of 7.1 ms, with a dead link and the losses of table 1; 10.4 ms would be ideal.
pub(super) const FIG13C: Scenario = Scenario {
    name: "uno-fig13c",
    about: "an all-reduce between two datacenters, one border link dead, the others lossy (Uno)",
    params: |p| {
        failures(p)
            .with("bytes", Value::Bytes(35_000_000), "bytes of each flow")
            .with("far", Value::Time(Dur::from_us(3_546)), "delay of the border links")
            .with("phantom", Value::Bytes(89_602_060), "size of the phantom queues")
            .with("window", Value::count(32_768, 65_536), "outstanding packets of a queue pair")
            .with("timeout", Value::Time(Dur::from_ms(16)), "local ACK timeout")
            .with("dead", word("forward", DEAD), DEAD_ABOUT)
            .with("loss", word("setup1", LOSS), LOSS_ABOUT)
            .with("ideal", Value::Time(Dur::from_us(10_400)), IDEAL_ABOUT)
    },
    plan: |p, setup| between(p, &PAIRS, setup),
};

/// Consecutive messages over a lossy WAN.
pub(super) const WAN: Scenario = Scenario {
    name: "uno-wan",
    about: "latency of consecutive messages over a lossy WAN",
    params: |p| {
        unorc(large(p))
            .with("bytes", Value::Bytes(5 << 20), "bytes of each message")
            .with("count", Value::count(200, 1_000_000), "messages")
            .with("rtt", Value::Time(Dur::from_ms(40)), "the round trip")
            .with("rate", Value::Rate(Rate::from_gbps(25)), "rate of every link")
            .with("timeout", Value::Time(Dur::from_ms(134)), "local ACK timeout")
            .with("paths", Value::count(8, 100), "parallel links")
            .with("loss", Value::Chance(Prob::from_ppm(10_000)), "frames lost, each way")
            .with("burst", Value::count(1, 1_000), "frames lost in a row, on average")
            .with("segment", Value::Count { n: 8_192, min: 0, max: 65_280 }, SEGMENT_ABOUT)
            .without("delay")
            .without("message")
            .without("outstanding")
    },
    plan: wan,
};

/// A copy over several parallel links, one of which fails midway.
pub(super) const FAILOVER: Scenario = Scenario {
    name: "uno-failover",
    about: "inter-delivery times of a copy over four WAN links, one of which fails",
    params: |p| {
        unorc(large(p))
            .with("bytes", Value::Bytes(64 << 20), "bytes of the flow")
            .with("message", Value::Bytes(256 << 10), "bytes of each message")
            .with("outstanding", Value::count(8, 8192), "messages outstanding at once")
            .with("rtt", Value::Time(Dur::from_ms(10)), "the round trip")
            .with("rate", Value::Rate(Rate::from_bps(200_000_000)), "rate of the hosts' links")
            .with("trunk_rate", Value::Rate(Rate::from_gbps(1)), "rate of the links between")
            .with("paths", Value::count(4, 100), "parallel links")
            .with("queue", Value::Bytes(500_000), "limit of each switch queue")
            .with("window", Value::count(250, 65_536), "outstanding packets of a queue pair")
            .with("cc", Value::Cc(CcChoice::default()), "congestion control")
            .with("mtu", Value::Word { word: "1024".to_owned(), of: MTUS.to_vec() }, "path MTU")
            .with("segment", Value::Count { n: 1_408, min: 0, max: 65_280 }, SEGMENT_ABOUT)
            .with("timeout", Value::Time(Dur::from_ms(67)), "local ACK timeout")
            .with("dies", Value::Time(Dur::from_secs(1)), "when the first link dies, both ways")
            .without("delay")
    },
    plan: failover,
};

/// Common parameters of figure 13's experiments.
fn failures(p: Params) -> Params {
    unorc(large(p))
        .with("bytes", Value::Bytes(5_000_000), "bytes of each flow, which is one message")
        .with("trunk", Value::count(8, 100), "links between the datacenters")
        .with("far", Value::Time(Dur::from_ns(886_500)), "delay of the border links")
        .with("queue", Value::Bytes(1_000_000), "limit of each switch queue")
        .with("phantom", Value::Bytes(22_400_515), "size of the phantom queues")
        .with("dead", word("none", DEAD), DEAD_ABOUT)
        .with("loss", word("none", LOSS), LOSS_ABOUT)
        .with("times", Value::count(1, 10_000), "times the rates of the table are lost")
        .with("fct", word("sender", &["sender", "receiver"]), "the end that measures the FCT")
        .with("ideal", Value::Time(Dur::ZERO), IDEAL_ABOUT)
        .with("segment", Value::Count { n: 4_096, min: 0, max: 65_280 }, SEGMENT_ABOUT)
        .without("rate")
        .without("delay")
        .without("message")
        .without("outstanding")
}

/// Common parameters of runs about UnoRC: selective repeat, UnoCC with its authors' parameters, and
/// queues that may drop.
fn unorc(p: Params) -> Params {
    p.with("mode", word("sr", &["rc", "sr"]), "wire mode")
        .with("cc", Value::Cc(artifact_cc()), "congestion control; `cc.NAME` sets its parameters")
        .with("window", Value::count(16_384, 65_536), "outstanding packets of a queue pair")
        .with("buffer", Value::Bytes(200_000_000), "buffer that the ports of a switch share")
        .with("timeout", Value::Time(Dur::from_ms(4)), "local ACK timeout")
        .with("sample", Value::Time(Dur::from_ms(1)), "time from one sample to the next")
        .without("pfc")
}

/// UnoCC with the parameters of the artifact's runs for this figure.
///
/// # Source
/// Uno's artifact, artifact_scripts/fig13_*.py: `-ecnAlpha 0.65 -lcpK 6` (packets of 4096 bytes),
/// a round trip of 14.0275 us inside.
fn artifact_cc() -> CcChoice {
    CcChoice::parse("unocc,ewma_gain=0.65,k_bytes=24576,intra_rtt_us=14.0275")
        .expect("UnoCC has these parameters")
}

fn between(p: &Params, pairs: &[(u32, u32)], mut setup: Setup) -> Plan {
    let bytes = p.bytes("bytes");
    let topology = Topology::uno(p.count("trunk"), p.time("far"));
    let trunk = topology.links.len() - p.count("trunk") as usize..topology.links.len();
    let flows = pairs.iter().map(|(src, dst)| Flow::new(*src, *dst, Time::ZERO, bytes)).collect();
    one_message(&mut setup, bytes);
    // 20/21: one packet every 1.05 packet times.
    mark(&mut setup, p.bytes("phantom"), Ratio::new(20, 21));
    let mut plan = Plan::new("", topology, flows, setup);
    let lossy = Impairments { block_loss: block_loss(p), ..Impairments::default() };
    if !lossy.is_none() {
        plan = trunk.clone().fold(plan, |plan, link| plan.with_fault(link, &lossy));
    }
    let for_ever = Interval { from: Dur::ZERO, to: Dur::from_secs(1_000) };
    let impairments = Impairments { blackhole: vec![for_ever], ..Impairments::default() };
    let directions: &[bool] = match p.word("dead") {
        "forward" => &[false],
        "both" => &[false, true],
        _ => &[],
    };
    for backwards in directions {
        // Impairments of a direction replace each other, so a dead link gets no losses.
        let (link, impairments) = (trunk.start, impairments.clone());
        plan.faults.push(Fault { link, backwards: *backwards, impairments });
    }
    plan.measure = Measure::of(p.word("fct"));
    plan.ideal = Some(p.time("ideal")).filter(|ideal| *ideal > Dur::ZERO);
    // A flow that stays on a dead link fails, which is a valid result.
    plan.may_fail_until = plan.until;
    plan
}

/// The losses of Uno's table 1 on a border link.
///
/// A block is ten consecutive packets on one direction of one border link, of any flow, including
/// acknowledgements. In the table they are consecutive packets of one flow on one path. Both are
/// equal for a flow alone on its path; a sprayed flow meets the loss bursts of each link
/// independently. The artifact also counts by port, but at every port of a border switch, so that
/// it may drop a packet at three ports. This scenario drops at one port, at the table's rate.
fn block_loss(p: &Params) -> Option<BlockLoss> {
    let table = match p.word("loss") {
        "setup1" => BlockLoss::uno_table_1(),
        "setup2" => BlockLoss::uno_table_1_setup_2(),
        _ => return None,
    };
    Some(table.times(p.count("times")))
}

fn wan(p: &Params, mut setup: Setup) -> Plan {
    let (bytes, rate, rtt) = (p.bytes("bytes"), p.rate("rate"), p.time("rtt"));
    let (t, links) = two_hosts(rate, rate, p.count("paths"), rtt / 2);
    let lossy = lossy(p.chance("loss"), p.count("burst"));
    one_message(&mut setup, bytes);
    mark(&mut setup, rate.bytes_in(rtt).max(1 << 20), Ratio::new(9, 10));
    let all = bytes.saturating_mul(p.count("count").into());
    let flow = Flow::new(0, 1, Time::ZERO, all);
    let mut plan = Plan::new("", t, vec![flow], setup);
    if !lossy.is_none() {
        plan = links.fold(plan, |plan, link| plan.with_fault(link, &lossy));
    }
    plan.until = Time::ZERO + rtt * u64::from(p.count("count")) * 100 + Dur::from_secs(10);
    plan.measure = Measure::Messages;
    plan
}

fn failover(p: &Params, mut setup: Setup) -> Plan {
    let (rate, far) = (p.rate("rate"), p.time("rtt") / 2);
    let (t, trunk) = two_hosts(rate, p.rate("trunk_rate"), p.count("paths"), far);
    mark(&mut setup, rate.bytes_in(p.time("rtt")).max(1 << 20), Ratio::new(9, 10));
    let op = FlowOp::Send;
    let flow = Flow { op, ..Flow::new(0, 1, Time::ZERO, p.bytes("bytes")) };
    let dead = Interval { from: p.time("dies"), to: Dur::from_secs(1_000_000) };
    let impairments = Impairments { blackhole: vec![dead], ..Impairments::default() };
    let mut plan = Plan::new("", t, vec![flow], setup).with_fault(trunk.start, &impairments);
    plan.measure = Measure::Deliveries;
    // A flow that stays on a dead link fails, which is a valid result.
    plan.may_fail_until = plan.until;
    plan
}

/// Two hosts, each behind a switch, and `paths` links between the switches. Returns the range of
/// these links.
fn two_hosts(
    rate: Rate,
    trunk_rate: Rate,
    paths: u32,
    far: Dur,
) -> (Topology, std::ops::Range<usize>) {
    let mut t = Topology::default();
    let hosts = ["left-host", "right-host"].map(|name| t.add_host(name));
    let switches = ["left", "right"].map(|name| t.add_switch(name));
    for (host, switch) in hosts.into_iter().zip(switches) {
        t.connect(host, switch, rate, Dur::ZERO);
    }
    let first = t.links.len();
    for _ in 0..paths {
        t.connect(switches[0], switches[1], trunk_rate, far);
    }
    let trunk = first..t.links.len();
    (t, trunk)
}

/// Loss at this long-term rate, independent or in bursts of `burst` frames on average.
fn lossy(loss: Prob, burst: u32) -> Impairments {
    if burst <= 1 || loss.is_zero() {
        return Impairments { loss, ..Impairments::default() };
    }
    let one = u64::from(Prob::ONE.ppb());
    let prob = |ppb: u64| u32::try_from(ppb).ok().and_then(Prob::from_ppb).unwrap_or(Prob::ONE);
    let leave = one / u64::from(burst);
    let good = one.saturating_sub(loss.ppb().into()).max(1);
    let enter = prob(u64::from(loss.ppb()) * leave / good);
    let (loss_good, loss_bad) = (Prob::ZERO, Prob::ONE);
    let burst_loss = Some(BurstLoss { enter, leave: prob(leave), loss_good, loss_bad });
    Impairments { burst_loss, ..Impairments::default() }
}

/// Configures every port to mark by a phantom queue alone, between 2 % and 60 % of its size.
///
/// # Source
/// Uno's artifact, artifact_scripts/fig13_*.py.
fn mark(setup: &mut Setup, size_bytes: u64, drain: Option<Ratio>) {
    setup.port.queues[0].phantom = Some(PhantomConfig {
        drain: drain.expect("a ratio of small numbers"),
        size_bytes,
        kmin_bytes: size_bytes / 50,
        kmax_bytes: size_bytes / 5 * 3,
        pmax: Prob::ONE,
        with_physical: false,
    });
}

fn word(word: &str, of: &[&'static str]) -> Value {
    Value::Word { word: word.to_owned(), of: of.to_vec() }
}

/// Source and destination of each flow.
///
/// # Source
/// Uno's artifact, lcp/configs/tms/simple/fail_more.cm and ai.cm; the first alone is fail_one.cm.
const PAIRS: [(u32, u32); 8] =
    [(15, 247), (0, 129), (87, 252), (25, 145), (44, 151), (12, 182), (102, 139), (120, 179)];
const MTUS: &[&str] = &["1024", "2048", "4096"];
const DEAD: &[&str] = &["none", "forward", "both"];
const DEAD_ABOUT: &str =
    "the first border link drops everything: forward as in the artifact, or both ways";
const LOSS: &[&str] = &["none", "setup1", "setup2"];
const LOSS_ABOUT: &str = "losses of border links, by block of ten packets: Uno's table 1";
const IDEAL_ABOUT: &str = "ideal FCT, for the slowdown; 0: none";
const SEGMENT_ABOUT: &str = "bytes of a full SR packet, at least 64; 0: the path MTU";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(scenario: &Scenario, set: &[(&str, &str)]) -> Plan {
        scenario.plan(1, set.iter().copied()).unwrap()
    }

    #[test]
    fn between__the_network_is_that_of_the_paper() {
        let plan = plan(&FIG13A, &[]);
        let trunk: Vec<String> = plan.topology.links[800..]
            .iter()
            .map(|c| format!("{}-{}", plan.topology.name(c.a.node), plan.topology.name(c.b.node)))
            .collect();
        assert_eq!(trunk, vec!["dc0.border-dc1.border"; 8]);
        let routes = plan.topology.routes();
        for flow in &plan.flows {
            assert!(flow.src < 128 && (128..256).contains(&flow.dst) && flow.bytes == 5_000_000);
            let path = plan.topology.path(&routes, flow.src, flow.dst).unwrap();
            let rtt = plan.setup.base_rtt([flow.src, flow.dst], &path);
            // 128 times 14 us, plus the serialisation of 4 kB on nine links.
            assert!((Dur::from_us(1_789)..Dur::from_us(1_793)).contains(&rtt), "{rtt:?}");
        }
        let queue = &plan.setup.port.queues[0];
        let phantom = queue.phantom.unwrap();
        assert_eq!((queue.limit_bytes, phantom.kmin_bytes), (1_000_000, 448_010));
        assert_eq!((plan.setup.full_payload([0, 200]), plan.setup.outstanding), (4_096, 1));
    }

    #[test]
    fn between__one_direction_of_one_link_is_dead_and_the_others_lose() {
        let faults = |set: &[(&str, &str)]| {
            let plan = plan(&FIG13C, set);
            let dead = plan.faults.iter().filter(|f| !f.impairments.blackhole.is_empty());
            let dead: Vec<(usize, bool)> = dead.map(|f| (f.link, f.backwards)).collect();
            (plan.faults.len() - dead.len(), dead)
        };
        assert_eq!(faults(&[]), (16, vec![(800, false)]));
        assert_eq!(faults(&[("dead", "both"), ("loss", "none")]).1, [(800, false), (800, true)]);
        assert_eq!(faults(&[("dead", "none"), ("loss", "none")]), (0, vec![]));
        let losses = |set: &[(&str, &str)]| {
            block_loss(&{
                let mut params = FIG13B.params();
                params.set_all(set.iter().copied()).unwrap();
                params
            })
        };
        assert_eq!(losses(&[]), Some(BlockLoss::uno_table_1()));
        let more = losses(&[("loss", "setup2"), ("times", "10")]).unwrap();
        assert_eq!(more.losses[0], Prob::from_ppm(400));
    }

    #[test]
    fn lossy__has_the_requested_rate_for_any_burst_length() {
        let percent = Prob::from_ppm(10_000);
        assert_eq!(lossy(percent, 1).loss, percent);
        let burst = lossy(percent, 4).burst_loss.unwrap();
        let (enter, leave) = (f64::from(burst.enter.ppb()), f64::from(burst.leave.ppb()));
        assert!((enter / (enter + leave) - 0.01).abs() < 1e-6 && leave == 0.25e9);
        assert!(lossy(Prob::ZERO, 9).is_none());
        assert_eq!(lossy(Prob::ONE, 9).burst_loss.unwrap().enter, Prob::ONE);
    }
}
