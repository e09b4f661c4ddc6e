//! Messages and byte streams over RoCEv2.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod byte_stream;
mod channel;
mod commands;
mod config;
mod connection;
pub mod dial;
mod error;
pub mod fabric;
mod handshake;
mod imm;
mod incoming;
mod keeper;
mod listener;
pub mod modes;
mod network;
mod outgoing;
mod receiving;
mod sending;
mod shared;
mod side;
mod signal;
#[cfg(test)]
mod testing;
mod worker;

pub use byte_stream::{ByteReader, ByteStream, ByteWriter};
pub use config::{Config, ConfigError, ValidConfig};
pub use connection::{About, Connection, MessageReceiver, MessageSender};
pub use error::{Cause, Error, SetupError};
pub use listener::{Accepted, Listener};
pub use modes::ModeChoice;
pub use network::{ConnectOptions, Network, NetworkOptions};
pub use spanwire_transport::WireMode;
