//! Construction of a network's switches: ports from the setup, routes from the topology.

use super::error::NetworkError;
use crate::setup::{PortKind, Setup};
use crate::topology::{Port, Routes, Topology};
use spanwire_base::u32_from;
use spanwire_switch::{
    ForwardingConfig, Hop, PfcConfig, PortConfig, Prefix, Route, Switch, SwitchConfig,
};

/// The switches, in the order of the topology.
pub(super) fn build(
    topology: &Topology,
    routes: &Routes,
    flows: usize,
    setup: &Setup,
) -> Result<Vec<Switch>, NetworkError> {
    let ports = topology.ports();
    let first = topology.host_count();
    // Both directions of every flow, in sets that fill unevenly.
    let feedback_flows = u32_from(4 * flows).next_power_of_two().clamp(4096, 1 << 20);
    let build = |switch: u32| {
        let node = first + switch;
        let of_node = &ports[node as usize];
        let role = topology.role(node);
        let ports = of_node.iter().map(|port| {
            let cable = &topology.links[port.link];
            let base = setup.port_of(role, cable.rate());
            let pfc = base.pfc.as_ref().filter(|_| cable.delay() <= setup.pfc_delay_max);
            let headroom = |pfc: &PfcConfig| PfcConfig {
                headroom_bytes: PfcConfig::headroom_for(
                    cable.rate(),
                    cable.delay(),
                    setup.max_frame_bytes(),
                ),
                ..pfc.clone()
            };
            let pfc = pfc.map(headroom);
            PortConfig {
                rate: Some(cable.rate()),
                mac: Topology::switch_mac(switch, port.number),
                pfc,
                ..base
            }
        });
        let mut config = SwitchConfig::new(ports.collect());
        let kind = |port: &Port| PortKind {
            rate: topology.links[port.link].rate(),
            peer: topology.role(port.peer.node),
        };
        config.agents = setup.agents_of(role, &of_node.iter().map(kind).collect::<Vec<_>>());
        config.feedback_flows = feedback_flows;
        config.buffer_bytes = setup.buffer_of(role);
        config.max_frame_bytes = setup.max_frame_bytes() + TELEMETRY_BYTES;
        config.seed = setup.seed.wrapping_mul(SWITCH_SEEDS) ^ u64::from(switch);
        let mut table = Table { topology, routes, node, setup, list: Vec::new() };
        let bits = first.next_power_of_two().trailing_zeros().min(ALIGNED_BITS);
        (0..first).step_by(1 << bits).for_each(|host| table.add(host, bits));
        config.forwarding = ForwardingConfig::routed(table.list);
        Switch::new(config)
            .map_err(|e| NetworkError::Switch(format!("{}: {e}", topology.name(node))))
    };
    (0..topology.node_count() - first).map(build).collect()
}

/// The routes of one switch, as few as possible without nesting: adjacent hosts with equal next
/// hops share one prefix.
struct Table<'a> {
    topology: &'a Topology,
    routes: &'a Routes,
    node: u32,
    setup: &'a Setup,
    list: Vec<Route>,
}

impl Table<'_> {
    /// Adds routes to the existing hosts among the 2^`bits` from `host` on.
    fn add(&mut self, host: u32, bits: u32) {
        let end = (host + (1 << bits)).min(self.topology.host_count());
        if host >= end {
            return;
        }
        let ports = self.routes.ports(self.node, host);
        if (host + 1..end).all(|other| self.routes.ports(self.node, other) == ports) {
            let via = ports.iter().map(|port| Hop::port(*port)).collect();
            let address = self.setup.host_ip(host);
            let whole = if address.is_ipv6() { 128 } else { 32 };
            let length = u8::try_from(whole - bits).expect("at most 128");
            let to = Prefix::new(address, length);
            let to = to.expect("groups of hosts are aligned, and so is the first address");
            self.list.push(Route { to, via, spread: self.setup.spread });
            return;
        }
        self.add(host, bits - 1);
        self.add(host + (1 << (bits - 1)), bits - 1);
    }
}

/// Any odd number: separates the seeds of switches from each other and from other draws.
const SWITCH_SEEDS: u64 = 0xaf25_1af3_b0f0_25b5;
/// The first host's address is a multiple of 2^16, so larger groups are not aligned.
const ALIGNED_BITS: u32 = 16;
/// Room for a stack of telemetry records.
const TELEMETRY_BYTES: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::FatTree;
    use spanwire_base::{Dur, Rate};

    #[test]
    fn build__neighbours_share_a_route_with_the_next_hops_of_each() {
        let topology = Topology::fat_tree(&FatTree::of_k(8, Rate::from_gbps(1), Dur::ZERO));
        let routes = topology.routes();
        let switches = build(&topology, &routes, 0, &Setup::default()).unwrap();
        for (node, switch) in (128..).zip(&switches) {
            let list = &switch.config().forwarding.routes;
            assert!(list.len() <= 12, "{} has {} routes", topology.name(node), list.len());
            for host in 0..128 {
                let ip = Topology::host_ip(host);
                // The prefix length follows the slash in its text.
                let holds = |route: &&Route| {
                    let text = route.to.to_string();
                    let length: u32 = text.split('/').nth(1).unwrap().parse().unwrap();
                    let mask = u32::MAX << (32 - length);
                    route.to.addr() == std::net::Ipv4Addr::from_bits(ip.to_bits() & mask)
                };
                let ports: Vec<Vec<u8>> = list
                    .iter()
                    .filter(holds)
                    .map(|route| route.via.iter().map(|hop| hop.port).collect())
                    .collect();
                assert_eq!(ports, [routes.ports(node, host)], "one route, to all shortest paths");
            }
        }
    }
}
