//! Structures of the kernel as plain data, with the layout of their declaration in libc.
//!
//! Those in libc are not [`Pod`]: only a structure of this crate can derive it, which proves that
//! it has no padding and no pointer. [`same_layout!`](crate::same_layout) proves that the two
//! agree.

use bytemuck::{Pod, Zeroable};

/// Asserts at compile time that a structure has the size and the alignment of another one, and its
/// fields the offsets of the other's: `same_layout!(Ours = libc::theirs { field = xyz_field });`.
#[macro_export]
macro_rules! same_layout {
    ($Ours:ty = $Theirs:ty { $($ours:ident = $theirs:ident),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$Ours>() == size_of::<$Theirs>());
            assert!(align_of::<$Ours>() == align_of::<$Theirs>());
            $(assert!(
                ::std::mem::offset_of!($Ours, $ours) == ::std::mem::offset_of!($Theirs, $theirs)
            );)*
        };
    };
}

/// `struct xdp_ring_offset`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct RingOffset {
    pub(crate) producer: u64,
    pub(crate) consumer: u64,
    pub(crate) desc: u64,
    pub(crate) flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct MmapOffsets {
    pub(crate) rx: RingOffset,
    pub(crate) tx: RingOffset,
    pub(crate) fill: RingOffset,
    pub(crate) completion: RingOffset,
}

/// `struct xdp_umem_reg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct UmemReg {
    /// The address of the area.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) chunk_size: u32,
    pub(crate) headroom: u32,
    pub(crate) flags: u32,
    pub(crate) tx_metadata_len: u32,
}

same_layout!(RingOffset = libc::xdp_ring_offset {
    producer = producer,
    consumer = consumer,
    desc = desc,
    flags = flags,
});
same_layout!(MmapOffsets = libc::xdp_mmap_offsets { rx = rx, tx = tx, fill = fr, completion = cr });
same_layout!(UmemReg = libc::xdp_umem_reg {
    addr = addr,
    len = len,
    chunk_size = chunk_size,
    headroom = headroom,
    flags = flags,
    tx_metadata_len = tx_metadata_len,
});
