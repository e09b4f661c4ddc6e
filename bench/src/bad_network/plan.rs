//! The plan of a run, and the conditions of its samples.

use serde::Serialize;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The `spanwire` command.
    pub spanwire: PathBuf,
    /// Rate of both links, in bits a second of the wire.
    pub rate_bps: u64,
    /// Loss rates of each link, in percent.
    pub losses_percent: Vec<f64>,
    /// Round-trip times without any load, in microseconds.
    pub rtts_us: Vec<u64>,
    /// Samples of each subject under each condition.
    pub rounds: u32,
    /// Duration of a sample in seconds.
    pub seconds: f64,
    /// Runs only the subjects whose name contains this.
    pub only: Option<String>,
}

/// The network conditions of one sample.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Conditions {
    /// Loss rate in each direction, in percent.
    pub loss_percent: f64,
    /// Round-trip time without load, in microseconds.
    pub rtt_us: u64,
}
