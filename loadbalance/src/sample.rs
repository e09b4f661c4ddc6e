//! What a policy is told: small, copied, without packets.

use crate::Entropy;
use spanwire_base::{Dur, Time};

/// What is known of a flow when its balancer is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Decides every draw. Another one for each queue pair, or their paths coincide.
    pub seed: u64,
    /// The round trip without any queue, if it was configured; if not, the smallest that is seen.
    pub base_rtt: Option<Dur>,
}

/// A packet that leaves now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The time at which it leaves. Never decreases.
    pub now: Time,
    /// Its number in its stream, unwrapped. The packets of a block of an erasure code have
    /// consecutive ones.
    pub psn: u64,
    /// Payload bytes.
    pub bytes: u32,
    /// It was sent before.
    pub retransmit: bool,
    /// The path on which it was lost, if it was and that is known.
    pub lost_on: Option<Entropy>,
    /// Payload bytes in flight without it; zero is a flow that was idle.
    pub in_flight_bytes: u64,
}

/// What one acknowledgement says of one path: one for each path that it covers packets of.
///
/// Where one frame tells of arrivals and of losses, all arrivals come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathAck {
    /// The path that the packets took.
    pub path: Entropy,
    /// Packets that had not been known to have arrived. Also such as were taken for lost.
    pub packets: u32,
    /// Their payload bytes.
    pub bytes: u64,
    /// Of `packets`, those that came marked CE.
    pub marked: u32,
    /// When the last of them was sent that was sent latest.
    pub sent_at: Time,
    /// The round trip of one of them, if there is a sample.
    pub rtt: Option<Dur>,
}

/// Packets of one path were found lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathLoss {
    /// The path that they took.
    pub path: Entropy,
    /// How many.
    pub packets: u32,
    /// Their payload bytes.
    pub bytes: u64,
    /// When the one of them was sent that was sent latest.
    pub sent_at: Time,
    /// How it was noticed.
    pub kind: LossKind,
}

/// How a loss was noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// Packets sent later have arrived.
    Overdue,
    /// The receiver named it missing: of a block that could not be rebuilt, or of one that was,
    /// without it.
    Block,
    /// Nothing was heard for the retransmission timeout.
    Timeout,
}

/// A round trip ended: the first acknowledgement came of a packet that was sent after the last
/// round's end. What was acknowledged since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Packets.
    pub acked: u64,
    /// Of these, marked CE.
    pub marked: u64,
}
