//! `spanwire sim`: the deterministic simulator of the crate `spanwire-sim` from the command line,
//! with its pictures, tables and captures.

mod args;
mod capture;
mod file;
mod loss_sweep;
mod pictures;
mod report;
mod run;
mod samples;
mod seeds;
mod swarm;
mod sweep;
#[cfg(test)]
mod testing;

pub use args::SimArgs;

use crate::exit::Exit;
use crate::signals::Interrupt;
use args::SimCommand;
use spanwire_host::fabric::Error;

/// Runs the subcommand.
///
/// # Returns
/// 0 when all is well, 1 when a checker found something, 130 when a swarm was interrupted.
///
/// # Errors
/// It could not run; the message says what there is.
pub fn run(args: &SimArgs) -> Result<Exit, Error> {
    match &args.command {
        SimCommand::List(args) => run::list(args),
        SimCommand::Run(args) => run::run(args),
        // Only here: an interrupt simply ends the others.
        SimCommand::Swarm(args) => swarm::run(args, &Interrupt::install()?),
    }
}
