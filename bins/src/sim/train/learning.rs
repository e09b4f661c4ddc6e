//! The training itself.

use super::super::args::TrainArgs;
use super::super::prepare::cannot_write;
use super::super::sweep::{all_cores, sweep};
use crate::exit::{Exit, usage};
use crate::report::{LiveLine, bar, print_report, print_text};
use crate::signals::Interrupt;
use serde::Serialize;
use sha2::{Digest, Sha256};
use spanwire_base::{u64_from, usize_from};
use spanwire_host::fabric::Error;
use spanwire_sim::training::{FIRST_SEED, Iteration, TrainConfig, Trainer};
use std::fs;
use std::num::NonZero;
use std::time::Instant;

/// The JSON object of `spanwire sim train --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct TrainReport {
    scheme: String,
    seed: u64,
    iterations: Vec<TimedIteration>,
    /// Of the file, hexadecimal.
    sha256: String,
    /// Its bytes.
    bytes: u64,
    /// Wall-clock seconds.
    wall_s: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct TimedIteration {
    #[serde(flatten)]
    of: Iteration,
    /// Wall-clock seconds.
    wall_s: f64,
}

/// Trains, writes the file, and prints the report.
pub(super) fn learn(args: &TrainArgs) -> Result<Exit, Error> {
    if args.seed < FIRST_SEED {
        let what = format!(
            "the seed is {}; those of trainings are {FIRST_SEED} and above, so that no run that \
             evaluates has one of them",
            args.seed
        );
        return Err(usage(what));
    }
    let mut config = TrainConfig::default();
    for (name, text) in &args.set {
        config.set(name, text).map_err(usage)?;
    }
    // An unwritable file is reported before the training.
    fs::write(&args.out, []).map_err(|e| usage(cannot_write(&args.out, &e)))?;
    let started = Instant::now();
    let iterations = args.iterations.get();
    let mut trainer = Trainer::new(config, args.seed, iterations);
    let mut line = LiveLine::new(!args.json);
    let mut done: Vec<TimedIteration> = Vec::new();
    for n in 0..iterations {
        let begun = Instant::now();
        let of = iterate(&mut trainer, args.threads)?;
        done.push(TimedIteration { of, wall_s: begun.elapsed().as_secs_f64() });
        let text = row(n, &done[done.len() - 1]);
        if !args.json {
            line.clear();
            print_text(&text);
            line.show(&bar(u64::from(n) + 1, iterations.into()));
        }
    }
    line.clear();
    let set = args.set.iter().map(|(name, text)| format!(" --set {name}={text}"));
    let command = format!(
        "spanwire sim train {} --seed {} --iterations {iterations}{}",
        args.scheme,
        args.seed,
        set.collect::<String>()
    );
    let file = trainer.model().to_file(args.seed, &command).expect("it has networks");
    fs::write(&args.out, &file).map_err(|e| cannot_write(&args.out, &e))?;
    let report = TrainReport {
        scheme: args.scheme.clone(),
        seed: args.seed,
        iterations: done,
        sha256: Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes: u64_from(file.len()),
        wall_s: started.elapsed().as_secs_f64(),
    };
    print_report(args.json, &report, |_| {
        format!("{}: sha256 {}\n", args.out.display(), report.sha256)
    })?;
    Ok(Exit::Success)
}

/// Runs the episodes of an iteration on all threads, and learns from them in their order.
fn iterate(trainer: &mut Trainer, threads: Option<NonZero<usize>>) -> Result<Iteration, Error> {
    let threads = threads.unwrap_or_else(all_cores);
    let episodes = trainer.episodes();
    let one = |n| episodes[usize_from(n)].run().map_err(|e| e.to_string());
    let mut all = Vec::new();
    sweep(0..u64_from(episodes.len()), threads, &Interrupt::never(), one, |_, steps| {
        all.push(steps);
    });
    let all: Vec<_> = all.into_iter().collect::<Result<_, String>>()?;
    Ok(trainer.learn(&all))
}

fn row(n: u32, iteration: &TimedIteration) -> String {
    let Iteration { reward, loss, trigger_rate, epsilon, decisions, .. } = iteration.of;
    format!(
        "{n:>3}  reward {reward:.4}  loss {loss:.4}  triggered {trigger_rate:.3}  epsilon \
         {epsilon:.2}  {decisions} decisions  {:.1} s\n",
        iteration.wall_s
    )
}
