//! Congestion control: the limits of the bytes in flight and of the sending rate.
//!
//! Each algorithm has a file. Its input is small samples of its flow's events, with the time as an
//! argument; its output is a window, a rate or both ([`Controller`]). It knows no packets, has no
//! clock, allocates nothing, and shares nothing with other flows. docs/cc.md describes the use of
//! each.
//!
//! # Adding an algorithm
//! A file with `params!` for its parameters and a type with `new(&Params, &Path)` that implements
//! [`Controller`]; a `mod` line here; a line in `controllers!` of `algorithm.rs`. The tests of
//! `properties.rs` then cover it.
//!
//! # Adding a congestion signal
//! A field of [`Ack`], which every user completes with `..Ack::default()`, or a method of
//! [`Controller`]; then the place in the transport that measures it.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod algorithm;
pub mod auto;
pub mod bbr;
mod controller;
pub mod dcqcn;
pub mod dcqcn_rnic;
pub mod dctcp;
pub mod fixed;
pub mod gemini;
pub mod hpcc;
pub mod mlcc;
pub mod mprdma;
mod near;
pub mod powertcp;
#[cfg(test)]
mod properties;
mod round;
mod sample;
mod status;
pub mod swift;
mod telemetry;
#[cfg(test)]
mod testing;
pub mod timely;
mod units;
pub mod unocc;
mod wire_share;

pub use algorithm::{Algorithm, Cc, table};
pub use controller::Controller;
pub use sample::{Ack, Delivery, Hop, Loss, LossKind, Path, PseudoAck, Sent};
pub use spanwire_params as params;
pub use status::Status;
