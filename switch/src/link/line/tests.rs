//! Tests of [`Line`].

use super::*;
use crate::testing::{roce_frame, roce_frame_elided};
use crate::units::Prob;
use spanwire_base::Rate;
use spanwire_wire::{DropReason, Packet};

fn line(impairments: Impairments) -> Line {
    let config =
        LineConfig { impairments, ..LineConfig::new(Rate::from_gbps(100), Dur::from_us(1)) };
    Line::new(config, 1).unwrap()
}

fn arrival(sent: &Sent) -> Time {
    match sent.fates[..] {
        [Fate::Arrives(at), ..] => at,
        ref fates => panic!("{fates:?}"),
    }
}

/// Sends `n` frames of 976 bytes and overhead: 80 ns each.
fn send(line: &mut Line, n: usize) -> Vec<Sent> {
    (0..n).map(|_| line.send(Time::ZERO, &mut [0; 976], 0)).collect()
}

#[test]
fn send__takes_serialisation_then_delay() {
    let mut line = line(Impairments::default());
    let sent = line.send(Time::from_ns(5), &mut [0; 976], 0);
    assert_eq!(sent.tx_done, Time::from_ns(85));
    assert_eq!(sent.fates[..], [Fate::Arrives(Time::from_ns(1_085))]);
    let next = line.send(Time::from_ns(6), &mut [0; 80], 896);
    assert_eq!(next.tx_done, Time::from_ns(165), "waits, and elided bytes count");
    assert_eq!(line.free_at(), Time::from_ns(165));
    let runt = line.send(Time::from_ns(1_000), &mut [0; 14], 0);
    assert_eq!(runt.tx_done, Time::from_ps(1_000_000 + 84 * 80), "padded to 60");
    assert_eq!(line.counters().bytes, 976 * 2 + 60);
}

#[test]
fn send__without_a_rate_takes_no_time() {
    let mut line = Line::new(LineConfig::default(), 0).unwrap();
    let sent = line.send(Time::from_ns(5), &mut [0; 60], 1 << 20);
    assert_eq!((sent.tx_done, arrival(&sent)), (Time::from_ns(5), Time::from_ns(5)));
}

#[test]
fn send__is_reproducible_and_counts_drops() {
    let impairments = Impairments {
        loss: Prob::from_ppm(100_000),
        duplicate: Prob::from_ppm(50_000),
        block_loss: Some(BlockLoss { block_pkts: 10, losses: vec![Prob::from_ppm(300_000)] }),
        jitter: Dur::from_ns(100),
        ..Impairments::default()
    };
    let (mut a, mut b) = (line(impairments.clone()), line(impairments));
    let fates = |sent: Vec<Sent>| sent.into_iter().map(|s| s.fates).collect::<Vec<_>>();
    let run = fates(send(&mut a, 2_000));
    assert_eq!(run, fates(send(&mut b, 2_000)));
    let c = a.counters();
    let count = |fate| run.iter().filter(|f| f[..] == [Fate::Dropped(fate)]).count();
    assert_eq!(u64_from(count(LineDrop::Loss)), c.drop_loss);
    assert_eq!(u64_from(count(LineDrop::BlockLoss)), c.drop_block_loss);
    assert!(c.drop_loss > 150 && c.drop_block_loss > 30 && c.duplicated > 50, "{c:?}");
    assert_eq!(c.delivered, c.frames - c.dropped() + c.duplicated);
    let arrivals: usize = run.iter().flatten().filter(|f| matches!(f, Fate::Arrives(_))).count();
    assert_eq!(u64_from(arrivals), c.delivered);
}

#[test]
fn send__jitter_spreads_and_does_not_reorder() {
    let mut line = line(Impairments { jitter: Dur::from_ns(500), ..Impairments::default() });
    let sent = send(&mut line, 1_000);
    assert!(sent.windows(2).all(|w| arrival(&w[0]) <= arrival(&w[1])));
    let extra = |s: &Sent| arrival(s).since(s.tx_done + Dur::from_us(1));
    assert!(sent.iter().all(|s| extra(s) <= Dur::from_ns(500)));
    assert!(sent.iter().any(|s| extra(s) > Dur::from_ns(450)));
    assert!(line.counters().jittered > 990);
}

#[test]
fn send__reordering_lets_later_frames_overtake() {
    let reorder = Reorder { probability: Prob::from_ppm(50_000), extra_delay: Dur::from_ns(200) };
    let mut line = line(Impairments { reorder: Some(reorder), ..Impairments::default() });
    let sent = send(&mut line, 10_000);
    let late = |s: &&Sent| arrival(s) != s.tx_done + Dur::from_us(1);
    let held = sent.iter().filter(late).count();
    assert_eq!(u64_from(held), line.counters().reordered);
    assert!((400..600).contains(&held), "{held} of 10000 at 5 %");
    // 200 ns are two and a half frames, so two overtake.
    let first = sent.iter().position(|s| late(&s)).unwrap();
    let behind = |n: usize| arrival(&sent[first]) > arrival(&sent[first + n]);
    assert!(behind(1) && behind(2) && !behind(3));
}

#[test]
fn send__drops_while_down_and_in_a_blackhole() {
    let ns = Dur::from_ns;
    let mut line = line(Impairments {
        blackhole: vec![Interval { from: ns(400), to: ns(480) }],
        down: vec![Interval { from: ns(100), to: ns(170) }],
        flap: Some(Flap { period: ns(800), down: ns(10), from: ns(640) }),
        ..Impairments::default()
    });
    let sent = send(&mut line, 20);
    let lost = |why| {
        let dropped = |s: &Sent| s.fates[..] == [Fate::Dropped(why)];
        sent.iter().enumerate().filter(|(_, s)| dropped(s)).map(|(i, _)| i).collect::<Vec<_>>()
    };
    // Frame i is sent from 80 i to 80 (i + 1).
    assert_eq!(lost(LineDrop::LinkDown), [1, 2, 7, 8, 17, 18]);
    assert_eq!(lost(LineDrop::Blackhole), [5]);
    assert_eq!(line.counters().dropped(), 7);
    assert!(!line.is_up(Time::from_ns(100)) && line.is_up(Time::from_ns(170)));
    assert!(!line.is_up(Time::from_ns(1_449)) && line.is_up(Time::from_ns(450)));
}

#[test]
fn send__a_bit_error_is_detected_by_the_icrc_or_the_header_checks() {
    let corrupt = Impairments { corrupt: Prob::ONE, ..Impairments::default() };
    for whole in [true, false] {
        let mut line = line(corrupt.clone());
        let mut icrc = 0;
        for i in 0..1_000 {
            let (mut frame, elided) =
                if whole { (roce_frame(1, 1_000), 0) } else { roce_frame_elided(1, 1_000) };
            let before = frame.clone();
            assert_eq!(line.send(Time::ZERO, &mut frame, elided).fates.len(), 1);
            let flipped: u32 = frame.iter().zip(&before).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!((flipped, &frame[..14]), (1, &before[..14]), "frame {i}");
            let got = Packet::parse_elided(&frame, usize_from(u64::from(elided)));
            icrc += usize::from(got == Err(DropReason::BadIcrc));
        }
        // 1000 of 1044 bytes are payload and ICRC.
        assert!(icrc > 930, "{icrc}");
        assert_eq!(line.counters().corrupted, 1_000);
    }
}

#[test]
fn send__a_bit_error_of_elided_payload_hits_the_icrc_not_telemetry() {
    let mut line = line(Impairments { corrupt: Prob::ONE, ..Impairments::default() });
    let mut icrc = 0;
    for _ in 0..500 {
        let (mut frame, elided) = roce_frame_elided(1, 4_096);
        let len = frame.len();
        frame.resize(len + 8, 0);
        spanwire_wire::int_request(&mut frame, len, 5, spanwire_wire::IntFormat::Full).unwrap();
        line.send(Time::ZERO, &mut frame, elided);
        let got = Packet::parse_elided(&frame, usize_from(u64::from(elided)));
        icrc += usize::from(got == Err(DropReason::BadIcrc));
    }
    assert!(icrc > 480, "{icrc}");
}

#[test]
fn send__of_random_bytes_does_not_panic() {
    let mut line = line(Impairments { corrupt: Prob::ONE, ..Impairments::default() });
    for len in 0..70 {
        let mut frame = vec![0x45; len];
        for elided in [0, 1, 4_096, u32::MAX] {
            let _ = line.send(Time::ZERO, &mut frame, elided);
        }
    }
    assert!(line.counters().corrupted > 250);
}

#[test]
fn set_config__keeps_counters_and_generators() {
    let loss = |ppm| Impairments { loss: Prob::from_ppm(ppm), ..Impairments::default() };
    let (mut a, mut b) = (line(loss(500_000)), line(loss(500_000)));
    send(&mut a, 100);
    send(&mut b, 100);
    let mut config = a.config().clone();
    config.impairments.duplicate = Prob::ONE;
    config.rate = Some(Rate::from_gbps(1));
    a.set_config(config).unwrap();
    let lost = |sent: Vec<Sent>| {
        sent.iter().map(|s| s.fates[0] == Fate::Dropped(LineDrop::Loss)).collect::<Vec<_>>()
    };
    assert_eq!(lost(send(&mut a, 100)), lost(send(&mut b, 100)));
    assert_eq!(a.counters().frames, 200);
    assert!(a.set_config(LineConfig { overhead_bytes: 5_000, ..LineConfig::default() }).is_err());
    assert_eq!(a.config().impairments.duplicate, Prob::ONE);
}
