//! Bursts have the frames of single polls, in the same order.

use super::*;
use crate::CongestionControl;
use spanwire_base::{Rng, usize_from};
use std::cell::RefCell;
use std::rc::Rc;

/// The frames of both ends of a run: three queue pairs of different weights post requests of all
/// kinds and lengths, and one in `loss` of the frames is lost.
fn frames(is_single: bool, seed: u64, congestion: CongestionControl, loss: u64) -> Vec<Vec<u8>> {
    let config = Config { qp_window_pkts: 50, ..Config::default() };
    let congestion = Some(congestion);
    let mut p = Pair::with(&PairConfig { config, qps: 3, congestion, ..PairConfig::default() });
    (p.is_single, p.lends) = (is_single, seed.is_multiple_of(2));
    let (sent, mut rng) = (Rc::new(RefCell::new(Vec::new())), Rng::new(seed));
    let log = Rc::clone(&sent);
    p.edit = Box::new(move |_, frame| log.borrow_mut().push(frame.clone()));
    let mut fates = Rng::new(seed);
    p.filter = Box::new(move |_, _| match fates.below(loss) {
        0 => Fate::Drop,
        _ => Fate::Pass,
    });
    for round in 0..20 {
        for n in 0..12 {
            let (side, qp) = (usize_from(rng.below(2)), n % 3);
            // Messages of one packet form runs, too.
            let most = [200, 20_000][usize_from(rng.below(2))];
            let (at, len) = (256 * rng.below(20), 1 + rng.below(most));
            let (at, len) = (usize_from(at), usize_from(len));
            let remote = p.ends[1 - side].remote(at);
            let op = match rng.below(4) {
                0 => WrOp::Send,
                1 => WrOp::Read { remote },
                _ => WrOp::Write { remote },
            };
            let qpns = [0, 1].map(|side: usize| p.ends[side].qpns[qp]);
            if op == WrOp::Send {
                let sges = &[p.ends[1 - side].sge(at, len)];
                let request = RecvRequest { wr_id: round, sges };
                p.ends[1 - side].ep.post_recv(qpns[1 - side], &request).unwrap();
            }
            let sges = [p.ends[side].sge(at, len)];
            let request = WorkRequest::new(round, op, &sges);
            p.ends[side].ep.post_send(qpns[side], &request).unwrap();
        }
        // A port with few buffers ends bursts anywhere.
        for _ in 0..rng.below(5) {
            let side = usize_from(rng.below(2));
            p.step_at_most(side, 1 + usize_from(rng.below(30)));
        }
        assert!(p.run(Dur::from_secs(100)), "seed {seed}");
    }
    assert!(p.ends.iter().all(|end| end.wcs.iter().all(|wc| wc.status == WcStatus::Success)));
    sent.take()
}

#[test]
fn transmit_burst__has_the_frames_of_single_polls() {
    in_both_modes(|mode| {
        for seed in 0..20 {
            let controls = [CongestionControl::NONE, CongestionControl::default()];
            let congestion = controls[usize_from(seed / 2 % 2)];
            let loss = [u64::MAX, 50][usize_from(seed / 4 % 2)];
            let [single, burst] = [true, false].map(|s| frames(s, seed, congestion, loss));
            let differ = single.iter().zip(&burst).position(|(a, b)| a != b);
            let lens = (single.len(), burst.len());
            assert_eq!((differ, lens.0), (None, lens.1), "{mode:?}, seed {seed}");
            assert!(lens.0 > 1_000, "{lens:?}");
        }
    });
}
