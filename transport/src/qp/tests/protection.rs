//! Memory that may not be accessed: the request completes with LOC_PROT_ERR, as verbs have it.

use super::*;
use crate::testing::in_both_modes;
use crate::{PdId, QpState, RemoteAddr};
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
            let got = statuses(&p.ends[0].wcs);
            // The first is flushed if its acknowledgement has not arrived.
            let first = got[0].1;
            assert!([WcStatus::Success, WcStatus::WrFlushErr].contains(&first), "{what}: {got:?}");
            let rest = [(2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];
            assert_eq!((got[0].0, &got[1..]), (1, &rest[..]), "{what}");
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
