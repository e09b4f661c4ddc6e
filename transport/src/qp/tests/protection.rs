//! Memory that may not be accessed: the request completes with LOC_PROT_ERR, as verbs have it.

use super::verbs::{events, to_state};
use super::*;
use crate::testing::in_both_modes;
use crate::{AsyncEvent, ErasureCoding, PdId, QpState, RemoteAddr};
use spanwire_mem::Region;

/// SGEs of `len` bytes that side `i` may not access: no key, another region's end, another domain,
/// no right to write.
fn bad_sges(end: &mut crate::testing::End, len: u32) -> [(&'static str, Sge); 4] {
    let mr = end.mr;
    let other = end.ep.alloc_pd().unwrap();
    let mut made = |pd: PdId, access| {
        let mr = end.ep.reg_mr(pd, Region::zeroed(4096), access, None).unwrap();
        Sge { addr: mr.addr, len, lkey: mr.lkey }
    };
    [
        ("unknown", Sge { addr: mr.addr, len, lkey: mr.lkey ^ 0x8000_0000 }),
        ("outside", Sge { addr: mr.addr + mr.len - 1, len, lkey: mr.lkey }),
        ("domain", made(other, Access::ALL)),
        ("read-only", made(end.pd, Access::LOCAL_READ)),
    ]
}

/// The operations that read (`false`) or write (`true`) local memory.
fn operations(remote: RemoteAddr) -> [(WrOp, bool, u32); 7] {
    [
        (WrOp::Send, false, 700),
        (WrOp::SendImm { imm: 7 }, false, 10),
        (WrOp::Write { remote }, false, 700),
        (WrOp::WriteImm { remote, imm: 7 }, false, 10),
        (WrOp::Read { remote }, true, 700),
        (WrOp::FetchAdd { remote, add: 1 }, true, 8),
        (WrOp::CmpSwap { remote, compare: 0, swap: 1 }, true, 8),
    ]
}

#[test]
fn post_send__memory_that_may_not_be_accessed_is_a_completion() {
    in_both_modes(|mode| {
        let count = operations(RemoteAddr::default()).len();
        for (op, kind) in (0..count).flat_map(|op| (0..4).map(move |kind| (op, kind))) {
            let mut p = Pair::new();
            let (op, writes, len) = operations(p.ends[1].remote(0))[op];
            let (name, bad) = bad_sges(&mut p.ends[0], len)[kind];
            if name == "read-only" && !writes {
                continue;
            }
            p.post_recv(1, 1, 0, 1000);
            p.post(0, 1, Op::Write, 0, 600);
            let qpn = p.ends[0].qpns[0];
            let sges = [bad];
            let wr = WorkRequest { signaled: false, ..WorkRequest::new(2, op, &sges) };
            p.ends[0].ep.post_send(qpn, &wr).unwrap();
            p.post(0, 3, Op::Write, 0, 600);
            p.run(SECOND);
            let what = format!("{mode:?}, {op:?}, {name}");
            assert_eq!(statuses(&p.ends[0].wcs), GOOD_BAD_GOOD, "{what}");
            assert_eq!(p.ends[0].ep.query_qp(qpn).unwrap().state, QpState::Err, "{what}");
        }
    });
}

#[test]
fn post_send__a_second_element_is_checked_when_it_is_reached() {
    in_both_modes(|mode| {
        let mut p = Pair::new();
        let (_, bad) = bad_sges(&mut p.ends[0], 100)[0];
        let sent = p.ends[0].fill(0, 600, 1);
        let sges = [p.ends[0].sge(0, 600), bad];
        let (qpn, remote) = (p.ends[0].qpns[0], p.ends[1].remote(0));
        let wr = WorkRequest::new(1, WrOp::Write { remote }, &sges);
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
        p.run(SECOND);
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::LocProtErr)], "{mode:?}");
        assert_eq!(p.ends[1].bytes(0, 512), sent[..512], "{mode:?}: two packets were whole");
    });
}

#[test]
fn post_recv__memory_that_may_not_be_accessed_is_a_completion_at_both_ends() {
    for srq_max_wr in [None, Some(4)] {
        in_both_modes(|mode| {
            for kind in 0..4 {
                let mut p = Pair::with(&PairConfig { srq_max_wr, ..PairConfig::default() });
                let (name, bad) = bad_sges(&mut p.ends[1], 700)[kind];
                let what = format!("{mode:?}, {srq_max_wr:?}, {name}");
                let (qpn, srq) = (p.ends[1].qpns[0], p.ends[1].srq);
                let recv = RecvRequest { wr_id: 9, sges: &[bad] };
                let posted = match srq {
                    Some(srq) => p.ends[1].ep.post_srq_recv(srq, &recv),
                    None => p.ends[1].ep.post_recv(qpn, &recv),
                };
                assert_eq!(posted, Ok(()), "{what}");
                p.post(0, 1, Op::Send, 0, 700);
                p.run(SECOND);
                assert_eq!(statuses(&p.ends[1].wcs), [(9, WcStatus::LocProtErr)], "{what}");
                assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemOpErr)], "{what}");
                let state = p.ends[1].ep.query_qp(qpn).unwrap().state;
                assert_eq!(state, QpState::Err, "{what}");
            }
        });
    }
}

#[test]
fn post__elements_of_no_bytes_need_no_key() {
    in_both_modes(|mode| {
        let mut p = Pair::new();
        let none = Sge { addr: u64::MAX, len: 0, lkey: 0 };
        let sent = p.ends[0].fill(0, 300, 1);
        let qpns = [p.ends[0].qpns[0], p.ends[1].qpns[0]];
        for (wr_id, len) in [(1, 300), (2, 0)] {
            let sges = [none, p.ends[1].sge(4096, len), none];
            p.ends[1].ep.post_recv(qpns[1], &RecvRequest { wr_id, sges: &sges }).unwrap();
        }
        let remote = p.ends[1].remote(0);
        for (wr_id, op, len) in
            [(1, WrOp::Send, 300), (2, WrOp::Send, 0), (3, WrOp::Read { remote }, 0)]
        {
            let sges = [none, p.ends[0].sge(0, len), none];
            p.ends[0].ep.post_send(qpns[0], &WorkRequest::new(wr_id, op, &sges)).unwrap();
        }
        assert!(p.run(SECOND), "{mode:?}");
        let success = |ids: &[u64]| ids.iter().map(|id| (*id, WcStatus::Success)).collect();
        let want: [Vec<(u64, WcStatus)>; 2] = [success(&[1, 2, 3]), success(&[1, 2])];
        assert_eq!([0, 1].map(|side| statuses(&p.ends[side].wcs)), want, "{mode:?}");
        assert_eq!(p.ends[1].bytes(4096, 300), sent, "{mode:?}");
    });
}

/// The completions of three requests, of which the second has a local error.
const GOOD_BAD_GOOD: [(u64, WcStatus); 3] =
    [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];

/// Posts request `wr_id` of side 0, from memory that it may not access.
fn post_bad(p: &mut Pair, wr_id: u64, op: WrOp, len: u32) {
    let (_, bad) = bad_sges(&mut p.ends[0], len)[0];
    post_from(p, &WorkRequest::new(wr_id, op, &[bad]));
}

fn post_from(p: &mut Pair, wr: &WorkRequest<'_>) {
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.post_send(qpn, wr).unwrap();
}

/// Drops the first packet that `side` sends.
fn drop_first_of(p: &mut Pair, side: usize) {
    let mut dropped = false;
    p.filter =
        Box::new(move |from, _| match from == side && !std::mem::replace(&mut dropped, true) {
            true => Fate::Drop,
            false => Fate::Pass,
        });
}

/// The operations before it, each with the loss of the first packet of each side.
#[test]
fn fail__requests_before_a_local_error_complete_first() {
    in_both_modes(|mode| {
        let count = operations(RemoteAddr::default()).len();
        let before = [Op::Write, Op::Send, Op::Read];
        let cases = before.iter().flat_map(|op| (0..count).map(move |bad| (*op, bad)));
        for ((op, bad), lossy) in cases.flat_map(|c| [None, Some(0), Some(1)].map(|l| (c, l))) {
            let mut p = Pair::new();
            if let Some(side) = lossy {
                drop_first_of(&mut p, side);
            }
            let (bad, reads, len) = operations(p.ends[1].remote(0))[bad];
            let what = format!("{mode:?}, {op:?}, {bad:?}, {lossy:?}");
            p.ends[0].fill(8192, 600, 1);
            p.post_recv(1, 1, 0, 600);
            p.post_recv(1, 2, 0, 700);
            p.post(0, 1, op, 0, 600);
            let (_, sge) = bad_sges(&mut p.ends[0], len)[0];
            let fence = op == Op::Read && lossy.is_none();
            post_from(&mut p, &WorkRequest { fence, ..WorkRequest::new(2, bad, &[sge]) });
            p.post(0, 3, Op::Write, 8192, 600);
            p.run(SECOND);
            assert_eq!(statuses(&p.ends[0].wcs), GOOD_BAD_GOOD, "{what}");
            let state = p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().state;
            assert_eq!(state, QpState::Err, "{what}");
            if !reads {
                assert_eq!(p.ends[1].bytes(8192, 600), [0; 600], "{what}: not sent");
            }
            if lossy.is_none() {
                let timeouts = p.ends[0].ep.counters().local_ack_timeout_err;
                assert_eq!(timeouts, 0, "{what}");
            }
        }
    });
}

#[test]
fn fail__a_local_error_of_the_first_request_is_immediate() {
    in_both_modes(|mode| {
        let mut p = Pair::new();
        post_bad(&mut p, 1, WrOp::Send, 700);
        p.post(0, 2, Op::Write, 0, 600);
        post_bad(&mut p, 3, WrOp::Send, 700);
        p.step(0);
        let flushed = WcStatus::WrFlushErr;
        let want = [(1, WcStatus::LocProtErr), (2, flushed), (3, flushed)];
        assert_eq!(statuses(&p.ends[0].wcs), want, "{mode:?}");
    });
}

/// Before its first packet leaves, after two packets, and after all three.
#[test]
fn fail__memory_deregistered_after_the_post() {
    in_both_modes(|mode| {
        let cases = (3..=6).flat_map(|n| [None, Some(0), Some(1)].map(|l| (n, l)));
        let codes = [None, Some(ErasureCoding::default())];
        for ((sent, lossy), erasure) in cases.flat_map(|case| codes.map(|code| (case, code))) {
            let mut p = Pair::with(&PairConfig { erasure, ..PairConfig::default() });
            let pd = p.ends[0].pd;
            let region = Region::zeroed(4096);
            let mr = p.ends[0].ep.reg_mr(pd, region, Access::ALL, None).unwrap();
            let (mut n, what) = (0, format!("{mode:?}, {sent} sent, {lossy:?}, {erasure:?}"));
            // Of the request itself, the last packet sent is lost.
            p.filter = Box::new(move |side, _| {
                n += usize::from(side == 0);
                let is_lost = side == 0 && n == sent && sent > 3 || lossy == Some(side) && n == 1;
                if is_lost { Fate::Drop } else { Fate::Pass }
            });
            p.post(0, 1, Op::Write, 0, 600);
            let remote = p.ends[1].remote(0);
            let sge = Sge { addr: mr.addr, len: 600, lkey: mr.lkey };
            post_from(&mut p, &WorkRequest::new(2, WrOp::Write { remote }, &[sge]));
            p.post(0, 3, Op::Write, 0, 600);
            p.step_at_most(0, sent);
            p.ends[0].ep.dereg_mr(mr.lkey).unwrap();
            p.run(SECOND);
            assert_eq!(statuses(&p.ends[0].wcs), GOOD_BAD_GOOD, "{what}");
        }
    });
}

#[test]
fn fail__an_error_of_an_earlier_request_flushes_the_bad_one() {
    in_both_modes(|mode| {
        let mut p = Pair::new();
        p.filter = Box::new(|side, _| if side == 1 { Fate::Drop } else { Fate::Pass });
        p.post(0, 1, Op::Write, 0, 600);
        post_bad(&mut p, 2, WrOp::Send, 700);
        p.run(SECOND * 10);
        let want = [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&p.ends[0].wcs), want, "{mode:?}");
    });
}

/// A SEND waits for a receive request, and the bad request waits for the SEND.
fn waiting() -> Pair {
    let mut p = Pair::new();
    p.post(0, 1, Op::Send, 0, 600);
    post_bad(&mut p, 2, WrOp::Send, 700);
    p.post(0, 3, Op::Write, 0, 600);
    p.run(Dur::from_ms(5));
    assert_eq!(p.ends[0].wcs, []);
    p
}

#[test]
fn fail__while_it_waits_the_queue_pair_responds() {
    in_both_modes(|mode| {
        let mut p = waiting();
        let sent = p.ends[0].fill(1000, 20_000, 1);
        let qpn = p.ends[0].qpns[0];
        p.post(1, 8, Op::Read, 1000, 20_000);
        p.post(1, 9, Op::Write, 0, 600);
        p.run(SECOND);
        let success = [8, 9].map(|wr_id| (wr_id, WcStatus::Success));
        assert_eq!(statuses(&p.ends[1].wcs), success, "{mode:?}");
        assert_eq!(p.ends[1].bytes(1000, 20_000), sent, "{mode:?}");
        assert_eq!(p.ends[0].ep.query_qp(qpn).unwrap().state, QpState::Rts, "{mode:?}");
        p.post_recv(1, 1, 0, 600);
        p.run(SECOND);
        assert_eq!(statuses(&p.ends[0].wcs), GOOD_BAD_GOOD, "{mode:?}");
    });
}

#[test]
fn fail__a_drained_queue_does_not_begin_the_bad_request() {
    in_both_modes(|mode| {
        let mut p = waiting();
        to_state(&mut p, 0, QpState::Sqd).unwrap();
        p.run(Dur::from_ms(5));
        assert_eq!(events(&mut p, 0), [], "{mode:?}");
        p.post_recv(1, 1, 0, 600);
        p.run(SECOND);
        assert_eq!(events(&mut p, 0), [AsyncEvent::SqDrained(p.ends[0].qpns[0])], "{mode:?}");
        assert_eq!(statuses(&p.ends[0].wcs), GOOD_BAD_GOOD[..1], "{mode:?}");
        to_state(&mut p, 0, QpState::Rts).unwrap();
        p.run(SECOND);
        assert_eq!(statuses(&p.ends[0].wcs), GOOD_BAD_GOOD, "{mode:?}");
    });
}
