//! The inputs of a policy: small samples, copied, without packets.

use crate::Entropy;
use spanwire_base::{Dur, Time};

/// The properties of a flow that are known when its balancer is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The seed of every draw. Queue pairs need different seeds, or their paths coincide.
    pub seed: u64,
    /// The round trip without any queue, if configured; otherwise the smallest sample is used.
    pub base_rtt: Option<Dur>,
}

/// A packet that is about to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The send time. Never decreases.
    pub now: Time,
    /// Its number in its stream, unwrapped. The packets of a block of an erasure code are
    /// consecutive.
    pub psn: u64,
    /// Payload bytes.
    pub bytes: u32,
    /// It is a retransmission.
    pub retransmit: bool,
    /// The path on which it was lost, if known.
    pub lost_on: Option<Entropy>,
    /// Payload bytes in flight without it; zero for an idle flow.
    pub in_flight_bytes: u64,
}

/// The sample of an acknowledgement for one path: one for each path with newly acknowledged
/// packets.
///
/// If a frame reports arrivals and losses, all arrivals come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathAck {
    /// The path of the packets.
    pub path: Entropy,
    /// Packets newly acknowledged, including packets presumed lost before.
    pub packets: u32,
    /// Their payload bytes.
    pub bytes: u64,
    /// Packets that arrived marked CE.
    pub marked: u32,
    /// The last send time of the newest of them.
    pub sent_at: Time,
    /// The round trip of one of them, if there is a sample.
    pub rtt: Option<Dur>,
    /// The part of `rtt` that the hosts added: the ACK delay, and waits in their receive rings.
    pub host_delay: Dur,
    /// How late this host processed the acknowledgement, and received its packet without a
    /// timestamp: feedback may be so late although the path is not.
    pub lateness: Dur,
}

/// Packets of one path that were found lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathLoss {
    /// Their path.
    pub path: Entropy,
    /// The number of packets.
    pub packets: u32,
    /// Their payload bytes.
    pub bytes: u64,
    /// The send time of the newest of them.
    pub sent_at: Time,
    /// How the loss was detected.
    pub kind: LossKind,
}

/// How a loss was detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// RACK: packets sent later were acknowledged.
    Rack,
    /// The receiver reported it missing in a block that was recovered without it, or that could not
    /// be recovered.
    Block,
    /// The retransmission timeout expired.
    Timeout,
}

/// The packets acknowledged in a round trip, which ends with the first acknowledgement of a packet
/// sent after the end of the previous one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Packets acknowledged.
    pub acked: u64,
    /// Packets that arrived marked CE.
    pub marked: u64,
}
