//! INT, the telemetry of switches: requested if congestion control uses it, echoed by the peer, and
//! without other effect.

use super::flow::pair;
use super::*;
use crate::SrOptions;
use spanwire_wire::{
    INT_COMPACT_LEN, INT_FULL_LEN, INT_HEADER_LEN, IntFormat, IntHop, IntStack, SrAckRepr,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Packets observed on the wire.
#[derive(Debug, Default)]
struct Seen {
    /// Data packets of side 0: those that request telemetry, and the others.
    asking: usize,
    without_request: usize,
    most_payload: usize,
    /// INT records in each ACK of side 1.
    echoed: Vec<usize>,
    /// The numbers of their formats.
    formats: BTreeSet<u8>,
}

/// A port of 10 Gbit/s, either always busy with a queue of 500 kB, or idle.
fn port(us: u64, is_busy: bool) -> IntHop {
    let (tx_bytes, queue_bytes) = if is_busy { (us * 1250, 500_000) } else { (0, 0) };
    IntHop { time_ps: us * 1_000_000, tx_bytes, queue_bytes, link_rate_mbps: 10_000 }
}

/// Two switches on the path from side 0 to side 1, the second as configured. Returns the packets
/// observed.
fn watch(p: &mut Pair, is_busy: bool) -> Rc<RefCell<Seen>> {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let log = Rc::clone(&seen);
    let mut us = 0;
    p.filter = Box::new(move |side, packet| {
        let mut log = log.borrow_mut();
        if packet.bth.opcode == Opcode::SrAck {
            assert_eq!(packet.trailer, [], "an ACK requests no telemetry");
            let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
            assert_eq!(ack.hop_limit, 64, "no switch has routed it");
            if side == 1 {
                log.echoed.push(ack.int.len());
                log.formats.extend((!ack.int.is_empty()).then(|| ack.int.format().to_u8()));
            }
            return Fate::Pass;
        }
        us += 1;
        if side == 1 {
            return Fate::Pass;
        }
        log.most_payload = log.most_payload.max(packet.payload_len());
        match IntStack::parse(packet.trailer) {
            Some(stack) => {
                assert!(stack.is_empty());
                log.asking += 1;
            }
            None => log.without_request += 1,
        }
        Fate::Stamped(vec![port(us, false), port(us, is_busy)])
    });
    seen
}

/// Sends WRITEs for at least 2 ms. Returns the window at the end.
fn window_after_writes(p: &mut Pair) -> u64 {
    for i in 0..40 {
        p.post(0, i, Op::Write, 0, 20_000);
        p.run(Dur::from_us(60));
    }
    assert!(p.run(SECOND * 60));
    p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().flow.unwrap().cwnd_bytes
}

/// A pair in SR whose packets request records of this format.
fn pair_of(format: IntFormat, name: &str) -> Pair {
    // Room of one length, so that full packets are equal.
    let int_hops = if format == IntFormat::Full { 5 } else { 15 };
    let config = Config { int_format: format, int_hops, ..Config::default() };
    let options = SrOptions { segment_bytes: Some(1400), ..SrOptions::default() };
    let mut p = Pair::with(&PairConfig { options, config, ..PairConfig::sr() });
    set_congestion(&mut p, name);
    p
}

fn set_congestion(p: &mut Pair, name: &str) {
    let algorithm = spanwire_cc::Algorithm::named(name).unwrap();
    let congestion = Some(crate::CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: crate::Preset::Paper,
        ..crate::CongestionControl::NONE
    });
    let attr = crate::QpAttr { congestion, ..crate::QpAttr::default() };
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
}

#[test]
fn window__follows_compact_telemetry_as_it_follows_full_telemetry() {
    for name in ["hpcc", "powertcp"] {
        let windows = |is_busy| {
            IntFormat::ALL.map(|format| {
                let mut p = pair_of(format, name);
                let seen = watch(&mut p, is_busy);
                let window = window_after_writes(&mut p);
                let seen = seen.borrow();
                assert_eq!((seen.without_request, seen.formats.len()), (0, 1), "{name}");
                assert!(seen.formats.contains(&format.to_u8()), "{name}: {seen:?}");
                window
            })
        };
        let ([full, compact], [held, held_compact]) = (windows(false), windows(true));
        assert_eq!(full, compact, "{name}: an idle port");
        assert!(held < full / 9, "{name}: {full} {held}");
        assert!(held.abs_diff(held_compact) <= held / 50, "{name}: {held} {held_compact}");
    }
}

#[test]
fn window__follows_the_telemetry() {
    for name in ["hpcc", "powertcp"] {
        let allowed = |is_busy| {
            let mut p = pair(WireMode::Sr, name, &[]);
            let seen = watch(&mut p, is_busy);
            let window = window_after_writes(&mut p);
            let seen = seen.borrow();
            assert_eq!(seen.without_request, 0, "{name}");
            assert!(seen.echoed.iter().all(|n| *n == 2) && seen.echoed.len() > 50, "{seen:?}");
            window
        };
        let (free, held) = (allowed(false), allowed(true));
        // The port has a tenth of the local line rate.
        assert!(free > 100_000 && held < free / 9, "{name}: {free} {held}");
    }
}

#[test]
fn full_packets__are_shorter_by_the_room_for_telemetry() {
    let options = SrOptions { segment_bytes: Some(1400), ..SrOptions::default() };
    let with = |int_format, int_hops| {
        let config = Config { int_format, int_hops, ..Config::default() };
        Pair::with(&PairConfig { options, config, ..PairConfig::sr() })
    };
    let mut p = with(IntFormat::Full, 8);
    let window = |p: &mut Pair, name| {
        set_congestion(p, name);
        let seen = watch(p, false);
        p.post(0, 1, Op::Write, 0, 60_000);
        assert!(p.run(SECOND));
        seen.borrow().most_payload
    };
    // SR's header with a RETH has 40 bytes.
    let header = 24 + 16;
    assert_eq!(window(&mut p, "dctcp"), 1400 + header);
    let overhead = INT_HEADER_LEN + 8 * INT_FULL_LEN;
    assert_eq!(window(&mut p, "hpcc"), 1400 - overhead + header);
    assert_eq!(window(&mut p, "theta-powertcp"), 1400 + header, "and back");
    let mut p = with(IntFormat::Compact, 5);
    assert_eq!(window(&mut p, "hpcc"), 1400 - 48 + header, "five hops as HPCC's");
}

#[test]
fn algorithms_without_telemetry__neither_request_nor_receive_it() {
    for (mode, name) in
        [(WireMode::Sr, "dctcp"), (WireMode::Sr, "theta-powertcp"), (WireMode::Rc, "hpcc")]
    {
        let allowed = |is_busy| {
            let mut p = pair(mode, name, &[]);
            let seen = watch(&mut p, is_busy);
            let window = window_after_writes(&mut p);
            let seen = seen.borrow();
            assert_eq!(seen.asking, 0, "{name}");
            assert!(seen.echoed.iter().all(|n| *n == 0));
            window
        };
        assert_eq!(allowed(false), allowed(true), "{name}");
    }
}

/// Delivers a copy of each packet of side 0 to side 1, with `trailer` after it.
fn echo_of(trailer: &[u8]) -> Vec<usize> {
    let mut p = pair(WireMode::Sr, "dctcp", &[]);
    let seen = watch(&mut p, false);
    p.post(0, 1, Op::Write, 0, 1000);
    p.step(0);
    p.now += LATENCY;
    for mut frame in p.take_inbox(1) {
        frame.extend(trailer);
        p.inject(1, &frame);
    }
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    seen.take().echoed
}

#[test]
fn trailers__of_any_content_change_only_the_echo() {
    let stack_of = |format: u8, hops: u8, max: u8, bytes: usize| {
        let mut trailer = b"INTs".to_vec();
        trailer.extend([1, hops, max, format]);
        trailer.resize(INT_HEADER_LEN + bytes, 0xff);
        trailer
    };
    let stack = |hops, max, bytes| stack_of(0, hops, max, bytes);
    for nothing in [
        vec![0; 46],
        vec![0xff; 400],
        b"INTs".to_vec(),
        stack(0, 8, 0),
        stack(9, 8, 9 * INT_FULL_LEN),
        stack(8, 8, 8 * INT_FULL_LEN - 1),
        stack(17, 17, 17 * INT_FULL_LEN),
        stack(255, 255, 255 * INT_FULL_LEN),
        stack_of(1, 8, 8, 8 * INT_COMPACT_LEN - 1),
        stack_of(1, 17, 17, 17 * INT_COMPACT_LEN),
        stack_of(2, 8, 8, 8 * INT_FULL_LEN),
        stack_of(255, 8, 8, 8 * INT_FULL_LEN),
    ] {
        assert!(echo_of(&nothing).iter().all(|n| *n == 0), "{nothing:?}");
    }
    // The packet shows that the peer requested it. The peer receives the echo and ignores it.
    assert!(echo_of(&stack(16, 16, 16 * INT_FULL_LEN)).contains(&16));
    assert!(echo_of(&stack_of(1, 16, 16, 16 * INT_COMPACT_LEN)).contains(&16));
}
