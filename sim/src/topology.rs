//! Networks as data: nodes and the links between them, with rates and delays.

mod build;
mod role;
mod route;

pub use build::{Border, FatTree, LeafSpine};
pub use role::Role;
pub use route::{PathInfo, Routes};

use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, PortId, PortMask, Rate, u32_from};
use spanwire_wire::MacAddr;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Hosts, switches and the links between them.
///
/// Nodes are numbered: the hosts first, from 0, then the switches. A host has one port, 0; the
/// ports of a switch are numbered by the links that name them. Addresses follow from the numbers
/// Names of the hosts; node `i` is `hosts[i]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Names of the hosts; node `i` is `hosts[i]`.
    pub hosts: Vec<String>,
    /// Names of the switches; node `hosts.len() + i` is `switches[i]`.
    pub switches: Vec<String>,
    /// The role of each switch. Those of switches beyond its end are [`Role::Other`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// The links, each of both directions.
    pub links: Vec<Cable>,
}

/// A link. Both directions are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cable {
    /// One end.
    pub a: Plug,
    /// The other end.
    pub b: Plug,
    /// Bits per second in each direction, above 0.
    pub rate_bps: u64,
    /// Propagation delay in picoseconds.
    pub delay_ps: u64,
}

/// A port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plug {
    /// The node's number.
    pub node: u32,
    /// The port's number, 0 for a host, below 128 for a switch.
    pub port: u8,
}

/// The reason why a topology is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopologyError {
    /// A link names a node that does not exist.
    NoSuchNode(Plug),
    /// A link names a port number that the node cannot have.
    NoSuchPort(Plug),
    /// Two links name the same port.
    PortTwice(Plug),
    /// A port number of a switch is skipped: its ports must be 0, 1, 2 and so on.
    PortMissing(Plug),
    /// A link has no rate.
    NoRate(Plug),
    /// There are more hosts than addresses.
    TooManyHosts(usize),
    /// No path leads from one host to another.
    Unreachable {
        /// The source.
        from: u32,
        /// The destination.
        to: u32,
    },
}

impl Topology {
    /// Host `host`'s address: 10.1.0.0, 10.1.0.1 and so on. Adjacent hosts share a prefix.
    #[must_use]
    pub fn host_ip(host: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_IP.to_bits() + host)
    }

    /// Its IPv6 address: [`Topology::host_ip`] behind fd00::.
    #[must_use]
    pub fn host_ip6(host: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(FIRST_IP6.to_bits() | u128::from(Self::host_ip(host).to_bits()))
    }

    /// Host `host`'s MAC address: locally administered, with its IP address in the last four bytes.
    #[must_use]
    pub fn host_mac(host: u32) -> MacAddr {
        let [a, b, c, d] = Self::host_ip(host).octets();
        MacAddr([2, 0, a, b, c, d])
    }

    /// A switch port's MAC address; `switch` counts from 0 among the switches.
    #[must_use]
    pub fn switch_mac(switch: u32, port: u8) -> MacAddr {
        let [_, a, b, c] = switch.to_be_bytes();
        MacAddr([2, 0x5a, a, b, c, port])
    }

    /// Number of hosts.
    #[must_use]
    pub fn host_count(&self) -> u32 {
        u32_from(self.hosts.len())
    }

    /// Number of nodes.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        u32_from(self.hosts.len() + self.switches.len())
    }

    /// A node's name.
    #[must_use]
    pub fn name(&self, node: u32) -> &str {
        let all = self.hosts.iter().chain(&self.switches);
        all.map(String::as_str).nth(node as usize).unwrap_or("?")
    }

    /// True for a host, false for a switch.
    #[must_use]
    pub fn is_host(&self, node: u32) -> bool {
        node < self.host_count()
    }

    /// The ports of every node in order, with their links and ends.
    #[must_use]
    pub fn ports(&self) -> Vec<Vec<Port>> {
        let mut ports = vec![Vec::new(); self.node_count() as usize];
        for (link, cable) in self.links.iter().enumerate() {
            for (here, there, is_a) in [(cable.a, cable.b, true), (cable.b, cable.a, false)] {
                if let Some(of_node) = ports.get_mut(here.node as usize) {
                    of_node.push(Port { number: here.port, link, is_a, peer: there });
                }
            }
        }
        for of_node in &mut ports {
            of_node.sort_by_key(|p| p.number);
        }
        ports
    }

    /// Checks that every link joins two free ports that exist, that no port number is skipped, and
    /// that every host reaches every other.
    ///
    /// The first defect found.
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), TopologyError> {
        if self.hosts.len() >= MAX_HOSTS {
            return Err(TopologyError::TooManyHosts(self.hosts.len()));
        }
        for cable in &self.links {
            for plug in [cable.a, cable.b] {
                if plug.node >= self.node_count() {
                    return Err(TopologyError::NoSuchNode(plug));
                }
                let ports = if self.is_host(plug.node) { 1 } else { PortMask::BITS };
                if u32::from(plug.port) >= ports {
                    return Err(TopologyError::NoSuchPort(plug));
                }
                if cable.rate_bps == 0 {
                    return Err(TopologyError::NoRate(plug));
                }
            }
        }
        for (node, ports) in (0..).zip(self.ports()) {
            for (want, port) in (0..).zip(&ports) {
                let plug = Plug { node, port: port.number };
                match port.number {
                    n if n < want => return Err(TopologyError::PortTwice(plug)),
                    n if n > want => {
                        return Err(TopologyError::PortMissing(Plug { node, port: want }));
                    }
                    _ => {}
                }
            }
        }
        self.routes().check_reachable()
    }

    /// Adds a host and returns its number. Hosts must be added before switches.
    ///
    /// # Panics
    /// If there is a switch already: its number would change.
    pub fn add_host(&mut self, name: impl Into<String>) -> u32 {
        assert!(self.switches.is_empty(), "hosts are numbered before switches");
        self.hosts.push(name.into());
        self.node_count() - 1
    }

    /// The role of a node; [`Role::Other`] for a host.
    #[must_use]
    pub fn role(&self, node: u32) -> Role {
        let switch = (node as usize).checked_sub(self.hosts.len());
        switch.and_then(|switch| self.roles.get(switch)).copied().unwrap_or_default()
    }

    /// Adds a switch without a role and returns its number.
    pub fn add_switch(&mut self, name: impl Into<String>) -> u32 {
        self.add_switch_as(Role::Other, name)
    }

    /// Adds a switch with a role and returns its number.
    pub fn add_switch_as(&mut self, role: Role, name: impl Into<String>) -> u32 {
        self.roles.resize(self.switches.len(), Role::Other);
        self.roles.push(role);
        self.switches.push(name.into());
        self.node_count() - 1
    }

    /// Connects the next free port of two nodes. Returns the link's number.
    ///
    /// # Panics
    /// If a node has no port left.
    pub fn connect(&mut self, a: u32, b: u32, rate: Rate, delay: Dur) -> usize {
        let plug = |node: u32| {
            let used = self.links.iter().flat_map(|c| [c.a, c.b]).filter(|p| p.node == node);
            let port = u8::try_from(used.count()).ok().filter(|n| PortId::new(*n).is_some());
            Plug { node, port: port.expect("a node has at most 128 ports") }
        };
        let (a, b) = (plug(a), plug(b));
        let (rate_bps, delay_ps) = (rate.as_bps(), delay.as_ps());
        self.links.push(Cable { a, b, rate_bps, delay_ps });
        self.links.len() - 1
    }
}

/// One port of a node, as [`Topology::ports`] lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its number.
    pub number: u8,
    /// The link at it, by its place in [`Topology::links`].
    pub link: usize,
    /// The port is the link's end `a`.
    pub is_a: bool,
    /// The port at the other end.
    pub peer: Plug,
}

impl Cable {
    /// Bits per second in each direction.
    ///
    /// # Panics
    /// If it is zero, which [`Topology::validate`] rejects.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.rate_bps)
    }

    /// Propagation delay.
    #[must_use]
    pub fn delay(&self) -> Dur {
        Dur::from_ps(self.delay_ps)
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |p: &Plug| format!("port {} of node {}", p.port, p.node);
        match self {
            Self::NoSuchNode(p) => write!(f, "a link names node {}, which does not exist", p.node),
            Self::NoSuchPort(p) => {
                write!(f, "{} is invalid: a host has port 0, a switch ports 0 to 127", port(p))
            }
            Self::PortTwice(p) => write!(f, "{} has two links", port(p)),
            Self::PortMissing(p) => write!(f, "{} has no link, but a later port has", port(p)),
            Self::NoRate(p) => write!(f, "the link at {} has rate 0", port(p)),
            Self::TooManyHosts(n) => write!(f, "{n} hosts; 10.0.0.0/8 has room for {MAX_HOSTS}"),
            Self::Unreachable { from, to } => write!(f, "no path leads from host {from} to {to}"),
        }
    }
}

impl std::error::Error for TopologyError {}

const FIRST_IP: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 0);
/// The prefix of IPv6 addresses: unique local (RFC 4193).
const FIRST_IP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
/// The number of addresses in 10.0.0.0/8 from the first on.
const MAX_HOSTS: usize = 255 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Topology {
        let mut t = Topology::default();
        let (a, b) = (t.add_host("a"), t.add_host("b"));
        let s = t.add_switch("s");
        t.connect(a, s, Rate::from_gbps(1), Dur::from_us(1));
        t.connect(s, b, Rate::from_gbps(1), Dur::from_us(1));
        t
    }

    #[test]
    fn host_ip__counts_through_the_bytes() {
        assert_eq!(Topology::host_ip(0), Ipv4Addr::new(10, 1, 0, 0));
        assert_eq!(Topology::host_ip(256), Ipv4Addr::new(10, 1, 1, 0));
        assert_eq!(Topology::host_ip6(256).to_string(), "fd00::a01:100");
        assert_eq!(Topology::host_mac(256), MacAddr([2, 0, 10, 1, 1, 0]));
        assert_ne!(Topology::switch_mac(0, 1), Topology::switch_mac(1, 0));
    }

    #[test]
    fn ports__come_in_order_with_their_peers() {
        let t = two();
        assert_eq!((t.name(2), t.is_host(2), t.node_count()), ("s", false, 3));
        let ports = &t.ports()[2];
        let peers: Vec<u32> = ports.iter().map(|p| p.peer.node).collect();
        assert_eq!(peers, [0, 1]);
        assert_eq!((ports[0].is_a, ports[1].is_a, ports[1].link), (false, true, 1));
    }

    #[test]
    fn validate__reports_the_defect() {
        type Case = (fn(&mut Topology), TopologyError);
        let plug = |node, port| Plug { node, port };
        let cases: [Case; 6] = [
            (|t| t.links[0].a.node = 9, TopologyError::NoSuchNode(plug(9, 0))),
            (|t| t.links[0].a.port = 1, TopologyError::NoSuchPort(plug(0, 1))),
            (|t| t.links[1].a.port = 0, TopologyError::PortTwice(plug(2, 0))),
            (|t| t.links[1].a.port = 7, TopologyError::PortMissing(plug(2, 1))),
            (|t| t.links[0].rate_bps = 0, TopologyError::NoRate(plug(0, 0))),
            (|t| t.links.truncate(1), TopologyError::Unreachable { from: 0, to: 1 }),
        ];
        assert_eq!(two().validate(), Ok(()));
        for (corrupt, want) in cases {
            let mut t = two();
            corrupt(&mut t);
            assert_eq!(t.validate(), Err(want.clone()));
            assert!(!want.to_string().is_empty());
        }
    }

    #[test]
    fn topology__is_data() {
        let text = serde_json::to_string(&two()).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), two());
    }
}
