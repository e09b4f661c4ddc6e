//! Load balancing: the path selection of each packet.
//!
//! A path is 14 bits that become a packet's UDP source port ([`Entropy`]). Switches hash the port
//! to select links. Each policy has a file. It selects a path for each packet that leaves, and
//! its input is small samples of acknowledgements and losses, with the time as an argument
//! ([`LoadBalancer`]). It knows no packets, has no clock, allocates nothing after construction,
//! draws from a seed, and shares nothing with other flows. A flow holds a [`Balancer`]: a policy,
//! and counters for each path. docs/loadbalance.md describes the use of each policy.
//!
//! # Adding a policy
//! A file with `params!` for its parameters and a type with `new(&Params, &Flow)` that implements
//! [`LoadBalancer`]; a `mod` line here; a line in `policies!` of `choice.rs`. The tests of
//! `tests.rs` then cover it.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod balancer;
mod choice;
pub mod ecmp;
mod entropy;
mod paths;
pub mod plb;
mod policy;
mod pool;
pub mod reps;
pub mod rps;
mod rtt;
mod sample;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod unolb;

pub use balancer::{Balancer, Counters, SelectedPath};
pub use choice::{Choice, Policy, table};
pub use entropy::Entropy;
pub use paths::PathReport;
pub use policy::{LoadBalancer, PathState, Pick};
pub use sample::{Flow, LossKind, Outgoing, PathAck, PathLoss, Round};
pub use spanwire_params as params;
