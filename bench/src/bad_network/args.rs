//! The options of `spanwire-bench bad-network`.

use super::Plan;
use crate::command::beside;
use crate::sample::Error;
use spanwire_host::quantity::{number, percent, seconds};
use std::path::PathBuf;
use std::time::Duration;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct BadNetworkArgs {
    /// Samples of each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of a sample
    #[arg(long, default_value_t = 4.0, value_parser = |text: &str| seconds(text, 0.1..=60.0))]
    seconds: f64,
    /// Rate of the link, 10^6 bits a second: at most what the machine can carry
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    mbit: u64,
    /// Loss rates in each direction, in percent
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.01, 0.1, 1.0, 5.0, 20.0],
        value_parser = percent)]
    loss: Vec<f64>,
    /// Round-trip times without load, in milliseconds
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 2.0, 40.0],
        value_parser = |text: &str| number(text, 0.0..=RTT_MAX_MS))]
    rtt: Vec<f64>,
    /// Measure only subjects whose name contains this, as "SR"
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// The command [default: in the directory of this one; cargo run builds it]
    #[arg(long, value_name = "PATH")]
    pub spanwire: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

impl BadNetworkArgs {
    /// The plan of these options.
    ///
    /// # Errors
    /// An option is out of range.
    pub fn plan(&self) -> Result<Plan, Error> {
        let micros = |ms: &f64| u64::try_from(Duration::from_secs_f64(ms / 1e3).as_micros());
        Ok(Plan {
            spanwire: self.spanwire.clone().map_or_else(beside, Ok)?,
            rate_bps: self.mbit * 1_000_000,
            losses_percent: self.loss.clone(),
            rtts_us: self.rtt.iter().map(micros).collect::<Result<_, _>>()?,
            rounds: self.rounds,
            seconds: self.seconds,
            only: self.only.clone(),
        })
    }
}

/// Longer than any terrestrial path.
const RTT_MAX_MS: f64 = 1_000.0;
