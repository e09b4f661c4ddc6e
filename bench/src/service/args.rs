//! The options of `spanwire-bench service`.

use super::case::{BulkTransport, Subject};
use super::plan::Plan;
use crate::command::beside;
use crate::sample::Error;
use spanwire_io::affinity;
use std::path::PathBuf;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct ServiceArgs {
    /// One round of short samples, at most 60 s in all
    #[arg(long)]
    quick: bool,
    /// Samples of each row [default: 7, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Milliseconds of a sample, after a tenth of it as warm-up [default: 1000, with --quick 200]
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    ms: Option<u64>,
    /// Requests of a sample, in place of a time and without a warm-up
    #[arg(
        long,
        conflicts_with = "ms",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    requests: Option<u64>,
    /// MiB of bulk data [default: 1024, with --quick 256]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: Option<u64>,
    /// Pin all threads of each end to a core [default: they are not pinned]
    #[arg(long, num_args = 2, value_names = ["CLIENT", "SERVER"])]
    cores: Option<Vec<usize>>,
    /// Measure only rows whose name contains this, as "64 connections" or "16 outstanding: verbs"
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// The command, for `copy` [default: in the directory of this one; cargo run builds it]
    #[arg(long, value_name = "PATH")]
    pub spanwire: Option<PathBuf>,
}

impl ServiceArgs {
    /// The plan of these options.
    ///
    /// # Errors
    /// No row is left, or the directory of this command is unknown.
    pub fn plan(&self) -> Result<Plan, Error> {
        let (rounds, ms, mib) = if self.quick { (1, 200, 256) } else { (7, 1000, 1024) };
        let cores = self.cores.as_deref().map(<[usize; 2]>::try_from).transpose()?;
        let usable = affinity::usable_cores();
        if let Some(core) = cores.iter().flatten().find(|core| !usable.contains(core)) {
            return Err(format!("--cores: {core} is not one of the usable cores {usable:?}").into());
        }
        let plan = Plan {
            spanwire: self.spanwire.clone().map_or_else(beside, Ok)?,
            rounds: self.rounds.unwrap_or(rounds),
            ms: self.ms.unwrap_or(ms),
            requests: self.requests,
            mib: self.mib.unwrap_or(mib),
            cores,
            only: self.only.clone(),
            quick: self.quick,
        };
        if plan.subjects().is_empty() {
            let only = self.only.as_deref().unwrap_or_default();
            return Err(format!("--only {only:?}: no row has this in its name").into());
        }
        Ok(plan)
    }
}

impl Plan {
    /// The rows that it measures.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        let mut all = Subject::all();
        all.retain(|s| self.only.as_deref().is_none_or(|only| s.name().contains(only)));
        all
    }

    /// It runs the `spanwire` command.
    #[must_use]
    pub fn needs_spanwire(&self) -> bool {
        self.subjects().contains(&Subject::Bulk(BulkTransport::Copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        service: ServiceArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        Line::try_parse_from([&["x"], words].concat())?.service.plan()
    }

    #[test]
    fn plan__a_quick_run_is_shorter() {
        let figures = |words: &[&str]| {
            plan(words).map(|plan| (plan.rounds, plan.ms, plan.mib, plan.quick)).unwrap()
        };
        assert_eq!(figures(&[]), (7, 1000, 1024, false));
        assert_eq!(figures(&["--quick"]), (1, 200, 256, true));
        assert_eq!(figures(&["--quick", "--rounds", "3", "--ms", "50"]), (3, 50, 256, true));
    }

    #[test]
    fn plan__selects_rows_by_their_names() {
        let plan = |only| plan(&["--only", only]).unwrap();
        assert_eq!(plan("64 B/64 B, 1 outstanding").subjects().len(), 6);
        assert_eq!(plan(": verbs").subjects().len(), 15);
        assert!(plan("bulk").needs_spanwire() && !plan("bulk: tcp").needs_spanwire());
    }

    #[test]
    fn plan__errors_name_the_option() {
        let cases: [(&[&str], &str); 7] = [
            (&["--rounds", "0"], "--rounds"),
            (&["--ms", "5"], "--ms"),
            (&["--mib", "5000"], "--mib"),
            (&["--requests", "5", "--ms", "50"], "--requests"),
            (&["--only", "no such row"], "no such row"),
            (&["--cores", "0"], "--cores"),
            (&["--cores", "0", "100000"], "100000 is not one of the usable cores"),
        ];
        for (words, expected) in cases {
            let why = plan(words).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }
}
