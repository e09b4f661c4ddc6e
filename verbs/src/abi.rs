//! The structures, constants and function types that programs share with the library, as in
//! `<infiniband/verbs.h>` of rdma-core 44 (Debian 12), which documents them.
//!
//! Later releases only append fields: at the end of structures whose length programs pass, and at
//! the beginning of [`verbs_context`], before which `sz` says how many there are. So the layout
//! of version 44 serves programs of all releases. `tests/layout.rs` compares it with the C header.
//!
//! Types of enumerations: plain ones are `c_int`; bit masks have the type of the field or argument
//! that holds them.

mod attr;
mod device;
mod objects;
mod values;
mod work;

pub use attr::*;
pub use device::*;
pub use objects::*;
pub use values::*;
pub use work::*;

/// A slot for a function that this library never provides; programs find NULL in it.
pub type Unused = Option<unsafe extern "C" fn()>;
