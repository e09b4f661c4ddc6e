//! The switch: which frame leaves a port next.

use crate::config::{ForwardingConfig, Hop, SwitchConfig};
use crate::counters::{Drop, PortCounters, QueueDrop, SwitchCounters};
use crate::error::ConfigError;
use crate::forward::{Forwarder, Way};
use crate::line::wire_bytes;
use crate::parse::Seen;
use crate::queue::Queue;
use crate::store::{FrameId, Meta, Store};
use spanwire_base::{Node, PortId, PortMask, RxMeta, Time, TxMeta, u32_from, usize_from};
use spanwire_wire::decrement_ttl;

/// A switch: forwarding, admission, marking, scheduling, pause frames and telemetry.
///
/// It owns frames from [`Node::handle_packet`] until [`Node::poll_transmit`] copies them out; a
/// port sends as fast as it is asked. Whoever asks (a [`Line`](crate::Line) in a simulation,
/// [`Shaped`](crate::Shaped) on real interfaces) sets the rate.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    forwarder: Forwarder,
    store: Store,
    ports: Vec<Port>,
    /// Bytes of all frames in it.
    used_bytes: u64,
    ready: PortMask,
}

#[derive(Debug)]
struct Port {
    queues: Vec<Queue>,
    counters: PortCounters,
}

/// A frame on its way into queues.
struct Arriving<'a> {
    frame: &'a [u8],
    meta: Meta,
    seen: Seen,
    /// What a router does to it.
    hop: Option<Hop>,
}

impl Switch {
    /// A switch of this configuration.
    ///
    /// # Errors
    /// What [`SwitchConfig::validate`] finds.
    pub fn new(config: SwitchConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let port = |p: &crate::PortConfig| Port {
            queues: p.queues.iter().map(|q| Queue::new(*q)).collect(),
            counters: PortCounters::default(),
        };
        Ok(Self {
            forwarder: Forwarder::new(&config.forwarding, config.seed),
            store: Store::new(usize_from(u64::from(config.max_frame_bytes))),
            ports: config.ports.iter().map(port).collect(),
            used_bytes: 0,
            ready: PortMask::EMPTY,
            config,
        })
    }

    /// What it was made of, with what was changed since.
    #[must_use]
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> SwitchCounters {
        let of = |port: &Port| PortCounters {
            queues: port.queues.iter().map(|q| *q.counters()).collect(),
            ..port.counters.clone()
        };
        SwitchCounters {
            forwarding: *self.forwarder.counters(),
            ports: self.ports.iter().map(of).collect(),
        }
    }

    /// Bytes waiting in one queue; 0 when there is no such queue. O(1).
    #[must_use]
    pub fn queue_bytes(&self, port: PortId, queue: usize) -> u64 {
        self.ports.get(port.index()).and_then(|p| p.queues.get(queue)).map_or(0, Queue::bytes)
    }

    /// Bytes waiting at a port. O(its queues).
    #[must_use]
    pub fn port_bytes(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).map_or(0, |p| p.queues.iter().map(Queue::bytes).sum())
    }

    /// Bytes of the shared buffer in use. O(1).
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Frames in it. O(1).
    #[must_use]
    pub fn used_pkts(&self) -> u32 {
        self.store.used()
    }

    /// Takes other routes and stations; frames in queues stay where they are, and stations learned
    /// stay if the new configuration learns.
    ///
    /// # Errors
    /// What is wrong with it; then nothing has changed.
    pub fn set_forwarding(&mut self, forwarding: ForwardingConfig) -> Result<(), ConfigError> {
        forwarding.validate(self.ports.len()).map_err(|e| e.within("forwarding"))?;
        self.forwarder.set(&forwarding);
        self.config.forwarding = forwarding;
        Ok(())
    }

    fn arrive(&mut self, now: Time, ingress: u8, frame: &[u8], rx: RxMeta) -> Result<(), Drop> {
        let most = u64::from(self.config.max_frame_bytes);
        if wire_bytes(frame.len(), rx.elided_bytes) > most {
            return Err(Drop::TooLong);
        }
        let seen = Seen::of(frame).ok_or(Drop::BadFrame)?;
        let meta = Meta {
            len: u32_from(frame.len()),
            elided_bytes: rx.elided_bytes,
            at: now,
            ingress,
            class: seen.class(),
        };
        let mut arriving = Arriving { frame, meta, seen, hop: None };
        match self.forwarder.decide(now, ingress, &seen) {
            Way::Dropped(drop) => return Err(drop),
            Way::Switched(port) => self.enqueue(port, &arriving),
            Way::Routed(_) if seen.ip.is_some_and(|ip| ip.ttl <= 1) => return Err(Drop::Ttl),
            Way::Routed(hop) => {
                arriving.hop = Some(hop);
                self.enqueue(hop.port, &arriving);
            }
            Way::Flooded => {
                for port in (0..=u8::MAX).take(self.ports.len()).filter(|p| *p != ingress) {
                    self.enqueue(port, &arriving);
                }
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, out: u8, arriving: &Arriving<'_>) {
        let config = &self.config.ports[usize::from(out)];
        let class = usize::from(arriving.meta.class);
        let port = &mut self.ports[usize::from(out)];
        let queue = &mut port.queues[usize::from(config.class_to_queue[class])];
        let bytes = arriving.meta.wire_bytes();
        if self.used_bytes + bytes > self.config.buffer_bytes {
            queue.count(QueueDrop::BufferFull);
            return;
        }
        if let Err(drop) = queue.check_room(bytes) {
            queue.count(drop);
            return;
        }
        let id = self.store.insert(arriving.frame, arriving.meta);
        if let Some(hop) = arriving.hop {
            rewrite(self.store.bytes_mut(id), hop, config.mac);
        }
        queue.push(&mut self.store, id);
        self.used_bytes += bytes;
        self.ready.merge(PortId::new(out).map_or(PortMask::EMPTY, PortMask::of));
    }

    /// Takes the next frame of a port out of its queue.
    fn dequeue(&mut self, port: PortId) -> Option<FrameId> {
        let queues = &mut self.ports.get_mut(port.index())?.queues;
        let queue = queues.iter_mut().filter(|q| q.bytes() > 0).reduce(|best, q| {
            if q.config().priority > best.config().priority { q } else { best }
        })?;
        let id = queue.pop(&mut self.store)?;
        self.used_bytes -= self.store.meta(id).wire_bytes();
        Some(id)
    }
}

impl Node for Switch {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: RxMeta) {
        let bytes = wire_bytes(frame.len(), meta.elided_bytes);
        let index = port.index();
        assert!(index < self.ports.len(), "the driver knows the ports of its switch");
        let counters = &mut self.ports[index].counters;
        counters.rx_pkts += 1;
        counters.rx_bytes += bytes;
        let ingress = u8::try_from(index).expect("a port's number fits a byte");
        if let Err(drop) = self.arrive(now, ingress, frame, meta) {
            self.ports[index].counters.count(drop);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        loop {
            let id = self.dequeue(port)?;
            let meta = *self.store.meta(id);
            let len = usize_from(u64::from(meta.len));
            let fits = frame.get_mut(..len).map(|out| out.copy_from_slice(self.store.bytes(id)));
            self.store.remove(id);
            let counters = &mut self.ports[port.index()].counters;
            if fits.is_none() {
                counters.drop_tx_too_long += 1;
                continue;
            }
            counters.tx_pkts += 1;
            counters.tx_bytes += meta.wire_bytes();
            return Some(TxMeta { len, elided_bytes: meta.elided_bytes });
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn take_ready(&mut self) -> PortMask {
        self.ready.take()
    }
}

/// What a router changes in a frame: hops left, and the addresses of this link.
fn rewrite(frame: &mut [u8], hop: Hop, own: spanwire_wire::MacAddr) {
    let aged = decrement_ttl(frame);
    debug_assert_eq!(aged, Ok(()), "checked before it was routed");
    if let (Some(mac), Some((addresses, _))) = (hop.mac, frame.split_first_chunk_mut::<12>()) {
        addresses[..6].copy_from_slice(&mac.0);
        addresses[6..].copy_from_slice(&own.0);
    }
}

#[cfg(test)]
mod tests;
