mod hostile;
mod mlcc;
mod ndt;

use super::*;
use crate::agent::kind::AgentConfig;
use crate::agent::nsf::config::NsfConfig;
use crate::agent::pacc::config::PaccConfig;
use crate::config::{ForwardingConfig, Hop, PortConfig, Route, Spread, SwitchConfig};
use crate::lpm::Prefix;
use crate::testing::roce_frame;
use crate::units::{Human, Ratio};
use spanwire_base::{Dur, Node, PortId, Rng, RxMeta};
use spanwire_wire::{Opcode, Packet, SrDataRepr, SrKind, SrNearRepr};
use std::collections::BTreeMap;

fn port(n: u8) -> PortId {
    PortId::new(n).unwrap()
}

fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

/// A switch of three ports that routes 10.0.0.n to port n, with PACC at port 2. The threshold is
/// that of a queue of few frames, so that a test need not send a hundred.
fn config(change: impl Fn(&mut PaccConfig)) -> SwitchConfig {
    let route = |n: u8| Route {
        to: Prefix::parse(&format!("10.0.0.{n}/32")).unwrap(),
        via: vec![Hop::port(n)],
        spread: Spread::Hash,
    };
    let mut pacc =
        PaccConfig { ports: vec![2], threshold_bytes: 10_000, flows: 64, ..PaccConfig::default() };
    change(&mut pacc);
    SwitchConfig {
        forwarding: ForwardingConfig::routed((0..3).map(route).collect()),
        agents: vec![AgentConfig::Pacc(pacc)],
        ..SwitchConfig::new(vec![PortConfig::default(); 3])
    }
}

fn bound(config: SwitchConfig) -> Switch {
    let mut s = Switch::new(config).unwrap();
    // Frames of the tests are from host 0 to queue pair 5.
    let address = |n| IpAddr::from([10, 0, 0, n]);
    s.bind_flow(address(0), address(2), Qpn::new(5), Qpn::new(0x77));
    s
}

fn push(s: &mut Switch, us: u64, frames: usize, payload: usize) {
    for _ in 0..frames {
        s.handle_packet(at(us), port(0), &roce_frame(2, payload), &RxMeta::whole(at(us)));
    }
}

/// The frames that leave a port at `now`.
fn pull(s: &mut Switch, now: Time, out: u8) -> Vec<Vec<u8>> {
    let mut buffer = [0; 10_000];
    let mut next =
        || s.poll_transmit(now, port(out), &mut buffer).map(|m| buffer[..m.len].to_vec());
    std::iter::from_fn(&mut next).collect()
}

/// Runs timers until `us`; the frames that leave port 0, with their times in microseconds.
fn run(s: &mut Switch, us: u64) -> Vec<(u64, Vec<u8>)> {
    let mut sent = Vec::new();
    while let Some(now) = s.poll_timeout().filter(|due| *due <= at(us)) {
        s.handle_timeout(now);
        sent.extend(pull(s, now, 0).into_iter().map(|frame| (now.as_ns() / 1000, frame)));
    }
    sent
}

fn counters(s: &Switch) -> BTreeMap<&'static str, u64> {
    s.agents(Time::ZERO)[0].counters.iter().copied().collect()
}

#[test]
fn handle_timeout__a_long_queue_sends_cnps_to_its_senders() {
    let mut s = bound(config(|_| ()));
    push(&mut s, 1, 40, 1_000);
    // 43 kB: 0.05 x 33 + 0.1 x 43 CNPs, from a spacing after the threshold on.
    let sent = run(&mut s, 1_000);
    assert_eq!(sent.iter().map(|(us, _)| *us).collect::<Vec<_>>(), [5, 9, 13, 17, 21]);
    for (_, frame) in &sent {
        let packet = Packet::parse(frame).expect("valid");
        assert_eq!((packet.bth.opcode, packet.bth.dest_qp), (Opcode::Cnp, Qpn::new(0x77)));
        assert_eq!(packet.ip.src(), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(packet.ip.dst(), IpAddr::from([10, 0, 0, 0]));
    }
    let now = counters(&s);
    assert_eq!((now["feedback_tx"], now["cnps_due"], now["feedback_no_qpn"]), (5, 5, 0));
    assert_eq!(s.counters().ports[0].agent_made, 5);
    // The queue stays, but nothing more was counted.
    assert_eq!(s.poll_timeout(), Some(at(1_040)), "its period goes on");
    assert_eq!(pull(&mut s, at(1_000), 2).len(), 40);
    run(&mut s, 2_000);
    assert_eq!(s.poll_timeout(), None, "an empty switch has no timers");
}

#[test]
fn handle_timeout__feedback_overtakes_data() {
    let mut s = bound(config(|_| ()));
    push(&mut s, 1, 40, 1_000);
    for _ in 0..3 {
        let frame = roce_frame(0, 500);
        s.handle_packet(at(2), port(1), &frame, &RxMeta::whole(at(2)));
    }
    s.handle_timeout(at(5));
    let lengths: Vec<usize> = pull(&mut s, at(5), 0).iter().map(Vec::len).collect();
    assert_eq!(lengths, [74, 574, 574, 574]);
}

#[test]
fn handle_timeout__without_a_known_sender_nothing_leaves() {
    let mut s = Switch::new(config(|_| ())).unwrap();
    push(&mut s, 1, 40, 1_000);
    assert_eq!(run(&mut s, 1_000), []);
    assert_eq!((counters(&s)["feedback_no_qpn"], counters(&s)["feedback_tx"]), (5, 0));
    // A packet the other way names it: from 10.0.0.2 to 10.0.0.0, with the same UDP source port.
    let mut back = roce_frame(2, 0);
    let (source, dest) = (back[26..30].to_vec(), back[30..34].to_vec());
    back[26..30].copy_from_slice(&dest);
    back[30..34].copy_from_slice(&source);
    s.handle_packet(at(1_001), port(2), &back, &RxMeta::whole(at(1_001)));
    push(&mut s, 1_002, 40, 1_000);
    let sent = run(&mut s, 2_000);
    assert!(counters(&s)["feedback_tx"] > 0);
    let to = |frame: &[u8]| Packet::parse(frame).map(|packet| packet.bth.dest_qp);
    assert!(sent.iter().any(|(_, frame)| to(frame) == Ok(Qpn::new(5))));
}

#[test]
fn handle_timeout__feedback_is_at_most_an_eighth_of_what_passed() {
    // A gain that asks for the maximum of 20 CNPs.
    let mut s = bound(config(|pacc| {
        (pacc.threshold_bytes, pacc.beta1) = (5_000, Ratio::new(10, 1).unwrap());
    }));
    push(&mut s, 1, 100, 0);
    let sent = run(&mut s, 1_000);
    // 7,400 bytes passed: 925 bytes of feedback are twelve CNPs of 74 bytes.
    assert_eq!(sent.len(), 12);
    assert_eq!((counters(&s)["feedback_tx"], counters(&s)["feedback_limited"]), (12, 8));
}

#[test]
fn handle_timeout__feedback_is_never_flooded() {
    let ports = vec![PortConfig::default(); 3];
    let agents = config(|_| ()).agents;
    let mut s = bound(SwitchConfig { agents, ..SwitchConfig::new(ports) });
    // A switch that learns: the receiver's address is known, the sender's is not.
    let mut back = roce_frame(9, 0);
    let (dest, source) = (roce_frame(2, 0)[..6].to_vec(), back[6..12].to_vec());
    back[..6].copy_from_slice(&source);
    back[6..12].copy_from_slice(&dest);
    s.handle_packet(at(0), port(2), &back, &RxMeta::whole(at(0)));
    push(&mut s, 1, 40, 1_000);
    assert!(!run(&mut s, 100).is_empty(), "the data frames taught the way");
    let before = s.counters().forwarding.flooded;
    assert_eq!(before, 1, "the first frame");
}

/// SR data from host 0 to host 2 that carry their sender's QPN.
fn sr_frame(psn: u32, sent: Time) -> Vec<u8> {
    let mut frame = roce_frame(2, 1_000);
    let header = SrDataRepr {
        sent_ps: sent.as_ps(),
        receive: Some(0),
        source_qpn: Some(Qpn::new(0x77)),
        ..SrDataRepr::new(SrKind::Send, psn, 0)
    };
    frame[42] = Opcode::SrData.to_u8();
    frame[51..54].copy_from_slice(&psn.to_be_bytes()[1..]);
    header.emit(&mut frame[54..]).unwrap();
    frame
}

#[test]
fn handle_packet__late_data_cause_a_pseudo_ack_at_once() {
    let agents = vec![AgentConfig::Nsf(NsfConfig { outside: vec![2], ..NsfConfig::default() })];
    let mut s = Switch::new(SwitchConfig { agents, ..config(|_| ()) }).unwrap();
    let mut pass = |us: u64, psn: u32, delay_us: u64| {
        let now = at(us);
        let frame = sr_frame(psn, now - Dur::from_us(delay_us));
        s.handle_packet(now, port(0), &frame, &RxMeta::whole(now));
        pull(&mut s, now, 0)
    };
    assert!(pass(10, 1, 4).is_empty(), "in time");
    let made = pass(20, 0xab00_0002, 6);
    let packet = Packet::parse(&made[0]).expect("valid");
    assert_eq!((packet.bth.opcode, packet.bth.dest_qp), (Opcode::SrNear, Qpn::new(0x77)));
    let near = SrNearRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
    assert_eq!((near.psn, near.echo_ps), (0xab00_0002, at(14).as_ps()));
    assert_eq!((made.len(), pass(21, 3, 6).len()), (1, 0), "one in an interval");
}

#[test]
fn switch__with_agents_conserves_frames_under_hostile_traffic() {
    let mut rng = Rng::new(7);
    let mut s = bound(config(|pacc| pacc.every = true));
    let (mut now, mut left, mut buffer) = (Time::ZERO, 0, [0; 2_000]);
    for _ in 0..20_000 {
        now += Dur::from_ns(rng.below(400));
        if s.poll_timeout().is_some_and(|due| due <= now) {
            s.handle_timeout(now);
        }
        let mut frame = roce_frame(u8::try_from(rng.below(4)).unwrap(), 4 * 200);
        for _ in 0..rng.below(3) {
            let at = usize::try_from(rng.below(60)).unwrap();
            frame[at] ^= 1 << rng.below(8);
        }
        let ingress = u8::try_from(rng.below(3)).unwrap();
        s.handle_packet(now, port(ingress), &frame, &RxMeta::whole(now));
        // Half as many frames leave as arrive.
        if rng.below(2) == 0 {
            let out = u8::try_from(rng.below(3)).unwrap();
            left += u64::from(s.poll_transmit(now, port(out), &mut buffer).is_some());
        }
    }
    let all = s.counters();
    let sum = |of: fn(&crate::PortCounters) -> u64| all.ports.iter().map(of).sum::<u64>();
    assert!(sum(|p| p.agent_made) > 100, "{:?}", s.agents(now));
    let arrived = sum(|p| p.rx_pkts) + sum(|p| p.agent_made);
    assert_eq!(arrived, sum(|p| p.tx_pkts) + all.dropped() + u64::from(s.used_pkts()));
    assert_eq!(sum(|p| p.tx_pkts), left);
}
