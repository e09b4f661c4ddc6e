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
