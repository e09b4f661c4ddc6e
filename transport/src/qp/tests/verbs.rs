//! Further verbs over a virtual wire: shared receive queues, inline data, invalidation, draining,
//! events.

use super::{SECOND, statuses};
use crate::testing::{Fate, Op, Pair, PairConfig, in_both_modes};
use crate::{
    Access, AsyncEvent, CqId, ModifyError, Notify, PostError, QpAttr, QpCaps, QpState, RecvRequest,
    Sge, SrqId, WcOpcode, WcStatus, WireMode, WorkRequest, WrOp,
};
use spanwire_base::Dur;

pub(super) fn events(p: &mut Pair, side: usize) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| p.ends[side].ep.poll_async_event()).collect()
}

fn cq_events(p: &mut Pair, side: usize) -> Vec<CqId> {
    std::iter::from_fn(|| p.ends[side].ep.poll_cq_event()).collect()
}

pub(super) fn to_state(p: &mut Pair, side: usize, state: QpState) -> Result<(), ModifyError> {
    let qpn = p.ends[side].qpns[0];
    p.ends[side].ep.modify_qp(qpn, &QpAttr { state: Some(state), ..QpAttr::default() })
}

/// Two connected pairs of queue pairs; side 1 has a shared receive queue.
fn with_srq(max_wr: u32) -> (Pair, SrqId) {
    let config = PairConfig { qps: 2, srq_max_wr: Some(max_wr), ..PairConfig::default() };
    let p = Pair::with(&config);
    let srq = p.ends[1].srq.unwrap();
    (p, srq)
}

fn post_srq(p: &mut Pair, srq: SrqId, wr_id: u64, at: usize, len: usize) -> Result<(), PostError> {
    let sge = p.ends[1].sge(at, len);
    p.ends[1].ep.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[sge] })
}

fn send(p: &mut Pair, q: usize, wr_id: u64, at: usize, len: usize) {
    let (sge, qpn) = (p.ends[0].sge(at, len), p.ends[0].qpns[q]);
    p.ends[0].ep.post_send(qpn, &WorkRequest::new(wr_id, WrOp::Send, &[sge])).unwrap();
}

#[test]
fn post_send__a_request_keeps_its_place_until_it_is_polled() {
    in_both_modes(|mode| {
        let caps = QpCaps { max_send_wr: 4, ..QpCaps::default() };
        let config =
            PairConfig { mode, caps, cqe: 4, places_until_polled: true, ..PairConfig::default() };
        let mut p = Pair::with(&config);
        let (qpn, cq) = (p.ends[0].qpns[0], p.ends[0].cq);
        let write = WrOp::Write { remote: p.ends[1].remote(0) };
        let sges = [p.ends[0].sge(0, 100)];
        let post = |p: &mut Pair, wr_id, signaled| {
            let request = WorkRequest { signaled, ..WorkRequest::new(wr_id, write, &sges) };
            p.ends[0].ep.post_send(qpn, &request)
        };
        p.ends[0].polls = false;
        for (wr_id, signaled) in [(1, false), (2, true), (3, true), (4, false)] {
            assert_eq!(post(&mut p, wr_id, signaled), Ok(()));
        }
        assert!(p.run(SECOND), "all of them are complete");
        assert_eq!(post(&mut p, 5, true), Err(PostError::QueueFull));
        let polled = p.ends[0].ep.poll_cq(cq).unwrap().map(|wc| wc.wr_id);
        assert_eq!(polled, Some(2), "and the silent one before it");
        assert_eq!([post(&mut p, 5, true), post(&mut p, 6, true)], [Ok(()); 2]);
        assert_eq!(post(&mut p, 7, true), Err(PostError::QueueFull));
        assert!(p.run(SECOND));
        let ids: Vec<u64> =
            std::iter::from_fn(|| p.ends[0].ep.poll_cq(cq).unwrap()).map(|wc| wc.wr_id).collect();
        assert_eq!(ids, [3, 5, 6], "a queue of as many entries does not overrun");
        assert_eq!((0..4).map(|n| post(&mut p, n, true)).filter(Result::is_ok).count(), 4);
    });
}

#[test]
fn post_srq_recv__messages_of_two_queue_pairs_do_not_mix() {
    in_both_modes(|_| {
        let (mut p, srq) = with_srq(8);
        let want = p.ends[0].fill(0, 6000, 3);
        for i in 0..2 {
            post_srq(&mut p, srq, i, 8192 * (1 + usize::try_from(i).unwrap()), 3000).unwrap();
        }
        // Long enough that their packets interleave on the wire.
        send(&mut p, 0, 1, 0, 3000);
        send(&mut p, 1, 2, 3000, 3000);
        assert!(p.run(SECOND));
        let got: Vec<_> = p.ends[1].wcs.clone();
        assert_eq!(got.len(), 2);
        for wc in got {
            assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 3000));
            let from = if wc.qpn == p.ends[1].qpns[0] { 0 } else { 3000 };
            let at = 8192 * (1 + usize::try_from(wc.wr_id).unwrap());
            assert_eq!(p.ends[1].bytes(at, 3000), want[from..from + 3000]);
        }
    });
}

#[test]
fn post_srq_recv__an_empty_queue_is_rnr_and_recovers() {
    in_both_modes(|_| {
        let (mut p, srq) = with_srq(8);
        send(&mut p, 1, 1, 0, 700);
        p.run(crate::testing::LATENCY * 4);
        assert!(p.ends[1].ep.counters().out_of_buffer > 0);
        post_srq(&mut p, srq, 9, 0, 700).unwrap();
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
        assert_eq!(statuses(&p.ends[1].wcs), [(9, WcStatus::Success)]);
    });
}

#[test]
fn post_srq_recv__checks_the_request() {
    let (mut p, srq) = with_srq(1);
    assert_eq!(post_srq(&mut p, SrqId(7), 0, 0, 1), Err(PostError::UnknownSrq));
    let long = [Sge { len: 1 << 31, ..Sge::default() }; 2];
    let request = RecvRequest { wr_id: 0, sges: &long };
    assert_eq!(p.ends[1].ep.post_srq_recv(srq, &request), Err(PostError::TooLong));
    let many = [Sge::default(); 5];
    let request = RecvRequest { wr_id: 0, sges: &many };
    assert_eq!(p.ends[1].ep.post_srq_recv(srq, &request), Err(PostError::TooManySges));
    post_srq(&mut p, srq, 0, 0, 1).unwrap();
    assert_eq!(post_srq(&mut p, srq, 0, 0, 1), Err(PostError::QueueFull));
    let qpn = p.ends[1].qpns[0];
    let request = RecvRequest { wr_id: 0, sges: &[] };
    assert_eq!(p.ends[1].ep.post_recv(qpn, &request), Err(PostError::UsesSrq));
    assert_eq!(p.ends[1].ep.destroy_srq(srq), Err(crate::SrqError::InUse));
    for qpn in p.ends[1].qpns.clone() {
        assert!(p.ends[1].ep.destroy_qp(qpn));
    }
    assert_eq!(p.ends[1].ep.destroy_srq(srq), Ok(()));
    assert_eq!(p.ends[1].ep.destroy_srq(srq), Err(crate::SrqError::Unknown));
}

#[test]
fn enter_error__flushes_the_request_in_use_and_no_other_of_a_shared_queue() {
    in_both_modes(|_| {
        let (mut p, srq) = with_srq(8);
        for wr_id in [1, 2] {
            post_srq(&mut p, srq, wr_id, 0, 3000).unwrap();
        }
        // The first packet of a message arrives, the others never do.
        let mut seen = 0;
        p.filter = Box::new(move |_, _| {
            seen += 1;
            if seen == 1 { Fate::Pass } else { Fate::Drop }
        });
        send(&mut p, 0, 1, 0, 3000);
        p.run(crate::testing::LATENCY * 2);
        events(&mut p, 1);
        to_state(&mut p, 1, QpState::Err).unwrap();
        p.filter = Box::new(|_, _| Fate::Pass);
        p.step(1);
        assert_eq!(statuses(&p.ends[1].wcs), [(1, WcStatus::WrFlushErr)]);
        let qpn = p.ends[1].qpns[0];
        assert_eq!(events(&mut p, 1), [AsyncEvent::LastWqeReached(qpn)]);
        send(&mut p, 1, 2, 0, 10);
        p.run(SECOND);
        assert_eq!(p.ends[1].wcs.last().map(|w| (w.wr_id, w.status)), Some((2, WcStatus::Success)));
    });
}

#[test]
fn set_srq_limit__causes_one_event_below_the_limit() {
    in_both_modes(|_| {
        let (mut p, srq) = with_srq(8);
        assert_eq!(p.ends[1].ep.set_srq_limit(srq, 9), Err(crate::SrqError::LimitTooHigh));
        for wr_id in 0..4 {
            post_srq(&mut p, srq, wr_id, 0, 64).unwrap();
        }
        p.ends[1].ep.set_srq_limit(srq, 3).unwrap();
        send(&mut p, 0, 1, 0, 64);
        assert!(p.run(SECOND));
        assert_eq!(events(&mut p, 1), [], "three are left");
        send(&mut p, 1, 2, 0, 64);
        send(&mut p, 1, 3, 0, 64);
        assert!(p.run(SECOND));
        assert_eq!(events(&mut p, 1), [AsyncEvent::SrqLimitReached(srq)]);
    });
}

#[test]
fn post_send__inline_data_are_copied_at_once() {
    in_both_modes(|_| {
        for (op, len) in [(Op::Send, 0), (Op::Send, 600), (Op::Write, 599), (Op::WriteImm, 257)] {
            let mut p = Pair::new();
            let mut bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let want = bytes.clone();
            p.post_recv(1, 7, 0, 600);
            let remote = p.ends[1].remote(0);
            let op = match op {
                Op::Write => WrOp::Write { remote },
                Op::WriteImm => WrOp::WriteImm { remote, imm: 1 },
                _ => WrOp::Send,
            };
            let qpn = p.ends[0].qpns[0];
            // The first frame is lost, so the retransmission needs the copied data.
            let mut seen = 0;
            p.filter = Box::new(move |_, _| {
                seen += 1;
                if seen == 1 { Fate::Drop } else { Fate::Pass }
            });
            p.ends[0].ep.post_send(qpn, &WorkRequest::inline(3, op, &bytes)).unwrap();
            bytes.fill(0xee);
            assert!(p.run(SECOND), "{op:?}");
            assert_eq!(p.ends[1].bytes(0, len), want, "{op:?}");
            assert_eq!(statuses(&p.ends[0].wcs), [(3, WcStatus::Success)]);
            assert_eq!(p.ends[0].wcs[0].byte_len as usize, len);
        }
    });
}

#[test]
fn post_send__refuses_inline_data_beyond_the_limit() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        let (qpn, remote) = (p.ends[0].qpns[0], p.ends[1].remote(0));
        let bytes = [1; 601];
        let refused = |p: &mut Pair, wr: &WorkRequest<'_>| {
            assert_eq!(p.ends[0].ep.post_send(qpn, wr), Err(PostError::BadInline));
        };
        refused(&mut p, &WorkRequest::inline(1, WrOp::Send, &bytes));
        refused(&mut p, &WorkRequest::inline(1, WrOp::Read { remote }, &bytes[..8]));
        refused(&mut p, &WorkRequest::inline(1, WrOp::FetchAdd { remote, add: 1 }, &bytes[..8]));
        let sge = [p.ends[0].sge(0, 8)];
        let both = WorkRequest { sges: &sge, ..WorkRequest::inline(1, WrOp::Send, &bytes[..8]) };
        refused(&mut p, &both);
    });
}

#[test]
fn post_send__sixteen_elements_on_both_sides() {
    in_both_modes(|_| {
        let caps = crate::QpCaps { max_send_sge: 16, max_recv_sge: 16, ..Default::default() };
        let mut p = Pair::with(&PairConfig { caps, ..PairConfig::default() });
        let bytes = p.ends[0].fill(0, 4000, 9);
        let from: Vec<Sge> = (0..16).map(|i| p.ends[0].sge(i * 200, 101)).collect();
        let to: Vec<Sge> = (0..16).map(|i| p.ends[1].sge(8000 - i * 300, 101 - i % 2)).collect();
        let (q0, q1) = (p.ends[0].qpns[0], p.ends[1].qpns[0]);
        p.ends[1].ep.post_recv(q1, &RecvRequest { wr_id: 1, sges: &to }).unwrap();
        let wr = WorkRequest::new(2, WrOp::Send, &from[..15]);
        p.ends[0].ep.post_send(q0, &wr).unwrap();
        assert!(p.run(SECOND));
        let sent: Vec<u8> = (0..15).flat_map(|i| bytes[i * 200..][..101].to_vec()).collect();
        let all: Vec<u8> =
            (0..16).flat_map(|i| p.ends[1].bytes(8000 - i * 300, 101 - i % 2)).collect();
        assert_eq!(all[..sent.len()], sent);
        let read = WrOp::Read { remote: p.ends[1].remote(0) };
        p.ends[0].ep.post_send(q0, &WorkRequest::new(3, read, &from)).unwrap();
        let many = [from.clone(), from].concat();
        let got = p.ends[0].ep.post_send(q0, &WorkRequest::new(4, WrOp::Send, &many[..17]));
        assert_eq!(got, Err(PostError::TooManySges));
        let want = p.ends[1].fill(0, 16 * 101, 4);
        assert!(p.run(SECOND));
        let got: Vec<u8> = (0..16).flat_map(|i| p.ends[0].bytes(i * 200, 101)).collect();
        assert_eq!(got, want);
    });
}

/// A region of side 1 with REMOTE_INVALIDATE: its lkey and rkey.
pub(super) fn invalidatable(p: &mut Pair, len: usize) -> (u32, u32) {
    let access = Access::ALL.and(Access::REMOTE_INVALIDATE);
    let (pd, region) = (p.ends[1].pd, spanwire_mem::Region::zeroed(len));
    let mr = p.ends[1].ep.reg_mr(pd, region, access, Some(0x4000)).unwrap();
    (mr.lkey, mr.rkey.unwrap())
}

fn write_to(p: &mut Pair, rkey: u32) -> WcStatus {
    let remote = crate::RemoteAddr { va: 0x4000, rkey };
    let (sge, qpn) = (p.ends[0].sge(0, 64), p.ends[0].qpns[0]);
    let wr = WorkRequest::new(50, WrOp::Write { remote }, std::slice::from_ref(&sge));
    p.ends[0].ep.post_send(qpn, &wr).unwrap();
    assert!(p.run(SECOND));
    p.ends[0].wcs.last().unwrap().status
}

#[test]
fn advance__send_with_invalidate_takes_effect_when_the_message_is_complete() {
    in_both_modes(|_| {
        for len in [0, 64, 1000] {
            let mut p = Pair::new();
            let (lkey, rkey) = invalidatable(&mut p, 64);
            assert_eq!(write_to(&mut p, rkey), WcStatus::Success);
            p.post_recv(1, 7, 0, 1000);
            let want = p.ends[0].fill(0, len, 8);
            let (sge, qpn) = (p.ends[0].sge(0, len), p.ends[0].qpns[0]);
            let wr = WorkRequest::new(3, WrOp::SendInv { rkey }, std::slice::from_ref(&sge));
            p.ends[0].ep.post_send(qpn, &wr).unwrap();
            assert!(p.run(SECOND));
            let [got] = p.ends[1].wcs[..] else { panic!("{:?}", p.ends[1].wcs) };
            assert_eq!((got.status, got.opcode), (WcStatus::Success, WcOpcode::Recv));
            assert_eq!((got.invalidated_rkey, got.byte_len as usize), (Some(rkey), len));
            assert_eq!(p.ends[1].bytes(0, len), want);
            let new = p.ends[1].ep.renew_rkey(lkey).unwrap();
            assert_eq!(write_to(&mut p, new), WcStatus::Success);
            assert_eq!(write_to(&mut p, rkey), WcStatus::RemAccessErr);
        }
    });
}

#[test]
fn check_invalidate__a_key_without_the_right_is_refused() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        p.post_recv(1, 7, 0, 10);
        let rkey = p.ends[1].mr.rkey.unwrap();
        let (sge, qpn) = (p.ends[0].sge(0, 8), p.ends[0].qpns[0]);
        let wr = WorkRequest::new(3, WrOp::SendInv { rkey }, std::slice::from_ref(&sge));
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(3, WcStatus::RemAccessErr)]);
        assert_eq!(statuses(&p.ends[1].wcs), [(7, WcStatus::WrFlushErr)]);
        let peer = p.ends[1].qpns[0];
        assert!(events(&mut p, 1).contains(&AsyncEvent::QpAccessErr(peer)));
    });
}

#[test]
fn modify__draining_finishes_begun_requests_and_resumes() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        let want = p.ends[0].fill(0, 20_000, 2);
        // The first packet is lost, so draining waits for its retransmission.
        let mut seen = 0;
        p.filter = Box::new(move |_, _| {
            seen += 1;
            if seen == 1 { Fate::Drop } else { Fate::Pass }
        });
        p.post(0, 1, Op::Write, 0, 20_000);
        p.step(0);
        p.post(0, 2, Op::Write, 20_000, 100);
        to_state(&mut p, 0, QpState::Sqd).unwrap();
        assert_eq!(events(&mut p, 0), []);
        let timeout = QpAttr { timeout: Some(10), ..QpAttr::default() };
        let qpn = p.ends[0].qpns[0];
        let early = p.ends[0].ep.modify_qp(qpn, &timeout);
        assert_eq!(early, Err(ModifyError::NotDrained("timeout")));
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
        assert_eq!(p.ends[1].bytes(0, 20_000), want);
        assert_eq!(events(&mut p, 0), [AsyncEvent::SqDrained(qpn)]);
        p.ends[0].ep.modify_qp(qpn, &timeout).unwrap();
        // The peer's requests are executed meanwhile, and requests may be posted.
        p.post(1, 9, Op::Read, 0, 500);
        p.post(0, 3, Op::Write, 20_000, 100);
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[1].wcs), [(9, WcStatus::Success)]);
        assert_eq!(p.ends[0].wcs.len(), 1);
        to_state(&mut p, 0, QpState::Rts).unwrap();
        assert!(p.run(SECOND));
        let ok = WcStatus::Success;
        assert_eq!(statuses(&p.ends[0].wcs), [(1, ok), (2, ok), (3, ok)]);
        assert_eq!(events(&mut p, 0), [], "reported once");
    });
}

#[test]
fn modify__an_idle_queue_is_drained_at_once() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        let qpn = p.ends[0].qpns[0];
        for _ in 0..2 {
            to_state(&mut p, 0, QpState::Sqd).unwrap();
            assert_eq!(events(&mut p, 0), [AsyncEvent::SqDrained(qpn)]);
            to_state(&mut p, 0, QpState::Rts).unwrap();
        }
    });
}

#[test]
fn req_notify_cq__notifies_of_solicited_messages_only() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        let (cq, qpn) = (p.ends[1].cq, p.ends[0].qpns[0]);
        p.ends[1].ep.req_notify_cq(cq, Notify::Solicited).unwrap();
        for i in 0..2 {
            p.post_recv(1, i, 0, 64);
            let sge = [p.ends[0].sge(0, 64)];
            let wr = WorkRequest { solicited: i == 1, ..WorkRequest::new(i, WrOp::Send, &sge) };
            p.ends[0].ep.post_send(qpn, &wr).unwrap();
            assert!(p.run(SECOND));
            let want = if i == 1 { vec![cq] } else { vec![] };
            assert_eq!(cq_events(&mut p, 1), want);
        }
    });
}

#[test]
fn poll_async_event__reports_what_no_completion_reports() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        let peer = p.ends[1].qpns[0];
        let (remote, sge) = (p.ends[1].remote(1 << 20), [p.ends[0].sge(0, 64)]);
        let wr = WorkRequest::new(1, WrOp::Write { remote }, &sge);
        let qpn = p.ends[0].qpns[0];
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
        p.run(SECOND);
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemAccessErr)]);
        assert_eq!(events(&mut p, 1), [AsyncEvent::QpAccessErr(peer)]);
        // Overrun: a completion queue of one entry.
        let mut p = Pair::with(&PairConfig { cqe: 1, ..PairConfig::default() });
        let (cq, qpn) = (p.ends[0].cq, p.ends[0].qpns[0]);
        for i in 0..3 {
            p.post(0, i, Op::Write, 0, 8);
        }
        p.run(SECOND);
        assert_eq!(events(&mut p, 0), [AsyncEvent::CqErr(cq), AsyncEvent::QpFatal(qpn)]);
    });
}

/// Of three messages of two packets, the first packet of the first is lost. The receive requests of
/// the others are taken from the shared queue and not used up.
fn taken_ahead(max_wr: u32) -> (Pair, SrqId) {
    let (mut p, srq) = with_srq(max_wr);
    for i in 0..8 {
        post_srq(&mut p, srq, i, 4096 * usize::try_from(i).unwrap(), 512).unwrap();
    }
    let mut n = 0;
    p.filter = Box::new(move |side, packet| {
        n += usize::from(side == 0 && packet.payload_len() > 0);
        if side == 0 && n != 1 && packet.payload_len() > 0 { Fate::Pass } else { Fate::Drop }
    });
    for i in 0..3 {
        send(&mut p, 0, i, 0, 512);
    }
    p.run(Dur::from_us(20));
    p.filter = Box::new(|_, _| Fate::Pass);
    (p, srq)
}

fn posted(p: &Pair, srq: SrqId) -> u32 {
    p.ends[1].ep.query_srq(srq).unwrap().posted
}

#[test]
fn reset__returns_unused_requests_to_a_shared_queue() {
    for destroys in [false, true] {
        in_both_modes(|mode| {
            let (mut p, srq) = match mode {
                WireMode::Sr => taken_ahead(8),
                WireMode::Rc => begun(8),
            };
            let taken = if mode == WireMode::Sr { 3 } else { 1 };
            assert_eq!(posted(&p, srq), 8 - taken, "{mode:?}");
            // Its slot is occupied until it has been used up.
            assert_eq!(post_srq(&mut p, srq, 99, 0, 64), Err(PostError::QueueFull), "{mode:?}");
            if destroys {
                let qpn = p.ends[1].qpns[0];
                assert!(p.ends[1].ep.destroy_qp(qpn));
            } else {
                to_state(&mut p, 1, QpState::Reset).unwrap();
            }
            assert_eq!(posted(&p, srq), 8, "{mode:?}");
            assert!(p.ends[1].wcs.is_empty(), "{mode:?}: without completions");
            for i in 0..8 {
                send(&mut p, 1, 100 + i, 0, 64);
            }
            p.run(Dur::from_ms(10));
            let used: Vec<_> = p.ends[1].wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect();
            let want: Vec<_> = (0..8).map(|i| (i, WcStatus::Success)).collect();
            assert_eq!(used, want, "{mode:?}: in the order in which they were posted");
        });
    }
}

/// Only the first packet of a message has arrived.
fn begun(max_wr: u32) -> (Pair, SrqId) {
    let (mut p, srq) = with_srq(max_wr);
    for i in 0..8 {
        post_srq(&mut p, srq, i, 4096 * usize::try_from(i).unwrap(), 512).unwrap();
    }
    let mut n = 0;
    p.filter = Box::new(move |side, _| {
        n += usize::from(side == 0);
        if side == 0 && n == 1 { Fate::Pass } else { Fate::Drop }
    });
    send(&mut p, 0, 1, 0, 512);
    p.run(Dur::from_us(20));
    p.filter = Box::new(|_, _| Fate::Pass);
    (p, srq)
}

#[test]
fn reset__a_returned_request_is_advertised_to_a_waiting_peer() {
    in_both_modes(|mode| {
        // RC takes no receive requests ahead and advertises no receive limit.
        if mode == WireMode::Rc {
            return;
        }
        let (mut p, srq) = taken_ahead(8);
        // Queue pair 1 uses the other five and needs one more.
        for i in 0..6 {
            send(&mut p, 1, 100 + i, 0, 64);
        }
        p.run(Dur::from_us(100));
        assert_eq!((posted(&p, srq), p.ends[1].wcs.len()), (0, 5));
        let qpn = p.ends[1].qpns[0];
        assert!(p.ends[1].ep.destroy_qp(qpn));
        p.run(Dur::from_us(30));
        assert_eq!(p.ends[1].wcs.len(), 6, "by a new limit at once, not by a probe");
    });
}

#[test]
fn error__flushes_requests_taken_from_a_shared_queue_and_frees_their_slots() {
    in_both_modes(|mode| {
        let (mut p, srq) = match mode {
            WireMode::Sr => taken_ahead(8),
            WireMode::Rc => begun(8),
        };
        let taken = if mode == WireMode::Sr { 3 } else { 1 };
        to_state(&mut p, 1, QpState::Err).unwrap();
        p.run(Dur::from_us(1));
        let flushed: Vec<_> = p.ends[1].wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        let want: Vec<_> = (0..taken).map(|i| (i, WcStatus::WrFlushErr)).collect();
        assert_eq!(flushed, want, "{mode:?}");
        for i in 0..taken {
            post_srq(&mut p, srq, 20 + i, 0, 64).unwrap();
        }
        assert_eq!(post_srq(&mut p, srq, 99, 0, 64), Err(PostError::QueueFull), "{mode:?}");
    });
}
