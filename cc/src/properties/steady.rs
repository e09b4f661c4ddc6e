//! A flow on a steady path: the effect of coalescing and of marks.

use super::{MTU, algorithms, back};
use crate::testing::path;
use crate::{Ack, Algorithm, Cc, Controller, Delivery, Hop};
use spanwire_base::{Dur, Rate, Time};

/// The conditions of a path.
#[derive(Clone, Copy)]
struct Steady {
    /// Packets per acknowledgement.
    coalesced: u64,
    /// One in this many packets is marked; none if zero.
    mark_every: u64,
    rtt_us: u64,
    rounds: u64,
}

const CALM: Steady = Steady { coalesced: 1, mark_every: 0, rtt_us: 22, rounds: 60 };

/// Packets acknowledged in a round trip.
const PKTS: u64 = 32;

/// Runs a flow; calls `each` after every acknowledgement.
fn run(name: &str, s: Steady, mut each: impl FnMut(Time, &Cc)) -> Cc {
    let base = Some(Dur::from_us(14));
    let mut cc = Algorithm::parse(name).unwrap().start(&path(MTU, 100, base));
    let mut now = Time::ZERO + Dur::from_ms(1);
    let step = Dur::from_ps(Dur::from_us(s.rtt_us).as_ps() / PKTS);
    // For these, a mark in an ACK and a CNP are the same signal, delivered in one of two ways.
    let has_marks = !name.starts_with("dcqcn");
    let (mut sent, mut marked) = (0, 0);
    for pkt in 0..PKTS * s.rounds {
        now += step;
        while let Some(due) = cc.poll_timeout().filter(|due| *due <= now) {
            cc.handle_timeout(due);
        }
        // CNPs are not acknowledgements and are not coalesced.
        if s.mark_every > 0 && pkt % PKTS == 0 {
            cc.on_cnp(now);
        }
        sent += 1;
        let is_marked = has_marks && s.mark_every > 0 && pkt % s.mark_every == 0;
        marked += u64::from(is_marked);
        if sent < s.coalesced {
            continue;
        }
        acknowledge(&mut cc, now, s.rtt_us, (sent, marked), pkt);
        (sent, marked) = (0, 0);
        each(now, &cc);
    }
    cc
}

fn acknowledge(cc: &mut Cc, now: Time, rtt_us: u64, (sent, marked): (u64, u64), pkt: u64) {
    let mtu = u64::from(MTU);
    let bytes = sent * mtu;
    let hop = Hop {
        at: back(now, 500),
        tx_bytes: (pkt + 1) * mtu,
        queue_bytes: 20_000,
        rate: Rate::from_gbps(50),
    };
    let total_bytes = (pkt + 1) * mtu;
    let delivery = Delivery {
        total_bytes,
        total_at_send_bytes: total_bytes.saturating_sub(PKTS * mtu),
        interval: Dur::from_us(rtt_us),
        app_limited: false,
    };
    let ack = Ack {
        acked_bytes: bytes,
        acked_pkts: sent,
        marked_bytes: marked * mtu,
        rtt: Some(Dur::from_us(rtt_us)),
        sent_at: back(now, rtt_us * 1000),
        number: pkt,
        una: pkt + 1,
        next: pkt + 1 + PKTS,
        inflight_bytes: cc.cwnd_bytes(),
        cwnd_limited: true,
        hops: Some(2),
        int: &[hop],
        delivery: Some(delivery),
        ..Ack::default()
    };
    cc.on_ack(now, &ack);
}

/// The rate that a controller allows, in bytes a nanosecond, over a round trip of `rtt_us`.
fn allowance(cc: &Cc, rtt_us: u64) -> f64 {
    let window = crate::units::float(cc.cwnd_bytes()) / crate::units::float(rtt_us * 1000);
    cc.rate().map_or(window, |r| crate::units::bytes_per_ns(r).min(window))
}

#[test]
fn on_ack__coalescing_has_no_effect() {
    for name in Algorithm::known() {
        for (mark_every, rtt_us) in [(0, 16), (32, 22), (8, 22), (16, 60)] {
            let one = Steady { mark_every, rtt_us, ..CALM };
            let [a, b] = [1, 8].map(|coalesced| run(name, Steady { coalesced, ..one }, |_, _| {}));
            let (a, b) = (allowance(&a, rtt_us), allowance(&b, rtt_us));
            assert!((a - b).abs() <= 0.05 * a.max(b), "{name}, 1/{mark_every}: {a} {b}");
        }
    }
}

#[test]
fn on_ack__more_marks_never_increase_the_allowance() {
    for name in algorithms() {
        let mut before = f64::MAX;
        // None, few, many, all.
        for mark_every in [0, 32, 8, 2, 1] {
            let cc = run(name, Steady { mark_every, ..CALM }, |_, _| {});
            let now = allowance(&cc, CALM.rtt_us);
            assert!(now <= before * (1.0 + 1e-9), "{name}, 1/{mark_every}: {now} {before}");
            before = now;
        }
    }
}

/// Algorithms without the rule of one decrease a round trip: `fixed` never decreases, `auto` and
/// `bbr` follow a model of the path, `dcqcn` has timers, `mlcc` has signals other than ACKs, and
/// the others decide with each ACK, relative to a reference of the round trip before.
fn has_own_rule(name: &str) -> bool {
    let rules =
        ["fixed", "auto", "bbr", "dcqcn", "hpcc", "mlcc", "powertcp", "theta-powertcp", "mprdma"];
    rules.iter().any(|other| name == *other || name.starts_with("dcqcn-"))
}

/// All others decrease at most once a round trip, however many congestion signals arrive.
#[test]
fn on_ack__one_decrease_for_each_round_trip() {
    for name in Algorithm::known().into_iter().filter(|name| !has_own_rule(name)) {
        // Above all upper thresholds: those of `timely-ns3` and `timely-vwin` are 500 us.
        let rtt_us = if ["timely-ns3", "timely-vwin"].contains(&name) { 900 } else { 300 };
        let congested = Steady { mark_every: 1, rtt_us, rounds: 40, ..CALM };
        // The least interval: Uno's epoch, Gemini's base round trip, else the round trip.
        let guard = match name {
            "unocc" | "gemini" | "gemini-paper" => Dur::from_us(14),
            _ => Dur::from_us(rtt_us - 2),
        };
        let (mut before, mut last, mut count) = (f64::MAX, None::<Time>, 0);
        run(name, congested, |now, cc| {
            let allowed = allowance(cc, rtt_us);
            if allowed < before * (1.0 - 1e-9) && before < f64::MAX {
                if let Some(last) = last {
                    let gap = now.since(last);
                    // Acknowledgements are 9.4 us apart.
                    assert!(
                        gap + Dur::from_us(10) >= guard,
                        "{name}: a second decrease after {gap:?}"
                    );
                }
                (last, count) = (Some(now), count + 1);
            }
            before = allowed;
        });
        assert!(count > 1, "{name} decreased {count} times");
    }
}
