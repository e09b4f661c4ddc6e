//! Shared memory: an application thread, or the network through a registered memory region, may
//! write it at any moment.
//!
//! Bytes are copied in and out and never borrowed: a `&[u8]` promises the compiler that there is no
//! other writer. All access, atomics included, is in one module (`shared.rs`), which explains why
//! it is defined behaviour. Under a concurrent writer a copy can hold a mixture of old and new
//! bytes, as with DMA. It can never read or write outside the region.
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod foreign;
mod lent;
mod mapping;
mod region;
mod shared;

pub use foreign::{PageAccess, Unmapped};
pub use lent::Lent;
pub use mapping::OutOfMemory;
pub use region::{OutOfBounds, Region};
