//! The runs of a paper, in parallel on all cores.

use super::cache::Cache;
use super::expression::Results;
use super::paper::Run;
use crate::report::{LiveLine, bar};
use crate::signals::Interrupt;
use crate::sim::file::Chosen;
use crate::sim::seeds::{SeedRow, run_one};
use crate::sim::sweep::{all_cores, sweep};
use serde_json::{Value, json};
use spanwire_base::{u64_from, usize_from};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::process::Command;
use std::time::Instant;

/// The results of runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Outcome {
    /// Results of the runs that could be run with all seeds, by name.
    pub(super) results: Results,
    /// Why the others could not be run, by name.
    pub(super) errors: BTreeMap<String, String>,
    /// Wall-clock seconds by name, summed over the seeds; as measured when they ran.
    pub(super) wall_s: BTreeMap<String, f64>,
    /// Violations that the checkers found.
    pub(super) violations: Vec<String>,
    /// Runs of one seed.
    pub(super) runs: usize,
    /// Those whose result was stored.
    pub(super) cached: usize,
}

/// A run from one seed.
struct Job<'a> {
    name: &'a str,
    run: &'a Run,
    /// From 1.
    seed: u64,
}

/// A result, and whether it was stored.
struct Done {
    result: Result<Value, String>,
    cached: bool,
}

/// Runs everything: simulations in parallel, then commands one after the other, because they may
/// measure time. Each result is stored as soon as it exists, so an interrupted call loses little.
pub(super) fn run_all(runs: &BTreeMap<&str, &Run>, cache: &Cache, live: bool) -> Outcome {
    let mut all = Vec::new();
    for (name, run) in runs {
        all.extend((1..=run.seeds).map(|seed| Job { name, run, seed }));
    }
    let total = u64_from(all.len());
    let (simulations, commands): (Vec<Job<'_>>, Vec<Job<'_>>) =
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
    outcome.results.retain(|name, _| !outcome.errors.contains_key(name));
    outcome
}

impl Job<'_> {
    /// The command line of this run alone.
    fn command_line(&self) -> String {
        let whole = self.run.command_line();
        if !self.run.command.is_empty() {
            return format!("{whole} # {}", self.seed);
        }
        let seeds = format!(" --seeds {} --json", self.run.seeds);
        format!("{} --seed {}", whole.trim_end_matches(&seeds), self.seed)
    }

    fn done(&self, cache: &Cache) -> Done {
        let command = self.command_line();
        if let Some(result) = cache.load(&command) {
            return Done { result: Ok(result), cached: true };
        }
        let started = Instant::now();
        let result = match self.run.command.split_first() {
            None => self.simulate(),
            Some((program, args)) => execute(program, args),
        };
        let result = result.map(|mut result| {
            result["wall_s"] = started.elapsed().as_secs_f64().into();
            cache.store(&command, &result);
            // Through its text, as a stored result: parsing may change the last bit of a number.
            serde_json::from_str(&result.to_string()).unwrap_or(result)
        });
        Done { result, cached: false }
    }

    fn simulate(&self) -> Result<Value, String> {
        let set = self.run.set.clone().into_iter().collect();
        let chosen = Chosen { name: self.run.scenario.clone(), seed: self.seed, set };
        let report = run_one(&chosen)?;
        let mut metrics = serde_json::to_value(SeedRow::new(&report)).map_err(|e| e.to_string())?;
        metrics["engine"] = json!(report.engine);
        if report.flows.len() > FLOWS_MAX {
            metrics["fct_us"] = Value::Array(Vec::new());
        }
        Ok(json!({ "metrics": metrics, "violations": report.violations }))
    }
}

/// Runs a program that prints a JSON object.
fn execute(program: &str, args: &[String]) -> Result<Value, String> {
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
    fn add(&mut self, job: &Job<'_>, done: Done) {
        self.cached += usize::from(done.cached);
        let mut result = match done.result {
            Ok(result) => result,
            Err(why) => {
                self.errors.entry(job.name.to_owned()).or_insert(why);
                return;
            }
        };
        *self.wall_s.entry(job.name.to_owned()).or_default() +=
            result["wall_s"].as_f64().unwrap_or(0.0);
        let violations = result["violations"].as_array().into_iter().flatten();
        let violations = violations.filter_map(Value::as_str);
        let named = violations.map(|v| format!("{}, seed {}: {v}", job.name, job.seed));
        self.violations.extend(named);
        let metrics = result["metrics"].take();
        self.results.entry(job.name.to_owned()).or_default().push(metrics);
    }
}

/// Completion times of single flows are kept up to so many flows; more would fill the cache.
const FLOWS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn simulation(seeds: u64, set: &[(&str, &str)]) -> Run {
        let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Run { scenario: "pair".to_owned(), set: set.collect(), seeds, command: Vec::new() }
    }

    fn command(words: &[&str]) -> Run {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        Run { scenario: String::new(), set: BTreeMap::new(), seeds: 1, command }
    }

    #[test]
    fn run_all__stores_results_and_takes_them_the_next_time() {
        let root = std::env::temp_dir().join(format!("spanwire-runner-{}", std::process::id()));
        let cache = Cache::new(&root, b"this program");
        let (two, three) = (simulation(2, &[]), simulation(3, &[]));
        let first = run_all(&[("a", &two)].into(), &cache, false);
        assert_eq!((first.runs, first.cached, first.results["a"].len()), (2, 0, 2));
        assert!(first.errors.is_empty() && first.violations.is_empty(), "{first:?}");
        // Two of three seeds are known, and give the same result.
        let second = run_all(&[("a", &three)].into(), &cache, false);
        assert_eq!((second.runs, second.cached), (3, 2));
        assert_eq!(second.results["a"][..2], first.results["a"][..]);
        let seeds: Vec<_> = second.results["a"].iter().map(|row| row["seed"].clone()).collect();
        assert_eq!(seeds, [1, 2, 3]);
        assert!(second.results["a"][0]["engine"].is_object());
        fs::remove_dir_all(&root).expect("it was created");
    }

    #[test]
    fn run_all__a_command_prints_its_metrics() {
        let print = command(&["echo", "{\"bytes_per_entry\": 40}"]);
        let outcome = run_all(&[("cost", &print)].into(), &Cache::none(), false);
        assert_eq!(outcome.results["cost"], [json!({ "bytes_per_entry": 40 })]);
    }

    #[test]
    fn run_all__reports_what_cannot_be_run() {
        let (bad, none) = (simulation(2, &[("no_such", "1")]), command(&["/no/such/program"]));
        let (fails, text) = (command(&["false"]), command(&["echo", "fast"]));
        let runs = [("bad", &bad), ("none", &none), ("fails", &fails), ("text", &text)].into();
        let outcome = run_all(&runs, &Cache::none(), false);
        assert!(outcome.results.is_empty());
        for (name, part) in [("bad", "no_such"), ("none", "/no/such"), ("text", "JSON")] {
            assert!(outcome.errors[name].contains(part), "{:?}", outcome.errors);
        }
        assert_eq!(outcome.errors.len(), 4);
    }
}
