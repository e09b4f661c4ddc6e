//! What every other crate of Spanwire stands on, and nothing more: integer time, rates, a seeded
//! random number generator and the [`Node`] seam.
//!
//! There is no I/O and no policy here. Nothing in this crate reads a clock: time is an argument
//! everywhere ([`Time`] is picoseconds since the node started), which is what lets one engine run
//! over real sockets and inside a deterministic simulator.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod node;
mod num;
mod rate;
mod rng;
mod time;

pub use node::{Node, PortId, PortMask, RxMeta, TxMeta};
pub use num::{u32_from, u64_from, usize_from};
pub use rate::Rate;
pub use rng::Rng;
pub use time::{Dur, Time};
