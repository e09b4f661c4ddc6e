//! The `spanwire` command.
#![forbid(unsafe_code)]

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use spanwire_bins::exit::{Exit, Failed, error_json, usage};
use spanwire_bins::output;
use spanwire_bins::report::print_text;
use spanwire_bins::signals::Interrupt;
use spanwire_bins::{copy, demo, doctor, lab, pcap, perf, rates, run, sim, switch};
use spanwire_host::fabric::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// RoCEv2 in userspace over AF_XDP: no kernel module, no RDMA hardware.
#[derive(Parser, Debug)]
#[command(name = "spanwire", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a verified transfer and short measurements between two temporary hosts
    Demo(demo::DemoArgs),
    /// Measure bandwidth and latency between two hosts
    Perf(Box<perf::PerfArgs>),
    /// Run an unmodified program that uses libibverbs (perftest, UCX) over Spanwire
    Run(Box<run::RunArgs>),
    /// Copy files and directories to another host
    Copy(Box<copy::CopyArgs>),
    /// Make test hosts on this machine, joined by a cable or a switch
    Lab(lab::LabArgs),
    /// Run a switch between interfaces, with rates, delays and faults on its ports
    Switch(switch::SwitchArgs),
    /// Check whether Spanwire works on an interface, and show fixes
    Doctor(doctor::DoctorArgs),
    /// Decode captures and check every ICRC
    Pcap(pcap::PcapArgs),
    /// Draw rates of several perf runs over time, or completion times of several simulations
    Plot(rates::PlotArgs),
    /// Simulate networks of hosts and switches with the same engine, repeatable from a seed
    Sim(sim::SimArgs),
}

fn main() -> ExitCode {
    log_to_stderr();
    let ended = match Cli::command().try_get_matches() {
        Ok(arguments) => run_reported(&arguments),
        Err(message) => shown(&message),
    };
    match output::finish(ended) {
        Ok(exit) => exit.into(),
        Err(why) => {
            output::print_error(&format!("error: {why}"));
            Exit::of(&why).into()
        }
    }
}

/// Runs the command. Its error is reported here: on stderr, and with `--json` as an object on
/// stdout.
fn run_reported(arguments: &ArgMatches) -> Exit {
    let cli = Cli::from_arg_matches(arguments).unwrap_or_else(|e| e.exit());
    run_command(&cli).unwrap_or_else(|why| {
        output::print_error(&format!("error: {why}"));
        if has_json(arguments) {
            print_text(&format!("{}\n", error_json(&why)));
        }
        Exit::of(&why)
    })
}

/// True if the command, or a subcommand of it, was given `--json`.
fn has_json(arguments: &ArgMatches) -> bool {
    let here = arguments.try_get_one("json").ok().flatten().copied().unwrap_or(false);
    here || arguments.subcommand().is_some_and(|(_, arguments)| has_json(arguments))
}

/// Prints a help text, the version, or an error of the command line: that as an object on stdout,
/// too, if `--json` is on it.
fn shown(message: &clap::Error) -> Exit {
    let printed = message.print().and_then(|()| std::io::stdout().flush());
    if message.use_stderr() {
        let mut own = std::env::args_os().take_while(|arg| arg != "--");
        if own.any(|arg| arg == "--json") {
            print_text(&format!("{}\n", error_json(&usage(first_paragraph(message)))));
        }
        return Exit::Usage;
    }
    output::note_stdout(printed);
    Exit::Success
}

/// The error itself, in one line: without the usage and the hints that follow it.
fn first_paragraph(message: &clap::Error) -> String {
    let text = message.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.split("\n\n").next().unwrap_or_default().lines();
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn run_command(cli: &Cli) -> Result<Exit, Error> {
    match &cli.command {
        // No signal handlers: `lab exec` replaces the process by the command it runs.
        Command::Lab(args) => lab::run(args),
        // No signal handlers: the program replaces the process.
        Command::Run(args) => run::run(args),
        // No signal handlers: the default action ends these commands at once.
        Command::Pcap(args) => Ok(pcap::run(args)),
        // Exit code 1 means that a checker failed, so an error of the run is wrong usage, unless it
        // has an exit code.
        Command::Sim(args) => {
            sim::run(args).map_err(|why| if why.is::<Failed>() { why } else { usage(why) })
        }
        Command::Doctor(args) => doctor::run(args),
        Command::Plot(args) => rates::run(args).map_err(usage),
        Command::Demo(args) => until_signal(|interrupt| demo::run(args, interrupt)),
        Command::Copy(args) => until_signal(|interrupt| copy::run(args, interrupt)),
        Command::Perf(args) => until_signal(|interrupt| perf::run(args, interrupt)),
        Command::Switch(args) => until_signal(|interrupt| switch::run(args, interrupt)),
    }
}

/// Runs a command that shuts down in order on SIGINT or SIGTERM. An error after the signal exits
/// with the signal's code, because the signal is its likely cause.
fn until_signal(command: impl FnOnce(&Interrupt) -> Result<Exit, Error>) -> Result<Exit, Error> {
    let interrupt = Interrupt::install()?;
    command(&interrupt).map_err(|why| match interrupt.is_set() {
        true => Failed::new(interrupt.exit(), why).into(),
        false => why,
    })
}

/// Logs to stderr: warnings and errors by default, else the filter in `RUST_LOG`.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
