//! The benchmarks of Spanwire, on the machine they run on.
//!
//! `spanwire-bench compare` measures the engine, the layers below it and its alternatives, in one
//! interleaved run over its own veth pairs ([`mod@compare`]):
//!
//! | module | what is measured |
//! |---|---|
//! | [`mod@compare`] | verified WRITEs of the engine: RC and SR, with and without `auto` |
//! | [`engine`] | READ and SEND, and latencies, between two hosts as `spanwire demo` runs them |
//! | [`raw`] | frames of the same size over the same ports, without a transport |
//! | [`udp`] | datagrams of kernel sockets with segmentation offload, without a transport |
//! | [`rtt`] | round trips of one small frame over the same ports |
//! | [`tcp`] | kernel TCP between two hosts without AF_XDP |
//!
//! [`quiet`] drops samples disturbed by other activity of the machine, [`stats`] reduces the rest,
//! and the report shows it, with the [`machine`] it was measured on.
//!
//! `spanwire-bench bad-network` measures goodput over loss and round-trip time through the software
//! switch, beside kernel TCP and libfabric ([`bad_network`]).
//!
//! `spanwire-bench untuned` measures congestion control with its defaults on a matrix of paths,
//! beside a static window and kernel TCP ([`untuned`]).
//!
//! `spanwire-bench real` measures bars in real time on real packets, with the lateness of the host
//! during each ([`real`]): tests do not assert them.
//!
//! `spanwire-bench service` measures requests and replies over `stream`, verbs and kernel TCP
//! ([`service`]).
//!
//! `spanwire-bench icount` counts the instructions of the packet path instead ([`icount`]): exact,
//! on any machine, and compared by CI with a baseline.
//!
//! `spanwire-bench pacer` times the scheduling decision among many paced queue pairs
//! ([`pacer`]); `spanwire-bench pacing` measures the deviation of each paced packet from its
//! time over AF_XDP ([`pacing`]).
//!
//! `spanwire-bench host-trace` records the steps of real drivers, and `host-fit` computes the
//! simulator's host models from the recording ([`host_trace`]).
//!
//! `spanwire-bench agents` times the agents of a switch ([`agents`]).
//!
//! `spanwire-bench erasure` times encoding and decoding, compared with ISA-L and two crates
//! ([`erasure`]).
//!
//! On a machine with other activity, a session of its own with priority keeps most samples
//! (the scheduler weighs sessions, so `nice` alone does not):
//!
//! ```text
//! setsid -w sh -c 'echo -15 > /proc/self/autogroup; exec target/release/spanwire-bench compare'
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod agents;
pub mod bad_network;
mod bed;
pub mod command;
pub mod compare;
mod ends;
pub mod engine;
pub mod erasure;
mod error;
pub mod host_trace;
pub mod icount;
pub mod machine;
pub mod pacer;
pub mod pacing;
pub mod quiet;
pub mod raw;
pub mod real;
mod rounds;
pub mod rtt;
pub mod sample;
pub mod service;
pub mod spin;
pub mod stats;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod udp;
pub mod untuned;
