use super::*;
use crate::agent::kind::AgentConfig;
use crate::config::{EcnConfig, PortConfig, SwitchConfig};
use crate::switch::Switch;
use crate::testing::{mac, roce_frame, roce_frame_of};
use spanwire_base::{Node, PortId, RxMeta};
use spanwire_nn::Network;
use std::collections::BTreeMap;

/// Networks with constant outputs: whether to trigger, and the best action.
pub(crate) fn constant(triggers: bool, best: usize) -> EcnModel {
    let with = |widths: &[usize], best: usize| {
        let mut network = Network::zeros(widths);
        let outputs = widths.last().copied().unwrap_or(0);
        let first = network.parameters().count() - outputs;
        network.parameters_mut().skip(first + best).take(1).for_each(|own| *own = 1.0);
        network
    };
    let decision = with(EcnModel::DECISION, usize::from(triggers));
    EcnModel::of_networks("test", decision, with(EcnModel::POLICY, best))
}

/// A switch of three ports at 25 Gbit/s, with the agent at ports 1 and 2.
fn switch(change: impl Fn(&mut EcnAgentConfig)) -> Switch {
    let mut port = PortConfig::new(Rate::from_gbps(25));
    port.queues[0].ecn = Some(EcnConfig::step(1_000));
    let mut config = SwitchConfig::new(vec![port; 3]);
    for n in 0..3 {
        let ports = vec![n];
        let spread = crate::config::Spread::Hash;
        config.forwarding.macs.push(crate::config::StaticMac { mac: mac(n), ports, spread });
    }
    let mut ecn = EcnAgentConfig { ports: vec![1, 2], ..EcnAgentConfig::default() };
    change(&mut ecn);
    config.agents = vec![AgentConfig::Ecn(ecn)];
    Switch::new(config).unwrap()
}

fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

fn port(n: u8) -> PortId {
    PortId::new(n).unwrap()
}

fn push(s: &mut Switch, now: Time, to: u8, frames: usize) {
    for _ in 0..frames {
        s.handle_packet(now, port(0), &roce_frame(to, 1_000), &RxMeta::whole(now));
    }
}

/// Takes frames from a port.
fn pull(s: &mut Switch, now: Time, out: u8, frames: usize) -> usize {
    let mut buffer = [0; 2_000];
    (0..frames).take_while(|_| s.poll_transmit(now, port(out), &mut buffer).is_some()).count()
}

/// Runs timers until `us`; the number of times that some were due.
fn run(s: &mut Switch, us: u64) -> usize {
    let mut turns = 0;
    while let Some(now) = s.poll_timeout().filter(|due| *due <= at(us)) {
        s.handle_timeout(now);
        turns += 1;
    }
    turns
}

fn counters(s: &Switch, n: usize) -> BTreeMap<&'static str, u64> {
    let agent = &s.agents(at(0))[n];
    agent.counters.iter().chain(&agent.gauges).copied().collect()
}

fn thresholds(s: &Switch, n: u8) -> (u64, u64, u32) {
    let ecn = s.config().ports[usize::from(n)].queues[0].ecn.unwrap();
    (ecn.kmin_bytes, ecn.kmax_bytes, ecn.pmax.ppb() / 1000)
}

const FIRST: (u64, u64, u32) = (80_000, 320_000, 200_000);
const ZERO: (u64, u64, u32) = (20_000, 40_000, 50_000);

#[test]
fn new__the_first_thresholds_are_set_and_no_queue_is_added() {
    let s = switch(|_| ());
    assert_eq!([1, 2].map(|n| thresholds(&s, n)), [FIRST; 2]);
    assert_eq!(thresholds(&s, 0), (1_000, 1_000, 1_000_000), "not a port of the agent");
    assert!(s.config().ports.iter().all(|port| port.queues.len() == 1));
    assert_eq!(s.poll_timeout(), None);
}

#[test]
fn on_timer__each_port_that_sends_or_holds_is_decided_by_itself() {
    let mut s = switch(|c| c.model = constant(true, 0));
    push(&mut s, at(10), 2, 3);
    assert_eq!(s.poll_timeout(), Some(at(50)), "five round trips");
    run(&mut s, 49);
    assert_eq!(thresholds(&s, 2), FIRST);
    run(&mut s, 50);
    assert_eq!((thresholds(&s, 1), thresholds(&s, 2)), (FIRST, ZERO));
    let of = counters(&s, 1);
    assert_eq!((of["decisions"], of["activations"], of["changes"]), (1, 1, 1));
    assert_eq!((of["flops_decision"], of["flops_policy"]), (1_024, 32_256));
    assert_eq!((of["cpu_ns"], of["kmin_bytes"], of["pmax_ppm"]), (33_280, 20_000, 50_000));
    assert_eq!(counters(&s, 0)["decisions"], 0);
    // It holds frames, then sends them, then is idle.
    run(&mut s, 95);
    assert_eq!(counters(&s, 1)["decisions"], 2);
    assert_eq!(pull(&mut s, at(95), 2, 9), 3);
    run(&mut s, 1_000);
    assert_eq!(counters(&s, 1)["decisions"], 3);
    assert_eq!(s.poll_timeout(), None, "a simulation ends");
}

#[test]
fn on_timer__a_long_flow_makes_intervals_longer() {
    let mut s = switch(|c| c.model = constant(false, 0));
    push(&mut s, at(0), 2, 100);
    assert_eq!(s.poll_timeout(), Some(at(40)));
    run(&mut s, 40);
    assert_eq!(s.poll_timeout(), Some(at(160)), "107 KB of one flow have passed");
    assert_eq!(thresholds(&s, 2), FIRST, "not triggered");
    pull(&mut s, at(41), 2, 100);
    run(&mut s, 599);
    let now = at(3_000);
    s.handle_packet(now, port(0), &roce_frame_of(2, 0xc001, 1_000), &RxMeta::whole(now));
    assert_eq!(s.poll_timeout(), Some(at(3_040)), "after ten intervals it is forgotten");
}

#[test]
fn on_timer__one_inference_a_step() {
    let mut s = switch(|c| c.model = constant(true, 0));
    push(&mut s, at(0), 1, 1);
    push(&mut s, at(0), 2, 1);
    s.handle_timeout(at(40));
    assert_eq!((thresholds(&s, 1), thresholds(&s, 2)), (ZERO, FIRST));
    assert_eq!(s.poll_timeout(), Some(at(40)), "the other port is due in the next step");
    assert_eq!(run(&mut s, 40), 1);
    assert_eq!(thresholds(&s, 2), ZERO);
}

#[test]
fn decide__a_processor_with_delay_works_off_decisions_one_by_one() {
    let mut s = switch(|c| {
        c.model = constant(true, 0);
        c.cpu = EcnCpu::Delay;
        c.interval = Some(Dur::from_us(10));
    });
    push(&mut s, at(0), 1, 1);
    push(&mut s, at(0), 2, 1);
    // A decision with the policy network takes 33.28 us: at 43.28 us and 76.56 us.
    run(&mut s, 43);
    assert_eq!((thresholds(&s, 1), thresholds(&s, 2)), (FIRST, FIRST));
    run(&mut s, 44);
    assert_eq!((thresholds(&s, 1), thresholds(&s, 2)), (ZERO, FIRST));
    run(&mut s, 77);
    assert_eq!(thresholds(&s, 2), ZERO);
    let [one, two] = [0, 1].map(|n| counters(&s, n));
    assert_eq!((one["decisions"], one["skipped"]), (2, 5), "{one:?}");
    assert_eq!((two["decisions"], two["skipped"]), (1, 6), "{two:?}");
}

#[test]
fn set_agent_hold__freezes_thresholds() {
    let mut s = switch(|c| c.model = constant(true, 0));
    push(&mut s, at(0), 2, 1);
    s.set_agent_hold(0, true).unwrap();
    run(&mut s, 200);
    assert_eq!((thresholds(&s, 2), counters(&s, 1)["decisions"]), (FIRST, 0));
    s.set_agent_hold(0, false).unwrap();
    run(&mut s, 240);
    assert_eq!((thresholds(&s, 2), counters(&s, 1)["decisions"]), (ZERO, 1));
    let error = s.set_agent_hold(1, true).unwrap_err().to_string();
    assert_eq!(error, "agents[1]: does not exist");
}

#[test]
fn end_interval__the_queue_is_a_mean_over_time() {
    let explore = Some(config::EcnExplore { ppm: 0, seed: 0 });
    let mut s = switch(|c| (c.explore, c.model) = (explore, constant(false, 0)));
    // 1,074 bytes a frame: 64 frames for 10 us of 40, and then none: 17 kB in the mean.
    push(&mut s, at(0), 2, 64);
    pull(&mut s, at(10), 2, 64);
    run(&mut s, 40);
    // 64 for 20 us of 40: 34 kB.
    push(&mut s, at(60), 2, 64);
    pull(&mut s, at(80), 2, 64);
    run(&mut s, 80);
    let steps: Vec<&EcnStep> = s.ecn_steps().collect();
    let [one, two] = steps[..] else { panic!("{steps:?}") };
    assert_eq!((one.port, one.empty, two.empty), (2, 1.0, 0.9));
    // 25 Gbit/s carry 125 kB in that time.
    let sent = 64.0 * 1_074.0 / 125_000.0;
    assert!((one.sent - sent).abs() < 1e-4 && (two.sent - sent).abs() < 1e-4, "{two:?}");
    assert_eq!((one.series, two.series, one.action), (0, 0, None));
    assert_eq!(two.state[5..10], one.state[10..], "oldest first");
    // A pause begins another series without history.
    run(&mut s, 1_000);
    push(&mut s, at(2_000), 2, 1);
    run(&mut s, 2_040);
    let last = s.ecn_steps().last().unwrap();
    assert!(last.series == 1 && last.state[..10] == [0.0; 10], "{last:?}");
}
