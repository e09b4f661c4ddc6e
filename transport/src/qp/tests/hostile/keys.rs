//! Keys cannot be guessed: a wrong one fails the queue pair, wherever its packet is in the stream.

use super::classes::{EPSN, Scene, acks_sent};
use super::selective::{NEXT, frame, scene, write};
use crate::testing::{Fate, Op, Pair, PairConfig, in_both_modes};
use crate::{QpState, WcStatus};
use spanwire_base::Dur;
use spanwire_wire::{Opcode, SrDataRepr, SrKind};

fn state(s: &Scene) -> QpState {
    s.pair.ends[0].ep.query_qp(s.qpn).unwrap().state
}

/// In order, after a gap, and at the edge of the window.
#[test]
fn keys__a_wrong_one_fails_the_queue_pair_at_any_psn() {
    for ahead in [0, 1, 5, 65_535] {
        for (name, at, flip) in [
            ("another key", 0, 1),
            ("beyond the end", 1 << 16, 0),
            ("across the end", (1 << 16) - 63, 0),
            ("before the region", 0_u64.wrapping_sub(64), 0),
        ] {
            let mut s = scene();
            let memory = s.pair.ends[0].bytes(0, 1 << 16);
            let va = s.va.wrapping_add(at);
            let forged = frame(&s, &write(&s, NEXT.wrapping_add(ahead), va, s.rkey ^ flip), 64);
            s.pair.inject(0, &forged);
            assert_eq!(state(&s), QpState::Err, "{name}, {ahead} ahead");
            assert_eq!(s.pair.ends[0].ep.counters().tx_fatal_naks, 1, "{name}, {ahead} ahead");
            assert_eq!(s.pair.ends[0].bytes(0, 1 << 16), memory, "{name}, {ahead} ahead");
            assert_eq!(acks_sent(&mut s.pair), 1, "{name}, {ahead} ahead: its sender is refused");
        }
    }
}

/// After a gap that stays open, a thousand wrong keys, then the right one.
#[test]
fn keys__a_wrong_one_after_a_gap_fails_the_queue_pair() {
    let mut s = scene();
    let memory = s.pair.ends[0].bytes(0, 1 << 16);
    let mut tried = 0;
    for guess in 1..=1000 {
        tried += u64::from(state(&s) == QpState::Rts);
        let forged = frame(&s, &write(&s, NEXT + 5, s.va, s.rkey ^ guess), 64);
        s.pair.inject(0, &forged);
    }
    let right = frame(&s, &write(&s, NEXT + 5, s.va, s.rkey), 64);
    s.pair.inject(0, &right);
    assert_eq!(tried, 1, "each try costs a connection");
    assert_eq!(s.pair.ends[0].bytes(0, 1 << 16), memory);
}

/// The same for the rkey of a SEND with invalidate.
#[test]
fn keys__a_wrong_one_to_invalidate_fails_the_queue_pair() {
    for ahead in [0, 5] {
        let mut s = scene();
        s.pair.post_recv(0, 9, 0, 64);
        let psn = NEXT + ahead;
        let send = SrDataRepr {
            receive: Some(0),
            ieth: Some(s.rkey ^ 1),
            ..SrDataRepr::new(SrKind::Send, psn, 1)
        };
        let forged = frame(&s, &send, 64);
        s.pair.inject(0, &forged);
        assert_eq!(state(&s), QpState::Err, "{ahead} ahead");
        assert_eq!(s.pair.ends[0].ep.counters().tx_fatal_naks, 1, "{ahead} ahead");
    }
}

/// A WRITE whose ACK was lost is retransmitted after its key was invalidated. It is a duplicate, so
/// it is not executed, and its key is not checked.
#[test]
fn keys__of_duplicates_are_not_checked() {
    in_both_modes(|mode| {
        // 1 ms, so that the retransmission comes within the run.
        let rts: fn(&mut crate::QpAttr) = |a| a.timeout = Some(8);
        let mut p = Pair::with(&PairConfig { rts, ..PairConfig::default() });
        p.filter = Box::new(|side, _| if side == 1 { Fate::Drop } else { Fate::Pass });
        let want = p.ends[0].fill(0, 700, 3);
        p.post(0, 1, Op::Write, 0, 700);
        p.run(Dur::from_us(20));
        assert_eq!(p.ends[1].bytes(0, 700), want, "{mode:?}");
        let rkey = p.ends[1].mr.rkey.unwrap();
        assert!(p.ends[1].ep.invalidate_rkey(rkey), "{mode:?}");
        p.filter = Box::new(|_, _| Fate::Pass);
        assert!(p.run(Dur::from_secs(10)), "{mode:?}");
        let ended: Vec<_> = p.ends[0].wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(ended, [(1, WcStatus::Success)], "{mode:?}");
        assert!(p.ends[1].ep.counters().duplicate_request > 0, "{mode:?}: no retransmission");
        let qpn = p.ends[1].qpns[0];
        assert_eq!(p.ends[1].ep.query_qp(qpn).unwrap().state, QpState::Rts, "{mode:?}");
    });
}

/// A forger fails side 0's queue pair by a packet that side 1 never sent, or by a forged response.
/// The NAK is of no request of side 1, and side 1 fails as well, within its retries.
#[test]
fn keys__the_peer_of_a_queue_pair_that_a_forger_failed_fails_too() {
    for (ahead, op) in [(0, Op::Write), (5, Op::Write), (300, Op::Write), (0, Op::Read)] {
        // Side 1 exhausts its retries within the run.
        let rts: fn(&mut crate::QpAttr) = |a| (a.timeout, a.retry_cnt) = (Some(8), Some(3));
        let mut p = Pair::with(&PairConfig { rts, ..PairConfig::sr() });
        p.post(1, 1, Op::Write, 0, 100);
        assert!(p.run(Dur::from_secs(1)));
        if op == Op::Read {
            // A request of side 0, whose response is lost and in flight when the forged packet
            // arrives.
            p.filter = Box::new(|side, packet| match packet.bth.opcode {
                Opcode::SrData if side == 1 => Fate::Drop,
                _ => Fate::Pass,
            });
            p.post(0, 7, Op::Read, 0, 256);
            p.run(Dur::from_us(20));
            p.filter = Box::new(|_, _| Fate::Pass);
        }
        let own = p.ends[0].remote(0);
        let qpn = p.ends[0].qpns[0];
        let mut s = Scene { pair: p, qpn, va: own.va, rkey: own.rkey };
        let forged = frame(&s, &write(&s, ((EPSN - 1) << 8) + 1 + ahead, s.va, s.rkey ^ 1), 64);
        s.pair.inject(0, &forged);
        assert_eq!(state(&s), QpState::Err);
        if op == Op::Write {
            s.pair.post(1, 2, op, 0, 700);
        }
        assert!(s.pair.run(Dur::from_secs(60)), "{ahead} ahead, {op:?}: side 1 waits for ever");
        let ended = |side: usize, wr_id| {
            let wc = s.pair.ends[side].wcs.iter().find(|wc| wc.wr_id == wr_id);
            wc.map(|wc| wc.status)
        };
        match op {
            Op::Read => assert_eq!(ended(0, 7), Some(WcStatus::WrFlushErr)),
            _ => assert!(
                matches!(ended(1, 2), Some(WcStatus::RemAccessErr | WcStatus::RetryExcErr)),
                "{ahead} ahead: {:?}",
                s.pair.ends[1].wcs
            ),
        }
    }
}
