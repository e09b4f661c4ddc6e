//! Results of earlier runs: one file each, named by the key of its run.

use super::prepare::cannot_write;
use crate::exit::{Exit, Failed};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use spanwire_host::fabric::Error;
use spanwire_host::file;
use spanwire_sim::RESULTS_VERSION;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory with results. Several processes, also of several machines with one network file
/// system, may use it at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Store {
    /// `None` stores nothing.
    dir: Option<PathBuf>,
}

/// The result of a run, as a file has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) key: String,
    /// The command that repeats it.
    pub(super) run: String,
    pub(super) results_version: usize,
    /// The version of the program, and the host that ran it.
    pub(super) program: String,
    pub(super) host: String,
    /// How long it took.
    pub(super) seconds: f64,
    pub(super) violations: Vec<String>,
    pub(super) metrics: Value,
}

/// The key of a result that this text and these files decide, 64 hexadecimal digits.
pub(super) fn key(text: &str, files: &[Vec<u8>]) -> String {
    let mut hash = Sha256::new();
    hash.update(text);
    files.iter().for_each(|file| hash.update(Sha256::digest(file)));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The error of a result that cannot be stored.
pub(super) fn cannot_store(why: &io::Error) -> Error {
    let why = format!("cannot store a result: {why}. Those before it are kept: call again");
    Failed::new(Exit::Failure, why).into()
}

impl Stored {
    pub(super) fn new(
        run: String,
        key: String,
        (violations, metrics): (Vec<String>, Value),
    ) -> Self {
        Self {
            key,
            run,
            results_version: RESULTS_VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            host: host(),
            seconds: 0.0,
            violations,
            metrics,
        }
    }
}

impl Store {
    /// The store in this directory, which is created.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: Some(dir.to_owned()) })
    }

    /// The store in this directory, or none.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn of(dir: Option<&Path>) -> Result<Self, Error> {
        let Some(dir) = dir else { return Ok(Self::none()) };
        Self::open(dir).map_err(|e| cannot_write(dir, &e).into())
    }

    /// A result can be stored: tried with a file that is removed.
    pub(super) fn is_writable(&self) -> bool {
        let Some(dir) = &self.dir else { return false };
        let part = dir.join(part_name("writable"));
        let is_written = fs::write(&part, "x").is_ok();
        fs::remove_file(&part).is_ok() && is_written
    }

    /// Stores nothing.
    pub(super) fn none() -> Self {
        Self { dir: None }
    }

    /// The result of this key. A damaged file, or one of another key, counts as none.
    pub(super) fn load(&self, key: &str) -> Option<Stored> {
        let text = file::read(&self.file(key)?, "results", RESULT_BYTES_MAX).ok()?;
        let stored: Stored = serde_json::from_slice(&text).ok()?;
        (stored.key == key).then_some(stored)
    }

    /// Stores a result. A reader never sees a part of it, and of two writers one is the last.
    pub(super) fn save(&self, stored: &Stored) -> io::Result<()> {
        let Some(file) = self.file(&stored.key) else { return Ok(()) };
        let part = file.with_file_name(part_name(&stored.key));
        let text = serde_json::to_string(stored)?;
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &file));
        written.map_err(|e| {
            // What there is no room for must not stay there.
            let _ = fs::remove_file(&part);
            io::Error::new(e.kind(), format!("{}: {e}", part.display()))
        })
    }

    fn file(&self, key: &str) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("{key}.json")))
    }
}

/// The name of a file that is not yet whole, of no other process.
fn part_name(key: &str) -> String {
    format!("{key}.{}-{}.part", host(), std::process::id())
}

/// The store by default: `$XDG_CACHE_HOME` or `~/.cache`, then `spanwire/results`. `None` without
/// a home directory.
pub(super) fn default_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(user.join("spanwire").join("results"))
}

/// The name of this host.
fn host() -> String {
    let name = file::read_text(Path::new("/proc/sys/kernel/hostname"), "names", 256);
    let name = name.unwrap_or_default();
    name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

/// The most of a result that is read; a longer one is computed again.
const RESULT_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn load__is_of_the_same_key_and_whole() {
        let dir = std::env::temp_dir().join(format!("spanwire-store-{}", std::process::id()));
        let store = Store::open(&dir).expect("it can be created");
        let of = |key: &str| {
            Stored::new("run".to_owned(), key.to_owned(), (Vec::new(), json!({ "peak": 1 })))
        };
        assert_eq!(store.load("a"), None);
        store.save(&of("a")).expect("there is room");
        assert_eq!(store.load("a"), Some(of("a")));
        let file = store.file("a").expect("it stores");
        fs::copy(&file, store.file("b").expect("it stores")).expect("there is room");
        assert_eq!(store.load("b"), None, "a file under another name");
        let whole = fs::read(&file).expect("it was written");
        fs::write(&file, &whole[..whole.len() / 2]).expect("it can be written");
        assert_eq!(store.load("a"), None, "a part of a file");
        store.save(&of("a")).expect("there is room");
        assert_eq!(store.load("a"), Some(of("a")));
        assert_eq!(fs::read_dir(&dir).expect("it exists").count(), 2, "no part is left");
        assert_eq!(Store::none().save(&of("a")).ok(), Some(()));
        let proc = Store::open(Path::new("/proc")).expect("it exists");
        assert!(store.is_writable() && !proc.is_writable() && !Store::none().is_writable());
        assert_eq!(fs::read_dir(&dir).expect("it exists").count(), 2, "nor of a trial");
        fs::remove_dir_all(&dir).expect("it was created");
        let gone = store.save(&of("a")).expect_err("the directory is gone");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
