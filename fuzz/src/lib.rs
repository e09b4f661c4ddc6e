//! What the fuzz targets check, as ordinary functions of bytes.
//!
//! [`parse::run`] takes bytes as a frame, [`sequence::run`] as a scenario: a queue pair, packets
//! that a forger makes with all the knowledge it can have, and what the application does meanwhile.
//! [`stream::run`] takes bytes as what a peer says before there is a connection, [`side::run`] as
//! what a stranger says on the side connection of `spanwire perf`.
//! All return, or panic with what went wrong. libFuzzer calls them in `targets/`; the tests here
//! call them on random bytes and on every input that once found something (`regressions/`).
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod parse;
pub mod sequence;
pub mod side;
pub mod stream;

#[cfg(test)]
mod testing;
