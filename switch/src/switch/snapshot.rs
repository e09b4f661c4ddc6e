//! Snapshots of a switch's state, for sampling.

use super::Switch;
use crate::counters::PortCounters;
use crate::queue::Queue;
use serde::Serialize;
use spanwire_base::{Time, u64_from};

/// The state of a switch at one instant.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SwitchSnapshot {
    /// Bytes of the buffer in use, including reserves and headroom.
    pub used_bytes: u64,
    /// Free bytes of the shared part.
    pub shared_free_bytes: u64,
    /// By port.
    pub ports: Vec<PortSnapshot>,
}

/// The state of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortSnapshot {
    /// Bit i: priority i is paused at this port by the other end.
    pub paused: u8,
    /// Bit i: this port pauses priority i at the other end.
    pub pausing: u8,
    /// By queue.
    pub queues: Vec<QueueSnapshot>,
}

/// The state of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct QueueSnapshot {
    /// Bytes in it.
    pub bytes: u64,
    /// Bytes in its phantom queue, if it has one.
    pub phantom_bytes: Option<u64>,
}

impl Switch {
    /// Checks that all accounts agree: frames, queues, buffer, counters, limits. For checkers of a
    /// simulation.
    ///
    /// # Errors
    /// The accounts that do not agree: a bug of the switch, whatever its input.
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
        self.check_conservation()
    }

    /// Checks that every frame that entered the switch or was made in it has left it, ended here,
    /// was dropped with a counted reason, or is inside. A flooded frame becomes one at each other
    /// port.
    fn check_conservation(&self) -> Result<(), String> {
        let sum = |of: fn(&PortCounters) -> u64| -> u64 {
            self.ports.iter().map(|port| of(&port.counters)).sum()
        };
        let flooded = self.forwarder.counters().flooded;
        let copies = flooded * u64_from(self.ports.len().saturating_sub(1));
        let received = sum(|c| c.rx_pkts);
        let pauses_made = sum(|c| c.pfc.pause_tx + c.pfc.resume_tx);
        let made = sum(|c| c.agent_made);
        let pauses_ended = sum(|c| c.pfc.pause_rx + c.pfc.resume_rx);
        let (sent, inside) = (sum(|c| c.tx_pkts), u64::from(self.store.used()));
        let dropped: u64 = self.ports.iter().map(|port| port.counters().dropped()).sum();
        if received + copies + pauses_made + made
            == flooded + sent + pauses_ended + dropped + inside
        {
            return Ok(());
        }
        Err(format!(
            "{received} frames received, {flooded} of them flooded as {copies}, {pauses_made} \
             pauses and {made} of agents made are not {sent} sent, {pauses_ended} pauses ended, \
             {dropped} dropped and {inside} inside"
        ))
    }

    /// True if a queue holds lossless frames, which their ingress limits instead of the queue.
    fn holds_lossless(&self, port: usize, queue: usize) -> bool {
        let lossless = self.config.ports.iter().filter_map(|p| p.pfc.as_ref());
        let mask = lossless.fold(0, |mask, pfc| mask | pfc.mask());
        let mut classes = self.config.ports[port].class_to_queue.iter().enumerate();
        classes.any(|(class, q)| usize::from(*q) == queue && mask & (1 << class) != 0)
    }

    /// The state of the switch at `now`. O(queues), allocates; [`Switch::queue_bytes`] does not.
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
