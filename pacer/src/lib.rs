//! When a queue pair may send, and whose turn it is: a pacer as adapters have it in hardware.
//!
//! | | |
//! |---|---|
//! | [`TokenClock`] | when one queue pair's next packet may leave: a rate with a bound on bursts |
//! | [`Wheel`] | which queue pairs may send now: slots of queue pairs, not of packets |
//! | [`Drr`] | whose turn it is among those: deficit round robin with weights |
//!
//! Everything is O(1) for each decision and bounded by the number of queue pairs, which are slots
//! of their owner's table: small numbers. A packet may be late, by a slot of the wheel, and never
//! early; what is late is made up for within the bound on bursts. No clock: time is an argument.
//!
//! # Source
//! Carousel (SIGCOMM'17) for a wheel in place of queues, with the difference that a wheel of queue
//! pairs needs no memory for packets and takes a change of rate at once; Shreedhar and Varghese
//! (SIGCOMM'95) for deficit round robin.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod clock;
mod drr;
mod links;
#[cfg(test)]
mod together;
mod wheel;

pub use clock::TokenClock;
pub use drr::Drr;
pub use wheel::{Wheel, WheelConfig};
