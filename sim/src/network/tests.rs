use super::*;
use crate::setup::Drains;
use crate::workload::all_reduce;
use spanwire_base::{Dur, Rate};
use spanwire_transport::{Config, Mtu, Offer, WireMode};

const END: Time = Time::from_ns(100_000_000_000);

fn run(mut network: Network) -> Network {
    network.world.run(END, u64::MAX, &mut ());
    for host in network.engines() {
        let failed = |flow: u32| network.progress()[flow as usize].failed.is_some();
        assert_eq!(host.app().violations(), [] as [&str; 0]);
        assert_eq!(host.app().check_end(failed), [] as [&str; 0]);
        assert!(host.endpoint().stuck_qps().is_empty());
    }
    assert_eq!(network.world.check_conservation(), []);
    network
}

fn small(op: FlowOp) -> Network {
    let topology = Topology::dumbbell(2, Rate::from_gbps(10), Dur::from_us(1), Dur::from_us(5));
    let flow = |src, dst| Flow { op, ..Flow::new(src, dst, Time::from_ns(100), 300_000) };
    let setup =
        Setup { message_bytes: 10_000, mtu: Mtu::B1024, inline_bytes: 200, ..Setup::default() };
    Network::new(topology, vec![flow(0, 2), flow(3, 1), flow(1, 2)], setup).unwrap()
}

#[test]
fn drains__delay_requests_and_lose_none() {
    for op in [FlowOp::Write, FlowOp::Send, FlowOp::Read, FlowOp::Mix] {
        let [plain, drained] =
            [None, Some(Drains { every: Dur::from_us(5), until: END })].map(|d| {
                let mut network = small(op);
                let setup = Setup { drains: d, ..network.setup().clone() };
                network = Network::new(network.topology().clone(), network.flows().to_vec(), setup)
                    .unwrap();
                let progress = run(network).progress();
                assert!(progress.iter().all(|p| p.completed.is_some()), "{op:?}: {progress:?}");
                progress.iter().map(|p| p.completed.unwrap_or(END)).max().unwrap_or(END)
            });
        assert!(drained > plain, "{op:?}: {plain:?}, then {drained:?}");
    }
}

#[test]
fn run__each_operation_completes_and_leaves_the_right_bytes() {
    for op in [FlowOp::Write, FlowOp::Send, FlowOp::Read, FlowOp::Mix] {
        let network = run(small(op));
        for p in network.progress() {
            assert!(p.failed.is_none() && p.completed.is_some(), "{op:?}: {p:?}");
            assert_eq!(p.started, Some(Time::from_ns(100)));
            assert!(p.finished.unwrap() > p.started.unwrap());
        }
        assert!(network.is_done());
    }
}

#[test]
fn run__over_ipv6_and_with_several_sges() {
    let sr = Offer::of(&Config::default(), Some(1408));
    for (offer, sges) in [(Offer::SILENT, 3), (sr, 3), (sr, 16)] {
        let topology = Topology::dumbbell(2, Rate::from_gbps(10), Dur::from_us(1), Dur::ZERO);
        let flow = |op| Flow { op, ..Flow::new(0, 2, Time::ZERO, 100_000) };
        let flows = [FlowOp::Mix, FlowOp::Send, FlowOp::Read, FlowOp::Write].map(flow).to_vec();
        let setup = Setup { ipv6: true, sges, offer, message_bytes: 10_000, ..Setup::default() };
        let network = run(Network::new(topology, flows, setup).unwrap());
        assert!(network.progress().iter().all(|p| p.completed.is_some() && p.failed.is_none()));
    }
}

#[test]
fn new__hosts_that_have_no_wire_mode_in_common_are_named() {
    let topology = Topology::star(2, Rate::from_gbps(10), Dur::from_us(1));
    let flows = [0, 1].map(|src| Flow::new(src, 2, Time::ZERO, 1_000)).to_vec();
    let sr = Offer::of(&Config::default(), Some(4096));
    let insists = [(1, sr.only(WireMode::Sr)), (2, Offer::SILENT)].into();
    let setup = Setup { offer: sr, other_offers: insists, ..Setup::default() };
    let error = Network::new(topology, flows, setup).unwrap_err();
    assert_eq!(error.to_string(), "flow 1 is wrong: its ends have no wire mode in common");
}

#[test]
fn run__hosts_of_both_modes_share_a_network() {
    for op in [FlowOp::Write, FlowOp::Send, FlowOp::Read, FlowOp::Mix] {
        let topology = Topology::star(3, Rate::from_gbps(10), Dur::from_us(1));
        // Host 0 uses SR with segments of 1000 bytes to host 1, and RC to host 2; host 3 uses SR
        // with segments of 9000 bytes to host 0.
        let sr = |segment| Offer::of(&Config::default(), Some(segment));
        let other_offers = [(1, sr(1000)), (2, Offer::SILENT)].into();
        let setup = Setup { offer: sr(9000), other_offers, ..Setup::default() };
        let ends = [(0, 1), (0, 2), (3, 0), (2, 1)];
        let flow = |(src, dst)| Flow { op, ..Flow::new(src, dst, Time::ZERO, 2 << 20) };
        let network = run(Network::new(topology, ends.map(flow).to_vec(), setup).unwrap());
        let of = |ends: (u32, u32)| network.setup().sr_segment([ends.0, ends.1]);
        assert_eq!(ends.map(of), [Some(1000), None, Some(9000), None]);
        assert!(
            network.progress().iter().all(|p| p.completed.is_some() && p.failed.is_none()),
            "{op:?}"
        );
        let lost = network.engines().map(|h| h.endpoint().counters().presumed_lost_packets);
        assert_eq!(lost.sum::<u64>(), 0, "nothing is lost");
    }
}

#[test]
fn check_end__a_responder_may_give_up_before_a_time_and_not_after() {
    // The responses of a READ are lost: the requester receives acknowledgements, the responder
    // none.
    let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
    let flow = Flow { op: FlowOp::Read, ..Flow::new(0, 1, Time::ZERO, 50_000) };
    let offer = Offer::of(&Config::default(), Some(4096));
    let setup = Setup { offer, retry_cnt: 1, timeout: Dur::from_us(100), ..Setup::default() };
    let mut network = Network::new(topology, vec![flow], setup).unwrap();
    network.world.run(Time::from_ns(3_000), u64::MAX, &mut ());
    let bad = Impairments { loss: spanwire_switch::Prob::ONE, ..Impairments::default() };
    for direction in network.directions(0) {
        network.impair(direction, bad.clone()).unwrap();
    }
    while network.progress()[0].responder_failed_at.is_none() {
        network.world.run(END, 1, &mut ());
    }
    let at = network.progress()[0].responder_failed_at.unwrap();
    assert!(crate::check_now(&network).is_empty(), "the failure alone violates nothing");
    let wrong = |network: &Network, before| crate::check_end(network, before).join(";");
    assert!(wrong(&network, at).contains("failed at its responder"));
    network.world.run(END, u64::MAX, &mut ());
    assert!(network.progress()[0].failed_at.is_some(), "the failed responder answers no request");
    assert!(wrong(&network, at).contains("failed at"));
    assert_eq!(wrong(&network, END), "");
}

#[test]
fn run__elided_frames_take_the_same_time_as_whole_ones() {
    let finished = |elided| {
        let topology = Topology::star(3, Rate::from_gbps(100), Dur::from_us(1));
        let flows = (0..3).map(|i| Flow::new(i, 3, Time::ZERO, 1 << 20)).collect();
        let setup = Setup { elided, ..Setup::default() };
        let network = run(Network::new(topology, flows, setup).unwrap());
        let hops = network.world.counters().packet_hops;
        (network.progress().iter().map(|p| p.finished).collect::<Vec<_>>(), hops)
    };
    assert_eq!(finished(true), finished(false));
}

#[test]
fn run__a_flow_that_waits_begins_when_the_other_has_arrived() {
    let topology = Topology::star(3, Rate::from_gbps(10), Dur::from_us(1));
    let flows = all_reduce(&[0, 1, 2, 3], 40_000);
    let network = run(Network::new(topology, flows, Setup::default()).unwrap());
    let progress = network.progress();
    for (flow, p) in network.flows().iter().zip(&progress) {
        let begins = flow.after.map_or(Some(Time::ZERO), |a| progress[a as usize].finished);
        assert_eq!(p.started, begins);
    }
    assert_eq!(progress.len(), 24);
}

#[test]
fn run__a_queue_pair_carries_flows_both_ways() {
    let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
    let flows = [FlowOp::Write, FlowOp::Send, FlowOp::Read, FlowOp::Mix].map(|op| {
        let there = Flow { op, ..Flow::new(0, 1, Time::ZERO, 100_000) };
        let (src, dst) = if op == FlowOp::Read { (0, 1) } else { (1, 0) };
        let back = [FlowOp::Read, FlowOp::Mix][usize::from(op == FlowOp::Read)];
        let (src, dst) = if back == FlowOp::Read { (dst, src) } else { (src, dst) };
        [there, Flow { op: back, ..Flow::new(src, dst, Time::ZERO, 100_000) }]
    });
    let mut flows = flows.concat();
    for (i, flow) in (0u32..).zip(&mut flows) {
        flow.reverse_of = i.checked_sub(1).filter(|_| i % 2 == 1);
    }
    let setup = Setup { message_bytes: 3_000, window_pkts: 8, ..Setup::default() };
    let network = run(Network::new(topology, flows, setup).unwrap());
    assert!(network.is_done());
    let qpns = |n: usize| {
        let app = network.engines().nth(n).unwrap().app();
        let all = app.requesting().chain(app.responding()).map(|s| s.qpn.get());
        all.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((qpns(0), qpns(1)), (4, 4), "eight flows on four queue pairs");
}

#[test]
fn run__workers_of_a_host_hand_frames_over() {
    for is_sr in [false, true] {
        let offer = Offer::of(&Config::default(), is_sr.then_some(1408));
        let topology = Topology::star(2, Rate::from_gbps(10), Dur::from_us(1));
        let flow = |src, dst, op| Flow { op, ..Flow::new(src, dst, Time::ZERO, 200_000) };
        let mut flows = [FlowOp::Mix, FlowOp::Send, FlowOp::Read, FlowOp::Write]
            .map(|op| [flow(0, 2, op), flow(1, 2, op), flow(0, 1, op), flow(1, 0, op)])
            .concat();
        flows.push(Flow { reverse_of: Some(4), after: Some(5), ..flow(2, 0, FlowOp::Send) });
        let setup = Setup { offer, workers: 4, message_bytes: 10_000, ..Setup::default() };
        let network = run(Network::new(topology, flows, setup).unwrap());
        assert!(network.is_done());
        assert_eq!(network.engines().count(), 12);
        let idle = network.engines().filter(|h| h.app().requesting().count() == 0).count();
        assert!(idle < 8, "the flows of a host are of several workers");
        for host in network.sim_hosts() {
            let counters = host.handover_counters();
            assert!(counters.handed > 0 && counters.handed == counters.received, "{counters:?}");
            assert_eq!(counters.dropped, 0);
        }
    }
}

#[test]
fn run__receives_that_come_late_are_waited_for() {
    let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
    let flow = Flow { op: FlowOp::Send, ..Flow::new(0, 1, Time::ZERO, 200_000) };
    let setup = Setup {
        recvs: 2,
        recv_delay: Dur::from_us(100),
        shared_recvs: true,
        message_bytes: 5_000,
        ..Setup::default()
    };
    let network = run(Network::new(topology, vec![flow], setup).unwrap());
    assert!(network.is_done());
    let naks = network.engines().map(|h| h.endpoint().counters().rnr_nak_retry_err).sum::<u64>();
    assert!(naks > 0, "the receiver was not ready");
}

/// Violations when bytes are corrupted at one host while flows are outstanding.
fn corrupted(op: FlowOp, host: u32, guard: bool) -> Vec<String> {
    let mut network = small(op);
    network.world.run(Time::from_ns(20_000), u64::MAX, &mut ());
    let Machine::Host(sim_host) = network.world.node_mut(NodeId::from_index(host)) else {
        panic!("the first nodes are hosts");
    };
    sim_host.engines_mut().for_each(|engine| engine.app_mut().corrupt(guard));
    network.world.run(END, u64::MAX, &mut ());
    let found = network.engines().flat_map(|h| {
        let at_end = h.app().check_end(|_| false);
        [h.app().violations().to_vec(), at_end].concat()
    });
    found.collect()
}

#[test]
fn violations__a_wrong_byte_is_noticed_at_either_end() {
    for op in [FlowOp::Write, FlowOp::Send, FlowOp::Read, FlowOp::Mix] {
        for host in [0, 2] {
            assert!(
                !corrupted(op, host, true).is_empty(),
                "{op:?}, host {host}: outside its slots"
            );
        }
    }
    // The source of a send or READ is corrupted before the data arrive.
    for op in [FlowOp::Write, FlowOp::Send, FlowOp::Read] {
        let found = corrupted(op, 0, false);
        assert!(found.iter().any(|v| v.contains("wrong byte 0")), "{op:?}: {found:?}");
    }
}

#[test]
fn new__rejects_invalid_flows() {
    let refused = |flow: Flow| {
        let topology = Topology::pair(Rate::from_gbps(1), Dur::ZERO);
        let first = Flow::new(0, 1, Time::ZERO, 1);
        Network::new(topology, vec![first, flow], Setup::default()).unwrap_err().to_string()
    };
    let flow = Flow::new(1, 0, Time::ZERO, 1);
    for (flow, why) in [
        (Flow { dst: 2, ..flow }, "does not exist"),
        (Flow { dst: 1, ..flow }, "its source is"),
        (Flow { bytes: 0, ..flow }, "no bytes"),
        (Flow { after: Some(1), ..flow }, "not precede it"),
        (Flow { src: 0, dst: 1, after: Some(0), ..flow }, "arrives at another host"),
        (Flow { op: FlowOp::Read, after: Some(0), ..flow }, "its source gets no completion"),
        (Flow { reverse_of: Some(1), ..flow }, "not precede it"),
        (Flow { src: 0, dst: 1, reverse_of: Some(0), ..flow }, "other ends"),
    ] {
        let found = refused(flow);
        assert!(found.contains("flow 1") && found.contains(why), "{found}");
    }
}
