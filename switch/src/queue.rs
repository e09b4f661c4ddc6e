//! One queue of a port.

use crate::config::QueueConfig;
use crate::counters::{QueueCounters, QueueDrop};
use crate::store::{Fifo, FrameId, Store};

/// A queue with its limit and its counters.
#[derive(Debug)]
pub(crate) struct Queue {
    config: QueueConfig,
    fifo: Fifo,
    counters: QueueCounters,
}

impl Queue {
    pub(crate) fn new(config: QueueConfig) -> Self {
        Self { config, fifo: Fifo::default(), counters: QueueCounters::default() }
    }

    pub(crate) fn config(&self) -> &QueueConfig {
        &self.config
    }

    pub(crate) fn counters(&self) -> &QueueCounters {
        &self.counters
    }

    /// Bytes in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.fifo.bytes
    }

    /// Whether a frame of `bytes` has room.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), QueueDrop> {
        if self.fifo.bytes + bytes > self.config.limit_bytes {
            return Err(QueueDrop::QueueFull);
        }
        Ok(())
    }

    /// Puts a frame at the end; the caller has checked that there is room.
    pub(crate) fn push(&mut self, store: &mut Store, id: FrameId) {
        self.fifo.push(store, id);
        self.counters.enqueued_pkts += 1;
        self.counters.enqueued_bytes += store.meta(id).wire_bytes();
        self.counters.max_bytes = self.counters.max_bytes.max(self.fifo.bytes);
    }

    /// Takes the next frame; the caller owns it.
    pub(crate) fn pop(&mut self, store: &mut Store) -> Option<FrameId> {
        let id = self.fifo.pop(store)?;
        self.counters.dequeued_pkts += 1;
        self.counters.dequeued_bytes += store.meta(id).wire_bytes();
        Some(id)
    }

    pub(crate) fn count(&mut self, drop: QueueDrop) {
        self.counters.count(drop);
    }
}
