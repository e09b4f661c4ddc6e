//! The options of `spanwire-bench untuned`.

use super::{Algorithm, Plan, selected};
use crate::command::beside;
use crate::sample::Error;
use std::path::PathBuf;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct UntunedArgs {
    /// A few cases, one round, 2 s each: checks that every run works and ends in time, and sets no
    /// bar
    #[arg(long)]
    pub quick: bool,
    /// Samples of each [default: 5, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of a sample, at least 100 round trips; several flows take two or five times as long
    /// [default: 4, with --quick 2]
    #[arg(long)]
    seconds: Option<f64>,
    /// Measure only paths whose name contains this, as "200M/1ms"
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Measure only these algorithms, as auto,none,tcp-cubic
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    algorithms: Vec<Algorithm>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Write a heat map, path by algorithm, to this file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Read samples from this file, take only those that it lacks, and add them to it: an
    /// interrupted run continues
    #[arg(long, value_name = "FILE.jsonl")]
    resume: Option<PathBuf>,
    /// The command [default: in the directory of this one; cargo run builds it]
    #[arg(long, value_name = "PATH")]
    pub spanwire: Option<PathBuf>,
}

impl UntunedArgs {
    /// The plan of these options. They are checked here, since building the command, which comes
    /// next, takes minutes.
    ///
    /// # Errors
    /// An option is out of range, or no case is left.
    pub fn plan(&self) -> Result<Plan, Error> {
        let seconds = self.seconds.unwrap_or(if self.quick { 2.0 } else { 4.0 });
        if !(0.1..=60.0).contains(&seconds) {
            return Err(format!("--seconds {seconds} is not between 0.1 and 60").into());
        }
        let algorithms = match &*self.algorithms {
            [] => Algorithm::all().collect(),
            named => named.to_vec(),
        };
        let plan = Plan {
            spanwire: self.spanwire.clone().map_or_else(beside, Ok)?,
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { 5 }),
            seconds,
            only: self.only.clone(),
            algorithms,
            quick: self.quick,
            resume: self.resume.clone(),
        };
        selected(&plan)?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        untuned: UntunedArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        Line::try_parse_from([&["x"], words].concat())?.untuned.plan()
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
    fn plan__errors_name_the_option() {
        let why = plan(&["--seconds", "0"]).unwrap_err().to_string();
        assert!(why.contains("--seconds 0"), "{why}");
        let why = plan(&["--algorithms", "auto,reno"]).unwrap_err().to_string();
        assert!(why.contains("reno") && why.contains("tcp-bbr"), "{why}");
        let named = plan(&["--algorithms", "auto,tcp-bbr"]).unwrap().algorithms;
        assert_eq!(named, [Algorithm::Auto, Algorithm::Tcp("bbr")]);
    }
}
