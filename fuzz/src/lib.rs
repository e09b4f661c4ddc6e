//! The checks of the fuzz targets, as ordinary functions of bytes.
//!
//! [`parse::run`] interprets bytes as a frame. [`sequence::run`] interprets them as a scenario: a
//! queue pair, packets of a forger with full knowledge of its state, and the application's
//! actions. [`stream::run`] interprets bytes as a peer's handshake before there is a connection,
//! [`side::run`] as input on the side connection of `spanwire perf`, [`agents::run`] as frames into
//! a switch with agents, [`port::run`] as datagrams into the UDP port or frames out of it.
//! All return, or panic with the failed check. libFuzzer calls them in `targets/`. The tests here
//! call them on random bytes and on every input that once found a defect (`regressions/`).
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod agents;
pub mod corpus;
pub mod parse;
pub mod port;
pub mod sequence;
pub mod side;
pub mod stream;

#[cfg(test)]
mod testing;
