//! The runs of a paper, in parallel on all cores.

use super::cache::Cache;
use crate::report::{LiveLine, bar};
use crate::signals::Interrupt;
use crate::sim::file::Chosen;
use crate::sim::seeds::{SeedRow, run_one};
use crate::sim::sweep::{all_cores, sweep};
use serde::Deserialize;
use serde_json::{Value, json};
use spanwire_base::{u64_from, usize_from};
use spanwire_sim::Trace;
use spanwire_sim::rows::{Results, Run, SeedResult};
use std::collections::BTreeMap;
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
    pub(super) cached: usize,
}

/// A run from one seed, or the smaller run in its place.
struct Job {
    /// The run of the row.
    key: String,
    run: Run,
    /// From 1.
    seed: u64,
}

/// A result, and whether it was stored.
struct Done {
    result: Result<Stored, String>,
    cached: bool,
}

/// The result of a job, as the cache has it.
#[derive(Deserialize)]
struct Stored {
    metrics: SeedResult,
    violations: Vec<String>,
    wall_s: f64,
}

/// Runs everything: simulations in parallel, then commands one after the other, because they may
/// measure time. Each result is stored as soon as it exists, so an interrupted call loses little.
pub(super) fn run_all(
    runs: &BTreeMap<String, Run>,
    quick: bool,
    cache: &Cache,
    live: bool,
) -> Outcome {
    let mut all = Vec::new();
    for (key, run) in runs {
        let run = if quick { run.smaller() } else { run.clone() };
        all.extend((1..=run.seeds).map(|seed| Job { key: key.clone(), run: run.clone(), seed }));
    }
    let total = u64_from(all.len());
    let (simulations, commands): (Vec<Job>, Vec<Job>) =
        all.into_iter().partition(|job| job.run.command.is_empty());
    let mut outcome = Outcome { runs: usize_from(total), ..Outcome::default() };
    let mut line = LiveLine::new(live);
    let mut done = 0;
    for (jobs, threads) in [(simulations, all_cores()), (commands, NonZero::<usize>::MIN)] {
        let one = |i| jobs[usize_from(i)].done(cache);
        sweep(0..u64_from(jobs.len()), threads, &Interrupt::never(), one, |i, result| {
            outcome.add(&jobs[usize_from(i)], result);
            done += 1;
            line.show(&format!("{} {done} of {total} runs", bar(done, total)));
        });
    }
    line.clear();
    // A run without one of its seeds has no results.
    let Results { seeds, errors, .. } = &mut outcome.results;
    seeds.retain(|key, _| !errors.contains_key(key));
    outcome
}

impl Job {
    fn done(&self, cache: &Cache) -> Done {
        let command = self.run.command_line(Some(self.seed));
        // A stored result of other members is computed again.
        let stored = cache.load(&command).and_then(|result| serde_json::from_value(result).ok());
        if let Some(result) = stored {
            return Done { result: Ok(result), cached: true };
        }
        let started = Instant::now();
        let result = match self.run.command.split_first() {
            None => self.simulate(),
            Some((program, args)) => execute(program, args),
        };
        let result = result.and_then(|mut result| {
            result["wall_s"] = started.elapsed().as_secs_f64().into();
            cache.store(&command, &result);
            // Through its text, as a stored result: parsing may change the last bit of a number.
            serde_json::from_str(&result.to_string()).map_err(|e| e.to_string())
        });
        Done { result, cached: false }
    }

    fn simulate(&self) -> Result<Value, String> {
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
        Ok(json!({ "metrics": metrics, "violations": report.violations }))
    }
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
    let metrics: Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("{program}: its output is no JSON: {e}"))?;
    Ok(json!({ "metrics": metrics, "violations": [] }))
}

impl Outcome {
    fn add(&mut self, job: &Job, done: Done) {
        self.cached += usize::from(done.cached);
        let key = || job.key.clone();
        let stored = match done.result {
            Ok(stored) => stored,
            Err(why) => {
                self.results.errors.entry(key()).or_insert(why);
                return;
            }
        };
        *self.results.wall_s.entry(key()).or_default() += stored.wall_s;
        let (name, seed) = (job.run.label(), job.seed);
        self.violations
            .extend(stored.violations.iter().map(|v| format!("{name}, seed {seed}: {v}")));
        self.results.seeds.entry(key()).or_default().push(stored.metrics);
    }
}

/// Completion times of single flows are kept up to so many flows; more would fill the cache.
const FLOWS_MAX: usize = 1024;
/// Values of a line of a figure that are kept of each seed.
const TRACE_VALUES: usize = 250;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_sim::MetricReport;
    use std::fs;

    fn run_one_by_one(runs: &[&Run], cache: &Cache) -> Outcome {
        let all = runs.iter().map(|run| (run.command_line(None), (*run).clone())).collect();
        run_all(&all, false, cache, false)
    }

    #[test]
    fn run_all__stores_results_and_takes_them_the_next_time() {
        let root = std::env::temp_dir().join(format!("spanwire-runner-{}", std::process::id()));
        let cache = Cache::new(&root, b"this program");
        let (two, three) = (Run::of("pair", 2), Run::of("pair", 3));
        let first = run_one_by_one(&[&two], &cache);
        let of_first = first.results.of(&two).expect("it can be run");
        assert_eq!((first.runs, first.cached, of_first.len()), (2, 0, 2));
        assert!(first.results.errors.is_empty() && first.violations.is_empty(), "{first:?}");
        assert!(of_first[0].mean_us.is_some_and(|us| us > 0.0), "{of_first:?}");
        // Two of three seeds are known, and give the same result.
        let second = run_one_by_one(&[&three], &cache);
        assert_eq!((second.runs, second.cached), (3, 2));
        assert_eq!(second.results.of(&three).expect("it can be run")[..2], *of_first);
        fs::remove_dir_all(&root).expect("it was created");
    }

    /// A member of [`SeedResult`] under another name would be empty for ever.
    #[test]
    fn simulate__writes_the_members_that_rows_read() {
        let run = Run::of("reflex-fct", 1).set("time", "1ms").set("reflex", "ndt");
        let written = Job { key: String::new(), run, seed: 1 }.simulate().expect("it runs");
        for name in ["fct_us", "mean_us", "retransmitted_packets", "pfc_pauses", "groups"] {
            assert!(written["metrics"].get(name).is_some(), "{name}");
        }
        let read: SeedResult = serde_json::from_value(written["metrics"].clone()).expect("it is");
        assert!(matches!(read.metric, Some(MetricReport::Isolated(_))), "{read:?}");
        assert_eq!((read.groups[2].name.as_str(), read.groups[2].by_size.len()), ("inter", 8));
    }

    #[test]
    fn run_all__reports_what_cannot_be_run() {
        let echo = Run::command(&["echo", "{\"mean_us\": 40}"]);
        let bad = Run::of("pair", 2).set("no_such", "1");
        let (none, text) = (Run::command(&["/no/such/program"]), Run::command(&["echo", "fast"]));
        let outcome = run_one_by_one(&[&echo, &bad, &none, &text], &Cache::none());
        assert_eq!(outcome.results.of(&echo).expect("it prints JSON")[0].mean_us, Some(40.0));
        assert_eq!((outcome.results.seeds.len(), outcome.results.errors.len()), (1, 3));
        for (run, part) in [(bad, "no_such"), (none, "/no/such"), (text, "JSON")] {
            let error = &outcome.results.errors[&run.command_line(None)];
            assert!(error.contains(part), "{error}");
        }
    }
}
