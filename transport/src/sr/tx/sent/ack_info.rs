//! What an acknowledgement reports, and what it changed.

use crate::qp::flow::AtSend;
use spanwire_base::Time;
use spanwire_wire::{BlockReport, SackWord};

/// What an acknowledgement says, its numbers not yet unwrapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInfo<'a> {
    pub(crate) next: u32,
    pub(crate) words: &'a [SackWord],
    pub(crate) newest: u32,
    /// When the newest was sent.
    pub(crate) echo: Time,
    /// What is said of blocks.
    pub(crate) blocks: &'a [BlockReport],
    /// What was sent no later than this would have arrived.
    pub(crate) overdue: Time,
    /// A packet sent later than this cannot have been acknowledged yet.
    pub(crate) latest_ackable: Time,
    /// Which packets came marked: bit i is the newest less i.
    pub(crate) marks: u64,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acked {
    /// Packets that had not been known to have arrived.
    pub(crate) pkts: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The newest arrival had been overtaken by something sent after it.
    pub(crate) is_reordered: bool,
    /// It was known to have arrived: either it is a duplicate, or this acknowledgement is stale.
    pub(crate) is_duplicate: bool,
    /// The newest arrival's number.
    pub(crate) newest: u64,
    /// It was a retransmission of what was lost.
    pub(crate) was_lost: bool,
    /// What was delivered when it left; none if it is known from before, or of another transmission
    /// than the last.
    pub(crate) at_send: Option<AtSend>,
    /// Packets of blocks that the peer is short of, and that had not been known to be lost.
    pub(crate) nacked: NewlyLost,
    /// Packets that are lost and not needed, and had not been known to be lost.
    pub(crate) settled: NewlyLost,
}

/// An acknowledgement of what was not sent, or of what lies too far in the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BeyondSent;

/// Packets that had not been known to be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NewlyLost {
    pub(crate) pkts: u64,
    pub(crate) bytes: u64,
}

impl NewlyLost {
    pub(super) fn add(&mut self, more: Self) {
        self.pkts += more.pkts;
        self.bytes += more.bytes;
    }
}

/// What happened to packets that were sent by one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathEvent {
    /// The path, as [`Sent::push`] was told.
    pub(crate) path: u16,
    pub(crate) pkts: u32,
    pub(crate) bytes: u64,
    /// Of those that arrived, packets that came marked.
    pub(crate) marked: u32,
    /// When the one of them was sent that was sent latest.
    pub(crate) sent_at: Time,
    pub(crate) outcome: PacketOutcome,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketOutcome {
    Arrived,
    /// Found lost, by time or because its block is short.
    Lost,
    /// Lost, and not needed any more.
    Settled,
}

/// What was found lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DetectedLoss {
    pub(crate) pkts: u64,
    /// Bytes of packets that are in no block.
    pub(crate) bytes: u64,
    /// Packets of blocks, and their bytes.
    pub(crate) coded_pkts: u64,
    pub(crate) coded_bytes: u64,
    /// When to look again.
    pub(crate) loss_timer: Option<Time>,
}
