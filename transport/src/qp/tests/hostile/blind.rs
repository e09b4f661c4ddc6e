//! An off-path attacker that knows addresses and a QPN does not slow a connection down.

use super::classes::{EPSN, NONE, Scene};
use super::seal;
use super::selective::{FIRST, ack, right_ack};
use crate::qp::tests::flow;
use crate::testing::{Op, Pair, PairConfig};
use crate::{CongestionControl, QpAttr, WireMode};
use spanwire_base::Dur;
use spanwire_wire::{BthRepr, Opcode, Psn, SrAckRepr};

/// Side 0's congestion window after a millisecond of WRITEs, with or without a forged CNP each
/// microsecond.
fn rate_under_cnps(mode: WireMode, forges: bool) -> (Option<spanwire_base::Rate>, u64) {
    let mut p = flow::pair(mode, "dcqcn", &[]);
    let qpn = p.ends[0].qpns[0];
    let cnp = seal(BthRepr::new(Opcode::Cnp, qpn, Psn::new(0)), NONE, 0, 0);
    for i in 0..20 {
        p.post(0, i, Op::Write, 0, 60_000);
    }
    let end = p.now + Dur::from_ms(1);
    while p.now < end {
        let next = p.now + Dur::from_us(1);
        p.run(Dur::from_us(1));
        p.now = p.now.max(next);
        if forges {
            p.inject(0, &cnp);
        }
    }
    let info = p.ends[0].ep.query_qp(qpn).unwrap().flow.unwrap();
    (info.rate, p.ends[0].ep.counters().rp_cnp_handled)
}

#[test]
fn cnps__are_ignored_by_sr() {
    let free = rate_under_cnps(WireMode::Sr, false);
    assert_eq!(rate_under_cnps(WireMode::Sr, true), free);
}

/// At most one CNP is accepted each RTT.
#[test]
fn cnps__of_rc_count_once_each_rtt() {
    let mut p = flow::pair(WireMode::Rc, "dcqcn", &[]);
    let qpn = p.ends[0].qpns[0];
    let cnp = seal(BthRepr::new(Opcode::Cnp, qpn, Psn::new(0)), NONE, 0, 0);
    p.post(0, 1, Op::Write, 0, 256);
    assert!(p.run(Dur::from_ms(1)) || !p.ends[0].wcs.is_empty());
    let srtt = p.ends[0].ep.query_qp(qpn).unwrap().srtt.unwrap();
    assert!(srtt >= Dur::from_us(10), "two times the latency");
    let handled = |p: &Pair| p.ends[0].ep.counters().rp_cnp_handled;
    for round in 1..=3 {
        for _ in 0..1000 {
            p.inject(0, &cnp);
        }
        assert_eq!(handled(&p), round, "one of a thousand each RTT");
        p.now += srtt;
    }
    assert_eq!(p.ends[0].ep.counters().rx_packets, 3 + 1, "the WRITE's ACK and the accepted CNPs");
}

/// With a spacing of the queue pair, one CNP is accepted in each.
#[test]
fn cnps__of_rc_count_once_each_spacing_of_the_queue_pair() {
    let mut p = flow::pair(WireMode::Rc, "dcqcn-rnic", &[]);
    let qpn = p.ends[0].qpns[0];
    let congestion = p.ends[0].ep.query_qp(qpn).unwrap().attr.congestion.unwrap();
    let cnp_spacing = Some(Dur::from_us(3));
    let congestion = Some(CongestionControl { cnp_spacing, ..congestion });
    p.ends[0].ep.modify_qp(qpn, &QpAttr { congestion, ..QpAttr::default() }).unwrap();
    let cnp = seal(BthRepr::new(Opcode::Cnp, qpn, Psn::new(0)), NONE, 0, 0);
    p.now += Dur::from_ms(1);
    // A switch sends one each 4 us, a little early or late.
    for _ in 0..20 {
        for wait_ns in [3_100, 4_900] {
            p.now += Dur::from_ns(wait_ns);
            p.inject(0, &cnp);
            p.inject(0, &cnp);
        }
    }
    let c = p.ends[0].ep.counters();
    assert_eq!((c.rp_cnp_handled, c.dropped(crate::DropReason::IgnoredCnp)), (40, 40));
}

/// A PSN far ahead in RC is forged or very old: it causes no NAK and no go-back-N.
#[test]
fn gaps__wider_than_any_window_cause_no_nak() {
    for (ahead, acks) in [(1, 1), (65_536, 1), (65_537, 0), (1 << 22, 0), ((1 << 23) - 1, 0)] {
        let mut s = Scene::of(Pair::new());
        let bth = s.bth(Opcode::RcSendOnly, Psn::new(EPSN).plus(ahead).get());
        let forged = seal(bth, NONE, 64, 9);
        s.pair.inject(0, &forged);
        let c = s.pair.ends[0].ep.counters();
        assert_eq!(c.out_of_sequence, acks, "{ahead} ahead");
        assert_eq!(super::classes::acks_sent(&mut s.pair) as u64, acks, "{ahead} ahead");
    }
}

/// An attack on RC with packets far ahead causes no retransmission in a transfer.
#[test]
fn gaps__packets_far_ahead_cause_no_retransmission() {
    let mut p = Pair::new();
    let qpn = p.ends[1].qpns[0];
    let far = Psn::new(1000).plus(1 << 20);
    for i in 0..20 {
        p.post(0, i, Op::Write, 0, 60_000);
    }
    for _ in 0..2000 {
        // Source: side 0's address.
        let mut forged = seal(BthRepr::new(Opcode::RcSendOnly, qpn, far), NONE, 64, 9);
        let (a, b) = ([10, 0, 0, 2], [10, 0, 0, 1]);
        assert_eq!((&forged[26..30], &forged[30..34]), (&a[..], &b[..]));
        forged[26..30].copy_from_slice(&b);
        forged[30..34].copy_from_slice(&a);
        let len = forged.len();
        spanwire_wire::seal(&mut forged, len);
        p.inject(1, &forged);
        p.run(Dur::from_us(1));
    }
    assert!(p.run(Dur::from_secs(1)));
    let c = p.ends[0].ep.counters();
    assert_eq!((c.retransmitted_packets, p.ends[0].wcs.len()), (0, 20));
}

/// An ACK with an RTT of a thousand seconds in its echo does not extend the timeout.
#[test]
fn echo__of_an_impossible_time_does_not_extend_the_timeout() {
    for ack_delay_ns in [0, u32::MAX - 1] {
        // Four timeouts of this length fit into the time that the forged echo must not add.
        let rts: fn(&mut QpAttr) = |a| a.timeout = Some(10);
        let mut s = Scene::of(Pair::with(&PairConfig { rts, ..PairConfig::sr() }));
        s.pair.now += Dur::from_secs(1000);
        let lie = SrAckRepr {
            next: FIRST + 2,
            newest: FIRST + 1,
            echo_ps: 0,
            ack_delay_ns,
            ..right_ack(&s)
        };
        let frame = ack(&s, &lie);
        s.pair.inject(0, &frame);
        let timeouts = |s: &Scene| s.pair.ends[0].ep.counters().local_ack_timeout_err;
        assert_eq!(timeouts(&s), 0);
        let limit = Dur::from_ns(4096) * (4 << 10);
        s.pair.run(limit + Dur::from_ms(1));
        assert!(timeouts(&s) > 0, "no timeout within four times the queue pair's own");
    }
}
