//! The rate of the port: an upper bound of all that it sends, which is reached.

use super::*;
use crate::testing::{End, LATENCY, Op};
use crate::{CongestionControl, FlowLimit, Mtu, WireMode};
use spanwire_base::{Rate, Rng};
use spanwire_cc::Algorithm;
use std::cell::RefCell;
use std::rc::Rc;

const RATE: Rate = Rate::from_bps(100_000_000);

/// Every frame of a side: when it left, and its bytes on the wire.
type Wire = Rc<RefCell<[Vec<(Time, u64)>; 2]>>;

fn pair(mode: WireMode, cc: &str, qps: usize) -> (Pair, Wire) {
    let config = Config { line_rate: RATE, port_rate: Some(RATE), ..Config::default() };
    let algorithm = (cc != "none").then(|| Algorithm::named(cc).unwrap());
    let congestion = CongestionControl { algorithm, ..CongestionControl::NONE };
    let c = PairConfig {
        mode,
        mtu: Mtu::B1024,
        qps,
        config,
        cqe: 1 << 16,
        bytes: 1 << 17,
        congestion: Some(congestion),
        ..PairConfig::default()
    };
    let mut p = Pair::with(&c);
    let wire = Wire::default();
    let log = Rc::clone(&wire);
    p.on_sent = Box::new(move |side, now, frame_bytes| {
        log.borrow_mut()[side].push((now, frame_bytes.max(60) + 24));
    });
    (p, wire)
}

/// Side 0 has WRITEs of `len` bytes posted at any time of `time`, on every queue pair.
fn run(p: &mut Pair, len: usize, time: Dur) {
    let end = p.now + time;
    let remote = p.ends[1].remote(0);
    let sge = p.ends[0].sge(0, len);
    let wr = WorkRequest::new(1, WrOp::Write { remote }, std::slice::from_ref(&sge));
    while p.now < end {
        for index in 0..p.ends[0].qpns.len() {
            let qpn = p.ends[0].qpns[index];
            while p.ends[0].ep.post_send(qpn, &wr).is_ok() {}
        }
        p.step(0);
        p.step(1);
        p.ends[0].wcs.clear();
        let next = p.ends.iter().filter_map(End::next_event).min().unwrap_or(end);
        p.now = p.now.max(next.min(end));
    }
}

/// The most bytes beyond the rate of any interval.
fn excess(sent: &[(Time, u64)]) -> u64 {
    // Of all intervals that end here, the one that began with the fullest bucket counts.
    // One token is a bit a second in a picosecond, so that nothing is rounded.
    const BYTE: u128 = 8_000_000_000_000;
    let (mut level, mut at, mut most) = (0, Time::ZERO, 0);
    for (now, bytes) in sent {
        let left = u128::from(now.since(at).as_ps()) * u128::from(RATE.as_bps());
        level = u128::saturating_sub(level, left) + u128::from(*bytes) * BYTE;
        (at, most) = (*now, most.max(level));
    }
    u64::try_from(most.div_ceil(BYTE)).unwrap()
}

fn total(sent: &[(Time, u64)]) -> u64 {
    sent.iter().map(|(_, bytes)| bytes).sum()
}

/// Two packets, and the one that is due.
const BURST: u64 = 2 * 4300 + 1200;

#[test]
fn port_rate__is_an_upper_bound_and_is_reached_with_any_congestion_control() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        for cc in ["none", "fixed", "auto", "unocc"] {
            for (qps, len) in [(1, 64), (1, 65_536), (8, 64), (8, 65_536), (64, 64), (64, 65_536)] {
                let (mut p, wire) = pair(mode, cc, qps);
                let time = Dur::from_ms(150);
                run(&mut p, len, time);
                let what = format!("{mode:?}, {cc}, {qps} queue pairs, {len} bytes");
                let wire = wire.borrow();
                let most = wire.each_ref().map(|sent| excess(sent));
                assert!(most.into_iter().all(|most| most <= BURST), "{what}: {most:?} in a burst");
                let (sent, rate) = (total(&wire[0]), RATE.bytes_in(time));
                assert!(sent >= rate / 100 * 95, "{what}: {sent} of {rate} bytes");
                // No timer expired because packets waited for the port.
                let counters = p.ends[0].ep.counters();
                let spurious = (counters.retransmitted_packets, counters.local_ack_timeout_err);
                assert_eq!(spurious, (0, 0), "{what}");
            }
        }
    }
}

#[test]
fn port_rate__holds_for_retransmissions_acks_and_both_directions() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        for cc in ["none", "auto"] {
            let (mut p, wire) = pair(mode, cc, 8);
            let mut rng = Rng::new(7);
            p.filter =
                Box::new(move |_, _| if rng.below(20) == 0 { Fate::Drop } else { Fate::Pass });
            let sge = p.ends[1].sge(0, 65_536);
            let remote = p.ends[0].remote(0);
            let wr = WorkRequest::new(1, WrOp::Write { remote }, std::slice::from_ref(&sge));
            for qpn in p.ends[1].qpns.clone() {
                while p.ends[1].ep.post_send(qpn, &wr).is_ok() {}
            }
            run(&mut p, 4096, Dur::from_ms(300));
            let what = format!("{mode:?} with {cc}");
            let most = wire.borrow().each_ref().map(|sent| excess(sent));
            assert!(most.into_iter().all(|most| most <= BURST), "{what}: {most:?} in a burst");
            assert!(p.ends[0].ep.counters().retransmitted_packets > 0, "{what}: nothing was lost");
            assert!(p.ends[1].ep.counters().tx_acks > 0, "{what}: no ACK was sent");
        }
    }
}

#[test]
fn port_rate__a_late_worker_catches_up_on_ten_milliseconds_at_most() {
    let (mut p, wire) = pair(WireMode::Sr, "none", 1);
    run(&mut p, 65_536, Dur::from_ms(20));
    for late in [Dur::from_ms(4), Dur::from_ms(1000)] {
        let begin = p.now;
        p.now += late;
        run(&mut p, 65_536, Dur::from_ms(20));
        let most = excess(&wire.borrow()[0]);
        let burst = RATE.bytes_in(late.min(Dur::from_ms(10))) + BURST;
        assert!(most <= burst, "{most} bytes after {late:?}");
        if late < Dur::from_ms(10) {
            let sent: u64 = wire.borrow()[0].iter().filter(|s| s.0 > begin).map(|s| s.1).sum();
            assert!(sent >= RATE.bytes_in(late + Dur::from_ms(20)) / 100 * 95, "{sent} bytes");
        }
    }
}

#[test]
fn port_rate__time_spent_waiting_is_that_of_the_pacer() {
    for (mode, qps) in [(WireMode::Rc, 1), (WireMode::Sr, 1), (WireMode::Sr, 64)] {
        let (mut p, _) = pair(mode, "fixed", qps);
        run(&mut p, 4096, Dur::from_ms(200));
        for qpn in &p.ends[0].qpns {
            let info = p.ends[0].ep.query_qp(*qpn).and_then(|qp| qp.flow).unwrap();
            let times = info.times_at(p.now);
            let all = FlowLimit::ALL.iter().fold(Dur::ZERO, |sum, limit| sum + times.by(*limit));
            assert!(all > Dur::from_ms(50), "{mode:?}: {times:?}");
            assert!(times.by(FlowLimit::Pacer) > all * 9 / 10, "{mode:?}: {times:?}");
        }
    }
}

#[test]
fn port_rate__an_idle_port_wakes_no_driver() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        let (mut p, wire) = pair(mode, "none", 1);
        p.post(0, 1, Op::Write, 0, 8000);
        assert!(p.run(Dur::from_secs(10)), "{mode:?}: a timer is left");
        assert!(p.now.since(Time::ZERO) < Dur::from_secs(1));
        assert_eq!(p.ends[0].ep.poll_timeout(), None);
        assert_eq!(p.ends[0].wcs.len(), 1);
        // Eight packets, of which three are the burst, leave at the rate.
        let sent = wire.borrow()[0].clone();
        assert_eq!(sent.len(), 8);
        assert!(sent.iter().all(|(at, _)| *at < Time::ZERO + LATENCY + Dur::from_ms(1)));
    }
}
