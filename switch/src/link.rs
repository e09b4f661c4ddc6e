//! The links between switches and hosts: lines, a switch with a line behind each port, and PFC
//! gates of hosts.

mod gate;
mod line;
mod shaped;

pub(crate) use line::wire_bytes;

pub use gate::{GateCounters, PfcGate};
pub use line::{
    BlockLoss, BurstLoss, Fate, Flap, Impairments, Interval, Line, LineConfig, LineCounters,
    LineDrop, Reorder, Sent,
};
pub use shaped::{Shaped, ShapedConfig, ShapedCounters};
