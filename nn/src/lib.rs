//! Small neural networks without I/O: inference, files, and training.
//!
//! - [`Network`]: dense layers with ReLU between them, in f32. The same weights and inputs give the
//!   same bits on every machine, in debug and release, because each output is summed in the order
//!   of its inputs and only `+`, `-`, `*` and `/` are used. Decisions of a simulation may therefore
//!   depend on it.
//! - [`Model`]: networks in a file in the format safetensors, with their description.
//! - `train` (feature of the same name): gradients, Adam, a replay ring, and deep Q-learning.
//!
//! No code of this crate reads a clock, and inference does not allocate.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod error;
mod model;
mod network;
#[cfg(test)]
mod testing;
#[cfg(feature = "train")]
pub mod train;

pub use error::{FORMAT, MODEL_MAX_BYTES, ModelError};
pub use model::{About, Model};
pub use network::{Network, Scratch, argmax};
