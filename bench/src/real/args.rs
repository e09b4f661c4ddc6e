//! The options of `spanwire-bench real`.

use super::Plan;
use crate::command::beside;
use crate::sample::Error;
use std::path::PathBuf;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct RealArgs {
    /// Fewer and shorter rows with the same bars, one round, at most 60 s in all
    #[arg(long)]
    quick: bool,
    /// Samples of each row [default: 3, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Measure only rows whose name contains this, as "auto, 2" or "RTT"
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// The command [default: in the directory of this one; cargo run builds it]
    #[arg(long, value_name = "PATH")]
    pub spanwire: Option<PathBuf>,
}

impl RealArgs {
    /// The plan of these options.
    ///
    /// # Errors
    /// The directory of this command is unknown.
    pub fn plan(&self) -> Result<Plan, Error> {
        Ok(Plan {
            spanwire: self.spanwire.clone().map_or_else(beside, Ok)?,
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { 3 }),
            only: self.only.clone(),
            quick: self.quick,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        real: RealArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        Line::try_parse_from([&["x"], words].concat())?.real.plan()
    }

    #[test]
    fn plan__a_quick_run_is_one_round() {
        assert_eq!(plan(&[]).map(|plan| (plan.rounds, plan.quick)).unwrap(), (3, false));
        assert_eq!(plan(&["--quick"]).map(|plan| (plan.rounds, plan.quick)).unwrap(), (1, true));
        assert_eq!(plan(&["--quick", "--rounds", "2"]).unwrap().rounds, 2);
        let only = plan(&["--only", "RTT", "--spanwire", "/bin/spanwire"]).unwrap();
        assert_eq!((only.only.as_deref(), only.spanwire), (Some("RTT"), "/bin/spanwire".into()));
    }

    #[test]
    fn plan__errors_name_the_option() {
        let why = plan(&["--rounds", "0"]).unwrap_err().to_string();
        assert!(why.contains("--rounds"), "{why}");
        assert!(plan(&["--seconds", "1"]).is_err());
    }
}
