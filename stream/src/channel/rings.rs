//! The memory of a connection.

use spanwire_base::usize_from;
use spanwire_mem::{OutOfMemory, Region};

/// The two rings of a connection. Untouched pages take no memory.
#[derive(Clone, Debug)]
pub(crate) struct Rings {
    pub(crate) send: Region,
    pub(crate) receive: Region,
}

impl Rings {
    /// Two rings of `ring_bytes`.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn new(ring_bytes: u32) -> Result<Self, OutOfMemory> {
        let ring = || Region::try_zeroed(usize_from(ring_bytes.into()));
        Ok(Self { send: ring()?, receive: ring()? })
    }
}
