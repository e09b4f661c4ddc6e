//! The `spanwire` command.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use spanwire_bins::fabric::Error;
use spanwire_bins::signals::Interrupt;
use spanwire_bins::{copy, demo, doctor, lab, pcap, perf, rates, sim, switch};
use std::io::IsTerminal;
use std::process::ExitCode;

/// RoCEv2 in userspace over AF_XDP: no kernel module, no RDMA hardware.
#[derive(Parser, Debug)]
#[command(name = "spanwire", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Move verified bytes between two hosts made on the spot
    Demo(demo::DemoArgs),
    /// Measure bandwidth and latency between two hosts
    Perf(Box<perf::PerfArgs>),
    /// Copy files and directories to another host
    Copy(copy::CopyArgs),
    /// Hosts on this machine to play with, joined by a cable or a switch
    Lab(lab::LabArgs),
    /// A switch between interfaces, with rates, delays and faults behind its ports
    Switch(switch::SwitchArgs),
    /// Find out whether Spanwire works on an interface, and what to do if not
    Doctor(doctor::DoctorArgs),
    /// Decode captures and check every ICRC
    Pcap(pcap::PcapArgs),
    /// Draw rates of several perf runs over time, or completion times of several simulations
    Plot(rates::PlotArgs),
    /// Simulate networks of hosts and switches: the same engine, repeatable from a seed
    Sim(sim::SimArgs),
}

fn main() -> ExitCode {
    log_to_stderr();
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err((why, code)) => {
            eprintln!("error: {why}");
            code
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, (Error, ExitCode)> {
    let failed = |why: Error| (why, ExitCode::FAILURE);
    if let Command::Lab(args) = &cli.command {
        // Without our signal handlers: `lab exec` becomes the command it runs.
        return lab::run(args).map_err(|e| {
            let code = ExitCode::from(e.exit_code());
            (e.into(), code)
        });
    }
    if let Command::Pcap(args) = &cli.command {
        // Without our signal handlers: an interrupt simply ends it.
        return Ok(pcap::run(args));
    }
    if let Command::Sim(args) = &cli.command {
        // 1 is for what checkers find: what cannot run is wrong usage.
        return sim::run(args).map_err(|e| (e, ExitCode::from(2)));
    }
    if let Command::Doctor(args) = &cli.command {
        return doctor::run(args).map_err(failed);
    }
    if let Command::Plot(args) = &cli.command {
        return rates::run(args).map_err(failed);
    }
    let interrupt = Interrupt::install().map_err(|e| failed(e.into()))?;
    match &cli.command {
        Command::Demo(args) => demo::run(args, &interrupt),
        Command::Copy(args) => copy::run(args, &interrupt),
        Command::Perf(args) => perf::run(args, &interrupt),
        Command::Switch(args) => switch::run(args, &interrupt),
        Command::Lab(_)
        | Command::Pcap(_)
        | Command::Doctor(_)
        | Command::Plot(_)
        | Command::Sim(_) => {
            unreachable!("handled above")
        }
    }
    .map_err(failed)
}

/// Warnings and errors by default; RUST_LOG asks for more.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
