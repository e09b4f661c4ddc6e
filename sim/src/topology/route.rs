//! Shortest paths through a topology, and the properties of one.

use super::{Topology, TopologyError};
use spanwire_base::{Dur, Rate, u64_from};
use std::collections::VecDeque;

/// For every node and every host, the ports on a shortest path. Hosts do not forward.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: usize,
    /// By destination, then by node: the distance in links, `FAR` if unreachable.
    distance: Vec<Vec<u32>>,
    /// By destination, then by node.
    ports: Vec<Vec<Vec<u8>>>,
}

/// The properties of a path without other traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathInfo {
    /// The rate of each link, in path order.
    pub rates: Vec<Rate>,
    /// Propagation delay of all links together.
    pub delay: Dur,
    /// The nodes on the path, including both hosts.
    pub nodes: Vec<u32>,
}

impl Topology {
    /// Computes all shortest paths, counted in links. O(hosts x links).
    #[must_use]
    pub fn routes(&self) -> Routes {
        let ports = self.ports();
        let hosts = self.hosts.len();
        let mut routes = Routes { hosts, distance: Vec::new(), ports: Vec::new() };
        for to in 0..hosts {
            let mut distance = vec![FAR; ports.len()];
            distance[to] = 0;
            let mut queue = VecDeque::from([to]);
            while let Some(node) = queue.pop_front() {
                if node < hosts && node != to {
                    continue;
                }
                for port in &ports[node] {
                    let peer = port.peer.node as usize;
                    if distance[peer] == FAR {
                        distance[peer] = distance[node] + 1;
                        queue.push_back(peer);
                    }
                }
            }
            let nearer = |node: usize| {
                let passes = |peer: u32| peer as usize >= hosts || peer as usize == to;
                let leads = |peer: u32| {
                    passes(peer)
                        && distance[peer as usize] < FAR
                        && distance[peer as usize] + 1 == distance[node]
                };
                let of_node = ports[node].iter().filter(|p| leads(p.peer.node));
                of_node.map(|p| p.number).collect()
            };
            routes.ports.push((0..ports.len()).map(nearer).collect());
            routes.distance.push(distance);
        }
        routes
    }

    /// The path that takes the first port of each group; `None` if the host is unreachable. It
    /// represents all of them if equal-cost paths are alike, as in every fabric of this module.
    #[must_use]
    pub fn path(&self, routes: &Routes, from: u32, to: u32) -> Option<PathInfo> {
        let mut path = PathInfo { rates: Vec::new(), delay: Dur::ZERO, nodes: vec![from] };
        let mut at = from;
        while at != to {
            let number = *routes.ports(at, to).first()?;
            let end = |p: super::Plug| p.node == at && p.port == number;
            let cable = self.links.iter().find(|c| end(c.a) || end(c.b))?;
            path.rates.push(cable.rate());
            path.delay = path.delay + cable.delay();
            at = if end(cable.a) { cable.b.node } else { cable.a.node };
            path.nodes.push(at);
        }
        Some(path)
    }
}

impl Routes {
    /// The ports of `node` on shortest paths to the host `to`, ascending; empty if it is
    /// unreachable, or is `node`.
    #[must_use]
    pub fn ports(&self, node: u32, to: u32) -> &[u8] {
        &self.ports[to as usize][node as usize]
    }

    /// The distance in links between a node and the host `to`; `None` if it is unreachable.
    #[must_use]
    pub fn hops(&self, node: u32, to: u32) -> Option<u32> {
        Some(self.distance[to as usize][node as usize]).filter(|d| *d < FAR)
    }

    pub(super) fn check_reachable(&self) -> Result<(), TopologyError> {
        for (to, distance) in (0..).zip(&self.distance) {
            let from = (0..).zip(&distance[..self.hosts]).find(|(_, d)| **d == FAR);
            if let Some((from, _)) = from {
                let (from, to) = (to.min(from), to.max(from));
                return Err(TopologyError::Unreachable { from, to });
            }
        }
        Ok(())
    }
}

impl PathInfo {
    /// The rate of the slowest link.
    ///
    /// # Panics
    /// If the path has no links: a host does not send to itself through the network.
    #[must_use]
    pub fn bottleneck(&self) -> Rate {
        *self.rates.iter().min().expect("a path has links")
    }

    /// One-way delay of a single frame of `wire_bytes`, including all overhead.
    #[must_use]
    pub fn one_way(&self, wire_bytes: u64) -> Dur {
        self.rates.iter().fold(self.delay, |sum, rate| sum + rate.time_for(wire_bytes))
    }

    /// The round trip of a frame of `there` wire bytes that is answered at once with one of `back`.
    #[must_use]
    pub fn base_rtt(&self, there: u64, back: u64) -> Dur {
        self.one_way(there) + self.one_way(back)
    }

    /// Ideal (unloaded) FCT of packets with `wire_bytes` in total, the first of `first_bytes`:
    /// propagation, the first packet's serialisation at each link, the others' at the bottleneck.
    #[must_use]
    pub fn ideal_fct(&self, first_bytes: u64, wire_bytes: u64) -> Dur {
        let rest = wire_bytes.saturating_sub(first_bytes);
        self.one_way(first_bytes) + self.bottleneck().time_for(rest)
    }

    /// The number of links.
    #[must_use]
    pub fn hops(&self) -> u64 {
        u64_from(self.rates.len())
    }
}

const FAR: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts, two paths of two switches, and a host in between that would offer a shorter one.
    fn diamond() -> Topology {
        let mut t = Topology::default();
        let hosts = ["a", "b"].map(|n| t.add_host(n));
        let [s, x, y, e] = ["s", "x", "y", "e"].map(|n| t.add_switch(n));
        let (fast, slow) = (Rate::from_gbps(10), Rate::from_gbps(1));
        t.connect(hosts[0], s, fast, Dur::from_ns(100));
        t.connect(s, x, slow, Dur::from_ns(200));
        t.connect(s, y, slow, Dur::from_ns(200));
        t.connect(x, e, fast, Dur::from_ns(300));
        t.connect(y, e, fast, Dur::from_ns(300));
        t.connect(e, hosts[1], fast, Dur::from_ns(400));
        t
    }

    #[test]
    fn routes__hold_all_shortest_paths() {
        let t = diamond();
        t.validate().unwrap();
        let r = t.routes();
        assert_eq!(r.ports(2, 1), [1, 2], "both next hops");
        assert_eq!(r.ports(2, 0), [0]);
        assert_eq!((r.hops(0, 1), r.hops(1, 0), r.hops(5, 1)), (Some(4), Some(4), Some(1)));
        assert_eq!(r.ports(1, 1), [] as [u8; 0]);
    }

    #[test]
    fn path__sums_what_is_on_it() {
        let t = diamond();
        let p = t.path(&t.routes(), 0, 1).unwrap();
        assert_eq!(p.nodes, [0, 2, 3, 5, 1]);
        assert_eq!(
            (p.hops(), p.delay, p.bottleneck()),
            (4, Dur::from_ns(1000), Rate::from_gbps(1))
        );
        // 1250 bytes: 1 us at 10 Gbit/s, 10 us at 1.
        assert_eq!(p.one_way(1250), Dur::from_us(1 + 3 + 10));
        assert_eq!(p.base_rtt(1250, 0), Dur::from_us(15));
        assert_eq!(p.ideal_fct(1250, 12_500), Dur::from_us(14 + 90));
    }

    #[test]
    fn routes__hosts_do_not_forward() {
        let mut t = Topology::default();
        let [a, b] = ["a", "b"].map(|n| t.add_host(n));
        let [s, x] = ["s", "x"].map(|n| t.add_switch(n));
        for (n, m) in [(a, s), (b, x), (s, x)] {
            t.connect(n, m, Rate::from_gbps(1), Dur::ZERO);
        }
        assert_eq!(t.routes().hops(a, b), Some(3));
    }
}
