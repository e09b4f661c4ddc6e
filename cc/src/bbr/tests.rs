use super::*;
use crate::testing::{at, close, path};
use crate::{Delivery, Sent};

fn flow() -> Bbr {
    Bbr::new(&Params::default(), &path(1000, 100, None))
}

/// An acknowledgement that ends a round at `bandwidth` bytes a nanosecond.
fn round(cc: &mut Bbr, now: Time, bandwidth: f64, rtt: Dur) {
    let total = cc.round_ends_at;
    let delivered = whole(bandwidth * ns(rtt));
    let delivery = Delivery {
        total_bytes: total + delivered,
        total_at_send_bytes: total,
        interval: rtt,
        app_limited: false,
    };
    let ack = Ack {
        acked_bytes: 1000,
        rtt: Some(rtt),
        sent_at: now,
        inflight_bytes: delivered,
        delivery: Some(delivery),
        ..Ack::default()
    };
    cc.on_ack(now, &ack);
}

#[test]
fn sample__three_rounds_without_growth_fill_the_pipe() {
    let mut cc = flow();
    let mut counts = Vec::new();
    for (n, bandwidth) in (1..).zip([0.1, 0.12, 0.122, 0.124]) {
        round(&mut cc, at(n * 100), bandwidth, Dur::from_us(100));
        counts.push((cc.full.count, cc.full.filled));
    }
    assert_eq!(counts, [(0, false), (1, false), (2, false), (3, true)]);
}

#[test]
fn pacing_gain__cycles_around_the_estimate() {
    let mut cc = flow();
    for n in 1..=5 {
        round(&mut cc, at(n * 2000), 12.5, Dur::from_ms(2));
    }
    assert!(cc.full.filled);
    assert!(close(cc.bdp(1.0).unwrap(), 25e6));
    (cc.mode, cc.full.filled) = (Mode::ProbeBandwidth, true);
    for (phase, want) in [(0, 15.468_75), (1, 9.281_25), (2, 12.375)] {
        cc.phase = phase;
        cc.set_pacing();
        assert!(close(cc.pacing.unwrap(), want), "{phase}");
    }
}

#[test]
fn on_ack__probe_rtt_uses_four_packets() {
    let mut cc = flow();
    round(&mut cc, at(0), 1.0, Dur::from_us(100));
    round(&mut cc, at(10_000_001), 1.0, Dur::from_us(150));
    assert_eq!((cc.mode, cc.cwnd_bytes()), (Mode::ProbeRtt, 4000));
    let drained = Ack { rtt: Some(Dur::from_us(150)), ..Ack::default() };
    cc.on_ack(at(10_001_000), &drained);
    round(&mut cc, at(10_002_000), 1.0, Dur::from_us(150));
    assert_eq!(cc.mode, Mode::ProbeRtt, "two hundred milliseconds are not over");
    round(&mut cc, at(10_202_000), 1.0, Dur::from_us(150));
    assert_ne!(cc.mode, Mode::ProbeRtt);
    assert!(cc.cwnd_bytes() > 4000, "as before");
}

#[test]
fn advance_phase__takes_turns_of_a_round_trip() {
    let mut cc = flow();
    for n in 1..=6 {
        round(&mut cc, at(n * 100), 1.0, Dur::from_us(100));
    }
    cc.mode = Mode::ProbeBandwidth;
    (cc.phase, cc.phase_at) = (0, at(1000));
    cc.advance_phase(at(1200), 0.0);
    assert_eq!(cc.phase, 0, "has not filled what it probes for");
    cc.advance_phase(at(1200), 125_000.0);
    assert_eq!(cc.phase, 1);
    cc.advance_phase(at(1201), 100_001.0);
    assert_eq!(cc.phase, 1, "still drains");
    cc.advance_phase(at(1202), 99_000.0);
    assert_eq!(cc.phase, 2);
    cc.advance_phase(at(1302), 99_000.0);
    assert_eq!(cc.phase, 2);
    cc.advance_phase(at(1303), 99_000.0);
    assert_eq!(cc.phase, 3);
}

#[test]
fn on_loss__conserves_packets_for_a_round_and_restores() {
    let mut cc = flow();
    for n in 1..=6 {
        round(&mut cc, at(n * 100), 1.0, Dur::from_us(100));
    }
    let before = cc.cwnd;
    let loss = |kind, inflight_bytes| Loss { kind, bytes: 1000, inflight_bytes };
    cc.on_loss(at(700), &loss(LossKind::Recovery, 7000));
    assert_eq!(cc.cwnd_bytes(), 7000);
    cc.on_loss(at(701), &loss(LossKind::Recovery, 5000));
    assert_eq!(cc.cwnd_bytes(), 7000, "one recovery");
    let later = Ack { acked_bytes: 1000, sent_at: at(750), ..Ack::default() };
    cc.on_ack(at(850), &later);
    assert!(cc.cwnd >= before.min(cc.bdp(1.0).unwrap()), "{} {before}", cc.cwnd);
    cc.on_loss(at(900), &loss(LossKind::Timeout(1), 0));
    assert_eq!(cc.cwnd_bytes(), 4000);
}

/// A flow that sends one packet at a time, of which the pacer counts six times the payload. Its
/// sample is a packet in a round trip, so the rate must be six times as much for a second packet to
/// leave within a round trip. The gain of the probing phase has a part of it.
#[test]
fn rate__counts_headers_and_parity_as_the_pacer_does() {
    let mut cc = flow();
    let (bytes, paced_bytes, rtt) = (64, 384, Dur::from_us(1000));
    let mut now = at(0);
    for n in 1..=40 {
        let sent = Sent {
            bytes,
            paced_bytes,
            frame_bytes: 0,
            inflight_bytes: 64,
            is_retransmission: false,
        };
        cc.on_sent(now, &sent);
        // Retransmissions do not count.
        cc.on_sent(now, &Sent { paced_bytes: 9000, is_retransmission: true, ..sent });
        let delivery = Delivery {
            total_bytes: n * 64,
            total_at_send_bytes: (n - 1) * 64,
            interval: rtt,
            app_limited: false,
        };
        let sent_at = now;
        now += rtt;
        cc.on_ack(
            now,
            &Ack {
                acked_bytes: 64,
                rtt: Some(rtt),
                sent_at,
                inflight_bytes: 64,
                delivery: Some(delivery),
                ..Ack::default()
            },
        );
    }
    assert!(cc.full.filled);
    let gap = f64::from(paced_bytes) / (cc.pacing.unwrap() / cc.pacing_gain());
    assert!((gap / ns(rtt) - 1.125 / 0.99).abs() < 1e-6, "{gap} ns between packets");
}
