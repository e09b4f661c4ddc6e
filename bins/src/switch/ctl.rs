//! `spanwire switch ctl`: the client of a running switch's control socket.

use crate::exit::{Exit, Failed, usage};
use crate::output;
use crate::report::print_text;
use crate::signals::Interrupt;
use spanwire_host::control::{Reply, Request, ask};
use spanwire_host::fabric::Error;
use spanwire_host::quantity::interval;
use spanwire_host::text::printable;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `spanwire switch ctl`.
#[derive(clap::Args, Clone, Debug)]
pub struct CtlArgs {
    /// Control socket of the switch, as in `spanwire switch --socket`
    #[arg(long, value_name = "PATH", conflicts_with = "lab")]
    socket: Option<PathBuf>,
    /// Lab whose switch to use
    #[arg(long, value_name = "NAME", default_value = "sw")]
    lab: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum CtlCommand {
    /// Show counters, rates, delays and faults
    Show {
        /// Repeat every SECONDS, until interrupted
        #[arg(short, long, value_name = "SECONDS", value_parser = interval)]
        interval: Option<f64>,
    },
    /// Change rates, delays and faults at run time: port.a.loss=1% port.a.rate=500Mbit; freeze the
    /// thresholds that an agent chooses: agent.0.hold=true
    Set {
        /// The changes. If one is invalid, none is made
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// No switch responds, or it rejects the request.
pub(super) fn run(args: &CtlArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let socket = match &args.socket {
        Some(path) => path.clone(),
        None => spanwire_lab::control_socket(&args.lab).map_err(usage)?,
    };
    match &args.command {
        CtlCommand::Set { changes } => {
            let reply = request(&socket, &Request::Set { changes: changes.clone() })?;
            show(args.json, &reply);
        }
        CtlCommand::Show { interval: None } => {
            show(args.json, &request(&socket, &Request::Show {})?);
        }
        CtlCommand::Show { interval: Some(seconds) } => {
            let pause = Duration::from_secs_f64(*seconds);
            while !interrupt.is_set() && !output::is_stdout_lost() {
                show(args.json, &request(&socket, &Request::Show {})?);
                let next = Instant::now() + pause;
                while !interrupt.is_set() && Instant::now() < next {
                    std::thread::sleep(Duration::from_millis(20).min(pause));
                }
            }
        }
    }
    Ok(Exit::Success)
}

fn request(socket: &Path, request: &Request) -> Result<Reply, Error> {
    let reply = ask(socket, request, REPLY_TIMEOUT).map_err(|e| {
        let shown = socket.display();
        let why = format!("no switch answers at {shown}: {e}; does it run, with this --socket?");
        Failed::new(Exit::PeerUnreachable, why)
    })?;
    match reply.error {
        Some(why) => Err(usage(printable(why))),
        None => Ok(reply),
    }
}

fn show(json: bool, reply: &Reply) {
    if json {
        print_text(&format!("{}\n", reply.report));
    } else {
        for line in reply.text.lines() {
            print_text(&format!("{}\n", printable(line)));
        }
    }
}

/// Time limit for a reply. A busy switch replies within a step, an idle one within 100 ms.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
