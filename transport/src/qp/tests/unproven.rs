//! SR before the transition to RTS, while the peer's address is not validated: it sends no more
//! bytes than it has received.

use super::*;
use crate::QpAttr;
use spanwire_wire::Packet;
use std::cell::RefCell;
use std::rc::Rc;

/// A pair in which side 1 is in RTR, and the bytes of frames that each side has sent.
fn half_open(ips: [std::net::IpAddr; 2]) -> (Pair, Rc<RefCell<[u64; 2]>>) {
    half_open_with(&PairConfig { ips, ..PairConfig::sr() })
}

fn half_open_with(c: &PairConfig) -> (Pair, Rc<RefCell<[u64; 2]>>) {
    let mut p = Pair::with(c);
    let q = p.ends[1].qpns[0];
    let was = p.ends[1].ep.query_qp(q).unwrap().attr;
    let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
    let rtr = QpAttr {
        state: Some(QpState::Rtr),
        path_mtu: was.path_mtu,
        dest_qpn: was.dest_qpn,
        rq_psn: Some(Psn::new(c.psns[0])),
        max_dest_rd_atomic: was.max_dest_rd_atomic,
        min_rnr_timer: was.min_rnr_timer,
        av: was.av,
        wire: was.wire,
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

#[test]
fn words_allowed__sends_no_more_bytes_than_received() {
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
            assert!(left > 0, "it sends ACKs");
            assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0, "{len} bytes");
            p.run(SECOND);
            assert_eq!(p.ends[0].wcs.len(), 40, "{len} bytes");
        }
    }
}

/// One packet of many is missing, so the whole ACK would have many SACK words.
#[test]
fn words_allowed__gaps_shorten_the_ack() {
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
fn poll_transmit__responses_wait_for_rts() {
    let (mut p, sent) = half_open(versions()[0]);
    let want = p.ends[1].fill(0, 60_000, 8);
    p.post(0, 1, Op::Read, 0, 60_000);
    p.run(Dur::from_ms(50));
    let [came, left] = *sent.borrow();
    assert!(left <= came, "{left} bytes for {came}");
    assert!(p.ends[0].wcs.is_empty());
    let q = p.ends[1].qpns[0];
    p.ends[1].ep.modify_qp(q, &QpAttr::rts(Psn::new(PairConfig::sr().psns[1]))).unwrap();
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].bytes(0, 60_000), want);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

/// A pending READ, and a request that fails the queue pair: it sends the refusal and no response.
#[test]
fn poll_transmit__a_failure_before_rts_drops_the_responses() {
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

/// An ACK whose SACK words were cut by the byte limit does not show which packets arrived. It must
/// not be read as "no receive request".
#[test]
fn on_ack__cut_words_do_not_mean_no_receive_request() {
    for len in [1, 16, 64, 200, 1000] {
        for lost in 0..4 {
            let rts = |a: &mut QpAttr| a.rnr_retry = Some(0);
            let (mut p, _) = half_open_with(&PairConfig { rts, ..PairConfig::sr() });
            let mut seen = 0;
            p.filter = Box::new(move |side, _| {
                seen += usize::from(side == 0);
                if side == 0 && seen == lost + 1 { Fate::Drop } else { Fate::Pass }
            });
            for i in 0..4 {
                p.post_recv(1, 10 + i, 0, 1000);
                p.post(0, i, Op::Send, 0, len);
                p.run(Dur::from_us(1));
            }
            p.run(SECOND);
            let want: Vec<_> = (0..4).map(|i| (i, WcStatus::Success)).collect();
            assert_eq!(statuses(&p.ends[0].wcs), want, "{len} bytes, packet {lost} lost");
            assert_eq!(p.ends[0].ep.counters().rnr_nak_retry_err, 0, "{len} bytes");
        }
    }
}

/// Without a receive request, the retry limit applies before the address is validated as well.
#[test]
fn on_ack__a_missing_receive_request_is_reported_without_words() {
    for len in [1, 64, 1000] {
        let rts = |a: &mut QpAttr| a.rnr_retry = Some(2);
        let (mut p, _) = half_open_with(&PairConfig { rts, ..PairConfig::sr() });
        for i in 0..4 {
            p.post(0, i, Op::Send, 0, len);
        }
        p.run(SECOND * 10);
        let first = statuses(&p.ends[0].wcs).first().copied();
        assert_eq!(first, Some((0, WcStatus::RnrRetryExcErr)), "{len} bytes");
    }
}
