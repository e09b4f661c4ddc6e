//! The network in the middle, without I/O: a switch and the lines behind its ports.
//!
//! - [`Switch`]: a [`Node`](spanwire_base::Node) that decides *which* frame leaves a port next.
//! - [`Line`]: one direction of a link, which decides *when* a frame arrives at the other end and
//!   in which state.
//! - [`Shaped`]: a switch with a line behind each port, for real interfaces, which have no wire to
//!   pull from. Simulators use [`Switch`] and [`Line`] by themselves.
//!
//! Nothing here reads a clock, and the packet path neither allocates after warm-up nor uses floats.
//! Frames are hostile: whatever they hold, they are forwarded or counted. Two switches with one
//! configuration and one seed do the same with the same frames, on any machine.
//!
//! Frames may be elided (`spanwire_base::TxMeta`): every length, rate and threshold counts what was
//! left out.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod buffer;
mod config;
mod counters;
mod error;
mod flows;
mod forward;
mod link;
mod lpm;
mod macs;
mod mark;
mod parse;
mod pfc;
mod port;
mod queue;
mod scheduler;
mod store;
mod switch;
#[cfg(test)]
mod testing;
pub mod units;

pub use config::{
    CLASSES, EcnConfig, FlowsConfig, ForwardingConfig, Hop, MAX_QUEUES, MarkAt, PfcConfig,
    PhantomConfig, PortConfig, QueueConfig, Route, Share, Spread, StaticMac, SwitchConfig,
    TrimConfig,
};
pub use counters::{ForwardingCounters, PortCounters, QueueCounters, SwitchCounters};
pub use error::ConfigError;
pub use link::{
    BlockLoss, BurstLoss, Fate, Flap, GateCounters, Impairments, Interval, Line, LineConfig,
    LineCounters, LineDrop, PfcGate, Reorder, Sent, Shaped, ShapedConfig, ShapedCounters,
};
pub use lpm::Prefix;
pub use pfc::PfcCounters;
pub use switch::{FlowKey, PortSnapshot, QueueSnapshot, Switch, SwitchSnapshot};
pub use units::{Human, Prob, Ratio};

/// Bytes that a shorter frame counts for: Ethernet pads it. Without FCS.
pub const MIN_FRAME_BYTES: u64 = 60;
