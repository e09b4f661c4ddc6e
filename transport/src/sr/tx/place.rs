//! The position of a packet in its FEC block.

use spanwire_wire::BlockRepr;

/// Where a packet stands in its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockPosition {
    pub(super) index: u8,
    /// 0 if it is in none.
    pub(super) data: u8,
    pub(super) parity: u8,
    pub(super) scheme: u8,
    /// It arrived and was not kept: it does not count.
    pub(super) is_discarded: bool,
    /// Lost data of its block are retransmitted, whatever parity there is.
    pub(super) retransmits: bool,
}

impl BlockPosition {
    /// In no block.
    pub(crate) const NONE: Self =
        Self { index: 0, data: 0, parity: 0, scheme: 0, is_discarded: false, retransmits: false };

    pub(crate) fn of(block: &BlockRepr) -> Self {
        let &BlockRepr { index, data, parity, scheme } = block;
        Self { index, data, parity, scheme, ..Self::NONE }
    }

    /// It is in a block.
    #[inline]
    pub(crate) fn is_coded(self) -> bool {
        self.data > 0
    }

    /// It is the first of a block.
    #[inline]
    pub(crate) fn begins_block(self) -> bool {
        self.is_coded() && self.index == 0
    }

    pub(super) fn is_parity(self) -> bool {
        self.index >= self.data && self.is_coded()
    }

    /// As its packet says it.
    pub(crate) fn repr(self) -> Option<BlockRepr> {
        let Self { index, data, parity, scheme, .. } = self;
        self.is_coded().then_some(BlockRepr { index, data, parity, scheme })
    }

    /// Packets of its block behind it.
    #[inline]
    pub(super) fn pkts_after(self) -> u64 {
        self.pkts().saturating_sub(u64::from(self.index) + 1)
    }

    pub(super) fn pkts(self) -> u64 {
        u64::from(self.data) + u64::from(self.parity)
    }
}
