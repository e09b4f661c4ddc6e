//! Pacing and scheduling of queue pairs, as RDMA adapters do it in hardware.
//!
//! | | |
//! |---|---|
//! | [`TokenBucket`] | the time of one queue pair's next packet: a rate with a burst limit |
//! | [`Wheel`] | the queue pairs that may send: a timing wheel of queue pairs, not of packets |
//! | [`Drr`] | the order among those: deficit round robin with weights |
//!
//! Every decision is O(1), and memory is bounded by the number of queue pairs, which are slots
//! of their owner's table: small numbers. A packet may be late, by a slot of the wheel, and never
//! early; the delay is caught up within the burst limit. There is no clock: time is an argument.
//!
//! # Source
//! Carousel (SIGCOMM'17) for a wheel in place of queues, with the difference that a wheel of queue
//! pairs needs no memory for packets and applies a rate change at once; Shreedhar and Varghese
//! (SIGCOMM'95) for deficit round robin.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod drr;
mod links;
#[cfg(test)]
mod together;
mod token_bucket;
mod wheel;

pub use drr::Drr;
pub use token_bucket::{QUANTUM_BYTES, TokenBucket};
pub use wheel::{Wheel, WheelConfig};
