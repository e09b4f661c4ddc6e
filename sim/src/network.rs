//! A network built from a topology: hosts with the engine and flows, switches with routes, links.

mod error;
mod hosts;
mod placement;
mod switches;

pub use error::NetworkError;

use crate::app::Traffic;
use crate::host::{SimHost, Storm};
use crate::ids::LinkId;
use crate::ids::NodeId;
use crate::setup::Setup;
use crate::topology::{Routes, Topology};
use crate::workload::{Flow, FlowOp};
use crate::world::World;
use spanwire_base::{Node, PortId, PortMask, RxMeta, Time, TxMeta};
use spanwire_switch::{Impairments, Line, LineConfig, Switch};
use spanwire_transport::{Host, WcStatus};
use spanwire_wire::Qpn;

/// A node of a simulated network.
#[derive(Debug)]
pub enum Machine {
    /// A host with its engines and their applications.
    Host(Box<SimHost>),
    /// A switch.
    Switch(Box<Switch>),
}

/// A simulated network with its flows.
#[derive(Debug)]
pub struct Network {
    /// Nodes and links in virtual time. Node `i` is node `i` of the topology; link `i` of the
    /// topology is the directions `2 i` (from its end a to b) and `2 i + 1`.
    pub world: World<Machine>,
    topology: Topology,
    routes: Routes,
    setup: Setup,
    flows: Vec<Flow>,
}

/// Tells the agents of switches which queue pairs send the packets of each flow.
fn tell(switches: &mut [Switch], flows: &[Flow], pairs: &[[Qpn; 2]], setup: &Setup) {
    for (flow, [requester, responder]) in flows.iter().zip(pairs) {
        let here = setup.host_ip(flow.requester());
        let there = setup.host_ip(flow.responder());
        for switch in &mut *switches {
            switch.bind_flow(here, there, *responder, *requester);
            switch.bind_flow(there, here, *requester, *responder);
        }
    }
}

/// Progress of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowProgress {
    /// When its first request was posted.
    pub started: Option<Time>,
    /// When its last byte was delivered, as reported at the destination: by the responder's receive
    /// completion, or by the requester's completion of the last READ.
    pub finished: Option<Time>,
    /// When the requester's last request completed.
    pub completed: Option<Time>,
    /// The error that ended it.
    pub failed: Option<WcStatus>,
    /// When it failed.
    pub failed_at: Option<Time>,
    /// When the responder's queue pair failed, if it did: an SR responder transmits too, so its
    /// retry limit applies.
    pub responder_failed_at: Option<Time>,
    /// Bytes of messages that completed at the requester.
    pub done_bytes: u64,
}

impl Network {
    /// Builds hosts, switches and links. No event has occurred yet.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub fn new(topology: Topology, flows: Vec<Flow>, setup: Setup) -> Result<Self, NetworkError> {
        topology.validate().map_err(NetworkError::Topology)?;
        check_flows(&flows, topology.host_count())?;
        let is_long = |f: &Flow| f.bytes / u64::from(setup.message_bytes) > MIX_MESSAGES_MAX;
        if let Some(i) = flows.iter().position(|f| f.op == FlowOp::Mix && is_long(f)) {
            let why = "a mix has at most 4 million messages: choose longer ones or fewer bytes";
            return Err(NetworkError::Flow(i, why));
        }
        let stranger = flows.iter().position(|f| setup.agreed([f.src, f.dst]).is_none());
        if let Some(i) = stranger {
            return Err(NetworkError::Flow(i, "its ends have no wire mode in common"));
        }
        let routes = topology.routes();
        let (hosts, pairs) = hosts::build(&topology, &routes, &flows, &setup)?;
        let mut switches = switches::build(&topology, &routes, flows.len(), &setup)?;
        if setup.qpns_known && !setup.agents.is_empty() {
            tell(&mut switches, &flows, &pairs, &setup);
        }
        let mut world = World::new(setup.frame_buffer_bytes());
        for host in hosts {
            world.add_node(Machine::Host(Box::new(host)));
        }
        for switch in switches {
            world.add_node(Machine::Switch(Box::new(switch)));
        }
        for (link, cable) in (0u64..).zip(&topology.links) {
            let line = |direction: u64| {
                let config = LineConfig {
                    rate: Some(cable.rate()),
                    delay: cable.delay(),
                    overhead_bytes: setup.overhead_bytes,
                    ..LineConfig::default()
                };
                let seed = setup.seed.wrapping_mul(LINE_SEEDS) ^ (2 * link + direction);
                Line::new(config, seed).map_err(|e| NetworkError::Switch(e.to_string()))
            };
            let end = |plug: crate::topology::Plug| {
                let port = PortId::new(plug.port).expect("the topology is valid");
                (NodeId::from_index(plug.node), port)
            };
            world.connect(end(cable.a), end(cable.b), [line(0)?, line(1)?]);
        }
        Ok(Self { world, topology, routes, setup, flows })
    }

    /// The topology that it was built from.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The shortest paths through it.
    #[must_use]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The settings that it was built with.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The flows, in the order given.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Both directions of a link of the topology.
    #[must_use]
    pub fn directions(&self, link: usize) -> [LinkId; 2] {
        [2 * link, 2 * link + 1].map(LinkId::from_index)
    }

    /// Applies impairments to one direction of a link from now on.
    ///
    /// # Errors
    /// The impairments are invalid.
    pub fn impair(&mut self, id: LinkId, impairments: Impairments) -> Result<(), NetworkError> {
        let line = self.world.line_mut(id);
        let config = LineConfig { impairments, ..line.config().clone() };
        line.set_config(config).map_err(|e| NetworkError::Switch(e.to_string()))
    }

    /// Starts a PFC storm at a host. Has no effect if `host` is not the number of a host.
    pub fn set_storm(&mut self, host: u32, storm: Storm) {
        if self.topology.is_host(host)
            && let Machine::Host(sim_host) = self.world.node_mut(NodeId::from_index(host))
        {
            sim_host.set_storm(storm);
        }
    }

    /// The engines with their applications: those of each host, in the order of the topology.
    pub fn engines(&self) -> impl Iterator<Item = &Host<Traffic>> {
        self.sim_hosts().flat_map(SimHost::engines)
    }

    /// The same, each with the number of its host.
    pub fn numbered_engines(&self) -> impl Iterator<Item = (u32, &Host<Traffic>)> {
        (0..).zip(self.sim_hosts()).flat_map(|(host, sim)| sim.engines().map(move |of| (host, of)))
    }

    /// The hosts with their network cards, in the order of the topology.
    pub fn sim_hosts(&self) -> impl Iterator<Item = &SimHost> {
        self.world.nodes().filter_map(|(_, machine)| machine.sim_host())
    }

    /// The switches, in the order of the topology, with their nodes.
    pub fn switches(&self) -> impl Iterator<Item = (NodeId, &Switch)> {
        self.world.nodes().filter_map(|(id, machine)| Some((id, machine.switch()?)))
    }

    /// The progress of each flow. O(flows).
    #[must_use]
    pub fn progress(&self) -> Vec<FlowProgress> {
        let mut all = vec![FlowProgress::default(); self.flows.len()];
        for host in self.engines() {
            for state in host.app().requesting() {
                let flow = &mut all[state.flow as usize];
                flow.started = state.started;
                (flow.failed, flow.failed_at) = (state.failed, state.failed_at);
                flow.done_bytes = state.done_bytes;
                flow.completed = state.finished;
                if self.flows[state.flow as usize].op == FlowOp::Read {
                    flow.finished = state.finished;
                }
            }
            for state in host.app().responding() {
                let flow = &mut all[state.flow as usize];
                flow.responder_failed_at = state.failed_at;
                flow.finished = state.finished.or(flow.finished);
            }
        }
        all
    }

    /// True if every flow is complete at both ends or has failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let over = |(flow, p): (&Flow, &FlowProgress)| {
            let arrived = p.finished.is_some() || flow.stops_at.is_some();
            p.failed.is_some() || (p.completed.is_some() && arrived)
        };
        self.flows.iter().zip(&self.progress()).all(over)
    }
}

impl Machine {
    /// The host with its network card, if the node is a host.
    #[must_use]
    pub fn sim_host(&self) -> Option<&SimHost> {
        match self {
            Self::Host(sim_host) => Some(sim_host),
            Self::Switch(_) => None,
        }
    }

    /// The switch, if it is one.
    #[must_use]
    pub fn switch(&self) -> Option<&Switch> {
        match self {
            Self::Host(_) => None,
            Self::Switch(switch) => Some(switch),
        }
    }
}

impl Node for Machine {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        match self {
            Self::Host(node) => node.handle_packet(now, port, frame, meta),
            Self::Switch(node) => node.handle_packet(now, port, frame, meta),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Host(node) => node.handle_timeout(now),
            Self::Switch(node) => node.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        match self {
            Self::Host(node) => node.poll_transmit(now, port, frame),
            Self::Switch(node) => node.poll_transmit(now, port, frame),
        }
    }

    fn may_have_frame(&self, port: PortId) -> bool {
        match self {
            Self::Host(node) => node.may_have_frame(port),
            Self::Switch(node) => node.may_have_frame(port),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Host(node) => node.poll_timeout(),
            Self::Switch(node) => node.poll_timeout(),
        }
    }

    fn take_ready(&mut self) -> PortMask {
        match self {
            Self::Host(node) => node.take_ready(),
            Self::Switch(node) => node.take_ready(),
        }
    }
}

fn check_flows(flows: &[Flow], hosts: u32) -> Result<(), NetworkError> {
    for (i, flow) in flows.iter().enumerate() {
        let why = flow_error(flow, &flows[..i], hosts);
        if let Some(why) = why {
            return Err(NetworkError::Flow(i, why));
        }
    }
    Ok(())
}

/// Why this flow is invalid after the flows `before` it; `None` if it is valid.
fn flow_error(flow: &Flow, before: &[Flow], hosts: u32) -> Option<&'static str> {
    if flow.src >= hosts || flow.dst >= hosts {
        return Some("it names a host that does not exist");
    }
    if flow.src == flow.dst {
        return Some("its source is its destination");
    }
    if flow.bytes == 0 {
        return Some("it has no bytes");
    }
    if flow.stops_at.is_some_and(|at| at <= flow.start) {
        return Some("it stops before it starts");
    }
    if flow.stops_at.is_some() && flow.op == FlowOp::Mix {
        return Some("a mix cannot stop: its last request must be signaled");
    }
    if let Some(after) = flow.after {
        match before.get(after as usize) {
            None => return Some("it waits for a flow that does not precede it"),
            Some(other) if other.dst != flow.src => {
                return Some("it waits for a flow that arrives at another host");
            }
            Some(other) if other.stops_at.is_some() => {
                return Some("it waits for a flow that stops and may never arrive");
            }
            Some(other) if [other.op, flow.op].contains(&FlowOp::Read) => {
                return Some(
                    "a READ can neither wait nor be awaited: its source gets no completion",
                );
            }
            Some(_) => {}
        }
    }
    let reverse_of = flow.reverse_of?;
    match before.get(reverse_of as usize) {
        None => Some("it shares the queue pairs of a flow that does not precede it"),
        Some(other)
            if (other.requester(), other.responder()) != (flow.responder(), flow.requester()) =>
        {
            Some("it shares the queue pairs of a flow with other ends")
        }
        Some(other) if other.reverse_of.is_some() => Some("it shares queue pairs that are shared"),
        Some(_) if before.iter().any(|f| f.reverse_of == Some(reverse_of)) => {
            Some("it shares queue pairs that are shared")
        }
        Some(_) => None,
    }
}

/// Any odd number: separates the seeds of lines from each other and from other draws.
const LINE_SEEDS: u64 = 0xd134_2543_de82_ef95;

/// Limit of the messages of a mix, which are counted one by one.
const MIX_MESSAGES_MAX: u64 = 4_000_000;

#[cfg(test)]
mod tests;
