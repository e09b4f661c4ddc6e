//! The tests of `pipe.rs` with engines that only their workers drive (`Progress::Worker`).

#[path = "pipe.rs"]
mod pipe;
