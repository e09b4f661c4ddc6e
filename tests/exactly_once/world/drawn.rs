//! Draws of a seed: congestion control, erasure coding, load balancing, and telemetry of switches.

use spanwire_base::{Dur, Rng, Time, u64_from, usize_from};
use spanwire_cc::Algorithm;
use spanwire_erasure::Scheme;
use spanwire_loadbalance::Choice;
use spanwire_transport::{
    Balance, CodingWhen, Config, CongestionControl, ErasureCoding, Preset, QpAttr,
};
use spanwire_wire::{
    BLOCK_PKTS_MAX, INT_FULL_LEN, IntCredit, IntHop, IntStack, int_push, int_restart_credit,
};
use std::ops::Range;

/// Congestion control and weight of one end of a connection: none, or any algorithm. `is_slow`: a
/// window of few packets, and a rate at which packets wait for a timeout or longer.
pub(super) fn shares(rng: &mut Rng, is_slow: bool) -> QpAttr {
    let any = |rng: &mut Rng| match rng.below(3) {
        0 => CongestionControl::NONE,
        _ => congestion(rng),
    };
    QpAttr {
        congestion: Some(if is_slow { slow(rng) } else { any(rng) }),
        weight: [None, Some(1), Some(3), Some(255)][usize_from(rng.below(4))],
        ..QpAttr::default()
    }
}

/// True if its window may be less than a packet.
pub(super) fn has_part_windows(congestion: Option<&CongestionControl>) -> bool {
    congestion.is_some_and(|c| matches!(c.algorithm, Some(Algorithm::Swift(_))))
}

fn slow(rng: &mut Rng) -> CongestionControl {
    let mut algorithm = Algorithm::named("fixed").expect("known");
    algorithm.set("window_pkts", pick(rng, &["1", "2", "2", "3", "4"])).expect("in its range");
    algorithm.set("rate_mbps", pick(rng, &["1", "1", "3"])).expect("in its range");
    CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    }
}

fn congestion(rng: &mut Rng) -> CongestionControl {
    let known = Algorithm::known();
    let name = known[usize_from(rng.below(known.len() as u64))];
    let mut algorithm = Algorithm::named(name).expect("known");
    if name == "fixed" {
        // Windows of less than a packet, and rates far below the offered load.
        let windows = ["1", "1.5", "2", "3", "4", "100"];
        let rates = ["0", "1", "3", "50", "1000", "10000"];
        algorithm.set("window_pkts", pick(rng, &windows)).expect("in its range");
        algorithm.set("rate_mbps", pick(rng, &rates)).expect("in its range");
    }
    let base_rtt = [None, Some(Dur::from_us(10)), Some(Dur::from_us(100))];
    let base_rtt = base_rtt[usize_from(rng.below(3))];
    let preset = if rng.below(2) == 0 { Preset::Paper } else { Preset::Calibrated };
    let cnp_spacing = base_rtt.map(|rtt| rtt / 4);
    CongestionControl { algorithm: Some(algorithm), base_rtt, preset, cnp_spacing }
}

/// Up to two switches append random telemetry to a frame that requests it, behind one that gives it
/// a random credit if it requests that.
pub(super) fn stamp(rng: &mut Rng, now: Time, frame: &mut Vec<u8>) {
    if IntStack::find(frame, 0).is_some_and(|stack| stack.credit().is_some()) {
        let word = |rng: &mut Rng, most| u32::try_from(rng.below(most)).expect("32 bits");
        let waiting_bytes = [0, 10_000, 10_000_000][usize_from(rng.below(3))];
        let credit = IntCredit { credit: word(rng, 300), waiting_bytes };
        let len = frame.len();
        let released = int_restart_credit(frame, len, 0, credit);
        frame.truncate(released.expect("it has a credit"));
    }
    for _ in 0..rng.below(3) {
        let hop = IntHop {
            time_ps: now.as_ps() + rng.below(1000),
            tx_bytes: rng.below(1 << 40),
            queue_bytes: [0, 1000, 1_000_000, u32::MAX][usize_from(rng.below(4))],
            link_rate_mbps: [0, 1, 10_000, u32::MAX][usize_from(rng.below(4))],
        };
        let len = frame.len();
        frame.resize(len + INT_FULL_LEN, 0);
        let stamped = int_push(frame, len, 0, &hop);
        frame.truncate(stamped.unwrap_or(len));
    }
}

/// Erasure coding of one end's packets: in two of three worlds, with any code.
pub(super) fn erasure(rng: &mut Rng) -> Option<ErasureCoding> {
    let customary = [(8, 2), (4, 2), (10, 4), (16, 4), (1, 1)];
    let (data, parity) = match rng.below(9) {
        0..3 => return None,
        3..7 => pick(rng, &customary),
        _ => {
            let data = 1 + rng.below(62);
            let parity = 1 + rng.below((u64::from(BLOCK_PKTS_MAX) - data).min(32));
            (u8_from(data), u8_from(parity))
        }
    };
    let most = (BLOCK_PKTS_MAX - data).min(32);
    let adaptive = (rng.below(4) == 0).then(|| {
        let least = 1 + rng.below(parity.into());
        (u8_from(least), parity + u8_from(rng.below(u64::from(most - parity) + 1)))
    });
    let needs_cauchy = adaptive.map_or(parity, |(_, most)| most) > 2;
    let scheme = if needs_cauchy || rng.below(3) == 0 { Scheme::CAUCHY } else { Scheme::PQ };
    let round_trips = [Dur::ZERO, Dur::from_us(30), ErasureCoding::AUTO_BASE_RTT];
    let when = match rng.below(3) {
        0 => CodingWhen::BaseRtt(pick(rng, &round_trips)),
        _ => CodingWhen::Always,
    };
    Some(ErasureCoding { data, parity, scheme, when, adaptive })
}

/// Load balancing of one end's packets: in half of the worlds, with any policy.
pub(super) fn balance(rng: &mut Rng) -> Option<Balance> {
    let known = Choice::known();
    let choice = Choice::named(known[usize_from(rng.below(u64_from(known.len())))]);
    let seed = rng.next_u64();
    (rng.below(2) == 0).then(|| Balance { choice: choice.expect("known"), seed })
}

/// A quarter of the paths may be dead for a while.
pub(super) fn dead_paths(rng: &mut Rng) -> (u16, Range<Time>) {
    let from = Time::ZERO + Dur::from_us(rng.below(400));
    let lasts = pick(rng, &[Dur::ZERO, Dur::ZERO, Dur::from_us(100), Dur::from_ms(2)]);
    (pick(rng, &[0, 1, 2, 3]), from..from + lasts)
}

/// Memory limits for incomplete blocks, often too low.
pub(super) fn block_memory(rng: &mut Rng, config: &mut Config) {
    let mut bytes = || pick(rng, &[4 << 20, 4 << 20, 4 << 20, 3_000, 600, 0]);
    (config.block_bytes_qp, config.block_bytes_peer) = (bytes(), bytes());
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[usize_from(rng.below(u64_from(of.len())))]
}

fn u8_from(n: u64) -> u8 {
    u8::try_from(n).expect("drawn below 65")
}
