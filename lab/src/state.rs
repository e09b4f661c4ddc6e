//! What a lab with a switch remembers between two commands: a directory below [`DIRECTORY`] with
//! the names of its parts, the switch's configuration, its log and its control socket.
//!
//! It is written before anything is made and removed after everything is gone, so that `down` knows
//! what may be there, however `up` or the switch ended. A machine that is restarted forgets it
//! together with the namespaces.

use crate::error::LabError;
use crate::process::Process;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The parts of a lab with a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The hosts, each behind the port of its name.
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
    /// Where the lab of that name keeps its files, whether they are there or not.
    pub(crate) fn of(lab: &str) -> Self {
        Self(Path::new(DIRECTORY).join(lab))
    }

    /// Makes the directory, for root only.
    ///
    /// # Errors
    /// The lab is up, or partly there; not permitted.
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

    /// True if the lab has one.
    pub(crate) fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// Removes it with everything in it; one that is not there is no error.
    ///
    /// # Errors
    /// Not permitted.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", e)),
            _ => Ok(()),
        }
    }

    /// Reads what is remembered; `None` for a lab without a switch, or an `up` that ended before
    /// anything was made.
    ///
    /// # Errors
    /// The file cannot be read or is not what [`StateDir::write`] writes.
    pub(crate) fn read(&self) -> Result<Option<State>, LabError> {
        let text = match fs::read_to_string(self.file()) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed("read", e)),
        };
        let state = serde_json::from_str(&text);
        state.map(Some).map_err(|e| self.failed("read", io::Error::other(e)))
    }

    /// Remembers, all or nothing.
    ///
    /// # Errors
    /// Not permitted, or no space.
    pub(crate) fn write(&self, state: &State) -> Result<(), LabError> {
        let failed = |e| self.failed("write", e);
        let text = serde_json::to_vec_pretty(state).map_err(|e| failed(io::Error::other(e)))?;
        let new = self.0.join("state.json.new");
        fs::write(&new, text).map_err(failed)?;
        fs::rename(new, self.file()).map_err(failed)
    }

    /// The switch's configuration, as it was when the lab was made.
    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("switch.toml")
    }

    /// Where the switch is controlled.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("switch.sock")
    }

    /// What the switch prints.
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

/// Forgotten at every start of the machine, as named namespaces are.
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
        dir.remove().expect("gone is fine");
    }
}
