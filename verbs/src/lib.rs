//! A drop-in `libibverbs.so.1`: RDMA programs, unmodified, over Spanwire instead of a kernel driver
//! and a NIC.
//!
//! Programs share structures with this library by address ([`abi`]), so their layout is that of
//! `<infiniband/verbs.h>` to the byte. They bind its functions by versioned symbols:
//! `exports.txt` lists all that rdma-core 44 to 65 define, so that any program of those releases
//! finds what it looks for. A function that is missing here returns EOPNOTSUPP.

#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

#[doc(hidden)]
pub mod abi;
mod buffer;
mod convert;
mod cq;
mod device;
mod engine;
mod errno;
mod exports;
mod lease;
mod memory;
mod modify;
mod objects;
mod open;
mod post;
mod qp;
mod query;
mod settings;
mod text;
mod worker;
