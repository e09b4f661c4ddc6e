//! The state directory of a lab with a switch, below [`DIRECTORY`]: the names of its parts, the
//! switch's configuration, its log and its control socket.
//!
//! It is written before anything is created and removed after everything is removed. So `down`
//! knows what may exist, however `up` or the switch ended. A reboot removes the directory and the
//! namespaces.

use crate::error::LabError;
use crate::names::CABLE_HOSTS;
use crate::process::Process;
use serde::{Deserialize, Serialize};
use spanwire_host::file;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The parts of a lab with a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The hosts, each at the switch port of the same name.
    pub(crate) hosts: Vec<String>,
    /// The devices of the switch, in the same order.
    pub(crate) devices: Vec<String>,
    /// The switch's process, once it has been started.
    pub(crate) process: Option<Process>,
}

/// The files of a lab with a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateDir(PathBuf);

impl StateDir {
    /// The state directory of the lab with that name, whether or not it exists.
    pub(crate) fn of(lab: &str) -> Self {
        Self(Path::new(DIRECTORY).join(lab))
    }

    /// Creates the directory, accessible to root only.
    ///
    /// # Errors
    /// The lab exists, completely or in part; permission denied.
    pub(crate) fn create(&self, lab: &str) -> Result<(), LabError> {
        let failed = |source| self.failed("make", source);
        DirBuilder::new().recursive(true).mode(0o700).create(DIRECTORY).map_err(failed)?;
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(LabError::AlreadyUp { lab: lab.to_owned() })
            }
            other => other.map_err(failed),
        }
    }

    /// True if the directory exists.
    pub(crate) fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// Removes the directory with its files. A missing directory is no error.
    ///
    /// # Errors
    /// Permission denied.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", e)),
            _ => Ok(()),
        }
    }

    /// Reads the state; `None` for a lab without a switch, or after an `up` that ended before it
    /// wrote the state.
    ///
    /// # Errors
    /// The file cannot be read or is not what [`StateDir::write`] writes.
    pub(crate) fn read(&self) -> Result<Option<State>, LabError> {
        let text = match file::read_text(&self.file(), "states", STATE_BYTES_MAX) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed("read", e)),
        };
        let state = serde_json::from_str(&text);
        state.map(Some).map_err(|e| self.failed("read", io::Error::other(e)))
    }

    /// Writes the state atomically.
    ///
    /// # Errors
    /// Permission denied, or no space.
    pub(crate) fn write(&self, state: &State) -> Result<(), LabError> {
        let failed = |e| self.failed("write", e);
        let text = serde_json::to_vec_pretty(state).map_err(|e| failed(io::Error::other(e)))?;
        let new = self.0.join("state.json.new");
        fs::write(&new, text).map_err(failed)?;
        fs::rename(new, self.file()).map_err(failed)
    }

    /// The switch's configuration, as of the lab's creation.
    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("switch.toml")
    }

    /// The switch's control socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("switch.sock")
    }

    /// The file with the switch's output.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("switch.log")
    }

    /// An error about the directory.
    pub(crate) fn failed(&self, doing: &'static str, source: io::Error) -> LabError {
        LabError::State { doing, directory: self.0.clone(), source }
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.json")
    }
}

/// The names of a lab's hosts: the ports of its switch, else the two ends of a cable.
pub(crate) fn hosts(state: Option<&State>) -> Vec<String> {
    match state {
        Some(state) => state.hosts.clone(),
        None => CABLE_HOSTS.map(str::to_owned).to_vec(),
    }
}

/// The most of a state: a line for each host.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// Parent of the state directories. Like named namespaces, `/run` is empty after a reboot.
const DIRECTORY: &str = "/run/spanwire/lab";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write__is_read_back_and_replaced_whole() {
        let path = std::env::temp_dir().join(format!("spanwire-state-{}", std::process::id()));
        fs::create_dir(&path).expect("our own name");
        let dir = StateDir(path);
        assert_eq!(dir.read().expect("no file is no error"), None);
        let mut state = State {
            hosts: vec!["a".to_owned(), "b".to_owned()],
            devices: vec!["a".to_owned(), "eth7".to_owned()],
            process: None,
        };
        dir.write(&state).expect("writable");
        assert_eq!(dir.read().expect("readable").as_ref(), Some(&state));
        state.process = Process::of(std::process::id());
        assert!(state.process.is_some());
        dir.write(&state).expect("writable");
        assert_eq!(dir.read().expect("readable"), Some(state));
        fs::write(dir.file(), "{").expect("writable");
        let text = dir.read().expect_err("cut short").to_string();
        assert!(text.contains("cannot read") && text.contains("lab down"), "{text}");
        dir.remove().expect("ours");
        assert!(!dir.exists());
        dir.remove().expect("a missing directory is no error");
    }
}
