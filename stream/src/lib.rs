//! Messages and byte streams over RoCEv2, for applications that do not use verbs.
//!
//! A [`Network`] is an interface whose packets move by AF_XDP or UDP sockets. It creates
//! [`Connection`]s, which carry messages, and [`ByteStream`]s, which implement
//! [`Read`](std::io::Read) and [`Write`](std::io::Write). Both are reliable and ordered, and report
//! their wire mode.
//!
//! ```no_run
//! use spanwire_stream::{ConnectOptions, Network, NetworkOptions};
//! use std::time::Duration;
//!
//! # fn server() -> Result<(), Box<dyn std::error::Error>> {
//! // On 10.0.0.1: answers every message with itself.
//! let network = Network::open("eth0", NetworkOptions::default())?;
//! let listener = network.listen(7000, ConnectOptions::default())?;
//! let mut connection = listener.accept()?;
//! while let Some(message) = connection.recv()? {
//!     connection.send(&message)?;
//! }
//! # Ok(())
//! # }
//! # fn client() -> Result<(), Box<dyn std::error::Error>> {
//! // Elsewhere.
//! let network = Network::open("eth0", NetworkOptions::default())?;
//! let mut connection = network.connect("10.0.0.1:7000".parse()?, &ConnectOptions::default())?;
//! connection.send(b"hello")?;
//! assert_eq!(connection.recv()?.as_deref(), Some(&b"hello"[..]));
//! connection.close(Duration::from_secs(5))?; // the other application has taken everything
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting
//! Sending, receiving, accepting and closing have three forms: one that blocks (some with a time
//! limit), `try_*` that returns [`Error::WouldBlock`], and `poll_*` that takes a
//! [`Context`](std::task::Context) and wakes its task. Opening, connecting and shutting down block,
//! or with `begin_*` return a [`Pending`], a future with a descriptor. For an event loop the halves
//! are [`AsFd`](std::os::fd::AsFd): the descriptor becomes readable when another try may succeed,
//! also for the sending half.
//!
//! # Threads
//! The thread that waits drives: a blocked call receives, answers and transmits itself, and a
//! message is transmitted by the thread that sends it. A worker thread stands in while no
//! application thread waits, so that acknowledgements and timers are late by a millisecond at most.
//! [`NetworkOptions::progress`] chooses that, a worker only, or neither: then [`Network::turn`]
//! drives from an event loop.
//!
//! [`NetworkOptions::workers`] makes several engines, each on a queue of the interface, that share
//! nothing: a connection stays with one ([`About::worker`]), and threads that use connections of
//! different workers do not wait for each other. If a worker ends, so do its connections.
//!
//! # Fork
//! A network and its connections stay with the process that opened them. In a process that was
//! forked from it every call fails ([`Cause::Forked`], [`SetupError::NetworkGone`]), and a drop has
//! no effect on the connection, which goes on in the parent. The child may open a network of its
//! own. Its copies of the descriptors keep an AF_XDP queue or a port occupied until it ends, or
//! executes another program.
//!
//! # Limits
//! All limits are in [`Config`], which is validated once. At a limit sending blocks, a message is
//! rejected, or a peer is rejected with the reason; memory does not grow. A hostile peer ends only
//! its own connection.
//!
//! # Inside
//! The channel behind a connection is a state machine without I/O over one queue pair. Around it
//! are the engine that threads share, the thread of the side connections and the signals to
//! applications (docs/ARCHITECTURE.md; docs/protocol/stream-and-copy.md, "Messages and streams";
//! decision records 0016 and 0029).
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod about;
mod accepted;
mod burst;
mod byte_stream;
mod channel;
mod channels;
mod config;
mod connection;
mod engine;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod half;
mod handshake;
mod imm;
mod incoming;
mod listener;
mod network;
mod outgoing;
mod peers;
mod pending;
mod place;
mod probing;
mod receiving;
mod sending;
mod shared;
mod side;
mod side_thread;
#[cfg(test)]
mod testing;
mod threads;

pub use about::About;
pub use accepted::Accepted;
pub use byte_stream::{ByteReader, ByteStream, ByteWriter};
pub use config::{Config, ConfigError, ValidConfig};
pub use connection::{Connection, MessageReceiver, MessageSender};
pub use error::{Cause, Error, SetupError};
pub use listener::{Closer, Listener};
pub use network::{ConnectOptions, Network, NetworkOptions};
pub use pending::Pending;
pub use spanwire_host::congestion::{CongestionReport, ConnectionCongestion, FlowCongestion};
pub use spanwire_host::modes::ModeChoice;
pub use spanwire_host::paths::ConnectionPaths;
pub use spanwire_host::{dial, fabric, modes};
pub use spanwire_io::driver::Polling;
pub use spanwire_progress::Progress;
pub use spanwire_transport::{
    Agreed, Balance, CongestionControl, ErasureCoding, WcStatus, WireMode,
};
