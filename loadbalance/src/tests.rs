//! Properties of every policy under any events.

mod failure;

use crate::testing::{acked, flow, lost};
use crate::{
    Balancer, Choice, Entropy, LossKind, Outgoing, PathAck, PathLoss, PathState, SelectedPath,
};
use proptest::prelude::*;
use spanwire_base::{Dur, Time};
use std::collections::{BTreeMap, BTreeSet};

/// An event of a flow; the strategy puts the time since the last one, in nanoseconds, first.
#[derive(Clone, Debug)]
enum Event {
    /// A new packet.
    Send,
    /// A retransmission of one of the last packets.
    Retransmit(usize),
    /// An arrival of one of the last packets; several of its path are acknowledged; some were
    /// marked.
    Ack(usize, u32, u32),
    Loss(usize, u32, LossKind),
    Timeout,
    Idle,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let kind = prop_oneof![Just(LossKind::Rack), Just(LossKind::Block), Just(LossKind::Timeout),];
    let what = prop_oneof![
        20 => Just(Event::Send),
        3 => (0..RECENT).prop_map(Event::Retransmit),
        12 => (0..RECENT, 1..5u32, 0..3u32).prop_map(|(at, n, ce)| Event::Ack(at, n, ce.min(n))),
        6 => (0..RECENT, 1..6u32, kind).prop_map(|(at, n, kind)| Event::Loss(at, n, kind)),
        1 => Just(Event::Timeout),
        1 => Just(Event::Idle),
    ];
    (0..30_000u64, what)
}

/// A flow with its balancer and the packets it sent.
struct Sender {
    lb: Balancer,
    now: Time,
    psn: u64,
    sent: Vec<(u64, Entropy, Time)>,
}

impl Sender {
    fn new(text: &str, seed: u64) -> Self {
        let lb = Balancer::new(&Choice::parse(text).unwrap(), &flow(seed));
        Self { lb, now: Time::ZERO, psn: 0, sent: Vec::new() }
    }

    /// The number of reroutes away from each path.
    fn reroutes_by_path(&self) -> BTreeMap<Entropy, u64> {
        self.lb.paths(self.now).map(|report| (report.path, report.reroutes)).collect()
    }

    fn state(&self, path: Entropy) -> Option<PathState> {
        self.lb.paths(self.now).find(|report| report.path == path).map(|report| report.state)
    }

    fn recent(&self, back: usize) -> Option<(u64, Entropy, Time)> {
        self.sent.iter().rev().nth(back).copied()
    }

    fn send(&mut self, lost: Option<(u64, Entropy, Time)>) -> SelectedPath {
        let psn = lost.map_or(self.psn, |(psn, ..)| psn);
        let out = Outgoing {
            now: self.now,
            psn,
            bytes: 1000,
            retransmit: lost.is_some(),
            lost_on: lost.map(|(_, path, _)| path),
            in_flight_bytes: psn % 3 * 1000,
        };
        let picked = self.lb.pick(&out);
        self.psn += u64::from(lost.is_none());
        self.sent.push((psn, picked.entropy, self.now));
        picked
    }

    /// Applies an event; returns the pick, if there was one.
    fn apply(&mut self, wait_ns: u64, event: &Event) -> Option<SelectedPath> {
        self.now += Dur::from_ns(wait_ns);
        let now = self.now;
        match *event {
            Event::Send => return Some(self.send(None)),
            Event::Retransmit(back) => {
                return self.recent(back).map(|packet| self.send(Some(packet)));
            }
            Event::Ack(back, packets, marked) => {
                if let Some((_, path, sent_at)) = self.recent(back) {
                    let one = acked(path, sent_at, 100 + u64::from(packets));
                    self.lb.on_ack(now, &PathAck { packets, marked, ..one });
                }
            }
            Event::Loss(back, packets, kind) => {
                if let Some((_, path, sent_at)) = self.recent(back) {
                    self.lb.on_loss(now, &PathLoss { kind, ..lost(path, packets, sent_at) });
                }
            }
            Event::Timeout => self.lb.on_timeout(now),
            Event::Idle => self.now += Dur::from_ms(100),
        }
        None
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    let more = ["unolb,reroute=copy", "unolb,entropies=4", "reps,ring=1", "plb,signal=delay"];
    Choice::known().into_iter().chain(more)
}

proptest! {
    /// The seed and the events determine every path, and the tables do not grow.
    #[test]
    fn any_events__the_same_seed_selects_the_same_paths(
        events in proptest::collection::vec(event(), 1..300),
        seed in any::<u64>(),
    ) {
        for text in all() {
            let (mut a, mut b) = (Sender::new(text, seed), Sender::new(text, seed));
            for (wait, event) in &events {
                prop_assert_eq!(a.apply(*wait, event), b.apply(*wait, event), "{}", text);
            }
            let counters = a.lb.counters();
            prop_assert_eq!(counters, b.lb.counters());
            let reports: Vec<_> = a.lb.paths(a.now).collect();
            prop_assert!(reports.len() <= 64);
            let sent: u64 = reports.iter().map(|report| report.sent_packets).sum();
            prop_assert!(sent == counters.picks || counters.paths_replaced > 0);
            prop_assert!(a.lb.is_single_path() || counters.path_changes == 0);
        }
    }

    /// A subflow keeps a new path for at least a base round trip, and no subflow takes a path
    /// remembered as dead.
    #[test]
    fn any_events__unolb_reroutes_once_a_round_trip_and_not_back(
        events in proptest::collection::vec(event(), 1..400),
        seed in any::<u64>(),
    ) {
        let mut sender = Sender::new("unolb", seed);
        let mut taken: BTreeMap<Entropy, Time> = BTreeMap::new();
        let mut gone: BTreeSet<Entropy> = BTreeSet::new();
        for (wait, event) in &events {
            let reroutes = sender.lb.counters().reroutes;
            let before = sender.reroutes_by_path();
            let Some(picked) = sender.apply(*wait, event) else {
                prop_assert_eq!(sender.lb.counters().reroutes, reroutes, "only with a packet");
                continue;
            };
            if sender.lb.counters().reroutes == reroutes {
                prop_assert!(!gone.contains(&picked.entropy), "a dead path is not used");
                continue;
            }
            let now = sender.reroutes_by_path();
            let mut counts = now.into_iter();
            let replaced = counts.find(|(path, n)| before.get(path).is_some_and(|m| m != n));
            let (replaced, _) = replaced.expect("a path was replaced");
            if let Some(since) = taken.remove(&replaced) {
                prop_assert!(sender.now >= since + Dur::from_us(100));
            }
            prop_assert!(sender.state(picked.entropy) != Some(PathState::Bad));
            taken.insert(picked.entropy, sender.now);
            gone.insert(replaced);
            gone.remove(&picked.entropy);
        }
    }

    /// The packets of a block take different paths, whatever events come before and in between.
    #[test]
    fn any_events__unolb_gives_each_packet_of_a_block_its_own_path(
        events in proptest::collection::vec(event(), 1..400),
        seed in any::<u64>(),
        subflows in 2..=32usize,
    ) {
        let mut sender = Sender::new(&format!("unolb,subflows={subflows}"), seed);
        let mut block = Vec::new();
        for (wait, event) in &events {
            let new = matches!(event, Event::Send);
            if let Some(picked) = sender.apply(*wait, event).filter(|_| new) {
                prop_assert!(!block.contains(&picked.entropy), "{block:?}");
                block.push(picked.entropy);
                // The last n - 1 packets and the next one are a block with any start.
                if block.len() == subflows {
                    block.remove(0);
                }
            }
        }
    }
}

#[test]
fn seeds__two_flows_do_not_coincide() {
    for text in all() {
        let paths = |seed| -> Vec<Entropy> {
            let mut sender = Sender::new(text, seed);
            (0..64).map(|_| sender.send(None).entropy).collect()
        };
        let mut same = 0;
        for seed in 0..200 {
            let (a, b) = (paths(seed), paths(seed + 1));
            same += a.iter().zip(&b).filter(|(a, b)| a == b).count();
        }
        // By chance: 200 x 64 pairs of 16384, or, for a flow with a single path, 64 at a time.
        assert!(same <= 3 * 64, "{text}: {same} of 12800");
    }
}

/// The number of recent packets to which events apply.
const RECENT: usize = 40;
