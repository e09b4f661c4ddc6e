//! SR where it differs from RC: selective repeat, reordering, receive credit, tail loss probes.
//! Tests beside this file run common behaviour in both modes.

use super::verbs::invalidatable;
use super::*;
use crate::testing::Filter;
use crate::{QpAttr, SrOptions, SrqId, WrOp};
use spanwire_base::{Node, PortId, RxMeta, Time};
use spanwire_wire::{AckReason, Packet, SrAckRepr, SrDataRepr, SrKind};
use std::cell::RefCell;
use std::rc::Rc;

fn sr() -> Pair {
    Pair::with(&PairConfig::sr())
}

/// A pair in which side 0 has measured the RTT.
fn warm() -> Pair {
    let mut p = sr();
    for i in 0..3 {
        p.post(0, 1000 + i, Op::Write, 0, 256);
        assert!(p.run(SECOND));
    }
    p.ends[0].wcs.clear();
    p
}

fn header(p: &Packet<'_>) -> Option<SrDataRepr> {
    let is_data = p.bth.opcode == Opcode::SrData;
    is_data.then(|| SrDataRepr::parse(p.bth.psn.get(), p.payload).unwrap().0)
}

fn ack<'a>(p: &Packet<'a>) -> Option<SrAckRepr<'a>> {
    let is_ack = p.bth.opcode == Opcode::SrAck;
    is_ack.then(|| SrAckRepr::parse(p.bth.psn.get(), p.payload).unwrap())
}

/// Drops the `n`-th packet that matches `hit`, counted from 0.
fn drop_one(n: usize, hit: impl Fn(usize, &Packet<'_>) -> bool + 'static) -> Filter {
    let mut seen = 0;
    Box::new(move |side, packet| {
        seen += usize::from(hit(side, packet));
        if hit(side, packet) && seen == n + 1 { Fate::Drop } else { Fate::Pass }
    })
}

fn ok(ids: &[u64]) -> Vec<(u64, WcStatus)> {
    ids.iter().map(|id| (*id, WcStatus::Success)).collect()
}

fn state(p: &Pair, side: usize) -> QpState {
    p.ends[side].ep.query_qp(p.ends[side].qpns[0]).unwrap().state
}

/// A driver reads the clock once a step, so a burst has one send time. RFC 8985 6.1 orders packets
/// of one send time by sequence number.
#[test]
fn rack__a_loss_within_a_burst_of_one_send_time_costs_one_reordering_window() {
    for lost in [0, 7, 18] {
        let mut p = warm();
        p.filter = drop_one(lost, |side, packet| side == 0 && header(packet).is_some());
        p.post(0, 1, Op::Write, 0, 20 * 256);
        let started = p.now;
        while p.ends[0].wcs.is_empty() {
            p.run(Dur::from_ns(100));
        }
        // One RTT until the loss can be detected, a quarter for the reordering window, and one for
        // the retransmission.
        let rtts = p.now.since(started).as_ps() * 10 / (crate::testing::LATENCY * 2).as_ps();
        assert!(rtts <= 24, "packet {lost}: {rtts} tenths of an RTT");
        assert_eq!(p.ends[0].ep.counters().retransmitted_packets, 1, "packet {lost}");
    }
}

#[test]
fn rack__only_lost_packets_are_retransmitted() {
    for lost in [0, 1, 100, 189, 190, 300, 390] {
        let mut p = warm();
        let want = p.ends[0].fill(0, 60_000, 8);
        p.filter = drop_one(lost, |side, packet| side == 0 && header(packet).is_some());
        p.post(0, 1, Op::Write, 0, 60_000);
        p.post(0, 2, Op::Write, 0, 40_000);
        p.run(LATENCY * 20);
        assert_eq!(p.ends[1].bytes(0, 60_000), want);
        assert_eq!(statuses(&p.ends[0].wcs), ok(&[1, 2]));
        let c = p.ends[0].ep.counters();
        let repairs = (c.retransmitted_packets, c.presumed_lost_packets, c.tail_loss_probes);
        assert!(matches!(repairs, (1, 1, 0) | (1, 0, 1)), "packet {lost}: {repairs:?}");
    }
}

/// The requester has nothing in flight then, and only the responder can retransmit.
#[test]
fn handle_timeout__a_lost_response_is_probed_for_ever_more_rarely() {
    let config = || PairConfig { rts: |attr| attr.timeout = Some(17), ..PairConfig::sr() };
    let is_response = |side: usize, p: &Packet<'_>| {
        side == 1 && header(p).is_some_and(|h| h.response_to.is_some())
    };
    for (op, len) in [("READ", 20 * 256), ("READ", 8), ("FETCH_ADD", 8)] {
        for lost in 0..usize::div_ceil(len, 256) {
            let mut p = Pair::with(&config());
            // The requester knows the RTT, the responder does not.
            p.post(0, 1, Op::Write, 0, 256);
            assert!(p.run(SECOND));
            let (began, before) = (p.now, p.log.len());
            p.filter = drop_one(lost, is_response);
            if op == "READ" {
                p.post(0, 2, Op::Read, 0, len);
            } else {
                super::atomics::post(&mut p, 2, 0, |remote| WrOp::FetchAdd { remote, add: 1 });
            }
            assert!(p.run(SECOND * 10));
            assert_eq!(statuses(&p.ends[0].wcs), ok(&[1, 2]), "{op}: response {lost}");
            let rtts = p.now.since(began).as_ps() / (LATENCY * 2).as_ps();
            let [requester, responder] = [0, 1].map(|side| p.ends[side].ep.counters());
            let most = u64::from(rtts.ilog2()) + 1;
            let what = format!("{op}: response {lost}, {rtts} round trips");
            assert!(requester.tail_loss_probes <= most, "{what}: {requester:?}");
            assert!(responder.duplicate_request <= most, "{what}");
            assert_eq!(requester.local_ack_timeout_err, 0, "{what}");
            let packets = p.log.len() - before;
            assert!(packets <= 2 * (len / 256) + 16 + 4 * usize::try_from(most).unwrap(), "{what}");
        }
    }
}

#[test]
fn handle_timeout__a_lost_tail_is_probed() {
    for hit in [
        |side: usize, p: &Packet<'_>| side == 0 && header(p).is_some(),
        |side: usize, _: &Packet<'_>| side == 1,
    ] {
        let mut p = warm();
        let want = p.ends[0].fill(0, 300, 8);
        p.filter = drop_one(0, hit);
        p.post(0, 1, Op::Write, 0, 200);
        p.run(LATENCY * 10);
        assert_eq!(statuses(&p.ends[0].wcs), ok(&[1]));
        assert_eq!(p.ends[1].bytes(0, 200), want[..200]);
        let c = p.ends[0].ep.counters();
        assert_eq!(
            (c.tail_loss_probes, c.local_ack_timeout_err, c.presumed_lost_packets),
            (1, 0, 0)
        );
    }
}

#[test]
fn responses__a_lost_response_is_retransmitted_by_the_responder() {
    let mut p = sr();
    let want = p.ends[1].fill(0, 60_000, 8);
    p.filter = drop_one(20, |side, packet| side == 1 && header(packet).is_some());
    p.post(0, 1, Op::Read, 0, 60_000);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].bytes(0, 60_000), want);
    assert_eq!(p.ends[0].ep.counters().retransmitted_packets, 0);
    assert_eq!(p.ends[1].ep.counters().retransmitted_packets, 1);
    assert_eq!(p.ends[1].ep.counters().rx_read_requests, 1, "it was executed once");
}

/// Each message is one packet; they arrive in reverse order.
#[test]
fn execute__packets_in_any_order_complete_in_posting_order() {
    let mut p = sr();
    let want = p.ends[0].fill(0, 4000, 8);
    let mut n = 0;
    p.filter = Box::new(move |side, _| {
        n += u64::from(side == 0);
        if side == 0 { Fate::Late(LATENCY - Dur::from_ns(100 * n)) } else { Fate::Pass }
    });
    for i in 0..8 {
        p.post_recv(1, 100 + i, 20_000 + 300 * usize::try_from(i).unwrap(), 200);
    }
    let ops = [Op::Send, Op::Write, Op::WriteImm, Op::Read, Op::SendImm, Op::Write, Op::Send];
    for (i, op) in (0..).zip(ops) {
        p.post(0, i, op, 200 * usize::try_from(i).unwrap(), 200);
    }
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[0, 1, 2, 3, 4, 5, 6]));
    assert_eq!(statuses(&p.ends[1].wcs), ok(&[100, 101, 102, 103]));
    for (slot, from) in [(0, 0), (2, 800), (3, 1200)] {
        assert_eq!(p.ends[1].bytes(20_000 + 300 * slot, 200), want[from..from + 200], "{slot}");
    }
    assert_eq!(p.ends[0].ep.counters().retransmitted_packets, 0);
    assert!(p.ends[1].ep.counters().out_of_sequence > 0, "no packet was reordered");
}

#[test]
fn reo_wnd__reordering_causes_few_spurious_retransmissions() {
    for late_us in [10, 100, 1000] {
        let mut p = sr();
        let mut wire = Rng::new(late_us);
        p.filter = Box::new(move |side, _| match wire.below(20) {
            0 if side == 0 => Fate::Late(Dur::from_us(wire.below(late_us))),
            _ => Fate::Pass,
        });
        for i in 0..400 {
            p.post(0, i, Op::Write, 0, 60_000);
            if i % 8 == 7 {
                assert!(p.run(SECOND));
            }
        }
        let c = p.ends[0].ep.counters();
        let needless = c.retransmitted_packets * 100;
        assert!(needless < c.tx_packets, "{late_us} us: {needless} % of {}", c.tx_packets);
        assert_eq!(c.local_ack_timeout_err, 0);
    }
}

#[test]
fn on_ack__a_spurious_timeout_is_undone() {
    let mut p = warm();
    let mut n = 0;
    // The peer's core was descheduled: its packets are late, but not lost.
    p.filter = Box::new(move |side, _| {
        n += 1;
        if side == 1 && n < 400 { Fate::Late(Dur::from_ms(30)) } else { Fate::Pass }
    });
    p.post(0, 1, Op::Write, 0, 60_000);
    p.post(0, 2, Op::Write, 0, 20_000);
    p.run(Dur::from_ms(65));
    let c = p.ends[0].ep.counters();
    assert!(c.local_ack_timeout_err > 1, "there was no timeout");
    assert_eq!(c.spurious_timeouts, 1);
    assert!(c.retransmitted_packets < 20, "{} retransmissions", c.retransmitted_packets);
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[1, 2]));
}

#[test]
fn fail__an_unresponsive_peer_ends_in_retry_exceeded_and_flushes_the_rest() {
    for (op, acked) in [(Op::Write, false), (Op::Read, false), (Op::Read, true)] {
        let mut p = Pair::with(&PairConfig {
            rts: |a| (a.timeout, a.retry_cnt) = (Some(12), Some(3)),
            ..PairConfig::sr()
        });
        // The request is either acknowledged, or no packet arrives at all.
        p.filter =
            Box::new(move |side, packet| match acked && (side == 0 || ack(packet).is_some()) {
                true => Fate::Pass,
                false => Fate::Drop,
            });
        p.post_recv(0, 50, 0, 10);
        for i in 0..3 {
            p.post(0, i, op, 0, 300);
        }
        if acked {
            p.run(LATENCY * 3);
            p.filter = Box::new(|_, _| Fate::Drop);
        }
        assert!(p.run(SECOND * 2), "{op:?}");
        let flushed = WcStatus::WrFlushErr;
        let want = [(0, WcStatus::RetryExcErr), (1, flushed), (2, flushed), (50, flushed)];
        assert_eq!(statuses(&p.ends[0].wcs), want);
        // 16.8 ms * 3 * 4 transmissions, then the last timeout.
        let ms = p.ends[0].ep.counters().local_ack_timeout_err;
        assert!((3..20).contains(&ms), "{op:?}: {ms} timeouts");
        assert_eq!(p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().in_flight_pkts, 0);
    }
}

#[test]
fn credit__a_receive_posted_late_releases_the_message_at_once() {
    let mut p = warm();
    let want = p.ends[0].fill(0, 600, 4);
    p.post(0, 1, Op::Send, 0, 600);
    p.post(0, 2, Op::Write, 1000, 600);
    assert!(!p.run(Dur::from_ms(100)), "probes continue");
    assert!(p.ends[0].wcs.is_empty());
    let c = p.ends[0].ep.counters();
    let sent = c.tx_packets;
    assert!(c.receive_limit_probes > 3 && sent < 40, "no storm: {sent} packets in 100 ms");
    assert_eq!(c.local_ack_timeout_err + c.presumed_lost_packets, 0);
    p.post_recv(1, 2, 0, 600);
    p.run(LATENCY * 8);
    assert_eq!(p.ends[1].bytes(0, 600), want);
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[1, 2]));
}

#[test]
fn credit__a_lost_limit_is_recovered_by_a_probe() {
    let mut p = warm();
    p.post(0, 1, Op::Send, 0, 600);
    p.run(Dur::from_ms(1));
    p.filter = Box::new(|_, packet| match ack(packet).map(|ack| ack.reason) {
        Some(AckReason::Limit) => Fate::Drop,
        _ => Fate::Pass,
    });
    p.post_recv(1, 2, 0, 600);
    p.step(1);
    p.filter = Box::new(|_, _| Fate::Pass);
    assert!(p.run(Dur::from_ms(25)), "the next probe is at most 20 ms away");
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[1]));
}

#[test]
fn credit__fails_after_rnr_retry_attempts() {
    let mut p = Pair::with(&PairConfig { rts: |a| a.rnr_retry = Some(2), ..PairConfig::sr() });
    p.post(0, 1, Op::Send, 0, 64);
    p.post(0, 2, Op::Send, 0, 64);
    assert!(p.run(SECOND * 3));
    let want = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&p.ends[0].wcs), want);
    assert_eq!(p.ends[0].ep.counters().rnr_nak_retry_err, 3, "rnr_retry 2 is three attempts");
}

#[test]
fn credit__a_message_without_credit_is_not_sent() {
    let mut p = sr();
    for i in 0..4 {
        p.post_recv(1, i, 0, 64);
    }
    for i in 0..40 {
        p.post(0, i, Op::Send, 0, 64);
        if i % 4 == 3 {
            p.run(LATENCY * 6);
            assert_eq!(p.ends[0].wcs.len() as u64, i + 1);
            for n in 0..4 {
                p.post_recv(1, 4 + i + n, 0, 64);
            }
        }
    }
    assert!(p.run(SECOND));
    assert_eq!(p.ends[1].ep.counters().out_of_buffer, 0);
    assert_eq!(p.ends[0].ep.counters().retransmitted_packets, 0);
}

#[test]
fn credit__queue_pairs_that_share_receives_use_all_of_them() {
    let c = PairConfig { qps: 4, srq_max_wr: Some(4), ..PairConfig::sr() };
    let mut p = Pair::with(&c);
    let srq = p.ends[1].srq.unwrap();
    for q in 0..4 {
        for i in 0..12 {
            let sge = p.ends[0].sge(0, 700);
            let (qpn, wr_id) = (p.ends[0].qpns[q], i);
            let wr = WorkRequest::new(wr_id, WrOp::Send, std::slice::from_ref(&sge));
            p.ends[0].ep.post_send(qpn, &wr).unwrap();
        }
    }
    for round in 0..48 {
        post_srq(&mut p, srq, round);
        p.run(LATENCY * 8);
        let done = p.ends[1].wcs.len() as u64;
        assert_eq!(done, round + 1, "the new limit is advertised");
    }
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].wcs.len(), 48);
    assert!(p.ends[0].wcs.iter().all(|w| w.status == WcStatus::Success));
    assert_eq!(p.ends[1].wcs.len(), 48);
}

fn post_srq(p: &mut Pair, srq: SrqId, wr_id: u64) {
    let sge = p.ends[1].sge(0, 700);
    p.ends[1].ep.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] }).unwrap();
}

#[test]
fn nak__a_lost_nak_is_repeated() {
    let mut p = warm();
    p.filter = drop_one(0, |_, packet| ack(packet).is_some_and(|ack| ack.nak.is_some()));
    let remote = RemoteAddr { rkey: 1, ..p.ends[1].remote(0) };
    let (sge, qpn) = (p.ends[0].sge(0, 10), p.ends[0].qpns[0]);
    let wr = WorkRequest::new(1, WrOp::Write { remote }, std::slice::from_ref(&sge));
    p.ends[0].ep.post_send(qpn, &wr).unwrap();
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemAccessErr)]);
}

#[test]
fn refuse__earlier_requests_still_succeed() {
    let mut p = sr();
    let want = p.ends[1].fill(0, 2000, 3);
    let remote = RemoteAddr { rkey: 1, ..p.ends[1].remote(0) };
    p.post(0, 1, Op::Write, 4000, 2000);
    p.post(0, 2, Op::Read, 0, 2000);
    let (sge, qpn) = (p.ends[0].sge(0, 10), p.ends[0].qpns[0]);
    for (wr_id, op) in [(3, WrOp::Read { remote }), (4, WrOp::Write { remote })] {
        let wr = WorkRequest::new(wr_id, op, std::slice::from_ref(&sge));
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
    }
    assert!(p.run(SECOND));
    let (ok, flushed) = (WcStatus::Success, WcStatus::WrFlushErr);
    let want_wcs = [(1, ok), (2, ok), (3, WcStatus::RemAccessErr), (4, flushed)];
    assert_eq!(statuses(&p.ends[0].wcs), want_wcs);
    assert_eq!(p.ends[0].bytes(0, 2000), want);
    assert_eq!((state(&p, 0), state(&p, 1)), (QpState::Err, QpState::Err));
}

#[test]
fn refuse_again__a_response_that_has_arrived_is_not_retransmitted() {
    let mut p = sr();
    let (_, rkey) = invalidatable(&mut p, 2560);
    p.post_recv(1, 7, 0, 64);
    // No ACK of the response arrives before the key is invalidated.
    p.filter = Box::new(|side, packet| match side == 0 && ack(packet).is_some() {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    let (q, sge) = (p.ends[0].qpns[0], p.ends[0].sge(0, 2560));
    let op = WrOp::Read { remote: RemoteAddr { va: 0x4000, rkey } };
    p.ends[0].ep.post_send(q, &WorkRequest::new(1, op, &[sge])).unwrap();
    p.run(LATENCY * 4);
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[1]));
    let sge = p.ends[0].sge(0, 8);
    let wr = WorkRequest::new(2, WrOp::SendInv { rkey }, std::slice::from_ref(&sge));
    p.ends[0].ep.post_send(q, &wr).unwrap();
    p.run(Dur::from_ms(200));
    assert!(
        p.ends[1].ep.counters().local_ack_timeout_err > 0,
        "a retransmission of the response was due"
    );
    p.filter = Box::new(|_, _| Fate::Pass);
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[1, 2]));
    assert_eq!((state(&p, 0), state(&p, 1)), (QpState::Rts, QpState::Rts));
}

#[test]
fn fence__waits_for_everything_before_it() {
    let mut p = sr();
    let qpn = p.ends[0].qpns[0];
    p.post(0, 1, Op::Write, 0, 256);
    let (remote, sge) = (p.ends[1].remote(0), p.ends[0].sge(1000, 256));
    let plain = WorkRequest::new(2, WrOp::Write { remote }, std::slice::from_ref(&sge));
    p.ends[0].ep.post_send(qpn, &WorkRequest { fence: true, ..plain }).unwrap();
    // The first is delayed: it must not overwrite the second.
    let want = p.ends[0].fill(1000, 256, 9);
    p.filter = drop_one(0, |side, _| side == 0);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[1].bytes(0, 256), want);
}

#[test]
fn segment_bytes__each_end_chooses_its_own() {
    for bytes in [64, 1400, 3300, 7000] {
        let segment_bytes = Some(u32::try_from(bytes).unwrap());
        let options = SrOptions { segment_bytes, ..SrOptions::default() };
        let mut p = Pair::with(&PairConfig { options, ..PairConfig::sr() });
        let longest = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = longest.clone();
        p.filter = Box::new(move |_, packet| {
            seen.set(
                seen.get().max(packet.payload_len() - header(packet).map_or(0, |h| h.header_len())),
            );
            Fate::Pass
        });
        let (a, b) = (p.ends[0].fill(0, 20_000, 1), p.ends[1].fill(30_000, 20_000, 2));
        p.post(0, 1, Op::Write, 0, 20_000);
        p.post(0, 2, Op::Read, 30_000, 20_000);
        assert!(p.run(SECOND));
        assert_eq!((p.ends[1].bytes(0, 20_000), p.ends[0].bytes(30_000, 20_000)), (a, b));
        assert!(longest.get() >= bytes && longest.get() < bytes + 300, "{}", longest.get());
    }
}

#[test]
fn modes__two_on_one_endpoint_are_independent() {
    let c = PairConfig { qps: 2, ..PairConfig::sr() };
    let mut p = Pair::with(&c);
    p.reconnect(0, &PairConfig { mode: WireMode::Rc, ..c });
    let mut wire = Rng::new(4);
    p.filter = Box::new(move |_, _| if wire.below(20) == 0 { Fate::Drop } else { Fate::Pass });
    let want = p.ends[0].fill(0, 30_000, 1);
    for q in 0..2 {
        for (i, len) in [(0, 20_000), (1, 10_000)] {
            let at = 20_000 * i;
            let op = WrOp::Write { remote: p.ends[1].remote(30_000 * q + at) };
            let (sge, qpn) = (p.ends[0].sge(at, len), p.ends[0].qpns[q]);
            let wr = WorkRequest::new(q as u64, op, std::slice::from_ref(&sge));
            p.ends[0].ep.post_send(qpn, &wr).unwrap();
        }
    }
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].wcs.len(), 4);
    assert_eq!(p.ends[1].bytes(0, 30_000), want);
    assert_eq!(p.ends[1].bytes(30_000, 30_000), want);
    let names: Vec<&str> = p.log.iter().map(|l| l.1).collect();
    assert!(names.contains(&"sr_data") && names.contains(&"rc_write_middle"));
}

#[test]
fn ecn__acks_carry_exact_counts_of_marks() {
    let mut p = sr();
    let counts = std::rc::Rc::new(std::cell::Cell::new((0, 0, 0, 0)));
    let (seen, mut n) = (counts.clone(), 0);
    p.filter = Box::new(move |side, packet| {
        if let Some(ack) = ack(packet) {
            seen.set((ack.rx_pkts, ack.rx_bytes, ack.ce_pkts, ack.ce_bytes));
        }
        assert_eq!(packet.ip.dscp_ecn() & 3, 2, "every packet is ECN-capable");
        n += usize::from(side == 0);
        if side == 0 && n % 4 == 0 { Fate::Marked } else { Fate::Pass }
    });
    p.post(0, 1, Op::Write, 0, 256 * 40);
    assert!(p.run(SECOND));
    // IP 20, UDP 8, BTH 12, SR 40, ICRC 4.
    assert_eq!(counts.get(), (40, 40 * (84 + 256), 10, 10 * (84 + 256)));
    assert_eq!(p.ends[1].ep.counters().np_ecn_marked_roce_packets, 10);
    assert_eq!(p.ends[1].ep.counters().np_cnp_sent, 0);
}

#[test]
fn ecn__marks_of_rc_cause_cnps_at_a_limited_rate() {
    let may_be_marked = |a: &mut QpAttr| a.av.as_mut().unwrap().traffic_class = 2;
    let mut p = Pair::with(&PairConfig { rtr: may_be_marked, ..PairConfig::default() });
    let mut n = 0;
    p.filter = Box::new(move |side, _| {
        n += usize::from(side == 0);
        if side == 0 && n % 4 == 0 { Fate::Marked } else { Fate::Pass }
    });
    for i in 0..20 {
        p.post(0, i, Op::Write, 0, 60_000);
    }
    assert!(p.run(SECOND));
    let us = p.now.since(Time::ZERO).as_us();
    let (sent, got) = (p.ends[1].ep.counters().np_cnp_sent, p.ends[0].ep.counters().rp_cnp_handled);
    assert!(sent > 1 && sent == got && sent <= us / 50 + 1, "{sent} in {us} us, {got} arrived");
    assert!(p.ends[1].ep.counters().np_ecn_marked_roce_packets > 1000);
    assert_eq!(p.ends[0].wcs.len(), 20);
}

#[test]
fn ecn__cnps_have_the_configured_interval_and_dscp() {
    let may_be_marked = |a: &mut QpAttr| a.av.as_mut().unwrap().traffic_class = 26 << 2 | 2;
    let run = |config: Config| {
        let mut p = Pair::with(&PairConfig { rtr: may_be_marked, config, ..PairConfig::default() });
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        p.filter = Box::new(move |side, packet| {
            match packet.bth.opcode {
                Opcode::Cnp => log.borrow_mut().push(packet.ip.dscp_ecn()),
                _ => assert_eq!(packet.ip.dscp_ecn() >> 2, 26),
            }
            if side == 0 { Fate::Marked } else { Fate::Pass }
        });
        for i in 0..20 {
            p.post(0, i, Op::Write, 0, 60_000);
        }
        assert!(p.run(SECOND));
        let us = usize::try_from(p.now.since(Time::ZERO).as_us()).unwrap();
        (seen.take(), us)
    };
    let (cnps, us) = run(Config::default());
    assert!(cnps.iter().all(|tos| *tos == 26 << 2 | 2) && cnps.len() <= us / 50 + 1);
    let often = Dur::from_us(4);
    let (more, us) = run(Config { cnp_interval: often, cnp_dscp: Some(48), ..Config::default() });
    assert!(more.iter().all(|tos| *tos == 48 << 2 | 2) && more.len() <= us / 4 + 1, "{more:?}");
    assert!(more.len() > 2 * cnps.len(), "{} {}", more.len(), cnps.len());
}

#[test]
fn read__more_than_may_be_outstanding_are_refused() {
    let mut p = Pair::with(&PairConfig {
        rts: |a| a.max_rd_atomic = Some(3),
        rtr: |a| a.max_dest_rd_atomic = Some(2),
        ..PairConfig::sr()
    });
    for i in 0..3 {
        p.post(0, i, Op::Read, 0, 60_000);
    }
    p.run(SECOND);
    let refused = p.ends[0].wcs.iter().find(|w| w.status == WcStatus::RemInvReqErr);
    assert_eq!(refused.map(|w| w.wr_id), Some(2), "{:?}", p.ends[0].wcs);
}

/// A forged or faulty stream may claim a message length that differs from its data.
#[test]
fn end__the_length_of_a_message_must_match_its_data() {
    let mut p = sr();
    p.post_recv(1, 7, 0, 4096);
    p.post(0, 1, Op::Send, 0, 256);
    let (now, host, mut frame) = (p.now, PortId::HOST, vec![0; 8192]);
    let sent = p.ends[0].ep.poll_transmit(now, host, &mut frame).unwrap();
    let offset_at = 14 + 20 + 8 + 12 + 20;
    frame[offset_at..offset_at + 4].copy_from_slice(&512u32.to_be_bytes());
    spanwire_wire::seal(&mut frame, sent.len);
    p.ends[1].ep.handle_packet(now, host, &frame[..sent.len], &RxMeta::whole(now));
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(statuses(&p.ends[1].wcs), [(7, WcStatus::WrFlushErr)]);
}

/// A simulated minute of every operation at 30 % loss.
#[test]
fn soak__a_minute_of_thirty_percent_loss_causes_no_error() {
    let mut p = Pair::with(&PairConfig {
        config: Config { qp_window_pkts: 64, ..Config::default() },
        ..PairConfig::sr()
    });
    let mut wire = Rng::new(30);
    p.filter = Box::new(move |_, _| match wire.below(10) {
        0..3 => Fate::Drop,
        _ => Fate::Late(Dur::from_ms(5)),
    });
    let want = p.ends[0].fill(0, 8000, 1);
    let source = p.ends[1].fill(40_000, 8000, 2);
    let end = Time::ZERO + SECOND * 60;
    let (mut round, mut sum) = (0, 0);
    let qpn = p.ends[0].qpns[0];
    while p.now < end {
        p.post_recv(1, round, 16_000, 8000);
        p.post(0, 10 * round, Op::Send, 0, 8000);
        p.post(0, 10 * round + 1, Op::Write, 0, 8000);
        p.post(0, 10 * round + 2, Op::Read, 40_000, 8000);
        let (remote, sge) = (p.ends[1].remote(32_000), p.ends[0].sge(32_000, 8));
        let op = WrOp::FetchAdd { remote, add: round + 1 };
        let wr = WorkRequest::new(10 * round + 3, op, std::slice::from_ref(&sge));
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
        (round, sum) = (round + 1, sum + round + 1);
        if round % 8 == 0 {
            assert!(p.run(SECOND * 10), "round {round}: {:?}", p.ends[0].ep.counters());
        }
    }
    p.run(SECOND * 10);
    assert!(round > 300, "only {round} rounds");
    let ids: Vec<u64> = (0..round).flat_map(|r| (0..4).map(move |i| 10 * r + i)).collect();
    assert_eq!(statuses(&p.ends[0].wcs), ok(&ids));
    assert_eq!(p.ends[1].wcs.len() as u64, round);
    assert_eq!(p.ends[1].bytes(32_000, 8), sum.to_ne_bytes());
    assert_eq!(p.ends[1].bytes(16_000, 8000), want);
    assert_eq!(p.ends[0].bytes(40_000, 8000), source);
    assert_eq!(p.ends[1].ep.counters().rx_atomic_requests, round);
}

#[test]
fn handle_sr_packet__each_mode_refuses_the_others_packets() {
    let mut p = sr();
    p.post(0, 1, Op::Write, 0, 10);
    let sent = {
        let mut frame = vec![0; 8192];
        let m = p.ends[0].ep.poll_transmit(p.now, PortId::HOST, &mut frame).unwrap();
        frame.truncate(m.len);
        frame
    };
    assert_eq!(header(&Packet::parse(&sent).unwrap()).unwrap().kind, SrKind::Write);
    p.reconnect(0, &PairConfig::default());
    p.inject(1, &sent);
    assert_eq!(p.ends[1].ep.counters().dropped(DropReason::WrongService), 1);
    // The queue pair then works in the other mode.
    p.post(0, 2, Op::Write, 0, 10);
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), ok(&[2]));
    let attr = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
}
