//! Completions and events: how often and to which side they are reported; and responses that have
//! become impossible.

use super::verbs::{events, invalidatable};
use super::{SECOND, statuses};
use crate::testing::{Fate, LATENCY, Op, Pair, PairConfig, in_both_modes};
use crate::{
    App, AsyncEvent, Config, Endpoint, Host, QpAttr, QpCaps, QpInit, QpState, RecvRequest,
    RemoteAddr, SrqInit, WcStatus, WorkRequest, WrOp,
};
use spanwire_base::{Dur, Node, PortId, RxMeta, Time};

fn post_srq(p: &mut Pair, wr_id: u64, len: usize) {
    let (srq, sge) = (p.ends[1].srq.unwrap(), p.ends[1].sge(0, len));
    p.ends[1].ep.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] }).unwrap();
}

#[test]
fn complete__an_overrun_is_reported_once_for_any_number_of_losses() {
    in_both_modes(|_| {
        let caps = QpCaps { max_recv_wr: 8192, ..QpCaps::default() };
        let mut p = Pair::with(&PairConfig { cqe: 1, caps, ..PairConfig::default() });
        for i in 0..8192 {
            p.post_recv(0, i, 0, 8);
        }
        for i in 0..3 {
            p.post(0, i, Op::Write, 0, 8);
        }
        p.run(SECOND);
        let (cq, qpn) = (p.ends[0].cq, p.ends[0].qpns[0]);
        assert_eq!(events(&mut p, 0), [AsyncEvent::CqErr(cq), AsyncEvent::QpFatal(qpn)]);
        assert_eq!(p.ends[0].ep.async_events_lost(), 0);
    });
}

#[test]
fn on_request__a_message_whose_completion_is_lost_is_refused_without_ack_req() {
    in_both_modes(|_| {
        let mut p = Pair::with(&PairConfig { cqe: 1, ..PairConfig::default() });
        for i in 0..4 {
            p.post_recv(1, i, 0, 8);
        }
        // Only the last packet has AckReq.
        for i in 0..4 {
            p.post(0, i, Op::Send, 0, 8);
        }
        p.run(SECOND * 5);
        assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0, "the NAK was sent at once");
        let [first, ..] = p.ends[0].wcs[..] else { panic!("no completion") };
        assert_eq!((first.wr_id, first.status), (0, WcStatus::Success));
        assert_eq!(p.ends[1].ep.counters().tx_fatal_naks, 1);
    });
}

#[test]
fn enter_error__happens_once() {
    in_both_modes(|_| {
        let config = PairConfig { cqe: 1, srq_max_wr: Some(8), ..PairConfig::default() };
        let mut p = Pair::with(&config);
        for wr_id in 0..4 {
            post_srq(&mut p, wr_id, 64);
        }
        // The second message is too long for its receive request, and its completion overruns the
        // queue.
        p.post(0, 1, Op::Send, 0, 64);
        p.post(0, 2, Op::Send, 0, 65);
        p.run(SECOND);
        let reported = events(&mut p, 1);
        let last = reported.iter().filter(|e| matches!(e, AsyncEvent::LastWqeReached(_)));
        assert_eq!(last.count(), 1, "{reported:?}");
    });
}

#[test]
fn send_response__a_delayed_duplicate_read_with_an_invalidated_key_has_no_effect() {
    let rts = |a: &mut QpAttr| a.timeout = Some(8);
    let mut p = Pair::with(&PairConfig { rts, ..PairConfig::default() });
    let (_, rkey) = invalidatable(&mut p, 2560);
    p.post_recv(1, 7, 0, 64);
    // The response takes longer than the timeout. The repeated READ arrives together with the SEND
    // that invalidates the key.
    p.filter = Box::new(|side, _| match side {
        1 => Fate::Late(Dur::from_us(1200)),
        _ => Fate::Pass,
    });
    let (q, sge) = (p.ends[0].qpns[0], p.ends[0].sge(0, 2560));
    let op = WrOp::Read { remote: RemoteAddr { va: 0x4000, rkey } };
    p.ends[0].ep.post_send(q, &WorkRequest::new(1, op, &[sge])).unwrap();
    p.step(0);
    p.now += LATENCY;
    p.step(1);
    for us in [1100, 1212] {
        p.now = Time::ZERO + Dur::from_us(us);
        p.step(0);
    }
    assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 1);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    let sge = p.ends[0].sge(0, 8);
    let wr = WorkRequest::new(2, WrOp::SendInv { rkey }, std::slice::from_ref(&sge));
    p.ends[0].ep.post_send(q, &wr).unwrap();
    p.step(0);
    p.now = Time::ZERO + Dur::from_us(1220);
    p.step(1);
    p.filter = Box::new(|_, _| Fate::Pass);
    p.run(SECOND);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&p.ends[0].wcs), [(1, ok), (2, ok)]);
    let peer = p.ends[1].qpns[0];
    assert_eq!(p.ends[1].ep.query_qp(peer).unwrap().state, QpState::Rts);
    let forgotten = crate::DropReason::DuplicateReadForgotten;
    assert_eq!(p.ends[1].ep.counters().dropped(forgotten), 1);
}

#[test]
fn cannot_respond__after_a_refusal_reports_nothing_new() {
    in_both_modes(|_| {
        let mut p = Pair::with(&PairConfig { srq_max_wr: Some(8), ..PairConfig::default() });
        let (lkey, rkey) = invalidatable(&mut p, 2560);
        let (q, sge) = (p.ends[0].qpns[0], p.ends[0].sge(0, 2560));
        let read = WrOp::Read { remote: RemoteAddr { va: 0x4000, rkey } };
        let wrong = WrOp::Write { remote: RemoteAddr { va: 0, rkey: 1 } };
        for (wr_id, op) in [(1, read), (2, wrong)] {
            let wr = WorkRequest::new(wr_id, op, std::slice::from_ref(&sge));
            p.ends[0].ep.post_send(q, &wr).unwrap();
        }
        p.step(0);
        p.now += LATENCY;
        p.receive(1);
        let peer = p.ends[1].qpns[0];
        let refused = [AsyncEvent::QpAccessErr(peer), AsyncEvent::LastWqeReached(peer)];
        assert_eq!(events(&mut p, 1), refused);
        // The pending response to the READ is dropped as well.
        p.ends[1].ep.dereg_mr(lkey).unwrap();
        p.run(SECOND);
        assert_eq!(events(&mut p, 1), []);
        assert_eq!(p.ends[1].ep.counters().tx_fatal_naks, 1);
        let want = [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&p.ends[0].wcs), want, "the READ is the first that failed");
    });
}

#[test]
fn destroy__removes_its_events() {
    in_both_modes(|_| {
        let mut p = Pair::with(&PairConfig { srq_max_wr: Some(8), ..PairConfig::default() });
        let srq = p.ends[1].srq.unwrap();
        post_srq(&mut p, 0, 64);
        p.ends[1].ep.set_srq_limit(srq, 1).unwrap();
        let info = p.ends[1].ep.query_srq(srq).unwrap();
        assert_eq!((info.max_wr, info.max_sge, info.posted, info.limit), (8, 4, 1, 1));
        p.post(0, 1, Op::Send, 0, 64);
        assert!(p.run(SECOND));
        let end = &mut p.ends[1];
        let info = end.ep.query_srq(srq).unwrap();
        assert_eq!((info.posted, info.limit), (0, 0));
        end.ep.destroy_qp(end.qpns[0]);
        end.ep.destroy_srq(srq).unwrap();
        assert_eq!(end.ep.query_srq(srq), None);
        // The number is reused; its old events are gone.
        let new = end.ep.create_srq(&SrqInit { pd: end.pd, max_wr: 8, max_sge: 1 }).unwrap();
        assert_eq!(new, srq);
        assert_eq!(events(&mut p, 1), []);
    });
}

#[test]
fn query_qp__returns_attributes_and_current_psns() {
    in_both_modes(|mode| {
        let caps = QpCaps { max_send_sge: 4, ..QpCaps::default() };
        let mut p =
            Pair::with(&PairConfig { caps, psns: [100, 0xff_ffff], ..PairConfig::default() });
        let (pd, cq, qpn) = (p.ends[0].pd, p.ends[0].cq, p.ends[0].qpns[0]);
        p.post(0, 1, Op::Write, 0, 8);
        p.post(1, 1, Op::Write, 0, 8);
        assert!(p.run(SECOND));
        let info = p.ends[0].ep.query_qp(qpn).unwrap();
        assert_eq!(info.init, QpInit::new(pd, cq, cq, caps));
        let attr = info.attr;
        assert_eq!((attr.state, info.state), (Some(QpState::Rts), QpState::Rts));
        assert_eq!(attr.dest_qpn, Some(p.ends[1].qpns[0]));
        assert_eq!(
            (attr.timeout, attr.retry_cnt, attr.max_rd_atomic),
            (Some(14), Some(7), Some(16))
        );
        let psns = [attr.sq_psn, attr.rq_psn].map(|psn| psn.unwrap().get());
        let want = match mode {
            crate::WireMode::Rc => [101, 0],
            crate::WireMode::Sr => [100 << 8 | 1, 0xff_ff01],
        };
        assert_eq!(psns, want, "one past the last sent, and one past the last received");
        let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
        p.ends[0].ep.modify_qp(qpn, &reset).unwrap();
        let attr = p.ends[0].ep.query_qp(qpn).unwrap().attr;
        assert_eq!(attr, QpAttr { state: Some(QpState::Reset), ..QpAttr::default() });
    });
}

/// Counts its calls and records the events polled.
#[derive(Debug, Default)]
struct Sleeper {
    calls: usize,
    events: Vec<AsyncEvent>,
}

impl App for Sleeper {
    fn poll(&mut self, _: Time, ep: &mut Endpoint) {
        self.calls += 1;
        self.events.extend(std::iter::from_fn(|| ep.poll_async_event()));
    }
}

#[test]
fn take_app_events__an_event_wakes_the_application() {
    let mut p = Pair::new();
    let (qpn, sge) = (p.ends[0].qpns[0], p.ends[0].sge(0, 8));
    let op = WrOp::Write { remote: p.ends[1].remote(0) };
    let quiet = WorkRequest { signaled: false, ..WorkRequest::new(1, op, &[]) };
    let wr = WorkRequest { sges: std::slice::from_ref(&sge), ..quiet };
    p.ends[0].ep.post_send(qpn, &wr).unwrap();
    p.step(0);
    super::verbs::to_state(&mut p, 0, QpState::Sqd).unwrap();
    for side in [1, 0] {
        p.now += LATENCY;
        if side == 1 {
            p.step(side);
        }
    }
    let frames = p.take_inbox(0);
    let unused = Endpoint::new(Config::default().validate().unwrap(), [9; 32]);
    let ep = std::mem::replace(&mut p.ends[0].ep, unused);
    let mut host = Host::new(ep, Sleeper::default());
    host.handle_timeout(p.now);
    for frame in frames {
        host.handle_packet(p.now, PortId::HOST, &frame, &RxMeta::whole(p.now));
    }
    assert_eq!(host.app().events, [AsyncEvent::SqDrained(qpn)]);
    assert_eq!(host.app().calls, 2);
}
