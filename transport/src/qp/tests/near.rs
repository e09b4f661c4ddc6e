//! Feedback of switches (SR NEAR): requested by our QPN in data, accepted only about the latest
//! transmission of a packet in flight, and without effect beyond congestion control.

use super::hostile::seal;
use super::*;
use crate::{CongestionControl, ErasureCoding, ModifyError, Preset, QpAttr, SrOptions, Wire};
use spanwire_base::{Rate, Time};
use spanwire_cc::Algorithm;
use spanwire_wire::{IntRecords, NearKind, Packet, SrDataRepr, SrNearRepr};
use std::cell::RefCell;
use std::rc::Rc;

/// The data packets of side 0: header, opcode, and bytes of the frame after Ethernet.
pub(super) type Log = Rc<RefCell<Vec<(SrDataRepr, Opcode, usize)>>>;

fn header(p: &Packet<'_>) -> Option<SrDataRepr> {
    let psn = p.bth.psn.get();
    let parsed = match p.bth.opcode {
        Opcode::SrData => SrDataRepr::parse(psn, p.payload),
        Opcode::SrParity => SrDataRepr::parse_parity(psn, p.payload),
        _ => return None,
    };
    Some(parsed.expect("what we send parses").0)
}

/// A pair with this congestion control, whose both sides request feedback.
pub(super) fn pair_with(congestion: CongestionControl) -> (Pair, Log) {
    let options = SrOptions { near: true, ..SrOptions::default() };
    let mut p =
        Pair::with(&PairConfig { options, congestion: Some(congestion), ..PairConfig::sr() });
    let log = watch(&mut p);
    (p, log)
}

fn pair() -> (Pair, Log) {
    pair_with(CongestionControl::NONE)
}

pub(super) fn paper(text: &str) -> CongestionControl {
    let algorithm = Some(Algorithm::parse(text).unwrap());
    CongestionControl {
        algorithm,
        base_rtt: Some(Dur::from_us(10)),
        preset: Preset::Paper,
        ..CongestionControl::NONE
    }
}

pub(super) fn watch(p: &mut Pair) -> Log {
    let log = Log::default();
    let seen = Rc::clone(&log);
    p.filter = Box::new(move |side, packet| {
        if let Some(header) = header(packet).filter(|_| side == 0) {
            let ip_bytes = 20 + 8 + 12 + packet.payload.len() + 4;
            seen.borrow_mut().push((header, packet.bth.opcode, ip_bytes));
        }
        Fate::Pass
    });
    log
}

/// Feedback for side 0.
fn near(p: &Pair, psn: u32, echo_ps: u64, hop_limit: u8) -> Vec<u8> {
    let repr =
        SrNearRepr { kind: NearKind::PseudoAck, psn, hop_limit, echo_ps, int: IntRecords::NONE };
    let bth = BthRepr::new(Opcode::SrNear, p.ends[0].qpns[0], Psn::new(psn & Psn::MASK));
    let mut frame = seal(bth, ExtHeaders::NONE, SrNearRepr::LEN, 0);
    repr.emit(&mut frame[54..]).unwrap();
    let len = frame.len();
    spanwire_wire::seal(&mut frame, len);
    frame
}

/// Injects feedback; true if it was accepted, false if it was stale.
fn inject(p: &mut Pair, psn: u32, echo_ps: u64) -> bool {
    let counts = |p: &Pair| {
        let c = p.ends[0].ep.counters();
        (c.rp_pseudo_acks, c.dropped(DropReason::NearStale), c.rx_packets)
    };
    let before = counts(p);
    let frame = near(p, psn, echo_ps, 62);
    p.inject(0, &frame);
    let after = counts(p);
    match (after.0 - before.0, after.1 - before.1, after.2 - before.2) {
        (1, 0, 1) => true,
        (0, 1, 0) => false,
        other => panic!("counted as {other:?}"),
    }
}

#[test]
fn data__carry_our_qpn_and_frames_are_no_longer() {
    for erasure in [None, Some(ErasureCoding::new(4, 2))] {
        let longest = [false, true].map(|near| {
            let segment_bytes = Some(1400);
            let options = SrOptions { segment_bytes, near, ..SrOptions::default() };
            let mut p = Pair::with(&PairConfig { options, erasure, ..PairConfig::sr() });
            let log = watch(&mut p);
            for (i, op) in (0..).zip(Op::ALL) {
                p.post_recv(1, i, 0, 20_000);
                p.post(0, i, op, 0, 20_000);
            }
            assert!(p.run(SECOND));
            assert_eq!(p.ends[0].wcs.len(), 5);
            let qpn = Some(p.ends[0].qpns[0]).filter(|_| near);
            let log = log.borrow();
            for (header, opcode, _) in log.iter() {
                let expected = qpn.filter(|_| *opcode == Opcode::SrData);
                assert_eq!(header.source_qpn, expected, "{header:?}");
            }
            assert_eq!(log.iter().any(|(_, op, _)| *op == Opcode::SrParity), erasure.is_some());
            log.iter().map(|(.., bytes)| *bytes).max().unwrap()
        });
        // The room for a full packet with the longest header, that of a WRITE's last segment with
        // immediate.
        let room = 20 + 8 + 12 + 24 + 16 + 4 + 4 + 1400 + 4;
        assert_eq!(longest[0], longest[1], "{erasure:?}");
        assert!(longest[1] <= room, "{erasure:?}: {longest:?}");
    }
}

#[test]
fn handle_near__is_accepted_about_a_packet_in_flight() {
    let (mut p, log) = pair();
    p.post(0, 1, Op::Write, 0, 1000);
    p.step(0);
    let sent: Vec<(u32, u64)> = log.borrow().iter().map(|(h, ..)| (h.psn, h.sent_ps)).collect();
    assert_eq!(sent.len(), 4);
    p.now += Dur::from_us(3);
    for (psn, sent_ps) in sent {
        assert!(inject(&mut p, psn, sent_ps));
    }
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

#[test]
fn handle_near__of_another_packet_or_time_is_stale() {
    let (mut p, log) = pair();
    p.now = Time::ZERO + SECOND;
    p.post(0, 1, Op::Write, 0, 1000);
    p.step(0);
    let (psn, sent_ps) = log.borrow().first().map(|(h, ..)| (h.psn, h.sent_ps)).unwrap();
    let end = psn.wrapping_add(4);
    p.now += Dur::from_us(3);
    let now_ps = p.now.as_ps();
    // Never sent: before the first, the next ones, with other upper bits.
    for other in [psn.wrapping_sub(1), end, end + 100, psn ^ 1 << 24, psn ^ 1 << 31] {
        assert!(!inject(&mut p, other, sent_ps), "{other:#x}");
    }
    for echo_ps in [sent_ps - 1, sent_ps + 1, 0, now_ps, now_ps + 1, u64::MAX] {
        assert!(!inject(&mut p, psn, echo_ps), "{echo_ps}");
    }
    assert!(inject(&mut p, psn, sent_ps));
    assert!(p.run(SECOND));
    assert!(!inject(&mut p, psn, sent_ps), "acknowledged");
}

#[test]
fn handle_near__of_an_acknowledged_packet_behind_a_gap_is_stale() {
    let (mut p, log) = pair();
    p.post(0, 1, Op::Write, 0, 1000);
    let mut sent = 0;
    let seen = Rc::clone(&log);
    p.filter = Box::new(move |side, packet| {
        if let Some(header) = header(packet).filter(|_| side == 0) {
            sent += 1;
            seen.borrow_mut().push((header, packet.bth.opcode, 0));
            if sent == 1 {
                return Fate::Drop;
            }
        }
        Fate::Pass
    });
    p.step(0);
    let of = |i: usize| log.borrow().get(i).map(|(h, ..)| (h.psn, h.sent_ps)).unwrap();
    let (lost, arrived) = (of(0), of(1));
    // Until the gap is acknowledged, and the first packet sent again.
    while log.borrow().len() < 5 {
        assert!(inject(&mut p, lost.0, lost.1), "in flight");
        p.run(Dur::from_us(1));
    }
    let again = of(4);
    assert_eq!((again.0, again.1 > lost.1), (lost.0, true));
    assert!(!inject(&mut p, arrived.0, arrived.1), "acknowledged out of order");
    assert!(!inject(&mut p, lost.0, lost.1), "the time of the first transmission");
    assert!(inject(&mut p, again.0, again.1), "that of the second");
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

#[test]
fn handle_near__that_was_not_requested_is_stale() {
    let mut p = Pair::with(&PairConfig::sr());
    let log = watch(&mut p);
    p.post(0, 1, Op::Write, 0, 1000);
    p.step(0);
    let (psn, sent_ps) = log.borrow().first().map(|(h, ..)| (h.psn, h.sent_ps)).unwrap();
    assert!(!inject(&mut p, psn, sent_ps));
}

#[test]
fn handle_near__has_no_effect_on_anything_but_congestion_control() {
    // Every packet and every completion of a lossy transfer, with or without feedback about
    // whatever is in flight.
    let trace = |reports: bool| {
        let (mut p, log) = pair_with(paper("fixed,window_pkts=20,rate_mbps=500"));
        let seen = Rc::clone(&log);
        let mut rng = Rng::new(5);
        p.filter = Box::new(move |side, packet| {
            if let Some(header) = header(packet).filter(|_| side == 0) {
                seen.borrow_mut().push((header, packet.bth.opcode, 0));
            }
            if rng.below(10) == 0 { Fate::Drop } else { Fate::Pass }
        });
        for i in 0..10 {
            p.post(0, i, Op::Write, 0, 20_000);
        }
        let mut accepted = 0;
        for _ in 0..4000 {
            p.run(Dur::from_us(2));
            let recent: Vec<(u32, u64)> =
                log.borrow().iter().rev().take(8).map(|(h, ..)| (h.psn, h.sent_ps)).collect();
            for (psn, sent_ps) in recent {
                accepted += u64::from(reports && inject(&mut p, psn, sent_ps));
            }
        }
        assert!(p.run(SECOND));
        assert_eq!(accepted > 100, reports);
        let counters = p.ends[0].ep.counters();
        let recovery = (counters.retransmitted_packets, counters.local_ack_timeout_err);
        let headers = log.take();
        (headers, recovery, p.ends[0].wcs.clone(), p.now)
    };
    let (with, without) = (trace(true), trace(false));
    assert!(without.1.0 > 20, "losses are recovered: {:?}", without.1);
    assert_eq!(with, without);
}

#[test]
fn handle_near__round_trip_and_hops_reach_congestion_control() {
    // 4 us to a target of 2.6 us, and 2 us for each of two switches: below it. With none, above.
    let rate_after = |hop_limit: u8| {
        let cc = "swift,base_target_us=2.6,hop_us=2,flow_range_us=0,near_base_us=3,initial_pkts=10";
        let (mut p, log) = pair_with(paper(cc));
        let qpn = p.ends[0].qpns[0];
        let rate = |p: &Pair| p.ends[0].ep.query_qp(qpn).unwrap().flow.unwrap().rate.unwrap();
        p.post(0, 1, Op::Write, 0, 5000);
        p.step(0);
        let (psn, sent_ps) = log.borrow().first().map(|(h, ..)| (h.psn, h.sent_ps)).unwrap();
        p.now += Dur::from_us(4);
        let before = rate(&p);
        let frame = near(&p, psn, sent_ps, hop_limit);
        p.inject(0, &frame);
        // The smoothed round trip is 3.125 us.
        (before, rate(&p))
    };
    let windows = [64, 62].map(|hop_limit| {
        let (before, after) = rate_after(hop_limit);
        // Packets of 256 bytes less four.
        assert_eq!(before, Rate::from_bps(10 * 252 * 8_000_000_000 / 3_000));
        let pkts = |rate: Rate, rtt_ns: u64| rate.as_bps() * rtt_ns / (252 * 8_000_000);
        pkts(after, 3125)
    });
    // In thousandths: cut by 0.8 * 1.4 / 4, or not. The window of the endpoints, which ACKs raise,
    // is 10 too.
    assert_eq!(windows, [7200, 10_000]);
}

#[test]
fn modify__feedback_is_requested_once() {
    let mut p = Pair::with(&PairConfig::sr());
    let near = SrOptions { near: true, ..SrOptions::default() };
    let later = QpAttr { wire: Some(Wire::Sr(near)), ..QpAttr::default() };
    let qpn = p.ends[0].qpns[0];
    // Packets sent before would be too long as retransmissions with the QPN.
    assert_eq!(p.ends[0].ep.modify_qp(qpn, &later), Err(ModifyError::NotNow("wire")));
}
