//! Counters of a switch. Their names are those of the fields; every cause of a drop or mark has
//! one.

use crate::pfc::PfcCounters;
use serde::Serialize;

/// The counters of a switch, with one entry a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SwitchCounters {
    /// Counters of forwarding.
    pub forwarding: ForwardingCounters,
    /// By port.
    pub ports: Vec<PortCounters>,
}

/// Counters of forwarding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ForwardingCounters {
    /// Frames flooded.
    pub flooded: u64,
    /// MAC addresses learned on another port than before.
    pub mac_moves: u64,
    /// MAC addresses evicted before their ageing time, for lack of room.
    pub mac_evictions: u64,
}

/// Counters of a port. Bytes include elided ones and Ethernet's padding to 60, but no FCS.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortCounters {
    /// Frames received, including pause frames.
    pub rx_pkts: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames sent, including pause frames.
    pub tx_pkts: u64,
    /// Their bytes, including telemetry added by this switch.
    pub tx_bytes: u64,
    /// Received without an Ethernet header.
    pub drop_bad_frame: u64,
    /// Received longer than the limit.
    pub drop_too_long: u64,
    /// Received for an address that bridges do not forward.
    pub drop_link_local: u64,
    /// Received for an unknown destination.
    pub drop_no_route: u64,
    /// Received on the egress port.
    pub drop_same_port: u64,
    /// Received for routing with a wrong IPv4 header checksum.
    pub drop_bad_checksum: u64,
    /// Received for routing with expired TTL.
    pub drop_ttl: u64,
    /// Received with a lossless priority while its headroom was full.
    pub drop_headroom_full: u64,
    /// Dequeued and longer than the driver's buffer.
    pub drop_tx_too_long: u64,
    /// Sent with a telemetry record added by this switch.
    pub int_stamped: u64,
    /// Sent without one, because its stack or the driver's buffer was full.
    pub int_full: u64,
    /// Made by agents of this switch, to be sent or dropped here.
    pub agent_made: u64,
    /// Pause frames.
    pub pfc: PfcCounters,
    /// By queue.
    pub queues: Vec<QueueCounters>,
}

/// Counters of a queue: frames enqueued = frames dequeued + frames in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct QueueCounters {
    /// Frames enqueued.
    pub enqueued_pkts: u64,
    /// Their bytes.
    pub enqueued_bytes: u64,
    /// Frames dequeued.
    pub dequeued_pkts: u64,
    /// Their bytes, without telemetry added by this switch.
    pub dequeued_bytes: u64,
    /// Maximum bytes in it.
    pub max_bytes: u64,
    /// Dropped: the queue was full.
    pub drop_queue_full: u64,
    /// Dropped: the shared buffer was full, or the queue's threshold of it.
    pub drop_buffer_full: u64,
    /// Dropped: the flow was at its limit.
    pub drop_flow_full: u64,
    /// Trimmed packets of another queue, dropped because this queue had no room.
    pub drop_trimmed_full: u64,
    /// Trimmed instead of dropped; the trimmed packets count in the queue that takes them.
    pub trimmed: u64,
    /// Marked between the thresholds, or above the upper one.
    pub mark_red: u64,
    /// Marked above a single threshold.
    pub mark_step: u64,
    /// Marked by the phantom queue.
    pub mark_phantom: u64,
    /// Not marked though selected: not IP, or Not-ECT.
    pub mark_not_ect: u64,
    /// Arrived while eight other flows occupied its set of places: shares one.
    pub flow_collisions: u64,
}

/// Causes of drops before a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drop {
    BadFrame,
    TooLong,
    LinkLocal,
    NoRoute,
    SamePort,
    BadChecksum,
    Ttl,
    HeadroomFull,
}

/// Causes of drops at a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueDrop {
    /// Its own limit.
    Limit,
    /// The shared buffer.
    Buffer,
    /// The limit of the frame's flow.
    Flow,
    /// No room for the headers of a trimmed frame.
    Trimmed,
}

/// Causes of marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Red,
    Step,
    Phantom,
}

impl SwitchCounters {
    /// Frames dropped, for any cause. A flooded frame may be dropped at several ports.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.ports.iter().map(PortCounters::dropped).sum()
    }
}

impl PortCounters {
    /// Frames dropped at this port, at ingress or egress.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let queues: u64 = self.queues.iter().map(QueueCounters::dropped).sum();
        queues
            + self.drop_bad_frame
            + self.drop_too_long
            + self.drop_link_local
            + self.drop_no_route
            + self.drop_same_port
            + self.drop_bad_checksum
            + self.drop_ttl
            + self.drop_headroom_full
            + self.drop_tx_too_long
    }

    pub(crate) fn count(&mut self, drop: Drop) {
        *match drop {
            Drop::BadFrame => &mut self.drop_bad_frame,
            Drop::TooLong => &mut self.drop_too_long,
            Drop::LinkLocal => &mut self.drop_link_local,
            Drop::NoRoute => &mut self.drop_no_route,
            Drop::SamePort => &mut self.drop_same_port,
            Drop::BadChecksum => &mut self.drop_bad_checksum,
            Drop::Ttl => &mut self.drop_ttl,
            Drop::HeadroomFull => &mut self.drop_headroom_full,
        } += 1;
    }
}

impl QueueCounters {
    /// Frames dropped at this queue.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drop_queue_full + self.drop_buffer_full + self.drop_flow_full + self.drop_trimmed_full
    }

    pub(crate) fn count(&mut self, drop: QueueDrop) {
        *match drop {
            QueueDrop::Limit => &mut self.drop_queue_full,
            QueueDrop::Buffer => &mut self.drop_buffer_full,
            QueueDrop::Flow => &mut self.drop_flow_full,
            QueueDrop::Trimmed => &mut self.drop_trimmed_full,
        } += 1;
    }

    /// Frames marked, for any cause.
    #[must_use]
    pub fn marked(&self) -> u64 {
        self.mark_red + self.mark_step + self.mark_phantom
    }

    pub(crate) fn count_mark(&mut self, mark: Mark) {
        *match mark {
            Mark::Red => &mut self.mark_red,
            Mark::Step => &mut self.mark_step,
            Mark::Phantom => &mut self.mark_phantom,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The sum of the fields with this prefix.
    fn fields(counters: &impl Serialize, prefix: &str) -> u64 {
        let value = serde_json::to_value(counters).unwrap();
        let fields = value.as_object().unwrap().iter();
        fields.filter(|(name, _)| name.starts_with(prefix)).filter_map(|(_, v)| v.as_u64()).sum()
    }

    #[test]
    fn dropped__sums_every_drop_of_port_and_queues() {
        let mut port = PortCounters::default();
        let drops = [
            Drop::BadFrame,
            Drop::TooLong,
            Drop::LinkLocal,
            Drop::NoRoute,
            Drop::SamePort,
            Drop::BadChecksum,
            Drop::Ttl,
            Drop::HeadroomFull,
        ];
        for (i, drop) in drops.into_iter().enumerate() {
            (0..1 << i).for_each(|_| port.count(drop));
        }
        port.drop_tx_too_long = 1 << drops.len();
        assert_eq!(port.dropped(), (1 << 9) - 1, "each has a field of its own");
        assert_eq!(fields(&port, "drop_"), port.dropped());
        let names = serde_json::to_value(&port).unwrap();
        let names = names.as_object().unwrap();
        assert_eq!(names.keys().filter(|name| name.starts_with("drop_")).count(), 9);
        assert_eq!(names["queues"], Value::Array(Vec::new()));
        let mut queue = QueueCounters::default();
        for (i, drop) in [QueueDrop::Limit, QueueDrop::Buffer, QueueDrop::Flow, QueueDrop::Trimmed]
            .into_iter()
            .enumerate()
        {
            (0..1 << i).for_each(|_| queue.count(drop));
        }
        assert_eq!((queue.dropped(), fields(&queue, "drop_")), (15, 15));
        port.queues = vec![queue; 2];
        let switch = SwitchCounters { ports: vec![port.clone(), port], ..Default::default() };
        assert_eq!(switch.dropped(), 2 * (511 + 2 * 15));
    }

    #[test]
    fn marked__sums_every_cause() {
        let mut queue = QueueCounters { mark_not_ect: 100, ..QueueCounters::default() };
        for (i, mark) in [Mark::Red, Mark::Step, Mark::Phantom].into_iter().enumerate() {
            (0..1 << i).for_each(|_| queue.count_mark(mark));
        }
        assert_eq!((queue.marked(), fields(&queue, "mark_")), (7, 107));
    }
}
