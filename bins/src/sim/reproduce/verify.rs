//! `--verify K`: stored results are computed again and compared.

use super::plan::Unit;
use crate::exit::Exit;
use crate::report::print_report;
use crate::sim::store::{Store, Stored};
use crate::sim::sweep::sweep_all;
use serde::Serialize;
use spanwire_base::{Rng, u64_from, usize_from};
use spanwire_host::fabric::Error;
use std::time::SystemTime;

/// The JSON object of `spanwire sim reproduce --verify K --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Verified {
    /// Results of these runs that are stored.
    stored: usize,
    /// Those that were computed again.
    verified: usize,
    /// Commands whose result is not the stored one.
    differ: Vec<String>,
}

/// Draws `count` of the stored results of `units` and runs them again.
///
/// # Returns
/// 1 if one differs, or none is stored.
pub(super) fn run(units: &[Unit], store: &Store, count: u64, json: bool) -> Result<Exit, Error> {
    let load = |unit: &Unit| Some((unit.clone(), store.load(unit.key.as_ref()?)?));
    // The results of commands are of their time.
    let simulations = units.iter().filter(|unit| unit.run.command.is_empty());
    let mut all: Vec<(Unit, Stored)> = simulations.filter_map(load).collect();
    let stored = all.len();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut rng = Rng::new(u64::from(since.subsec_nanos()) ^ since.as_secs());
    let chosen: Vec<(Unit, Stored)> = (0..count.min(u64_from(stored)))
        .map(|_| all.swap_remove(usize_from(rng.below(u64_from(all.len())))))
        .collect();
    let again = sweep_all(u64_from(chosen.len()), !json, "results", |i| {
        let (unit, stored) = &chosen[usize_from(i)];
        Ok::<_, Error>((unit.run()?.metrics != stored.metrics).then(|| unit.command()))
    })?;
    let differ = again.iter().flatten().cloned().collect();
    let report = Verified { stored, verified: chosen.len(), differ };
    print_report(json, &report, Verified::to_text)?;
    let ok = report.differ.is_empty() && report.verified > 0;
    Ok(if ok { Exit::Success } else { Exit::Failure })
}

impl Verified {
    fn to_text(&self) -> String {
        let differ = self.differ.iter().map(|command| format!("differs: {command}\n"));
        let (of, n, wrong) = (self.stored, self.verified, self.differ.len());
        differ.collect::<String>()
            + &format!("{n} of {of} stored results run again, {wrong} differ\n")
    }
}
