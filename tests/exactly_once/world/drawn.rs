//! What a seed decides about congestion control, and what switches on the way write.

use spanwire_base::{Dur, Rng, Time, usize_from};
use spanwire_cc::Algorithm;
use spanwire_transport::{CongestionControl, QpAttr};
use spanwire_wire::{INT_HOP_LEN, IntHop, int_push};

/// Congestion control and weight of one end of a connection: none, or any there is.
pub(super) fn shares(rng: &mut Rng) -> QpAttr {
    QpAttr {
        congestion: (rng.below(3) > 0).then(|| congestion(rng)),
        weight: [None, Some(1), Some(3), Some(255)][usize_from(rng.below(4))],
        ..QpAttr::default()
    }
}

fn congestion(rng: &mut Rng) -> CongestionControl {
    let known = Algorithm::known();
    let name = known[usize_from(rng.below(known.len() as u64))];
    let mut algorithm = Algorithm::named(name).expect("known");
    if name == "fixed" {
        // Windows that do not hold a packet, and rates far below what is posted.
        let windows = ["1", "1.5", "4", "100"];
        let rates = ["0", "3", "50", "10000"];
        let mut one_of = |of: [&'static str; 4]| of[usize_from(rng.below(4))];
        algorithm.set("window_pkts", one_of(windows)).expect("in its range");
        algorithm.set("rate_mbps", one_of(rates)).expect("in its range");
    }
    let base_rtt = [None, Some(Dur::from_us(10)), Some(Dur::from_us(100))];
    CongestionControl { algorithm, base_rtt: base_rtt[usize_from(rng.below(3))] }
}

/// Lets up to two switches write what they like behind a frame that asks for it.
pub(super) fn stamp(rng: &mut Rng, now: Time, frame: &mut Vec<u8>) {
    for _ in 0..rng.below(3) {
        let hop = IntHop {
            time_ps: now.as_ps() + rng.below(1000),
            tx_bytes: rng.below(1 << 40),
            queue_bytes: [0, 1000, 1_000_000, u32::MAX][usize_from(rng.below(4))],
            link_rate_mbps: [0, 1, 10_000, u32::MAX][usize_from(rng.below(4))],
        };
        let len = frame.len();
        frame.resize(len + INT_HOP_LEN, 0);
        let stamped = int_push(frame, len, 0, &hop);
        frame.truncate(stamped.unwrap_or(len));
    }
}
