//! Atomics over a virtual wire: results, refusals, and execution exactly once under all network
//! conditions.

use super::{SECOND, statuses};
use crate::testing::{Fate, Pair, PairConfig, in_both_modes};
use crate::{PostError, WcOpcode, WcStatus, WorkRequest, WrOp};
use spanwire_base::{Dur, Rng};

fn word(p: &Pair, side: usize, at: usize) -> u64 {
    p.ends[side].region.fetch_add(at, 0).unwrap()
}

/// Posts from side 0 an atomic on the word at `at` of side 1; the original value is written to the
/// same offset of side 0.
pub(super) fn post(p: &mut Pair, wr_id: u64, at: usize, op: fn(crate::RemoteAddr) -> WrOp) {
    let op = op(p.ends[1].remote(at));
    let (sge, qpn) = (p.ends[0].sge(at, 8), p.ends[0].qpns[0]);
    p.ends[0].ep.post_send(qpn, &WorkRequest::new(wr_id, op, &[sge])).unwrap();
}

#[test]
fn on_atomic_ack__returns_the_original_and_changes_the_word() {
    in_both_modes(|_| {
        let mut p = Pair::new();
        p.ends[1].region.copy_in(8, &5u64.to_ne_bytes()).unwrap();
        post(&mut p, 1, 8, |remote| WrOp::FetchAdd { remote, add: u64::MAX });
        assert!(p.run(SECOND));
        assert_eq!((word(&p, 0, 8), word(&p, 1, 8)), (5, 4));
        post(&mut p, 2, 8, |remote| WrOp::CmpSwap { remote, compare: 5, swap: 9 });
        assert!(p.run(SECOND));
        assert_eq!((word(&p, 0, 8), word(&p, 1, 8)), (4, 4), "the comparison failed");
        post(&mut p, 3, 8, |remote| WrOp::CmpSwap { remote, compare: 4, swap: 9 });
        assert!(p.run(SECOND));
        assert_eq!((word(&p, 0, 8), word(&p, 1, 8)), (4, 9));
        let done: Vec<_> = p.ends[0].wcs.iter().map(|w| (w.opcode, w.status, w.byte_len)).collect();
        let ok = |opcode| (opcode, WcStatus::Success, 8);
        assert_eq!(done, [ok(WcOpcode::FetchAdd), ok(WcOpcode::CompSwap), ok(WcOpcode::CompSwap)]);
        assert_eq!(p.ends[1].ep.counters().rx_atomic_requests, 3);
    });
}

#[test]
fn post_send__an_atomic_needs_eight_bytes_and_max_rd_atomic() {
    in_both_modes(|_| {
        let mut p =
            Pair::with(&PairConfig { rts: |a| a.max_rd_atomic = Some(0), ..PairConfig::default() });
        let op = WrOp::FetchAdd { remote: p.ends[1].remote(0), add: 1 };
        let qpn = p.ends[0].qpns[0];
        let sges = |p: &Pair, len| [p.ends[0].sge(0, len), p.ends[0].sge(64, 4)];
        for len in [0, 3, 5, 8] {
            let got = p.ends[0].ep.post_send(qpn, &WorkRequest::new(1, op, &sges(&p, len)));
            assert_eq!(got, Err(PostError::NotEightBytes), "{len} + 4");
        }
        let got = p.ends[0].ep.post_send(qpn, &WorkRequest::new(1, op, &sges(&p, 4)));
        assert_eq!(got, Err(PostError::BadState), "it could never be sent");
    });
}

#[test]
fn handle_packet__a_refused_atomic_fails_the_queue_pair() {
    in_both_modes(|_| {
        for (at, status) in [(12, WcStatus::RemInvReqErr), (1 << 20, WcStatus::RemAccessErr)] {
            let mut p = Pair::new();
            let op = WrOp::FetchAdd { remote: p.ends[1].remote(at), add: 1 };
            let (sge, qpn) = (p.ends[0].sge(0, 8), p.ends[0].qpns[0]);
            for id in [1, 2] {
                p.ends[0].ep.post_send(qpn, &WorkRequest::new(id, op, &[sge])).unwrap();
            }
            assert!(p.run(SECOND));
            assert_eq!(statuses(&p.ends[0].wcs), [(1, status), (2, WcStatus::WrFlushErr)]);
        }
    });
}

/// Every single packet of a mixture is lost, duplicated or delayed. Sums and original values are
/// those of the posting order.
#[test]
fn handle_packet__atomics_execute_once_whichever_packet_is_impaired() {
    in_both_modes(|_| {
        type Hit = fn() -> Fate;
        let hits: [Hit; 3] = [|| Fate::Drop, || Fate::Twice, || Fate::Late(Dur::from_us(60))];
        for (kind, hit) in hits.iter().enumerate() {
            for nth in 0.. {
                let mut p = Pair::with(&PairConfig {
                    rts: |a| a.timeout = Some(8),
                    ..PairConfig::default()
                });
                let (mut seen, hit) = (0, *hit);
                p.filter = Box::new(move |_, _| {
                    seen += 1;
                    if seen == nth + 1 { hit() } else { Fate::Pass }
                });
                run_mixture(&mut p, &format!("{kind}: packet {nth}"));
                if p.log.len() <= nth {
                    break;
                }
            }
        }
    });
}

#[test]
fn handle_packet__atomics_execute_once_under_random_impairments() {
    in_both_modes(|_| {
        for seed in 0..60 {
            let mut wire = Rng::new(seed);
            let mut p =
                Pair::with(&PairConfig { rts: |a| a.timeout = Some(8), ..PairConfig::default() });
            p.filter = Box::new(move |_, _| match wire.below(100) {
                0..8 => Fate::Drop,
                8..20 => Fate::Twice,
                20..35 => Fate::Late(Dur::from_us(wire.below(60))),
                _ => Fate::Pass,
            });
            run_mixture(&mut p, &format!("seed {seed}"));
        }
    });
}

/// Twelve FETCH_ADDs of one word among WRITEs and READs; each original value has its own slot.
fn run_mixture(p: &mut Pair, what: &str) {
    let qpn = p.ends[0].qpns[0];
    let want = p.ends[1].fill(4096, 3000, 5);
    for i in 0..12 {
        let remote = p.ends[1].remote(0);
        let at = 64 + usize::try_from(i).unwrap() * 8;
        let atomic = [p.ends[0].sge(at, 8)];
        let op = WrOp::FetchAdd { remote, add: i + 1 };
        p.ends[0].ep.post_send(qpn, &WorkRequest::new(i, op, &atomic)).unwrap();
        let other = match i % 3 {
            0 => Some((WrOp::Read { remote: p.ends[1].remote(4096) }, 3000)),
            1 => Some((WrOp::Write { remote: p.ends[1].remote(16_384) }, 700)),
            _ => None,
        };
        if let Some((op, len)) = other {
            let sge = [p.ends[0].sge(8192, len)];
            p.ends[0].ep.post_send(qpn, &WorkRequest::new(100 + i, op, &sge)).unwrap();
        }
    }
    assert!(p.run(SECOND * 5), "{what}: does not end");
    assert!(p.ends[0].wcs.iter().all(|w| w.status == WcStatus::Success), "{what}");
    assert_eq!(p.ends[0].wcs.len(), 20, "{what}");
    let originals: Vec<u64> = (0..12).map(|i| word(p, 0, 64 + i * 8)).collect();
    let sums: Vec<u64> = (0..12u64).map(|i| i * (i + 1) / 2).collect();
    assert_eq!(originals, sums, "{what}");
    assert_eq!(word(p, 1, 0), 78, "{what}");
    assert_eq!(p.ends[1].ep.counters().rx_atomic_requests, 12, "{what}");
    assert_eq!(p.ends[0].bytes(8192, 3000), want, "{what}");
}
