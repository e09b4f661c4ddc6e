//! The switches of a network: ports as the setup has them, routes as the topology has them.

use super::NetworkError;
use crate::setup::Setup;
use crate::topology::{Routes, Topology};
use spanwire_switch::{
    ForwardingConfig, Hop, PfcConfig, PortConfig, Prefix, Route, Switch, SwitchConfig,
};

/// The switches, in the order of the topology.
pub(super) fn build(
    topology: &Topology,
    routes: &Routes,
    setup: &Setup,
) -> Result<Vec<Switch>, NetworkError> {
    let ports = topology.ports();
    let first = topology.host_count();
    let build = |switch: u32| {
        let node = first + switch;
        let of_node = &ports[node as usize];
        let ports = of_node.iter().map(|port| {
            let cable = &topology.links[port.link];
            let pfc = setup.port.pfc.as_ref().filter(|_| cable.delay() <= setup.pfc_delay_max);
            let headroom = |pfc: &PfcConfig| PfcConfig {
                headroom_bytes: PfcConfig::headroom_for(
                    cable.rate(),
                    cable.delay(),
                    setup.mtu.max_frame_bytes(),
                ),
                ..pfc.clone()
            };
            PortConfig {
                rate: Some(cable.rate()),
                mac: Topology::switch_mac(switch, port.number),
                pfc: pfc.map(headroom),
                ..setup.port.clone()
            }
        });
        let mut config = SwitchConfig::new(ports.collect());
        config.buffer_bytes = setup.buffer_bytes;
        config.max_frame_bytes = setup.mtu.max_frame_bytes() + TELEMETRY_BYTES;
        config.seed = setup.seed.wrapping_mul(SWITCH_SEEDS) ^ u64::from(switch);
        let to_host = |host: u32| Route {
            to: Prefix::new(Topology::host_ip(host).into(), 32).expect("a whole address"),
            via: routes.ports(node, host).iter().map(|port| Hop::port(*port)).collect(),
            spread: setup.spread,
        };
        config.forwarding = ForwardingConfig::routed((0..first).map(to_host).collect());
        Switch::new(config)
            .map_err(|e| NetworkError::Switch(format!("{}: {e}", topology.name(node))))
    };
    (0..topology.node_count() - first).map(build).collect()
}

/// Any odd number: sets the seeds of switches apart from each other and from all else.
const SWITCH_SEEDS: u64 = 0xaf25_1af3_b0f0_25b5;
/// Room for a stack of telemetry records.
const TELEMETRY_BYTES: u32 = 512;
