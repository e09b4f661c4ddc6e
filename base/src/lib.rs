//! The foundation of all crates of Spanwire: integer time, rates, a seeded random number generator,
//! [`text`] of others, and the [`Node`] trait.
//!
//! There is no I/O and no policy here, and nothing reads a clock: time is an argument
//! everywhere ([`Time`] is picoseconds since the node started). Therefore one engine runs
//! over real sockets and in a deterministic simulator.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod node;
mod num;
mod rate;
mod rng;
pub mod text;
mod time;

pub use node::{
    Awaited, Checked, LentPayload, MayFragment, Node, PortId, PortMask, RxMeta, TxBurst, TxMeta,
};
pub use num::{u32_from, u64_from, usize_from};
pub use rate::Rate;
pub use rng::Rng;
pub use time::{Dur, Time};
