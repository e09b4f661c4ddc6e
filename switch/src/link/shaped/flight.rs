//! Frames in flight.

use crate::store::{FrameId, Meta, Store};
use serde::Serialize;
use spanwire_base::{PortId, PortMask, Time, TxMeta, usize_from};
use std::collections::VecDeque;

/// Frames in flight, by port, in the order of arrival.
#[derive(Debug)]
pub(super) struct Flight {
    store: Store,
    ports: Vec<VecDeque<FrameId>>,
    counters: ShapedCounters,
}

/// Counters of frames in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ShapedCounters {
    /// Frames in flight on all lines.
    pub in_flight_pkts: u32,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// Maximum bytes in flight so far.
    pub max_in_flight_bytes: u64,
    /// Frames lost because the budget was full: lines without a rate, or bunching by jitter.
    pub drop_budget_full: u64,
    /// Frames that arrived and exceeded the driver's buffer.
    pub drop_tx_too_long: u64,
}

impl Flight {
    pub(super) fn new(ports: usize, max_frame_bytes: usize) -> Self {
        Self {
            store: Store::new(max_frame_bytes),
            ports: (0..ports).map(|_| VecDeque::new()).collect(),
            counters: ShapedCounters::default(),
        }
    }

    pub(super) fn counters(&self) -> ShapedCounters {
        self.counters
    }

    /// Keeps a frame until it arrives, after those with the same arrival time.
    pub(super) fn add(
        &mut self,
        port: PortId,
        at: Time,
        frame: &[u8],
        elided_bytes: u32,
        budget_bytes: u64,
    ) {
        let meta = Meta::new(frame.len(), elided_bytes, at);
        let bytes = meta.wire_bytes();
        if self.counters.in_flight_bytes + bytes > budget_bytes {
            self.counters.drop_budget_full += 1;
            return;
        }
        let id = self.store.insert(frame, meta);
        let queue = &mut self.ports[port.index()];
        // Only frames that overtake a delayed one are not last.
        let mut place = queue.len();
        while place > 0 && self.store.meta(queue[place - 1]).at > at {
            place -= 1;
        }
        if place == queue.len() {
            queue.push_back(id);
        } else {
            queue.insert(place, id);
        }
        let c = &mut self.counters;
        c.in_flight_pkts += 1;
        c.in_flight_bytes += bytes;
        c.max_in_flight_bytes = c.max_in_flight_bytes.max(c.in_flight_bytes);
    }

    /// The ports whose next frame has arrived.
    pub(super) fn due(&self, now: Time) -> PortMask {
        let mut due = PortMask::EMPTY;
        for (port, _) in self.heads().filter(|(_, at)| *at <= now) {
            due.insert(port);
        }
        due
    }

    /// When the next frame arrives after `now`.
    pub(super) fn next_arrival(&self, now: Time) -> Option<Time> {
        self.heads().map(|(_, at)| at).filter(|at| *at > now).min()
    }

    /// Takes the next frame of a port that has arrived.
    pub(super) fn take(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        while self.head_at(port)? <= now {
            let queue = &mut self.ports[port.index()];
            let id = queue.pop_front()?;
            let meta = *self.store.meta(id);
            let len = usize_from(u64::from(meta.len));
            self.counters.in_flight_pkts -= 1;
            self.counters.in_flight_bytes -= meta.wire_bytes();
            let fits = frame.get_mut(..len).map(|out| out.copy_from_slice(self.store.bytes(id)));
            self.store.remove(id);
            if fits.is_some() {
                return Some(TxMeta { elided_bytes: meta.elided_bytes, ..TxMeta::whole(len) });
            }
            self.counters.drop_tx_too_long += 1;
        }
        None
    }

    fn head_at(&self, port: PortId) -> Option<Time> {
        let queue = self.ports.get(port.index())?;
        queue.front().map(|id| self.store.meta(*id).at)
    }

    /// The ports with frames in flight, and the arrival of their first frame.
    fn heads(&self) -> impl Iterator<Item = (PortId, Time)> {
        (0..)
            .map_while(PortId::new)
            .zip(&self.ports)
            .filter_map(|(port, queue)| queue.front().map(|id| (port, self.store.meta(*id).at)))
    }
}
