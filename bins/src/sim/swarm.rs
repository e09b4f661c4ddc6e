//! `spanwire sim swarm`: random networks, each drawn from a seed.

use super::args::{SwarmArgs, With};
use super::numbers::{per_second, rounded};
use super::sweep::{all_cores, sweep};
use crate::exit::Exit;
use crate::report::{LiveLine, bar, print_report, print_text};
use crate::signals::Interrupt;
use serde::Serialize;
use spanwire_base::u64_from;
use spanwire_host::fabric::Error;
use spanwire_sim::{SwarmOutcome, swarm_describe, swarm_plan, swarm_run};
use std::fmt::Write as _;
use std::time::Instant;

/// The JSON object of `spanwire sim swarm --json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
struct SwarmReport {
    /// All seeds were run, and none failed.
    ok: bool,
    /// The first seed.
    start: u64,
    /// Number of requested seeds.
    seeds: u64,
    /// Number of seeds run: all of them, unless interrupted.
    done: u64,
    /// Those of them that were not run, because they do not draw what `--with` requires.
    skipped: u64,
    /// The seeds that failed.
    failed: Vec<Failure>,
    /// The draws of each seed, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drawn: Vec<Drawn>,
    /// Flows of all seeds.
    flows: u64,
    /// Flows that completed. Some seeds draw retry limits at which queue pairs may fail.
    flows_completed: u64,
    /// Events of all seeds.
    events: u64,
    /// Packet hops of all seeds.
    packet_hops: u64,
    /// A hash over the event hashes in the order of the seeds, 16 hexadecimal digits. It is the
    /// same on any machine, with any number of threads.
    event_hash: String,
    /// Wall-clock seconds.
    wall_s: f64,
}

/// A seed that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Failure {
    seed: u64,
    violations: Vec<String>,
    /// The command that reproduces it.
    replay: String,
    /// Its draws, as pairs of a name and a description.
    drawn: Vec<(String, String)>,
}

/// The draws of a seed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Drawn {
    seed: u64,
    /// Pairs of a name and a description.
    drawn: Vec<(String, String)>,
}

/// Running totals of the seeds.
#[derive(Debug)]
struct Tally {
    report: SwarmReport,
    hash: u64,
}

/// Runs the seeds.
pub(super) fn run(args: &SwarmArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let end = args.start.checked_add(args.seeds).ok_or("there are not as many seeds")?;
    let threads = args.threads.unwrap_or_else(all_cores);
    let started = Instant::now();
    let mut line = LiveLine::new(!args.json);
    let mut tally = Tally::new(args);
    let one = |seed| is_wanted(args.with, seed).then(|| swarm_run(seed));
    sweep(args.start..end, threads, interrupt, one, |_, outcome| {
        let Some(outcome) = outcome else { return tally.skip() };
        if args.describe {
            let drawn = Drawn { seed: outcome.seed, drawn: swarm_describe(outcome.seed) };
            if !args.json {
                line.clear();
                print_text(&drawn.to_text());
            }
            tally.report.drawn.extend(args.json.then_some(drawn));
        }
        if let Some(failure) = tally.add(&outcome)
            && !args.json
        {
            line.clear();
            print_text(&failure.to_text());
        }
        let r = &tally.report;
        let rate = per_second(r.done, started.elapsed().as_secs_f64());
        let (bar, done, failed) = (bar(r.done, r.seeds), r.done, r.failed.len());
        line.show(&format!("{bar} {done} of {} seeds, {rate:.0}/s, {failed} failed", r.seeds));
    });
    line.clear();
    let report = tally.finish(started.elapsed().as_secs_f64());
    print_report(args.json, &report, SwarmReport::to_text)?;
    Ok(match (report.failed.is_empty(), report.done == report.seeds) {
        (false, _) => Exit::Failure,
        (true, true) => Exit::Success,
        (true, false) => interrupt.exit(),
    })
}

/// True if the seed draws what is required.
fn is_wanted(with: Option<With>, seed: u64) -> bool {
    match with {
        None => true,
        Some(With::Agents) => !swarm_plan(seed).setup.agents.is_empty(),
    }
}

impl Tally {
    fn new(args: &SwarmArgs) -> Self {
        let report = SwarmReport { start: args.start, seeds: args.seeds, ..SwarmReport::default() };
        Self { report, hash: FNV_OFFSET }
    }

    /// The next seed was not run.
    fn skip(&mut self) {
        self.report.done += 1;
        self.report.skipped += 1;
    }

    /// Adds the next seed's outcome; returns its failure, if any.
    fn add(&mut self, outcome: &SwarmOutcome) -> Option<&Failure> {
        let sum = &mut self.report;
        sum.done += 1;
        if let Some(r) = &outcome.report {
            sum.events += r.events;
            sum.packet_hops += r.packet_hops;
            let completed = r.flows.iter().filter(|f| f.fct_us.is_some()).count();
            sum.flows += u64_from(r.flows.len());
            sum.flows_completed += u64_from(completed);
            for byte in r.event_hash.bytes() {
                self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
            }
        }
        if outcome.violations.is_empty() {
            return None;
        }
        let (seed, violations) = (outcome.seed, outcome.violations.clone());
        let drawn = swarm_describe(seed);
        sum.failed.push(Failure { seed, violations, replay: outcome.replay(), drawn });
        sum.failed.last()
    }

    fn finish(self, wall_s: f64) -> SwarmReport {
        let Self { mut report, hash } = self;
        report.ok = report.failed.is_empty() && report.done == report.seeds;
        report.event_hash = format!("{hash:016x}");
        report.wall_s = wall_s;
        report
    }
}

impl Failure {
    fn to_text(&self) -> String {
        let mut out = format!("seed {} FAILED: {}\n", self.seed, self.replay);
        for violation in self.violations.iter().take(VIOLATIONS_MAX) {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {violation}");
        }
        if self.violations.len() > VIOLATIONS_MAX {
            let _ = writeln!(out, "  ... {} more", self.violations.len() - VIOLATIONS_MAX);
        }
        out + &lines(&self.drawn)
    }
}

impl Drawn {
    fn to_text(&self) -> String {
        format!("seed {} draws\n{}", self.seed, lines(&self.drawn))
    }
}

/// A line for each pair.
fn lines(drawn: &[(String, String)]) -> String {
    drawn.iter().map(|(name, text)| format!("  {name}: {text}\n")).collect()
}

impl SwarmReport {
    fn to_text(&self) -> String {
        let (start, done, failed) = (self.start, self.done, self.failed.len());
        let passed = done - self.skipped - u64_from(failed);
        let mut out = format!("{done} seeds from {start}: {passed} passed, {failed} failed");
        if self.skipped > 0 {
            // Writing to a String cannot fail, here and below.
            let _ = write!(out, ", {} not of the kind", self.skipped);
        }
        if done < self.seeds {
            let _ = write!(out, "; interrupted, {} not run", self.seeds - done);
        }
        let _ = writeln!(
            out,
            "\n  {} of {} flows completed, {} events, {} packet hops\n  \
             {:.1} s: {:.0} seeds and {} packet hops a second\n  event hash {}",
            self.flows_completed,
            self.flows,
            self.events,
            self.packet_hops,
            self.wall_s,
            per_second(self.done, self.wall_s),
            rounded(per_second(self.packet_hops, self.wall_s)),
            self.event_hash
        );
        out
    }
}

/// The parameters of FNV-1a, 64 bit.
///
/// # Source
/// draft-eastlake-fnv 5.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// Limit of printed violations of a seed.
const VIOLATIONS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, report};

    fn args(seeds: u64) -> SwarmArgs {
        SwarmArgs { seeds, start: 40, threads: None, with: None, describe: false, json: false }
    }

    fn outcome(seed: u64, violations: &[&str]) -> SwarmOutcome {
        let mut r = report(vec![flow(0, 1, 100, 5.0)]);
        r.event_hash = format!("{seed:016x}");
        let violations = violations.iter().map(|v| (*v).to_owned()).collect();
        SwarmOutcome { seed, report: Some(r), violations }
    }

    #[test]
    fn add__sums_and_keeps_failures_with_their_replay() {
        let mut tally = Tally::new(&args(3));
        assert!(tally.add(&outcome(40, &[])).is_none());
        let failure = tally.add(&outcome(41, &["a byte is wrong"])).expect("it failed").to_text();
        let first = "seed 41 FAILED: spanwire sim swarm --seeds 1 --start 41\n  a byte is wrong\n";
        assert_eq!(failure, format!("{first}{}", lines(&swarm_describe(41))));
        assert!(tally.add(&SwarmOutcome { report: None, ..outcome(42, &["panicked"]) }).is_some());
        let report = tally.finish(2.0);
        assert!(!report.ok);
        assert_eq!((report.done, report.flows, report.packet_hops), (3, 2, 2_000));
        let text = report.to_text();
        assert!(text.starts_with("3 seeds from 40: 1 passed, 2 failed\n"), "{text}");
    }

    #[test]
    fn add__the_hash_depends_on_the_order() {
        let hash = |order: [u64; 2]| {
            let mut tally = Tally::new(&args(2));
            for seed in order {
                tally.add(&outcome(seed, &[]));
            }
            tally.finish(1.0).event_hash
        };
        assert_eq!(hash([1, 2]), hash([1, 2]));
        assert_ne!(hash([1, 2]), hash([2, 1]));
    }

    #[test]
    fn to_text__counts_seeds_not_run_after_an_interrupt() {
        let mut tally = Tally::new(&args(500));
        tally.add(&outcome(40, &[]));
        let report = tally.finish(1.0);
        assert!(!report.ok, "what was not run has not passed");
        let text = report.to_text();
        assert!(text.contains("1 passed, 0 failed; interrupted, 499 not run"), "{text}");
    }
}
