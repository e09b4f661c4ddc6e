//! Forwarding: tables and the decision for a frame.

use crate::config::{ForwardingConfig, Hop, Spread};
use crate::counters::{Drop, ForwardingCounters};
use crate::lpm::Routes;
use crate::macs::{Learned, MacTable};
use crate::parse::{ParsedFrame, ParsedIp, scale};
use spanwire_base::{Rng, Time, u32_from, u64_from, usize_from};
use spanwire_wire::MacAddr;

/// The forwarding tables of a switch.
#[derive(Debug)]
pub(crate) struct Forwarder {
    routes: Routes,
    /// (address, group), ascending.
    static_macs: Vec<(MacAddr, u32)>,
    groups: Vec<Group>,
    learned: Option<MacTable>,
    flood: bool,
    hash_seed: u64,
    rng: Rng,
    counters: ForwardingCounters,
}

/// The forwarding decision for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Switched to one port, unchanged.
    Switched(u8),
    /// Routed to one port: TTL decremented, and the next hop's address if it has one.
    Routed(Hop),
    /// Flooded to every port but its ingress.
    Flooded,
    /// Dropped.
    Dropped(Drop),
}

/// A group of equal-cost next hops.
#[derive(Debug)]
struct Group {
    hops: Vec<Hop>,
    spread: Spread,
    /// Position of the round robin.
    turn: usize,
}

impl Forwarder {
    /// Builds the tables of a validated configuration.
    pub(crate) fn new(config: &ForwardingConfig, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let hash_seed = rng.next_u64();
        let mac_seed = rng.next_u64();
        let learned =
            config.learning.then(|| MacTable::new(config.max_macs, config.ageing, mac_seed));
        let mut this = Self {
            routes: Routes::default(),
            static_macs: Vec::new(),
            groups: Vec::new(),
            learned,
            flood: config.flood,
            hash_seed,
            rng,
            counters: ForwardingCounters::default(),
        };
        this.fill(config);
        this
    }

    /// Replaces routes and static addresses. Learned addresses stay if the new configuration
    /// learns; counters and the random generator stay too.
    pub(crate) fn set(&mut self, config: &ForwardingConfig) {
        self.fill(config);
        if !config.learning {
            self.learned = None;
        } else if self.learned.is_none() {
            let seed = self.rng.next_u64();
            self.learned = Some(MacTable::new(config.max_macs, config.ageing, seed));
        }
        self.flood = config.flood;
    }

    /// The counters.
    pub(crate) fn counters(&self) -> &ForwardingCounters {
        &self.counters
    }

    /// The seed of flow hashes, which differs between switches.
    pub(crate) fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// Decides on a frame and learns its source address.
    #[inline]
    pub(crate) fn decide(&mut self, now: Time, ingress: u8, seen: &ParsedFrame) -> Decision {
        self.learn(now, ingress, seen);
        let decision = self.find(now, ingress, seen);
        self.counters.flooded += u64::from(decision == Decision::Flooded);
        decision
    }

    #[inline]
    fn learn(&mut self, now: Time, ingress: u8, seen: &ParsedFrame) {
        if let Some(table) = &mut self.learned
            && !seen.src.is_multicast()
        {
            match table.learn(now, seen.src, ingress) {
                Learned::Unchanged => {}
                Learned::Moved => self.counters.mac_moves += 1,
                Learned::Evicted => self.counters.mac_evictions += 1,
            }
        }
    }

    /// Decides on a frame.
    #[inline]
    pub(crate) fn find(&mut self, now: Time, ingress: u8, seen: &ParsedFrame) -> Decision {
        if seen.dst.is_multicast() {
            return if is_link_local(seen.dst) {
                Decision::Dropped(Drop::LinkLocal)
            } else {
                self.flood_or(Drop::NoRoute)
            };
        }
        if let Some(ip) = &seen.ip
            && let Some(decision) = self.route(seen, ip)
        {
            return decision;
        }
        self.switch(now, ingress, seen)
    }

    #[inline]
    fn route(&mut self, seen: &ParsedFrame, ip: &ParsedIp) -> Option<Decision> {
        let group = self.routes.lookup(ip.is_v6, ip.dst)?;
        if ip.is_broken {
            return Some(Decision::Dropped(Drop::BadChecksum));
        }
        Some(Decision::Routed(self.choose(group, seen)))
    }

    fn switch(&mut self, now: Time, ingress: u8, seen: &ParsedFrame) -> Decision {
        let entry = self.static_macs.binary_search_by_key(&seen.dst, |(mac, _)| *mac);
        let port = match entry {
            Ok(at) => Some(self.choose(self.static_macs[at].1, seen).port),
            Err(_) => self.learned.as_ref().and_then(|table| table.lookup(now, seen.dst)),
        };
        match port {
            Some(port) if port == ingress => Decision::Dropped(Drop::SamePort),
            Some(port) => Decision::Switched(port),
            None => self.flood_or(Drop::NoRoute),
        }
    }

    #[inline]
    fn choose(&mut self, group: u32, seen: &ParsedFrame) -> Hop {
        let group = &mut self.groups[usize_from(u64::from(group))];
        let n = group.hops.len();
        if n == 1 {
            return group.hops[0];
        }
        let at = match group.spread {
            Spread::Hash => usize_from(scale(seen.flow_hash(self.hash_seed), u64_from(n))),
            Spread::Random => usize_from(self.rng.below(u64_from(n))),
            Spread::RoundRobin => {
                let at = group.turn;
                group.turn = if at + 1 == n { 0 } else { at + 1 };
                at
            }
        };
        group.hops[at]
    }

    fn flood_or(&self, drop: Drop) -> Decision {
        if self.flood { Decision::Flooded } else { Decision::Dropped(drop) }
    }

    fn fill(&mut self, config: &ForwardingConfig) {
        self.routes = Routes::default();
        self.static_macs.clear();
        self.groups.clear();
        for route in &config.routes {
            let group = self.add_group(route.via.clone(), route.spread);
            let is_new = self.routes.insert(route.to, group);
            debug_assert!(is_new, "validation rejects a repeated network");
        }
        for entry in &config.macs {
            let hops = entry.ports.iter().map(|port| Hop::port(*port)).collect();
            let group = self.add_group(hops, entry.spread);
            self.static_macs.push((entry.mac, group));
        }
        self.static_macs.sort_unstable();
    }

    fn add_group(&mut self, hops: Vec<Hop>, spread: Spread) -> u32 {
        self.groups.push(Group { hops, spread, turn: 0 });
        u32_from(self.groups.len() - 1)
    }
}

/// Addresses that bridges do not forward: 01:80:c2:00:00:00 to 0f (IEEE 802.1Q, table 8-1).
fn is_link_local(mac: MacAddr) -> bool {
    let [a, b, c, d, e, f] = mac.0;
    [a, b, c, d, e] == [1, 0x80, 0xc2, 0, 0] && f <= 0x0f
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Route, StaticMac};
    use crate::lpm::Prefix;
    use crate::testing::{mac, roce_frame, roce_frame_of, roce_frame_v6};
    use crate::units::Human;
    use spanwire_base::Dur;

    fn route(to: &str, ports: &[u8], spread: Spread) -> Route {
        let via = ports.iter().map(|p| Hop::port(*p)).collect();
        Route { to: Prefix::parse(to).unwrap(), via, spread }
    }

    fn decide(f: &mut Forwarder, frame: &[u8]) -> Decision {
        f.decide(Time::ZERO, 0, &ParsedFrame::of(frame).unwrap())
    }

    fn to_mac(dst: MacAddr, src: MacAddr) -> Vec<u8> {
        let mut frame = [dst.0, src.0].concat();
        frame.extend([0x08, 0x06]);
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn decide__takes_the_longest_route_of_each_version() {
        let mut f = Forwarder::new(
            &ForwardingConfig::routed(vec![
                route("10.0.0.0/8", &[1], Spread::Hash),
                route("10.0.0.2/32", &[2], Spread::Hash),
                route("fd00::/16", &[3], Spread::Hash),
            ]),
            0,
        );
        assert_eq!(decide(&mut f, &roce_frame(1, 0)), Decision::Routed(Hop::port(1)));
        assert_eq!(decide(&mut f, &roce_frame(2, 0)), Decision::Routed(Hop::port(2)));
        assert_eq!(decide(&mut f, &roce_frame_v6(2, 0)), Decision::Routed(Hop::port(3)));
        let mut broken = roce_frame(1, 0);
        broken[25] ^= 1;
        assert_eq!(decide(&mut f, &broken), Decision::Dropped(Drop::BadChecksum));
        let arp = to_mac(mac(1), mac(0));
        assert_eq!(decide(&mut f, &arp), Decision::Dropped(Drop::NoRoute));
        assert_eq!(
            decide(&mut f, &to_mac(MacAddr::BROADCAST, mac(0))),
            Decision::Dropped(Drop::NoRoute)
        );
    }

    #[test]
    fn decide__learns_floods_and_never_returns_a_frame() {
        let mut f = Forwarder::new(&ForwardingConfig::default(), 0);
        let at = |f: &mut Forwarder, ingress, dst, src| {
            f.decide(Time::ZERO, ingress, &ParsedFrame::of(&to_mac(dst, src)).unwrap())
        };
        assert_eq!(at(&mut f, 0, mac(9), mac(1)), Decision::Flooded);
        assert_eq!(at(&mut f, 5, mac(1), mac(9)), Decision::Switched(0));
        assert_eq!(at(&mut f, 0, mac(9), mac(1)), Decision::Switched(5));
        assert_eq!(at(&mut f, 5, mac(9), mac(2)), Decision::Dropped(Drop::SamePort));
        assert_eq!(at(&mut f, 3, MacAddr::BROADCAST, mac(1)), Decision::Flooded);
        assert_eq!(at(&mut f, 5, mac(1), mac(9)), Decision::Switched(3), "moved");
        let group = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);
        assert_eq!(at(&mut f, 3, group, mac(1)), Decision::Dropped(Drop::LinkLocal));
        at(&mut f, 4, mac(1), MacAddr::BROADCAST);
        assert_eq!(at(&mut f, 5, MacAddr([3, 0, 0, 0, 0, 0]), mac(9)), Decision::Flooded);
        assert_eq!((f.counters().flooded, f.counters().mac_moves), (3, 1));
    }

    #[test]
    fn decide__prefers_static_addresses() {
        let entry = StaticMac { mac: mac(1), ports: vec![7], spread: Spread::Hash };
        let config = ForwardingConfig { macs: vec![entry], ..ForwardingConfig::default() };
        let mut f = Forwarder::new(&config, 0);
        decide(&mut f, &to_mac(MacAddr::BROADCAST, mac(1)));
        assert_eq!(decide(&mut f, &to_mac(mac(1), mac(2))), Decision::Switched(7));
    }

    #[test]
    fn choose__spreads_as_configured() {
        let ports = [1, 2, 3, 4];
        let run = |spread, frame: &dyn Fn(u16) -> Vec<u8>| {
            let config = ForwardingConfig::routed(vec![route("10.0.0.0/8", &ports, spread)]);
            let mut f = Forwarder::new(&config, 3);
            let mut counts = [0u32; 5];
            for i in 0..4_000 {
                match decide(&mut f, &frame(i)) {
                    Decision::Routed(hop) => counts[usize::from(hop.port)] += 1,
                    other => panic!("{other:?}"),
                }
            }
            counts
        };
        let one = run(Spread::Hash, &|_| roce_frame(1, 0));
        assert_eq!(one.iter().filter(|n| **n == 4_000).count(), 1, "a flow keeps its path");
        let many = run(Spread::Hash, &|i| roce_frame_of(1, i, 0));
        assert!(many[1..].iter().all(|n| (850..1_150).contains(n)), "{many:?}");
        let random = run(Spread::Random, &|_| roce_frame(1, 0));
        assert!(random[1..].iter().all(|n| (850..1_150).contains(n)), "{random:?}");
        assert_eq!(run(Spread::RoundRobin, &|_| roce_frame(1, 0)), [0, 1_000, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn set__changes_routes_and_keeps_learned_addresses() {
        let mut f = Forwarder::new(&ForwardingConfig::default(), 0);
        decide(&mut f, &to_mac(MacAddr::BROADCAST, mac(1)));
        let mut config = ForwardingConfig {
            routes: vec![route("10.0.0.0/8", &[2], Spread::Hash)],
            ..ForwardingConfig::default()
        };
        f.set(&config);
        assert_eq!(decide(&mut f, &roce_frame(1, 0)), Decision::Routed(Hop::port(2)));
        let seen = to_mac(mac(1), mac(2));
        assert_eq!(
            f.decide(Time::ZERO, 5, &ParsedFrame::of(&seen).unwrap()),
            Decision::Switched(0)
        );
        config.learning = false;
        config.flood = false;
        f.set(&config);
        let late = Time::ZERO + Dur::from_ms(1);
        assert_eq!(
            f.decide(late, 5, &ParsedFrame::of(&seen).unwrap()),
            Decision::Dropped(Drop::NoRoute)
        );
    }
}
