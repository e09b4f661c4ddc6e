//! Options of the measurements over veth pairs.

use spanwire_bench::quiet::Limits;
use spanwire_bench::sample::Error;
use spanwire_bench::veth::{LINK_MTU_MAX, LINK_MTU_MIN, Plan};
use std::ops::RangeInclusive;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct VethArgs {
    /// Samples of each variant
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Milliseconds of a sample
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) ms: u64,
    /// MTUs of the veth pairs
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = [1500, LINK_MTU_MAX],
        value_parser = clap::value_parser!(u32).range(link_mtus())
    )]
    pub(crate) mtu: Vec<u32>,
    /// Cores of the sender and the receiver
    #[arg(long, num_args = 2, value_names = ["SENDER", "RECEIVER"], default_values_t = [0, 1])]
    pub(crate) cores: Vec<usize>,
    /// Drop a sample if a cache line takes longer than this from core to core and back
    #[arg(long, value_name = "NS", default_value_t = Limits::default().distance_ns)]
    pub(crate) max_distance: f64,
    /// Drop a sample if a thread waited for its core for more than this share of the time
    #[arg(long, value_name = "PERCENT", default_value_t = Limits::default().stolen * 100.0)]
    pub(crate) max_stolen: f64,
    /// Retry a dropped sample at most this often
    #[arg(long, default_value_t = 4)]
    pub(crate) repeats: u32,
    /// Milliseconds to wait for cores that are far apart before each attempt
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub(crate) wait: u64,
    /// Measure only subjects whose name contains this, as "spanwire WRITE": to profile one alone
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Title of the report: a date, a commit
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a bar chart of the rates to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Fail (exit code 1) if WRITE reaches less than this share of raw AF_XDP's packets
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_share: Option<f64>,
}

impl VethArgs {
    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let cores = <[usize; 2]>::try_from(&*self.cores)?;
        let mut link_mtus = self.mtu.clone();
        link_mtus.sort_unstable();
        link_mtus.dedup();
        Ok(Plan {
            rounds: self.rounds.into(),
            ms: self.ms,
            link_mtus,
            limits: Limits { distance_ns: self.max_distance, stolen: self.max_stolen / 100.0 },
            repeats: self.repeats,
            wait_ms: self.wait,
            cores,
            only: self.only.clone(),
        })
    }
}

fn link_mtus() -> RangeInclusive<i64> {
    i64::from(LINK_MTU_MIN)..=i64::from(LINK_MTU_MAX)
}
