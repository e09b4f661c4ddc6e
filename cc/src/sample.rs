//! What a controller is told: small, copied, without packets.

use spanwire_base::{Dur, Rate, Time};

/// What is known of a path when a controller is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Payload bytes of a full packet, 1..=65536: the unit that papers call a packet.
    pub mtu_bytes: u32,
    /// The rate of our own link: nothing is ever sent faster.
    pub line_rate: Rate,
    /// The round trip without any queue, if it was configured; if not, the smallest that is seen.
    pub base_rtt: Option<Dur>,
}

/// A packet left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Payload bytes.
    pub bytes: u32,
    /// Bytes in flight with it.
    pub inflight_bytes: u64,
    /// It was sent before.
    pub again: bool,
}

/// One acknowledgement, however many packets it is of.
///
/// `Default` is an acknowledgement of nothing, for `..Ack::default()` in tests.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ack<'a> {
    /// Payload bytes that had not been known to have arrived.
    pub acked_bytes: u64,
    /// Their packets.
    pub acked_pkts: u64,
    /// Of `acked_bytes`, bytes that came marked CE.
    pub marked_bytes: u64,
    /// From sending the newest packet to now. None if the echo was not usable.
    pub rtt: Option<Dur>,
    /// How long the peer held it before it answered.
    pub remote_hold: Dur,
    /// When the newest packet that it covers was sent last. Rounds are told by this, never by
    /// packet numbers, which spraying puts out of order.
    pub sent_at: Time,
    /// The newest packet's number in its stream.
    pub number: u64,
    /// The lowest number not acknowledged, after this.
    pub una: u64,
    /// The next number to be sent.
    pub next: u64,
    /// The newest packet was a retransmission.
    pub again: bool,
    /// Bytes in flight before this acknowledgement.
    pub inflight_bytes: u64,
    /// Something waited to be sent, and only window or pacer held it back, since the last
    /// acknowledgement.
    pub held_back: bool,
    /// Switches on the way, if they were counted.
    pub hops: Option<u8>,
    /// Which path the newest packet took.
    pub path: u16,
    /// Telemetry of each switch on the way, the first one first. Empty if there is none.
    pub int: &'a [Hop],
    /// A sample of the rate at which bytes are delivered.
    pub delivery: Option<Delivery>,
}

/// What one switch said of the port by which the packet left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The switch's clock.
    pub at: Time,
    /// Bytes sent by the port since it began.
    pub tx_bytes: u64,
    /// Bytes in its queue.
    pub queue_bytes: u64,
    /// The port's rate.
    pub rate: Rate,
}

/// Bytes delivered between two moments of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Bytes delivered up to now since the connection began.
    pub total_bytes: u64,
    /// The same when the newest packet was sent.
    pub total_at_send_bytes: u64,
    /// The longer of the times that sending and acknowledging them took.
    pub interval: Dur,
    /// There was not always something to send.
    pub app_limited: bool,
}

/// Something was lost, or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// How it was noticed.
    pub kind: LossKind,
    /// Payload bytes.
    pub bytes: u64,
    /// Bytes in flight after they were taken out.
    pub inflight_bytes: u64,
}

/// How a loss was noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// Packets sent later have arrived. Once for each recovery.
    Recovery,
    /// Nothing was heard for the retransmission timeout; how many times in a row, from 1.
    Timeout(u32),
    /// A block of an erasure code could not be rebuilt. Paths are changed for it, not windows.
    Block,
}

/// A sign of the network nearby, long before the peer's acknowledgement (Reflex's pseudo-ACK).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PseudoAck {
    /// The round trip to the switch that sent it.
    pub rtt: Dur,
    /// When the packet that it is of was sent.
    pub sent_at: Time,
    /// Bytes sent since the last one.
    pub sent_bytes: u64,
}

impl Ack<'_> {
    /// The round trip through the network, without the time the peer held the acknowledgement.
    #[must_use]
    pub fn fabric_rtt(&self) -> Option<Dur> {
        let rtt = self.rtt?.as_ps();
        Some(Dur::from_ps(rtt.saturating_sub(self.remote_hold.as_ps())))
    }

    /// The window of `cwnd` bytes, or the pacer, was what limited the flow: only then may it grow.
    #[must_use]
    pub fn is_limited(&self, cwnd: f64, mtu: f64) -> bool {
        self.held_back || crate::units::float(self.inflight_bytes) >= cwnd - 2.0 * mtu
    }
}
