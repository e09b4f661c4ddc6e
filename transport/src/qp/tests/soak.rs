//! Many queue pairs, both directions, every operation, over a wire with loss, duplication and
//! delay. Every request completes once, in order, and both memories are as expected.

use super::MODES;
use crate::testing::{Fate, Op, Pair, PairConfig};
use crate::{Config, QpCaps, RecvRequest, Wc, WcOpcode, WcStatus, WireMode, WorkRequest, WrOp};
use spanwire_base::{Dur, Rng, usize_from};

/// Network conditions in percent of frames.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: u64,
    twice: u64,
    late: u64,
}

/// The expected effect of one request once it completes.
#[derive(Clone, Copy, Debug)]
struct Expected {
    op: Op,
    /// Its bytes on the posting side and on the other.
    at: usize,
    len: usize,
}

const QP_BYTES: usize = 1 << 18;
const SLOT_BYTES: usize = 30_000;
const REQUESTS: usize = 8;

/// Requests of queue pair `q` posted by `side`; each has its own slot in both memories.
fn plan(rng: &mut Rng, q: usize, side: usize, mtu: usize) -> Vec<Expected> {
    let base = (2 * q + side) * QP_BYTES;
    (0..REQUESTS)
        .map(|i| {
            let op = Op::ALL[usize_from(rng.below(5))];
            let pkts = [0, 1, 2, 5, 40, 100][usize_from(rng.below(6))];
            let len = (pkts * mtu + usize_from(rng.below(300))).min(SLOT_BYTES);
            let at = base + i * SLOT_BYTES;
            Expected { op, at, len }
        })
        .collect()
}

fn post(p: &mut Pair, side: usize, q: usize, i: usize, e: &Expected) {
    let remote = p.ends[1 - side].remote(e.at);
    let op = match e.op {
        Op::Send => WrOp::Send,
        Op::SendImm => WrOp::SendImm { imm: 7 },
        Op::Write => WrOp::Write { remote },
        Op::WriteImm => WrOp::WriteImm { remote, imm: 7 },
        Op::Read => WrOp::Read { remote },
    };
    let sge = p.ends[side].sge(e.at, e.len);
    let wr = WorkRequest::new(i as u64, op, std::slice::from_ref(&sge));
    let qpn = p.ends[side].qpns[q];
    p.ends[side].ep.post_send(qpn, &wr).unwrap();
}

fn post_recvs(p: &mut Pair, side: usize, q: usize, plan: &[Expected]) {
    let consuming = plan.iter().filter(|e| e.op.needs_recv());
    for (i, e) in (0u64..).zip(consuming) {
        let sge = p.ends[side].sge(e.at, e.len);
        let qpn = p.ends[side].qpns[q];
        let (wr_id, sges) = (100 + i, std::slice::from_ref(&sge));
        let recv = RecvRequest { wr_id, sges };
        p.ends[side].ep.post_recv(qpn, &recv).unwrap();
    }
}

/// Runs one configuration and returns the number of retransmission timeouts.
fn soak(seed: u64, faults: Faults, qps: usize, mode: WireMode) -> u64 {
    let what = format!("{mode:?}, seed {seed}, {faults:?}, {qps} queue pairs");
    let mut rng = Rng::new(seed);
    let turn_bytes = [1024, 1500, 4096, 16_384][usize_from(rng.below(4))];
    let c = PairConfig {
        qps,
        mode,
        bytes: 2 * qps * QP_BYTES,
        psns: [0xff_ffe0, 77],
        config: Config { turn_bytes, ..Config::default() },
        caps: QpCaps { max_send_wr: 16, max_recv_wr: 16, ..QpCaps::default() },
        rts: |a| (a.timeout, a.max_rd_atomic) = (Some(8), Some(3)),
        rtr: |a| (a.max_dest_rd_atomic, a.min_rnr_timer) = (Some(3), Some(5)),
        ..PairConfig::default()
    };
    let mut p = Pair::with(&c);
    let mut wire = rng.fork();
    p.filter = Box::new(move |_, _| {
        let n = wire.below(100);
        match n {
            _ if n < faults.lost => Fate::Drop,
            _ if n < faults.lost + faults.twice => Fate::Twice,
            _ if n < faults.lost + faults.twice + faults.late => {
                Fate::Late(Dur::from_us(wire.below(40)))
            }
            _ => Fate::Pass,
        }
    });
    let before = [0, 1].map(|side| p.ends[side].fill(0, c.bytes, seed ^ (side as u64 + 1)));
    let plans: Vec<[Vec<Expected>; 2]> =
        (0..qps).map(|q| [0, 1].map(|side| plan(&mut rng, q, side, 256))).collect();
    // Receive requests are posted late for every other queue pair, which causes RNR NAKs.
    for (q, plan) in plans.iter().enumerate() {
        for side in [0, 1] {
            for (i, e) in plan[side].iter().enumerate() {
                post(&mut p, side, q, i, e);
            }
            if q % 2 == 0 {
                post_recvs(&mut p, 1 - side, q, &plan[side]);
            }
        }
    }
    p.run(Dur::from_us(rng.below(200)));
    for (q, plan) in plans.iter().enumerate().filter(|(q, _)| q % 2 == 1) {
        for side in [0, 1] {
            post_recvs(&mut p, 1 - side, q, &plan[side]);
        }
    }
    assert!(p.run(Dur::from_secs(60)), "{what}: does not end");
    check(&p, &plans, &before, &what);
    let fired = |side: usize| p.ends[side].ep.counters().local_ack_timeout_err;
    fired(0) + fired(1)
}

fn check(p: &Pair, plans: &[[Vec<Expected>; 2]], before: &[Vec<u8>; 2], what: &str) {
    let mut want = before.clone();
    for side in [0, 1] {
        for (q, plan) in plans.iter().enumerate() {
            let what = format!("{what}: queue pair {q} of side {side}");
            let done = check_sends(&of(p, side, q, false), &what);
            check_recvs(&of(p, side, q, true), &plan[1 - side], &what);
            for (i, e) in plan[side].iter().enumerate() {
                let (from, to) = match e.op {
                    Op::Read => (1 - side, side),
                    _ => (side, 1 - side),
                };
                // A request without successful completion may have been executed or not.
                let bytes = match i < done {
                    true => before[from][e.at..e.at + e.len].to_vec(),
                    false => p.ends[to].bytes(e.at, e.len),
                };
                want[to][e.at..e.at + e.len].copy_from_slice(&bytes);
            }
        }
    }
    for (side, want) in want.iter().enumerate() {
        let got = p.ends[side].bytes(0, want.len());
        let odd = got.iter().zip(want).position(|(a, b)| a != b);
        assert_eq!(odd, None, "{what}: memory of side {side}");
    }
    for end in &p.ends {
        for qpn in &end.qpns {
            assert_eq!(end.ep.query_qp(*qpn).unwrap().in_flight_pkts, 0, "{what}");
        }
    }
}

/// Completions of one queue pair's send or receive queue.
fn of(p: &Pair, side: usize, q: usize, recv: bool) -> Vec<Wc> {
    let is_recv = |w: &Wc| matches!(w.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    let wcs = p.ends[side].wcs.iter();
    wcs.filter(|w| w.qpn == p.ends[side].qpns[q] && is_recv(w) == recv).copied().collect()
}

/// All requests complete once and in order: successfully before a failure, flushed after it. Only
/// 20 % loss may exhaust the retries. Returns how many succeeded.
fn check_sends(wcs: &[Wc], what: &str) -> usize {
    let ids: Vec<u64> = wcs.iter().map(|w| w.wr_id).collect();
    assert_eq!(ids, (0..REQUESTS as u64).collect::<Vec<_>>(), "{what}");
    let ok = |w: &&Wc| w.status == WcStatus::Success;
    let done = wcs.iter().take_while(ok).count();
    let failed: Vec<WcStatus> = wcs[done..].iter().map(|w| w.status).collect();
    if let [first, rest @ ..] = &failed[..] {
        assert!(what.contains("lost: 2"), "{what}: {failed:?}");
        assert!(
            matches!(first, WcStatus::RetryExcErr | WcStatus::WrFlushErr),
            "{what}: {failed:?}"
        );
        assert!(rest.iter().all(|s| *s == WcStatus::WrFlushErr), "{what}");
    }
    done
}

fn check_recvs(wcs: &[Wc], peers: &[Expected], what: &str) {
    let (ok, lost): (Vec<&Wc>, Vec<&Wc>) = wcs.iter().partition(|w| w.status == WcStatus::Success);
    let consuming: Vec<&Expected> = peers.iter().filter(|e| e.op.needs_recv()).collect();
    assert!(ok.len() + lost.len() <= consuming.len(), "{what}");
    assert!(lost.iter().all(|w| w.status == WcStatus::WrFlushErr), "{what}");
    assert!(lost.is_empty() || what.contains("lost: 2"), "{what}");
    for (i, (w, e)) in ok.iter().zip(&consuming).enumerate() {
        let got = (w.wr_id, w.byte_len as usize);
        assert_eq!(got, (100 + i as u64, e.len), "{what}");
    }
}

#[test]
fn soak__without_impairments_no_timer_expires() {
    for seed in 0..8 {
        let (lost, twice, late) = (0, 0, 0);
        for mode in MODES {
            let timeouts = soak(seed, Faults { lost, twice, late }, 12, mode);
            assert_eq!(timeouts, 0, "{mode:?}, seed {seed}");
        }
    }
}

#[test]
fn soak__all_requests_complete_once_and_in_order() {
    let mixes = [(3, 0, 0), (10, 5, 10), (0, 20, 30), (20, 10, 10)];
    for seed in 0..SEEDS {
        let (lost, twice, late) = mixes[usize_from(seed % 4)];
        let qps = 1 + usize_from(seed % 3);
        for mode in MODES {
            soak(seed, Faults { lost, twice, late }, qps, mode);
        }
    }
}

const SEEDS: u64 = 30;
