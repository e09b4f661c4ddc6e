//! `spanwire sim`: the command line of the deterministic simulator (crate `spanwire-sim`), with
//! figures, tables and captures.

mod args;
mod capture;
mod compare;
mod file;
mod loss_sweep;
mod numbers;
mod pictures;
mod prepare;
mod report;
mod reproduce;
mod run;
mod samples;
mod seed_run;
mod seeds;
mod shard;
mod store;
mod summary;
mod swarm;
mod sweep;
mod tables;
#[cfg(test)]
mod testing;
mod train;
mod untuned;

pub use args::SimArgs;

use crate::exit::Exit;
use crate::signals::Interrupt;
use args::SimCommand;
use spanwire_host::fabric::Error;

/// Runs the subcommand.
///
/// # Returns
/// 0 on success, 1 if a checker failed, 130 or 143 if a signal interrupted a swarm.
///
/// # Errors
/// The arguments are invalid; the message lists the valid ones.
pub fn run(args: &SimArgs) -> Result<Exit, Error> {
    match &args.command {
        SimCommand::List(args) => run::list(args),
        SimCommand::Run(args) => run::run(args),
        SimCommand::Compare(args) => compare::run(args),
        SimCommand::Reproduce(args) => reproduce::run(args),
        SimCommand::Train(args) => train::run(args),
        // Only a swarm handles signals; they end the other subcommands at once.
        SimCommand::Swarm(args) => swarm::run(args, &Interrupt::install()?),
    }
}
