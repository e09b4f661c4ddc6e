//! Congestion control and pacer of a queue pair: windows and rates apply in both wire modes, and
//! with every algorithm all data arrive.

use super::*;
use crate::{CongestionControl, FlowLimit, Preset, QpAttr, SrOptions};
use spanwire_base::{Node, Time};
use spanwire_cc::Algorithm;
use std::cell::RefCell;
use std::rc::Rc;

/// A pair whose side 0 uses this congestion control, and both sides if the peer takes part in it.
pub(super) fn pair(mode: WireMode, algorithm: &str, set: &[(&str, &str)]) -> Pair {
    pair_with(Config::default(), mode, algorithm, set)
}

fn pair_with(config: Config, mode: WireMode, algorithm: &str, set: &[(&str, &str)]) -> Pair {
    // RC gets marks only if its packets are ECN-capable.
    let ect: fn(&mut QpAttr) = |attr| attr.av.as_mut().unwrap().traffic_class = 2;
    let mut algorithm = Algorithm::named(algorithm).unwrap();
    for (name, value) in set {
        algorithm.set(name, value).unwrap();
    }
    let has_credit = mode == WireMode::Sr && algorithm.wants_credit();
    let (near, credit) = (has_credit, has_credit);
    let options = SrOptions { near, credit, ..SrOptions::default() };
    let mut p =
        Pair::with(&PairConfig { config, mode, rtr: ect, options, ..PairConfig::default() });
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let attr = QpAttr { congestion, ..QpAttr::default() };
    for end in &mut p.ends[..if has_credit { 2 } else { 1 }] {
        end.ep.modify_qp(end.qpns[0], &attr).unwrap();
    }
    p
}

/// The times at which side 0 sends a data packet.
fn log_of(p: &mut Pair) -> Rc<RefCell<Vec<usize>>> {
    let sizes = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&sizes);
    p.filter = Box::new(move |side, packet| {
        if side == 0 && packet.payload_len() > 100 {
            log.borrow_mut().push(packet.payload_len());
        }
        Fate::Pass
    });
    sizes
}

fn limit(p: &Pair) -> FlowLimit {
    p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().flow.unwrap().limit
}

fn in_flight_pkts(p: &Pair) -> u64 {
    p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().in_flight_pkts
}

#[test]
fn window__is_never_exceeded_and_nothing_stalls() {
    for mode in MODES {
        for pkts in [1_u64, 2, 3, 7, 40] {
            let mut p = pair(mode, "fixed", &[("window_pkts", &pkts.to_string())]);
            let want = p.ends[0].fill(0, 25_600, 3);
            p.post(0, 1, Op::Write, 0, 25_600);
            let begin = p.now;
            let mut most = 0;
            while p.ends[0].wcs.is_empty() {
                p.run(Dur::from_us(1));
                most = most.max(in_flight_pkts(&p));
                assert!(p.now.since(begin) < SECOND, "{mode:?} {pkts}");
            }
            assert_eq!(p.ends[1].bytes(0, 25_600), want);
            assert!(most <= pkts, "{mode:?}: {most} of {pkts}");
            assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0, "{mode:?} {pkts}");
            // The RTT is 10 us, and ACKs of SR may be delayed slightly.
            let round_trips = 100_u64.div_ceil(pkts);
            let took = p.now.since(begin).as_us();
            assert!(took <= round_trips * 25 + 60, "{mode:?} {pkts}: {took} us");
        }
    }
}

#[test]
fn window__over_a_short_round_trip_fits_the_receive_buffer() {
    for (delay_us, most_pkts) in [(0, 4..5), (995, 8..12)] {
        for mode in MODES {
            let config = Config { receive_room_bytes: Some(6_000), ..Config::default() };
            let mut p = pair_with(config, mode, "fixed", &[("window_pkts", "100")]);
            p.filter = Box::new(move |_, _| Fate::Late(Dur::from_us(delay_us)));
            let want = p.ends[0].fill(0, 25_600, 3);
            p.post(0, 1, Op::Write, 0, 25_600);
            let begin = p.now;
            let mut most = 0;
            while p.ends[0].wcs.is_empty() {
                p.run(Dur::from_us(1));
                most = most.max(in_flight_pkts(&p));
                assert!(p.now.since(begin) < SECOND, "{mode:?}");
            }
            assert_eq!(p.ends[1].bytes(0, 25_600), want);
            assert!(most_pkts.contains(&most), "{mode:?}, {delay_us} us: {most}");
        }
    }
}

#[test]
fn window__reduced_below_packets_without_ack_req_needs_no_timeout() {
    for mode in MODES {
        let mut p = pair(mode, "fixed", &[("window_pkts", "100")]);
        let want = p.ends[0].fill(0, 60_000, 3);
        p.post(0, 1, Op::Write, 0, 60_000);
        while in_flight_pkts(&p) < 100 {
            p.step(0);
        }
        let mut algorithm = Algorithm::named("fixed").unwrap();
        algorithm.set("window_pkts", "2").unwrap();
        let choice = CongestionControl {
            algorithm: Some(algorithm),
            preset: Preset::Paper,
            ..CongestionControl::NONE
        };
        let attr = QpAttr { congestion: Some(choice), ..QpAttr::default() };
        let qpn = p.ends[0].qpns[0];
        p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
        let begin = p.now;
        while p.ends[0].wcs.is_empty() {
            let before = in_flight_pkts(&p);
            p.run(Dur::from_us(1));
            let after = in_flight_pkts(&p);
            assert!(after <= before.max(3), "{mode:?}: {before}, then {after} in flight");
            assert!(p.now.since(begin) < SECOND, "{mode:?}");
        }
        assert_eq!(p.ends[1].bytes(0, 60_000), want);
        let c = p.ends[0].ep.counters();
        assert_eq!(c.local_ack_timeout_err, 0, "{mode:?}");
        if mode == WireMode::Rc {
            assert_eq!(c.retransmitted_packets, 0);
        }
    }
}

#[test]
fn pacer__keeps_the_rate_and_reports_the_limit() {
    for mode in MODES {
        // 256 bytes and headers, about 350 bytes on the wire, at 28 Mbit/s: one each 100 us.
        let mut p = pair(mode, "fixed", &[("rate_mbps", "28")]);
        let sizes = log_of(&mut p);
        let want = p.ends[0].fill(0, 25_600, 3);
        p.post(0, 1, Op::Write, 0, 25_600);
        assert!(!p.run(Dur::from_ms(5)));
        assert_eq!(limit(&p), FlowLimit::Pacer);
        let sent = sizes.borrow().len();
        assert!((46..=58).contains(&sent), "{mode:?}: {sent} in 5 ms");
        assert!(p.run(SECOND));
        assert_eq!(p.ends[1].bytes(0, 25_600), want);
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
        assert_eq!(limit(&p), FlowLimit::Application);
    }
}

#[test]
fn pacer__a_paced_queue_pair_does_not_delay_an_unpaced_one() {
    let c = PairConfig { qps: 2, ..PairConfig::sr() };
    let mut p = Pair::with(&c);
    let mut algorithm = Algorithm::named("fixed").unwrap();
    algorithm.set("rate_mbps", "1").unwrap();
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.modify_qp(qpn, &QpAttr { congestion, ..QpAttr::default() }).unwrap();
    p.post(0, 1, Op::Write, 0, 20_000);
    p.ends[0].qpns.swap(0, 1);
    p.post(0, 2, Op::Write, 20_000, 20_000);
    p.run(Dur::from_ms(1));
    assert_eq!(statuses(&p.ends[0].wcs), [(2, WcStatus::Success)]);
}

#[test]
fn every_algorithm__delivers_all_data_over_an_impaired_wire() {
    for mode in MODES {
        for name in Algorithm::known() {
            for seed in 0..3 {
                let mut p = pair(mode, name, &[]);
                let mut rng = Rng::new(seed);
                p.filter = Box::new(move |_, _| match rng.below(100) {
                    0..5 => Fate::Drop,
                    5..8 => Fate::Twice,
                    8..12 => Fate::Late(Dur::from_us(rng.below(30))),
                    12..30 => Fate::Marked,
                    _ => Fate::Pass,
                });
                let writes: Vec<(usize, Vec<u8>)> =
                    [0, 3000, 6000].map(|at| (at, p.ends[0].fill(at, 900, at as u64))).into();
                p.ends[0].fill(1000, 900, 77);
                let reads = [2000, 4000].map(|at| p.ends[1].fill(at, 900, 50 + at as u64));
                post_mixture(&mut p);
                let what = format!("{name}, {mode:?}, seed {seed}");
                assert!(p.run(SECOND * 60), "{what}: does not end");
                check_mixture(&p, &reads, &writes, &what);
            }
        }
    }
}

#[test]
fn marks__reach_the_algorithm_by_counts_in_sr_and_by_cnps_in_rc() {
    for (mode, name) in [(WireMode::Sr, "dctcp"), (WireMode::Rc, "dcqcn")] {
        let allowed = |marks: bool| {
            let mut p = pair(mode, name, &[]);
            p.filter = Box::new(move |side, _| match side == 0 && marks {
                true => Fate::Marked,
                false => Fate::Pass,
            });
            for i in 0..40 {
                p.post(0, i, Op::Write, 0, 60_000);
                p.run(Dur::from_us(60));
            }
            let info = p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().flow.unwrap();
            (info.cwnd_bytes, info.rate, info.marked_bytes)
        };
        let (free, held) = (allowed(false), allowed(true));
        assert!(held.0 < free.0 / 2 || held.1 < free.1, "{name}: {free:?} {held:?}");
        assert_eq!(free.2, 0);
        assert_eq!(held.2 > 0, mode == WireMode::Sr);
    }
}

#[test]
fn marks__of_read_responses_slow_the_requester_of_rc() {
    let allowed = |marks: bool| {
        let mut p = pair(WireMode::Rc, "dcqcn", &[]);
        p.filter = Box::new(move |side, _| match side == 1 && marks {
            true => Fate::Marked,
            false => Fate::Pass,
        });
        for i in 0..40 {
            p.post(0, i, Op::Read, 0, 60_000);
            p.run(Dur::from_us(60));
        }
        assert_eq!(p.ends[0].ep.counters().np_cnp_sent, 0, "the responder paces nothing");
        p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().flow.unwrap().rate
    };
    let (free, held) = (allowed(false), allowed(true));
    assert!(held < free, "{free:?} {held:?}");
}

#[test]
fn marks__of_read_responses_cause_cnps_without_congestion_control() {
    let may_be_marked = |a: &mut QpAttr| a.av.as_mut().unwrap().traffic_class = 2;
    let mut p = Pair::with(&PairConfig { rtr: may_be_marked, ..PairConfig::default() });
    p.filter = Box::new(|side, _| if side == 1 { Fate::Marked } else { Fate::Pass });
    p.post(0, 1, Op::Read, 0, 60_000);
    assert!(p.run(SECOND));
    assert!(p.ends[0].ep.counters().np_cnp_sent > 0, "adapters pace responses");
}

#[test]
fn window__of_reads_holds_below_a_chunk() {
    for pkts in [1_u64, 2, 5, 31, 63] {
        let mut p = pair(WireMode::Rc, "fixed", &[("window_pkts", &pkts.to_string())]);
        let want = p.ends[1].fill(0, 51_200, 3);
        p.post(0, 1, Op::Read, 0, 51_200);
        let mut most = 0;
        while p.ends[0].wcs.is_empty() {
            p.run(Dur::from_us(1));
            let info = p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap();
            most = most.max(info.in_flight_pkts);
            assert!(p.now.since(Time::ZERO) < SECOND, "{pkts}");
        }
        assert_eq!(p.ends[0].bytes(0, 51_200), want);
        assert!(most <= pkts && most >= pkts.div_ceil(2), "{most} of {pkts}");
    }
}

#[test]
fn modify__accepts_congestion_control_from_rts_on_and_checks_it() {
    let mut p = pair_in(WireMode::Sr);
    let qpn = p.ends[0].qpns[0];
    let params = spanwire_cc::dctcp::Params { g: 7.0, ..Default::default() };
    let algorithm = Algorithm::Dctcp(params);
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let attr = QpAttr { congestion, ..QpAttr::default() };
    let refused = p.ends[0].ep.modify_qp(qpn, &attr);
    assert_eq!(refused, Err(crate::ModifyError::OutOfRange("congestion")));
    assert!(p.ends[0].ep.query_qp(qpn).unwrap().flow.is_none());
    assert!(p.ends[0].ep.poll_timeout().is_none_or(|t| t > Time::ZERO));
}

/// Both sides send at a fixed rate of 1 Mbit/s: a full packet takes about 3 ms.
fn slow_pair() -> Pair {
    let mut p = pair(WireMode::Sr, "fixed", &[("rate_mbps", "1")]);
    let mut algorithm = Algorithm::named("fixed").unwrap();
    algorithm.set("rate_mbps", "1").unwrap();
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let qpn = p.ends[1].qpns[0];
    p.ends[1].ep.modify_qp(qpn, &QpAttr { congestion, ..QpAttr::default() }).unwrap();
    p
}

#[test]
fn probes__do_not_replace_paced_data() {
    // Each side has responses to send and awaits responses, so it would probe continually.
    let mut p = slow_pair();
    for side in [0, 1] {
        for i in 0..4 {
            p.post(side, i, Op::Read, 0, 1000);
        }
    }
    assert!(p.run(Dur::from_ms(200)), "32 packets take 100 ms at most");
    for side in [0, 1] {
        assert_eq!(p.ends[side].wcs.len(), 4);
    }
}

#[test]
fn pacer__delays_probes_and_retransmissions() {
    let mut p = slow_pair();
    let sizes = log_of(&mut p);
    let log = Rc::clone(&sizes);
    p.filter = Box::new(move |side, packet| {
        if side == 0 {
            log.borrow_mut().push(packet.payload_len());
        }
        Fate::Drop
    });
    p.post(0, 1, Op::Write, 0, 1000);
    p.run(Dur::from_ms(300));
    let sent = sizes.borrow().len();
    // A burst of three, then one each 3 ms; at least some, or the peer would never be probed.
    assert!((6..=3 + 110).contains(&sent), "{sent} in 300 ms");
    let counters = p.ends[0].ep.counters();
    assert!(counters.tail_loss_probes > 0 && counters.local_ack_timeout_err > 0);
    assert!(p.run(SECOND * 20), "the queue pair failed");
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RetryExcErr)]);
}

/// Congestion windows after 2 ms of messages of `len` bytes that are never marked.
fn grown(mode: WireMode, op: Op, len: usize, own_pkts: u32) -> u64 {
    let config = Config {
        qp_window_pkts: own_pkts,
        ack_req_interval_pkts: 1,
        read_chunk_pkts: 2,
        ..Config::default()
    };
    let rts: fn(&mut QpAttr) = |attr| attr.max_rd_atomic = Some(1);
    let mut p = Pair::with(&PairConfig { mode, config, rts, ..PairConfig::default() });
    let algorithm = Algorithm::named("dctcp").unwrap();
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.modify_qp(qpn, &QpAttr { congestion, ..QpAttr::default() }).unwrap();
    for i in 0..60 {
        p.post(0, i, op, 0, len);
    }
    p.run(Dur::from_ms(2));
    p.ends[0].ep.query_qp(qpn).unwrap().flow.unwrap().cwnd_bytes
}

#[test]
fn window__does_not_grow_unless_cwnd_limited() {
    for mode in MODES {
        let free = grown(mode, Op::Write, 60_000, 192);
        // Ten packets of 256 bytes initially, and growth for the time in which the pacer was the
        // limit.
        let own = grown(mode, Op::Write, 60_000, 4);
        assert!(free > 40 * 256 && own <= 12 * 256, "{mode:?}: {free} {own}");
    }
    let one_read_at_a_time = grown(WireMode::Rc, Op::Read, 500, 192);
    assert!(one_read_at_a_time <= 12 * 256, "{one_read_at_a_time}");
}

#[test]
fn pacer__drops_a_failed_or_reset_queue_pair() {
    for mode in MODES {
        for state in [crate::QpState::Err, crate::QpState::Reset] {
            let mut p = pair(mode, "fixed", &[("rate_mbps", "1")]);
            p.post(0, 1, Op::Write, 0, 25_600);
            p.run(Dur::from_ms(1));
            assert_eq!(limit(&p), FlowLimit::Pacer);
            let qpn = p.ends[0].qpns[0];
            let attr = QpAttr { state: Some(state), ..QpAttr::default() };
            p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
            p.step(0);
            // A packet was due within 3 ms; the later loss timers find nothing to do.
            let next = p.ends[0].ep.poll_timeout();
            assert!(
                next.is_none_or(|t| t > p.now + Dur::from_ms(5)),
                "{mode:?} {state:?} {next:?}"
            );
        }
    }
}

#[test]
fn pacer__returns_a_future_time_after_a_long_pause() {
    for pause_us in [900, 5_000, 2_000_000] {
        let mut p = pair(WireMode::Sr, "fixed", &[("rate_mbps", "1")]);
        p.post(0, 1, Op::Write, 0, 256);
        assert!(p.run(SECOND));
        p.now += Dur::from_us(pause_us);
        p.post(0, 2, Op::Write, 0, 25_600);
        let mut frame = vec![0; 8192];
        while p.ends[0].ep.poll_transmit(p.now, spanwire_base::PortId::HOST, &mut frame).is_some() {
        }
        assert_eq!(limit(&p), FlowLimit::Pacer);
        assert!(p.ends[0].ep.poll_timeout().is_some_and(|t| t > p.now), "after {pause_us} us");
    }
}

/// Small sequential requests do not measure the path: the rate found before stays.
#[test]
fn rate__of_bbr_stays_when_requests_are_made_one_at_a_time() {
    for (mode, op) in MODES.iter().flat_map(|m| [Op::Read, Op::Write].map(|op| (*m, op))) {
        let mut p = pair(mode, "bbr", &[]);
        let rate = |p: &Pair| p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().flow.unwrap().rate;
        let mut found = Vec::new();
        for n in 0..300 {
            p.post(0, n, op, 0, 2000);
            let begin = p.now;
            while p.ends[0].wcs.is_empty() {
                p.run(Dur::from_us(1));
                let took = p.now.since(begin);
                assert!(took < Dur::from_ms(1), "{mode:?} {op:?}: request {n}, {:?}", rate(&p));
            }
            p.ends[0].wcs.clear();
            found.push(rate(&p).unwrap().as_bps());
        }
        let (early, late) = (found[30], found[299]);
        assert!(late >= early / 2, "{mode:?} {op:?}: {early} bit/s, then {late}");
    }
}
