//! Queues: priorities, shares, shapers.

use super::*;
use crate::config::{FlowsConfig, Share};
use crate::testing::roce_frame_of;
use crate::units::Ratio;
use spanwire_base::{Dur, Rate};
use spanwire_wire::{dscp_of, set_dscp};

/// A switch of two ports whose port 1 has these queues, class n in queue n.
fn switch(queues: Vec<QueueConfig>, share: Share) -> Switch {
    let mut class_to_queue = [0; 8];
    for (n, queue) in (0..).zip(&mut class_to_queue[..queues.len()]) {
        *queue = n;
    }
    let port = PortConfig { queues, share, class_to_queue, ..PortConfig::default() };
    Switch::new(routed(vec![PortConfig::default(), port])).unwrap()
}

fn of_class(class: u8, payload: usize) -> Vec<u8> {
    let mut frame = roce_frame(1, payload);
    set_dscp(&mut frame, class * 8);
    frame
}

/// The classes of the next `n` frames.
fn classes(s: &mut Switch, n: usize) -> Vec<u8> {
    std::iter::from_fn(|| pull(s, 1)).take(n).map(|f| dscp_of(&f).unwrap() / 8).collect()
}

#[test]
fn poll_transmit__serves_priorities_then_shares() {
    let queue = |priority, weight| QueueConfig { priority, weight, ..QueueConfig::default() };
    let mut s = switch(vec![queue(0, 1), queue(0, 3), queue(5, 1)], Share::Packets);
    for _ in 0..8 {
        for class in 0..3 {
            push(&mut s, 0, &of_class(class, 500));
        }
    }
    assert_eq!(classes(&mut s, 8), [2; 8]);
    assert_eq!(classes(&mut s, 8), [0, 1, 1, 1, 0, 1, 1, 1]);
    assert_eq!(classes(&mut s, 99), [0, 1, 1, 0, 0, 0, 0, 0], "a queue alone gets the whole port");
}

#[test]
fn set_queue__between_frames_keeps_shares() {
    let queue = |weight| QueueConfig { weight, ..QueueConfig::default() };
    let mut s = switch(vec![queue(1), queue(3)], Share::Packets);
    for _ in 0..16 {
        push(&mut s, 0, &of_class(0, 500));
        push(&mut s, 0, &of_class(1, 500));
    }
    let mut sent = [0; 2];
    for _ in 0..16 {
        s.set_queue(Time::ZERO, port(1), 0, queue(1)).unwrap();
        sent[usize::from(classes(&mut s, 1)[0])] += 1;
    }
    assert_eq!(sent, [4, 12]);
}

#[test]
fn poll_transmit__shares_bytes_for_any_frame_sizes() {
    let queue = |weight| QueueConfig { weight, ..QueueConfig::default() };
    let mut s = switch(vec![queue(1), queue(2)], Share::Bytes);
    for _ in 0..600 {
        push(&mut s, 0, &of_class(0, 100));
        push(&mut s, 0, &of_class(1, 1_400));
    }
    let mut bytes = [0u64; 2];
    // Until the queue of short frames has sent half of its bytes.
    while bytes[0] < 300 * 174 {
        let f = pull(&mut s, 1).unwrap();
        bytes[usize::from(dscp_of(&f).unwrap() / 8)] += u64_from(f.len());
    }
    assert!(bytes[1].abs_diff(2 * bytes[0]) < 2 * 4_096, "{bytes:?}");
}

#[test]
fn handle_packet__limits_queues_to_their_dynamic_threshold() {
    let alpha = Ratio::new(1, 1);
    let queue = QueueConfig { limit_bytes: 10_000_000, alpha, ..QueueConfig::default() };
    let ports = vec![PortConfig { queues: vec![queue], ..PortConfig::default() }; 3];
    let config = SwitchConfig { buffer_bytes: 1_000_000, ..routed(ports) };
    let mut s = Switch::new(config).unwrap();
    for _ in 0..1_000 {
        push(&mut s, 0, &roce_frame(1, 1_000));
    }
    // One queue may use half: as much as remains free.
    assert!(s.queue_bytes(port(1), 0).abs_diff(500_000) < 1_074);
    for _ in 0..1_000 {
        push(&mut s, 0, &roce_frame(2, 1_000));
    }
    assert!(s.queue_bytes(port(2), 0).abs_diff(250_000) < 1_074);
    let c = s.counters();
    assert!(c.ports[1].queues[0].drop_buffer_full > 0 && c.ports[1].queues[0].drop_queue_full == 0);
    let snapshot = s.snapshot(Time::ZERO);
    assert_eq!(snapshot.used_bytes + snapshot.shared_free_bytes, 1_000_000);
    assert_eq!(snapshot.ports[1].queues[0].bytes, s.queue_bytes(port(1), 0));
}

/// A switch whose port 1 gives each flow a queue and 8 Gbit/s: 1074 bytes in 1.074 us.
fn by_flow() -> Switch {
    let flows = FlowsConfig {
        max_flows: 64,
        rate: Some(Rate::from_gbps(8)),
        limit_bytes: Some(20_000),
        quantum_bytes: 2_048,
    };
    switch(vec![QueueConfig { flows: Some(flows), ..QueueConfig::default() }], Share::Bytes)
}

/// Frames that leave port 1 until `end`, polled at the switch's deadlines; by source port.
fn run(s: &mut Switch, end: Time) -> Vec<(u64, u16)> {
    let mut sent = Vec::new();
    let mut now = Time::ZERO;
    let mut out = [0; 2_000];
    loop {
        let mut ready = s.take_ready();
        while ready.pop().is_some_and(|p| p == port(1)) {
            while s.poll_transmit(now, port(1), &mut out).is_some() {
                sent.push((now.as_ns(), u16::from_be_bytes([out[34], out[35]])));
            }
        }
        match s.poll_timeout() {
            Some(at) if at <= end => {
                assert!(at > now, "a due deadline is not reported again");
                now = at;
                s.handle_timeout(now);
            }
            _ => return sent,
        }
    }
}

#[test]
fn poll_transmit__shapes_each_flow_by_itself() {
    let mut s = by_flow();
    for _ in 0..15 {
        push(&mut s, 0, &roce_frame_of(1, 7, 1_000));
    }
    push(&mut s, 0, &roce_frame_of(1, 8, 1_000));
    let sent = run(&mut s, Time::from_ns(100_000));
    let seven: Vec<u64> = sent.iter().filter(|(_, p)| *p == 7).map(|(ns, _)| *ns).collect();
    assert_eq!(seven, (0..15).map(|i| i * 1_074).collect::<Vec<_>>());
    assert_eq!(sent.iter().find(|(_, p)| *p == 8), Some(&(0, 8)), "not behind the other flow");
    assert_eq!((s.used_bytes(), s.poll_timeout()), (0, None));
}

#[test]
fn set_flow_rate__changes_a_flow_that_has_frames() {
    let mut s = by_flow();
    let frame = roce_frame_of(1, 7, 1_000);
    let flow = s.flow_key(&frame).unwrap();
    assert!(!s.set_flow_rate(port(1), 0, flow, None), "it has no place yet");
    for _ in 0..10 {
        push(&mut s, 0, &frame);
    }
    assert_eq!(s.flow_bytes(port(1), 0, flow), 10_740);
    assert!(s.set_flow_rate(port(1), 0, flow, Some(Rate::from_gbps(1))));
    let sent = run(&mut s, Time::from_ns(1_000_000));
    assert_eq!(sent[9].0, 9 * 8 * 1_074);
    assert!(!s.set_flow_rate(port(0), 0, flow, None), "no queues by flow");
    assert!(!s.set_flow_rate(port(9), 0, flow, None));
}

#[test]
fn handle_packet__limits_a_flow() {
    let mut s = by_flow();
    for _ in 0..30 {
        push(&mut s, 0, &roce_frame_of(1, 7, 1_000));
        push(&mut s, 0, &roce_frame_of(1, 8, 100));
    }
    let q = s.counters().ports[1].queues[0];
    assert_eq!((q.drop_flow_full, q.flow_collisions), (30 - 18, 0));
    assert_eq!(q.enqueued_pkts, 18 + 30);
    let other = QueueConfig { flows: None, ..s.config().ports[1].queues[0] };
    let error = s.set_queue(Time::ZERO, port(1), 0, other).unwrap_err().to_string();
    assert!(error.starts_with("ports[1].queues[0].flows: cannot change"), "{error}");
}

#[test]
fn handle_packet__counts_each_frame_that_shares_a_flow_s_queue_once() {
    let flows = FlowsConfig { max_flows: 8, rate: None, limit_bytes: None, quantum_bytes: 2_048 };
    let queue = QueueConfig { flows: Some(flows), ..QueueConfig::default() };
    let mut s = switch(vec![queue], Share::Bytes);
    for entropy in 0..10 {
        push(&mut s, 0, &roce_frame_of(1, entropy, 100));
    }
    assert_eq!(s.counters().ports[1].queues[0].flow_collisions, 2);
    assert_eq!(std::iter::from_fn(|| pull(&mut s, 1)).count(), 10);
}

#[test]
fn poll_transmit__of_a_slow_driver_returns_due_frames_only() {
    let mut s = by_flow();
    for _ in 0..18 {
        push(&mut s, 0, &roce_frame_of(1, 7, 1_000));
    }
    let mut out = [0; 2_000];
    let mut sent = 0;
    for us in [0, 100, 200] {
        let now = Time::ZERO + Dur::from_us(us);
        s.handle_timeout(now);
        while s.poll_transmit(now, port(1), &mut out).is_some() {
            sent += 1;
        }
    }
    // A late driver reduces the rate: a bucket of 2048 bytes passes two frames each time.
    assert_eq!(sent, 1 + 2 + 2);
}
