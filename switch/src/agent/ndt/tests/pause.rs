//! When pauses begin and end.

use super::*;
use PauseScope::{Port, Switch};

/// NDT at ports 1 and 3, whose controlled queue is 2.
fn two_ports(pause_scope: PauseScope) -> Ndt {
    let config = NdtConfig { inside: vec![1, 3], flows: 64, pause_scope, ..NdtConfig::default() };
    at_ports(&[1, 3], |site| Ndt::new(&config, site))
}

/// Flows 1 to `flows`, of which the first `congested` are.
fn flows(ndt: &mut Ndt, flows: u8, congested: u8) {
    (1..=flows).for_each(|flow| trip(ndt, 10, flow, 0, if flow <= congested { 11 } else { 5 }));
}

/// The change of a hold by a timer.
fn timer(ndt: &mut Ndt, us: u64) -> Option<Hold> {
    ndt.handle_timeout(at(us), |_| QueueView::default()).hold
}

/// All that timers do at `us`: ports, and whether they are held.
fn timers(ndt: &mut Ndt, us: u64) -> Vec<(u8, bool)> {
    let mut holds = Vec::new();
    while ndt.poll_timeout().is_some_and(|due| due <= at(us)) {
        holds.extend(timer(ndt, us).map(|hold| (hold.port, hold.is_held)));
    }
    holds
}

#[test]
fn pause__one_active_flow_that_is_congested() {
    let mut ndt = ndt(|_| ());
    flows(&mut ndt, 1, 1);
    assert_eq!(come_held(&mut ndt, 30, 1, 1).1, Some(true), "one of one is more than 0.7");
    // With another flow that is not, it does not pause.
    let mut ndt = super::ndt(|_| ());
    flows(&mut ndt, 2, 1);
    assert_eq!(come_held(&mut ndt, 30, 1, 1).1, None);
}

#[test]
fn pause__seven_of_ten_are_not_more_than_the_ratio_and_eight_are() {
    let mut ndt = ndt(|_| ());
    flows(&mut ndt, 10, 7);
    assert_eq!(come_held(&mut ndt, 30, 1, 1).1, None);
    trip(&mut ndt, 31, 8, 1, 11);
    assert_eq!(come_held(&mut ndt, 43, 8, 2).1, Some(true));
    assert_eq!(ndt.poll_timeout(), Some(at(543)));
    // No flow recovers.
    assert_eq!((timers(&mut ndt, 542), timers(&mut ndt, 543)), (vec![], vec![(1, false)]));
    let counts = ["pauses", "pauses_timed_out", "pauses_recovered", "paused_ns"];
    assert_eq!(counts.map(|name| counter(&ndt, name)), [1, 1, 0, 500_000]);
    assert_eq!(ndt.poll_timeout(), None);
}

#[test]
fn pause__ends_when_the_receiver_of_a_flow_shows_that_it_has_recovered() {
    let mut ndt = ndt(|_| ());
    flows(&mut ndt, 10, 8);
    assert_eq!(come_held(&mut ndt, 30, 1, 1).1, Some(true));
    assert_eq!(acknowledge(&mut ndt, 50, 2, 0, 0), None, "as late as before");
    assert_eq!(acknowledge(&mut ndt, 51, 2, 0, 40), Some(false));
    let counts = ["pauses", "pauses_timed_out", "pauses_recovered", "paused_ns"];
    assert_eq!(counts.map(|name| counter(&ndt, name)), [1, 0, 1, 21_000]);
}

#[test]
fn pause__counts_the_flows_of_the_last_100_us() {
    let mut ndt = ndt(|_| ());
    (1..=10).for_each(|flow| trip(&mut ndt, 10, flow, 0, 5));
    trip(&mut ndt, 20, 11, 0, 11);
    assert_eq!((come_held(&mut ndt, 110, 11, 1).1, counter(&ndt, "flows_active")), (None, 11));
    assert_eq!((come_held(&mut ndt, 111, 11, 2).1, counter(&ndt, "flows_active")), (Some(true), 1));
}

#[test]
fn round__all_that_was_held_and_a_turn_of_both_queues() {
    let mut ndt = ndt(|config| (config.weight, config.pause_round) = (3, PauseRound::Held));
    flows(&mut ndt, 10, 8);
    let (first, change) = come_held(&mut ndt, 30, 1, 1);
    assert_eq!(change, Some(true));
    let held = [1, 2].map(|psn| come(&mut ndt, 31, 1, 1 + psn));
    assert_eq!(acknowledge(&mut ndt, 51, 2, 0, 40), Some(false));
    // Eight of ten again, but two of those that were held have not left.
    acknowledge(&mut ndt, 52, 2, 0, 0);
    leave(&mut ndt, 53, first, 1);
    let later = come(&mut ndt, 54, 1, 4);
    assert_eq!(counter(&ndt, "pauses"), 1);
    leave(&mut ndt, 55, held[0], 2);
    leave(&mut ndt, 55, held[1], 3);
    // A turn of the scheduler is three packets of the normal queue and one of the other.
    assert_eq!(come_held(&mut ndt, 56, 1, 5).1, None);
    leave(&mut ndt, 57, later, 4);
    assert_eq!((come_held(&mut ndt, 58, 1, 6).1, counter(&ndt, "pauses")), (Some(true), 2));
}

#[test]
fn round__one_packet() {
    let mut ndt = ndt(|config| config.pause_round = PauseRound::Packet);
    flows(&mut ndt, 10, 8);
    let (first, _) = come_held(&mut ndt, 30, 1, 1);
    come(&mut ndt, 31, 1, 2);
    assert_eq!(acknowledge(&mut ndt, 51, 2, 0, 40), Some(false));
    acknowledge(&mut ndt, 52, 2, 0, 0);
    assert_eq!(come_held(&mut ndt, 53, 1, 3).1, None, "it has not left");
    leave(&mut ndt, 53, first, 1);
    assert_eq!((come_held(&mut ndt, 54, 1, 4).1, counter(&ndt, "pauses")), (Some(true), 2));
}

#[test]
fn scope__a_port_alone_or_all_ports_of_the_switch() {
    for (scope, want) in [(Port, vec![]), (Switch, vec![(3, true)])] {
        let mut ndt = two_ports(scope);
        // Three of three at port 1 are congested, none of one at port 3.
        flows(&mut ndt, 3, 3);
        let other = Passing { sr: Some(SrData { psn: 0, sent_ps: 0 }), ..passing(99, 100, 1000) };
        let to = Ports { from: 0, to: 3 };
        ndt.on_arrival(at(29), &other, to, Some(Qpn::new(99)));
        let held = come_held(&mut ndt, 30, 1, 1).1;
        assert_eq!((held, timers(&mut ndt, 30)), (Some(true), want), "{scope:?}");
        // Of four flows three are more than 0.7; with a second one at port 3 they are not.
        let mut ndt = two_ports(scope);
        flows(&mut ndt, 3, 3);
        for flow in [98, 99] {
            ndt.on_arrival(at(29), &other, to, Some(Qpn::new(flow)));
        }
        let held = come_held(&mut ndt, 30, 1, 1).1;
        assert_eq!(held, (scope == Port).then_some(true), "{scope:?}");
    }
    // All end together.
    let mut ndt = two_ports(Switch);
    flows(&mut ndt, 1, 1);
    assert_eq!(come_held(&mut ndt, 30, 1, 1).1, Some(true));
    assert_eq!((timers(&mut ndt, 30), counter(&ndt, "ports_paused")), (vec![(3, true)], 2));
    assert_eq!(timers(&mut ndt, 530), [(1, false), (3, false)]);
}

#[test]
fn probe__one_packet_in_each_threshold() {
    let mut ndt = ndt(|config| config.pause_probe = true);
    flows(&mut ndt, 1, 1);
    let (first, change) = come_held(&mut ndt, 30, 1, 1);
    assert_eq!((change, timers(&mut ndt, 39)), (Some(true), vec![]));
    let second = come(&mut ndt, 35, 1, 2);
    assert_eq!(timers(&mut ndt, 40), [(1, false)]);
    assert_eq!(leave(&mut ndt, 41, first, 1), Some(true), "one");
    assert_eq!((timers(&mut ndt, 50), timers(&mut ndt, 51)), (vec![], vec![(1, false)]));
    // Its acknowledgement ends the pause.
    assert_eq!(acknowledge(&mut ndt, 46, 1, 1, 0), None, "it is not held now");
    assert_eq!(counter(&ndt, "pauses_recovered"), 1);
    assert_eq!(leave(&mut ndt, 52, second, 2), None);
}
