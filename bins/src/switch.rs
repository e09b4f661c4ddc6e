//! `spanwire switch`: a software switch between interfaces that emulates rates, delays and faults
//! of the lines at its ports.
//!
//! The switch is [`spanwire_switch`], which the simulator uses as well. Here its ports are AF_XDP
//! sockets that receive all frames of an interface. Besides RoCEv2 it forwards ARP, IPv6 neighbour
//! discovery and the kernel's TCP.

mod agents;
mod ctl;
mod file;
mod keys;
mod report;
mod run;
mod set;

pub use ctl::CtlArgs;
pub use file::{FilePort, PORT_FRAME_ROOM, SwitchFile};
pub use run::RunArgs;

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
    /// Show a running switch, or change its rates, delays and faults
    Ctl(CtlArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// The run fails; the message names the cause, the place and a remedy.
pub fn run(args: &SwitchArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    match (&args.command, &args.run) {
        (Some(SwitchCommand::Ctl(args)), _) => ctl::run(args, interrupt),
        (None, Some(args)) => run::run(args, interrupt),
        (None, None) => Err(usage("name a configuration with --config FILE")),
    }
}
