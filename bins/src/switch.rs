//! `spanwire switch`: a software switch between interfaces, with the rates, delays and faults of a
//! real network behind its ports.
//!
//! The switch is [`spanwire_switch`], which the simulator runs too; here its ports are AF_XDP
//! sockets that take every frame of an interface. It carries ARP, IPv6 neighbour discovery and
//! kernel TCP like RoCEv2.

mod ctl;
mod file;
mod keys;
mod report;
mod run;
mod set;

pub use ctl::CtlArgs;
pub use file::{FilePort, SwitchFile};
pub use run::{PORT_FRAME_ROOM, RunArgs};

use crate::exit::{Exit, usage};
use crate::signals::Interrupt;
use spanwire_host::fabric::Error;

/// Arguments of `spanwire switch`.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SwitchArgs {
    #[command(subcommand)]
    command: Option<SwitchCommand>,
    #[command(flatten)]
    run: Option<RunArgs>,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum SwitchCommand {
    /// Look into a running switch, and change its rates, delays and faults
    Ctl(CtlArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// It could not run; the message says what is wrong, where, and what to do.
pub fn run(args: &SwitchArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    match (&args.command, &args.run) {
        (Some(SwitchCommand::Ctl(args)), _) => ctl::run(args, interrupt),
        (None, Some(args)) => run::run(args, interrupt),
        (None, None) => Err(usage("name a configuration with --config FILE")),
    }
}
