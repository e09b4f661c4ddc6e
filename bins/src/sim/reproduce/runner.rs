//! The runs of a paper, in parallel on all cores.

use super::plan::Unit;
use crate::report::{LiveLine, bar};
use crate::signals::Interrupt;
use crate::sim::file::Chosen;
use crate::sim::seed_run::{SeedRow, run_one};
use crate::sim::store::{Store, Stored};
use crate::sim::sweep::{all_cores, sweep};
use serde_json::{Value, json};
use spanwire_base::{u64_from, usize_from};
use spanwire_sim::Trace;
use spanwire_sim::rows::{Results, SeedResult};
use std::io;
use std::num::NonZero;
use std::process::Command;
use std::time::Instant;

/// The results of all runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Outcome {
    pub(super) results: Results,
    /// Violations that the checkers found.
    pub(super) violations: Vec<String>,
    /// Runs of one seed.
    pub(super) runs: usize,
    /// Those whose result was stored.
    pub(super) stored: usize,
}

/// A unit's result, and whether it was stored.
struct Done {
    result: Result<(SeedResult, Vec<String>), String>,
    is_stored: bool,
}

/// Runs everything: simulations in parallel, then commands one after the other, because they may
/// measure time. Each result is stored as soon as it exists, so an interrupted call loses little.
///
/// # Errors
/// A result cannot be stored. No further run begins then.
pub(super) fn run_all(units: Vec<Unit>, store: &Store, live: bool) -> io::Result<Outcome> {
    let total = u64_from(units.len());
    let (simulations, commands): (Vec<Unit>, Vec<Unit>) =
        units.into_iter().partition(|unit| unit.run.command.is_empty());
    let mut outcome = Outcome { runs: usize_from(total), ..Outcome::default() };
    let (mut line, mut done, mut failed) = (LiveLine::new(live), 0, None);
    let interrupt = Interrupt::never();
    for (units, threads) in [(simulations, all_cores()), (commands, NonZero::<usize>::MIN)] {
        let one = |i| units[usize_from(i)].done(store).inspect_err(|_| interrupt.set());
        sweep(0..u64_from(units.len()), threads, &interrupt, one, |i, result| {
            match result {
                Ok(result) => outcome.add(&units[usize_from(i)], result),
                Err(e) => failed = Some(e),
            }
            done += 1;
            line.show(&format!("{} {done} of {total} runs", bar(done, total)));
        });
    }
    line.clear();
    // A run without one of its seeds has no results.
    let Results { seeds, errors, .. } = &mut outcome.results;
    seeds.retain(|key, _| !errors.contains_key(key));
    failed.map_or(Ok(outcome), Err)
}

impl Unit {
    fn done(&self, store: &Store) -> io::Result<Done> {
        let stored = self.key.as_ref().and_then(|key| store.load(key));
        // A stored result of other members is computed again.
        if let Some(result) = stored.and_then(|stored| parsed(stored).ok()) {
            return Ok(Done { result: Ok(result), is_stored: true });
        }
        let result = match self.run() {
            Ok(stored) => {
                store.save(&stored)?;
                parsed(stored)
            }
            Err(why) => Err(why),
        };
        Ok(Done { result, is_stored: false })
    }

    /// Runs it.
    ///
    /// # Errors
    /// It cannot be run.
    pub(super) fn run(&self) -> Result<Stored, String> {
        let started = Instant::now();
        let result = match self.run.command.split_first() {
            None => self.simulate(),
            Some((program, args)) => execute(program, args).map(|metrics| (Vec::new(), metrics)),
        };
        let stored = Stored::new(self.command(), self.key.clone().unwrap_or_default(), result?);
        Ok(Stored { seconds: started.elapsed().as_secs_f64(), ..stored })
    }

    fn simulate(&self) -> Result<(Vec<String>, Value), String> {
        let set = self.run.set.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let (name, set) = (self.run.scenario.to_owned(), set.collect());
        let chosen = Chosen { name, seed: self.seed, set };
        let report = run_one(&chosen)?;
        let mut metrics = serde_json::to_value(SeedRow::new(&report)).map_err(|e| e.to_string())?;
        if report.flows.len() > FLOWS_MAX {
            metrics["fct_us"] = Value::Array(Vec::new());
        }
        let traces: Vec<Trace> =
            report.over_time.iter().map(|trace| trace.thinned(TRACE_VALUES)).collect();
        metrics["over_time"] = json!(traces);
        Ok((report.violations, metrics))
    }
}

/// The result of a run, and its violations.
fn parsed(stored: Stored) -> Result<(SeedResult, Vec<String>), String> {
    let result = serde_json::from_value(stored.metrics).map_err(|e| e.to_string())?;
    Ok((result, stored.violations))
}

/// Runs a program that prints a JSON object.
fn execute(program: &str, args: &[&str]) -> Result<Value, String> {
    let output =
        Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.trim_end().lines().last().unwrap_or_default();
        return Err(format!("{program}: {}: {last}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("{program}: its output is no JSON: {e}"))
}

impl Outcome {
    fn add(&mut self, unit: &Unit, done: Done) {
        self.stored += usize::from(done.is_stored);
        let key = || unit.of.clone();
        match done.result {
            Ok((result, violations)) => {
                let (name, seed) = (unit.run.label(), unit.seed);
                let of = violations.iter().map(|v| format!("{name}, seed {seed}: {v}"));
                self.violations.extend(of);
                self.results.seeds.entry(key()).or_default().push(result);
            }
            Err(why) => _ = self.results.errors.entry(key()).or_insert(why),
        }
    }
}

/// Completion times of single flows are kept up to so many flows; more would fill the store.
const FLOWS_MAX: usize = 1024;
/// Values of a line of a figure that are kept of each seed.
const TRACE_VALUES: usize = 250;

#[cfg(test)]
mod tests {
    use super::super::plan::units;
    use super::*;
    use spanwire_sim::MetricReport;
    use spanwire_sim::rows::Run;
    use std::fs;

    fn run_one_by_one(runs: &[&Run], store: &Store) -> Outcome {
        let all = runs.iter().map(|run| (run.command_line(None), (*run).clone())).collect();
        run_all(units(&all, false), store, false).expect("there is room")
    }

    #[test]
    fn run_all__stores_results_and_takes_them_the_next_time() {
        let root = std::env::temp_dir().join(format!("spanwire-runner-{}", std::process::id()));
        let store = Store::open(&root).expect("it can be created");
        let (two, three) = (Run::of("pair", 2), Run::of("pair", 3));
        let first = run_one_by_one(&[&two], &store);
        let of_first = first.results.of(&two).expect("it can be run");
        assert_eq!((first.runs, first.stored, of_first.len()), (2, 0, 2));
        assert!(first.results.errors.is_empty() && first.violations.is_empty(), "{first:?}");
        assert!(of_first[0].mean_us.is_some_and(|us| us > 0.0), "{of_first:?}");
        // Two of three seeds are known, and give the same result.
        let second = run_one_by_one(&[&three], &store);
        assert_eq!((second.runs, second.stored), (3, 2));
        assert_eq!(second.results.of(&three).expect("it can be run")[..2], *of_first);
        fs::remove_dir_all(&root).expect("it was created");
    }

    /// A member of [`SeedResult`] under another name would be empty for ever.
    #[test]
    fn simulate__writes_the_members_that_rows_read() {
        let run = Run::of("reflex-fct", 1).set("time", "1ms").set("reflex", "ndt");
        let all = [(String::new(), run)].into();
        let (_, written) = units(&all, false)[0].simulate().expect("it runs");
        for name in ["fct_us", "mean_us", "retransmitted_packets", "pfc_pauses", "groups"] {
            assert!(written.get(name).is_some(), "{name}");
        }
        let read: SeedResult = serde_json::from_value(written.clone()).expect("it is");
        assert!(matches!(read.metric, Some(MetricReport::Isolated(_))), "{read:?}");
        assert_eq!((read.groups[2].name.as_str(), read.groups[2].by_size.len()), ("inter", 8));
    }

    #[test]
    fn run_all__ends_if_a_result_cannot_be_stored() {
        let root = std::env::temp_dir().join(format!("spanwire-no-room-{}", std::process::id()));
        let store = Store::open(&root).expect("it can be created");
        fs::remove_dir_all(&root).expect("it was created");
        let runs = [("pair".to_owned(), Run::of("pair", 1000))].into();
        let failed = run_all(units(&runs, false), &store, false).expect_err("it is gone");
        assert_eq!(failed.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn run_all__reports_what_cannot_be_run() {
        let echo = Run::command(&["echo", "{\"mean_us\": 40}"]);
        let bad = Run::of("pair", 2).set("no_such", "1");
        let (none, text) = (Run::command(&["/no/such/program"]), Run::command(&["echo", "fast"]));
        let outcome = run_one_by_one(&[&echo, &bad, &none, &text], &Store::none());
        assert_eq!(outcome.results.of(&echo).expect("it prints JSON")[0].mean_us, Some(40.0));
        assert_eq!((outcome.results.seeds.len(), outcome.results.errors.len()), (1, 3));
        for (run, part) in [(bad, "no_such"), (none, "/no/such"), (text, "JSON")] {
            let error = &outcome.results.errors[&run.command_line(None)];
            assert!(error.contains(part), "{error}");
        }
    }
}
