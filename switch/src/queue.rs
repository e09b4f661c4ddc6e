//! One queue of a port: frames, limits and marking.

use crate::config::{EcnConfig, MarkAt, PhantomConfig, QueueConfig};
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
    /// The integral of its length, if an agent reads it.
    meter: Option<Meter>,
    /// Its length when its limit was lowered below that.
    lowered_from: u64,
    counters: QueueCounters,
}

/// The integral of a length over time.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// Bytes times ps, until `at`.
    area: u128,
    at: Time,
}

#[derive(Debug)]
enum Body {
    Fifo(Fifo),
    Flows(Flows),
}

/// A queue, as its meter shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueView {
    /// Bytes in it.
    pub(crate) bytes: u64,
    /// Bytes that have left it.
    pub(crate) sent_bytes: u64,
    /// The integral of its bytes over time, bytes times ps; 0 without a meter.
    pub(crate) area: u128,
}

impl Queue {
    /// Builds a queue of a validated configuration, at a port of this rate.
    pub(crate) fn new(config: QueueConfig, rate: Option<Rate>, rng: Rng) -> Self {
        Self {
            body: config.flows.map_or(Body::Fifo(Fifo::default()), |f| Body::Flows(Flows::new(f))),
            ecn: config.ecn.as_ref().map(Marker::of),
            phantom: phantom_of(config.phantom.as_ref(), rate),
            rng,
            meter: None,
            lowered_from: 0,
            counters: QueueCounters::default(),
            config,
        }
    }

    /// Changes limits and thresholds; queued frames stay, even above a lower limit.
    pub(crate) fn set(&mut self, now: Time, config: QueueConfig, rate: Option<Rate>) {
        self.set_marking(config.ecn);
        match (&mut self.phantom, &config.phantom, rate) {
            (Some(phantom), Some(config), Some(rate)) => phantom.set(now, config, rate),
            (phantom, config, rate) => *phantom = phantom_of(config.as_ref(), rate),
        }
        self.lowered_from = self.bytes();
        self.config = config;
    }

    /// Changes the thresholds of marking by its length.
    pub(crate) fn set_marking(&mut self, ecn: Option<EcnConfig>) {
        self.ecn = ecn.as_ref().map(Marker::of);
        self.config.ecn = ecn;
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

    /// The present maximum of lossy bytes in it.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.config.limit_bytes.max(self.lowered_from)
    }

    /// Integrates its length from now on.
    pub(crate) fn set_metered(&mut self) {
        self.meter = Some(Meter::default());
    }

    /// Its length, the bytes that have left, and the integral of its length, for agents.
    pub(crate) fn view(&self, now: Time) -> QueueView {
        let bytes = self.bytes();
        let area = self.meter.map_or(0, |meter| meter.until(now, bytes));
        QueueView { bytes, sent_bytes: self.counters.dequeued_bytes, area }
    }

    /// Adds to the integral the time in which its length was that of now.
    #[inline]
    fn measure(&mut self, now: Time) {
        let bytes = self.bytes();
        if let Some(meter) = &mut self.meter {
            *meter = Meter { area: meter.until(now, bytes), at: now };
        }
    }

    /// Bytes in the phantom queue.
    pub(crate) fn phantom_bytes(&self, now: Time) -> Option<u64> {
        self.phantom.as_ref().map(|p| p.bytes(now))
    }

    /// The per-flow queues, if configured.
    pub(crate) fn flows(&self) -> Option<&Flows> {
        match &self.body {
            Body::Fifo(_) => None,
            Body::Flows(flows) => Some(flows),
        }
    }

    /// The per-flow queues, mutable.
    pub(crate) fn flows_mut(&mut self) -> Option<&mut Flows> {
        match &mut self.body {
            Body::Fifo(_) => None,
            Body::Flows(flows) => Some(flows),
        }
    }

    /// Adds a frame to the phantom queue, dropped or not, and returns whether that marks it.
    #[inline]
    pub(crate) fn handle_arrival(&mut self, now: Time, bytes: u64) -> bool {
        self.phantom.as_mut().is_some_and(|p| p.add(now, bytes, &mut self.rng))
    }

    /// The place of a flow among the per-flow queues; 0 without them.
    #[inline]
    pub(crate) fn place(&mut self, now: Time, key: u64) -> usize {
        self.flows_mut().map_or(0, |flows| flows.place(now, key))
    }

    /// Checks a frame of `bytes` against the limits of the queue and its flow.
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

    /// Enqueues a frame and marks it if the queue's length, or the phantom queue's, requires it.
    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Time,
        store: &mut Store,
        id: FrameId,
        place: usize,
        phantom_marks: bool,
    ) {
        self.measure(now);
        match &mut self.body {
            Body::Fifo(fifo) => fifo.push(store, id),
            Body::Flows(flows) => flows.push(now, place, store, id),
        }
        let bytes = self.bytes();
        self.counters.enqueued_pkts += 1;
        self.counters.enqueued_bytes += store.meta(id).wire_bytes();
        self.counters.max_bytes = self.counters.max_bytes.max(bytes);
        if phantom_marks {
            self.mark(Mark::Phantom, store.bytes_mut(id));
        } else if let Some(mark) = self.physical_mark(MarkAt::Enqueue, bytes) {
            self.mark(mark, store.bytes_mut(id));
        }
    }

    /// Bytes of the next frame; 0 if none may be sent now.
    #[inline]
    pub(crate) fn head_bytes(&mut self, now: Time, store: &Store) -> u64 {
        let head = match &mut self.body {
            Body::Fifo(fifo) => fifo.head(),
            Body::Flows(flows) => flows.head(now, store),
        };
        head.map_or(0, |id| store.meta(id).wire_bytes())
    }

    /// Dequeues the next frame, which the caller then owns, and returns its mark.
    #[inline]
    pub(crate) fn pop(&mut self, now: Time, store: &mut Store) -> Option<(FrameId, Option<Mark>)> {
        self.measure(now);
        let id = match &mut self.body {
            Body::Fifo(fifo) => fifo.pop(store)?,
            Body::Flows(flows) => flows.pop(now, store)?,
        };
        self.counters.dequeued_pkts += 1;
        self.counters.dequeued_bytes += store.meta(id).wire_bytes();
        let mark = self.physical_mark(MarkAt::Dequeue, self.bytes());
        Some((id, mark))
    }

    /// Marks a frame and counts it by its cause.
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

impl Meter {
    /// The integral until `now`, with this length since its last change.
    #[inline]
    fn until(&self, now: Time, bytes: u64) -> u128 {
        self.area + u128::from(bytes) * u128::from(now.since(self.at).as_ps())
    }
}

fn phantom_of(config: Option<&PhantomConfig>, rate: Option<Rate>) -> Option<Phantom> {
    Some(Phantom::new(config?, rate?))
}
