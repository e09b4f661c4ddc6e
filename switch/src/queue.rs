//! One queue of a port: its frames, its limit and its marks.

use crate::config::{MarkAt, PhantomConfig, QueueConfig};
use crate::counters::{Mark, QueueCounters, QueueDrop};
use crate::flows::Flows;
use crate::mark::{Marker, Phantom};
use crate::store::{Fifo, FrameId, Store};
use spanwire_base::{Rate, Rng, Time};
use spanwire_wire::mark_ce;

/// A queue of a port.
#[derive(Debug)]
pub(crate) struct Queue {
    config: QueueConfig,
    body: Body,
    ecn: Option<Marker>,
    phantom: Option<Phantom>,
    rng: Rng,
    /// What was in it when its limit was lowered below that.
    lowered_from: u64,
    counters: QueueCounters,
}

#[derive(Debug)]
enum Body {
    Fifo(Fifo),
    Flows(Flows),
}

impl Queue {
    /// A queue of a validated configuration, at a port of this rate.
    pub(crate) fn new(config: QueueConfig, rate: Option<Rate>, rng: Rng) -> Self {
        Self {
            body: config.flows.map_or(Body::Fifo(Fifo::default()), |f| Body::Flows(Flows::new(f))),
            ecn: config.ecn.as_ref().map(Marker::of),
            phantom: phantom_of(config.phantom.as_ref(), rate),
            rng,
            lowered_from: 0,
            counters: QueueCounters::default(),
            config,
        }
    }

    /// Takes other limits and thresholds; what is in the queue stays, even above a lower limit.
    pub(crate) fn set(&mut self, now: Time, config: QueueConfig, rate: Option<Rate>) {
        self.ecn = config.ecn.as_ref().map(Marker::of);
        match (&mut self.phantom, &config.phantom, rate) {
            (Some(phantom), Some(config), Some(rate)) => phantom.set(now, config, rate),
            (phantom, config, rate) => *phantom = phantom_of(config.as_ref(), rate),
        }
        self.lowered_from = self.bytes();
        self.config = config;
    }

    pub(crate) fn config(&self) -> &QueueConfig {
        &self.config
    }

    pub(crate) fn counters(&self) -> QueueCounters {
        let flow_collisions = self.flows().map_or(0, Flows::collisions);
        QueueCounters { flow_collisions, ..self.counters }
    }

    /// Bytes in it.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match &self.body {
            Body::Fifo(fifo) => fifo.bytes,
            Body::Flows(flows) => flows.bytes(),
        }
    }

    /// The most bytes that lossy frames may take up in it, now.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.config.limit_bytes.max(self.lowered_from)
    }

    /// Bytes in the phantom queue.
    pub(crate) fn phantom_bytes(&self, now: Time) -> Option<u64> {
        self.phantom.as_ref().map(|p| p.bytes(now))
    }

    /// The queues by flow, if it has them.
    pub(crate) fn flows(&self) -> Option<&Flows> {
        match &self.body {
            Body::Fifo(_) => None,
            Body::Flows(flows) => Some(flows),
        }
    }

    /// The queues by flow, to change.
    pub(crate) fn flows_mut(&mut self) -> Option<&mut Flows> {
        match &mut self.body {
            Body::Fifo(_) => None,
            Body::Flows(flows) => Some(flows),
        }
    }

    /// Lets the phantom queue see a frame, dropped or not, and says whether it marks it.
    #[inline]
    pub(crate) fn handle_arrival(&mut self, now: Time, bytes: u64) -> bool {
        self.phantom.as_mut().is_some_and(|p| p.add(now, bytes, &mut self.rng))
    }

    /// The place of a flow among the queues by flow; without those, 0.
    #[inline]
    pub(crate) fn place(&mut self, now: Time, key: u64) -> usize {
        self.flows_mut().map_or(0, |flows| flows.place(now, key))
    }

    /// Whether a frame of `bytes` is within the queue's own limit, and that of its flow.
    #[inline]
    pub(crate) fn check_room(&self, place: usize, bytes: u64) -> Result<(), QueueDrop> {
        if self.bytes() + bytes > self.config.limit_bytes {
            return Err(QueueDrop::Limit);
        }
        match self.flows() {
            Some(flows) if !flows.has_room(place, bytes) => Err(QueueDrop::Flow),
            _ => Ok(()),
        }
    }

    /// Puts a frame at the end and marks it if its length, or the phantom queue, says so.
    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Time,
        store: &mut Store,
        id: FrameId,
        place: usize,
        is_phantom_over: bool,
    ) {
        match &mut self.body {
            Body::Fifo(fifo) => fifo.push(store, id),
            Body::Flows(flows) => flows.push(now, place, store, id),
        }
        let bytes = self.bytes();
        self.counters.enqueued_pkts += 1;
        self.counters.enqueued_bytes += store.meta(id).wire_bytes();
        self.counters.max_bytes = self.counters.max_bytes.max(bytes);
        if is_phantom_over {
            self.mark(Mark::Phantom, store.bytes_mut(id));
        } else if let Some(mark) = self.physical_mark(MarkAt::Enqueue, bytes) {
            self.mark(mark, store.bytes_mut(id));
        }
    }

    /// Bytes of the frame that leaves next; 0 when none may leave now.
    #[inline]
    pub(crate) fn head_bytes(&mut self, now: Time, store: &Store) -> u64 {
        let head = match &mut self.body {
            Body::Fifo(fifo) => fifo.head(),
            Body::Flows(flows) => flows.head(now, store),
        };
        head.map_or(0, |id| store.meta(id).wire_bytes())
    }

    /// Takes the next frame, which the caller then owns, and whether it is to be marked.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time, store: &mut Store) -> Option<(FrameId, Option<Mark>)> {
        let id = match &mut self.body {
            Body::Fifo(fifo) => fifo.pop(store)?,
            Body::Flows(flows) => flows.pop(now, store)?,
        };
        self.counters.dequeued_pkts += 1;
        self.counters.dequeued_bytes += store.meta(id).wire_bytes();
        let mark = self.physical_mark(MarkAt::Dequeue, self.bytes());
        Some((id, mark))
    }

    /// Marks a frame and counts it by its reason.
    pub(crate) fn mark(&mut self, mark: Mark, frame: &mut [u8]) {
        if mark_ce(frame) {
            self.counters.count_mark(mark);
        } else {
            self.counters.mark_not_ect += 1;
        }
    }

    pub(crate) fn count(&mut self, drop: QueueDrop) {
        self.counters.count(drop);
    }

    pub(crate) fn count_trimmed(&mut self) {
        self.counters.trimmed += 1;
    }

    #[inline]
    fn physical_mark(&mut self, at: MarkAt, bytes: u64) -> Option<Mark> {
        let (marker, ecn) = (self.ecn.as_ref()?, self.config.ecn.as_ref()?);
        let replaced = self.config.phantom.is_some_and(|p| !p.with_physical);
        if replaced || ecn.at != at || !marker.marks(bytes, &mut self.rng) {
            return None;
        }
        Some(if ecn.kmin_bytes == ecn.kmax_bytes { Mark::Step } else { Mark::Red })
    }
}

fn phantom_of(config: Option<&PhantomConfig>, rate: Option<Rate>) -> Option<Phantom> {
    Some(Phantom::new(config?, rate?))
}
