//! Tests of [`Switch`]: forwarding and limits in this file, the rest by subject.

mod conserve;
mod marking;
mod pausing;
mod queueing;

use super::*;
use crate::config::{ForwardingConfig, Hop, PortConfig, QueueConfig, Route, Spread};
use crate::lpm::Prefix;
use crate::testing::{mac, roce_frame, roce_frame_elided, roce_frame_v6};
use crate::units::Human;
use spanwire_base::u64_from;
use spanwire_wire::{MacAddr, Packet};

fn port(n: u8) -> PortId {
    PortId::new(n).unwrap()
}

fn learning(ports: usize) -> Switch {
    Switch::new(SwitchConfig::new(vec![PortConfig::default(); ports])).unwrap()
}

/// A switch that routes 10.0.0.n to port n.
fn routed(ports: Vec<PortConfig>) -> SwitchConfig {
    let route = |n: u8| Route {
        to: Prefix::parse(&format!("10.0.0.{n}/32")).unwrap(),
        via: vec![Hop::port(n)],
        spread: Spread::Hash,
    };
    let routes = (0..u8::try_from(ports.len()).unwrap()).map(route).collect();
    SwitchConfig { forwarding: ForwardingConfig::routed(routes), ..SwitchConfig::new(ports) }
}

fn push(s: &mut Switch, ingress: u8, frame: &[u8]) {
    s.handle_packet(Time::ZERO, port(ingress), frame, &RxMeta::whole(Time::ZERO));
}

fn pull(s: &mut Switch, out: u8) -> Option<Vec<u8>> {
    let mut buffer = [0xcc; 10_000];
    s.poll_transmit(Time::ZERO, port(out), &mut buffer).map(|m| buffer[..m.len].to_vec())
}

fn ready(s: &mut Switch) -> Vec<usize> {
    let mut mask = s.take_ready();
    std::iter::from_fn(|| mask.pop()).map(PortId::index).collect()
}

#[test]
fn handle_packet__learns_and_preserves_bytes() {
    let mut s = learning(3);
    let mut back = roce_frame(0, 500);
    back[..12].copy_from_slice(&[mac(0).0, mac(1).0].concat());
    push(&mut s, 0, &roce_frame(1, 1_000));
    assert_eq!(ready(&mut s), [1, 2], "flooded");
    push(&mut s, 1, &back);
    assert_eq!(ready(&mut s), [0]);
    assert_eq!(pull(&mut s, 0), Some(back));
    for out in [1, 2] {
        assert_eq!(pull(&mut s, out), Some(roce_frame(1, 1_000)));
        assert_eq!(pull(&mut s, out), None);
    }
    assert_eq!((s.used_bytes(), s.used_pkts()), (0, 0));
    assert_eq!(s.counters().forwarding.flooded, 1);
}

#[test]
fn handle_packet__routes_with_ttl_and_new_addresses() {
    let mut config = routed(vec![PortConfig::default(); 3]);
    config.ports[2].mac = mac(0x22);
    config.forwarding.routes[2].via[0].mac = Some(mac(0x99));
    let mut s = Switch::new(config).unwrap();
    push(&mut s, 0, &roce_frame(2, 100));
    let got = pull(&mut s, 2).unwrap();
    let p = Packet::parse(&got).unwrap();
    assert_eq!((p.eth.dst, p.eth.src), (mac(0x99), mac(0x22)));
    push(&mut s, 0, &roce_frame(1, 100));
    let got = pull(&mut s, 1).unwrap();
    let p = Packet::parse(&got).unwrap();
    assert_eq!(
        (p.eth.dst, p.eth.src),
        (mac(1), mac(0)),
        "without a next hop's address the addresses do not change"
    );
    let mut last = roce_frame(1, 100);
    for _ in 0..63 {
        spanwire_wire::decrement_ttl(&mut last).unwrap();
    }
    push(&mut s, 0, &last);
    assert_eq!(pull(&mut s, 1), None);
    push(&mut s, 0, &roce_frame_v6(1, 0));
    let c = s.counters();
    assert_eq!((c.ports[0].drop_ttl, c.ports[0].drop_no_route, c.dropped()), (1, 1, 2));
}

#[test]
fn handle_packet__counts_elided_bytes_against_every_limit() {
    let (frame, elided) = roce_frame_elided(1, 1_000);
    let queue = QueueConfig { limit_bytes: 3_300, ..QueueConfig::default() };
    let ports = vec![PortConfig { queues: vec![queue], ..PortConfig::default() }; 2];
    let mut s = Switch::new(routed(ports)).unwrap();
    let meta = RxMeta { elided_bytes: elided, ..RxMeta::whole(Time::ZERO) };
    for _ in 0..5 {
        s.handle_packet(Time::ZERO, port(0), &frame, &meta);
    }
    let q = s.counters().ports[1].queues[0];
    assert_eq!((q.enqueued_pkts, q.enqueued_bytes, q.drop_queue_full), (3, 3 * 1_074, 2));
    assert_eq!((s.queue_bytes(port(1), 0), s.port_bytes(port(1))), (3_222, 3_222));
    let mut out = [0; 200];
    let tx = s.poll_transmit(Time::ZERO, port(1), &mut out).unwrap();
    assert_eq!((tx.len, tx.elided_bytes, tx.wire_len()), (frame.len(), elided, 1_074));
    let huge = RxMeta { elided_bytes: 9_200, ..RxMeta::whole(Time::ZERO) };
    s.handle_packet(Time::ZERO, port(0), &frame, &huge);
    assert_eq!(s.counters().ports[0].drop_too_long, 1);
}

#[test]
fn handle_packet__stops_at_the_shared_buffer() {
    let mut config = routed(vec![PortConfig::default(); 3]);
    config.buffer_bytes = 64_000;
    let mut s = Switch::new(config).unwrap();
    for i in 0..100 {
        push(&mut s, 0, &roce_frame(1 + i % 2, 1_000));
    }
    assert!(s.used_bytes() <= 64_000 && s.used_bytes() > 62_000);
    let c = s.counters();
    let drops: u64 = c.ports.iter().map(|p| p.queues[0].drop_buffer_full).sum();
    assert_eq!(drops + u64::from(s.used_pkts()), 100);
}

#[test]
fn handle_packet__counts_or_forwards_random_bytes() {
    let mut rng = spanwire_base::Rng::new(2);
    for mut s in [learning(3), Switch::new(routed(vec![PortConfig::default(); 3])).unwrap()] {
        for seed in [roce_frame(1, 64), roce_frame_v6(2, 64)] {
            for _ in 0..3_000 {
                let mut frame = seed.clone();
                for _ in 0..rng.below(6) {
                    let at = usize_from(rng.below(u64_from(frame.len())));
                    frame[at] ^= 1 << rng.below(8);
                }
                frame.truncate(usize_from(rng.below(u64_from(frame.len() + 1))));
                let elided = u32::try_from(rng.below(3) * 100).unwrap();
                let meta = RxMeta { elided_bytes: elided, ..RxMeta::whole(Time::ZERO) };
                s.handle_packet(Time::ZERO, port(0), &frame, &meta);
                for out in 0..3 {
                    while pull(&mut s, out).is_some() {}
                }
            }
        }
        let c = s.counters();
        assert!(c.ports[0].drop_bad_frame > 0, "{c:?}");
        assert_eq!(c.ports[0].rx_pkts, 6_000);
        assert_eq!((s.used_bytes(), s.used_pkts()), (0, 0));
    }
}

#[test]
fn poll_transmit__counts_frames_that_do_not_fit_and_continues() {
    let mut s = Switch::new(routed(vec![PortConfig::default(); 2])).unwrap();
    push(&mut s, 0, &roce_frame(1, 1_000));
    push(&mut s, 0, &roce_frame(1, 10));
    let tx = s.poll_transmit(Time::ZERO, port(1), &mut [0; 200]).unwrap();
    assert_eq!(tx.len, roce_frame(1, 10).len());
    let c = s.counters();
    assert_eq!((c.ports[1].drop_tx_too_long, c.ports[1].tx_pkts), (1, 1));
}

#[test]
fn set_forwarding__validates_first() {
    let mut s = Switch::new(routed(vec![PortConfig::default(); 2])).unwrap();
    let mut bad = s.config().forwarding.clone();
    bad.routes[0].via[0].port = 9;
    assert!(s.set_forwarding(bad).unwrap_err().to_string().starts_with("forwarding.routes[0]"));
    s.set_forwarding(ForwardingConfig::default()).unwrap();
    push(&mut s, 0, &[MacAddr::BROADCAST.0, mac(1).0, [8, 6, 0, 0, 0, 0]].concat());
    assert_eq!(ready(&mut s), [1]);
}

#[test]
fn check_accounts__allows_frames_queued_before_a_limit_was_lowered() {
    let mut s = Switch::new(routed(vec![PortConfig::default(); 2])).unwrap();
    for _ in 0..10 {
        push(&mut s, 0, &roce_frame(1, 1_000));
    }
    let lower = QueueConfig { limit_bytes: 2_000, ..QueueConfig::default() };
    s.set_queue(Time::ZERO, port(1), 0, lower).unwrap();
    s.check_accounts().unwrap();
    push(&mut s, 0, &roce_frame(1, 1_000));
    assert_eq!(s.counters().ports[1].queues[0].drop_queue_full, 1);
    s.ports[1].queues[0].set(Time::ZERO, QueueConfig::default(), None);
    while pull(&mut s, 1).is_some() {}
    s.check_accounts().unwrap();
    s.buffer.admit(0, None, 60).unwrap();
    assert!(s.check_accounts().unwrap_err().contains("the buffer 0 of 60"));
}
