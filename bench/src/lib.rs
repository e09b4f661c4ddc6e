//! The yardstick of Spanwire, on the machine it runs on.
//!
//! `spanwire-bench veth` measures the engine beside what it is built on and what it competes with,
//! in one interleaved run over veth pairs of its own making:
//!
//! | module | what is measured |
//! |---|---|
//! | [`engine`] | WRITE, READ and SEND, by two stations as `spanwire demo` runs them |
//! | [`raw`] | frames of the same size over the same ports, and nothing on top |
//! | [`rtt`] | one small frame to and fro over the same ports |
//! | [`tcp`] | kernel TCP between two hosts without AF_XDP |
//!
//! [`veth`] runs them in turn, [`quiet`] drops the samples in which the machine did something
//! else, [`stats`] reduces the rest, [`report`] and [`chart`] show it, with the [`machine`] it was
//! measured on.
//!
//! `spanwire-bench bad-network` measures goodput over loss and round-trip time through the software
//! switch, beside kernel TCP and libfabric ([`bad_network`]).
//!
//! `spanwire-bench icount` counts the instructions of the packet path instead ([`icount`]): exact,
//! on any machine, and what CI holds against a baseline.
//!
//! `spanwire-bench pacer` times how long it takes to decide which of many paced queue pairs sends
//! next, and when ([`pacer`]); `spanwire-bench pacing` how far from its time each packet of paced
//! queue pairs leaves over AF_XDP ([`pacing`]).
//!
//! `spanwire-bench erasure` times parity and lost packets beside ISA-L and two crates
//! ([`erasure`]).
//!
//! On a machine that does other things too, a session of its own with priority keeps most samples
//! (the scheduler weighs sessions, so `nice` alone does not):
//!
//! ```text
//! setsid -w sh -c 'echo -15 > /proc/self/autogroup; exec target/release/spanwire-bench veth'
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod bad_network;
pub mod chart;
pub mod engine;
pub mod erasure;
pub mod icount;
pub mod machine;
pub mod pacer;
pub mod pacing;
pub mod quiet;
pub mod raw;
pub mod report;
pub mod rtt;
pub mod sample;
pub mod stats;
pub mod tcp;
pub mod veth;
