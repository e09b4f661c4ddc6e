//! `spanwire-bench`: all benchmarks in one command.
#![forbid(unsafe_code)]

mod count;

use clap::{Parser, Subcommand};
use count::IcountArgs;
use serde::Serialize;
use spanwire_bench::compare::{self, Report};
use spanwire_bench::host_trace::fit::{model_of, to_source};
use spanwire_bench::host_trace::trace::Trace;
use spanwire_bench::icount::workload::Workload;
use spanwire_bench::quiet::cpu_time;
use spanwire_bench::real::Suite;
use spanwire_bench::sample::Error;
use spanwire_bench::{
    agents, bad_network, erasure, host_trace, pacer, pacing, real, service, spin, untuned,
};
use spanwire_bins::exit::Exit;
use spanwire_bins::output::{finish, print_error};
use spanwire_bins::report::{LiveLine, print_pretty, print_text};
use spanwire_bins::signals::Interrupt;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures Spanwire beside raw AF_XDP, raw UDP and kernel TCP
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Goodput and latency beside raw AF_XDP, raw UDP and kernel TCP; with --only cpu processor
    /// time; needs root
    Compare(compare::Plan),
    /// Goodput over loss and round-trip time through the software switch; needs root
    BadNetwork(bad_network::Plan),
    /// Congestion control with its defaults on a matrix of paths; needs root
    Untuned(untuned::Plan),
    /// Bars in real time on real packets: rates, shares, gaps, ends; needs root
    Real(real::Plan),
    /// RDMA programs over the drop-in libibverbs beside `spanwire perf`; needs root
    Verbs(real::Plan),
    /// Requests and replies over stream, verbs and kernel TCP, and bulk data; needs root
    Service(service::Plan),
    /// Instructions of the packet path, against a baseline; needs valgrind
    Icount(IcountArgs),
    /// Cost of the scheduling decision among paced queue pairs
    Pacer(pacer::Plan),
    /// Deviation of paced packets from their times over AF_XDP; needs root
    Pacing(pacing::Plan),
    /// Cost of the agents of a switch: nanoseconds a packet, bytes a flow
    Agents(agents::Plan),
    /// Speed of erasure coding, compared with ISA-L and two crates
    Erasure(erasure::Plan),
    /// Records the steps of two drivers and prints their host model; needs root
    HostTrace(host_trace::Plan),
    /// Prints the simulator's host models of recorded traces
    HostFit {
        /// Files of `host-trace`
        #[arg(required = true, value_name = "TRACE")]
        traces: Vec<PathBuf>,
    },
    /// A busy core, until the standard input ends
    #[command(hide = true)]
    Spin {
        /// The core
        core: usize,
    },
    /// One end of a sample of `service`
    #[command(hide = true)]
    ServiceEnd {
        /// Its task as JSON
        task: String,
    },
    /// One workload of `icount`, to run under valgrind
    #[command(hide = true)]
    IcountRun {
        /// Its name
        name: String,
        /// Operations
        ops: u64,
        /// Print its processor time; not under valgrind, which has no vDSO
        #[arg(long)]
        timed: bool,
    },
}

fn main() -> ExitCode {
    let done = match &Args::parse().command {
        Command::Compare(plan) => run(plan.clone()),
        Command::BadNetwork(plan) => sweep(plan.clone()),
        Command::Untuned(plan) => untune(plan.clone()),
        Command::Real(plan) => live_bars(Suite::Real, plan.clone()),
        Command::Verbs(plan) => live_bars(Suite::Verbs, plan.clone()),
        Command::Service(plan) => serve(plan.clone()),
        Command::ServiceEnd { task } => service::run_end(task).map(|()| ExitCode::SUCCESS),
        Command::Spin { core } => spin::spin(*core).map(|()| ExitCode::SUCCESS),
        Command::Icount(args) => count::count(args),
        Command::Pacer(plan) => watched(plan.json, plan.rounds, |watch| pacer::run(plan, watch)),
        Command::Pacing(plan) => watched(plan.json, plan.rounds, |watch| pacing::run(plan, watch)),
        Command::Agents(plan) => watched(plan.json, plan.rounds, |watch| agents::run(plan, watch)),
        Command::Erasure(plan) => {
            watched(plan.json, plan.rounds, |watch| erasure::run(plan, watch))
        }
        Command::HostTrace(plan) => trace(plan),
        Command::HostFit { traces } => fit(traces),
        Command::IcountRun { name, ops, timed } => repeat(name, *ops, *timed),
    };
    // Stdout may be full.
    done.and_then(|code| finish(Exit::Success).map(|_| code)).unwrap_or_else(|e| {
        print_error(&format!("spanwire-bench: {e}"));
        Exit::Usage.into()
    })
}

/// Measures the rows. A failed sample fails it, and a share below `--min-share`.
fn run(plan: compare::Plan) -> Result<ExitCode, Error> {
    let mut plan = plan.complete()?;
    if plan.needs_spanwire() {
        plan.common.build()?;
    }
    let results = observed(plan.common.json, plan.rounds, |watch| compare::run(&plan, watch))?;
    let report = Report::new(plan.label.clone(), &plan, &results);
    print(plan.common.json, &report)?;
    write(plan.chart.as_deref(), || Ok(compare::svg(&report)))?;
    let ok = report.failed() == 0;
    let Some(least) = plan.min_share.filter(|_| ok && !report.interrupted) else {
        return Ok(ended(report.interrupted, ok));
    };
    match report.least_share() {
        Some(share) if share * 100.0 >= least => Ok(ExitCode::SUCCESS),
        Some(share) => {
            let percent = share * 100.0;
            print_error(&format!("WRITE reaches {percent:.0} %, less than the required {least} %"));
            Ok(ExitCode::FAILURE)
        }
        None => Err("no quiet samples to compute the share from".into()),
    }
}

fn sweep(mut plan: bad_network::Plan) -> Result<ExitCode, Error> {
    plan.common.build()?;
    watched(plan.common.json, plan.rounds, |watch| bad_network::run(&plan, watch))
}

/// Measures the matrix. Missed bars and failed samples fail it.
fn untune(plan: untuned::Plan) -> Result<ExitCode, Error> {
    let mut plan = plan.complete()?;
    plan.common.build()?;
    let report = observed(plan.common.json, plan.rounds, |watch| untuned::run(&plan, watch))?;
    print(plan.common.json, &report)?;
    write(plan.plot.as_deref(), || Ok(untuned::svg(&report)))?;
    Ok(ended(report.interrupted, report.missed() + report.failed() == 0))
}

/// Measures the bars in real time. Missed rows fail it; those of a late host do not.
fn live_bars(suite: Suite, mut plan: real::Plan) -> Result<ExitCode, Error> {
    plan.common.build()?;
    let report = observed(plan.common.json, plan.rounds, |watch| real::run(suite, &plan, watch))?;
    print(plan.common.json, &report)?;
    Ok(ended(report.interrupted, report.missed() == 0))
}

/// Measures requests and replies. Failed samples fail it.
fn serve(mut plan: service::Plan) -> Result<ExitCode, Error> {
    plan.check()?;
    if plan.needs_spanwire() {
        plan.common.build()?;
    }
    let report = observed(plan.common.json, plan.rounds, |watch| service::run(&plan, watch))?;
    print(plan.common.json, &report)?;
    Ok(ended(report.interrupted, report.failed() == 0))
}

/// Does the operations of a workload. `timed` prints their processor time in nanoseconds.
fn repeat(name: &str, ops: u64, timed: bool) -> Result<ExitCode, Error> {
    let workload = Workload::named(name).ok_or_else(|| format!("no workload is called {name}"))?;
    let begun = timed.then(cpu_time);
    workload.run(ops)?;
    if let Some(begun) = begun {
        print_text(&format!("{}\n", (cpu_time() - begun).as_nanos()));
    }
    Ok(ExitCode::SUCCESS)
}

fn trace(plan: &host_trace::Plan) -> Result<ExitCode, Error> {
    let interrupt = Interrupt::install()?;
    let mut live = LiveLine::new(true);
    let trace = host_trace::run(plan, |flow| {
        live.show(&format!("{flow} flow"));
        !interrupt.is_set()
    });
    live.clear();
    let trace = trace?;
    write(plan.out.as_deref(), || trace.to_json())?;
    print_text(&to_source(&model_of(&trace)?));
    Ok(ExitCode::SUCCESS)
}

fn fit(traces: &[PathBuf]) -> Result<ExitCode, Error> {
    for path in traces {
        let trace = Trace::read(path)?;
        let model = model_of(&trace).map_err(|e| format!("{}: {e}", path.display()))?;
        print_text(&format!("// {}\n{}", path.display(), to_source(&model)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a measurement as [`observed`] does, and prints its report.
fn watched<R: Serialize + Display>(
    json: bool,
    rounds: u32,
    measure: impl FnOnce(Watch<'_>) -> Result<R, Error>,
) -> Result<ExitCode, Error> {
    print(json, &observed(json, rounds, measure)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a measurement, which a signal ends, and shows its round and subject.
fn observed<R>(
    json: bool,
    rounds: u32,
    measure: impl FnOnce(Watch<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let interrupt = Interrupt::install()?;
    let mut live = LiveLine::new(!json);
    let report = measure(&mut |round, at| {
        live.show(&format!("round {} of {rounds}: {at}", round + 1));
        interrupt.is_set()
    });
    live.clear();
    report
}

/// Receives the round and the subject of the next sample, and ends the run by returning true.
type Watch<'a> = &'a mut dyn FnMut(u32, &str) -> bool;

/// Writes a file, if one is wanted.
fn write(path: Option<&Path>, text: impl FnOnce() -> Result<String, Error>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    Ok(std::fs::write(path, text()?).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// Prints `report` as JSON or text.
fn print<R: Serialize + Display>(json: bool, report: &R) -> Result<(), Error> {
    print_pretty(json, report, R::to_string)
}

/// The exit code of a measurement that may have been interrupted, or have failed.
fn ended(interrupted: bool, ok: bool) -> ExitCode {
    match (interrupted, ok) {
        (true, _) => Exit::Interrupted.into(),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}
