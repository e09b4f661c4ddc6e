//! Agents in a switch: what they see, and the frames that they make.

use super::{Switch, id_of};
use crate::agent::api::{
    AgentCounters, Departing, Effects, Order, Placement, Ports, Queued, RateChange, Rework,
    Thresholds,
};
use crate::agent::ecn::trace::EcnStep;
use crate::agent::mlcc::report::MlccFlow;
use crate::agent::passing::Passing;
use crate::agent::set::Orders;
use crate::config::EcnConfig;
use crate::error::ConfigError;
use crate::forward::Decision;
use crate::link::wire_bytes;
use crate::parse::ParsedFrame;
use crate::port::{Arriving, Leaving, Outcome};
use crate::queue::Queue;
use crate::store::Meta;
use spanwire_base::{Time, TxMeta};
use spanwire_wire::{IntStack, Qpn};
use std::net::IpAddr;

impl Switch {
    /// Tells the agents that packets from `source` to the queue pair `dest_qpn` of `dest` are sent
    /// by the queue pair `source_qpn`, to which feedback about them goes. Without this a switch
    /// learns it from packets the other way, and from SR data that carry it.
    pub fn bind_flow(&mut self, source: IpAddr, dest: IpAddr, dest_qpn: Qpn, source_qpn: Qpn) {
        if let Some(agents) = &mut self.agents {
            agents.qpns.set_sender(upper(source), upper(dest), dest_qpn, source_qpn);
        }
    }

    /// Counters and gauges by agent and port. O(places for flows).
    #[must_use]
    pub fn agents(&self, now: Time) -> Vec<AgentCounters> {
        self.agents.as_ref().map_or_else(Vec::new, |agents| agents.counters(now))
    }

    /// The fields of a frame that agents read; `None` without agents.
    ///
    /// This and the others that only agents need stay out of the path of a switch without agents.
    #[inline(never)]
    pub(super) fn see(
        &mut self,
        frame: &[u8],
        seen: &ParsedFrame,
        elided_bytes: u32,
    ) -> Option<Passing> {
        let agents = self.agents.as_mut()?;
        let mut passing = Passing::of(frame, seen, wire_bytes(frame.len(), elided_bytes))?;
        if agents.reads_telemetry {
            passing = passing.with_stack(frame, elided_bytes);
        }
        agents.qpns.learn(&passing);
        Some(passing)
    }

    /// As [`Switch::enqueue`], in the queue that an agent chooses, with what agents do about it.
    #[inline(never)]
    pub(super) fn enqueue_watched(
        &mut self,
        now: Time,
        out: u8,
        arriving: &mut Arriving<'_>,
        passing: &Passing,
    ) {
        let from = arriving.meta.ingress;
        let mut placement = Placement::default();
        if self.agents.as_ref().is_some_and(|agents| agents.sees_arrivals) {
            let ports = Ports { from, to: out };
            self.on_arrival(now, passing, ports, from);
            placement = self.on_arrival(now, passing, ports, out);
            (arriving.queue, arriving.flow) = (placement.queue, placement.flow);
            // Also without a tag: a flooded frame has had that of the port before.
            arriving.meta.note(placement.tag, passing.sr);
        }
        if let Outcome::Queued(_) = self.enqueue(now, out, arriving) {
            let port = &self.ports[usize::from(out)];
            let queue = placement.queue.unwrap_or(port.queue_of(arriving.meta.class));
            let bytes = port.queues[usize::from(queue)].bytes();
            let own_bytes = arriving.meta.wire_bytes();
            let queued = Queued { port: out, queue, placement, bytes, own_bytes };
            if let Some(agents) = &mut self.agents {
                let effects = agents.on_queued(now, passing, queued);
                self.apply(now, out, &effects, Some(passing));
            }
        }
        self.note_agents();
    }

    /// The placement of a packet by the agent at one of its ports.
    #[inline]
    fn on_arrival(&mut self, now: Time, passing: &Passing, ports: Ports, port: u8) -> Placement {
        let Some(agents) = &mut self.agents else { return Placement::default() };
        let arrived = agents.on_arrival(now, passing, ports, port);
        let Some((placement, effects)) = arrived else { return Placement::default() };
        self.apply(now, port, &effects, Some(passing));
        placement
    }

    /// Writes a packet with a tag of an agent, and its telemetry as the agent decides; `None` if it
    /// does not fit.
    #[inline(never)]
    pub(super) fn send_watched(
        &mut self,
        now: Time,
        index: usize,
        leaving: &Leaving,
        frame: &mut [u8],
    ) -> Option<TxMeta> {
        let meta = self.store.meta(leaving.id);
        let small = |n: usize| u8::try_from(n).expect("ports and queues are few");
        let (port, queue) = (small(index), small(leaving.queue));
        let (tag, bytes, sr) = (meta.tag, meta.wire_bytes(), meta.sr());
        let departing = Departing { port, queue, tag, arrived_at: meta.at, bytes, sr };
        let effects = self.agents.as_mut()?.on_departure(now, &departing);
        self.note_agents();
        let from = &mut self.ports[index];
        let sent = match effects.rework {
            Rework::Nothing => from.write(now, leaving, &self.store, frame),
            Rework::Begin(credit) => from.write_anew(now, leaving, credit, &self.store, frame),
            Rework::Reflect => {
                let sent = from.write(now, leaving, &self.store, frame)?;
                return Some(self.reflect(now, port, &effects, frame, sent));
            }
        };
        self.apply(now, port, &effects, None);
        sent
    }

    /// Takes the telemetry off a frame, and sends it as the feedback that is ordered; returns the
    /// frame's description.
    fn reflect(
        &mut self,
        now: Time,
        port: u8,
        effects: &Effects,
        frame: &mut [u8],
        sent: TxMeta,
    ) -> TxMeta {
        let stack = IntStack::find(&frame[..sent.len], sent.elided_bytes);
        let stack = stack.filter(|stack| stack.credit().is_some() && !stack.is_empty());
        if let (Some(stack), Some(order)) = (stack, &effects.feedback) {
            self.send_feedback(now, port, order, (None, Some(&stack)));
        }
        self.apply(now, port, &Effects { feedback: None, ..*effects }, None);
        self.ports[usize::from(port)].empty_stack(frame, sent)
    }

    /// Applies the effects that the agent at a port has returned, but for the telemetry of a packet
    /// that leaves; `packet` is that which arrived, if it did.
    #[inline]
    fn apply(&mut self, now: Time, port: u8, effects: &Effects, packet: Option<&Passing>) {
        let Effects { feedback, hold, rate, thresholds, rework: _ } = effects;
        if let Some(order) = feedback {
            self.send_feedback(now, port, order, (packet, None));
        }
        if let Some(hold) = hold {
            self.ports[usize::from(hold.port)].hold(hold.queue, hold.is_held);
            self.ready.insert(id_of(hold.port));
        }
        if let Some(rate) = rate {
            self.set_flow_rate_of(rate);
        }
        if let Some(thresholds) = thresholds {
            self.set_thresholds(thresholds);
        }
    }

    fn set_flow_rate_of(&mut self, change: &RateChange) {
        let port = self.ports.get_mut(usize::from(change.port));
        let queue = port.and_then(|port| port.queues.get_mut(usize::from(change.queue)));
        if let Some(flows) = queue.and_then(Queue::flows_mut) {
            flows.set_rate(change.flow, Some(change.rate));
        }
    }

    fn set_thresholds(&mut self, change: &Thresholds) {
        let (port, queue) = (usize::from(change.port), usize::from(change.queue));
        let before = self.config.ports[port].queues[queue].ecn;
        let at = before.map_or_else(Default::default, |ecn| ecn.at);
        let ecn = Some(EcnConfig { at, ..change.ecn });
        self.ports[port].queues[queue].set_marking(ecn);
        self.config.ports[port].queues[queue].ecn = ecn;
    }

    /// The flows that come in and that MLCC lets in at rates of their own. O(places for flows).
    pub fn mlcc_flows(&self, now: Time) -> impl Iterator<Item = MlccFlow> {
        self.agents.iter().flat_map(move |agents| agents.rated_flows(now))
    }

    /// A switch with these controlled queues, by port.
    pub(super) fn with_controlled(mut self, controlled: &[Option<(u8, u8)>]) -> Self {
        for (port, queues) in self.ports.iter_mut().zip(controlled) {
            if let Some((normal, controlled)) = queues {
                port.pause_with(*controlled, *normal);
            }
        }
        self
    }

    /// Meters the queues whose thresholds agents choose, and sets their first ones.
    pub(super) fn with_metered(mut self) -> Self {
        let metered: Vec<_> = self.agents.iter().flat_map(|agents| agents.metered()).collect();
        for (port, queue) in metered {
            self.ports[port].queues[queue].set_metered();
        }
        let first: Vec<_> = self.agents.iter().flat_map(|agents| agents.thresholds()).collect();
        first.iter().for_each(|thresholds| self.set_thresholds(thresholds));
        self
    }

    /// Freezes the thresholds that agent `n` of the configuration chooses, or lets them change
    /// again.
    ///
    /// # Errors
    /// There is no such agent, or it chooses none; nothing has changed then.
    pub fn set_agent_hold(&mut self, n: usize, hold: bool) -> Result<(), ConfigError> {
        let at = format!("agents[{n}]");
        let agent = self.config.agents.get_mut(n);
        let Some(agent) = agent else { return Err(ConfigError::new(at, "does not exist")) };
        let port = agent.ports()[0];
        let is_set = self.agents.as_mut().is_some_and(|all| all.set_hold(port, hold));
        if !is_set {
            let what = "does not exist: the agent chooses no thresholds";
            return Err(ConfigError::new(format!("{at}.hold"), what));
        }
        agent.set_hold(hold);
        Ok(())
    }

    /// The decisions about thresholds so far, if they are recorded: port by port in the order of
    /// time.
    pub fn ecn_steps(&self) -> impl Iterator<Item = &EcnStep> {
        self.agents.iter().flat_map(|agents| agents.steps())
    }

    /// Handles the timers of agents that are due, and forwards what they make.
    #[inline(never)]
    pub(super) fn handle_agents(&mut self, now: Time) {
        let mut orders = Orders::new();
        loop {
            let ports = &self.ports;
            let view =
                |port: u8, queue: u8| ports[usize::from(port)].queues[usize::from(queue)].view(now);
            let Some(agents) = &mut self.agents else { return };
            let Some(turn) = agents.handle_timeout(now, view, &mut orders) else { break };
            // Feedback of one turn goes to different flows: its order does not matter.
            while let Some(order) = orders.pop() {
                self.send_feedback(now, turn.port, &order, (None, None));
            }
            self.apply(now, turn.port, &turn.effects, None);
            if turn.is_last {
                break;
            }
        }
        self.note_agents();
    }

    /// Makes and forwards the feedback of the agent at a port, as `Agents::make` does.
    #[inline(never)]
    fn send_feedback(
        &mut self,
        now: Time,
        port: u8,
        order: &Order,
        (packet, stack): (Option<&Passing>, Option<&IntStack<'_>>),
    ) {
        let agents = self.agents.as_mut();
        let made = agents.and_then(|agents| agents.make(port, order, packet, stack));
        let Some(made) = made else { return };
        let has_route = self.originate(now, made.bytes());
        if let Some(agents) = &mut self.agents {
            agents.on_sent(port, has_route);
        }
    }

    /// Forwards a frame of an agent; false if there is no route to its destination.
    fn originate(&mut self, now: Time, frame: &[u8]) -> bool {
        let Some(seen) = ParsedFrame::of(frame) else { return false };
        let (out, hop) = match self.forwarder.find(now, NO_PORT, &seen) {
            Decision::Switched(out) => (out, None),
            Decision::Routed(hop) => (hop.port, Some(hop)),
            // No other host would take it.
            Decision::Flooded | Decision::Dropped(_) => return false,
        };
        let class = seen.class();
        let meta = Meta { ingress: NO_PORT, class, ..Meta::new(frame.len(), 0, now) };
        let hash_seed = self.forwarder.hash_seed();
        self.ports[usize::from(out)].counters.agent_made += 1;
        self.enqueue(
            now,
            out,
            &Arriving { frame, meta, seen, hop, queue: None, flow: None, hash_seed },
        );
        self.ready.insert(id_of(out));
        true
    }

    /// Includes the timers of agents in the next timeout.
    #[inline]
    pub(super) fn note_agents(&mut self) {
        if let Some(at) = self.agents.as_ref().and_then(|agents| agents.poll_timeout()) {
            self.next_timeout = Some(self.next_timeout.map_or(at, |next| next.min(at)));
        }
    }
}

/// The ingress of frames that arrived on no port: no port has this number.
const NO_PORT: u8 = u8::MAX;

/// An address as the parser represents it: IPv4 in the upper 32 bits.
fn upper(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests;
