//! What is in a switch at one instant, for those who sample it.

use super::Switch;
use crate::queue::Queue;
use serde::Serialize;
use spanwire_base::Time;

/// What is in a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SwitchSnapshot {
    /// Bytes of the buffer in use, reserves and headroom included.
    pub used_bytes: u64,
    /// Bytes of the shared part that are free.
    pub shared_free_bytes: u64,
    /// By port.
    pub ports: Vec<PortSnapshot>,
}

/// What waits at a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortSnapshot {
    /// Bit i: priority i pauses here, by the other end's word.
    pub paused: u8,
    /// Bit i: the other end is to pause priority i.
    pub pausing: u8,
    /// By queue.
    pub queues: Vec<QueueSnapshot>,
}

/// What waits in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct QueueSnapshot {
    /// Bytes in it.
    pub bytes: u64,
    /// Bytes in its phantom queue, if it has one.
    pub phantom_bytes: Option<u64>,
}

impl Switch {
    /// Compares every account with every other: queues, buffer, counters, limits. For checkers that
    /// run beside a simulation.
    ///
    /// # Errors
    /// Which two do not agree: a defect of the switch, never of what it was given.
    ///
    /// # Cost
    /// O(queues).
    pub fn check_accounts(&self) -> Result<(), String> {
        let (mut pkts, mut bytes) = (0, 0);
        for (n, port) in self.ports.iter().enumerate() {
            for (i, queue) in port.queues.iter().enumerate() {
                let (c, now) = (queue.counters(), queue.bytes());
                if c.enqueued_bytes - c.dequeued_bytes != now {
                    return Err(format!("port {n} queue {i} holds {now} bytes and counted {c:?}"));
                }
                let limit = queue.most_bytes();
                if now > limit && !self.holds_lossless(n, i) {
                    return Err(format!("port {n} queue {i} holds {now} bytes, limit {limit}"));
                }
                pkts += c.enqueued_pkts - c.dequeued_pkts;
                bytes += now;
            }
        }
        let (used_pkts, used_bytes) = (u64::from(self.store.used()), self.buffer.used());
        if (pkts, bytes) != (used_pkts, used_bytes) {
            return Err(format!(
                "queues hold {pkts} frames of {bytes} bytes, the buffer {used_pkts} of {used_bytes}"
            ));
        }
        if used_bytes > self.config.buffer_bytes {
            return Err(format!("{used_bytes} bytes are in a buffer of less"));
        }
        Ok(())
    }

    /// Lossless frames are bound by their ingress, not by the queue that they leave by.
    fn holds_lossless(&self, port: usize, queue: usize) -> bool {
        let lossless = self.config.ports.iter().filter_map(|p| p.pfc.as_ref());
        let mask = lossless.fold(0, |mask, pfc| mask | pfc.mask());
        let mut classes = self.config.ports[port].class_to_queue.iter().enumerate();
        classes.any(|(class, q)| usize::from(*q) == queue && mask & (1 << class) != 0)
    }

    /// What is in the switch at `now`. O(queues), allocates; [`Switch::queue_bytes`] does not.
    #[must_use]
    pub fn snapshot(&self, now: Time) -> SwitchSnapshot {
        let queue =
            |q: &Queue| QueueSnapshot { bytes: q.bytes(), phantom_bytes: q.phantom_bytes(now) };
        let ports = self.ports.iter().map(|p| {
            let (paused, pausing) = p.paused();
            PortSnapshot { paused, pausing, queues: p.queues.iter().map(queue).collect() }
        });
        SwitchSnapshot {
            used_bytes: self.buffer.used(),
            shared_free_bytes: self.buffer.shared_free(),
            ports: ports.collect(),
        }
    }
}
