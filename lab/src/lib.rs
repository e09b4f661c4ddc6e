//! Labs: hosts on one machine that stay until they are taken down.
//!
//! A lab named `sw` is the two network namespaces `sw-a` and `sw-b` and a veth pair between them,
//! the device `sw0` in both; or one namespace for each port of a switch, with the device `sw0` in
//! each, and `sw-switch`, where the switch runs. `ip netns` sees them too. Nothing leads from a lab
//! to the machine's own network.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod cable;
mod error;
mod made;
mod namespace;
mod process;
mod star;
mod state;
mod status;

pub use error::LabError;
pub use made::{Down, Made, MadeHost, MadeSwitch};
pub use star::{SwitchPort, SwitchSpec};
pub use status::{HostStatus, LabStatus, LinkStatus, SwitchStatus};

use namespace::{Found, host_devices};
use spanwire_io::net::{IpPrefix, NetError, NetErrorKind, NetNs};
use state::{State, StateDir};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A lab before it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Its name: 1 to 32 letters, digits, '-' and '_'.
    pub name: String,
    /// Largest IP packet in bytes, 1280 to 65535.
    pub mtu: u32,
    /// IPv4 network; the hosts get its first addresses.
    pub prefix: IpPrefix,
    /// IPv6 network; the hosts get its first addresses.
    pub prefix6: IpPrefix,
    /// Receive and transmit queues of each end of a cable, 1 to 64.
    pub queues: u32,
    /// Packets that may wait in front of each end; 0 for none: a full peer then drops.
    pub queue_limit: u32,
}

/// What a lab's switch shall be, or why it cannot be: read once nothing else is wrong.
pub type ReadSwitch<'a> = &'a dyn Fn() -> Result<SwitchSpec, String>;

/// Makes a lab: two hosts and a cable, or hosts around a switch. Either all of it is there
/// afterwards, or nothing that was not there before.
///
/// # Errors
/// The lab is up, wholly or partly; not permitted; a bad name, MTU, prefix or switch.
pub fn up(spec: &Spec, switch: Option<ReadSwitch<'_>>) -> Result<Made, LabError> {
    let name = spec.name.as_str();
    check_name(name)?;
    if StateDir::of(name).exists() {
        return Err(LabError::AlreadyUp { lab: name.to_owned() });
    }
    match switch {
        None => cable::up(spec),
        Some(read) => star::up(spec, read),
    }
}

/// Removes a lab, also one that is only partly there; one that is not there is no error.
///
/// # Errors
/// A namespace of that name holds what no lab made, and is left alone; not permitted.
pub fn down(name: &str) -> Result<Down, LabError> {
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
        Down { name: name.to_owned(), removed: Vec::new(), ended, processes: Vec::new() };
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

/// Becomes `command` on host `host` of lab `name`; returns only if that fails. The process becomes
/// the command, so that signals and the exit code are the command's own.
pub fn exec(name: &str, host: &str, command: &[OsString]) -> LabError {
    match command_on(name, host, command) {
        Ok((mut ready, program, namespace)) => {
            let source = ready.exec();
            LabError::Exec { program, namespace, source }
        }
        Err(e) => e,
    }
}

/// The command, ready to run; its program's name, and the namespace of the host.
fn command_on(
    name: &str,
    host: &str,
    command: &[OsString],
) -> Result<(Command, String, String), LabError> {
    check_name(name)?;
    let state = StateDir::of(name).read()?;
    let mut names = hosts(state.as_ref());
    names.extend(state.is_some().then(|| SWITCH.to_owned()));
    if !names.iter().any(|known| known == host) {
        let (lab, host) = (name.to_owned(), host.to_owned());
        return Err(LabError::NoHost { lab, host, hosts: names });
    }
    let namespace = namespace(name, host);
    let (program, arguments) = command.split_first().ok_or(LabError::NoCommand)?;
    let refused = |source: NetError| match source.kind() {
        NetErrorKind::NotFound => LabError::NotUp { lab: name.to_owned() },
        _ => LabError::Net { doing: format!("run a command in {namespace}"), source },
    };
    let ns = NetNs::open_named(&namespace).map_err(refused)?;
    let mut ready = ns.command(program).map_err(refused)?;
    ready.args(arguments);
    Ok((ready, program.to_string_lossy().into_owned(), namespace))
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
#[must_use]
pub fn namespace(lab: &str, part: &str) -> String {
    format!("{lab}-{part}")
}

/// The text on a device by which `down` knows it again.
fn mark(lab: &str) -> String {
    format!("spanwire lab {lab}")
}

/// Whether a lab may have that name.
///
/// # Errors
/// [`LabError::BadName`].
pub fn check_name(name: &str) -> Result<(), LabError> {
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-') {
        return Ok(());
    }
    Err(LabError::BadName { lab: name.to_owned() })
}

/// The device of a host, in every namespace.
pub const DEVICE: &str = "sw0";

/// The lab that is meant if none is named.
pub const DEFAULT_NAME: &str = "sw";

/// The hosts at the two ends of a cable.
pub const CABLE_HOSTS: [&str; 2] = ["a", "b"];

/// The part of a lab where its switch is.
const SWITCH: &str = "switch";

/// How long the switch may take to end before it is made to.
const SWITCH_ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The longest name of a lab in bytes: it is part of file names and of the device's mark.
const NAME_MAX: usize = 32;
