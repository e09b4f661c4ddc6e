mod pause;
mod wait;

use super::config::PauseRound;
use super::*;
use crate::agent::checks::ratio;
use crate::agent::passing::SrData;
use crate::agent::testing::{at, at_ports, passing};

/// NDT at port 1, whose controlled queue is 2.
fn ndt(change: impl Fn(&mut NdtConfig)) -> Ndt {
    let mut config = NdtConfig { inside: vec![1], flows: 64, ..NdtConfig::default() };
    change(&mut config);
    at_ports(&[1], |site| Ndt::new(&config, site))
}

/// The change of the hold of its controlled queue.
fn held(effects: &Effects) -> Option<bool> {
    assert!(effects.feedback.is_none(), "it sends nothing");
    effects.hold.map(|hold| {
        assert_eq!((hold.port, hold.queue), (1, 2));
        hold.is_held
    })
}

/// Data of a flow come in from outside and are queued: its place, and whether its queue is held or
/// released.
fn come_held(ndt: &mut Ndt, us: u64, flow: u8, psn: u32) -> (Placement, Option<bool>) {
    let data = SrData { psn, sent_ps: 0 };
    let passing = Passing { sr: Some(data), ..passing(flow, 100, 1000) };
    let sender = Some(Qpn::new(flow.into()));
    let (placement, arrived) = ndt.on_arrival(at(us), &passing, Ports { from: 0, to: 1 }, sender);
    let queued = Queued { port: 1, placement, bytes: 1000, ..Queued::default() };
    let queued = ndt.on_queued(at(us), &passing, queued);
    (placement, held(&queued).or(held(&arrived)))
}

fn come(ndt: &mut Ndt, us: u64, flow: u8, psn: u32) -> Placement {
    come_held(ndt, us, flow, psn).0
}

fn leave(ndt: &mut Ndt, us: u64, placement: Placement, psn: u32) -> Option<bool> {
    let queue = placement.queue.unwrap_or(0);
    let sr = Some(SrData { psn, sent_ps: 0 });
    let (tag, arrived_at) = (placement.tag, at(us));
    let leaving = Departing { port: 1, queue, tag, arrived_at, bytes: 1000, sr };
    held(&ndt.on_departure(at(us), &leaving))
}

/// An acknowledgement of a flow comes back from inside, which the receiver held for `held_us`.
fn acknowledge(ndt: &mut Ndt, us: u64, flow: u8, newest: u32, held_us: u32) -> Option<bool> {
    let times = SrAckPassing { newest, ack_delay_ns: held_us * 1000, rx_delay_ns: 0, credit: None };
    let mut back = passing(100, flow, 100);
    (back.is_data, back.ack, back.ends.dest_qpn) = (false, Some(times), Qpn::new(flow.into()));
    let (placement, effects) = ndt.on_arrival(at(us), &back, Ports { from: 1, to: 0 }, None);
    assert_eq!(placement, Placement::default());
    held(&effects)
}

/// A packet of a flow that passes in `us`, and whose acknowledgement comes `trip_us` later.
fn trip(ndt: &mut Ndt, us: u64, flow: u8, psn: u32, trip_us: u64) {
    let placement = come(ndt, us, flow, psn);
    leave(ndt, us, placement, psn);
    acknowledge(ndt, us + trip_us, flow, psn, 0);
}

fn counter(ndt: &Ndt, name: &str) -> u64 {
    let all = ndt.counters(at(0)).remove(0);
    let both = all.counters.iter().chain(&all.gauges);
    both.copied().find(|(own, _)| *own == name).expect("it is there").1
}

#[test]
fn on_arrival__a_long_round_trip_takes_the_flow_to_the_controlled_queue() {
    // Never a pause: one flow of one is congested.
    let mut ndt = ndt(|config| config.ratio = ratio(1, 1));
    trip(&mut ndt, 10, 1, 0, 10);
    assert_eq!(come(&mut ndt, 30, 1, 1).queue, None, "10 us are not above the threshold");
    trip(&mut ndt, 40, 2, 0, 11);
    let waits = come(&mut ndt, 60, 2, 1);
    assert_eq!(waits.queue, Some(2));
    assert_eq!(come(&mut ndt, 60, 1, 2).queue, None, "the other flow has not changed");
    // It recovers, but a packet of it still waits in the controlled queue.
    acknowledge(&mut ndt, 61, 2, 0, 15);
    let also_waits = come(&mut ndt, 61, 2, 2);
    assert_eq!(also_waits.queue, Some(2));
    leave(&mut ndt, 62, waits, 1);
    assert_eq!(come(&mut ndt, 62, 2, 3).queue, Some(2));
    leave(&mut ndt, 63, also_waits, 2);
    leave(&mut ndt, 64, also_waits, 3);
    assert_eq!(come(&mut ndt, 65, 2, 4).queue, None);
    assert_eq!((counter(&ndt, "flows_isolated"), counter(&ndt, "controlled_pkts")), (1, 3));
}

/// A receiver that does not know the round trip holds acknowledgements for 20 us: that is not the
/// network. With the time that it reports the flow is as good as it is; without, it would be
/// throttled, and so would be every other.
#[test]
fn on_ack__the_time_that_the_receiver_took_is_no_congestion() {
    let mut ndt = ndt(|_| ());
    for flow in 1..=8 {
        let placement = come(&mut ndt, 10, flow, 0);
        leave(&mut ndt, 10, placement, 0);
        acknowledge(&mut ndt, 37, flow, 0, 20);
    }
    assert_eq!((counter(&ndt, "flows_congested"), counter(&ndt, "acks")), (0, 8));
    for flow in 1..=8 {
        acknowledge(&mut ndt, 37, flow, 0, 0);
    }
    assert_eq!(counter(&ndt, "flows_congested"), 8);
}

#[test]
fn on_ack__packets_that_are_not_known_change_nothing() {
    let mut ndt = ndt(|_| ());
    trip(&mut ndt, 10, 1, 0, 50);
    acknowledge(&mut ndt, 70, 1, 500, 0);
    acknowledge(&mut ndt, 70, 9, 0, 0);
    assert_eq!((counter(&ndt, "flows_congested"), counter(&ndt, "acks_unmatched")), (1, 1));
}

#[test]
fn on_arrival__packets_of_other_modes_stay_where_they_are() {
    let mut ndt = ndt(|_| ());
    let ports = Ports { from: 0, to: 1 };
    let rc = passing(1, 100, 1000);
    let nothing = (Placement::default(), Effects::NONE);
    let sender = Some(Qpn::new(1));
    assert_eq!(ndt.on_arrival(at(1), &rc, ports, sender), nothing);
    let sr = Passing { sr: Some(SrData { psn: 0, sent_ps: 0 }), ..rc };
    assert_eq!(ndt.on_arrival(at(1), &sr, ports, None), nothing);
    assert_eq!(counter(&ndt, "data_no_qpn"), 1);
    let within = Ports { from: 1, to: 1 };
    assert_eq!(ndt.on_arrival(at(1), &sr, within, sender), nothing);
    assert_ne!(ndt.on_arrival(at(1), &sr, ports, sender).0.tag, 0);
}

#[test]
fn is_held__until_older_packets_of_the_flow_have_left_the_normal_queue() {
    let mut ndt = ndt(|config| config.ratio = ratio(1, 1));
    trip(&mut ndt, 10, 1, 0, 5);
    let before: Vec<_> = (1..=2).map(|psn| come(&mut ndt, 20, 1, psn)).collect();
    let other = come(&mut ndt, 20, 2, 0);
    acknowledge(&mut ndt, 21, 1, 0, 0);
    let (behind, change) = come_held(&mut ndt, 22, 1, 3);
    assert_eq!((behind.queue, change), (Some(2), Some(true)));
    let first = leave(&mut ndt, 23, before[0], 1);
    let second = leave(&mut ndt, 24, before[1], 2);
    assert_eq!([first, second], [None, Some(false)], "not for the other flow's");
    assert_eq!(
        [(25, behind, 3), (26, other, 0)].map(|(us, p, n)| leave(&mut ndt, us, p, n)),
        [None; 2]
    );
}
