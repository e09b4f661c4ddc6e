//! `spanwire lab`: hosts on one machine that stay until they are taken down.
//!
//! A lab named `sw` is the two network namespaces `sw-a` and `sw-b` and a veth pair between them,
//! the device `sw0` in both; or one namespace for each port of a switch, with the device `sw0` in
//! each, and `sw-switch`, where the switch runs. `ip netns` sees them too. Nothing leads from a lab
//! to the machine's own network.

mod args;
mod cable;
mod error;
mod namespace;
mod process;
mod report;
mod star;
mod state;
mod status;

pub use args::{ExecArgs, LabArgs, LabCommand, NameArgs, UpArgs};
pub use error::LabError;
pub use report::{DownReport, UpHost, UpReport, UpSwitch};
pub use status::{HostStatus, LabStatus, LinkStatus, SwitchStatus};

use crate::exit::Exit;
use namespace::{Found, host_devices};
use serde::Serialize;
use spanwire_io::net::{NetError, NetErrorKind, NetNs};
use state::{State, StateDir};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

/// Does what the arguments say and prints the answer on stdout.
///
/// # Returns
/// Success, or for `status` of a lab that is not up, failure. `exec` does not return if it works:
/// the process becomes the command, so that signals and the exit code are the command's own.
///
/// # Errors
/// See [`LabError`]; [`LabError::exit`] is what the process should end with.
pub fn run(args: &LabArgs) -> Result<Exit, LabError> {
    match &args.command {
        LabCommand::Up(args) => {
            let report = up(args)?;
            print(args.lab.json, &report, UpReport::to_text)?;
            Ok(Exit::Success)
        }
        LabCommand::Down(args) => {
            let report = down(&args.name)?;
            print(args.json, &report, DownReport::to_text)?;
            Ok(Exit::Success)
        }
        LabCommand::Exec(args) => exec(args),
        LabCommand::Status(args) => {
            check_name(&args.name)?;
            let report = LabStatus::read(&args.name)?;
            print(args.json, &report, LabStatus::to_text)?;
            Ok(if report.up { Exit::Success } else { Exit::Failure })
        }
    }
}

/// Makes a lab. Either all of it is there afterwards, or nothing that was not there before.
///
/// # Errors
/// The lab is up, wholly or partly; not permitted; a bad name, MTU, prefix or switch.
pub fn up(args: &UpArgs) -> Result<UpReport, LabError> {
    let name = args.lab.name.as_str();
    check_name(name)?;
    if StateDir::of(name).exists() {
        return Err(LabError::AlreadyUp { lab: name.to_owned() });
    }
    match &args.switch {
        None => cable::up(args),
        Some(file) => star::up(args, file),
    }
}

/// Removes a lab, also one that is only partly there; one that is not there is no error.
///
/// # Errors
/// A namespace of that name holds what no lab made, and is left alone; not permitted.
pub fn down(name: &str) -> Result<DownReport, LabError> {
    check_name(name)?;
    let refused = |source| LabError::Net { doing: format!("take the lab {name} down"), source };
    let dir = StateDir::of(name);
    let state = dir.read()?;
    // First look at everything, then remove: what is not ours stops everything.
    let mut found = Vec::new();
    for host in hosts(state.as_ref()) {
        found.extend(Found::look(name, &namespace(name, &host), &host_devices())?);
    }
    let mut ended = None;
    if let Some(state) = &state {
        found.extend(Found::look(name, &namespace(name, SWITCH), &state.devices)?);
        if let Some(process) = state.process {
            let was_running = process.end(SWITCH_ENDS_WITHIN).map_err(|e| dir.failed("end", e))?;
            ended = was_running.then_some(process.pid);
        }
    }
    let mut report =
        DownReport { name: name.to_owned(), removed: Vec::new(), ended, processes: Vec::new() };
    for part in found {
        if let Some(ns) = &part.ns {
            report.processes.extend(status::processes_in(ns)?);
        }
        part.delete_devices().map_err(refused)?;
        NetNs::delete_named(&part.name).map_err(refused)?;
        report.removed.push(part.name);
    }
    dir.remove()?;
    Ok(report)
}

/// Becomes a command on one of the hosts; returns only if that fails.
///
/// # Errors
/// The lab is not up or has no such host, the program does not exist or cannot be run, or not
/// permitted.
pub fn exec(args: &ExecArgs) -> Result<Exit, LabError> {
    check_name(&args.name)?;
    let state = StateDir::of(&args.name).read()?;
    let mut names = hosts(state.as_ref());
    names.extend(state.is_some().then(|| SWITCH.to_owned()));
    if !names.contains(&args.host) {
        let (lab, host) = (args.name.clone(), args.host.clone());
        return Err(LabError::NoHost { lab, host, hosts: names });
    }
    let namespace = namespace(&args.name, &args.host);
    let (program, arguments) = args.command.split_first().ok_or(LabError::NoCommand)?;
    let refused = |source: NetError| match source.kind() {
        NetErrorKind::NotFound => LabError::NotUp { lab: args.name.clone() },
        _ => LabError::Net { doing: format!("run a command in {namespace}"), source },
    };
    let ns = NetNs::open_named(&namespace).map_err(refused)?;
    let source = ns.command(program).map_err(refused)?.args(arguments).exec();
    Err(LabError::Exec { program: program.to_string_lossy().into_owned(), namespace, source })
}

/// Where the switch of a lab is controlled; there need be none.
///
/// # Errors
/// The name cannot be that of a lab.
pub fn control_socket(lab: &str) -> Result<PathBuf, LabError> {
    check_name(lab)?;
    Ok(StateDir::of(lab).socket())
}

/// The hosts that a lab has, or would have: those of its switch, else the two ends of a cable.
fn hosts(state: Option<&State>) -> Vec<String> {
    match state {
        Some(state) => state.hosts.clone(),
        None => CABLE_HOSTS.map(str::to_owned).to_vec(),
    }
}

/// The namespace of a part of a lab.
fn namespace(lab: &str, part: &str) -> String {
    format!("{lab}-{part}")
}

/// The text on a device by which `down` knows it again.
fn mark(lab: &str) -> String {
    format!("spanwire lab {lab}")
}

fn check_name(name: &str) -> Result<(), LabError> {
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-') {
        return Ok(());
    }
    Err(LabError::BadName { lab: name.to_owned() })
}

/// Prints a report as JSON or as text. A reader that has gone away is no error.
fn print<T: Serialize>(json: bool, report: &T, text: fn(&T) -> String) -> Result<(), LabError> {
    let text = if json {
        let mut text = serde_json::to_string_pretty(report)
            .map_err(|e| LabError::Print(io::Error::other(e)))?;
        text.push('\n');
        text
    } else {
        text(report)
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(LabError::Print(e)),
        _ => Ok(()),
    }
}

/// The device of a host, in every namespace.
const DEVICE: &str = "sw0";

/// The lab that is meant if none is named.
const DEFAULT_NAME: &str = "sw";

/// The hosts at the two ends of a cable.
const CABLE_HOSTS: [&str; 2] = ["a", "b"];

/// The part of a lab where its switch is.
const SWITCH: &str = "switch";

/// How long the switch may take to end before it is made to.
const SWITCH_ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The longest name of a lab in bytes: it is part of file names and of the device's mark.
const NAME_MAX: usize = 32;

#[cfg(test)]
mod tests;
