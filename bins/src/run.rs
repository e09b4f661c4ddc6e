//! `spanwire run`: an unmodified program that uses libibverbs, over Spanwire's library.

mod environment;
mod library;

use crate::exit::{Exit, Failed, usage};
use crate::fault_args::FaultArgs;
use crate::output::print_error;
use crate::report::print_text;
use clap::Args;
use environment::Environment;
use spanwire_host::fabric::{Error, FabricChoice};
use spanwire_host::program::executable::{self, ProgramError};
use spanwire_host::program::{
    CongestionText, ProgramSettings, SEED_DEFAULT, fabric, mode, workers,
};
use spanwire_io::fault::FaultConfig;
use spanwire_transport::WireMode;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The arguments of `spanwire run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RunArgs {
    /// Network interface [default: that of --addr, else the library chooses]
    #[arg(long, value_name = "IF")]
    dev: Option<String>,
    /// Local IPv4 address, for several programs on one host [default: the interface's first]
    #[arg(long, value_name = "IP")]
    addr: Option<Ipv4Addr>,
    /// Fabric: udp (UDP sockets, without privileges), xdp (AF_XDP), or auto: AF_XDP where it is
    /// possible, else UDP sockets [default: udp]
    #[arg(long, value_parser = fabric)]
    fabric: Option<FabricChoice>,
    /// Congestion control with its parameters (docs/cc.md), as swift or swift,beta=0.5; none: a
    /// static window [default: auto]
    #[arg(long, value_name = "NAME")]
    cc: Option<CongestionText>,
    /// Wire mode: rc, or sr, which needs Spanwire at both ends [default: rc]
    #[arg(long, value_parser = mode)]
    mode: Option<WireMode>,
    #[command(flatten)]
    faults: FaultArgs,
    /// Seed of these faults [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Workers: each has an engine and a queue of the interface (the first ones) or a socket, and
    /// is a completion vector of the device, 1 to 16 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = workers)]
    workers: Option<u32>,
    /// Print the environment as commands of a shell, instead of running a program
    #[arg(long)]
    print_env: bool,
    /// Print the program and its variables on stderr, and a line when the library opens a port
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(required_unless_present = "print_env", trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Replaces this process by the program, so that its process number, signals, terminal and exit
/// code are its own; or prints its environment.
///
/// # Returns
/// Success with `--print-env`; otherwise it does not return.
///
/// # Errors
/// The arguments are invalid, there is no library, or the program cannot be run with it.
pub fn run(args: &RunArgs) -> Result<Exit, Error> {
    let settings = args.settings().map_err(usage)?;
    settings.local().map_err(usage)?;
    let library = library::find(&std::env::current_exe()?, variable(library::VARIABLE).as_deref())?;
    let program = args.program.first();
    let program = program.map(|name| find(name, &library)).transpose().map_err(failed)?;
    let environment = Environment::new(&settings, &library, variable);
    match program {
        Some(program) if !args.print_env => {
            if settings.verbose {
                print_error(&format!("spanwire run: {}", program.display()));
                print_error(&environment.to_text());
            }
            let mut command = Command::new(&program);
            command.arg0(&args.program[0]).args(&args.program[1..]);
            environment.apply(&mut command);
            let error = command.exec();
            Err(failed(ProgramError::NotExecutable(program, error)))
        }
        _ => {
            print_text(&environment.to_shell());
            Ok(Exit::Success)
        }
    }
}

impl RunArgs {
    /// The settings of this process's environment, with the arguments over them.
    fn settings(&self) -> Result<ProgramSettings, Error> {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let base = ProgramSettings::from_env(text)?;
        let none = FaultConfig { seed: SEED_DEFAULT, ..FaultConfig::default() };
        let faults = self.faults.over(base.faults.unwrap_or(none));
        let faults = FaultConfig { seed: self.seed.unwrap_or(faults.seed), ..faults };
        Ok(ProgramSettings {
            dev: self.dev.clone().or(base.dev),
            addr: self.addr.or(base.addr),
            fabric: self.fabric.unwrap_or(base.fabric),
            congestion: self.cc.clone().or(base.congestion),
            mode: self.mode.unwrap_or(base.mode),
            faults: faults.has_faults().then_some(faults),
            workers: self.workers.unwrap_or(base.workers),
            verbose: self.verbose || base.verbose,
        })
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The path of program `name`, into which the loader will load `library`.
fn find(name: &OsStr, library: &Path) -> Result<PathBuf, ProgramError> {
    let program = executable::find(name, variable("PATH").as_deref())?;
    executable::check_preload(&program, library)?;
    Ok(program)
}

/// The error with a shell's exit code.
fn failed(error: ProgramError) -> Error {
    let exit = match error {
        ProgramError::NotFound(_) => Exit::NoCommand,
        _ => Exit::CannotExec,
    };
    Failed::new(exit, error).into()
}

const AFTER_HELP: &str = "\
The program's libibverbs is Spanwire's (LD_PRELOAD); it needs no RDMA device and, over UDP sockets,
no privileges. Two programs on one host:

  spanwire run --addr 127.0.0.1 -- ib_write_bw -F
  spanwire run --addr 127.0.0.2 -- ib_write_bw -F 127.0.0.1

The options go to the library as variables SPANWIRE_DEV, SPANWIRE_ADDR, SPANWIRE_FABRIC,
SPANWIRE_CC, SPANWIRE_MODE, SPANWIRE_LOSS, SPANWIRE_DUP, SPANWIRE_REORDER, SPANWIRE_CORRUPT,
SPANWIRE_SEED and SPANWIRE_VERBOSE; one that is set stands in for its option. With --print-env a
shell can set them itself: eval \"$(spanwire run --addr 127.0.0.1 --print-env)\"

Exit code: that of the program; 127 if it does not exist, 126 if it cannot run with the library.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn args(words: &[&str]) -> Result<RunArgs, clap::Error> {
        Line::try_parse_from([&["run"], words].concat()).map(|line| line.run)
    }

    #[test]
    fn settings__are_those_of_the_arguments() {
        let plain = args(&["ib_write_bw"]).unwrap().settings().unwrap();
        assert_eq!(plain, ProgramSettings::default());
        let words = "--dev lo --addr 127.0.0.2 --fabric xdp --cc swift,beta=0.5 --mode sr \
                     --loss 1 --dup 2 --reorder 3 --corrupt 4 --seed 5 -v -- x --loss 6";
        let args = args(&words.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>()).unwrap();
        assert_eq!(args.program, ["x", "--loss", "6"]);
        let env = args.settings().unwrap().to_env();
        let env: Vec<_> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = "SPANWIRE_DEV=lo SPANWIRE_ADDR=127.0.0.2 SPANWIRE_FABRIC=xdp \
                        SPANWIRE_CC=swift,beta=0.5 SPANWIRE_MODE=sr SPANWIRE_LOSS=1 \
                        SPANWIRE_DUP=2 SPANWIRE_REORDER=3 SPANWIRE_CORRUPT=4 SPANWIRE_SEED=5 \
                        SPANWIRE_VERBOSE=1";
        assert_eq!(env.join(" "), expected);
    }

    #[test]
    fn args__wrong_values_are_refused_with_what_is_allowed() {
        for (option, value, allowed) in [
            ("--fabric", "pipe", "udp, xdp, auto"),
            ("--mode", "auto", "rc, sr"),
            ("--cc", "swft", "did you mean `swift`?"),
            ("--loss", "101", "0 to 100"),
            ("--addr", "fe80::1", "IPv4"),
            ("--seed", "-1", "--seed"),
        ] {
            let error = args(&[option, value, "x"]).unwrap_err().to_string();
            assert!(error.contains(allowed), "{error}");
        }
        assert!(args(&[]).is_err() && args(&["--print-env"]).is_ok());
    }
}
