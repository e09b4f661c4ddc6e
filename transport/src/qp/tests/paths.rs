//! Paths: the load balancer selects the path of each packet, an ACK takes the path of the data, and
//! a failed path is abandoned.

use super::*;
use crate::{Balance, CongestionControl, ErasureCoding, Preset, QpAttr, Wire};
use spanwire_loadbalance::{Choice, PathState};
use spanwire_wire::Packet;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

fn with(choice: &str) -> PairConfig {
    let choice = Choice::parse(choice).unwrap();
    PairConfig { balance: Some(Balance { choice, seed: 5 }), ..PairConfig::sr() }
}

/// The link, of four, that a switch selects by its hash.
fn link(p: &Packet<'_>) -> u16 {
    let port = p.udp.src_port;
    (port ^ (port >> 4) ^ (port >> 9)) % 4
}

/// The source ports of all source and parity packets of side 0, in order, with the PSN.
type Ports = Rc<RefCell<Vec<(u32, u16)>>>;

fn watch(p: &mut Pair) -> Ports {
    let ports: Ports = Rc::default();
    let seen = Rc::clone(&ports);
    p.filter = Box::new(move |side, packet| {
        if side == 0 && packet.bth.opcode != Opcode::SrAck {
            seen.borrow_mut().push((packet.bth.psn.get(), packet.udp.src_port));
        }
        Fate::Pass
    });
    ports
}

#[test]
fn pick_path__the_packets_of_a_block_take_different_paths() {
    let erasure = Some(ErasureCoding::default());
    let mut p = Pair::with(&PairConfig { erasure, ..with("unolb") });
    let ports = watch(&mut p);
    let want = p.ends[0].fill(0, 40 * 248, 3);
    p.post(0, 1, Op::Write, 0, 40 * 248);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[1].bytes(0, 40 * 248), want);
    let ports = ports.borrow();
    assert_eq!(ports.len(), 50);
    for block in ports.chunks(10) {
        let distinct: BTreeSet<u16> = block.iter().map(|(_, port)| *port).collect();
        assert_eq!(distinct.len(), 10, "{block:?}");
        assert!(distinct.iter().all(|port| *port >= 0xc000));
    }
    let balancer = p.ends[0].ep.qp_paths(p.ends[0].qpns[0]).unwrap();
    let paths: Vec<_> = balancer.paths(p.now).collect();
    assert_eq!((paths.len(), balancer.counters().picks), (10, 50));
    assert!(
        paths
            .iter()
            .all(|p| (p.sent_packets, p.acked_packets, p.presumed_lost_packets) == (5, 5, 0))
    );
    assert!(p.ends[1].ep.qp_paths(p.ends[1].qpns[0]).is_some());
}

#[test]
fn set_path__an_ack_takes_the_path_of_the_data() {
    for ips in versions() {
        let mut p = Pair::with(&PairConfig { ips, ..with("rps") });
        let newest = Rc::new(RefCell::new(0));
        let acks = Rc::new(RefCell::new(0));
        let (seen, count) = (Rc::clone(&newest), Rc::clone(&acks));
        p.filter = Box::new(move |_, packet| {
            let port = packet.udp.src_port;
            if packet.bth.opcode == Opcode::SrAck {
                assert_eq!(port, *seen.borrow(), "the path of the last data packet");
                *count.borrow_mut() += 1;
            } else {
                *seen.borrow_mut() = port;
            }
            if let spanwire_wire::IpRepr::V6(v6) = &packet.ip {
                let entropy = spanwire_loadbalance::Entropy::from_flow_label(v6.flow_label);
                assert_eq!(entropy.port(), port, "the flow label has the same entropy");
            }
            Fate::Pass
        });
        for i in 0..20 {
            p.post(0, i, Op::Write, 0, 2000);
            assert!(p.run(SECOND));
        }
        assert!(*acks.borrow() >= 20);
    }
}

#[test]
fn set_path__without_a_balancer_the_port_is_fixed() {
    let mut p = Pair::with(&PairConfig::sr());
    let ports = watch(&mut p);
    p.post(0, 1, Op::Write, 0, 5000);
    assert!(p.run(SECOND));
    let ports: BTreeSet<u16> = ports.borrow().iter().map(|(_, port)| *port).collect();
    assert_eq!(ports.len(), 1);
    assert!(p.ends[0].ep.qp_paths(p.ends[0].qpns[0]).is_none());
}

#[test]
fn pick_path__without_a_balancer_echoes_the_path_of_the_peer() {
    let rtr = |rtr: &mut QpAttr| {
        let sr = rtr.wire.as_mut().and_then(Wire::sr_mut).expect("SR");
        sr.balance = sr.balance.filter(|_| rtr.rq_psn == Some(Psn::new(0xff_fff0)));
    };
    let mut p = Pair::with(&PairConfig { rtr, ..with("rps") });
    assert!(p.ends[1].ep.qp_paths(p.ends[1].qpns[0]).is_none());
    let (newest, seen) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(BTreeSet::new())));
    let (last, ports) = (Rc::clone(&newest), Rc::clone(&seen));
    p.filter = Box::new(move |side, packet| {
        let is_data = packet.bth.opcode != Opcode::SrAck;
        match (side, is_data) {
            (0, _) => *last.borrow_mut() = packet.udp.src_port,
            (_, true) => _ = ports.borrow_mut().insert((packet.udp.src_port, *last.borrow())),
            _ => {}
        }
        Fate::Pass
    });
    for i in 0..20 {
        p.post(0, i, Op::Read, 0, 200);
        assert!(p.run(SECOND));
    }
    let seen = seen.borrow();
    assert!(seen.len() > 10, "{seen:?}");
    assert!(seen.iter().all(|(took, came)| took == came && *took >= 0xc000), "{seen:?}");
}

#[test]
fn on_data__reordering_by_several_paths_coalesces_acks() {
    // Neighbouring packets swap, as on paths of unequal length: as many gaps as packets.
    let acks = |choice: &str| {
        let (qp_window_pkts, endpoint_window_pkts) = (256, 512);
        let config = Config { qp_window_pkts, endpoint_window_pkts, ..Config::default() };
        let mut p = Pair::with(&PairConfig { config, ..with(choice) });
        let (acks, mut sent) = (Rc::new(RefCell::new(0)), 0);
        let count = Rc::clone(&acks);
        p.filter = Box::new(move |_, packet| {
            if packet.bth.opcode == Opcode::SrAck {
                *count.borrow_mut() += 1;
                return Fate::Pass;
            }
            sent += 1;
            Fate::Late(Dur::from_us(sent ^ 1))
        });
        p.post(0, 0, Op::Write, 0, 60_000);
        assert!(p.run(SECOND));
        *acks.borrow()
    };
    let (one, many) = (acks("ecmp"), acks("unolb"));
    assert!(many * 2 < one, "{one} {many}");
}

/// One of four links fails for good; ACKs on it are lost as well.
fn dies(choice: &str, coded: bool) -> (Pair, u64) {
    let erasure = coded.then(ErasureCoding::default);
    let algorithm = spanwire_cc::Algorithm::named("unocc").unwrap();
    let base_rtt = Some(LATENCY * 2);
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let config = Config { qp_window_pkts: 64, ..Config::default() };
    let mut p = Pair::with(&PairConfig { erasure, congestion, config, ..with(choice) });
    p.post(0, 0, Op::Write, 0, 60_000);
    assert!(p.run(SECOND));
    let lost = Rc::new(RefCell::new(0));
    let count = Rc::clone(&lost);
    p.filter = Box::new(move |_, packet| match link(packet) {
        0 => {
            *count.borrow_mut() += 1;
            Fate::Drop
        }
        _ => Fate::Pass,
    });
    for i in 1..40 {
        p.ends[0].fill(0, 60_000, i);
        p.post(0, i, Op::Write, 0, 60_000);
        assert!(p.run(SECOND * 10), "{choice}");
    }
    assert_eq!(p.ends[0].bytes(0, 60_000), p.ends[1].bytes(0, 60_000));
    let done = p.ends[0].wcs.iter().filter(|wc| wc.status == WcStatus::Success).count();
    assert_eq!(done, 40, "no work request fails");
    let lost = *lost.borrow();
    (p, lost)
}

#[test]
fn balancer__a_failed_path_is_abandoned_without_failing_a_request() {
    for coded in [false, true] {
        let (p, lost) = dies("unolb", coded);
        let balancer = p.ends[0].ep.qp_paths(p.ends[0].qpns[0]).unwrap();
        assert!(balancer.counters().reroutes >= 1);
        assert!(lost < 400, "of 10,000 packets {lost} took the failed path, coded: {coded}");
        let live = balancer.paths(p.now).filter(|path| path.state == PathState::Live);
        assert!(live.count() >= 10);
        let (_, sprayed) = dies("rps", coded);
        assert!(sprayed > 4 * lost, "{sprayed} sprayed, {lost} balanced");
    }
}

#[test]
fn balancer__marks_are_reported_for_their_path() {
    let mut p = Pair::with(&with("unolb"));
    p.filter = Box::new(|side, packet| match side == 0 && packet.udp.src_port % 2 == 1 {
        true => Fate::Marked,
        false => Fate::Pass,
    });
    for i in 0..20 {
        p.post(0, i, Op::Write, 0, 4000);
        assert!(p.run(SECOND));
    }
    let balancer = p.ends[0].ep.qp_paths(p.ends[0].qpns[0]).unwrap();
    let (mut right, mut wrong) = (0, 0);
    for path in balancer.paths(p.now) {
        let marks = path.path.port() % 2 == 1;
        let count = if marks { &mut right } else { &mut wrong };
        *count += path.marked_packets;
    }
    assert!(right > 100 && wrong == 0, "{right} and {wrong}");
}
