//! Options of the measurements over veth pairs and the software switch.

use spanwire_bench::bad_network;
use spanwire_bench::quiet::Limits;
use spanwire_bench::sample::Error;
use spanwire_bench::veth::{LINK_MTU_MAX, LINK_MTU_MIN, Plan};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

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

#[derive(clap::Args)]
pub(crate) struct BadNetworkArgs {
    /// Samples of each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Seconds of a sample
    #[arg(long, default_value_t = 4.0)]
    pub(crate) seconds: f64,
    /// Rate of the link, 10^6 bits a second: at most what the machine can carry
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) mbit: u64,
    /// Loss rates in each direction, in percent
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.01, 0.1, 1.0, 5.0, 20.0])]
    pub(crate) loss: Vec<f64>,
    /// Round-trip times without load, in milliseconds
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 2.0, 40.0])]
    pub(crate) rtt: Vec<f64>,
    /// Measure only subjects whose name contains this, as "SR"
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// The command [default: in the directory of this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) spanwire: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

impl BadNetworkArgs {
    pub(crate) fn plan(&self) -> Result<bad_network::Plan, Error> {
        let beside = || Ok::<_, Error>(std::env::current_exe()?.with_file_name("spanwire"));
        if let Some(loss) = self.loss.iter().find(|loss| !(0.0..=100.0).contains(*loss)) {
            return Err(format!("--loss {loss} is not a percentage").into());
        }
        if !(0.1..=60.0).contains(&self.seconds) {
            return Err(format!("--seconds {} is not between 0.1 and 60", self.seconds).into());
        }
        let micros = |ms: &f64| match Duration::try_from_secs_f64(ms / 1e3) {
            Ok(rtt) if rtt <= RTT_MAX => Ok(u64::try_from(rtt.as_micros())?),
            _ => Err(Error::from(format!("--rtt {ms} is not between 0 and {RTT_MAX:?}"))),
        };
        Ok(bad_network::Plan {
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

/// Longer than any terrestrial path.
const RTT_MAX: Duration = Duration::from_secs(1);

fn link_mtus() -> RangeInclusive<i64> {
    i64::from(LINK_MTU_MIN)..=i64::from(LINK_MTU_MAX)
}
