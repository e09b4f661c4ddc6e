//! `spanwire-bench icount`: counts, prints and compares.

use spanwire_bench::icount::workload::{self, Workload};
use spanwire_bench::icount::{self, Baseline, Row, Verdict, clock};
use spanwire_bench::sample::Error;
use spanwire_bins::report::print_text;
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
    /// Print the instructions of this workload by stage
    #[arg(long, value_name = "NAME", conflicts_with_all = ["only", "bless", "json", "time"])]
    profile: Option<String>,
    /// Measure the processor time in one thread instead
    #[arg(long, conflicts_with_all = ["bless", "json"])]
    time: bool,
    /// Another build of this program to measure in the same rounds
    #[arg(long, value_name = "PROGRAM", requires = "time")]
    against: Option<PathBuf>,
    /// Rounds of --time
    #[arg(long, default_value_t = 5, requires = "time",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Counts, prints and compares.
pub(crate) fn count(args: &IcountArgs) -> Result<ExitCode, Error> {
    if let Some(name) = &args.profile {
        let workload = Workload::named(name).ok_or_else(|| format!("no workload is {name}"))?;
        print_text(&icount::profile(workload)?);
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |w: &&Workload| args.only.as_deref().is_none_or(|only| w.name.contains(only));
    let workloads = workload::ALL.iter().filter(wanted);
    if args.time {
        for workload in workloads {
            let times = clock::measure(workload, args.against.as_deref(), args.rounds)?;
            print_text(&format!("{:<20} {times}\n", workload.name));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut baseline = Baseline::read(&args.baseline)?;
    let (rustc, mut verdicts) = (icount::rustc_version()?, Vec::new());
    for workload in workloads {
        let verdict = icount::count(workload, &baseline)?;
        if !args.json {
            print_verdict(&verdict);
        }
        verdicts.push(verdict);
    }
    if args.json {
        print_text(&format!("{}\n", serde_json::to_string_pretty(&verdicts)?));
    }
    if args.bless {
        baseline.rustc = rustc;
        let counts = verdicts.into_iter().map(|v| {
            let (per_op, engine) = (v.per_op.round(), v.engine_per_packet.round());
            let budget = v.baseline.and_then(|row| row.budget);
            (v.name, Row { per_op, engine_per_packet: engine, budget })
        });
        baseline.rows.extend(counts);
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
    eprintln!("{}: too many instructions; if worth it, use --bless", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn print_verdict(v: &Verdict) {
    let growth = v.growth().map_or("new".to_owned(), |g| format!("{:+.1} %", g * 100.0));
    let budget = v.baseline.and_then(|row| row.budget);
    let budget = budget.map(|budget| format!(" of {budget:.0}")).unwrap_or_default();
    print_text(&format!(
        "{:<20} {:>10.0} instructions a {:<24} {growth}; engine {:.0}{budget}\n",
        v.name, v.per_op, v.op, v.engine_per_packet,
    ));
}
