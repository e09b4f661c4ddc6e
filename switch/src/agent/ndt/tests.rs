use super::*;
use crate::agent::checks::ratio;
use crate::agent::passing::SrData;
use crate::agent::testing::{at, passing};

/// NDT at port 1, whose controlled queue is 2.
fn ndt(change: impl Fn(&mut NdtConfig)) -> Ndt {
    let mut config = NdtConfig { inside: vec![1], flows: 64, ..NdtConfig::default() };
    change(&mut config);
    Ndt::new(&config, |_| 2)
}

/// Data of a flow come in from outside and are queued.
fn come(ndt: &mut Ndt, us: u64, flow: u8, psn: u32) -> Placement {
    let data = SrData { psn, sent_ps: 0 };
    let passing = Passing { sr: Some(data), ..passing(flow, 100, 1000) };
    let sender = Some(Qpn::new(flow.into()));
    let placement = ndt.on_arrival(at(us), &passing, Ports { from: 0, to: 1 }, sender);
    let queued = Queued { port: 1, placement, bytes: 1000, ..Queued::default() };
    let mut out = Outbox::new();
    ndt.on_queued(at(us), &passing, queued, &mut out);
    assert!(out.is_empty(), "it sends nothing");
    placement
}

fn leave(ndt: &mut Ndt, us: u64, placement: Placement, psn: u32) {
    let queue = placement.queue.unwrap_or(0);
    let sr = Some(SrData { psn, sent_ps: 0 });
    let leaving = Departing { port: 1, queue, tag: placement.tag, bytes: 1000, sr };
    ndt.on_departure(at(us), &leaving);
}

/// An acknowledgement of a flow comes back from inside, which the receiver held for `held_us`.
fn acknowledge(ndt: &mut Ndt, us: u64, flow: u8, newest: u32, held_us: u32) {
    let times = SrAckPassing { newest, ack_delay_ns: held_us * 1000, rx_delay_ns: 0, credit: None };
    let mut back = passing(100, flow, 100);
    (back.is_data, back.ack, back.ends.dest_qpn) = (false, Some(times), Qpn::new(flow.into()));
    assert_eq!(ndt.on_arrival(at(us), &back, Ports { from: 1, to: 0 }, None), Placement::default());
}

/// A packet of a flow that passes in `us`, and whose acknowledgement comes `trip_us` later.
fn trip(ndt: &mut Ndt, us: u64, flow: u8, psn: u32, trip_us: u64) {
    let placement = come(ndt, us, flow, psn);
    leave(ndt, us, placement, psn);
    acknowledge(ndt, us + trip_us, flow, psn, 0);
}

fn counter(ndt: &Ndt, name: &str) -> u64 {
    let all = ndt.counters(at(0));
    let both = all.counters.iter().chain(&all.gauges);
    both.copied().find(|(own, _)| *own == name).expect("it is there").1
}

/// The changes of the hold of its controlled queue.
fn holds(ndt: &mut Ndt) -> Vec<bool> {
    std::iter::from_fn(|| ndt.pop_hold()).map(|hold| hold.is_held).collect()
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
    (1..=8).for_each(|flow| acknowledge(&mut ndt, 37, flow, 0, 0));
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
    let sender = Some(Qpn::new(1));
    assert_eq!(ndt.on_arrival(at(1), &rc, ports, sender), Placement::default());
    let sr = Passing { sr: Some(SrData { psn: 0, sent_ps: 0 }), ..rc };
    assert_eq!(ndt.on_arrival(at(1), &sr, ports, None), Placement::default());
    assert_eq!(counter(&ndt, "data_no_qpn"), 1);
    let within = Ports { from: 1, to: 1 };
    assert_eq!(ndt.on_arrival(at(1), &sr, within, sender), Placement::default());
    assert_ne!(ndt.on_arrival(at(1), &sr, ports, sender).tag, 0);
}

#[test]
fn pause__lasts_until_a_flow_recovers_and_returns_after_a_round() {
    let mut ndt = ndt(|_| ());
    for flow in 1..=10 {
        // Seven of ten are not more than 0.7.
        trip(&mut ndt, 10, flow, 0, if flow <= 7 { 11 } else { 5 });
    }
    let first = come(&mut ndt, 30, 1, 1);
    assert_eq!((first.queue, holds(&mut ndt)), (Some(2), vec![]));
    trip(&mut ndt, 31, 8, 1, 11);
    let second = come(&mut ndt, 43, 8, 2);
    assert_eq!((second.queue, holds(&mut ndt)), (Some(2), vec![true]));
    assert_eq!(ndt.poll_timeout(), Some(at(543)));
    acknowledge(&mut ndt, 50, 2, 0, 40);
    assert_eq!((holds(&mut ndt), ndt.poll_timeout()), (vec![false], None));
    // Eight of ten again, but the controlled queue has not had its turn.
    acknowledge(&mut ndt, 51, 2, 0, 0);
    come(&mut ndt, 52, 1, 2);
    assert!(holds(&mut ndt).is_empty());
    leave(&mut ndt, 53, first, 1);
    come(&mut ndt, 54, 1, 3);
    assert_eq!((holds(&mut ndt), counter(&ndt, "pauses")), (vec![true], 2));
    // No flow recovers.
    let mut out = Outbox::new();
    ndt.handle_timeout(at(553), 0, &mut out);
    assert!(holds(&mut ndt).is_empty());
    ndt.handle_timeout(at(554), 0, &mut out);
    assert_eq!((holds(&mut ndt), ndt.poll_timeout()), (vec![false], None));
}

#[test]
fn pause__counts_the_flows_of_the_last_100_us() {
    let mut ndt = ndt(|_| ());
    (1..=10).for_each(|flow| trip(&mut ndt, 10, flow, 0, 5));
    trip(&mut ndt, 20, 11, 0, 11);
    come(&mut ndt, 110, 11, 1);
    assert_eq!((counter(&ndt, "flows_active"), holds(&mut ndt)), (11, vec![]));
    come(&mut ndt, 111, 11, 2);
    assert_eq!((counter(&ndt, "flows_active"), holds(&mut ndt)), (1, vec![true]));
}

#[test]
fn is_held__until_older_packets_of_the_flow_have_left_the_normal_queue() {
    let mut ndt = ndt(|config| config.ratio = ratio(1, 1));
    trip(&mut ndt, 10, 1, 0, 5);
    let before: Vec<_> = (1..=2).map(|psn| come(&mut ndt, 20, 1, psn)).collect();
    let other = come(&mut ndt, 20, 2, 0);
    acknowledge(&mut ndt, 21, 1, 0, 0);
    let behind = come(&mut ndt, 22, 1, 3);
    assert_eq!((behind.queue, holds(&mut ndt)), (Some(2), vec![true]));
    leave(&mut ndt, 23, before[0], 1);
    assert!(holds(&mut ndt).is_empty());
    leave(&mut ndt, 24, before[1], 2);
    assert_eq!(holds(&mut ndt), [false], "not for the other flow's");
    leave(&mut ndt, 25, behind, 3);
    leave(&mut ndt, 26, other, 0);
    assert!(holds(&mut ndt).is_empty());
}
