//! Near telemetry (SR NEAR kind 1): it changes the rate of congestion control that uses telemetry,
//! if it is about a packet in flight, was requested, and is in the requested format.

use super::hostile::seal;
use super::near::{Log, pair_with, paper, watch};
use super::*;
use spanwire_base::{Rate, Time};
use spanwire_wire::{IntCompactHop, IntFormat, IntHop, IntRecords, NearKind, SrNearRepr};

/// The endpoint's reaction to near telemetry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Used,
    Stale,
}

/// The telemetry of a port of 10 Gbit/s that is always busy, with a queue of 500 kB.
fn records(us: u64, format: IntFormat) -> Vec<u8> {
    let hop = IntHop {
        time_ps: us * 1_000_000,
        tx_bytes: us * 1250,
        queue_bytes: 500_000,
        link_rate_mbps: 10_000,
    };
    let mut bytes = vec![1, format.to_u8(), 0, 0];
    bytes.resize(4 + format.record_len(), 0);
    match format {
        IntFormat::Full => hop.emit(bytes[4..].first_chunk_mut().unwrap()),
        IntFormat::Compact => {
            IntCompactHop::from(&hop).emit(bytes[4..].first_chunk_mut().unwrap());
        }
    }
    bytes
}

fn inject(p: &mut Pair, (psn, echo_ps): (u32, u64), records: &[u8]) -> Outcome {
    let int = IntRecords::parse(records);
    let repr = SrNearRepr { kind: NearKind::Telemetry, psn, hop_limit: 62, echo_ps, int };
    let bth = BthRepr::new(Opcode::SrNear, p.ends[0].qpns[0], Psn::new(psn & Psn::MASK));
    let mut frame = seal(bth, ExtHeaders::NONE, repr.header_len(), 0);
    repr.emit(&mut frame[54..]).unwrap();
    let len = frame.len();
    spanwire_wire::seal(&mut frame, len);
    let counts = |p: &Pair| {
        let c = p.ends[0].ep.counters();
        assert_eq!(c.rp_pseudo_acks, 0);
        (c.rp_near_int, c.dropped(DropReason::NearStale))
    };
    let before = counts(p);
    p.inject(0, &frame);
    let after = counts(p);
    match (after.0 - before.0, after.1 - before.1) {
        (1, 0) => Outcome::Used,
        (0, 1) => Outcome::Stale,
        other => panic!("counted as {other:?}"),
    }
}

fn rate(p: &Pair) -> Rate {
    p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().flow.unwrap().rate.unwrap()
}

/// A pair whose side 0 has a packet in flight: its PSN and the time it was sent.
fn pair_in_flight(mut p: Pair, log: &Log) -> (Pair, (u32, u64)) {
    p.now = Time::ZERO + SECOND;
    p.post(0, 1, Op::Write, 0, 1000);
    p.step(0);
    p.now += Dur::from_us(3);
    let sent = log.borrow().first().map(|(h, ..)| (h.psn, h.sent_ps)).unwrap();
    (p, sent)
}

#[test]
fn handle_near__telemetry_changes_the_rate() {
    for name in ["hpcc", "powertcp"] {
        let (p, log) = pair_with(paper(name));
        let (mut p, sent) = pair_in_flight(p, &log);
        let before = rate(&p);
        assert_eq!(inject(&mut p, sent, &records(100, IntFormat::Full)), Outcome::Used);
        assert_eq!(rate(&p), before, "{name}: a single record shows no load");
        p.now += Dur::from_us(20);
        assert_eq!(inject(&mut p, sent, &records(120, IntFormat::Full)), Outcome::Used);
        let after = rate(&p);
        assert!(after.as_bps() < before.as_bps() / 4, "{name}: {before:?} {after:?}");
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    }
}

#[test]
fn handle_near__telemetry_that_is_invalid_changes_nothing() {
    let (p, log) = pair_with(paper("hpcc"));
    let (mut p, sent) = pair_in_flight(p, &log);
    let before = rate(&p);
    for us in [100, 120, 140] {
        let full = records(us, IntFormat::Full);
        for echo_ps in [sent.1 - 1, sent.1 + 1, 0, p.now.as_ps(), u64::MAX] {
            assert_eq!(inject(&mut p, (sent.0, echo_ps), &full), Outcome::Stale, "{echo_ps}");
        }
        for psn in [sent.0.wrapping_sub(1), sent.0 + 100, sent.0 ^ 1 << 31] {
            assert_eq!(inject(&mut p, (psn, sent.1), &full), Outcome::Stale, "{psn:#x}");
        }
        let compact = records(us, IntFormat::Compact);
        assert_eq!(inject(&mut p, sent, &compact), Outcome::Stale, "another format");
        p.now += Dur::from_us(20);
    }
    assert_eq!(rate(&p), before);
    assert!(p.run(SECOND));
    assert_eq!(inject(&mut p, sent, &records(160, IntFormat::Full)), Outcome::Stale, "replayed");
}

#[test]
fn handle_near__telemetry_that_was_not_requested_is_stale() {
    // Feedback without telemetry, and telemetry without feedback.
    let (p, log) = pair_with(paper("swift,near_base_us=3"));
    let (mut p, sent) = pair_in_flight(p, &log);
    assert_eq!(inject(&mut p, sent, &records(100, IntFormat::Full)), Outcome::Stale);
    let mut p = Pair::with(&PairConfig { congestion: Some(paper("hpcc")), ..PairConfig::sr() });
    let log = watch(&mut p);
    let (mut p, sent) = pair_in_flight(p, &log);
    let attr = p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().attr;
    assert_eq!(attr.sr().map(|sr| sr.near), Some(false));
    assert_eq!(inject(&mut p, sent, &records(100, IntFormat::Full)), Outcome::Stale);
}
