//! The spanwire command.
//!
//! The subcommands are here as a library, so that tests and benchmarks run what users run.
//!
//! | module | what it is |
//! |---|---|
//! | [`demo`] | `spanwire demo`: two hosts, a verified transfer, short measurements |
//! | [`perf`] | `spanwire perf server` and `client` |
//! | [`copy`] | `spanwire copy send` and `receive` |
//! | [`doctor`] | `spanwire doctor`: does it work here, and what to do |
//! | [`lab`] | `spanwire lab`: hosts to play with, joined by a cable or a switch |
//! | [`switch`] | `spanwire switch`: a network in the middle |
//! | [`pcap`] | `spanwire pcap`: what a capture holds |
//! | [`exit`] | the exit codes of all of them |
//! | [`path_report`] | what reports say of erasure coding and paths |
//! | [`report`] | tables, JSON and progress |
//! | [`rates`] | `spanwire plot`: rates of several processes, and a switch's queue |
//! | [`sim`] | `spanwire sim`: simulated networks |
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod cc_args;
pub mod copy;
pub mod demo;
pub mod doctor;
mod ec_args;
pub mod exit;
mod interface;
pub mod lab;
pub mod path_report;
pub mod pcap;
pub mod perf;
mod port_args;
mod queues;
pub mod rates;
pub mod report;
pub mod signals;
pub mod sim;
pub mod switch;
