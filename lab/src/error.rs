//! Errors of a lab. Each message includes a remedy.

use spanwire_io::net::{NetError, NetErrorKind};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of an operation on a lab.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// The lab exists, completely or in part.
    AlreadyUp {
        /// Its name.
        lab: String,
    },
    /// The lab does not exist.
    NotUp {
        /// Its name.
        lab: String,
    },
    /// The lab has no host of that name.
    NoHost {
        /// The lab's name.
        lab: String,
        /// The requested host.
        host: String,
        /// The lab's hosts.
        hosts: Vec<String>,
    },
    /// The switch's configuration is invalid, or the switch did not start.
    Switch(String),
    /// The lab's state directory could not be read, written or removed.
    State {
        /// The failed operation; continues the sentence "cannot ...".
        doing: &'static str,
        /// The lab's directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The name is not a valid name of a lab.
    BadName {
        /// The name.
        lab: String,
    },
    /// A namespace with a name of the lab has a device that no lab created.
    NotOurs {
        /// The namespace.
        namespace: String,
        /// The device.
        device: String,
    },
    /// `exec` without a command.
    NoCommand,
    /// The command of `exec` could not be run.
    Exec {
        /// The program.
        program: String,
        /// The namespace to run it in.
        namespace: String,
        /// The cause.
        source: io::Error,
    },
    /// The kernel rejected an operation.
    Net {
        /// The failed operation; continues the sentence "cannot ...".
        doing: String,
        /// The kernel's error.
        source: NetError,
    },
    /// `/proc` could not be read.
    Proc(io::Error),
}

impl LabError {
    /// The error for a kernel error while lab `lab` was created.
    pub(crate) fn from_up(lab: &str, source: NetError) -> Self {
        match source.kind() {
            NetErrorKind::AlreadyExists => Self::AlreadyUp { lab: lab.to_owned() },
            _ => Self::Net { doing: format!("bring the lab {lab} up"), source },
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyUp { lab } => write!(
                f,
                "the lab {lab} is up already, or incomplete; inspect it with `spanwire lab status \
                 --name {lab}`, remove it with `spanwire lab down --name {lab}`, or choose \
                 another --name"
            ),
            Self::NotUp { lab } => {
                write!(f, "the lab {lab} is not up; make it with `spanwire lab up --name {lab}`")
            }
            Self::NoHost { lab, host, hosts } => {
                let hosts = hosts.join(", ");
                write!(f, "the lab {lab} has no host {host:?}; it has {hosts}")
            }
            Self::Switch(why) => f.write_str(why),
            Self::State { doing, directory, source } => write!(
                f,
                "cannot {doing} what is in {}: {source}; remove the lab with `spanwire lab down`, \
                 and if that fails too, the directory",
                directory.display()
            ),
            Self::BadName { lab } => write!(
                f,
                "{lab:?} cannot be the name of a lab; use 1 to 32 letters, digits, '-' and '_'"
            ),
            Self::NotOurs { namespace, device } => write!(
                f,
                "the namespace {namespace} has the device {device}, which no lab created, so it is \
                 left alone; remove it with `ip netns delete {namespace}`, or choose another --name"
            ),
            Self::NoCommand => f.write_str("no command to run; write it after --"),
            Self::Exec { program, namespace, source } => {
                write!(f, "cannot run {program} in {namespace}: {source}; ")?;
                f.write_str(match source.kind() {
                    io::ErrorKind::NotFound => "check the name and the PATH",
                    io::ErrorKind::PermissionDenied => {
                        "run it as root, and check that the program is executable"
                    }
                    _ => "check that it is a program for this machine",
                })
            }
            Self::Net { doing, source } => write!(f, "cannot {doing}: {source}"),
            Self::Proc(source) => write!(f, "cannot read /proc: {source}; mount it"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Net { source, .. } => Some(source),
            Self::Exec { source, .. } | Self::State { source, .. } | Self::Proc(source) => {
                Some(source)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display__names_a_remedy() {
        let lab = "sw".to_owned();
        let text = LabError::AlreadyUp { lab }.to_string();
        assert!(text.contains("spanwire lab down --name sw"), "{text}");
        let lab = "sw".to_owned();
        let text = LabError::NotUp { lab }.to_string();
        assert!(text.contains("spanwire lab up --name sw"), "{text}");
    }
}
