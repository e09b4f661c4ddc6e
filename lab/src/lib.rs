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
mod names;
mod namespace;
mod process;
mod report;
mod spec;
mod star;
mod state;
mod status;

pub use error::LabError;
pub use names::{CABLE_HOSTS, DEFAULT_NAME, DEVICE, check_name, namespace};
pub use report::{DownReport, LabHost, LabSwitch, UpReport};
pub use spec::{ReadSwitch, Spec, SwitchPort, SwitchSpec};
pub use status::{HostStatus, LabStatus, LinkStatus, SwitchStatus};

use names::SWITCH;
use namespace::{LabNamespace, host_devices};
use spanwire_io::net::{NetError, NetErrorKind, NetNs};
use state::{StateDir, hosts};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Creates a lab: two hosts and a cable, or hosts around a switch. If it fails, everything created
/// so far is removed.
///
/// # Errors
/// The lab exists, completely or in part; permission denied; invalid name, MTU, prefix or switch.
pub fn up(spec: &Spec, switch: Option<ReadSwitch<'_>>) -> Result<UpReport, LabError> {
    let name = spec.name.as_str();
    check_name(name)?;
    for prefix in [spec.prefix, spec.prefix6] {
        prefix.check_for_hosts().map_err(|source| LabError::from_up(name, source))?;
    }
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

/// Time limit for the switch to end after SIGTERM, before SIGKILL.
const SWITCH_STOP_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
