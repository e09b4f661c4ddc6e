//! The content of an ACK, and its effects on the sent packets.

use crate::qp::flow::SendTimeState;
use spanwire_base::Time;
use spanwire_loadbalance::LossKind;
use spanwire_wire::{BlockReport, SackWord, SrAckRepr};

/// The content of an ACK; its numbers are not unwrapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInfo<'a> {
    pub(crate) next: u32,
    pub(crate) words: &'a [SackWord],
    pub(crate) newest: u32,
    /// The send time of the newest packet.
    pub(crate) echo: Time,
    /// Block reports.
    pub(crate) blocks: &'a [BlockReport],
    /// Packets sent no later than this are lost if they have not arrived.
    pub(crate) lost_send_time: Time,
    /// A packet sent later than this cannot have been acknowledged yet.
    pub(crate) latest_ackable: Time,
    /// CE marks: bit i is the newest packet's number minus i.
    pub(crate) marks: u64,
}

impl<'a> AckInfo<'a> {
    /// The content of `ack`, with the two times that the caller computes.
    pub(crate) fn of(
        ack: &'a SrAckRepr<'_>,
        (lost_send_time, latest_ackable): (Time, Time),
        marks: u64,
    ) -> Self {
        let &SrAckRepr { next, newest, .. } = ack;
        let (words, blocks) = (ack.words.as_slice(), ack.blocks.as_slice());
        let echo = Time::from_ps(ack.echo_ps);
        Self { next, words, newest, echo, blocks, lost_send_time, latest_ackable, marks }
    }

    /// It has block reports, which concern single packets.
    pub(super) fn has_reports(&self) -> bool {
        !self.blocks.is_empty()
    }
}

/// The effects of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acked {
    /// Newly acknowledged packets.
    pub(crate) pkts: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The newest arrival was overtaken by a packet sent after it.
    pub(crate) is_reordered: bool,
    /// The newest arrival was already acknowledged: it is a duplicate, or this ACK is stale.
    pub(crate) is_duplicate: bool,
    /// The number of the newest arrival.
    pub(crate) newest: u64,
    /// The newest arrival was a retransmission of a lost packet.
    pub(crate) was_lost: bool,
    /// The flow's delivery state at its send time. None if it was already acknowledged, or if the
    /// ACK is of an earlier transmission.
    pub(crate) send_state: Option<SendTimeState>,
    /// Packets newly found lost by block NACKs.
    pub(crate) nacked: NewlyLost,
    /// Packets newly reported as lost and not needed.
    pub(crate) settled: NewlyLost,
}

/// The ACK acknowledges packets that were not sent, or is of too old packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BeyondSent;

/// Packets newly found lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NewlyLost {
    pub(crate) pkts: u64,
    pub(crate) bytes: u64,
}

impl NewlyLost {
    pub(in crate::sr::tx) fn add(&mut self, more: Self) {
        self.pkts += more.pkts;
        self.bytes += more.bytes;
    }
}

/// An event of packets sent by one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathEvent {
    /// The path, as given to [`super::Sent::push`].
    pub(crate) path: u16,
    pub(crate) pkts: u32,
    pub(crate) bytes: u64,
    /// CE-marked packets among those that arrived.
    pub(crate) marked: u32,
    /// The send time of the latest-sent packet.
    pub(crate) sent_at: Time,
    pub(crate) outcome: PacketOutcome,
}

/// The outcome of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketOutcome {
    Arrived,
    /// Presumed lost, by time or by a block NACK.
    Lost,
    /// Lost, and not needed any more.
    Settled,
}

impl PacketOutcome {
    /// The kind of a loss of a packet with this outcome; `lost_by` unless the peer has reported it.
    pub(in crate::sr::tx) fn loss_kind(self, lost_by: LossKind) -> LossKind {
        if self == Self::Settled { LossKind::Block } else { lost_by }
    }
}

/// Packets newly found lost by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DetectedLoss {
    /// Packets outside of blocks, which must be retransmitted.
    pub(crate) plain: NewlyLost,
    /// Packets of blocks, which the peer may recover.
    pub(crate) recoverable: NewlyLost,
    /// When the next packet may become overdue.
    pub(crate) loss_timer: Option<Time>,
}
