//! Time series of a DCI switch, which connects a datacenter to others, and of the datacenter behind
//! it.

use crate::app::Traffic;
use crate::network::Network;
use crate::topology::Cable;
use crate::workload::Flow;
use serde::Serialize;
use spanwire_base::{PortId, Rate, u32_from, usize_from};
use spanwire_switch::Switch;
use spanwire_transport::Host;
use spanwire_wire::Qpn;

/// Time series of a DCI switch and its datacenter. Every list has one entry a sample.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct DciSeries {
    /// The switch.
    pub switch: String,
    /// Bytes queued at its ports that lead into the datacenter.
    pub bytes: Vec<u64>,
    /// Bytes queued at all switches of the datacenter, this one included.
    pub behind_bytes: Vec<u64>,
    /// Pause frames that those switches have sent so far.
    pub pauses: Vec<u64>,
    /// By flow that comes from another datacenter.
    pub flows: Vec<DciFlowSeries>,
}

/// Time series of a flow that comes from another datacenter.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct DciFlowSeries {
    /// The flow's place in the list of all.
    pub flow: u32,
    /// The rate at which its sender may send, Gbit/s; 0 if its window alone decides.
    pub sending_gbps: Vec<f64>,
    /// Bytes that wait at the switch, and the rate at which it lets them in, Gbit/s. Empty without
    /// MLCC.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_bytes: Vec<u64>,
    /// As `waiting_bytes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credit_gbps: Vec<f64>,
}

/// Takes the samples of a DCI switch.
#[derive(Debug)]
pub(super) struct DciProbe {
    /// Its place among the switches, and those of its datacenter.
    at: usize,
    behind: Vec<usize>,
    inside: Vec<usize>,
    /// The host and the queue pair that send each flow, and its place in the series.
    senders: Vec<(usize, Qpn, usize)>,
    series: DciSeries,
}

impl DciProbe {
    /// A probe of the switch of this name; `None` if there is none. Its datacenter is all switches
    /// whose names have the same first part, up to a dot.
    pub(super) fn new(network: &Network, name: &str) -> Option<Self> {
        let dc = name.split('.').next().unwrap_or(name);
        let is_behind = |own: &str| own.split('.').next() == Some(dc);
        let topology = network.topology();
        let name_of = |place: usize| topology.name(topology.host_count() + u32_from(place));
        let all = 0..network.switches().count();
        let at = all.clone().find(|place| name_of(*place) == name)?;
        let behind = all.filter(|place| is_behind(name_of(*place))).collect();
        let node = topology.host_count() + u32_from(at);
        let leads_in = |peer: u32| peer < topology.host_count() || is_behind(topology.name(peer));
        let ports = &topology.ports()[usize_from(node.into())];
        let inside = ports.iter().filter(|port| leads_in(port.peer.node));
        let inside = inside.map(|port| usize::from(port.number)).collect();
        let dc_of = |host: u32| is_behind(leaf_of(network, host));
        let crosses = |(_, flow): &(u32, &Flow)| !dc_of(flow.src) && dc_of(flow.dst);
        let flow = |(flow, _)| DciFlowSeries { flow, ..DciFlowSeries::default() };
        let flows = (0..).zip(network.flows()).filter(crosses).map(flow).collect();
        let series = DciSeries { switch: name.to_owned(), flows, ..DciSeries::default() };
        let place = |flow: u32| series.flows.iter().position(|own| own.flow == flow);
        let of_host = |(host, sim): (usize, &Host<Traffic>)| {
            let own = sim.app().requesting().map(move |state| (host, state.qpn, state.flow));
            own.collect::<Vec<_>>()
        };
        let all = network.engines().enumerate().flat_map(of_host);
        let senders = all.filter_map(|(host, qpn, flow)| Some((host, qpn, place(flow)?)));
        let senders = senders.collect();
        Some(Self { at, behind, inside, senders, series })
    }

    /// Takes a sample. O(switches of the datacenter, flows).
    pub(super) fn sample(&mut self, network: &Network) {
        let now = network.world.now();
        let switches: Vec<&Switch> = network.switches().map(|(_, switch)| switch).collect();
        let own = switches[self.at];
        let lengths = |switch: &Switch| switch.queue_lengths().sum::<u64>();
        let pauses = |switch: &Switch| {
            switch.counters().ports.iter().map(|port| port.pfc.pause_tx).sum::<u64>()
        };
        let behind = || self.behind.iter().map(|place| switches[*place]);
        let ports = self.inside.iter().filter_map(|port| u8::try_from(*port).ok());
        let ids = ports.filter_map(PortId::new);
        self.series.bytes.push(ids.map(|port| own.port_bytes(port)).sum());
        self.series.behind_bytes.push(behind().map(lengths).sum());
        self.series.pauses.push(behind().map(pauses).sum());
        let all: Vec<_> = own.mlcc_flows(now).collect();
        for series in &mut self.series.flows {
            let flow = network.flows()[usize_from(series.flow.into())];
            let ends = [flow.src, flow.dst].map(|host| network.setup().host_ip(host));
            let found = all.iter().find(|own| [own.source, own.dest] == ends);
            series.waiting_bytes.push(found.map_or(0, |own| own.waiting_bytes));
            series.credit_gbps.push(found.map_or(0.0, |own| to_gbps(own.rate)));
        }
        for (host, qpn, flow) in &self.senders {
            let info = network.engines().nth(*host).and_then(|host| host.endpoint().query_qp(*qpn));
            let rate = info.and_then(|info| info.flow?.rate);
            self.series.flows[*flow].sending_gbps.push(rate.map_or(0.0, to_gbps));
        }
    }

    pub(super) fn into_series(mut self) -> DciSeries {
        for flow in &mut self.series.flows {
            if flow.credit_gbps.iter().all(|gbps| *gbps <= 0.0) {
                (flow.waiting_bytes, flow.credit_gbps) = (Vec::new(), Vec::new());
            }
        }
        self.series
    }
}

/// The name of the switch that a host is joined to; empty without one.
fn leaf_of(network: &Network, host: u32) -> &str {
    let topology = network.topology();
    let of = |cable: &Cable| match (cable.a.node, cable.b.node) {
        (a, b) if a == host => Some(b),
        (a, b) if b == host => Some(a),
        _ => None,
    };
    topology.links.iter().find_map(of).map_or("", |leaf| topology.name(leaf))
}

/// A rate in Gbit/s, to the kilobit.
fn to_gbps(rate: Rate) -> f64 {
    f64::from(u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX)) / 1e6
}
