//! Agents in a switch: what they see, and the frames that they make.

use super::{Switch, id_of};
use crate::agent::config::AgentConfig;
use crate::agent::ecn::EcnStep;
use crate::agent::mlcc::MlccFlow;
use crate::agent::passing::{Passing, SrData};
use crate::agent::set::Handled;
use crate::agent::{AgentCounters, Departing, Ports, Queued, Rework};
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
        if agents.reads_stacks() {
            passing = passing.with_stack(frame, elided_bytes);
        }
        agents.qpns.learn(&passing);
        Some(passing)
    }

    /// As [`Switch::enqueue`], in the queue that an agent chooses, and tells one that watches the
    /// queue.
    #[inline(never)]
    pub(super) fn enqueue_watched(
        &mut self,
        now: Time,
        out: u8,
        arriving: &mut Arriving<'_>,
        passing: &Passing,
    ) {
        let index = usize::from(out);
        let Some(agents) = &mut self.agents else { return };
        let placement =
            agents.on_arrival(now, passing, Ports { from: arriving.meta.ingress, to: out });
        (arriving.queue, arriving.meta.tag) = (placement.queue, placement.tag);
        arriving.flow = placement.flow;
        let of_class = self.ports[index].queue_of(arriving.meta.class);
        let queue = placement.queue.unwrap_or(of_class);
        let is_watched = agents.watches(out, queue);
        let outcome = self.enqueue(now, out, arriving);
        let bytes = self.ports[index].queues[usize::from(queue)].bytes();
        if is_watched
            && matches!(outcome, Outcome::Queued(_))
            && let Some(agents) = &mut self.agents
        {
            let own_bytes = arriving.meta.wire_bytes();
            let queued = Queued { port: out, queue, placement, bytes, own_bytes };
            agents.on_queued(now, passing, queued);
            if agents.has_orders() {
                self.send_feedback(now);
            }
        }
        self.apply_holds();
        self.apply_rates();
        self.note_agents();
    }

    /// Writes a packet with a tag of an agent, and its telemetry as the agent decides; `None` if it
    /// does not fit.
    #[inline(never)]
    pub(super) fn send_watched(
        &mut self,
        now: Time,
        index: usize,
        leaving: &Leaving,
        tag: u32,
        frame: &mut [u8],
    ) -> Option<TxMeta> {
        let rework = self.depart(now, index, leaving, tag);
        let port = &mut self.ports[index];
        match rework {
            Rework::Nothing => port.write(now, leaving, &self.store, frame),
            Rework::Begin(credit) => port.write_anew(now, leaving, credit, &self.store, frame),
            Rework::Reflect(data) => {
                let sent = port.write(now, leaving, &self.store, frame)?;
                Some(self.reflect(now, (index, tag), &data, frame, sent))
            }
        }
    }

    /// Tells an agent that a packet with its tag leaves; what is to be done with its telemetry.
    fn depart(&mut self, now: Time, index: usize, leaving: &Leaving, tag: u32) -> Rework {
        let frame = self.store.bytes(leaving.id);
        let seen = ParsedFrame::of(frame);
        let passing = seen.and_then(|seen| Passing::of(frame, &seen, 0));
        let sr = passing.and_then(|passing| passing.sr);
        let bytes = self.store.meta(leaving.id).wire_bytes();
        let mut rework = Rework::Nothing;
        let small = |n: usize| u8::try_from(n).expect("ports and queues are few");
        let (port, queue) = (small(index), small(leaving.queue));
        if let Some(agents) = &mut self.agents {
            rework = agents.on_departure(now, &Departing { port, queue, tag, bytes, sr });
        }
        self.apply_holds();
        self.note_agents();
        rework
    }

    /// Sends the telemetry of a frame back to the sender of its packet, if it is due, and takes it
    /// off the frame; returns the frame's description.
    fn reflect(
        &mut self,
        now: Time,
        (index, tag): (usize, u32),
        data: &SrData,
        frame: &mut [u8],
        sent: TxMeta,
    ) -> TxMeta {
        let port = u8::try_from(index).expect("ports are few");
        let stack = IntStack::find(&frame[..sent.len], sent.elided_bytes);
        let stack = stack.filter(|stack| stack.credit().is_some() && !stack.is_empty());
        if let (Some(agents), Some(stack)) = (&mut self.agents, stack)
            && let Some(made) = agents.reflect(now, (port, tag), data, &stack)
        {
            let has_route = self.originate(now, &made.frame[..made.len]);
            if let Some(agents) = &mut self.agents {
                agents.on_sent(&made, has_route);
            }
        }
        self.ports[index].empty_stack(frame, sent)
    }

    /// Sets the rates of flows that agents have decided.
    fn apply_rates(&mut self) {
        while let Some(change) = self.agents.as_mut().and_then(|agents| agents.pop_rate()) {
            let port = self.ports.get_mut(usize::from(change.port));
            let queue = port.and_then(|port| port.queues.get_mut(usize::from(change.queue)));
            if let Some(flows) = queue.and_then(Queue::flows_mut) {
                flows.set_rate(change.flow, Some(change.rate));
            }
        }
    }

    /// The flows that come in and that MLCC lets in at rates of their own. O(places for flows).
    pub fn mlcc_flows(&self, now: Time) -> impl Iterator<Item = MlccFlow> {
        self.agents.iter().flat_map(move |agents| agents.mlcc_flows(now))
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

    /// Holds and releases the queues as agents have decided.
    fn apply_holds(&mut self) {
        while let Some(hold) = self.agents.as_mut().and_then(|agents| agents.pop_hold()) {
            self.ports[usize::from(hold.port)].hold(hold.queue, hold.is_held);
            self.ready.insert(id_of(hold.port));
        }
    }

    /// Meters the queues whose thresholds agents choose, and sets their first ones.
    pub(super) fn with_metered(mut self) -> Self {
        let metered: Vec<_> = self.agents.iter().flat_map(|agents| agents.metered()).collect();
        for (port, queue) in metered {
            self.ports[port].queues[queue].set_metered();
        }
        self.apply_changes();
        self
    }

    /// Sets the thresholds that agents have chosen.
    fn apply_changes(&mut self) {
        while let Some(change) = self.agents.as_mut().and_then(|agents| agents.pop_change()) {
            let (port, queue) = (usize::from(change.port), usize::from(change.queue));
            let before = self.config.ports[port].queues[queue].ecn;
            let at = before.map_or_else(Default::default, |ecn| ecn.at);
            let ecn = Some(EcnConfig { at, ..change.action.thresholds(change.unit_bytes) });
            self.ports[port].queues[queue].set_marking(ecn);
            self.config.ports[port].queues[queue].ecn = ecn;
        }
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
        let AgentConfig::Ecn(ecn) = agent else {
            let what = "does not exist: the agent chooses no thresholds";
            return Err(ConfigError::new(format!("{at}.hold"), what));
        };
        ecn.hold = hold;
        let is_set = self.agents.as_mut().is_some_and(|all| all.set_hold(ecn.ports[0], hold));
        debug_assert!(is_set, "its first port has it");
        Ok(())
    }

    /// The decisions about thresholds so far, if they are recorded: port by port in the order of
    /// time.
    pub fn ecn_steps(&self) -> impl Iterator<Item = &EcnStep> {
        self.agents.iter().flat_map(|agents| agents.ecn_steps())
    }

    /// Handles the timers of agents that are due, and forwards what they make.
    #[inline(never)]
    pub(super) fn handle_agents(&mut self, now: Time) {
        loop {
            let ports = &self.ports;
            let view =
                |port: u8, queue: u8| ports[usize::from(port)].queues[usize::from(queue)].view(now);
            let Some(agents) = &mut self.agents else { return };
            match agents.handle_timeout(now, view) {
                Handled::Nothing => break,
                // Frames come before the next inference, which is due in the next step.
                Handled::Inferred => {
                    self.apply_changes();
                    break;
                }
                Handled::Timer => self.send_feedback(now),
            }
        }
        self.apply_holds();
        self.note_agents();
    }

    /// Forwards the frames that agents have ordered.
    fn send_feedback(&mut self, now: Time) {
        while let Some(made) = self.agents.as_mut().and_then(|agents| agents.pop()) {
            let has_route = self.originate(now, &made.frame[..made.len]);
            if let Some(agents) = &mut self.agents {
                agents.on_sent(&made, has_route);
            }
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
