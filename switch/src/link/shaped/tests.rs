//! Tests of [`Shaped`].

use super::*;
use crate::config::{ForwardingConfig, PortConfig, StaticMac};
use crate::link::{Impairments, Reorder};
use crate::testing::{mac, roce_frame};
use crate::units::Prob;
use spanwire_base::{Dur, Rate, u64_from};
use spanwire_wire::Packet;

/// Two ports with host n at port n.
fn config(line: LineConfig) -> ShapedConfig {
    let at = |n: u8| StaticMac { mac: mac(n), ports: vec![n], spread: crate::Spread::Hash };
    let mut switch = SwitchConfig::new(vec![PortConfig::default(); 2]);
    switch.forwarding =
        ForwardingConfig { macs: vec![at(0), at(1)], ..ForwardingConfig::default() };
    let line = LineConfig { overhead_bytes: 22, ..line };
    ShapedConfig { switch, lines: vec![line; 2], budget_bytes: 10_000_000 }
}

fn push(s: &mut Shaped, now: Time, frame: &[u8]) {
    s.handle_packet(now, PortId::HOST, frame, &RxMeta::whole(now));
}

/// Number of frames that port 1 has at `now`.
fn pull(s: &mut Shaped, now: Time) -> usize {
    let mut buffer = [0; 2_000];
    let mut n = 0;
    while s.poll_transmit(now, PortId::new(1).unwrap(), &mut buffer).is_some() {
        n += 1;
    }
    n
}

/// With 22 bytes of overhead 8 us at 1 Gbit/s.
fn frame() -> Vec<u8> {
    let frame = roce_frame(1, 904);
    assert_eq!(frame.len(), 978);
    frame
}

#[test]
fn handle_packet__arrives_after_serialisation_and_delay() {
    let line = LineConfig::new(Rate::from_gbps(1), Dur::from_ms(1));
    let mut s = Shaped::new(config(line)).unwrap();
    push(&mut s, Time::ZERO, &frame());
    push(&mut s, Time::ZERO, &frame());
    assert!(s.take_ready().is_empty());
    assert_eq!(s.poll_timeout(), Some(Time::from_ns(8_000)), "the second leaves its queue");
    s.handle_timeout(Time::from_ns(8_000));
    assert_eq!(s.poll_timeout(), Some(Time::from_ns(1_008_000)), "its queue is empty");
    assert_eq!(pull(&mut s, Time::from_ns(1_007_999)), 0);
    s.handle_timeout(Time::from_ns(1_008_000));
    assert!(s.take_ready().has(PortId::new(1).unwrap()));
    assert_eq!(pull(&mut s, Time::from_ns(1_008_000)), 1);
    assert_eq!(s.poll_timeout(), Some(Time::from_ns(1_016_000)));
    assert_eq!(pull(&mut s, Time::from_ns(1_016_000)), 1);
    assert_eq!((s.poll_timeout(), s.counters().in_flight_pkts), (None, 0));
}

#[test]
fn advance__a_late_driver_does_not_reduce_the_rate() {
    let line = LineConfig::new(Rate::from_gbps(1), Dur::ZERO);
    let mut s = Shaped::new(config(line)).unwrap();
    // 1000 frames in bursts of 10 every 80 us, exactly the rate; the driver runs only every 1 ms.
    let mut got = 0;
    let mut next = 0u64;
    for ms in 0..=8u64 {
        let now = Time::from_ns(ms * 1_000_000);
        while next < 1_000 && Time::from_ns(next / 10 * 80_000) <= now {
            push(&mut s, now, &frame());
            next += 1;
        }
        got += pull(&mut s, now);
    }
    // The driver's lateness of 1 ms is a delay: 125 frames. Without catching up, each of the eight
    // wakeups would restart the line and pass one frame.
    assert!((870..=1_000).contains(&got), "{got}");
    assert_eq!(got + pull(&mut s, Time::from_ns(10_000_000)), 1_000);
}

#[test]
fn advance__is_independent_of_the_driver_s_timing() {
    let run = |every_ns: u64| {
        let mut line = LineConfig::new(Rate::from_gbps(1), Dur::from_us(50));
        line.impairments = Impairments {
            loss: Prob::from_ppm(100_000),
            jitter: Dur::from_us(20),
            ..Impairments::default()
        };
        let mut s = Shaped::new(config(line)).unwrap();
        for _ in 0..200 {
            push(&mut s, Time::ZERO, &frame());
        }
        let mut now = 0;
        let mut got = 0;
        while now <= 3_000_000 {
            s.handle_timeout(Time::from_ns(now));
            got += pull(&mut s, Time::from_ns(now));
            now += every_ns;
        }
        (got, *s.line(PortId::new(1).unwrap()).unwrap().counters(), s.lines[1].free_at())
    };
    assert_eq!(run(1_000), run(77_777));
    assert_eq!(run(1_000).2, Time::from_ns(200 * 8_000));
}

#[test]
fn pull__keeps_the_order_of_arrival_with_reordering() {
    let mut line = LineConfig::new(Rate::from_gbps(1), Dur::ZERO);
    line.impairments.reorder =
        Some(Reorder { probability: Prob::from_ppm(200_000), extra_delay: Dur::from_us(30) });
    let mut s = Shaped::new(config(line)).unwrap();
    for i in 0..200u16 {
        let frame = crate::testing::roce_frame_of(1, i, 904);
        push(&mut s, Time::ZERO, &frame);
    }
    let mut buffer = [0; 2_000];
    let mut order = Vec::new();
    for us in 0..2_000 {
        let now = Time::from_ns(us * 1_000);
        while let Some(tx) = s.poll_transmit(now, PortId::new(1).unwrap(), &mut buffer) {
            order.push(Packet::parse(&buffer[..tx.len]).unwrap().udp.src_port);
        }
    }
    let overtaken = order.windows(2).filter(|w| w[0] > w[1]).count();
    assert!((10..60).contains(&overtaken), "{overtaken}");
    order.sort_unstable();
    assert_eq!(order, (0..200).collect::<Vec<_>>());
}

#[test]
fn pull__keeps_the_order_of_frames_that_arrive_together() {
    let line = LineConfig { delay: Dur::from_us(1), ..LineConfig::default() };
    let mut s = Shaped::new(config(line)).unwrap();
    for i in 0..5u16 {
        push(&mut s, Time::ZERO, &crate::testing::roce_frame_of(1, i, 0));
    }
    let mut out = [0; 100];
    let at = Time::from_ns(1_000);
    let order: Vec<u16> = std::iter::from_fn(|| {
        let tx = s.poll_transmit(at, PortId::new(1).unwrap(), &mut out)?;
        Some(Packet::parse(&out[..tx.len]).unwrap().udp.src_port)
    })
    .collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn new__rejects_lines_that_exceed_the_budget() {
    let line = LineConfig::new(Rate::from_gbps(1), Dur::from_ms(100));
    let error = Shaped::new(config(line.clone())).unwrap_err().to_string();
    assert_eq!(
        error,
        "budget_bytes: is 10000000, but the lines hold 25000000 bytes when they are full \
         (lines[0] 1Gbit x 100ms = 12500000, lines[1] 1Gbit x 100ms = 12500000): raise it, or \
         lower a rate or a delay"
    );
    let fits = ShapedConfig { budget_bytes: 25_000_000, ..config(line) };
    let mut s = Shaped::new(fits).unwrap();
    let longer = LineConfig::new(Rate::from_gbps(1), Dur::from_ms(101));
    assert!(s.set_line(PortId::HOST, longer).is_err());
    let faster = LineConfig::new(Rate::from_gbps(10), Dur::from_ms(1));
    s.set_line(PortId::HOST, faster).unwrap();
    assert_eq!(s.line(PortId::HOST).unwrap().config().rate, Some(Rate::from_gbps(10)));
    let rates: Vec<_> = s.switch().config().ports.iter().map(|p| p.rate).collect();
    assert_eq!(rates, [10, 1].map(|gbps| Some(Rate::from_gbps(gbps))), "ports follow their lines");
    assert!(s.set_line(PortId::new(2).unwrap(), LineConfig::default()).is_err());
    let one = ShapedConfig { lines: vec![], ..config(LineConfig::default()) };
    assert!(one.validate().unwrap_err().to_string().starts_with("lines: has 0 entries for 2"));
}

#[test]
fn add__is_bounded_by_the_budget_without_a_rate() {
    let line = LineConfig { delay: Dur::from_secs(1), ..LineConfig::default() };
    let small = ShapedConfig { budget_bytes: 10_000, ..config(line) };
    let mut s = Shaped::new(small).unwrap();
    for _ in 0..20 {
        push(&mut s, Time::ZERO, &frame());
    }
    let c = s.counters();
    assert_eq!((c.in_flight_pkts, c.in_flight_bytes, c.drop_budget_full), (10, 9_780, 10));
    let sent: u64 = s.line_counters().map(|l| l.delivered).sum();
    assert_eq!(sent, 20);
    assert_eq!(pull(&mut s, Time::from_ns(2_000_000_000)), 10);
    assert_eq!(s.counters().max_in_flight_bytes, u64_from(978 * 10));
}

/// Runs random calls over lines with impairments and checks both ports' accounts.
fn run_random(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut line = LineConfig::new(Rate::from_gbps(1), Dur::from_us(rng.below(100)));
    line.impairments = Impairments {
        loss: Prob::from_ppm(50_000),
        duplicate: Prob::from_ppm(50_000),
        jitter: Dur::from_us(rng.below(50)),
        reorder: Some(Reorder {
            probability: Prob::from_ppm(50_000),
            extra_delay: Dur::from_us(30),
        }),
        ..Impairments::default()
    };
    let mut config = config(line);
    config.switch.seed = seed;
    config.switch.ports[1].queues[0].limit_bytes = 40_000;
    config.budget_bytes = 200_000;
    let mut s = Shaped::new(config).unwrap();
    let (mut now, mut got) = (Time::ZERO, 0);
    for _ in 0..3_000 {
        now += Dur::from_ns(rng.below(8_000));
        match rng.below(8) {
            0 => got += pull(&mut s, now),
            1 => s.handle_timeout(now),
            _ => push(&mut s, now, &frame()),
        }
        s.switch().check_accounts().unwrap();
        assert!(s.poll_timeout().is_none_or(|at| at > now), "no due event is left");
        assert!(s.counters().in_flight_bytes <= 200_000);
    }
    while let Some(at) = s.poll_timeout() {
        now = at;
        s.handle_timeout(now);
        got += pull(&mut s, now);
    }
    got += pull(&mut s, now);
    let (c, line) = (s.switch().counters(), *s.lines[1].counters());
    assert_eq!((s.switch().used_pkts(), s.counters().in_flight_pkts), (0, 0));
    assert_eq!(c.ports[0].rx_pkts, c.dropped() + line.frames);
    assert_eq!(line.delivered, u64_from(got) + s.counters().drop_budget_full);
    assert!(c.dropped() > 0 && line.dropped() > 0 && line.duplicated > 0);
}

#[test]
fn shaped__conserves_frames_for_any_driver() {
    for seed in 0..20 {
        run_random(seed);
    }
}
