//! The runtime of a host: what applications over the engine share on a real machine.
//!
//! The engine ([`spanwire_transport`]) has no sockets and no clock, the ports ([`spanwire_io`])
//! no protocol. This crate combines them.
//!
//! | module | contents |
//! |---|---|
//! | [`fabric`] | the port of a worker, with faults or a capture around it, and the next hop |
//! | [`drive`] | an application on a worker's endpoint for a while |
//! | [`dial`] | TCP sockets of the side connection, tied to one interface |
//! | [`side`], [`lines`], [`socket`] | lines of JSON between two ends, bounded in memory and time |
//! | [`modes`] | the wire modes of a hello, and the choice between them |
//! | [`queue_pair`], [`seed`] | queue pairs from RESET to RTS; random keys and first PSNs |
//! | [`paths`] | the paths of a queue pair |
//! | [`congestion`] | the congestion control of a queue pair, in reports |
//! | [`oob`] | the exchange of queue pair numbers and keys before a job, and its end |
//! | [`runner`] | a worker that runs jobs of `perf` and `demo`, as client or server |
//! | [`initiator`], [`target`], [`write_ping_pong`] | the applications of both sides of a job |
//! | [`window`] | engine and port for a window of a given width |
//! | [`cores`] | the cores of several workers, and threads on them |
//! | [`control`] | the control socket of a running switch |
//! | [`diagnosis`] | checks of a machine and an interface, with the command that fixes each |
//! | [`mod@file`] | whole files in memory, each up to a limit |
//! | [`peer`] | the other end as a command line names it, with the zone of its address |
//! | [`program`] | unmodified verbs programs: settings in their environment, preloading |
//! | [`quantity`] | numbers, durations, percentages and sizes of command lines |
//! | [`text`] | numbers and names in messages for people |
//!
//! docs/decisions/0020 says why it is a crate.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

pub mod congestion;
pub mod control;
pub mod cores;
pub mod diagnosis;
pub mod dial;
pub mod drive;
pub mod fabric;
pub mod file;
pub mod initiator;
pub mod lines;
pub mod modes;
pub mod oob;
pub mod paths;
pub mod peer;
pub mod probe;
pub mod program;
pub mod quantity;
pub mod queue_pair;
pub mod registrar;
pub mod runner;
pub mod seed;
pub mod side;
pub mod socket;
pub mod target;
pub mod text;
pub mod unsent;
pub mod window;
pub mod write_ping_pong;
