//! Topologies of experiments from the literature.

use super::{Role, Topology};
use spanwire_base::{Dur, Rate};

/// Leaves with hosts, each leaf joined to every spine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpine {
    /// Leaf switches, at least 1.
    pub leaves: u32,
    /// Hosts of each leaf.
    pub hosts_per_leaf: u32,
    /// Spine switches.
    pub spines: u32,
    /// Links from each leaf to each spine.
    pub links_per_spine: u32,
    /// Rate of the hosts' links.
    pub host_rate: Rate,
    /// Rate of the links between switches.
    pub fabric_rate: Rate,
    /// Propagation delay of the hosts' links.
    pub host_delay: Dur,
    /// Propagation delay of the links between switches.
    pub fabric_delay: Dur,
}

/// Pods of edge and aggregation switches, joined by cores.
///
/// Each aggregation switch `a` of a pod is joined to the cores `a * cores_per_agg` and the
/// following; so cores come in groups, one for each place of an aggregation switch in its pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatTree {
    /// Pods.
    pub pods: u32,
    /// Edge switches of a pod.
    pub edges: u32,
    /// Aggregation switches of a pod, each joined to all its edge switches.
    pub aggs: u32,
    /// Cores that each aggregation switch is joined to.
    pub cores_per_agg: u32,
    /// Hosts of each edge switch.
    pub hosts_per_edge: u32,
    /// Rate of the hosts' links.
    pub host_rate: Rate,
    /// Rate of the links between switches.
    pub fabric_rate: Rate,
    /// Propagation delay of every link.
    pub delay: Dur,
}

/// The links between two datacenters' border switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Border {
    /// Number of links.
    pub links: u32,
    /// The rate of each.
    pub rate: Rate,
    /// Propagation delay of each.
    pub delay: Dur,
    /// Rate of the link from each core or spine to its border switch.
    pub inner_rate: Rate,
    /// Propagation delay of those.
    pub inner_delay: Dur,
}

/// The structure of a datacenter. Hosts are added separately, because they precede all switches of
/// a topology.
trait Shape {
    fn hosts(&self) -> u32;
    /// Adds the switches and links for hosts from number `first_host`; returns the top switches.
    fn build(&self, t: &mut Topology, dc: &str, first_host: u32) -> Vec<u32>;
}

impl Topology {
    /// Two hosts and a cable.
    #[must_use]
    pub fn pair(rate: Rate, delay: Dur) -> Self {
        let mut t = with_hosts(2);
        t.connect(0, 1, rate, delay);
        t
    }

    /// `senders` hosts and one receiver, the last host, at one switch.
    #[must_use]
    pub fn star(senders: u32, rate: Rate, delay: Dur) -> Self {
        let mut t = with_hosts(senders + 1);
        let hub = t.add_switch("hub");
        for host in 0..=senders {
            t.connect(host, hub, rate, delay);
        }
        t
    }

    /// `n` hosts on the left (0 to n - 1), as many on the right, and one link between the two
    /// switches, of the same `rate` as the others.
    #[must_use]
    pub fn dumbbell(n: u32, rate: Rate, host_delay: Dur, middle_delay: Dur) -> Self {
        let mut t = with_hosts(2 * n);
        let [left, right] = ["left", "right"].map(|name| t.add_switch(name));
        for host in 0..2 * n {
            t.connect(host, if host < n { left } else { right }, rate, host_delay);
        }
        t.connect(left, right, rate, middle_delay);
        t
    }

    /// A leaf-spine network.
    #[must_use]
    pub fn leaf_spine(shape: &LeafSpine) -> Self {
        let mut t = with_hosts(shape.hosts());
        shape.build(&mut t, "", 0);
        t
    }

    /// A fat tree.
    #[must_use]
    pub fn fat_tree(shape: &FatTree) -> Self {
        let mut t = with_hosts(shape.hosts());
        shape.build(&mut t, "", 0);
        t
    }

    /// Uno's network: two fat trees of 128 hosts, 100 Gbit/s, 1 us a link, and `trunk_links` border
    /// links of 100 Gbit/s. `border_delay` is added to the one-way delay.
    ///
    /// The paper gives every core eight links to its border switch. This topology combines them
    /// into one of 800 Gbit/s, because a switch has at most 128 ports.
    ///
    /// # Source
    /// Uno 4 (SC'25) and its artifact (border delay 886.5 us: 128 times the inner RTT).
    #[must_use]
    pub fn uno(trunk_links: u32, border_delay: Dur) -> Self {
        let border = Border {
            links: trunk_links,
            rate: Rate::from_gbps(100),
            delay: border_delay,
            inner_rate: Rate::from_gbps(800),
            inner_delay: Dur::from_us(1),
        };
        two_datacenters(&FatTree::of_k(8, Rate::from_gbps(100), Dur::from_us(1)), &border, "border")
    }

    /// MLCC's network: two datacenters of 128 hosts at 25 Gbit/s, four leaves and two spines each,
    /// and one DCI switch each with a long link of 100 Gbit/s.
    ///
    /// # Source
    /// MLCC 4 and figure 1: server links 1 us, others 5 us, the long one 3 ms (1 ms in
    /// 4.5); 32 servers a leaf follow from 4:1 oversubscription. These delays make 6.044 ms both
    /// ways; the paper rounds to 6.
    #[must_use]
    pub fn mlcc(long_delay: Dur) -> Self {
        Self::mlcc_of(2, long_delay)
    }

    /// [`Topology::mlcc`] with so many spines in each datacenter. With one, flows of a leaf share
    /// its link, as where their hashes select the same spine.
    #[must_use]
    pub fn mlcc_of(spines: u32, long_delay: Dur) -> Self {
        let dc = LeafSpine {
            leaves: 4,
            hosts_per_leaf: 32,
            spines,
            links_per_spine: 1,
            host_rate: Rate::from_gbps(25),
            fabric_rate: Rate::from_gbps(100),
            host_delay: Dur::from_us(1),
            fabric_delay: Dur::from_us(5),
        };
        let border = Border {
            links: 1,
            rate: Rate::from_gbps(100),
            delay: long_delay,
            inner_rate: Rate::from_gbps(100),
            inner_delay: Dur::from_us(5),
        };
        two_datacenters(&dc, &border, "dci")
    }

    /// Reflex's network: two datacenters of four leaves with four hosts, four spines, 100 Gbit/s
    /// and 1 us a link; one external switch each, and between them 1.6 Tbit/s and 500 us.
    ///
    /// # Source
    /// Reflex IV: 16 hosts and 9 switches a datacenter, round trips 8 us and 1012 us.
    #[must_use]
    pub fn reflex() -> Self {
        let dc = LeafSpine {
            leaves: 4,
            hosts_per_leaf: 4,
            spines: 4,
            links_per_spine: 1,
            host_rate: Rate::from_gbps(100),
            fabric_rate: Rate::from_gbps(100),
            host_delay: Dur::from_us(1),
            fabric_delay: Dur::from_us(1),
        };
        let border = Border {
            links: 1,
            rate: Rate::from_gbps(1600),
            delay: Dur::from_us(500),
            inner_rate: Rate::from_gbps(100),
            inner_delay: Dur::from_us(1),
        };
        two_datacenters(&dc, &border, "esw")
    }
}

impl FatTree {
    /// PACC's fat tree of 320 hosts at 25 Gbit/s: five pods of four edge and four aggregation
    /// switches, sixteen cores, 100 Gbit/s between switches, 1 us a link.
    ///
    /// # Source
    /// PACC II; the pods are those of HPCC's artifact, mix/fat.txt.
    #[must_use]
    pub fn pacc() -> Self {
        Self {
            pods: 5,
            edges: 4,
            aggs: 4,
            cores_per_agg: 4,
            hosts_per_edge: 16,
            host_rate: Rate::from_gbps(25),
            fabric_rate: Rate::from_gbps(100),
            delay: Dur::from_us(1),
        }
    }

    /// The fat tree of switches with `k` ports and equal links: k^3/4 hosts.
    ///
    /// # Panics
    /// If `k` is odd or below 2.
    ///
    /// # Source
    /// Al-Fares et al., "A Scalable, Commodity Data Center Network Architecture", SIGCOMM'08.
    #[must_use]
    pub fn of_k(k: u32, rate: Rate, delay: Dur) -> Self {
        assert!(k >= 2 && k.is_multiple_of(2), "half of a switch's ports go up, half down");
        let half = k / 2;
        Self {
            pods: k,
            edges: half,
            aggs: half,
            cores_per_agg: half,
            hosts_per_edge: half,
            host_rate: rate,
            fabric_rate: rate,
            delay,
        }
    }
}

impl Shape for FatTree {
    fn hosts(&self) -> u32 {
        self.pods * self.edges * self.hosts_per_edge
    }

    fn build(&self, t: &mut Topology, dc: &str, first_host: u32) -> Vec<u32> {
        let mut host = first_host;
        let groups = self.aggs * self.cores_per_agg;
        let mut pods = Vec::new();
        for pod in 0..self.pods {
            let edges = switches(t, Role::Edge, self.edges, &format!("{dc}edge{pod}."));
            let aggs = switches(t, Role::Aggregation, self.aggs, &format!("{dc}agg{pod}."));
            pods.push((edges, aggs));
        }
        let cores = switches(t, Role::Core, groups, &format!("{dc}core"));
        for (edges, aggs) in &pods {
            for edge in edges {
                for _ in 0..self.hosts_per_edge {
                    t.connect(host, *edge, self.host_rate, self.delay);
                    host += 1;
                }
                for agg in aggs {
                    t.connect(*edge, *agg, self.fabric_rate, self.delay);
                }
            }
            for (agg, group) in aggs.iter().zip(cores.chunks(self.cores_per_agg as usize)) {
                for core in group {
                    t.connect(*agg, *core, self.fabric_rate, self.delay);
                }
            }
        }
        cores
    }
}

impl Shape for LeafSpine {
    fn hosts(&self) -> u32 {
        self.leaves * self.hosts_per_leaf
    }

    fn build(&self, t: &mut Topology, dc: &str, first_host: u32) -> Vec<u32> {
        let mut host = first_host;
        let leaves = switches(t, Role::Leaf, self.leaves, &format!("{dc}leaf"));
        let spines = switches(t, Role::Spine, self.spines, &format!("{dc}spine"));
        for leaf in &leaves {
            for _ in 0..self.hosts_per_leaf {
                t.connect(host, *leaf, self.host_rate, self.host_delay);
                host += 1;
            }
            for spine in &spines {
                for _ in 0..self.links_per_spine {
                    t.connect(*leaf, *spine, self.fabric_rate, self.fabric_delay);
                }
            }
        }
        spines
    }
}

/// Two datacenters: the hosts of both, then the switches of both, then a border switch each and
/// their links.
fn two_datacenters(shape: &impl Shape, border: &Border, name: &str) -> Topology {
    let mut t = with_hosts(2 * shape.hosts());
    let borders = [0, 1].map(|dc| {
        let tops = shape.build(&mut t, &format!("dc{dc}."), dc * shape.hosts());
        let switch = t.add_switch_as(Role::Border, format!("dc{dc}.{name}"));
        for top in tops {
            t.connect(top, switch, border.inner_rate, border.inner_delay);
        }
        switch
    });
    for _ in 0..border.links {
        t.connect(borders[0], borders[1], border.rate, border.delay);
    }
    t
}

/// Adds `n` switches of a role, named by `name` and a number from 0.
fn switches(t: &mut Topology, role: Role, n: u32, name: &str) -> Vec<u32> {
    (0..n).map(|i| t.add_switch_as(role, format!("{name}{i}"))).collect()
}

fn with_hosts(n: u32) -> Topology {
    let mut t = Topology::default();
    for host in 0..n {
        t.add_host(format!("h{host}"));
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS_100: Rate = Rate::from_gbps(100);

    /// Numbers of hosts, switches and links, and the hops and propagation delay between two hosts.
    fn facts(t: &Topology, from: u32, to: u32) -> (usize, usize, usize, u64, Dur) {
        t.validate().unwrap();
        let path = t.path(&t.routes(), from, to).unwrap();
        (t.hosts.len(), t.switches.len(), t.links.len(), path.hops(), path.delay)
    }

    #[test]
    fn small_topologies__have_the_shape_of_their_name() {
        let us = Dur::from_us;
        let pair = Topology::pair(GBPS_100, us(3));
        assert_eq!(facts(&pair, 0, 1), (2, 0, 1, 1, us(3)));
        let star = Topology::star(32, GBPS_100, us(1));
        assert_eq!(facts(&star, 0, 32), (33, 1, 33, 2, us(2)));
        let dumbbell = Topology::dumbbell(16, GBPS_100, us(1), us(10));
        assert_eq!(facts(&dumbbell, 0, 16), (32, 2, 33, 3, us(12)));
        assert_eq!(facts(&dumbbell, 0, 1).3, 2);
    }

    #[test]
    fn fat_tree__of_k_has_the_counts_of_the_paper() {
        let t = Topology::fat_tree(&FatTree::of_k(4, GBPS_100, Dur::from_us(1)));
        assert_eq!(facts(&t, 0, 15), (16, 20, 48, 6, Dur::from_us(6)));
        let routes = t.routes();
        let from_edge = t.path(&routes, 0, 15).unwrap().nodes[1];
        assert_eq!(routes.ports(from_edge, 15).len(), 2, "both aggregation switches");
        assert_eq!((routes.hops(0, 1), routes.hops(0, 2)), (Some(2), Some(4)));
        let t = Topology::fat_tree(&FatTree::of_k(8, GBPS_100, Dur::from_us(1)));
        assert_eq!(facts(&t, 0, 127), (128, 80, 384, 6, Dur::from_us(6)));
    }

    #[test]
    fn fat_tree__pacc_has_320_hosts_and_12_us() {
        let pacc = FatTree {
            pods: 5,
            edges: 4,
            aggs: 4,
            cores_per_agg: 4,
            hosts_per_edge: 16,
            host_rate: Rate::from_gbps(25),
            fabric_rate: GBPS_100,
            delay: Dur::from_us(1),
        };
        let t = Topology::fat_tree(&pacc);
        assert_eq!(facts(&t, 0, 319), (320, 56, 320 + 80 + 80, 6, Dur::from_us(6)));
    }

    #[test]
    fn leaf_spine__has_a_link_from_each_leaf_to_each_spine() {
        let laecn = LeafSpine {
            leaves: 8,
            hosts_per_leaf: 24,
            spines: 4,
            links_per_spine: 2,
            host_rate: Rate::from_gbps(25),
            fabric_rate: GBPS_100,
            host_delay: Dur::from_us(1),
            fabric_delay: Dur::from_us(1),
        };
        let t = Topology::leaf_spine(&laecn);
        assert_eq!(facts(&t, 0, 191), (192, 12, 192 + 64, 4, Dur::from_us(4)));
        let leaf = t.path(&t.routes(), 0, 191).unwrap().nodes[1];
        assert_eq!(t.routes().ports(leaf, 191).len(), 8);
    }

    #[test]
    fn uno__round_trips_are_14_us_and_128_times_that() {
        let t = Topology::uno(8, Dur::from_ns(886_500));
        let inner = facts(&t, 0, 127);
        assert_eq!(inner, (256, 162, 2 * (384 + 16) + 8, 6, Dur::from_us(6)));
        let (.., hops, delay) = facts(&t, 0, 255);
        // host, edge, agg, core, border, border, core, agg, edge, host.
        assert_eq!((hops, delay), (9, Dur::from_ns(8_000 + 886_500)));
        let borders = [80, 161].map(|s| t.ports()[256 + s].len());
        assert_eq!(borders, [24, 24]);
    }

    #[test]
    fn mlcc__round_trip_is_6_ms() {
        let t = Topology::mlcc(Dur::from_us(3000));
        let (hosts, switches, _, hops, delay) = facts(&t, 0, 255);
        assert_eq!((hosts, switches, hops, delay * 2), (256, 14, 7, Dur::from_us(6044)));
    }

    #[test]
    fn reflex__round_trips_are_8_and_1012_us() {
        let t = Topology::reflex();
        let (hosts, switches, _, hops, delay) = facts(&t, 0, 31);
        assert_eq!((hosts, switches, hops, delay * 2), (32, 18, 7, Dur::from_us(1012)));
        assert_eq!(facts(&t, 0, 15).4 * 2, Dur::from_us(8));
    }
}
