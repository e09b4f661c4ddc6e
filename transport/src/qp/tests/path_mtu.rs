//! Paths that carry less than was agreed, and paths that only look so.

use super::*;
use spanwire_base::TxMeta;

/// Frames of the agreed packets are longer than 14 bytes of Ethernet and 1,300 of IP.
fn narrow(meta: &TxMeta) -> bool {
    meta.len <= 1314 || meta.may_fragment.is_allowed()
}

fn pair(mode: WireMode) -> Pair {
    let config = Config { fragments: true, ..Config::default() };
    // Timeouts of 67 ms, retries for seconds.
    let rts = |attr: &mut crate::QpAttr| {
        (attr.timeout, attr.retry_cnt) = (Some(14), Some(7));
    };
    let mtu = Mtu::B2048;
    Pair::with(&PairConfig { config, mode, mtu, rts, bytes: 1 << 20, ..PairConfig::default() })
}

/// Moves 200 kB by `op`, checks them, and returns both ends' counts of reductions.
fn moves(p: &mut Pair, op: Op, seed: u64) -> [u64; 2] {
    const LEN: usize = 200_000;
    let source = usize::from(op == Op::Read);
    let want = p.ends[source].fill(0, LEN, seed);
    if op.needs_recv() {
        p.post_recv(1, 7, 0, LEN);
    }
    p.ends[0].wcs.clear();
    p.post(0, 3, op, 0, LEN);
    assert!(p.run(SECOND * 100), "{op:?}");
    assert_eq!(statuses(&p.ends[0].wcs), [(3, WcStatus::Success)], "{op:?}");
    assert!(p.ends[1 - source].bytes(0, LEN) == want, "{op:?}");
    [0, 1].map(|side| p.ends[side].ep.counters().path_mtu_reduced)
}

#[test]
fn path_mtu__a_black_hole_at_the_start_is_found_in_both_directions() {
    for (mode, op, finds) in [
        (WireMode::Sr, Op::Write, [1, 0]),
        (WireMode::Sr, Op::Send, [1, 0]),
        (WireMode::Sr, Op::Read, [0, 1]),
        (WireMode::Rc, Op::Write, [1, 0]),
        (WireMode::Rc, Op::Send, [1, 0]),
    ] {
        let mut p = pair(mode);
        p.carries = narrow;
        assert_eq!(moves(&mut p, op, 1), finds, "{mode:?} {op:?}");
        let timeouts = |p: &Pair| -> u64 {
            p.ends.iter().map(|end| end.ep.counters().local_ack_timeout_err).sum()
        };
        let before = timeouts(&p);
        assert_eq!(moves(&mut p, op, 2), finds, "{mode:?} {op:?}: found once");
        assert_eq!(timeouts(&p), before, "{mode:?} {op:?}: and no packet waits for it");
    }
}

#[test]
fn path_mtu__a_path_that_narrows_and_widens_is_followed() {
    for mode in MODES {
        let mut p = pair(mode);
        assert_eq!(moves(&mut p, Op::Write, 1), [0, 0], "{mode:?}");
        p.carries = narrow;
        assert_eq!(moves(&mut p, Op::Write, 2), [1, 0], "{mode:?}");
        p.carries = |_| true;
        // Beyond the pause after failed probes.
        for seconds in 0..30 {
            p.now += SECOND;
            moves(&mut p, Op::Write, seconds);
        }
        let qpn = p.ends[0].qpns[0];
        assert_eq!(p.ends[0].ep.qp_reduced_bytes(qpn), None, "{mode:?}");
        assert!(p.ends[0].ep.counters().path_mtu_raised > 0, "{mode:?}");
    }
}

/// Also if the peer is on AF_XDP and takes no fragments.
#[test]
fn path_mtu__thirty_percent_loss_is_no_black_hole() {
    for (mode, loss, bytes) in [(WireMode::Sr, 30, 2_000_000), (WireMode::Rc, 10, 200_000)] {
        for (seed, takes_fragments) in (0..40).flat_map(|seed| [(seed, true), (seed, false)]) {
            let mut p = pair(mode);
            if !takes_fragments {
                p.carries = |meta| !meta.may_fragment.is_allowed();
            }
            let mut rng = Rng::new(seed);
            p.filter = Box::new(move |_, _| match rng.below(100) < loss {
                true => Fate::Drop,
                false => Fate::Pass,
            });
            for round in 0..bytes / 200_000 {
                assert_eq!(moves(&mut p, Op::Write, round), [0, 0], "{mode:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn path_mtu__a_dead_path_ends_the_connection_as_before() {
    for mode in MODES {
        let mut p = pair(mode);
        moves(&mut p, Op::Write, 1);
        p.filter = Box::new(|_, _| Fate::Drop);
        p.ends[0].wcs.clear();
        p.post(0, 3, Op::Write, 0, 5000);
        assert!(p.run(SECOND * 100));
        assert_eq!(statuses(&p.ends[0].wcs), [(3, WcStatus::RetryExcErr)], "{mode:?}");
        assert_eq!(p.ends[0].ep.counters().path_mtu_reduced, 0, "{mode:?}");
    }
}
