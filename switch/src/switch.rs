//! The switch: which frame a port sends next.

mod agents;
mod set;
mod snapshot;

pub use snapshot::{PortSnapshot, QueueSnapshot, SwitchSnapshot};

use crate::agent::passing::Passing;
use crate::agent::set::Agents;
use crate::buffer::Buffer;
use crate::config::SwitchConfig;
use crate::counters::{Drop, SwitchCounters};
use crate::error::ConfigError;
use crate::forward::{Decision, Forwarder};
use crate::link::wire_bytes;
use crate::parse::ParsedFrame;
use crate::pfc::Signal;
use crate::port::{Arriving, Outcome, Port};
use crate::queue::Queue;
use crate::store::{Meta, Store};
use spanwire_base::{Node, PortId, PortMask, Rng, RxMeta, Time, TxMeta, usize_from};
use spanwire_wire::PfcFrame;

/// A switch: forwarding, admission, marking, scheduling, pause frames and telemetry.
///
/// It owns frames from [`Node::handle_packet`] until [`Node::poll_transmit`] copies them out. A
/// port sends as fast as it is polled. Its caller (a [`Line`](crate::Line) in a simulation,
/// [`Shaped`](crate::Shaped) on real interfaces) determines the rate.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    forwarder: Forwarder,
    buffer: Buffer,
    store: Store,
    ports: Vec<Port>,
    ready: PortMask,
    agents: Option<Box<Agents>>,
    /// The earliest wakeup of the ports and agents, or an earlier time.
    next_timeout: Option<Time>,
    /// The earliest of the ports, or an earlier time: the timers of agents, which may be due every
    /// few microseconds, do not visit the ports.
    ports_at: Option<Time>,
}

/// A flow, as per-flow queues and ECMP of one switch distinguish it: a hash of its 5-tuple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowKey(u64);

impl Switch {
    /// Builds a switch of this configuration.
    ///
    /// # Errors
    /// The error of [`SwitchConfig::validate`].
    pub fn new(config: SwitchConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let (config, controlled) = config.with_agent_queues();
        let mut rng = Rng::new(config.seed);
        Ok(Self {
            forwarder: Forwarder::new(&config.forwarding, rng.next_u64()),
            buffer: Buffer::new(&config),
            store: Store::new(usize_from(u64::from(config.max_frame_bytes))),
            ports: config.ports.iter().map(|p| Port::new(p, &mut rng)).collect(),
            ready: PortMask::EMPTY,
            agents: Agents::new(&config, &controlled),
            next_timeout: None,
            ports_at: None,
            config,
        }
        .with_controlled(&controlled)
        .with_metered())
    }

    /// Its present configuration, including later changes.
    #[must_use]
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> SwitchCounters {
        SwitchCounters {
            forwarding: *self.forwarder.counters(),
            ports: self.ports.iter().map(Port::counters).collect(),
        }
    }

    /// The bytes in each queue, port by port.
    pub fn queue_lengths(&self) -> impl Iterator<Item = u64> {
        self.ports.iter().flat_map(|port| port.queues.iter().map(Queue::bytes))
    }

    /// Bytes in one queue; 0 if there is no such queue. O(1).
    #[must_use]
    pub fn queue_bytes(&self, port: PortId, queue: usize) -> u64 {
        self.queue(port, queue).map_or(0, Queue::bytes)
    }

    /// Bytes queued at a port. O(its queues).
    #[must_use]
    pub fn port_bytes(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).map_or(0, |p| p.queues.iter().map(Queue::bytes).sum())
    }

    /// Bytes in a phantom queue; 0 if there is none. O(1).
    #[must_use]
    pub fn phantom_bytes(&self, now: Time, port: PortId, queue: usize) -> u64 {
        self.queue(port, queue).and_then(|q| q.phantom_bytes(now)).unwrap_or(0)
    }

    /// Bytes of the buffer in use, including reserves and headroom. O(1).
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.buffer.used()
    }

    /// Frames in the switch. O(1).
    #[must_use]
    pub fn used_pkts(&self) -> u32 {
        self.store.used()
    }

    /// The flow of a frame; `None` if it has no Ethernet header.
    #[must_use]
    pub fn flow_key(&self, frame: &[u8]) -> Option<FlowKey> {
        ParsedFrame::of(frame).map(|seen| FlowKey(seen.flow_hash(self.forwarder.hash_seed())))
    }

    /// Bytes of a flow in a per-flow queue; 0 if it has no place there.
    #[must_use]
    pub fn flow_bytes(&self, port: PortId, queue: usize, flow: FlowKey) -> u64 {
        self.queue(port, queue).and_then(Queue::flows).map_or(0, |f| f.flow_bytes(flow.0))
    }

    fn queue(&self, port: PortId, queue: usize) -> Option<&Queue> {
        self.ports.get(port.index())?.queues.get(queue)
    }

    fn arrive(&mut self, now: Time, port: PortId, frame: &[u8], rx: &RxMeta) -> Result<(), Drop> {
        let most = u64::from(self.config.max_frame_bytes);
        if wire_bytes(frame.len(), rx.elided_bytes) > most {
            return Err(Drop::TooLong);
        }
        let seen = ParsedFrame::of(frame).ok_or(Drop::BadFrame)?;
        if seen.dst == PfcFrame::DST && self.handle_pause(now, port, frame) {
            return Ok(());
        }
        let ingress = u8::try_from(port.index()).expect("a port's number fits a byte");
        let meta =
            Meta { ingress, class: seen.class(), ..Meta::new(frame.len(), rx.elided_bytes, now) };
        let hash_seed = self.forwarder.hash_seed();
        let passing = match self.agents {
            None => None,
            Some(_) => self.see(frame, &seen, rx.elided_bytes),
        };
        let passing = passing.as_ref();
        let (hop, queue, flow) = (None, None, None);
        let mut arriving = Arriving { frame, meta, seen, hop, queue, flow, hash_seed };
        match self.forwarder.decide(now, ingress, &seen) {
            Decision::Dropped(drop) => return Err(drop),
            Decision::Switched(out) => self.pass(now, out, &mut arriving, passing),
            Decision::Routed(_) if seen.ip.is_some_and(|ip| ip.ttl <= 1) => return Err(Drop::Ttl),
            Decision::Routed(hop) => {
                arriving.hop = Some(hop);
                self.pass(now, hop.port, &mut arriving, passing);
            }
            Decision::Flooded => {
                for out in (0..=u8::MAX).take(self.ports.len()).filter(|out| *out != ingress) {
                    self.pass(now, out, &mut arriving, passing);
                }
            }
        }
        Ok(())
    }

    /// Applies a pause frame; false if it is not one, or the port has no PFC.
    fn handle_pause(&mut self, now: Time, port: PortId, frame: &[u8]) -> bool {
        let Some(pause) = PfcFrame::parse(frame) else { return false };
        let is_obeyed = self.ports[port.index()].handle_pause_frame(now, &pause);
        // Queues may resume, or have a new release time.
        self.ready.insert(port);
        self.note_timeout(port.index());
        is_obeyed
    }

    /// Enqueues a frame; `passing` are the fields that agents read.
    #[inline]
    fn pass(&mut self, now: Time, out: u8, arriving: &mut Arriving<'_>, passing: Option<&Passing>) {
        match passing {
            None => {
                self.enqueue(now, out, arriving);
            }
            Some(passing) => self.enqueue_watched(now, out, arriving, passing),
        }
    }

    fn enqueue(&mut self, now: Time, out: u8, arriving: &Arriving<'_>) -> Outcome {
        let index = usize::from(out);
        let port = &mut self.ports[index];
        let ingress = arriving.meta.ingress;
        let outcome = port.enqueue(now, arriving, &mut self.buffer, &mut self.store);
        match outcome {
            Outcome::Queued(None) | Outcome::Trimmed | Outcome::Dropped(_) => {}
            Outcome::Queued(Some(signal)) => self.signal(ingress, arriving.meta.class, signal),
            Outcome::Refused(drop) => self.ports[usize::from(ingress)].counters.count(drop),
        }
        self.ready.insert(id_of(out));
        self.note_timeout(index);
        outcome
    }

    /// Makes a port pause or resume its other end.
    fn signal(&mut self, port: u8, class: u8, signal: Signal) {
        self.ports[usize::from(port)].handle_signal(class, signal);
        self.ready.insert(id_of(port));
    }

    /// Releases the buffer of a frame that leaves.
    #[inline]
    fn release(&mut self, meta: &Meta) {
        let bytes = meta.wire_bytes();
        if !meta.is_lossless {
            return self.buffer.release(bytes);
        }
        if let Some(signal) = self.buffer.release_lossless(meta.ingress, meta.class, bytes) {
            self.signal(meta.ingress, meta.class, signal);
        }
    }

    /// Handles the timers of the ports that are due.
    fn wake_ports(&mut self, now: Time) {
        self.ports_at = None;
        for (index, out) in (0..self.ports.len()).zip(0..) {
            let port = &mut self.ports[index];
            if port.wake_at.is_some_and(|at| at <= now) {
                port.handle_timeout(now);
                self.ready.insert(id_of(out));
            }
            self.note_timeout(index);
        }
    }

    #[inline]
    fn note_timeout(&mut self, port: usize) {
        if let Some(at) = self.ports[port].wake_at {
            self.ports_at = Some(self.ports_at.map_or(at, |next| next.min(at)));
            self.next_timeout = Some(self.next_timeout.map_or(at, |next| next.min(at)));
        }
    }
}

impl Node for Switch {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        assert!(port.index() < self.ports.len(), "the driver uses only ports of the switch");
        let counters = &mut self.ports[port.index()].counters;
        counters.rx_pkts += 1;
        counters.rx_bytes += wire_bytes(frame.len(), meta.elided_bytes);
        if let Err(drop) = self.arrive(now, port, frame, meta) {
            self.ports[port.index()].counters.count(drop);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.next_timeout.is_none_or(|at| at > now) {
            return;
        }
        if self.ports_at.is_some_and(|at| at <= now) {
            self.wake_ports(now);
        }
        self.next_timeout = self.ports_at;
        self.handle_agents(now);
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let index = port.index();
        let pause = self.ports.get_mut(index)?.poll_pause_frame(now, frame);
        if pause.is_some() {
            self.note_timeout(index);
            return pause;
        }
        let sent = loop {
            let Some(leaving) = self.ports[index].dequeue(now, &mut self.store) else { break None };
            let meta = *self.store.meta(leaving.id);
            let sent = match meta.tag {
                0 => self.ports[index].write(now, &leaving, &self.store, frame),
                _ => self.send_watched(now, index, &leaving, frame),
            };
            self.store.remove(leaving.id);
            self.release(&meta);
            if sent.is_some() {
                break sent;
            }
        };
        if self.ports[index].has_timers() {
            self.ports[index].rearm(now);
            self.note_timeout(index);
        }
        sent
    }

    fn may_have_frame(&self, port: PortId) -> bool {
        self.ports.get(port.index()).is_some_and(Port::may_have_frame)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next_timeout
    }

    fn take_ready(&mut self) -> PortMask {
        self.ready.take()
    }
}

/// The port of a number that validation has bounded.
#[inline]
fn id_of(port: u8) -> PortId {
    PortId::new(port).expect("a switch has at most as many ports as a mask")
}

#[cfg(test)]
mod tests;
