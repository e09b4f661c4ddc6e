//! Switches and links without I/O.
//!
//! - [`Switch`]: a [`Node`](spanwire_base::Node) that decides *which* frame a port sends next.
//! - [`Line`]: one direction of a link, which decides *when* a frame arrives at the other end, and
//!   which impairments it has.
//! - [`Shaped`]: a switch with a line at each port, for real interfaces, which do not pull frames.
//!   Simulators use [`Switch`] and [`Line`] directly.
//!
//! No code of this crate reads a clock. The packet path does not allocate in steady state and uses
//! no floats. Frames are untrusted: any content is forwarded or counted. Two switches with equal
//! configuration and seed handle equal frames identically on any machine.
//!
//! [Agents](AgentConfig) make a switch originate feedback for the senders of packets, or choose the
//! marking thresholds of its queues.
//!
//! Frames may be elided (`spanwire_base::TxMeta`): every length, rate and threshold includes the
//! elided bytes.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod agent;
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

pub use agent::api::{AgentCounters, AgentPorts};
pub use agent::ecn::config::{EcnAgentConfig, EcnCpu, EcnExplore};
pub use agent::ecn::trace::EcnStep;
pub use agent::ecn::{EcnModel, EcnReward, GAMMA};
pub use agent::kind::AgentConfig;
pub use agent::mlcc::config::MlccConfig;
pub use agent::mlcc::report::MlccFlow;
pub use agent::ndt::config::{NdtConfig, PauseRound, PauseScope};
pub use agent::nsf::config::{NsfClock, NsfConfig};
pub use agent::pacc::config::PaccConfig;
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

/// Minimum length that a frame counts as, because Ethernet pads it. Without FCS.
pub const MIN_FRAME_BYTES: u64 = 60;
