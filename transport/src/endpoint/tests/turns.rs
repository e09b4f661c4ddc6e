//! Scheduling when the port is the bottleneck: weights and control packets.

use super::*;
use crate::testing::in_both_modes;
use crate::{ModifyError, WireMode};
use spanwire_wire::{OpKind, Packet};
use std::cell::RefCell;
use std::rc::Rc;

/// A pair in which only the port limits side 0.
fn pair(mode: WireMode, qps: usize, turn_bytes: u32) -> Pair {
    let config = Config {
        qp_window_pkts: 1 << 16,
        endpoint_window_pkts: 1 << 20,
        turn_bytes,
        ..Config::default()
    };
    let caps = QpCaps { max_send_wr: 64, max_recv_wr: 0, ..QpCaps::default() };
    Pair::with(&PairConfig { mode, qps, config, caps, cqe: 1 << 16, ..PairConfig::default() })
}

fn is_control(packet: &Packet<'_>) -> bool {
    matches!(packet.bth.opcode.props().kind, OpKind::Ack | OpKind::SrAck)
}

/// Bytes sent by each queue pair of side 0: whole frames with data.
fn bytes_of(p: &mut Pair) -> Rc<RefCell<Vec<u64>>> {
    let bytes = Rc::new(RefCell::new(vec![0; p.ends[0].qpns.len()]));
    let (log, peers) = (Rc::clone(&bytes), p.ends[1].qpns.clone());
    p.filter = Box::new(move |side, packet| {
        if side == 0 && !is_control(packet) {
            let index = peers.iter().position(|qpn| *qpn == packet.bth.dest_qp).unwrap();
            let outside = 14 + 20 + 8 + 12 + 4 + packet.bth.opcode.ext_len();
            log.borrow_mut()[index] += spanwire_base::u64_from(outside + packet.payload_len());
        }
        Fate::Pass
    });
    bytes
}

/// Fills the send queue of a queue pair with WRITEs of `len` bytes.
fn fill(p: &mut Pair, side: usize, index: usize, len: usize) {
    let remote = p.ends[1 - side].remote(0);
    let (qpn, sge) = (p.ends[side].qpns[index], p.ends[side].sge(0, len));
    let wr = WorkRequest::new(1, WrOp::Write { remote }, std::slice::from_ref(&sge));
    while p.ends[side].ep.post_send(qpn, &wr).is_ok() {}
}

fn set_weight(p: &mut Pair, index: usize, weight: u8) -> Result<(), ModifyError> {
    let attr = QpAttr { weight: Some(weight), ..QpAttr::default() };
    let qpn = p.ends[0].qpns[index];
    p.ends[0].ep.modify_qp(qpn, &attr)
}

/// Sends `packets` packets from side 0, one each microsecond.
fn send(p: &mut Pair, packets: usize, mut post: impl FnMut(&mut Pair)) {
    for _ in 0..packets {
        post(p);
        p.now += Dur::from_us(1);
        p.step(1);
        p.step_at_most(0, 1);
    }
}

#[test]
fn weights__are_shares_of_bytes_for_any_packet_size() {
    in_both_modes(|mode| {
        let mut p = pair(mode, 3, 2048);
        let bytes = bytes_of(&mut p);
        let refill = |p: &mut Pair| {
            for (index, len) in [(0, 8), (1, 100), (2, 5000)] {
                fill(p, 0, index, len);
            }
        };
        set_weight(&mut p, 1, 2).unwrap();
        set_weight(&mut p, 2, 5).unwrap();
        send(&mut p, 20_000, refill);
        let shares = |before: &[u64]| -> Vec<f64> {
            let sent = bytes.borrow();
            let of = |i: usize| f64::from(u32::try_from(sent[i] - before[i]).unwrap());
            (0..3).map(|i| of(i) / of(0)).collect()
        };
        let got = shares(&[0; 3]);
        assert!((got[1] - 2.0).abs() < 0.05 && (got[2] - 5.0).abs() < 0.1, "{mode:?}: {got:?}");
        // Then with other weights.
        set_weight(&mut p, 1, 1).unwrap();
        set_weight(&mut p, 2, 1).unwrap();
        let before = bytes.borrow().clone();
        send(&mut p, 10_000, refill);
        let got = shares(&before);
        assert!(got.iter().all(|share| (share - 1.0).abs() < 0.05), "{mode:?}: {got:?}");
    });
}

#[test]
fn weights__share_the_endpoints_window_too() {
    let config = Config {
        qp_window_pkts: 40,
        endpoint_window_pkts: 72,
        read_chunk_pkts: 8,
        turn_bytes: 1024,
        ..Config::default()
    };
    let caps = QpCaps { max_send_wr: 64, ..QpCaps::default() };
    let c = PairConfig { qps: 3, config, caps, cqe: 1 << 16, ..PairConfig::default() };
    let mut p = Pair::with(&c);
    let bytes = bytes_of(&mut p);
    set_weight(&mut p, 2, 3).unwrap();
    for _ in 0..4_000 {
        (0..3).for_each(|index| fill(&mut p, 0, index, 4000));
        p.now += Dur::from_us(1);
        p.step(1);
        p.step(0);
    }
    let sent = bytes.borrow();
    // Windows limit the effect of a weight, but do not remove it.
    assert!(sent[2] > sent[0] * 5 / 4, "{sent:?}");
    assert!(sent[1].abs_diff(sent[0]) < sent[0] / 20, "{sent:?}");
}

#[test]
fn weight__is_one_initially_and_after_reset() {
    let mut p = Pair::with(&PairConfig::sr());
    let qpn = p.ends[0].qpns[0];
    assert_eq!(set_weight(&mut p, 0, 0), Err(ModifyError::OutOfRange("weight")));
    assert_eq!(p.ends[0].ep.query_qp(qpn).unwrap().attr.weight, None);
    set_weight(&mut p, 0, 255).unwrap();
    assert_eq!(p.ends[0].ep.query_qp(qpn).unwrap().attr.weight, Some(255));
    let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
    p.ends[0].ep.modify_qp(qpn, &reset).unwrap();
    assert_eq!(p.ends[0].ep.query_qp(qpn).unwrap().attr.weight, None);
    assert_eq!(set_weight(&mut p, 0, 2), Err(ModifyError::NotNow("weight")));
}

#[test]
fn a_thousand_queue_pairs__get_equal_shares() {
    in_both_modes(|mode| {
        let mut p = pair(mode, 1000, 1024);
        let bytes = bytes_of(&mut p);
        (0..1000).for_each(|index| fill(&mut p, 0, index, 1000));
        for round in 1..=3 {
            send(&mut p, 5000, |_| {});
            let sent = bytes.borrow();
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            // A quantum and the excess of a packet, at both ends of the interval.
            assert!(most - least <= 2 * (1024 + 350), "{mode:?}, {round}: {least} to {most}");
            assert!(*least > 0);
        }
    });
}

#[test]
fn control__overtakes_data() {
    in_both_modes(|mode| {
        let mut p = pair(mode, 2, 1 << 20);
        fill(&mut p, 0, 0, 60_000);
        send(&mut p, 100, |_| {});
        // ACKs of the other queue pair, which has no data, behind a long quantum.
        let remote = p.ends[0].remote(0);
        let (qpn, sge) = (p.ends[1].qpns[1], p.ends[1].sge(0, 8));
        let wr = WorkRequest::new(7, WrOp::Write { remote }, std::slice::from_ref(&sge));
        p.ends[1].ep.post_send(qpn, &wr).unwrap();
        p.step(1);
        p.log.clear();
        send(&mut p, 8, |_| {});
        let ours: Vec<&str> = p.log.iter().filter(|l| l.0 == 0).map(|l| l.1).collect();
        let acks: Vec<usize> = (0..ours.len()).filter(|i| is_ack(ours[*i])).collect();
        assert_eq!(acks, [4], "the one after it came, 5 us later: {ours:?}");
    });
}

/// Packets of side 0 with and without data, while peers provoke more control packets than it can
/// send.
#[test]
fn control__never_starves_data() {
    in_both_modes(|mode| {
        let mut p = pair(mode, 33, 4096);
        let provoke = |p: &mut Pair| {
            fill(p, 0, 0, 5000);
            (1..33).for_each(|index| fill(p, 1, index, 8));
        };
        send(&mut p, 300, provoke);
        p.log.clear();
        send(&mut p, 900, provoke);
        let ours: Vec<&str> = p.log.iter().filter(|l| l.0 == 0).map(|l| l.1).collect();
        let data = ours.iter().filter(|name| !is_ack(name)).count();
        assert_eq!(ours.len(), 900);
        assert!((100..450).contains(&data), "{mode:?}: {data} of 900 with data");
        let longest = ours.split(|name| !is_ack(name)).map(<[_]>::len).max();
        assert_eq!(longest, Some(8), "{mode:?}");
        assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
    });
}

fn is_ack(name: &str) -> bool {
    name.to_lowercase().contains("ack")
}
