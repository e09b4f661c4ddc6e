//! A drop-in `libibverbs.so.1`: RDMA programs, unmodified, over Spanwire instead of a kernel driver
//! and a NIC.
//!
//! Programs share structures with this library by address ([`abi`]), so their layout is that of
//! `<infiniband/verbs.h>` to the byte.

#[doc(hidden)]
pub mod abi;
