//! The endpoint's tables and its scheduler.

mod bursts;
mod control;
mod port_rate;
mod reconfigure;
mod turns;

use super::*;
use crate::cq::CqId;
use crate::mr::{Access, PdId};
use crate::testing::{Fate, Op, Pair, PairConfig, in_both_modes};
use crate::{Config, CreateError, QpCaps, QpInit, QpnPrefix, WcStatus, WorkRequest, WrOp};
use spanwire_base::{Awaited, Node, PortId, Rate, RxMeta};
use spanwire_mem::Region;

fn endpoint(config: Config) -> Endpoint {
    Endpoint::new(config.validate().unwrap(), [1; 32])
}

#[test]
fn create_qp__checks_its_objects_and_limits() {
    let mut ep = endpoint(Config { max_qps: 1, ..Config::default() });
    let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(4).unwrap());
    let init = QpInit::new(pd, cq, cq, QpCaps::default());
    let bad_pd = QpInit { pd: PdId(9), ..init };
    assert_eq!(ep.create_qp(&bad_pd), Err(CreateError::UnknownPd));
    let bad_cq = QpInit { recv_cq: CqId(9), ..init };
    assert_eq!(ep.create_qp(&bad_cq), Err(CreateError::UnknownCq));
    let caps = QpCaps { max_send_sge: 17, ..QpCaps::default() };
    let wide = QpInit { caps, ..init };
    assert_eq!(ep.create_qp(&wide), Err(CreateError::BadCapacity("max_send_sge")));
    assert!(ep.create_qp(&init).is_ok());
    assert_eq!(ep.create_qp(&init), Err(CreateError::Limit("max_qps")));
}

#[test]
fn create_qp__numbers_are_not_reused_at_once() {
    let mut ep = endpoint(Config::default());
    let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(4).unwrap());
    let init = QpInit::new(pd, cq, cq, QpCaps::default());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let qpn = ep.create_qp(&init).unwrap();
        assert!(qpn.get() >= 2);
        seen.insert(qpn.get());
        assert!(ep.destroy_qp(qpn));
        assert!(!ep.destroy_qp(qpn));
        assert!(ep.query_qp(qpn).is_none());
    }
    assert!(seen.len() > 45, "fourteen random bits rarely repeat: {}", seen.len());
}

#[test]
fn unused_qpn__names_the_worker_and_no_queue_pair() {
    // Every number has the one slot, and eight random bits that a queue pair may have too.
    let config = Config { max_qps: 1, worker: 1, workers: 2, ..Config::default() };
    let qpn_prefix = Some(QpnPrefix { bits: 15, value: 7 });
    let mut ep = endpoint(Config { qpn_prefix, ..config });
    let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(4).unwrap());
    let qpn = ep.create_qp(&QpInit::new(pd, cq, cq, QpCaps::default())).unwrap();
    let unused: Vec<Qpn> = (0..2_000).map(|_| ep.unused_qpn()).collect();
    assert!(!unused.contains(&qpn));
    assert!(unused.iter().all(|unused| ep.config().qpn_workers().worker_of(*unused) == 1));
    let distinct: std::collections::BTreeSet<u32> = unused.iter().map(|qpn| qpn.get()).collect();
    assert!(distinct.len() > 200, "{}", distinct.len());
}

#[test]
fn destroy__refuses_objects_in_use() {
    let mut ep = endpoint(Config::default());
    let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(4).unwrap());
    let init = QpInit::new(pd, cq, cq, QpCaps::default());
    let qpn = ep.create_qp(&init).unwrap();
    let mr = ep.reg_mr(pd, Region::zeroed(8), Access::ALL, None).unwrap();
    assert!(!ep.destroy_cq(cq) && !ep.dealloc_pd(pd));
    assert!(ep.destroy_qp(qpn) && ep.destroy_cq(cq));
    assert!(!ep.dealloc_pd(pd), "the memory region still exists");
    ep.dereg_mr(mr.lkey).unwrap();
    assert!(ep.dealloc_pd(pd));
    assert_eq!(ep.reg_mr(pd, Region::zeroed(8), Access::ALL, None), Err(CreateError::UnknownPd));
}

#[test]
fn handle_packet__counts_packets_of_unknown_queue_pairs() {
    let mut ep = endpoint(Config::default());
    let meta = RxMeta::whole(Time::ZERO);
    ep.handle_packet(Time::ZERO, PortId::HOST, &[0; 10], &meta);
    let counted: u64 = ep.counters().list().iter().map(|(_, n)| n).sum();
    assert_eq!(counted, 1);
}

#[test]
fn awaited__is_an_ack_then_a_reply_until_a_message_is_received() {
    in_both_modes(|mode| {
        let mut p = Pair::with(&PairConfig { mode, ..PairConfig::default() });
        let awaited = |p: &mut Pair, side: usize| p.ends[side].ep.awaited();
        assert_eq!([awaited(&mut p, 0), awaited(&mut p, 1)], [Awaited::Anything; 2]);
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            p.post_recv(to, 1, 0, 64);
            p.post(from, 2, Op::Send, 0, 64);
            p.step(from);
            if p.ends[from].ep.schedule.has_in_flight() {
                assert_eq!(awaited(&mut p, from), Awaited::Ack, "{mode:?}: in flight");
            }
            assert!(p.run(Dur::from_secs(1)));
            let then = [awaited(&mut p, from), awaited(&mut p, to)];
            assert_eq!(then, [Awaited::Reply, Awaited::Anything], "{mode:?}: asked, and told");
        }
    });
}

#[test]
fn awaited__is_a_departure_while_packets_are_paced() {
    let config = Config { port_rate: Some(Rate::from_bps(1_000_000)), ..Config::default() };
    let mut p = Pair::with(&PairConfig { config, ..PairConfig::default() });
    post_all(&mut p, Op::Write, 60_000);
    p.step(0);
    assert_eq!(p.ends[0].ep.awaited(), Awaited::Departure);
}

fn post_all(p: &mut Pair, op: Op, len: usize) {
    let remote = p.ends[1].remote(0);
    let op = if op == Op::Read { WrOp::Read { remote } } else { WrOp::Write { remote } };
    for i in 0..p.ends[0].qpns.len() {
        let (qpn, sge) = (p.ends[0].qpns[i], p.ends[0].sge(0, len));
        let wr = WorkRequest::new(i as u64, op, std::slice::from_ref(&sge));
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
    }
}

#[test]
fn poll_transmit__64_queue_pairs_share_one_window_and_all_finish() {
    for op in [Op::Write, Op::Read] {
        let mut p = Pair::with(&PairConfig { qps: 64, ..PairConfig::default() });
        post_all(&mut p, op, 20_000);
        p.step(0);
        let held: u64 =
            p.ends[0].qpns.iter().map(|q| p.ends[0].ep.query_qp(*q).unwrap().in_flight_pkts).sum();
        let window = Config::default().endpoint_window_pkts;
        assert!(held <= window.into(), "{op:?}: {held} packets in flight");
        assert_eq!(held, p.ends[0].ep.schedule.in_flight_pkts());
        assert!(p.run(Dur::from_secs(1)));
        assert_eq!(p.ends[0].wcs.len(), 64);
        assert!(p.ends[0].wcs.iter().all(|w| w.status == WcStatus::Success));
        assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
        assert_eq!(p.ends[0].ep.schedule.in_flight_pkts(), 0);
    }
}

#[test]
fn poll_transmit__both_directions_at_once_do_not_wait_for_each_other() {
    let mut p = Pair::with(&PairConfig { qps: 8, ..PairConfig::default() });
    for side in [0, 1] {
        let remote = p.ends[1 - side].remote(0);
        for i in 0..8 {
            let (qpn, sge) = (p.ends[side].qpns[i], p.ends[side].sge(0, 60_000));
            let ops = [WrOp::Write { remote }, WrOp::Read { remote }];
            for op in ops {
                let wr = WorkRequest::new(i as u64, op, std::slice::from_ref(&sge));
                p.ends[side].ep.post_send(qpn, &wr).unwrap();
            }
        }
    }
    assert!(p.run(Dur::from_secs(1)));
    for end in &p.ends {
        assert_eq!(end.wcs.len(), 16);
        assert_eq!(end.ep.counters().local_ack_timeout_err, 0);
    }
}

#[test]
fn poll_transmit__queue_pairs_share_the_port() {
    let config = Config { turn_bytes: 4096, ..Config::default() };
    let mut p = Pair::with(&PairConfig { qps: 3, config, ..PairConfig::default() });
    let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = order.clone();
    p.filter = Box::new(move |side, packet| {
        if side == 0 {
            seen.borrow_mut().push(packet.bth.dest_qp);
        }
        Fate::Pass
    });
    post_all(&mut p, Op::Write, 256 * 32);
    assert!(p.run(Dur::from_secs(1)));
    let order = order.borrow();
    let runs: Vec<usize> = order.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    // A quantum of 4096 bytes in packets of 314, plus one packet that exceeds it.
    assert!(runs.iter().all(|n| *n <= 14), "runs of {runs:?}");
    assert!(order[..40].iter().any(|q| *q == p.ends[1].qpns[2]));
}

#[test]
fn destroy_qp__frees_its_share_of_the_window() {
    let mut p = Pair::with(&PairConfig { qps: 4, ..PairConfig::default() });
    p.filter = Box::new(|_, _| Fate::Drop);
    post_all(&mut p, Op::Write, 50_000);
    p.step(0);
    assert_eq!(p.ends[0].ep.schedule.in_flight_pkts(), 224);
    let first = p.ends[0].qpns[0];
    assert!(p.ends[0].ep.destroy_qp(first));
    p.filter = Box::new(|_, _| Fate::Pass);
    assert!(p.run(Dur::from_secs(5)));
    assert_eq!(p.ends[0].wcs.len(), 3);
    assert_eq!(p.ends[0].ep.schedule.in_flight_pkts(), 0);
}

#[test]
fn poll_transmit__an_unresponsive_peer_does_not_block_the_window() {
    // Queue pair 0's peer does not respond; it must not delay the others during its retries.
    let mut p = Pair::with(&PairConfig { qps: 2, ..PairConfig::default() });
    let dead = p.ends[1].qpns[0];
    p.filter = Box::new(move |_, packet| match packet.bth.dest_qp == dead {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    post_all(&mut p, Op::Write, 60_000);
    assert!(!p.run(Dur::from_ms(200)));
    let done: Vec<u64> = p.ends[0].wcs.iter().map(|w| w.wr_id).collect();
    assert_eq!(done, [1]);
}

#[test]
fn run__the_same_seed_causes_the_same_packets() {
    let logs = [0, 1].map(|_| {
        let mut p = Pair::with(&PairConfig { qps: 16, ..PairConfig::default() });
        let mut rng = spanwire_base::Rng::new(5);
        p.filter = Box::new(move |_, _| match rng.below(20) {
            0 => Fate::Drop,
            1 => Fate::Twice,
            _ => Fate::Pass,
        });
        post_all(&mut p, Op::Write, 20_000);
        post_all(&mut p, Op::Read, 20_000);
        assert!(p.run(Dur::from_secs(20)));
        p.log
    });
    assert_eq!(logs[0], logs[1]);
}

#[test]
fn poll_transmit__an_unresponsive_peer_leaves_room_for_the_others() {
    // Without a timeout, the packets of this queue pair stay in flight for ever.
    for op in [Op::Write, Op::Read] {
        let c = PairConfig { qps: 2, rts: |a| a.timeout = Some(0), ..PairConfig::default() };
        let mut p = Pair::with(&c);
        let dead = p.ends[1].qpns[0];
        p.filter = Box::new(move |_, packet| match packet.bth.dest_qp == dead {
            true => Fate::Drop,
            false => Fate::Pass,
        });
        post_all(&mut p, op, 60_000);
        assert!(p.run(Dur::from_secs(1)), "{op:?}");
        let done: Vec<u64> = p.ends[0].wcs.iter().map(|w| w.wr_id).collect();
        assert_eq!(done, [1], "{op:?}");
    }
}

#[test]
fn poll_transmit__endless_reads_do_not_starve_requests() {
    let mut p = Pair::new();
    for i in 0..16 {
        p.post(1, i, Op::Read, 0, 60_000);
    }
    p.step(1);
    p.now += crate::testing::LATENCY;
    p.post(0, 99, Op::Write, 0, 100);
    p.step(0);
    let ours: Vec<&str> = p.log.iter().filter(|l| l.0 == 0).map(|l| l.1).collect();
    let write = ours.iter().position(|name| name.contains("write")).expect("it was sent");
    assert!(write <= 17, "after {write} responses");
    assert!(ours.len() > 40, "and the responses went on: {}", ours.len());
    assert!(p.run(Dur::from_secs(1)));
    assert_eq!((p.ends[0].wcs.len(), p.ends[1].wcs.len()), (1, 16));
}

#[test]
fn handle_timeout__at_time_max_returns() {
    let mut p = Pair::new();
    p.filter = Box::new(|_, _| Fate::Drop);
    p.now = Time::MAX;
    p.post(0, 1, Op::Write, 0, 1000);
    p.step(0);
    p.ends[0].ep.handle_timeout(Time::MAX);
    p.ends[0].ep.handle_timeout(Time::MAX);
    assert!(p.ends[0].wcs.is_empty());
}
