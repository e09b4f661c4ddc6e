//! SR for a minute at 30 % loss, each way.

use spanwire_base::{Dur, Rate, Time};
use spanwire_sim::workload::{Flow, FlowOp};
use spanwire_sim::{Plan, Setup, Topology, Watch};
use spanwire_switch::{Impairments, Prob};
use spanwire_transport::{Config, Mtu, Offer};

#[test]
fn soak__a_minute_of_thirty_percent_loss_loses_nothing() {
    let limits = Config { reorder_pkts: 1_024, ..Config::default() };
    let setup = Setup {
        seed: 30,
        offer: Offer::of(&limits, Some(1_408)),
        mtu: Mtu::B1024,
        message_bytes: 20_000,
        outstanding: 32,
        window_pkts: 64,
        inline_bytes: 300,
        timeout: Dur::from_ms(67),
        ..Setup::default()
    };
    let ends = [(0, 2), (2, 0), (1, 3), (3, 1)];
    let ops = [FlowOp::Mix, FlowOp::Mix, FlowOp::Send, FlowOp::Read];
    let bytes = |op| if op == FlowOp::Mix { MIX_BYTES } else { PLAIN_BYTES };
    let flow = |((src, dst), op)| Flow { op, ..Flow::new(src, dst, Time::ZERO, bytes(op)) };
    let flows = ends.into_iter().zip(ops).map(flow).collect();
    let (near, far) = (Dur::from_us(50), Dur::from_ms(5));
    let topology = Topology::dumbbell(2, Rate::from_bps(10_000_000), near, far);
    let loss = Impairments { loss: Prob::from_ppm(300_000), ..Impairments::default() };
    // The link in the middle follows those of four hosts.
    let plan =
        Plan { sample_every: Dur::from_ms(100), ..Plan::new("soak", topology, flows, setup) };
    let plan = plan.with_fault(4, &loss);
    let report = plan.run(Watch { series: true, check_every: 10_000 }, &mut ()).unwrap();
    // Every completion once and in order, every byte, every atomic consecutive, no retry error.
    assert_eq!(report.violations, [] as [&str; 0]);
    let took_a_minute = report.flows.iter().all(|f| f.fct_us.is_some_and(|us| us > 60e6));
    assert!(took_a_minute, "{:?}", report.flows);
    let lost = report.drops["line_loss"];
    assert!(lost * 10 > report.engine["tx_packets"] * 2, "{lost} lost");
    assert!(report.engine["rx_atomic_requests"] > 100, "{:?}", report.engine);
    assert_eq!(report.engine.get("req_cqe_error"), None);
    let series = report.series.expect("it was asked for");
    let most = series.flows.iter().flat_map(|f| &f.in_flight_pkts).max();
    assert!(most.is_some_and(|pkts| (16..=64).contains(pkts)), "{most:?} in flight");
}

#[test]
fn begin__at_thirty_percent_loss_no_queue_pair_fails() {
    let mut slowest_us = 0.0_f64;
    for seed in 0..BEGINNINGS {
        let setup = Setup {
            seed,
            offer: Offer::of(&Config::default(), Some(1_408)),
            mtu: Mtu::B1024,
            timeout: Dur::from_ms(67),
            ..Setup::default()
        };
        // Two packets: with many, a response would arrive soon.
        let flows = vec![Flow::new(0, 1, Time::ZERO, 2_000)];
        let topology = Topology::pair(Rate::from_gbps(1), Dur::from_us(50));
        let loss = Impairments { loss: Prob::from_ppm(300_000), ..Impairments::default() };
        let plan = Plan::new("begin", topology, flows, setup).with_fault(0, &loss);
        let report = plan.run(Watch::default(), &mut ()).unwrap();
        assert_eq!(report.violations, [] as [&str; 0], "seed {seed}");
        slowest_us = slowest_us.max(report.flows[0].fct_us.unwrap());
    }
    // One timeout and half of the next one's probes: 51 % of the probes and their responses are
    // lost.
    assert!(slowest_us < 800_000.0, "{slowest_us}");
}

const BEGINNINGS: u64 = 800;
/// Each flow lasts a minute. A quarter of a mix is payload.
const MIX_BYTES: u64 = 42_000_000;
const PLAIN_BYTES: u64 = 44_000_000;
