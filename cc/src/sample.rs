//! The inputs of a controller: small samples, copied, without packets.

use spanwire_base::{Dur, Rate, Time};

/// The properties of a path that are known when a controller is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Payload bytes of a full packet, 1..=65536: the unit that papers call a packet.
    pub mtu_bytes: u32,
    /// The rate of our own link, an upper bound of every rate.
    pub line_rate: Rate,
    /// The round trip without any queue, if configured; otherwise the smallest sample is used.
    pub base_rtt: Option<Dur>,
}

/// The sample of a packet that left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Payload bytes.
    pub bytes: u32,
    /// Bytes that the pacer counts: the payload with its headers; of a parity packet all bytes.
    pub paced_bytes: u32,
    /// Bytes of its frame, as switches count them in their queues; 0 if unknown.
    pub frame_bytes: u32,
    /// Bytes in flight, including it: at most `bytes` if nothing else is.
    pub inflight_bytes: u64,
    /// It is a retransmission.
    pub is_retransmission: bool,
}

/// The sample of one acknowledgement, which may cover many packets.
///
/// `Default` acknowledges nothing. Tests and users set the fields they know and complete the rest
/// with `..Ack::default()`, so that a new signal is a new field here and nothing else.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ack<'a> {
    /// Payload bytes newly acknowledged.
    pub acked_bytes: u64,
    /// Packets newly acknowledged.
    pub acked_pkts: u64,
    /// Bytes of `acked_bytes` beyond those between two requests for an ACK: the peer has coalesced
    /// ACKs, since it received the packets of several requests as a batch. 0 where the engine does
    /// not know: SR reports the peer's delay instead, and other peers than those over UDP sockets
    /// need not acknowledge a request at once.
    pub coalesced_bytes: u64,
    /// Payload bytes lost since the last acknowledgement: all that were, not only those that begin
    /// a recovery period, and those that parity recovers.
    pub lost_bytes: u64,
    /// Bytes of `acked_bytes` that arrived marked CE.
    pub marked_bytes: u64,
    /// From sending the newest packet to now. None if the echoed time was not usable.
    pub rtt: Option<Dur>,
    /// The time the peer held the acknowledgement (ACK delay).
    pub ack_delay: Dur,
    /// From the acknowledgement's arrival to its processing here: our own host was late.
    pub rx_delay: Dur,
    /// How much of `rtt - ack_delay` the hosts may have added: the packet or the acknowledgement
    /// may have waited for so long in a receive ring without a timestamp.
    pub rtt_slack: Dur,
    /// The last time the newest covered packet was sent. It delimits rounds, because packet numbers
    /// are out of order on sprayed paths.
    pub sent_at: Time,
    /// The newest packet's number in its stream.
    pub number: u64,
    /// The lowest unacknowledged number, after this acknowledgement.
    pub una: u64,
    /// The next number to be sent.
    pub next: u64,
    /// The newest packet was a retransmission.
    pub is_retransmission: bool,
    /// Bytes in flight before this acknowledgement.
    pub inflight_bytes: u64,
    /// The window or the pacer limited the flow since the last acknowledgement: data were waiting
    /// to be sent.
    pub cwnd_limited: bool,
    /// The number of switches on the path, if known.
    pub hops: Option<u8>,
    /// The path of the newest packet.
    pub path: u16,
    /// In-band telemetry of each switch on the path, the first one first. Empty if there is none.
    pub int: &'a [Hop],
    /// A delivery rate sample.
    pub delivery: Option<Delivery>,
}

/// The telemetry record of the switch port by which the packet left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The time of the record, by the switch's clock.
    pub at: Time,
    /// Bytes sent by the port since its start.
    pub tx_bytes: u64,
    /// Bytes in its queue.
    pub queue_bytes: u64,
    /// The port's rate.
    pub rate: Rate,
}

/// A delivery rate sample (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Bytes delivered since the start of the connection.
    pub total_bytes: u64,
    /// The same when the newest packet was sent.
    pub total_at_send_bytes: u64,
    /// The longer of the send interval and the ACK interval.
    pub interval: Dur,
    /// The application limited the flow within the interval.
    pub app_limited: bool,
}

/// The sample of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// How the loss was detected.
    pub kind: LossKind,
    /// Payload bytes.
    pub bytes: u64,
    /// Bytes in flight, without the lost ones.
    pub inflight_bytes: u64,
}

/// How a loss was detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// Packets sent later were acknowledged. One event for each recovery period.
    Recovery,
    /// The retransmission timeout expired; the number of consecutive timeouts, from 1.
    Timeout(u32),
    /// Packets of an erasure code's block were lost. Parity may recover them, so it is no
    /// congestion.
    Block,
    /// More packets of a block were lost than parity recovers, and they are retransmitted. One
    /// event for each recovery period.
    BlockRecovery,
}

/// A pseudo-ACK of a nearby switch, which arrives long before the peer's ACK (Reflex).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PseudoAck {
    /// The round trip to the switch that sent it.
    pub rtt: Dur,
    /// The time the packet that triggered it was sent.
    pub sent_at: Time,
    /// Bytes sent since the previous pseudo-ACK.
    pub sent_bytes: u64,
    /// The number of switches before the one that sent it, if known.
    pub hops: Option<u8>,
}

impl Ack<'_> {
    /// The round trip through the network, without the peer's ACK delay.
    #[must_use]
    pub fn fabric_rtt(&self) -> Option<Dur> {
        let rtt = self.rtt?.as_ps();
        Some(Dur::from_ps(rtt.saturating_sub(self.ack_delay.as_ps())))
    }

    /// True if the window of `cwnd` bytes or the pacer limited the flow: only then may the window
    /// grow.
    #[must_use]
    pub fn is_limited(&self, cwnd: f64, mtu: f64) -> bool {
        self.cwnd_limited || crate::units::float(self.inflight_bytes) >= cwnd - 2.0 * mtu
    }
}
