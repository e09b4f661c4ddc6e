//! `spanwire sim swarm`: random networks, each drawn from a seed.

use super::args::{SwarmArgs, With};
use super::numbers::{per_second, rounded};
use super::shard::Shard;
use super::store::{Store, Stored, cannot_store, key};
use super::sweep::{all_cores, sweep};
use crate::exit::Exit;
use crate::report::{LiveLine, bar, print_report, print_text};
use crate::signals::Interrupt;
use serde::{Deserialize, Serialize};
use spanwire_base::u64_from;
use spanwire_host::fabric::Error;
use spanwire_host::file;
use spanwire_sim::{SwarmOutcome, swarm_describe, swarm_plan, swarm_run};
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::time::Instant;

/// The JSON object of `spanwire sim swarm --json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Failure {
    seed: u64,
    violations: Vec<String>,
    /// The command that reproduces it.
    replay: String,
    /// Its draws, as pairs of a name and a description.
    drawn: Vec<(String, String)>,
}

/// The draws of a seed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Drawn {
    seed: u64,
    /// Pairs of a name and a description.
    drawn: Vec<(String, String)>,
}

/// The totals of seeds; of some, as a store has them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Tally {
    report: SwarmReport,
    /// The event hash of each seed that was run.
    hashes: Vec<u64>,
}

/// Runs the seeds, or the part of a shard.
pub(super) fn run(args: &SwarmArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let store = Store::of(args.store.as_deref())?;
    let program = program(&store)?;
    let started = Instant::now();
    let mut shown = Shown { args, line: LiveLine::new(!args.json), started };
    let (seeds, blocks) = blocks(args)?;
    let mut tally = Tally::new(args.start, seeds);
    for block in blocks {
        let key = key(&format!("swarm {program}\n{:?}\n{block:?}", args.with), &[]);
        let stored: Option<Tally> =
            store.load(&key).and_then(|stored| serde_json::from_value(stored.metrics).ok());
        let part = match stored.filter(|part| part.is_whole() && part.is_of(&block)) {
            Some(part) => shown.stored(part),
            None => {
                let part = run_block(block.clone(), interrupt, &tally, &mut shown);
                if part.is_whole() {
                    save(&store, key, args.with, &part).map_err(|e| cannot_store(&e))?;
                }
                part
            }
        };
        tally.merge(part);
        if interrupt.is_set() {
            break;
        }
    }
    shown.line.clear();
    let report = tally.finish(started.elapsed().as_secs_f64());
    print_report(args.json, &report, SwarmReport::to_text)?;
    Ok(match (report.failed.is_empty(), report.done == report.seeds) {
        (false, _) => Exit::Failure,
        (true, true) => Exit::Success,
        (true, false) => interrupt.exit(),
    })
}

/// The number of seeds to run, and those that are stored together; all of them without a store.
fn blocks(args: &SwarmArgs) -> Result<(u64, impl Iterator<Item = Range<u64>>), Error> {
    let (start, seeds) = (args.start, args.seeds);
    let end = start.checked_add(seeds).ok_or("there are not as many seeds")?;
    let size = if args.store.is_some() { BLOCK_SEEDS } else { seeds.max(1) };
    let (all, shard) = (seeds.div_ceil(size), args.shard.unwrap_or(Shard::WHOLE));
    let block = move |i: u64| start + i * size..end.min((start + i * size).saturating_add(size));
    // All blocks are whole but the last.
    let last = all.checked_sub(1).filter(|last| shard.has(*last)).map_or(0, |_| seeds % size);
    let missing = if last > 0 { size - last } else { 0 };
    Ok((shard.count(all) * size - missing, shard.numbers(all).map(block)))
}

/// The hash of the program's file, if results are stored: a swarm looks for faults of the program,
/// so results of another one are none. Empty without a store.
fn program(store: &Store) -> io::Result<String> {
    if *store == Store::none() {
        return Ok(String::new());
    }
    Ok(key("", &[file::read(&std::env::current_exe()?, "programs", PROGRAM_BYTES_MAX)?]))
}

fn save(store: &Store, key: String, with: Option<With>, part: &Tally) -> io::Result<()> {
    let SwarmReport { start, seeds, .. } = part.report;
    let with = with.map_or("", |With::Agents| " --with agents");
    let command = format!("spanwire sim swarm --seeds {seeds} --start {start}{with}");
    let of = |failure: &Failure| failure.violations.clone();
    let violations = part.report.failed.iter().flat_map(of).collect();
    store.save(&Stored::new(command, key, (violations, serde_json::to_value(part)?)))
}

/// Runs seeds; those before are in `all`.
fn run_block(
    seeds: Range<u64>,
    interrupt: &Interrupt,
    all: &Tally,
    shown: &mut Shown<'_>,
) -> Tally {
    let args = shown.args;
    let threads = args.threads.unwrap_or_else(all_cores);
    let mut part = Tally::new(seeds.start, seeds.end - seeds.start);
    let one = |seed| is_wanted(args.with, seed).then(|| swarm_run(seed));
    sweep(seeds, threads, interrupt, one, |_, outcome| {
        let Some(outcome) = outcome else { return part.skip() };
        if args.describe {
            let drawn = Drawn { seed: outcome.seed, drawn: swarm_describe(outcome.seed) };
            if !args.json {
                shown.print(&drawn.to_text());
            }
            part.report.drawn.extend(args.json.then_some(drawn));
        }
        if let Some(failure) = part.add(&outcome) {
            shown.failure(failure);
        }
        shown.progress([all, &part]);
    });
    part
}

/// A view of the run on the terminal.
struct Shown<'a> {
    args: &'a SwarmArgs,
    line: LiveLine,
    started: Instant,
}

impl Shown<'_> {
    fn print(&mut self, text: &str) {
        self.line.clear();
        print_text(text);
    }

    fn failure(&mut self, failure: &Failure) {
        if !self.args.json {
            self.print(&failure.to_text());
        }
    }

    /// The failures of a stored part.
    fn stored(&mut self, part: Tally) -> Tally {
        part.report.failed.iter().for_each(|failure| self.failure(failure));
        part
    }

    fn progress(&mut self, parts: [&Tally; 2]) {
        let seeds = parts[0].report.seeds;
        let done = parts.iter().map(|part| part.report.done).sum();
        let failed: usize = parts.iter().map(|part| part.report.failed.len()).sum();
        let rate = per_second(done, self.started.elapsed().as_secs_f64());
        let bar = bar(done, seeds);
        self.line.show(&format!("{bar} {done} of {seeds} seeds, {rate:.0}/s, {failed} failed"));
    }
}

/// True if the seed draws what is required.
fn is_wanted(with: Option<With>, seed: u64) -> bool {
    match with {
        None => true,
        Some(With::Agents) => !swarm_plan(seed).setup.agents.is_empty(),
    }
}

impl Tally {
    fn new(start: u64, seeds: u64) -> Self {
        let report = SwarmReport { start, seeds, ..SwarmReport::default() };
        Self { report, hashes: Vec::new() }
    }

    /// All of its seeds have been run.
    fn is_whole(&self) -> bool {
        self.report.done == self.report.seeds
    }

    fn is_of(&self, seeds: &Range<u64>) -> bool {
        (self.report.start, self.report.seeds) == (seeds.start, seeds.end - seeds.start)
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
            let hash = u64::from_str_radix(&r.event_hash, 16);
            self.hashes.push(hash.expect("16 hexadecimal digits"));
        }
        if outcome.violations.is_empty() {
            return None;
        }
        let (seed, violations) = (outcome.seed, outcome.violations.clone());
        let drawn = swarm_describe(seed);
        sum.failed.push(Failure { seed, violations, replay: outcome.replay(), drawn });
        sum.failed.last()
    }

    /// Adds the seeds that follow.
    fn merge(&mut self, part: Self) {
        let (sum, own) = (&mut self.report, part.report);
        // Numbers of a file may have any value.
        for (sum, own) in [
            (&mut sum.done, own.done),
            (&mut sum.skipped, own.skipped),
            (&mut sum.flows, own.flows),
            (&mut sum.flows_completed, own.flows_completed),
            (&mut sum.events, own.events),
            (&mut sum.packet_hops, own.packet_hops),
        ] {
            *sum = sum.saturating_add(own);
        }
        sum.failed.extend(own.failed);
        sum.drawn.extend(own.drawn);
        self.hashes.extend(part.hashes);
    }

    fn finish(self, wall_s: f64) -> SwarmReport {
        let is_whole = self.is_whole();
        let mut hash = FNV_OFFSET;
        for own in &self.hashes {
            for byte in format!("{own:016x}").bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
            }
        }
        let ok = self.report.failed.is_empty() && is_whole;
        SwarmReport { ok, event_hash: format!("{hash:016x}"), wall_s, ..self.report }
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
        let passed = done.saturating_sub(self.skipped).saturating_sub(u64_from(failed));
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
/// Seeds in a file of a store: half a minute of a core, so that little is lost if a shard ends.
const BLOCK_SEEDS: u64 = 256;
/// The most of a program's file; a debug build has 80 MB.
const PROGRAM_BYTES_MAX: u64 = 1 << 30;
/// Limit of printed violations of a seed.
const VIOLATIONS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, report};

    fn args(seeds: u64) -> SwarmArgs {
        SwarmArgs {
            seeds,
            start: 40,
            threads: None,
            with: None,
            describe: false,
            json: true,
            store: None,
            shard: None,
        }
    }

    fn outcome(seed: u64, violations: &[&str]) -> SwarmOutcome {
        let mut r = report(vec![flow(0, 1, 100, 5.0)]);
        r.event_hash = format!("{seed:016x}");
        let violations = violations.iter().map(|v| (*v).to_owned()).collect();
        SwarmOutcome { seed, report: Some(r), violations }
    }

    #[test]
    fn add__sums_and_keeps_failures_with_their_replay() {
        let mut tally = Tally::new(40, 3);
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
            let mut tally = Tally::new(40, 2);
            for seed in order {
                tally.add(&outcome(seed, &[]));
            }
            tally.finish(1.0).event_hash
        };
        assert_eq!(hash([1, 2]), hash([1, 2]));
        assert_ne!(hash([1, 2]), hash([2, 1]));
    }

    #[test]
    fn merge__of_parts_is_the_whole() {
        let of = |seeds: Range<u64>| {
            let mut tally = Tally::new(seeds.start, seeds.end - seeds.start);
            for seed in seeds {
                let wrong: &[&str] = if seed == 42 { &["a byte is wrong"] } else { &[] };
                tally.add(&outcome(seed, wrong));
            }
            tally.skip();
            tally
        };
        let mut merged = Tally::new(40, 4);
        for part in [of(40..41), of(41..43)] {
            let text = serde_json::to_string(&part).expect("it is plain data");
            merged.merge(serde_json::from_str(&text).expect("it is of a tally"));
        }
        let mut whole = of(40..43);
        whole.skip();
        whole.report.seeds = 4;
        assert_eq!(merged.finish(1.0), whole.finish(1.0));
    }

    #[test]
    fn blocks__shards_have_all_seeds_once() {
        let with_store = SwarmArgs { store: Some("results".into()), ..args(1000) };
        let ends = |args: &SwarmArgs| -> Vec<[u64; 2]> {
            let (seeds, blocks) = blocks(args).expect("they exist");
            let ends: Vec<[u64; 2]> = blocks.map(|block| [block.start, block.end]).collect();
            assert_eq!(ends.iter().map(|[start, end]| end - start).sum::<u64>(), seeds);
            ends
        };
        let of = |shard| ends(&SwarmArgs { shard, ..with_store.clone() });
        let all = [[40, 296], [296, 552], [552, 808], [808, 1040]];
        assert_eq!(of(None), all);
        let [first, second] = [0, 1].map(|place| of(Some(Shard { place, of: 2 })));
        assert_eq!((first, second), (vec![all[0], all[2]], vec![all[1], all[3]]));
        assert_eq!(ends(&args(1000)), [[40, 1040]]);
        assert_eq!(ends(&SwarmArgs { store: Some("results".into()), ..args(512) }).len(), 2);
        assert!(ends(&args(0)).is_empty());
        assert!(blocks(&args(u64::MAX)).is_err());
    }

    #[test]
    fn to_text__counts_seeds_not_run_after_an_interrupt() {
        let mut tally = Tally::new(40, 500);
        tally.add(&outcome(40, &[]));
        let report = tally.finish(1.0);
        assert!(!report.ok, "what was not run has not passed");
        let text = report.to_text();
        assert!(text.contains("1 passed, 0 failed; interrupted, 499 not run"), "{text}");
    }
}
