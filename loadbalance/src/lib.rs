//! Load balancing: which path each packet takes.
//!
//! A path is 14 bits that become a packet's UDP source port ([`Entropy`]); switches hash it and
//! that decides the links. A policy is a file here. It is asked for a path for each packet that
//! leaves, and told what came back of it by small samples, with the time as an argument
//! ([`LoadBalancer`]). It knows no packets, has no clock, allocates nothing after it is made,
//! draws from a seed, and two flows share nothing. [`Balancer`] is what a flow holds: a policy, and
//! counters for each path. The pages of docs/loadbalance.md say what each is good for.
//!
//! # Adding one
//! A file with `params!` for its parameters and a type with `new(&Params, &Flow)` that implements
//! [`LoadBalancer`]; a `mod` line here; a line in `policies!` of `choice.rs`. The tests of
//! `tests.rs` take it from there.
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

pub use balancer::{Balancer, Counters, Picked};
pub use choice::{Choice, Policy, table};
pub use entropy::Entropy;
pub use paths::PathReport;
pub use policy::{LoadBalancer, PathState, Pick};
pub use sample::{Flow, LossKind, Outgoing, PathAck, PathLoss, Round};
pub use spanwire_params as params;
