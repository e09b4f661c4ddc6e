//! The options of `spanwire-bench compare`.

use super::plan::{LINK_MTU_MAX, LINK_MTU_MIN, LINK_MTUS, Plan};
use crate::quiet::Limits;
use crate::sample::Error;
use spanwire_host::quantity::limit;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct CompareArgs {
    /// Only the main rows, three rounds of short samples, at most 60 s in all
    #[arg(long)]
    quick: bool,
    /// Samples of each row [default: 7, with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Milliseconds of a sample [default: 300, with --quick 200]
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    ms: Option<u64>,
    /// MTUs of the veth pairs
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = LINK_MTUS,
        value_parser = clap::value_parser!(u32).range(link_mtus())
    )]
    mtu: Vec<u32>,
    /// Cores of the sender and the receiver
    #[arg(long, num_args = 2, value_names = ["SENDER", "RECEIVER"], default_values_t = [0, 1])]
    cores: Vec<usize>,
    /// Drop a sample if a cache line takes longer than this from core to core and back
    #[arg(long, value_name = "NS", default_value_t = Limits::default().distance_ns,
        value_parser = limit)]
    max_distance: f64,
    /// Drop a sample if a thread waited for its core for more than this share of the time
    #[arg(long, value_name = "PERCENT", default_value_t = Limits::default().stolen * 100.0,
        value_parser = limit)]
    max_stolen: f64,
    /// Retry a dropped sample at most this often [default: 4, with --quick 1]
    #[arg(long)]
    repeats: Option<u32>,
    /// Milliseconds to wait for cores that are far apart before each attempt [default: 500, with
    /// --quick 50]
    #[arg(long, value_name = "MS")]
    wait: Option<u64>,
    /// Measure only rows whose name contains this, as "RC none" or "kernel TCP"
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Title of the report: a date, a commit
    #[arg(long)]
    pub label: Option<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a bar chart of the rates to this file
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Fail (exit code 1) if WRITE reaches less than this share of raw AF_XDP's packets
    #[arg(long, value_name = "PERCENT", value_parser = limit)]
    pub min_share: Option<f64>,
}

impl CompareArgs {
    /// The plan of these options.
    ///
    /// # Errors
    /// No row is left.
    pub fn plan(&self) -> Result<Plan, Error> {
        let cores = <[usize; 2]>::try_from(&*self.cores)?;
        let mut link_mtus = self.mtu.clone();
        link_mtus.sort_unstable();
        link_mtus.dedup();
        let (rounds, ms, repeats, wait_ms) =
            if self.quick { (3, 200, 1, 50) } else { (7, 300, 4, 500) };
        let plan = Plan {
            rounds: self.rounds.unwrap_or(rounds).into(),
            ms: self.ms.unwrap_or(ms),
            link_mtus,
            limits: Limits { distance_ns: self.max_distance, stolen: self.max_stolen / 100.0 },
            repeats: self.repeats.unwrap_or(repeats),
            wait_ms: self.wait.unwrap_or(wait_ms),
            cores,
            only: self.only.clone(),
            quick: self.quick,
        };
        plan.variants()?;
        Ok(plan)
    }
}

fn link_mtus() -> RangeInclusive<i64> {
    i64::from(LINK_MTU_MIN)..=i64::from(LINK_MTU_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::options;

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        options::<CompareArgs>(words)?.plan()
    }

    #[test]
    fn plan__defaults_are_those_of_the_plan_and_a_quick_run_is_shorter() {
        assert_eq!(plan(&[]).unwrap(), Plan::default());
        let quick = plan(&["--quick"]).unwrap();
        assert_eq!((quick.rounds, quick.ms, quick.quick), (3, 200, true));
        assert_eq!(plan(&["--quick", "--rounds", "1"]).unwrap().rounds, 1);
        assert_eq!(plan(&["--mtu", "9000,1500,9000"]).unwrap().link_mtus, [1500, 9000]);
    }

    #[test]
    fn plan__errors_name_the_option() {
        let cases: [(&[&str], &str); 4] = [
            (&["--rounds", "0"], "--rounds"),
            (&["--ms", "9"], "--ms"),
            (&["--mtu", "65536"], "1280..=65535"),
            (&["--only", "iperf"], "--only \"iperf\""),
        ];
        for (words, expected) in cases {
            let why = plan(words).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }
}
