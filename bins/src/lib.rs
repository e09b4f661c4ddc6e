//! The `spanwire` command as a library.
//!
//! Tests and benchmarks call the same functions as the binary.
//!
//! | module | contents |
//! |---|---|
//! | [`demo`] | `spanwire demo`: two hosts, a verified transfer, short measurements |
//! | [`perf`] | `spanwire perf server` and `client` |
//! | [`run`] | `spanwire run`: unmodified programs over Spanwire's libibverbs |
//! | [`copy`] | `spanwire copy send` and `receive` |
//! | [`doctor`] | `spanwire doctor`: checks of the machine and of an interface, with fixes |
//! | [`lab`] | `spanwire lab`: test hosts in network namespaces, joined by a cable or a switch |
//! | [`switch`] | `spanwire switch`: an emulated switch between interfaces |
//! | [`pcap`] | `spanwire pcap`: packets, ICRCs and flows of a capture |
//! | [`exit`] | the exit codes of all subcommands |
//! | [`output`] | stdout, stderr, and output that could not be written |
//! | [`path_report`] | erasure coding and paths in reports |
//! | [`report`] | tables, JSON and progress |
//! | [`rates`] | `spanwire plot`: rates of several processes, and a switch's queue |
//! | [`signals`] | SIGINT and SIGTERM as a flag |
//! | [`sim`] | `spanwire sim`: simulated networks |
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod cc_args;
pub mod copy;
pub mod demo;
pub mod doctor;
mod ec_args;
pub mod exit;
mod fault_args;
mod interface;
pub mod lab;
pub mod output;
pub mod path_report;
pub mod pcap;
pub mod perf;
mod port_args;
mod queues;
pub mod rates;
pub mod report;
pub mod run;
pub mod signals;
pub mod sim;
pub mod switch;
mod toml_text;
mod worker_args;
