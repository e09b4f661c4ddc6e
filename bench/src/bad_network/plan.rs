//! The plan of a run: the options of `spanwire-bench bad-network`, and the conditions of its
//! samples.

use crate::command::Common;
use clap::builder::TypedValueParser as _;
use serde::Serialize;
use spanwire_host::quantity::{number, percent, seconds};
use std::time::Duration;

/// The plan of a run.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Samples of each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds of a sample
    #[arg(long, default_value_t = 4.0, value_parser = |text: &str| seconds(text, 0.1..=60.0))]
    pub seconds: f64,
    /// Rate of the link, 10^6 bits a second: at most what the machine can carry
    #[arg(long = "mbit", value_name = "MBIT", default_value = "100",
        value_parser = clap::value_parser!(u64).range(1..=10_000).map(|mbit| mbit * 1_000_000))]
    pub rate_bps: u64,
    /// Loss rates in each direction, in percent
    #[arg(long = "loss", value_name = "LOSS", value_delimiter = ',',
        default_values_t = [0.0, 0.01, 0.1, 1.0, 5.0, 20.0], value_parser = percent)]
    pub losses_percent: Vec<f64>,
    /// Round-trip times without load, in milliseconds
    #[arg(long = "rtt", value_name = "RTT", value_delimiter = ',',
        default_values = ["0", "2", "40"], value_parser = micros)]
    pub rtts_us: Vec<u64>,
    /// The options of all benchmarks.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

fn micros(ms: &str) -> Result<u64, String> {
    let ms = number(ms, 0.0..=RTT_MAX_MS)?;
    u64::try_from(Duration::from_secs_f64(ms / 1e3).as_micros()).map_err(|e| e.to_string())
}

/// Longer than any terrestrial path.
const RTT_MAX_MS: f64 = 1_000.0;

/// The network conditions of one sample.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Conditions {
    /// Loss rate in each direction, in percent.
    pub loss_percent: f64,
    /// Round-trip time without load, in microseconds.
    pub rtt_us: u64,
}
