//! The plan of a run: the options of `spanwire-bench service`.

use super::case::{BulkTransport, Subject};
use crate::command::Common;
use crate::sample::Error;
use serde::Serialize;
use spanwire_io::affinity;

/// The plan of a run.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// One round of short samples, at most 60 s in all
    #[arg(long)]
    pub quick: bool,
    /// Samples of each row [default: 7, with --quick 1]
    #[arg(long, default_value = "7", default_value_if("quick", "true", "1"),
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of a sample, after a tenth of it as warm-up [default: 1000, with --quick 200]
    #[arg(long, default_value = "1000", default_value_if("quick", "true", "200"),
        hide_default_value = true, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub ms: u64,
    /// Requests of a sample, in place of a time and without a warm-up
    #[arg(long, conflicts_with = "ms",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub requests: Option<u64>,
    /// MiB of bulk data [default: 1024, with --quick 256]
    #[arg(long, default_value = "1024", default_value_if("quick", "true", "256"),
        hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub mib: u64,
    /// Pin all threads of each end to a core [default: they are not pinned]
    #[arg(long, num_args = 2, value_names = ["CLIENT", "SERVER"])]
    pub cores: Option<Vec<usize>>,
    /// The options of all benchmarks.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Plan {
    /// # Errors
    /// No row is left, or a core is not usable.
    pub fn check(&self) -> Result<(), Error> {
        let usable = affinity::usable_cores();
        if let Some(core) = self.cores.iter().flatten().find(|core| !usable.contains(core)) {
            return Err(format!("--cores: {core} is not one of the usable cores {usable:?}").into());
        }
        if self.subjects().is_empty() {
            return Err(self.common.no_row(""));
        }
        Ok(())
    }

    /// The rows that it measures.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        let mut all = Subject::all();
        all.retain(|s| self.common.wants(&s.name()));
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
    use crate::testing::options;

    fn plan(words: &[&str]) -> Result<Plan, Error> {
        let plan: Plan = options(words)?;
        plan.check().map(|()| plan)
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
        assert_eq!(plan(": verbs").subjects().len(), 18);
        assert_eq!(plan("/s").subjects().len(), 15);
        assert!(plan("bulk").needs_spanwire() && !plan("bulk: tcp").needs_spanwire());
    }
}
