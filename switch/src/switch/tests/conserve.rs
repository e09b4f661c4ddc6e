//! Conservation: every frame received is sent, is queued, or is counted as dropped.

use super::*;
use crate::config::{
    EcnConfig, FlowsConfig, PfcConfig, PhantomConfig, Share, StaticMac, TrimConfig,
};
use crate::testing::roce_frame_of;
use crate::units::{Prob, Ratio};
use proptest::prelude::*;
use spanwire_base::{Dur, Rate, Rng};
use spanwire_wire::set_dscp;

/// A switch whose features the seed enables or disables.
fn config(rng: &mut Rng) -> SwitchConfig {
    let mut coin = |n: u64| rng.below(n) == 0;
    let mut queue = |priority: u8| QueueConfig {
        limit_bytes: if coin(2) { 20_000 } else { 400_000 },
        alpha: if coin(2) { Ratio::new(1, 2) } else { None },
        priority,
        weight: 1 + u32::from(priority) * 7,
        ecn: coin(2).then(|| EcnConfig::red(5_000, 15_000, Prob::from_ppm(300_000))),
        phantom: coin(3).then(|| PhantomConfig {
            drain: Ratio::new(9, 10).expect("small"),
            size_bytes: 100_000,
            kmin_bytes: 10_000,
            kmax_bytes: 60_000,
            pmax: Prob::ONE,
            with_physical: true,
        }),
        trim: (priority == 0 && coin(2)).then_some(TrimConfig { dscp: 40, queue: 1 }),
        flows: coin(3).then(|| FlowsConfig {
            max_flows: 8,
            rate: Some(Rate::from_gbps(10)),
            limit_bytes: Some(30_000),
            quantum_bytes: 2_048,
        }),
    };
    let queues = vec![queue(0), queue(1), queue(0)];
    let port = PortConfig {
        queues,
        class_to_queue: [0, 1, 0, 2, 0, 1, 0, 0],
        share: if coin(2) { Share::Bytes } else { Share::Packets },
        pfc: coin(2).then(|| PfcConfig { headroom_bytes: 30_000, ..PfcConfig::default() }),
        int: coin(2),
        ..PortConfig::new(Rate::from_gbps(25))
    };
    let mut config = routed(vec![port; 4]);
    config.forwarding.flood = coin(2);
    config.forwarding.macs =
        vec![StaticMac { mac: mac(1), ports: vec![1, 2], spread: Spread::RoundRobin }];
    config.buffer_bytes = 400_000;
    config.seed = rng.next_u64();
    config
}

/// A frame to a random destination, sometimes corrupt, sometimes unknown.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let dst = u8::try_from(rng.below(6)).unwrap();
    let entropy = u16::try_from(rng.below(30)).unwrap();
    let mut frame = match rng.below(10) {
        0 => roce_frame_v6(dst, 500),
        1 => [MacAddr::BROADCAST.0, mac(3).0, [8, 6, 0, 0, 0, 0]].concat(),
        _ => roce_frame_of(dst, entropy, usize_from(rng.below(300) * 4)),
    };
    set_dscp(&mut frame, u8::try_from(rng.below(64)).unwrap());
    if rng.below(20) == 0 {
        let at = usize_from(rng.below(u64_from(frame.len())));
        frame[at] ^= 1 << rng.below(8);
    }
    frame
}

/// No queue ever exceeded its limit, except those with lossless frames.
fn check_limits(s: &Switch, c: &SwitchCounters) {
    for (config, port) in s.config().ports.iter().zip(&c.ports) {
        for (i, (queue, limit)) in port.queues.iter().zip(&config.queues).enumerate() {
            // Class 3 is lossless, and alone in queue 2.
            let is_bound = config.pfc.is_none() || i != 2;
            assert!(!is_bound || queue.max_bytes <= limit.limit_bytes, "{queue:?}");
        }
    }
}

fn run(seed: u64, steps: u32) -> (SwitchCounters, u64) {
    let mut rng = Rng::new(seed);
    let mut s = Switch::new(config(&mut rng)).unwrap();
    let mut now = Time::ZERO;
    let mut hash = 0u64;
    let mut out = [0; 3_000];
    let mut left = 0u64;
    for _ in 0..steps {
        now += Dur::from_ps(rng.below(400_000));
        let at = port(u8::try_from(rng.below(4)).unwrap());
        match rng.below(20) {
            0 => s.handle_timeout(now),
            1 => {
                let quanta = [u16::try_from(rng.below(200)).unwrap(); 8];
                let mut pause = [0; PfcFrame::LEN];
                PfcFrame { enabled: 0xff, quanta }.emit(mac(9), &mut pause);
                s.handle_packet(now, at, &pause, &RxMeta::whole(now));
            }
            2..14 => {
                let frame = frame(&mut rng);
                s.handle_packet(now, at, &frame, &RxMeta::whole(now));
            }
            _ => {
                let may = s.may_have_frame(at);
                if let Some(tx) = s.poll_transmit(now, at, &mut out) {
                    assert!(may, "a frame though may_have_frame was false");
                    let is_pause = PfcFrame::parse(&out[..tx.len]).is_some();
                    left += u64::from(!is_pause);
                    for byte in &out[..tx.len] {
                        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                    }
                }
            }
        }
        s.check_accounts().unwrap();
    }
    // All frames are sent in the end.
    for _ in 0..10_000 {
        now = s.poll_timeout().map_or(now, |at| at.max(now)) + Dur::from_ns(100);
        s.handle_timeout(now);
        for n in 0..4 {
            while s.poll_transmit(now, port(n), &mut out).is_some() {
                left += u64::from(PfcFrame::parse(&out).is_none());
            }
        }
        if s.used_pkts() == 0 {
            break;
        }
    }
    assert_eq!((s.used_pkts(), s.used_bytes()), (0, 0));
    assert_eq!(s.snapshot(now).ports.iter().map(|p| p.pausing).max(), Some(0));
    let c = s.counters();
    check_limits(&s, &c);
    s.check_accounts().unwrap();
    let sum = |of: &dyn Fn(&crate::QueueCounters) -> u64| -> u64 {
        c.ports.iter().flat_map(|p| &p.queues).map(of).sum()
    };
    assert_eq!(sum(&|q| q.dequeued_pkts), left);
    // In: each frame once, each flooded one three times; out: dropped, or through a queue. A
    // trimmed frame went through the queue that takes it, or was dropped there.
    let received: u64 = c.ports.iter().map(|p| p.rx_pkts).sum();
    let obeyed: u64 = c.ports.iter().map(|p| p.pfc.pause_rx + p.pfc.resume_rx).sum();
    let copies = received + 2 * c.forwarding.flooded - obeyed;
    assert_eq!(copies, c.dropped() + sum(&|q| q.enqueued_pkts));
    (c, hash)
}

#[test]
fn check_accounts__a_frame_that_is_missing_is_noticed() {
    let mut s = learning(3);
    push(&mut s, 0, &roce_frame(1, 100));
    assert_eq!(s.counters().forwarding.flooded, 1);
    s.check_accounts().expect("one received, two queued");
    let counts: [fn(&mut crate::PortCounters) -> &mut u64; 4] =
        [|c| &mut c.rx_pkts, |c| &mut c.tx_pkts, |c| &mut c.drop_ttl, |c| &mut c.agent_made];
    for of in counts {
        *of(&mut s.ports[1].counters) += 1;
        let error = s.check_accounts().expect_err("a frame is missing");
        assert!(error.contains("flooded as 2"), "{error}");
        *of(&mut s.ports[1].counters) -= 1;
    }
    let mut alone = learning(1);
    push(&mut alone, 0, &roce_frame(1, 100));
    alone.check_accounts().expect("flooded to no port");
}

#[test]
fn switch__conserves_frames_and_is_reproducible() {
    for seed in 0..24 {
        assert_eq!(run(seed, 3_000), run(seed, 3_000), "seed {seed}");
    }
    assert_ne!(run(0, 500).1, run(1, 500).1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn switch__conserves_frames_for_any_seed(seed in any::<u64>()) {
        run(seed, 800);
    }
}
