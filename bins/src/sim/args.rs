//! The arguments of `spanwire sim`.

use super::shard::Shard;
use std::num::NonZero;
use std::path::PathBuf;

/// Arguments of `spanwire sim`.
#[derive(clap::Args, Clone, Debug)]
pub struct SimArgs {
    #[command(subcommand)]
    pub(super) command: SimCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
pub(super) enum SimCommand {
    /// List the scenarios
    List(ListArgs),
    /// Run one scenario; exit code 1 if a checker fails
    Run(RunArgs),
    /// Run one scenario with several schemes, from the same seeds each
    Compare(CompareArgs),
    /// Run a paper's experiments and check its claims; exit code 1 if a bar is missed that is not
    /// explained
    Reproduce(ReproduceArgs),
    /// Train the networks of an agent that chooses marking thresholds, and write them to a file
    Train(TrainArgs),
    /// Run random networks, faults and flows, each drawn from a seed; exit code 1 if one fails
    Swarm(SwarmArgs),
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ListArgs {
    /// List also the parameters with their defaults
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = RUN_AFTER_HELP)]
pub(super) struct RunArgs {
    /// The scenario: see `spanwire sim list`
    #[arg(required_unless_present = "file")]
    pub(super) name: Option<String>,
    /// Scenario file with `scenario`, `seed` and a table `[set]`; the command line overrides it
    #[arg(long, value_name = "TOML", conflicts_with = "name")]
    pub(super) file: Option<PathBuf>,
    /// Seed of all randomness [default: 1]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Run the scenario with N consecutive seeds from --seed on, and report statistics over all
    #[arg(long, value_name = "N")]
    pub(super) seeds: Option<NonZero<u64>>,
    /// Set a parameter of the scenario; repeatable. cc.PARAM=VALUE sets a parameter of the
    /// congestion control cc=NAME (docs/cc.md)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) set: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write figures, and an index.html that shows them, into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) plot: Option<PathBuf>,
    /// Write the packets of one link to a pcap file
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
    /// The link to capture: A-B for A's end, A.PORT-B.PORT if there are parallel links [default:
    /// the first link]
    #[arg(long, value_name = "NAME", requires = "pcap")]
    pub(super) pcap_link: Option<String>,
    /// Write rates, queues, marks and drops over time as CSV
    #[arg(long, value_name = "FILE")]
    pub(super) samples: Option<PathBuf>,
    /// Write the flows with their completion times as CSV
    #[arg(long, value_name = "FILE")]
    pub(super) flows: Option<PathBuf>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = COMPARE_AFTER_HELP)]
pub(super) struct CompareArgs {
    /// The scenario: see `spanwire sim list`
    pub(super) name: String,
    /// The schemes, values of the parameter --key
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    pub(super) schemes: Vec<String>,
    /// The parameter that --schemes sets [default: the one that the scenario declares: scheme,
    /// reflex or cc]
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// The first seed [default: 1]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Number of consecutive seeds of each scheme
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seeds: NonZero<u64>,
    /// Set a parameter of the scenario for all schemes; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) set: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write a figure of the completion times into this directory, and one of the queue over time
    /// if the scenario measures one
    #[arg(long, value_name = "DIR")]
    pub(super) plot: Option<PathBuf>,
    /// Directory of results: runs that are there are not repeated; any number of processes may
    /// share it
    #[arg(long, value_name = "DIR")]
    pub(super) store: Option<PathBuf>,
    /// Run only this part of the runs into the store, I from 0 to N - 1; a call without it compares
    #[arg(
        long,
        value_name = "I/N",
        value_parser = Shard::parse,
        requires = "store",
        conflicts_with = "plot"
    )]
    pub(super) shard: Option<Shard>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = REPRODUCE_AFTER_HELP)]
pub(super) struct ReproduceArgs {
    /// Only this paper; repeatable [default: all]
    #[arg(long, value_name = "P")]
    pub(super) paper: Vec<String>,
    /// Only the row with this identifier; repeatable [default: all]
    #[arg(long, value_name = "ID")]
    pub(super) row: Vec<String>,
    /// Few seeds and small runs, of the rows that have them: a check, not a result
    #[arg(long)]
    pub(super) quick: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write a page P.md for each paper, and its figures, into this directory [default:
    /// docs/reproduction if there is a directory docs and all rows of a paper run at full scale]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Run also the rows that take long, and otherwise run only if they are named
    #[arg(long)]
    pub(super) all: bool,
    /// Print the runs of one seed that the rows need, one a line: key, seconds, command
    #[arg(long)]
    pub(super) plan: bool,
    /// Run, or print, only this part of them, I from 0 to N - 1, and write no page
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    pub(super) shard: Option<Shard>,
    /// Run K of the stored results again, drawn at random, and compare
    #[arg(long, value_name = "K", conflicts_with_all = ["plan", "shard", "no_store"])]
    pub(super) verify: Option<u64>,
    /// Directory of results, one file for each run of one seed; any number of processes may share
    /// it [default: spanwire/results in the user's cache]
    #[arg(long, value_name = "DIR", conflicts_with = "no_store", alias = "cache")]
    pub(super) store: Option<PathBuf>,
    /// Run everything anew and store nothing
    #[arg(long, alias = "no-cache")]
    pub(super) no_store: bool,
}

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = TRAIN_AFTER_HELP)]
pub(super) struct TrainArgs {
    /// The scheme: laecn
    pub(super) scheme: String,
    /// Seed of the training, 1000000 or above
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) seed: u64,
    /// Number of iterations, each of eight simulations
    #[arg(long, value_name = "N", default_value = "40")]
    pub(super) iterations: NonZero<u32>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,
    /// Set a choice that the paper leaves open: omega, reward, steps, replay, rate, clip;
    /// repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) set: Vec<(String, String)>,
    /// Number of threads that simulate; the file is the same with any [default: one for each core]
    #[arg(long, value_name = "T")]
    pub(super) threads: Option<NonZero<usize>>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct SwarmArgs {
    /// Number of seeds to run
    #[arg(long, value_name = "N")]
    pub(super) seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub(super) start: u64,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "T")]
    pub(super) threads: Option<NonZero<usize>>,
    /// Run only the seeds that draw this
    #[arg(long, value_name = "WHAT")]
    pub(super) with: Option<With>,
    /// Print also the draws of each seed: network, hosts, congestion control, faults and flows.
    /// Those of failed seeds are always printed
    #[arg(long)]
    pub(super) describe: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Directory of results, 256 seeds in a file: seeds that this very program has run are not
    /// repeated; any number of processes may share it
    #[arg(long, value_name = "DIR", conflicts_with = "describe")]
    pub(super) store: Option<PathBuf>,
    /// Run only this part of the seeds into the store, I from 0 to N - 1; a call without it has the
    /// verdict over all
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, requires = "store")]
    pub(super) shard: Option<Shard>,
}

/// A part of a network that not every seed of the swarm draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum With {
    /// Agents of switches: PACC, NSF, NDT, thresholds by LAECN
    Agents,
}

/// Parses KEY=VALUE.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("not KEY=VALUE".to_owned()),
    }
}

const RUN_AFTER_HELP: &str = "\
The same scenario, seed and parameters give the same events, and event hash, on any machine.

Examples:
  spanwire sim run incast-32 --plot incast
  spanwire sim run loss-1 --seed 7 --json | jq '[.checkers_ok, .event_hash]'
  spanwire sim run uno-fig13a --set lb=unolb --set ec=8,2 --seeds 100
  spanwire sim run dumbbell-2 --set cc=swift --set cc.base_target_us=25
  spanwire sim run dumbbell-2 --pcap h0.pcap && spanwire pcap --summary h0.pcap";

const COMPARE_AFTER_HELP: &str = "\
Examples:
  spanwire sim compare pacc-burst --schemes pacc,dcqcn,hpcc --seeds 9 --plot dir
  spanwire sim compare reflex-fct --set cc=swift --set load=70 --schemes off,nsf --seeds 5 --json
  spanwire sim compare cc-solo --schemes swift,unocc --seeds 5
  spanwire sim compare uno-fig13a --key lb --schemes spray,unolb --set ec=8,2 --seeds 20 --json";

const REPRODUCE_AFTER_HELP: &str = "\
Results are stored by scenario, parameters and seed, and are valid until the simulator's results
change: a second call, or another program, runs only what is missing.

Examples:
  spanwire sim reproduce --paper uno
  spanwire sim reproduce --all --store results --shard 0/4   # on one of four machines
  spanwire sim reproduce --all --store results --verify 10
  spanwire sim reproduce --paper uno --row U-11 --json | jq '.rows[] | [.id, .verdict]'
  spanwire sim reproduce --quick";

const TRAIN_AFTER_HELP: &str = "\
Needs a program with training: cargo build --release -p spanwire-bins --features train

Examples:
  spanwire sim train laecn --seed 1000000 --iterations 2 --out laecn.safetensors --json
  spanwire sim run laecn-burst --set agent.model=laecn.safetensors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_value__splits_at_the_first_sign() {
        assert_eq!(key_value("rate=10g=x"), Ok(("rate".to_owned(), "10g=x".to_owned())));
        assert_eq!(key_value(" a = b "), Ok(("a".to_owned(), "b".to_owned())));
        assert!(key_value("rate").is_err() && key_value("=1").is_err());
    }
}
