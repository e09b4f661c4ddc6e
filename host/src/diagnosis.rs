//! Checks: whether Spanwire works on this machine and on an interface, and a command that mends
//! what is wrong.
//!
//! Facts are gathered first ([`HostFacts`], [`InterfaceFacts`]), then judged. Gathering only reads:
//! nothing is attached, bound or set, so it can run beside any user of the interface.

mod check;
mod interface;
mod machine;

pub use check::{Check, Status, worst};
pub use interface::{Deferral, InterfaceFacts};
pub use machine::{CAPABILITIES, HostFacts};
