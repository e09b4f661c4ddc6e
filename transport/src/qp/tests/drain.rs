//! Draining the send queue: requests that have begun finish, whatever is posted after them.

use super::verbs::{events, to_state};
use super::{MODES, SECOND, statuses};
use crate::testing::{Fate, LATENCY, Op, Pair, PairConfig};
use crate::{
    AsyncEvent, ModifyError, QpAttr, QpState, RecvRequest, SrqId, WcStatus, WireMode, WorkRequest,
    WrOp,
};
use spanwire_base::{Dur, Rng};

/// Drains while a long request is in flight and a short one is posted after it.
fn drained(rts: fn(&mut QpAttr)) -> Pair {
    let mut p = Pair::with(&PairConfig { rts, ..PairConfig::default() });
    p.post(0, 1, Op::Write, 0, 60_000);
    p.post(0, 2, Op::Write, 0, 100);
    p.step(0);
    to_state(&mut p, 0, QpState::Sqd).unwrap();
    p.run(SECOND);
    p
}

#[test]
fn drain__sets_ack_req_in_the_last_packet() {
    // Without a timer and without retries, only AckReq can cause the ACK.
    for rts in [|a: &mut QpAttr| a.timeout = Some(0), |a: &mut QpAttr| a.retry_cnt = Some(0)] {
        let mut p = drained(rts);
        let qpn = p.ends[0].qpns[0];
        assert_eq!(events(&mut p, 0), [AsyncEvent::SqDrained(qpn)]);
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
        assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
    }
}

#[test]
fn drain__retransmits_a_packet_sent_without_ack_req() {
    let one_read = |a: &mut QpAttr| {
        a.max_rd_atomic = Some(1);
        a.retry_cnt = Some(0);
    };
    let mut p = Pair::with(&PairConfig { rts: one_read, ..PairConfig::default() });
    // The whole WRITE was sent without AckReq, which the READ after it would have carried.
    p.post(0, 1, Op::Read, 0, 100);
    p.post(0, 2, Op::Write, 0, 100);
    p.post(0, 3, Op::Read, 0, 100);
    p.step(0);
    to_state(&mut p, 0, QpState::Sqd).unwrap();
    p.run(SECOND);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&p.ends[0].wcs), [(1, ok), (2, ok)]);
}

#[test]
fn modify_drained__accepts_only_feasible_values() {
    let mut p = Pair::new();
    let qpn = p.ends[0].qpns[0];
    to_state(&mut p, 0, QpState::Sqd).unwrap();
    p.post(0, 1, Op::Read, 0, 8);
    let none = QpAttr { max_rd_atomic: Some(0), ..QpAttr::default() };
    let got = p.ends[0].ep.modify_qp(qpn, &none);
    assert!(matches!(got, Err(ModifyError::OutOfRange(_))), "a READ is posted: {got:?}");
    let attr = QpAttr { max_rd_atomic: Some(2), max_dest_rd_atomic: Some(4), ..QpAttr::default() };
    p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
    let info = p.ends[0].ep.query_qp(qpn).unwrap();
    assert_eq!((info.attr.max_rd_atomic, info.attr.max_dest_rd_atomic), (Some(2), Some(4)));
    to_state(&mut p, 0, QpState::Rts).unwrap();
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

/// Two queue pairs that post, drain and modify at random over an impaired wire.
struct Random {
    p: Pair,
    rng: Rng,
    srq: SrqId,
    posted: [u64; 2],
    /// The expected value of each queue pair's word after all FETCH_ADDs.
    sums: [u64; 2],
    sends: u64,
    recvs: u64,
    draining: [bool; 2],
    drained: [bool; 2],
}

impl Random {
    fn new(seed: u64, mode: WireMode) -> Self {
        let rts = |a: &mut QpAttr| {
            a.timeout = Some(9);
            a.max_rd_atomic = Some(3);
        };
        let config =
            PairConfig { qps: 2, mode, srq_max_wr: Some(128), rts, ..PairConfig::default() };
        let mut p = Pair::with(&config);
        let (mut wire, bad) = (Rng::new(seed + 1000), seed.is_multiple_of(2));
        p.filter = Box::new(move |_, _| match wire.below(100) {
            0..6 if bad => Fate::Drop,
            6..12 if bad => Fate::Twice,
            12..20 if bad => Fate::Late(Dur::from_us(wire.below(60))),
            _ => Fate::Pass,
        });
        let srq = p.ends[1].srq.unwrap();
        let (rng, nothing) = (Rng::new(seed), [0; 2]);
        let (posted, sums, sends, recvs) = (nothing, nothing, 0, 0);
        let (draining, drained) = ([false; 2], [true; 2]);
        Self { p, rng, srq, posted, sums, sends, recvs, draining, drained }
    }

    fn act(&mut self) {
        let q = usize::try_from(self.rng.below(2)).unwrap();
        let qpn = self.p.ends[0].qpns[q];
        match self.rng.below(10) {
            0..5 if self.posted[q] < 60 => self.post(q),
            5 if self.draining[q] => self.to(q, QpState::Rts),
            5 => self.to(q, QpState::Sqd),
            6 if self.recvs < 60 => self.post_recv(),
            7 if self.draining[q] && self.drained[q] => {
                let attr =
                    QpAttr { timeout: Some(10), max_rd_atomic: Some(2), ..QpAttr::default() };
                self.p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
            }
            _ => {
                self.p.run(Dur::from_us(self.rng.below(40)));
            }
        }
        self.listen();
    }

    fn post(&mut self, q: usize) {
        let remote = self.p.ends[1].remote(8192 * (q + 1));
        let mut len = usize::try_from(self.rng.below(3000)).unwrap();
        let op = match self.rng.below(5) {
            0 => WrOp::Send,
            1 => WrOp::Write { remote },
            2 => WrOp::Read { remote },
            3 => WrOp::WriteImm { remote, imm: 1 },
            _ => {
                (self.sums[q], len) = (self.sums[q] + 3, 8);
                WrOp::FetchAdd { remote: self.p.ends[1].remote(8 * q), add: 3 }
            }
        };
        self.sends += u64::from(op.completes_a_receive());
        let sge = self.p.ends[0].sge(1024 + 8192 * q, len);
        let fence = self.rng.below(4) == 0;
        let plain = WorkRequest::new(self.posted[q], op, std::slice::from_ref(&sge));
        let qpn = self.p.ends[0].qpns[q];
        self.p.ends[0].ep.post_send(qpn, &WorkRequest { fence, ..plain }).unwrap();
        self.posted[q] += 1;
    }

    fn post_recv(&mut self) {
        let sge = self.p.ends[1].sge(32_768, 4096);
        self.recvs += 1;
        let wr = RecvRequest { wr_id: self.recvs, sges: &[sge] };
        self.p.ends[1].ep.post_srq_recv(self.srq, &wr).unwrap();
    }

    fn to(&mut self, q: usize, state: QpState) {
        let qpn = self.p.ends[0].qpns[q];
        let attr = QpAttr { state: Some(state), ..QpAttr::default() };
        self.p.ends[0].ep.modify_qp(qpn, &attr).unwrap();
        self.draining[q] = state == QpState::Sqd;
        if self.draining[q] {
            self.drained[q] = false;
        }
    }

    fn listen(&mut self) {
        for event in events(&mut self.p, 0) {
            let AsyncEvent::SqDrained(qpn) = event else { panic!("{event:?}") };
            let q = self.p.ends[0].qpns.iter().position(|known| *known == qpn).unwrap();
            assert!(!std::mem::replace(&mut self.drained[q], true), "reported twice");
        }
    }

    /// Drains all queue pairs, then waits for completion.
    fn finish(&mut self) {
        for q in 0..2 {
            if !self.draining[q] {
                self.to(q, QpState::Sqd);
            }
        }
        while self.recvs < self.sends {
            self.post_recv();
        }
        assert!(self.p.run(SECOND * 20), "draining does not end");
        self.listen();
        assert_eq!(self.drained, [true; 2]);
        for q in 0..2 {
            self.to(q, QpState::Rts);
        }
        assert!(self.p.run(SECOND * 20), "requests do not complete");
        for q in 0..2 {
            let qpn = self.p.ends[0].qpns[q];
            let mine: Vec<_> =
                self.p.ends[0].wcs.iter().filter(|w| w.qpn == qpn).copied().collect();
            let want: Vec<_> = (0..self.posted[q]).map(|i| (i, WcStatus::Success)).collect();
            assert_eq!(statuses(&mine), want);
            let word = self.p.ends[1].bytes(8 * q, 8);
            assert_eq!(u64::from_ne_bytes(word.try_into().unwrap()), self.sums[q]);
        }
        assert_eq!(self.p.ends[1].wcs.len() as u64, self.sends);
    }
}

#[test]
fn drain__at_random_times_on_an_impaired_wire() {
    for (seed, mode) in (0..200).flat_map(|seed| MODES.map(|mode| (seed, mode))) {
        let run = || {
            let mut r = Random::new(seed, mode);
            for _ in 0..150 {
                r.act();
            }
            r.p.run(LATENCY);
            r.finish();
        };
        assert!(std::panic::catch_unwind(run).is_ok(), "{mode:?}, seed {seed}");
    }
}
