//! The position of a packet in its FEC block.

use spanwire_wire::BlockRepr;

/// The position of a packet in its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockPosition {
    pub(super) index: u8,
    /// Source packets of the block; 0 if the packet is in no block.
    pub(super) data: u8,
    pub(super) parity: u8,
    pub(super) scheme: u8,
    /// It arrived, but the peer cannot use it: its running parity was dropped.
    pub(super) is_discarded: bool,
    /// Lost source packets of its block are retransmitted, whatever parity could recover.
    pub(super) retransmits: bool,
}

impl BlockPosition {
    /// The position of a packet in no block.
    pub(crate) const NONE: Self =
        Self { index: 0, data: 0, parity: 0, scheme: 0, is_discarded: false, retransmits: false };

    pub(crate) fn of(block: &BlockRepr) -> Self {
        let &BlockRepr { index, data, parity, scheme } = block;
        Self { index, data, parity, scheme, ..Self::NONE }
    }

    /// The packet is in a block.
    #[inline]
    pub(crate) fn is_coded(self) -> bool {
        self.data > 0
    }

    /// The packet is the first of a block.
    #[inline]
    pub(crate) fn begins_block(self) -> bool {
        self.is_coded() && self.index == 0
    }

    pub(super) fn is_parity(self) -> bool {
        self.index >= self.data && self.is_coded()
    }

    /// The position as in the packet's header.
    pub(crate) fn repr(self) -> Option<BlockRepr> {
        let Self { index, data, parity, scheme, .. } = self;
        self.is_coded().then_some(BlockRepr { index, data, parity, scheme })
    }

    /// Packets of its block after it.
    #[inline]
    pub(super) fn pkts_after(self) -> u64 {
        self.pkts().saturating_sub(u64::from(self.index) + 1)
    }

    pub(super) fn pkts(self) -> u64 {
        u64::from(self.data) + u64::from(self.parity)
    }
}
