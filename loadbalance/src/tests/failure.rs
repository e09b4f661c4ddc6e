//! Reroutes after a link failure, and their delay. A sender of a packet a microsecond over eight
//! links with a round trip of 100 us; one link fails after ten round trips.

use crate::testing::{acked, at, data, flow, lost};
use crate::{Balancer, Choice, Entropy, LossKind, Outgoing, PathLoss, PathState};
use spanwire_base::Rng;
use std::collections::VecDeque;

/// A packet in flight.
#[derive(Clone, Copy)]
struct Packet {
    psn: u64,
    path: Entropy,
    sent_us: u64,
    arrives: bool,
}

/// Packets sent and lost in each round trip.
#[derive(Default)]
struct Log {
    sent: Vec<u64>,
    lost: Vec<u64>,
    last_loss_us: u64,
    lost_retransmissions: u64,
}

struct Net {
    lb: Balancer,
    /// Draws random losses and the switch's hash seed.
    rng: Rng,
    salt: u64,
    loss_per_million: u32,
    now_us: u64,
    psn: u64,
    in_transit: VecDeque<Packet>,
    /// Lost packets whose acknowledgement would have arrived by now.
    missing: VecDeque<Packet>,
    to_retransmit: VecDeque<Packet>,
    in_flight: u64,
    feedback_us: u64,
    timeout_us: u64,
    dead: Option<u64>,
    /// New packets leave only in the first `burst_us` of each three round trips.
    burst_us: u64,
    log: Log,
}

impl Net {
    fn new(choice: &str, seed: u64) -> Self {
        let mut rng = Rng::new(!seed);
        Self {
            lb: Balancer::new(&Choice::parse(choice).unwrap(), &flow(seed)),
            salt: rng.next_u64(),
            rng,
            loss_per_million: 0,
            now_us: 0,
            psn: 0,
            in_transit: VecDeque::new(),
            missing: VecDeque::new(),
            to_retransmit: VecDeque::new(),
            in_flight: 0,
            feedback_us: 0,
            timeout_us: TIMEOUT_US,
            dead: None,
            burst_us: u64::MAX,
            log: Log::default(),
        }
    }

    fn link(&self, path: Entropy) -> u64 {
        Rng::new(self.salt ^ u64::from(path.bits())).below(LINKS)
    }

    /// Runs for `rtts` round trips.
    fn run(&mut self, rtts: u64) {
        for _ in 0..rtts {
            self.log.sent.push(0);
            self.log.lost.push(0);
            for _ in 0..RTT_US {
                self.receive();
                self.find_losses();
                self.time_out();
                self.send();
                self.now_us += 1;
            }
        }
    }

    fn send(&mut self) {
        let paused = self.now_us % (3 * RTT_US) >= self.burst_us;
        if self.in_flight >= WINDOW || (paused && self.to_retransmit.is_empty()) {
            return;
        }
        let lost = self.to_retransmit.pop_front();
        let new = data(at(self.now_us), lost.map_or(self.psn, |packet| packet.psn));
        let out = Outgoing {
            retransmit: lost.is_some(),
            lost_on: lost.map(|packet| packet.path),
            in_flight_bytes: self.in_flight * 4096,
            ..new
        };
        let path = self.lb.pick(&out).entropy;
        self.psn += u64::from(lost.is_none());
        self.in_flight += 1;
        let random = self.rng.per_million(self.loss_per_million);
        let arrives = !random && self.dead != Some(self.link(path));
        *self.log.sent.last_mut().unwrap() += 1;
        if !arrives {
            *self.log.lost.last_mut().unwrap() += 1;
            self.log.last_loss_us = self.now_us;
            self.log.lost_retransmissions += u64::from(out.retransmit);
        }
        self.in_transit.push_back(Packet { psn: out.psn, path, sent_us: self.now_us, arrives });
    }

    fn receive(&mut self) {
        let due = |p: &Packet| p.sent_us + RTT_US <= self.now_us;
        let Some(packet) = self.in_transit.pop_front_if(|p| due(p)) else { return };
        if !packet.arrives {
            self.missing.push_back(packet);
            return;
        }
        self.in_flight -= 1;
        (self.feedback_us, self.timeout_us) = (self.now_us, TIMEOUT_US);
        let ack = acked(packet.path, at(packet.sent_us), RTT_US);
        self.lb.on_ack(at(self.now_us), &ack);
    }

    /// A packet is lost when one sent ten later has arrived.
    fn find_losses(&mut self) {
        let arrived = self.feedback_us.saturating_sub(RTT_US);
        while let Some(packet) = self.missing.pop_front_if(|p| p.sent_us + 10 <= arrived) {
            self.lose(packet, LossKind::Rack);
        }
    }

    fn time_out(&mut self) {
        if self.in_flight == 0 || self.now_us < self.feedback_us + self.timeout_us {
            return;
        }
        self.lb.on_timeout(at(self.now_us));
        self.feedback_us = self.now_us;
        self.timeout_us *= 2;
        while let Some(packet) = self.missing.pop_front() {
            self.lose(packet, LossKind::Timeout);
        }
    }

    fn lose(&mut self, packet: Packet, kind: LossKind) {
        self.in_flight -= 1;
        let loss = lost(packet.path, 1, at(packet.sent_us));
        self.lb.on_loss(at(self.now_us), &PathLoss { kind, ..loss });
        self.to_retransmit.push_back(packet);
    }

    /// Runs ten round trips, then fails a link in use.
    fn fail(mut self) -> Self {
        self.run(10);
        let used = self.lb.paths(at(self.now_us)).last().unwrap().path;
        self.dead = Some(self.link(used));
        self
    }

    /// Runs `rtts` more round trips.
    fn then(mut self, rtts: u64) -> Self {
        self.run(rtts);
        self
    }

    /// The send time of the last lost packet, in microseconds since the failure.
    fn last_loss_us(&self) -> u64 {
        self.log.last_loss_us.saturating_sub(10 * RTT_US)
    }

    /// Lost packets in a million, from round trip `from` after the failure on.
    fn loss_per_million(&self, from: usize) -> u64 {
        let (sent, lost) = (&self.log.sent[10 + from..], &self.log.lost[10 + from..]);
        lost.iter().sum::<u64>() * 1_000_000 / sent.iter().sum::<u64>()
    }
}

/// Lost packets in a million, from round trip `from` to 100 after the failure, of many flows.
fn after_failure(choice: &str, from: usize) -> u64 {
    let loss = |seed| Net::new(choice, seed).fail().then(100).loss_per_million(from);
    (0..SEEDS).map(loss).sum::<u64>() / SEEDS
}

#[test]
fn failure__unolb_leaves_within_two_round_trips() {
    // The failure is detected after one round trip; a subflow reroutes four packets later. One in
    // eight new paths uses the dead link as well, which is detected another round trip later.
    let mut second = 0;
    for seed in 0..SEEDS {
        let us = Net::new("unolb", seed).fail().then(100).last_loss_us();
        assert!(us <= 5 * RTT_US, "seed {seed}: {us} us");
        second += u64::from(us > 3 * RTT_US / 2);
    }
    assert!(second <= SEEDS / 4, "{second} of {SEEDS} moved more than once");
    assert!(after_failure("unolb", 2) < 1_000, "less than 1 in 1000 from the second on");
}

#[test]
fn failure__unolb_retransmits_only_on_live_paths() {
    for seed in 0..SEEDS {
        let net = Net::new("unolb", seed).fail().then(100);
        assert!(net.lb.counters().retransmits >= 10);
        assert_eq!(net.log.lost_retransmissions, 0, "seed {seed}");
    }
}

#[test]
fn failure__unolb_under_random_loss_leaves_only_the_dead_link() {
    for seed in 0..SEEDS {
        let mut net = Net::new("unolb", seed);
        net.loss_per_million = 10_000;
        net.run(100);
        assert_eq!(net.lb.counters().reroutes, 0, "seed {seed}: live paths are kept");
        net = net.fail().then(10);
        let reroutes = net.lb.counters().reroutes;
        assert!(reroutes > 0);
        net.run(100);
        assert_eq!(net.lb.counters().reroutes, reroutes, "seed {seed}: reroutes have stopped");
        // Random loss continues: 1 %, over 100 round trips of 100 packets.
        assert!(net.loss_per_million(120) < 15_000);
    }
}

#[test]
fn failure__unolb_with_pauses_leaves_after_four_losses_and_not_for_one() {
    for seed in 0..SEEDS {
        let mut net = Net::new("unolb", seed);
        // Two packets on each subflow, then a pause.
        net.burst_us = 20;
        net.loss_per_million = 10_000;
        net.run(300);
        assert!(net.lb.counters().reroutes <= 1, "seed {seed}: {:?}", net.lb.counters());
        net.loss_per_million = 0;
        net = net.fail();
        net.run(60);
        let lost: u64 = net.log.lost[net.log.lost.len() - 30..].iter().sum();
        assert_eq!(lost, 0, "seed {seed}");
    }
}

#[test]
fn failure__a_dead_path_is_not_reused() {
    for seed in 0..SEEDS {
        let net = Net::new("unolb", seed).fail().then(100);
        let dead = net.dead.unwrap();
        let in_use = |state| matches!(state, PathState::Live | PathState::Suspect);
        for report in net.lb.paths(at(net.now_us)).filter(|r| net.link(r.path) == dead) {
            assert!(!in_use(report.state), "seed {seed}: {report:?}");
        }
    }
}

#[test]
fn failure__plb_recovers_after_timeouts() {
    for choice in ["plb", "plb-linux", "plb-uno"] {
        let silent = Net::new(choice, 1).fail().then(1).loss_per_million(0);
        assert_eq!(silent, 1_000_000, "{choice} has one path");
        assert!(after_failure(choice, 4) < 5_000, "{choice}");
        let net = Net::new(choice, 1).fail().then(100);
        assert!(net.lb.counters().path_changes >= 1);
    }
}

#[test]
fn failure__reps_avoids_dead_paths() {
    assert!(after_failure("reps", 2) < 1_000);
}

#[test]
fn failure__spraying_and_ecmp_never_adapt() {
    for choice in ["rps", "rps-rr"] {
        let lost = after_failure(choice, 50);
        assert!((110_000..140_000).contains(&lost), "{choice}: {lost}, one in eight");
    }
    assert_eq!(after_failure("ecmp", 20), 1_000_000);
}

const LINKS: u64 = 8;
const RTT_US: u64 = 100;
const TIMEOUT_US: u64 = 3 * RTT_US;
/// Packets in flight at most: with losses, more than a packet a microsecond needs.
const WINDOW: u64 = 2 * RTT_US;
const SEEDS: u64 = 50;
