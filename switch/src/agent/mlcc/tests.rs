use super::*;
use crate::agent::api::RateChange;
use crate::agent::passing::SrData;
use crate::agent::testing::{at, at_ports, passing};
use std::ops::Deref;

/// An agent, and the last change of a rate that it wants.
struct Bed {
    agent: Mlcc,
    changed: Option<RateChange>,
}

impl Deref for Bed {
    type Target = Mlcc;

    fn deref(&self) -> &Mlcc {
        &self.agent
    }
}

/// Ports 0 and 1 lead inside, 2 outside, at 100 Gbit/s; receivers have 25.
fn agent(flows: u32) -> Bed {
    let initial = Some(Rate::from_gbps(25));
    let config = MlccConfig { outside: vec![2], initial, flows, ..MlccConfig::default() };
    Bed { agent: at_ports(&[2], |site| Mlcc::new(&config, site)), changed: None }
}

const SENDER: Qpn = Qpn::new(0x1234);
const IN: Ports = Ports { from: 2, to: 0 };
const OUT: Ports = Ports { from: 1, to: 2 };

/// A data packet from host 1 to host 2 that asks for credit.
fn data() -> Passing {
    let sr = Some(SrData { psn: 7, sent_ps: 9 });
    Passing { sr, source_qpn: Some(SENDER), asks_credit: true, ..passing(1, 2, 1000) }
}

/// An acknowledgement of it with this credit, from host 2 to host 1.
fn ack(credit: u32, rate_kbps: u32) -> Passing {
    let credit = Some(SrCredit { credit, rate_kbps, suggested_kbps: 1 });
    let ack = spanwire_wire::SrAckPassing { credit, ..Default::default() };
    let back = passing(2, 1, 80);
    let ends = FlowEnds { dest_qpn: SENDER, ..back.ends };
    Passing { is_data: false, ack: Some(ack), ends, ..back }
}

fn arrive(agent: &mut Bed, us: u64, passing: &Passing, ports: Ports) -> Placement {
    let own = &mut agent.agent;
    let (placement, effects) = own.on_arrival(at(us), passing, ports, passing.source_qpn);
    agent.changed = effects.rate.or(agent.changed);
    placement
}

/// Data comes in and is queued at a port.
fn queue(agent: &mut Bed, us: u64, port: u8) -> Placement {
    let placement = arrive(agent, us, &data(), IN);
    let queued = Queued { port, queue: 1, placement, bytes: 0, own_bytes: 1000 };
    let effects = agent.agent.on_queued(at(us), &data(), queued);
    agent.changed = effects.rate.or(agent.changed);
    placement
}

fn leave(agent: &mut Bed, us: u64, tag: u32) -> Rework {
    leave_by(agent, us, 0, tag).rework
}

fn leave_by(agent: &mut Bed, us: u64, port: u8, tag: u32) -> Effects {
    let sr = data().sr;
    let arrived_at = at(us);
    let leaving = Departing { port, queue: 1, tag, arrived_at, bytes: 1000, sr };
    agent.agent.on_departure(at(us), &leaving)
}

fn change(agent: &mut Bed) -> Option<(u8, u8, u64)> {
    agent.changed.take().map(|c| (c.port, c.queue, c.rate.as_bps() / 1_000_000))
}

#[test]
fn on_queued__a_new_flow_gets_the_initial_rate_in_its_own_queue() {
    let mut agent = agent(64);
    let placement = queue(&mut agent, 1, 0);
    let key = data().sender_key(SENDER);
    assert_eq!((placement.flow, placement.queue), (Some(key), None));
    assert_eq!(change(&mut agent), Some((0, 1, 25_000)));
    queue(&mut agent, 2, 0);
    assert_eq!(change(&mut agent), None, "it has it");
    queue(&mut agent, 3, 1);
    assert_eq!(change(&mut agent), Some((1, 1, 25_000)), "at another port");
}

#[test]
fn on_departure__writes_the_credit_and_the_bytes_that_wait_behind() {
    let mut agent = agent(64);
    let tag = queue(&mut agent, 1, 0).tag;
    queue(&mut agent, 1, 0);
    queue(&mut agent, 1, 0);
    let begin = |credit, waiting_bytes| Rework::Begin(IntCredit { credit, waiting_bytes });
    assert_eq!(leave(&mut agent, 2, tag), begin(0, 2000));
    arrive(&mut agent, 3, &ack(5, 9_000_000), OUT);
    assert_eq!(leave(&mut agent, 4, tag), begin(5, 1000));
    assert_eq!(leave(&mut agent, 5, tag), begin(5, 0));
}

#[test]
fn on_arrival__credit_counts_from_inside_for_a_known_flow_and_not_older() {
    let mut agent = agent(64);
    arrive(&mut agent, 0, &ack(1, 9_000_000), OUT);
    assert_eq!((change(&mut agent), agent.unknown), (None, 1), "before the flow has come in");
    queue(&mut agent, 1, 0);
    change(&mut agent);
    for (credit, kbps, want) in [
        (5, 9_000_000, Some((0, 1, 9_000))),
        (5, 8_000_000, Some((0, 1, 8_000))),
        (4, 7_000_000, None),
        (6, u32::MAX, Some((0, 1, 100_000))),
        (7, 0, Some((0, 1, 10))),
        (u32::MAX, 1_000_000, None),
    ] {
        arrive(&mut agent, 2, &ack(credit, kbps), OUT);
        assert_eq!(change(&mut agent), want, "{credit} {kbps}");
    }
    assert_eq!((agent.credits, agent.stale), (4, 2));
    // From outside it is the credit of a flow of the other direction, and not read.
    arrive(&mut agent, 2, &ack(9, 1_000_000), IN);
    assert_eq!((change(&mut agent), agent.credits, agent.unknown), (None, 4, 1));
    // Within the datacenter nothing is read or written.
    let inside = Ports { from: 0, to: 1 };
    assert_eq!(arrive(&mut agent, 2, &data(), inside), Placement::default());
}

#[test]
fn on_arrival__a_forged_number_blocks_nothing() {
    let mut agent = agent(64);
    queue(&mut agent, 1, 0);
    change(&mut agent);
    for (credit, mbps) in [(100, 3_000), (1 << 31, 4_000), (101, 5_000), (90, 6_000)] {
        arrive(&mut agent, 2, &ack(credit, mbps * 1000), OUT);
        let want = Some((0, 1, u64::from(mbps))).filter(|_| credit != 90);
        assert_eq!(change(&mut agent), want, "{credit}");
    }
}

#[test]
fn on_arrival__credit_wraps() {
    let mut agent = agent(64);
    queue(&mut agent, 1, 0);
    change(&mut agent);
    for credit in [u32::MAX - 1, u32::MAX, 0, 1] {
        arrive(&mut agent, 2, &ack(credit, 1_000_000), OUT);
        assert!(change(&mut agent).is_some(), "{credit}");
    }
    arrive(&mut agent, 2, &ack(u32::MAX, 1_000_000), OUT);
    assert_eq!((change(&mut agent), agent.stale), (None, 1));
}

#[test]
fn on_arrival__other_packets_pass_unchanged() {
    let mut agent = agent(64);
    let plain = Passing { asks_credit: false, ..data() };
    let no_qpn = Passing { source_qpn: None, ..data() };
    for other in [plain, no_qpn, passing(1, 2, 100)] {
        for ports in [IN, OUT] {
            assert_eq!(arrive(&mut agent, 1, &other, ports), Placement::default());
        }
    }
    assert_eq!((agent.flows.live(at(1)).count(), agent.data, agent.out), (0, 0, 0));
    let plain = spanwire_wire::SrAckPassing::default();
    arrive(&mut agent, 1, &Passing { ack: Some(plain), ..ack(1, 1) }, OUT);
    assert_eq!((agent.credits, agent.unknown), (0, 0));
}

#[test]
fn reflect__once_in_the_round_trip_of_the_datacenter() {
    let mut agent = agent(64);
    let placement = arrive(&mut agent, 1, &data(), OUT);
    assert_eq!(placement.flow, None, "in the queue of its 5-tuple");
    let mut leave = |us| {
        let effects = leave_by(&mut agent, us, 2, placement.tag);
        assert_eq!(effects.rework, Rework::Reflect);
        effects.feedback
    };
    let due = [2, 10, 23, 24, 40, 46].map(|us| leave(us).is_some());
    assert_eq!(due, [true, false, false, true, false, true]);
    let near = leave(100).unwrap();
    let sr = SrData { psn: 7, sent_ps: 9 };
    assert_eq!(near.kind, OrderKind::Telemetry { data: sr, hop_limit: 64 });
    let OrderTo::Place(place) = near.to else { panic!("{near:?}") };
    assert_eq!(agent.flow_at(place), Some((data().ends, Some(SENDER))));
    assert_eq!(agent.near, 4);
}

#[test]
fn see__a_place_is_free_after_a_second_and_never_while_packets_wait() {
    let mut agent = agent(1);
    let of = |n: u8| {
        let sr = Some(SrData { psn: 0, sent_ps: 0 });
        let asks_credit = true;
        Passing { sr, source_qpn: Some(SENDER), asks_credit, ..passing(n, 200, 100) }
    };
    let tags: Vec<u32> = (0..8).map(|n| arrive(&mut agent, 1, &of(n), IN).tag).collect();
    assert!(tags.iter().all(|tag| *tag > 0), "{tags:?}");
    let first = tags[0];
    let queued = Queued {
        placement: Placement { tag: first, flow: Some(1), queue: None },
        own_bytes: 100,
        ..Queued::default()
    };
    agent.agent.on_queued(at(1), &of(0), queued);
    assert_eq!(arrive(&mut agent, 900_000, &of(9), IN), Placement::default(), "no place");
    assert_eq!(agent.flows.collisions, 1);
    let tag = arrive(&mut agent, 1_000_002, &of(9), IN).tag;
    assert!(tag > 0 && tag != first, "the first one's packet still waits");
    assert_eq!(agent.rated_flows(at(1_000_002)).len(), 2);
}

#[test]
fn on_departure__a_flow_of_the_other_direction_is_another_flow() {
    let mut agent = agent(64);
    // Forged: it leaves, with the addresses and the queue pair of a flow that comes in.
    let out = arrive(&mut agent, 1, &data(), OUT).tag;
    let tag = queue(&mut agent, 2, 0).tag;
    assert_ne!(tag, out);
    assert_eq!(change(&mut agent), Some((0, 1, 25_000)));
    arrive(&mut agent, 3, &ack(5, 9_000_000), OUT);
    assert_eq!((change(&mut agent), agent.unknown), (Some((0, 1, 9_000)), 0));
    let begin = IntCredit { credit: 5, waiting_bytes: 0 };
    assert_eq!(leave(&mut agent, 4, tag), Rework::Begin(begin));
    assert_eq!(leave_by(&mut agent, 5, 2, out).rework, Rework::Reflect);
    assert_eq!(agent.rated_flows(at(6)).len(), 1);
    let gauges = |us| agent.counters(at(us)).remove(0).gauges;
    assert_eq!(gauges(6), [("flows", 2), ("waiting_bytes", 0)]);
    assert_eq!(gauges(1_000_003), [("flows", 0), ("waiting_bytes", 0)]);
}
