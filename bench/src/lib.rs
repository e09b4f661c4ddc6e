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
//! | command | what is measured |
//! |---|---|
//! | [`bad_network`] | goodput over loss and round-trip time, beside kernel TCP and libfabric |
//! | [`untuned`] | congestion control with its defaults on a matrix of paths, beside kernel TCP |
//! | [`real`] | bars in real time on real packets, also of RDMA programs: not in tests |
//! | [`service`] | requests and replies over `stream`, verbs and kernel TCP |
//! | [`icount`] | instructions of the packet path: exact, on any machine, compared by CI |
//! | [`pacer`], [`pacing`] | the scheduling decision; the deviation of each paced packet |
//! | [`host_trace`] | the steps of real drivers, for the simulator's host models |
//! | [`agents`] | the agents of a switch |
//! | [`erasure`] | encoding and decoding, compared with ISA-L and two crates |
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
mod connect;
mod ends;
pub mod engine;
pub mod erasure;
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
