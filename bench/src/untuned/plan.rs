//! The plan of a run: the options of `spanwire-bench untuned`.

use super::algorithm::Algorithm;
use crate::command::Common;
use serde::Serialize;
use spanwire_host::quantity::seconds;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// A few cases, one round, 2 s each: checks that every run works and ends in time, and sets no
    /// bar
    #[arg(long)]
    pub quick: bool,
    /// Samples of each [default: 5, with --quick 1]
    #[arg(long, default_value = "5", default_value_if("quick", "true", "1"),
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds of a sample, at least 100 round trips; several flows take two or five times as long
    /// [default: 4, with --quick 2]
    #[arg(long, default_value = "4", default_value_if("quick", "true", "2"),
        hide_default_value = true, value_parser = |text: &str| seconds(text, 0.1..=60.0))]
    pub seconds: f64,
    /// Measure only these algorithms, as auto,none,tcp-cubic
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub algorithms: Vec<Algorithm>,
    /// Write a heat map, path by algorithm, to this file
    #[arg(long, value_name = "FILE.svg")]
    #[serde(skip)]
    pub plot: Option<PathBuf>,
    /// Read samples from this file, take only those that it lacks, and add them to it: an
    /// interrupted run continues
    #[arg(long, value_name = "FILE.jsonl")]
    pub resume: Option<PathBuf>,
    /// The options of all benchmarks.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Error;
    use crate::testing::options;

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        options::<Plan>(words)?.complete()
    }

    #[test]
    fn plan__a_quick_run_is_short() {
        let (full, quick) = (plan(&[]).unwrap(), plan(&["--quick"]).unwrap());
        assert_eq!((full.rounds, full.seconds, full.quick), (5, 4.0, false));
        assert_eq!((quick.rounds, quick.seconds, quick.quick), (1, 2.0, true));
        assert_eq!(full.algorithms.len(), 13);
        assert_eq!(plan(&["--quick", "--rounds", "3"]).unwrap().rounds, 3);
    }

    #[test]
    fn plan__selects_algorithms() {
        let named = plan(&["--algorithms", "auto,tcp-bbr"]).unwrap().algorithms;
        assert_eq!(named, [Algorithm::Auto, Algorithm::Tcp("bbr")]);
    }
}
