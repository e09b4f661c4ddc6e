//! READs and atomics of the peer: their memory and its access checks.

use crate::mr::{Access, MrTable, PdId};
use spanwire_wire::{AtomicEthRepr, NakCode};

/// The memory that a READ names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) va: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u32,
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicRequest {
    /// CMP_SWAP; else FETCH_ADD.
    pub(crate) is_compare_swap: bool,
    pub(crate) operands: AtomicEthRepr,
}

impl ReadRequest {
    /// Checks that the peer may read the memory. A zero-length READ accesses none, so its key and
    /// address are not checked (IBTA C9-88; rxe does the same).
    ///
    /// # Errors
    /// The code of the NAK.
    pub(crate) fn check(&self, pd: PdId, mrs: &MrTable) -> Result<(), NakCode> {
        let granted = mrs.remote(pd, self.rkey, self.va, self.len, Access::REMOTE_READ);
        if self.len == 0 || granted.is_ok() { Ok(()) } else { Err(NakCode::RemoteAccess) }
    }
}

impl AtomicRequest {
    /// Checks that the peer may modify the word: key and bounds first, then alignment, as rxe does.
    ///
    /// # Errors
    /// The code of the NAK.
    pub(crate) fn check(&self, pd: PdId, mrs: &MrTable) -> Result<(), NakCode> {
        let &AtomicEthRepr { va, rkey, .. } = &self.operands;
        let word = mrs.remote(pd, rkey, va, ATOMIC_BYTES, Access::REMOTE_ATOMIC);
        word.map_err(|_| NakCode::RemoteAccess)?;
        let aligned = va.is_multiple_of(ATOMIC_BYTES.into());
        if aligned { Ok(()) } else { Err(NakCode::InvalidRequest) }
    }

    /// Executes the operation once and returns the original value of the word.
    ///
    /// # Errors
    /// The code of the NAK, if the word may not be accessed. The alignment must have been checked.
    pub(crate) fn execute(&self, pd: PdId, mrs: &MrTable) -> Result<u64, NakCode> {
        let AtomicEthRepr { va, rkey, swap_or_add, compare } = self.operands;
        let word = mrs.remote(pd, rkey, va, ATOMIC_BYTES, Access::REMOTE_ATOMIC);
        let word = word.map_err(|_| NakCode::RemoteAccess)?;
        let (region, offset) = (word.region, word.offset);
        let original = match self.is_compare_swap {
            true => region.compare_swap(offset, compare, swap_or_add),
            false => region.fetch_add(offset, swap_or_add),
        };
        original.map_err(|_| NakCode::RemoteAccess)
    }
}

/// The word of an atomic operation.
pub(crate) const ATOMIC_BYTES: u32 = 8;
/// IBTA C9-94: a DMA length is at most 2^31.
pub(crate) const MAX_DMA_BYTES: u32 = 1 << 31;
