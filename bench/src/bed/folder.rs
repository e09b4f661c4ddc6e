//! A folder of a sample's files.

use crate::sample::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder in memory where the machine has such files, because a disk would add gaps. It is
/// removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A folder with this name.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let memory = Path::new(MEMORY);
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    /// The path of `name` in it, as an argument.
    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("{} remains: {e}", self.0.display());
        }
    }
}

/// A file system in memory.
pub(crate) const MEMORY: &str = "/dev/shm";
