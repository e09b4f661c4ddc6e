//! Checks of a machine and an interface: whether Spanwire works there, and the command that fixes
//! each problem.
//!
//! Facts are gathered first ([`HostFacts`], [`InterfaceFacts`]), then judged. Gathering only reads:
//! nothing is attached, bound or set, so it can run beside any user of the interface.

mod check;
mod interface;
mod machine;
mod path;

pub use check::{Check, Status, worst};
pub use interface::{Deferral, InterfaceFacts};
pub use machine::{CAPABILITIES, HostFacts, UdpFacts};
pub use path::PathFacts;
