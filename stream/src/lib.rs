//! Messages and byte streams over RoCEv2.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod channel;
mod config;
mod error;
mod imm;
mod incoming;
mod outgoing;
mod receiving;
mod sending;
mod shared;
mod signal;
#[cfg(test)]
mod testing;

pub use config::{Config, ConfigError, ValidConfig};
pub use error::{Cause, Error, SetupError};
