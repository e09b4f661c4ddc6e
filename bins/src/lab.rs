//! `spanwire lab`: test hosts on one machine, by [`spanwire_lab`].

mod args;
mod text;

pub use args::{ExecArgs, LabArgs, LabCommand, NameArgs, UpArgs};

use crate::exit::{Exit, Failed};
use crate::report::print_pretty;
use crate::switch::{PORT_FRAME_ROOM, SwitchFile};
use spanwire_host::fabric::Error;
use spanwire_host::file::{CONFIG_BYTES_MAX, read_text};
use spanwire_io::net::NetErrorKind;
use spanwire_lab::{LabError, LabStatus, Spec, SwitchPort, SwitchSpec, UpReport, down, exec};
use std::io;
use std::path::Path;

/// Runs the subcommand and prints its report on stdout.
///
/// # Returns
/// Success, or for `status` of a lab that is not up, failure. If `exec` succeeds it does not
/// return: the command replaces the process, so that signals and the exit code are its own.
///
/// # Errors
/// See [`LabError`], each with its exit code; or the report cannot be printed.
pub fn run(args: &LabArgs) -> Result<Exit, Error> {
    match &args.command {
        LabCommand::Up(args) => {
            let report = up(args).map_err(failed)?;
            print_pretty(args.lab.json, &report, text::up)?;
            Ok(Exit::Success)
        }
        LabCommand::Down(args) => {
            let done = down(&args.name).map_err(failed)?;
            print_pretty(args.json, &done, text::down)?;
            Ok(Exit::Success)
        }
        LabCommand::Exec(args) => Err(failed(exec(&args.name, &args.host, &args.command))),
        LabCommand::Status(args) => {
            let status = LabStatus::read(&args.name).map_err(failed)?;
            print_pretty(args.json, &status, text::status)?;
            Ok(if status.up { Exit::Success } else { Exit::Failure })
        }
    }
}

/// Creates the lab that the arguments describe.
fn up(args: &UpArgs) -> Result<UpReport, LabError> {
    let UpArgs { mtu, prefix, prefix6, queues, queue_limit, .. } = *args;
    let name = args.lab.name.clone();
    let spec = Spec { name, mtu, prefix, prefix6, queues, queue_limit };
    match &args.switch {
        None => spanwire_lab::up(&spec, None),
        Some(file) => spanwire_lab::up(&spec, Some(&|| read_switch(file))),
    }
}

/// The switch that `file` describes. The lab runs it with this program.
fn read_switch(file: &Path) -> Result<SwitchSpec, String> {
    let shown = file.display();
    let config = read_text(file, "configurations", CONFIG_BYTES_MAX)
        .map_err(|e| format!("cannot read {shown}: {e}"))?;
    let parsed = SwitchFile::parse(&config).map_err(|e| format!("{shown}: {e}"))?;
    let port = |port: &crate::switch::FilePort| SwitchPort {
        name: port.name.clone(),
        device: port.device.clone(),
    };
    let ports = parsed.ports().iter().map(port).collect();
    let program = std::env::current_exe().map_err(|e| format!("the switch does not start: {e}"))?;
    Ok(SwitchSpec { program, config, ports, frame_room: PORT_FRAME_ROOM })
}

/// The error with its exit code. As in a shell, 127 means that the program does not exist and 126
/// that it cannot be run. Bad arguments give 2, other errors 1.
fn failed(error: LabError) -> Error {
    Failed::new(exit(&error), error).into()
}

fn exit(error: &LabError) -> Exit {
    match error {
        LabError::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Exit::NoCommand
        }
        LabError::Exec { .. } => Exit::CannotExec,
        LabError::BadName { .. }
        | LabError::NoCommand
        | LabError::NoHost { .. }
        | LabError::Switch(_) => Exit::Usage,
        LabError::Net { source, .. } if source.kind() == NetErrorKind::Invalid => Exit::Usage,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests;
