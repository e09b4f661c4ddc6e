//! SRC before an end has been told to send: it answers with no more bytes than it got.

use super::*;
use crate::QpAttr;
use spanwire_wire::Packet;
use std::cell::RefCell;
use std::rc::Rc;

/// A pair of which side 1 was only told where its peer is, and the bytes of frames that each side
/// has sent.
fn half_open(ips: [std::net::IpAddr; 2]) -> (Pair, Rc<RefCell<[u64; 2]>>) {
    let mut p = Pair::with(&PairConfig { ips, ..PairConfig::src() });
    let q = p.ends[1].qpns[0];
    let was = p.ends[1].ep.query_qp(q).unwrap().attr;
    let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
    let rtr = QpAttr {
        state: Some(QpState::Rtr),
        path_mtu: was.path_mtu,
        dest_qpn: was.dest_qpn,
        rq_psn: Some(Psn::new(PairConfig::src().psns[0])),
        max_dest_rd_atomic: was.max_dest_rd_atomic,
        min_rnr_timer: was.min_rnr_timer,
        av: was.av,
        wire_mode: was.wire_mode,
        ..QpAttr::default()
    };
    for attr in [reset, QpAttr::init(Access::ALL), rtr] {
        p.ends[1].ep.modify_qp(q, &attr).unwrap();
    }
    let sent = Rc::new(RefCell::new([0, 0]));
    let counted = Rc::clone(&sent);
    p.filter = Box::new(move |side, packet: &Packet<'_>| {
        let inside = 14 + 8 + 12 + packet.payload_len() + usize::from(packet.bth.pad) + 4;
        counted.borrow_mut()[side] += (packet.ip.header_len() + inside) as u64;
        Fate::Pass
    });
    (p, sent)
}

fn versions() -> [[std::net::IpAddr; 2]; 2] {
    [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]].map(|ips| ips.map(|ip| ip.parse().unwrap()))
}

#[test]
fn words_allowed__no_more_leaves_than_came() {
    for ips in versions() {
        for len in [0, 1, 64, 4000] {
            let (mut p, sent) = half_open(ips);
            for i in 0..40 {
                p.post(0, i, Op::Write, 0, len);
                p.run(Dur::from_ms(10));
                let [came, left] = *sent.borrow();
                assert!(left <= came, "{left} bytes for {came}");
            }
            let [_, left] = *sent.borrow();
            assert!(left > 0, "it does answer");
            assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0, "{len} bytes");
            p.run(SECOND);
            assert_eq!(p.ends[0].wcs.len(), 40, "{len} bytes");
        }
    }
}

/// One packet of many is missing, so that all that it says has many words.
#[test]
fn words_allowed__gaps_make_it_say_less_not_more() {
    for ips in versions() {
        let (mut p, sent) = half_open(ips);
        let (counted, mut n) = (Rc::clone(&sent), 0);
        p.filter = Box::new(move |side, packet: &Packet<'_>| {
            let inside = 14 + 8 + 12 + packet.payload_len() + usize::from(packet.bth.pad) + 4;
            let bytes = (packet.ip.header_len() + inside) as u64;
            n += u32::from(side == 0);
            let lost = side == 0 && n.is_multiple_of(2);
            if !lost {
                counted.borrow_mut()[side] += bytes;
            }
            let [came, left] = *counted.borrow();
            assert!(left <= came, "{left} bytes for {came}");
            if lost { Fate::Drop } else { Fate::Pass }
        });
        for i in 0..60 {
            p.post(0, i, Op::Write, 0, 0);
        }
        p.run(Dur::from_ms(20));
        assert!(sent.borrow()[1] > 1000, "{:?}", sent.borrow());
    }
}

#[test]
fn poll_src__answers_wait_until_it_is_told_to_send() {
    let (mut p, sent) = half_open(versions()[0]);
    let want = p.ends[1].fill(0, 60_000, 8);
    p.post(0, 1, Op::Read, 0, 60_000);
    p.run(Dur::from_ms(50));
    let [came, left] = *sent.borrow();
    assert!(left <= came, "{left} bytes for {came}");
    assert!(p.ends[0].wcs.is_empty());
    let q = p.ends[1].qpns[0];
    p.ends[1].ep.modify_qp(q, &QpAttr::rts(Psn::new(PairConfig::src().psns[1]))).unwrap();
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].bytes(0, 60_000), want);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

/// A READ that waits, and a request that fails the queue pair: it refuses and answers nothing.
#[test]
fn poll_src__answers_of_one_that_fails_before_it_may_send_are_not_sent() {
    let (mut p, sent) = half_open(versions()[0]);
    p.post(0, 1, Op::Read, 0, 60_000);
    let sge = p.ends[0].sge(0, 200);
    let op = WrOp::Write { remote: RemoteAddr { va: 0, rkey: 1 } };
    let q = p.ends[0].qpns[0];
    p.ends[0].ep.post_send(q, &WorkRequest::new(2, op, &[sge])).unwrap();
    p.run(SECOND);
    let [came, left] = *sent.borrow();
    assert!(left <= came, "{left} bytes for {came}");
    let want = [(1, WcStatus::WrFlushErr), (2, WcStatus::RemAccessErr)];
    assert_eq!(statuses(&p.ends[0].wcs), want);
}
