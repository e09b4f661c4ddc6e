//! Congestion control: how much may be in flight, and how fast it may leave.
//!
//! An algorithm is a file here. It is told what happened to its flow by small samples, with the
//! time as an argument, and says a window, a rate or both ([`Controller`]). It knows no packets,
//! has no clock, allocates nothing, and two flows share nothing. The pages of docs/cc.md say what
//! each is good for.
//!
//! # Adding one
//! A file with `params!` for its parameters and a type with `new(&Params, &Path)` that implements
//! [`Controller`]; a `mod` line here; a line in `controllers!` of `controller.rs`. The tests of
//! `properties.rs` take it from there.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod bbr;
mod controller;
pub mod dcqcn;
pub mod dcqcn_rnic;
pub mod dctcp;
pub mod fixed;
pub mod gemini;
pub mod hpcc;
pub mod mprdma;
mod near;
pub mod powertcp;
#[cfg(test)]
mod properties;
mod round;
mod sample;
pub mod swift;
mod telemetry;
#[cfg(test)]
mod testing;
pub mod timely;
mod units;
pub mod unocc;

pub use controller::{Algorithm, Cc, Controller, table};
pub use sample::{Ack, Delivery, Hop, Loss, LossKind, Path, PseudoAck, Sent};
pub use spanwire_params as params;
