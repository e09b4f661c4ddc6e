//! The catalogue of scenarios.

use super::definition::{Scenario, large};
use crate::host::Storm;
use crate::params::{Params, Value};
use crate::plan::Plan;
use crate::setup::Setup;
use crate::topology::{FatTree, LeafSpine, Topology};
use crate::workload::{self, Cdf, Flow, FlowFile, FlowOp, Poisson};
use spanwire_base::{Dur, Rate, Rng, Time};
use spanwire_switch::{Flap, Impairments, Interval, Prob, Reorder};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "pair",
        about: "two hosts, a cable, and one flow of every operation each way",
        params: |p| p,
        plan: |p, setup| {
            let topology = Topology::pair(p.rate("rate"), p.time("delay"));
            let all = [FlowOp::Write, FlowOp::Send, FlowOp::Read, FlowOp::Mix];
            let flows = [(0, 1), (1, 0)].map(|(src, dst)| all.map(|op| flow(p, src, dst, op)));
            plan(topology, flows.concat(), setup)
        },
    },
    Scenario {
        name: "dumbbell-2",
        about: "two pairs of hosts share one link",
        params: middle,
        plan: |p, setup| dumbbell(p, 2, setup),
    },
    Scenario {
        name: "dumbbell-16",
        about: "sixteen pairs of hosts share one link",
        params: |p| middle(p).with("bytes", Value::Bytes(1 << 20), "bytes of each flow"),
        plan: |p, setup| dumbbell(p, 16, setup),
    },
    Scenario {
        name: "incast-32",
        about: "incast of 32 hosts on lossless queues: PFC pauses the senders",
        params: |p| {
            p.with("bytes", Value::Bytes(512 << 10), "bytes of each flow")
                .with("pfc", Value::Flag(true), "lossless: switches pause, hosts obey")
                .with("buffer", Value::Bytes(4_000_000), "buffer that the ports of a switch share")
        },
        plan: |p, setup| {
            let topology = Topology::star(32, p.rate("rate"), p.time("delay"));
            let flows = (0..32).map(|src| flow(p, src, 32, FlowOp::Write)).collect();
            plan(topology, flows, setup)
        },
    },
    Scenario {
        name: "loss-1",
        about: "1 % of all frames is lost",
        params: |p| chance(p, 1, "frames lost, each way"),
        plan: |p, setup| {
            let loss = p.chance("chance");
            faulty_middle(p, setup, &Impairments { loss, ..Impairments::default() })
        },
    },
    Scenario {
        name: "reorder-5",
        about: "5 % of all frames are reordered",
        params: |p| {
            let late = Value::Time(Dur::from_us(10));
            chance(p, 5, "frames reordered, each way").with("late", late, "their extra delay")
        },
        plan: |p, setup| {
            let (probability, extra_delay) = (p.chance("chance"), p.time("late"));
            let reorder = Some(Reorder { probability, extra_delay });
            faulty_middle(p, setup, &Impairments { reorder, ..Impairments::default() })
        },
    },
    Scenario {
        name: "dup",
        about: "5 % of all frames are duplicated",
        params: |p| chance(p, 5, "frames duplicated, each way"),
        plan: |p, setup| {
            let duplicate = p.chance("chance");
            faulty_middle(p, setup, &Impairments { duplicate, ..Impairments::default() })
        },
    },
    Scenario {
        name: "corrupt",
        about: "1 % of all frames have a bit error; the ICRC detects those that matter",
        params: |p| chance(p, 1, "frames with a bit error, each way"),
        plan: |p, setup| {
            let corrupt = p.chance("chance");
            faulty_middle(p, setup, &Impairments { corrupt, ..Impairments::default() })
        },
    },
    Scenario {
        name: "blackhole",
        about: "the shared link drops everything for 10 ms without link-down events",
        params: |p| {
            middle(p).with("from", Value::Time(Dur::from_us(100)), "when it begins").with(
                "lasts",
                Value::Time(Dur::from_ms(10)),
                "how long it lasts",
            )
        },
        plan: |p, setup| {
            let from = p.time("from");
            let blackhole = vec![Interval { from, to: from + p.time("lasts") }];
            let bad = Impairments { blackhole, ..Impairments::default() };
            dumbbell(p, 2, setup).with_fault(MIDDLE_OF_2, &bad)
        },
    },
    Scenario {
        name: "pfc-storm",
        about: "PFC storm: a broken card pauses its switch for 2 ms and blocks other hosts' flows",
        params: |p| {
            p.with("bytes", Value::Bytes(2 << 20), "bytes of each flow")
                .with("pfc", Value::Flag(true), "lossless: switches pause, hosts obey")
                .with("buffer", Value::Bytes(2_000_000), "buffer that the ports of a switch share")
                .with("timeout", Value::Time(Dur::from_ms(8)), "local ACK timeout")
                .with("from", Value::Time(Dur::from_us(50)), "when it begins")
                .with("lasts", Value::Time(Dur::from_ms(2)), "how long it lasts")
        },
        plan: pfc_storm,
    },
    Scenario {
        name: "flap",
        about: "the shared link is down for 1 ms in every 4",
        params: |p| {
            middle(p)
                .with("period", Value::Time(Dur::from_ms(4)), "from one failure to the next")
                .with("down", Value::Time(Dur::from_ms(1)), "how long each lasts")
        },
        plan: |p, setup| {
            let from = Dur::from_us(100);
            let flap = Some(Flap { period: p.time("period"), down: p.time("down"), from });
            let bad = Impairments { flap, ..Impairments::default() };
            dumbbell(p, 2, setup).with_fault(MIDDLE_OF_2, &bad)
        },
    },
    Scenario {
        name: "incast-8",
        about: "8 hosts of a fat tree of 16 send 1 GiB each to one: the speed of the simulator",
        params: |p| {
            large(p).with("bytes", Value::Bytes(1 << 30), "bytes of each flow").with(
                "senders",
                Value::count(8, 15),
                "hosts that send",
            )
        },
        plan: |p, setup| {
            let topology = fat_tree(p, 4);
            plan(topology, workload::incast(16, p.count("senders"), p.bytes("bytes")), setup)
        },
    },
    Scenario {
        name: "permutation-128",
        about: "every host of a fat tree of 128 sends 10 MiB to another",
        params: |p| {
            large(p).with("bytes", Value::Bytes(10 << 20), "bytes of each flow").with(
                "buffer",
                Value::Bytes(4_000_000),
                "buffer that the ports of a switch share",
            )
        },
        plan: |p, setup| {
            let mut rng = Rng::new(setup.seed);
            plan(fat_tree(p, 8), workload::permutation(128, p.bytes("bytes"), &mut rng), setup)
        },
    },
    Scenario {
        name: "poisson",
        about: "flows of a known workload start at random in a leaf-spine network of 64 hosts",
        params: |p| {
            let names = Cdf::names().collect();
            large(p)
                .with("flows", Value::count(1000, 100_000), "how many")
                .with("load", Value::count(50, 100), "per cent of what all hosts can send")
                .with(
                    "sizes",
                    Value::Word { word: "websearch".to_owned(), of: names },
                    "distribution of sizes; `bytes` means nothing",
                )
        },
        plan: poisson,
    },
    Scenario {
        name: "all-reduce-16",
        about: "a ring of 16 hosts of a fat tree adds up a vector",
        params: |p| large(p).with("bytes", Value::Bytes(64 << 20), "bytes of the vector"),
        plan: |p, setup| {
            let hosts: Vec<u32> = (0..16).collect();
            plan(fat_tree(p, 4), workload::all_reduce(&hosts, p.bytes("bytes").max(16)), setup)
        },
    },
    Scenario {
        name: "uno",
        about: "half of the flows of 256 hosts cross between two fat trees (Uno, SC'25)",
        params: |p| {
            large(p)
                .with("bytes", Value::Bytes(1 << 20), "bytes of each flow")
                .with("pfc", Value::Flag(false), "lossless: switches pause, hosts obey")
                .with("trunk", Value::count(8, 100), "links between the datacenters")
                .with("far", Value::Time(Dur::from_ns(886_500)), "delay of those links")
                .with("timeout", Value::Time(Dur::from_ms(8)), "local ACK timeout")
        },
        plan: |p, setup| {
            let topology = Topology::uno(p.count("trunk"), p.time("far"));
            let mut rng = Rng::new(setup.seed);
            plan(topology, workload::permutation(256, p.bytes("bytes"), &mut rng), setup)
        },
    },
    Scenario {
        name: "mlcc",
        about: "a permutation of the 256 hosts of two datacenters 3 ms apart (MLCC)",
        params: |p| {
            large(p)
                .with("bytes", Value::Bytes(1 << 20), "bytes of each flow")
                .with("far", Value::Time(Dur::from_ms(3)), "delay of the long link")
                .with("timeout", Value::Time(Dur::from_ms(32)), "local ACK timeout")
        },
        plan: |p, setup| {
            let mut rng = Rng::new(setup.seed);
            let flows = workload::permutation(256, p.bytes("bytes"), &mut rng);
            plan(Topology::mlcc(p.time("far")), flows, setup)
        },
    },
    Scenario {
        name: "reflex",
        about: "a permutation of the 32 hosts of two datacenters 500 us apart (Reflex)",
        params: |p| {
            large(p).with("bytes", Value::Bytes(4 << 20), "bytes of each flow").with(
                "timeout",
                Value::Time(Dur::from_ms(8)),
                "local ACK timeout",
            )
        },
        plan: |p, setup| {
            let mut rng = Rng::new(setup.seed);
            let flows = workload::permutation(32, p.bytes("bytes"), &mut rng);
            plan(Topology::reflex(), flows, setup)
        },
    },
    super::sharing::SOLO,
    super::sharing::FAIRNESS,
    super::sharing::INCAST,
    super::sharing::MIXED_RTT,
    super::uno::FIG13A,
    super::uno::FIG13B,
    super::uno::FIG13C,
    super::uno::WAN,
    super::uno::FAILOVER,
    super::pacc::BURST,
    super::pacc::MICRO,
    super::pacc::STEADY,
    super::pacc::JOIN,
    super::pacc::FCT,
    super::reflex::FCT,
    super::reflex::THRESHOLDS,
    super::laecn::BURST,
    super::laecn::SMALL,
    super::mlcc::FIG2,
    super::mlcc::FIG3,
    super::mlcc::FIG4,
    super::mlcc::FIG7,
    super::mlcc::FIG8,
    super::mlcc::FIG9,
    super::mlcc::FIG10,
];

fn plan(topology: Topology, flows: Vec<Flow>, setup: Setup) -> Plan {
    Plan::new("", topology, flows, setup)
}

fn flow(p: &Params, src: u32, dst: u32, op: FlowOp) -> Flow {
    Flow { op, ..Flow::new(src, dst, Time::ZERO, p.bytes("bytes")) }
}

/// Adds the parameter for the delay of the link in the middle.
fn middle(p: Params) -> Params {
    p.with("far", Value::Time(Dur::from_us(5)), "propagation delay of the shared link")
}

/// Adds a probability in per cent.
fn chance(p: Params, per_cent: u32, about: &'static str) -> Params {
    middle(p).with("chance", Value::Chance(Prob::from_ppm(per_cent * 10_000)), about)
}

/// `n` flows from left to right, WRITE, SEND and READ in turn.
fn dumbbell(p: &Params, n: u32, setup: Setup) -> Plan {
    let topology = Topology::dumbbell(n, p.rate("rate"), p.time("delay"), p.time("far"));
    let ops = [FlowOp::Write, FlowOp::Send, FlowOp::Read].into_iter().cycle();
    let flows = (0..n).zip(ops).map(|(i, op)| flow(p, i, n + i, op)).collect();
    plan(topology, flows, setup)
}

/// Two pairs of hosts, every operation, and a fault on their shared link.
fn faulty_middle(p: &Params, setup: Setup, fault: &Impairments) -> Plan {
    let mut plan = dumbbell(p, 2, setup);
    plan.flows.push(flow(p, 2, 0, FlowOp::Mix));
    plan.flows.push(flow(p, 1, 3, FlowOp::Mix));
    plan.with_fault(MIDDLE_OF_2, fault)
}

fn pfc_storm(p: &Params, setup: Setup) -> Plan {
    let topology = Topology::dumbbell(4, p.rate("rate"), p.time("delay"), p.time("delay"));
    // The storming host receives a flow; the flows of others share the link that fills up behind
    // it.
    let flows = (0..4).map(|i| flow(p, i, 4 + i, FlowOp::Write)).collect();
    let from = Time::ZERO + p.time("from");
    let priorities = 1 << (setup.dscp / 8);
    let mac = Topology::host_mac(4);
    // Half the longest pause at 100 Gbit/s, so that the pause never expires.
    let storm = Storm::new(from, from + p.time("lasts"), Dur::from_us(150), priorities, mac);
    let mut plan = plan(topology, flows, setup);
    plan.storms.push((4, storm));
    plan
}

fn poisson(p: &Params, setup: Setup) -> Plan {
    let rate = p.rate("rate");
    let shape = LeafSpine {
        leaves: 8,
        hosts_per_leaf: 8,
        spines: 8,
        links_per_spine: 1,
        host_rate: rate,
        fabric_rate: rate,
        host_delay: p.time("delay"),
        fabric_delay: p.time("delay"),
    };
    let sizes = Cdf::named(p.word("sizes")).expect("the parameter allows only these");
    let load_permille = p.count("load") * 10;
    let draw = Poisson { hosts: 64, host_rate: rate, load_permille, sizes: &sizes };
    let flows = workload::poisson(&draw, p.count("flows"), &mut Rng::new(setup.seed));
    plan(Topology::leaf_spine(&shape), flows, setup)
}

fn fat_tree(p: &Params, k: u32) -> Topology {
    let rate: Rate = p.rate("rate");
    Topology::fat_tree(&FatTree::of_k(k, rate, p.time("delay")))
}

/// The flows of a file in the smallest fat tree that has its nodes.
pub(super) fn flow_file(p: &Params, file: &FlowFile, setup: Setup) -> Plan {
    let hosts = |k: &u32| k * k * k / 4;
    let k = (2..).step_by(2).find(|k| hosts(k) >= file.nodes || *k == K_MAX);
    plan(fat_tree(p, k.unwrap_or(K_MAX)), file.flows.clone(), setup)
}

/// Half of a switch's port limit; a tree of 65,536 hosts is far beyond what is run.
const K_MAX: u32 = 64;
/// The place of the shared link in [`Topology::dumbbell`] of 2: after those of four hosts.
const MIDDLE_OF_2: usize = 4;
