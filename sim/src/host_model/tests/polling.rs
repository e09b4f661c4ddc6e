//! Hosts of the presets by their polling: how often they sleep.

use super::*;
use crate::congestion::Congestion;
use crate::hash::EventHash;
use crate::host::SimHost;
use crate::network::Network;
use spanwire_cc::{Algorithm, fixed};

/// The counters of requester and responder after `ms` of a flow over a link of 10 Gbit/s.
fn counters(setup: Setup, delay: Dur, ms: u64) -> ([HostCounters; 2], EventHash) {
    let topology = Topology::pair(Rate::from_gbps(10), delay);
    let timeout = Dur::from_ms(100);
    let flow = Flow::new(0, 1, Time::ZERO, 1 << 30);
    let mut network =
        Network::new(topology, vec![flow], Setup { timeout, ..setup }).expect("it is valid");
    network.world.run(Time::ZERO + Dur::from_ms(ms), u64::MAX, &mut ());
    let hosts: Vec<HostCounters> = network.sim_hosts().flat_map(SimHost::driver_counters).collect();
    (hosts.try_into().expect("a pair"), network.world.event_hash())
}

/// A paced flow of 200 Mbit/s with a round trip of 10 ms for a second.
fn paced(preset: &str) -> ([HostCounters; 2], EventHash) {
    let rate_mbps = 200.0;
    let algorithm = Algorithm::Fixed(fixed::Params { rate_mbps, ..fixed::Params::default() });
    let congestion = Congestion { algorithm: Some(algorithm), ..Congestion::default() };
    let (message_bytes, host) = (1 << 16, HostModel::named(preset));
    let setup = Setup { congestion, message_bytes, outstanding: 16, host, ..Setup::default() };
    counters(setup, Dur::from_ms(5), 1_000)
}

/// One message of 64 bytes outstanding.
fn ping_pong(preset: &str) -> [HostCounters; 2] {
    let host = HostModel::named(preset);
    let setup = Setup { message_bytes: 64, outstanding: 1, host, ..Setup::default() };
    counters(setup, Dur::from_us(1), 100).0
}

#[test]
fn adaptive__a_paced_flow_wakes_its_hosts_about_once_for_a_quantum() {
    let [sender, receiver] = paced("adaptive").0;
    // A thousand quanta of six packets. A quick receiver sleeps within some of them, and ACKs wake
    // the sender.
    assert!((900..1_400).contains(&receiver.wakeups), "{receiver:?}");
    assert!((1_000..2_200).contains(&sender.wakeups), "{sender:?}");
    let without_quantum = paced("veth").0;
    assert!(without_quantum.iter().all(|host| host.wakeups > 4_500), "{without_quantum:?}");
}

#[test]
fn adaptive__one_seed_has_one_result() {
    assert_eq!(paced("adaptive"), paced("adaptive"));
}

#[test]
fn adaptive__a_ping_pong_spins() {
    for host in ping_pong("adaptive") {
        // One wait in 512 sleeps at once, to compare; others are longer than their spin.
        assert!(host.rx_frames > 5_000 && host.wakeups * 16 < host.rx_frames, "{host:?}");
    }
}

/// Round trips, and sleeps of the host with most of them, of a ping-pong whose wake-ups take so
/// many us, from 100 to 200 ms.
fn settled(us: &[u64; Lateness::PARTS.len()]) -> [u64; 2] {
    let at = |ms| {
        let host = HostModel { wakeup: Lateness::measured(us), ..HostModel::adaptive() };
        let host = Some(host);
        let setup = Setup { message_bytes: 64, outstanding: 1, host, ..Setup::default() };
        counters(setup, Dur::from_us(1), ms).0
    };
    let [before, after] = [at(100), at(200)];
    let sleeps = before.iter().zip(&after).map(|(before, after)| after.wakeups - before.wakeups);
    [after[0].rx_frames - before[0].rx_frames, sleeps.max().unwrap_or(0)]
}

#[test]
fn adaptive__a_ping_pong_spins_whatever_its_wakeups_take() {
    let all =
        [[2, 54, 60, 70, 80, 360, 500, 1_000, 5_359], [1, 51, 69, 78, 90, 205, 306, 655, 6_145]];
    for us in [20, 30, 45, 60, 100].map(|us| [us; 9]).iter().chain(&all) {
        let [round_trips, sleeps] = settled(us);
        assert!(round_trips > 8_000 && sleeps < 400, "{us:?}: {round_trips}, {sleeps} sleeps");
    }
}

#[test]
fn busy_poll__never_sleeps() {
    let [paced, ping_pong] = [paced("busy-poll").0, ping_pong("busy-poll")];
    assert!(paced.iter().chain(&ping_pong).all(|host| host.wakeups == 0 && host.rx_frames > 400));
}
