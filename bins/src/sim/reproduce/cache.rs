//! Results of earlier runs, by command and program.

use serde_json::Value;
use spanwire_host::file;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A directory with results: one subdirectory for each program, one file for each command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cache {
    /// Of this program; `None` stores nothing.
    dir: Option<PathBuf>,
}

impl Cache {
    /// The cache in `root` for `program`, the bytes of an executable. Only the results of the last
    /// [`PROGRAMS_MAX`] programs are kept.
    pub(super) fn new(root: &Path, program: &[u8]) -> Self {
        let dir = root.join(fingerprint(program));
        // Without permission to write, runs are repeated next time; nothing else is lost.
        let created = fs::create_dir_all(&dir).and_then(|()| touch(&dir));
        prune(root);
        Self { dir: created.is_ok().then_some(dir) }
    }

    /// Stores nothing.
    pub(super) fn none() -> Self {
        Self { dir: None }
    }

    /// The stored result of `command`.
    pub(super) fn load(&self, command: &str) -> Option<Value> {
        let text = file::read(&self.file(command)?, "results", RESULT_BYTES_MAX).ok()?;
        let stored: Value = serde_json::from_slice(&text).ok()?;
        // Two commands with one fingerprint must not be confused.
        (stored.get("command")?.as_str()? == command).then(|| stored.get("result").cloned())?
    }

    /// Stores the result of `command`. A reader never sees a part of it.
    pub(super) fn store(&self, command: &str, result: &Value) {
        let Some(file) = self.file(command) else { return };
        let text = serde_json::json!({ "command": command, "result": result }).to_string();
        let part = file.with_extension(format!("part{}", std::process::id()));
        // A result that cannot be stored is computed again.
        let _ = fs::write(&part, text).and_then(|()| fs::rename(&part, &file));
    }

    fn file(&self, command: &str) -> Option<PathBuf> {
        let dir = self.dir.as_ref()?;
        Some(dir.join(format!("{}.json", fingerprint(command.as_bytes()))))
    }
}

/// The directory of the cache by default: `$XDG_CACHE_HOME` or `~/.cache`, then
/// `spanwire/reproduce`. `None` without a home directory.
pub(super) fn default_root() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(user.join("spanwire").join("reproduce"))
}

/// A hash in hexadecimal, the same in all processes of one program. It is no protection against
/// forged programs, whose author could as well change the results.
fn fingerprint(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// Marks the directory as the most recently used.
fn touch(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(USED), "")
}

/// Removes the results of all but the programs that were used last.
fn prune(root: &Path) {
    let used = |dir: &Path| fs::metadata(dir.join(USED)).and_then(|m| m.modified());
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    // Directories without the mark are not of the cache.
    let mut all: Vec<(SystemTime, PathBuf)> =
        entries.filter_map(|entry| Some((used(&entry.path()).ok()?, entry.path()))).collect();
    all.sort();
    let surplus = all.len().saturating_sub(PROGRAMS_MAX);
    for (_, dir) in all.iter().take(surplus) {
        let _ = fs::remove_dir_all(dir);
    }
}

/// Programs whose results are kept.
const PROGRAMS_MAX: usize = 4;
/// The most of a result that is read; a longer one is computed again.
const RESULT_BYTES_MAX: u64 = 64 << 20;
/// File whose time says when a program was used last.
const USED: &str = "used";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A directory of its own under the system's temporary directory.
    fn fresh(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("spanwire-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn load__is_of_the_same_command_and_program() {
        let root = fresh("load");
        let cache = Cache::new(&root, b"program 1");
        assert_eq!(cache.load("run a"), None);
        cache.store("run a", &json!({ "peak": 1 }));
        assert_eq!(cache.load("run a"), Some(json!({ "peak": 1 })));
        assert_eq!(cache.load("run b"), None);
        assert_eq!(Cache::new(&root, b"program 2").load("run a"), None);
        assert_eq!(Cache::new(&root, b"program 1").load("run a"), Some(json!({ "peak": 1 })));
        // A damaged file counts as none.
        fs::write(cache.file("run a").expect("it stores"), "{").expect("it can be written");
        assert_eq!(cache.load("run a"), None);
        Cache::none().store("run a", &json!(1));
        assert_eq!(Cache::none().load("run a"), None);
        fs::remove_dir_all(&root).expect("it was created");
    }

    #[test]
    fn new__keeps_the_results_of_few_programs() {
        let root = fresh("prune");
        fs::create_dir_all(root.join("other")).expect("it can be created");
        for program in 0..10_u8 {
            Cache::new(&root, &[program]);
        }
        let left = fs::read_dir(&root).expect("it exists").count();
        assert_eq!(left, PROGRAMS_MAX + 1, "and a directory that is not ours");
        fs::remove_dir_all(&root).expect("it was created");
    }
}
