//! Labs: test hosts in network namespaces of one machine, which persist until `down` removes them.
//!
//! A lab named `sw` with a cable consists of the namespaces `sw-a` and `sw-b`, joined by a veth
//! pair with the device `sw0` at both ends. A lab with a switch has one namespace with the device
//! `sw0` for each port, and the namespace `sw-switch`, where the switch runs. `ip netns` lists all
//! of them. A lab has no connection to the machine's own network.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod cable;
mod error;
mod namespace;
mod process;
mod report;
mod star;
mod state;
mod status;

pub use error::LabError;
pub use report::{DownReport, LabHost, LabSwitch, UpReport};
pub use star::{SwitchPort, SwitchSpec};
pub use status::{HostStatus, LabStatus, LinkStatus, SwitchStatus};

use namespace::{LabNamespace, host_devices};
use spanwire_io::net::{IpPrefix, NetError, NetErrorKind, NetNs};
use state::{State, StateDir};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The specification of a lab.
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
    /// Length of each end's transmit queue (pfifo) in packets; 0 for none, so that a full peer
    /// drops.
    pub queue_limit: u32,
}

/// Reads the specification of a lab's switch. It is called after all other checks have passed.
pub type ReadSwitch<'a> = &'a dyn Fn() -> Result<SwitchSpec, String>;

/// Creates a lab: two hosts and a cable, or hosts around a switch. If it fails, everything created
/// so far is removed.
///
/// # Errors
/// The lab exists, completely or in part; permission denied; invalid name, MTU, prefix or switch.
pub fn up(spec: &Spec, switch: Option<ReadSwitch<'_>>) -> Result<UpReport, LabError> {
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

/// Removes a lab, also an incomplete one. A lab that does not exist is no error.
///
/// # Errors
/// A namespace of that name has a device that no lab created (nothing is removed); permission
/// denied.
pub fn down(name: &str) -> Result<DownReport, LabError> {
    check_name(name)?;
    let refused = |source| LabError::Net { doing: format!("remove the lab {name}"), source };
    let dir = StateDir::of(name);
    let state = dir.read()?;
    // Check all namespaces before removing any: a foreign device prevents the whole removal.
    let mut found = Vec::new();
    for host in hosts(state.as_ref()) {
        found.extend(LabNamespace::inspect(name, &namespace(name, &host), &host_devices())?);
    }
    let mut ended = None;
    if let Some(state) = &state {
        found.extend(LabNamespace::inspect(name, &namespace(name, SWITCH), &state.devices)?);
        if let Some(process) = state.process {
            let was_running = process.end(SWITCH_STOP_TIMEOUT).map_err(|e| dir.failed("end", e))?;
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

/// Replaces this process by `command` on host `host` of lab `name`, so that signals and the exit
/// code are the command's own. Returns only on failure.
pub fn exec(name: &str, host: &str, command: &[OsString]) -> LabError {
    match command_on(name, host, command) {
        Ok((mut ready, program, namespace)) => {
            let source = ready.exec();
            LabError::Exec { program, namespace, source }
        }
        Err(e) => e,
    }
}

/// The command ready to run, the name of its program, and the namespace of the host.
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

/// The path of the control socket of a lab's switch, whether or not the lab has one.
///
/// # Errors
/// The name is invalid.
pub fn control_socket(lab: &str) -> Result<PathBuf, LabError> {
    check_name(lab)?;
    Ok(StateDir::of(lab).socket())
}

/// The names of a lab's hosts: the ports of its switch, else the two ends of a cable.
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

/// The alias of a device by which `down` identifies it.
fn mark(lab: &str) -> String {
    format!("spanwire lab {lab}")
}

/// Checks the name of a lab.
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

/// The default name of a lab.
pub const DEFAULT_NAME: &str = "sw";

/// The hosts at the two ends of a cable.
pub const CABLE_HOSTS: [&str; 2] = ["a", "b"];

/// The part of a lab's names that stands for its switch.
const SWITCH: &str = "switch";

/// Time limit for the switch to end after SIGTERM, before SIGKILL.
const SWITCH_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length of a lab's name in bytes. It is part of file names and of the device alias.
const NAME_MAX: usize = 32;
