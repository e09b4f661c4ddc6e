//! The positions of sent packets in their FEC blocks.

use spanwire_base::Time;
use spanwire_wire::BlockRepr;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::Range;

/// The position of a sent packet in its block, while it is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(super) block: BlockRepr,
    /// The number of its block's first packet.
    pub(super) first: u64,
    /// The digest of a source packet's payload at its first transmission, to tell whether a
    /// retransmission has the same.
    pub(super) digest: Option<NonZeroU64>,
    /// Lost source packets of its block are retransmitted, whatever parity could recover.
    pub(super) retransmits: bool,
}

impl Position {
    /// Its retransmission may take part in recovery, if its payload is that of the first
    /// transmission.
    pub(super) fn may_repeat(&self) -> bool {
        self.digest.is_some() && !self.retransmits
    }

    /// The numbers of its block's source packets.
    pub(super) fn data(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.block.data)
    }

    /// The numbers of all packets of its block.
    pub(super) fn packets(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.block.pkts())
    }
}

/// The state of erasure coding of a stream.
#[derive(Debug, Default)]
pub(in crate::sr::tx) struct SentCoding {
    /// Packets of the last block that were not sent yet.
    pub(super) unsent_pkts: u64,
    /// Lost data of that block are retransmitted ([`Position::retransmits`]).
    pub(super) retransmits: bool,
    /// Lost packets of blocks that the last ACK, or the last detection of losses, has queued for
    /// retransmission.
    pub(in crate::sr::tx) queued_pkts: u64,
    /// Packets that the peer has recovered; the originals may still arrive.
    pub(super) recovered: VecDeque<Recovered>,
}

impl SentCoding {
    /// The next packet is in no block.
    #[inline]
    pub(in crate::sr::tx) fn end(&mut self) {
        (self.unsent_pkts, self.retransmits) = (0, false);
    }
}

/// A packet that the peer has recovered while it was presumed in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovered {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) path: u16,
    pub(super) sent_at: Time,
}
