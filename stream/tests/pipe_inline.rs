//! The tests of `pipe.rs` with engines that only the threads of the tests drive
//! (`Progress::Inline`).

#[path = "pipe.rs"]
mod pipe;
