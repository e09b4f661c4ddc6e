//! `spanwire-bench icount`: counts, prints and compares.

use spanwire_bench::icount::workload::{self, Workload};
use spanwire_bench::icount::{self, Baseline, Verdict};
use spanwire_bench::sample::Error;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct IcountArgs {
    /// Only workloads whose name contains this
    #[arg(value_name = "NAME")]
    only: Option<String>,
    /// The baseline to compare with
    #[arg(long, value_name = "FILE", default_value = "bench/icount.json")]
    baseline: PathBuf,
    /// Make the counts the new baseline
    #[arg(long)]
    bless: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Counts, prints and compares.
pub(crate) fn count(args: &IcountArgs) -> Result<ExitCode, Error> {
    let mut baseline = Baseline::read(&args.baseline)?;
    let rustc = icount::rustc_version()?;
    let wanted = |w: &&Workload| args.only.as_deref().is_none_or(|only| w.name.contains(only));
    let mut verdicts = Vec::new();
    for workload in workload::ALL.iter().filter(wanted) {
        let instructions_per_op = icount::count(workload)?;
        let name = workload.name.to_owned();
        let blessed = baseline.instructions_per_op.get(&name).copied();
        let verdict = Verdict { name, op: workload.op, instructions_per_op, baseline: blessed };
        if !args.json {
            print_verdict(&verdict);
        }
        verdicts.push(verdict);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&verdicts)?);
    }
    if args.bless {
        baseline.rustc = rustc;
        let counts = verdicts.into_iter().map(|v| (v.name, v.instructions_per_op.round()));
        baseline.instructions_per_op.extend(counts);
        baseline.write(&args.baseline)?;
        return Ok(ExitCode::SUCCESS);
    }
    if rustc != baseline.rustc {
        // Another compiler generates other code: a difference is not a change of ours.
        eprintln!("not compared: the baseline is of {}, this is {rustc}", baseline.rustc);
        return Ok(ExitCode::SUCCESS);
    }
    let failed: Vec<&str> = verdicts.iter().filter(|v| v.fails()).map(|v| &*v.name).collect();
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let failed = failed.join(", ");
    eprintln!("{failed}: too many instructions; if they are worth it, accept them with --bless");
    Ok(ExitCode::FAILURE)
}

fn print_verdict(v: &Verdict) {
    let growth = v.growth().map_or("new".to_owned(), |g| format!("{:+.1} %", g * 100.0));
    println!("{:<16} {:>10.0} instructions a {:<24} {growth}", v.name, v.instructions_per_op, v.op);
}
