//! Queue pairs of no requests, their numbers, and completions of destroyed ones.

use super::*;
use crate::{CqError, PostError, QpAttr, QpnPrefix, RecvRequest, Sge, Wc};

fn wr_ids(ep: &mut Endpoint, cq: CqId, max: usize) -> Result<Vec<u64>, CqError> {
    let mut ids = Vec::new();
    let n = ep.poll_cq_into(cq, max, |wc: Wc| ids.push(wc.wr_id))?;
    assert_eq!(n, ids.len());
    Ok(ids)
}

/// A queue pair in the error state, where each posted request completes at once.
fn failed_qp(ep: &mut Endpoint, init: &QpInit) -> Qpn {
    let qpn = ep.create_qp(init).unwrap();
    let error = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
    ep.modify_qp(qpn, &error).unwrap();
    qpn
}

fn post(ep: &mut Endpoint, qpn: Qpn, send: bool, wr_id: u64) -> Result<(), PostError> {
    match send {
        true => ep.post_send(qpn, &WorkRequest::new(wr_id, WrOp::Send, &[])),
        false => ep.post_recv(qpn, &RecvRequest { wr_id, sges: &[] }),
    }
}

#[test]
fn destroy_qp__its_completions_are_gone_and_no_others() {
    let mut ep = endpoint(Config::default());
    let (pd, cqs) = (ep.alloc_pd().unwrap(), [0, 1].map(|_| ep.create_cq(16).unwrap()));
    let init = QpInit::new(pd, cqs[0], cqs[1], QpCaps::default());
    let [a, b] = [0, 1].map(|_| failed_qp(&mut ep, &init));
    for (wr_id, qpn, send) in [(1, a, true), (2, b, true), (3, a, true), (4, a, false)] {
        post(&mut ep, qpn, send, wr_id).unwrap();
    }
    post(&mut ep, b, false, 5).unwrap();
    assert!(ep.destroy_qp(a));
    // The next one in its slot has another number.
    let c = failed_qp(&mut ep, &init);
    assert_eq!((c.get() ^ a.get()) & 1023, 0);
    post(&mut ep, c, true, 6).unwrap();
    assert!(!ep.destroy_qp(a), "it is gone");
    assert_eq!(wr_ids(&mut ep, cqs[0], 16), Ok(vec![2, 6]));
    assert_eq!(wr_ids(&mut ep, cqs[1], 16), Ok(vec![5]));
}

#[test]
fn modify_qp__reset_removes_the_completions_and_frees_the_places() {
    in_both_modes(|mode| {
        let caps = QpCaps { max_send_wr: 4, max_recv_wr: 4, ..PairConfig::default().caps };
        let c = PairConfig { caps, qps: 2, places_until_polled: true, ..PairConfig::default() };
        let mut p = Pair::with(&c);
        p.ends.iter_mut().for_each(|end| end.polls = false);
        let other = p.ends[0].qpns[1];
        post(&mut p.ends[0].ep, other, true, 9).unwrap();
        for round in 0..3 {
            for wr_id in round * 8..round * 8 + 4 {
                p.post_recv(1, wr_id, 0, 8);
                p.post(0, wr_id, Op::Send, 0, 8);
            }
            p.run(Dur::from_ms(1));
            let (qpn, sges) = (p.ends[0].qpns[0], [p.ends[0].sge(0, 8)]);
            let fifth = p.ends[0].ep.post_send(qpn, &WorkRequest::new(9, WrOp::Send, &sges));
            assert_eq!(fifth, Err(PostError::QueueFull), "{mode:?}");
            if round < 2 {
                p.reconnect(0, &c);
            }
        }
        let other = p.ends[1].qpns[1];
        post(&mut p.ends[1].ep, other, false, 8).unwrap();
        assert!(p.run(Dur::from_secs(1)));
        let polled = [0, 1].map(|side: usize| {
            let cq = p.ends[side].cq;
            let mut ids = wr_ids(&mut p.ends[side].ep, cq, 64).unwrap();
            ids.sort_unstable();
            ids
        });
        assert_eq!(polled, [vec![9, 16, 17, 18, 19], vec![8, 16, 17, 18, 19]], "{mode:?}");
    });
}

#[test]
fn poll_cq_into__at_most_as_many_and_the_overrun_last() {
    let mut ep = endpoint(Config::default());
    let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(3).unwrap());
    let qpn = failed_qp(&mut ep, &QpInit::new(pd, cq, cq, QpCaps::default()));
    assert_eq!(wr_ids(&mut ep, cq, 2), Ok(vec![]));
    for wr_id in 1..5 {
        post(&mut ep, qpn, true, wr_id).unwrap();
    }
    assert_eq!(wr_ids(&mut ep, cq, 0), Ok(vec![]));
    assert_eq!(wr_ids(&mut ep, cq, 2), Ok(vec![1, 2]));
    assert_eq!(wr_ids(&mut ep, cq, 2), Ok(vec![3]));
    assert_eq!(wr_ids(&mut ep, cq, 2), Err(CqError::Overrun));
    assert_eq!(wr_ids(&mut ep, CqId(9), 2), Err(CqError::Unknown));
    let polled = [cq, CqId(9)].map(|cq| ep.poll_cq(cq));
    assert_eq!(polled, [Err(CqError::Overrun), Err(CqError::Unknown)]);
}

#[test]
fn create_qp__a_queue_of_no_requests_is_full() {
    let none = QpCaps {
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline_data: 0,
    };
    in_both_modes(|mode| {
        let mut p = Pair::with(&PairConfig { caps: none, ..PairConfig::default() });
        let (qpn, sges) = (p.ends[0].qpns[0], [p.ends[0].sge(0, 8)]);
        let error = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
        for attr in [QpAttr::default(), error] {
            let ep = &mut p.ends[0].ep;
            ep.modify_qp(qpn, &attr).unwrap();
            for sges in [&sges[..], &[]] {
                let send = ep.post_send(qpn, &WorkRequest::new(1, WrOp::Send, sges));
                let recv = ep.post_recv(qpn, &RecvRequest { wr_id: 1, sges });
                let full = Err(PostError::QueueFull);
                assert_eq!((send, recv), (full, full), "{mode:?} {attr:?}");
            }
        }
    });
}

#[test]
fn create_qp__requests_without_elements_carry_nothing() {
    in_both_modes(|mode| {
        let caps = QpCaps { max_send_sge: 0, max_recv_sge: 0, ..QpCaps::default() };
        let mut p = Pair::with(&PairConfig { caps, ..PairConfig::default() });
        let (qpns, sge) = ([p.ends[0].qpns[0], p.ends[1].qpns[0]], p.ends[0].sge(0, 8));
        let one: &[Sge] = &[sge];
        let ep = &mut p.ends[0].ep;
        let send = ep.post_send(qpns[0], &WorkRequest::new(1, WrOp::Send, one));
        let recv = ep.post_recv(qpns[0], &RecvRequest { wr_id: 1, sges: one });
        let many = Err(PostError::TooManySges);
        assert_eq!((send, recv), (many, many), "{mode:?}");
        post(&mut p.ends[1].ep, qpns[1], false, 2).unwrap();
        post(&mut p.ends[0].ep, qpns[0], true, 3).unwrap();
        assert!(p.run(spanwire_base::Dur::from_secs(1)), "{mode:?}");
        let done = [0, 1].map(|side| (p.ends[side].wcs[0].wr_id, p.ends[side].wcs[0].status));
        assert_eq!(done, [(3, WcStatus::Success), (2, WcStatus::Success)], "{mode:?}");
    });
}

#[test]
fn create_qp__numbers_have_the_prefix_and_random_bits() {
    for (bits, max_qps) in [(6, 1024), (16, 1), (3, 1000)] {
        for value in [0, 1, (1 << bits) - 1] {
            let qpn_prefix = Some(QpnPrefix { bits, value });
            let mut ep = endpoint(Config { max_qps, qpn_prefix, ..Config::default() });
            let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(4).unwrap());
            let init = QpInit::new(pd, cq, cq, QpCaps::default());
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..2000 {
                let qpn = ep.create_qp(&init).unwrap();
                assert_eq!(qpn.get() >> (24 - bits), value, "{qpn:?}");
                assert!(qpn.get() >= 2 && qpn.get() < Qpn::MASK, "{qpn:?} is reserved");
                seen.insert(qpn);
                assert!(ep.destroy_qp(qpn));
            }
            assert!(seen.len() > 240, "{bits}, {max_qps}: {} numbers of a slot", seen.len());
        }
    }
}
