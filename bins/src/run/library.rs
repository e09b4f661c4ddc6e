//! The search for the library.

use spanwire_host::fabric::Error;
use spanwire_host::file::read;
use spanwire_host::program::VARIABLES;
use spanwire_host::program::executable::is_elf;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The variable with the path of the library, which replaces the search.
pub(super) const VARIABLE: &str = "SPANWIRE_LIBRARY";

/// The names of the library: as programs load it, and as Cargo builds it.
const NAMES: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];

/// Bytes that separate the entries of `LD_PRELOAD` and `LD_LIBRARY_PATH`, or begin a token
/// (ld.so(8)); there is no escape.
const SEPARATORS: &[u8] = b" \t\n:;$";

/// Above the size of a library with all of its debug information.
const LIBRARY_BYTES_MAX: u64 = 1 << 28;

/// The absolute path of the library: `named`, else beside the program `exe`, else where it is
/// installed.
///
/// # Errors
/// There is none, `named` is no shared library, or the loader cannot take the path.
pub(super) fn find(exe: &Path, named: Option<&OsStr>) -> Result<PathBuf, Error> {
    let path = match named.filter(|named| !named.is_empty()) {
        Some(named) => std::path::absolute(named)?,
        None => search(exe)?,
    };
    if !is_elf(&path) {
        let hint = format!("{VARIABLE} has the path of libibverbs.so.1");
        return Err(format!("{} is no shared library; {hint}", path.display()).into());
    }
    if path.as_os_str().as_bytes().iter().any(|byte| SEPARATORS.contains(byte)) {
        let why = "LD_PRELOAD cannot have a path with a space, colon, semicolon or dollar";
        return Err(format!("{}: {why}: install it elsewhere", path.display()).into());
    }
    Ok(path)
}

fn search(exe: &Path) -> Result<PathBuf, Error> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let prefix = beside.parent().unwrap_or(beside);
    let (private, shared) = (prefix.join("lib/spanwire"), prefix.join("lib"));
    let dirs = [beside, &private, &shared];
    let paths = dirs.iter().flat_map(|dir| NAMES.map(|name| dir.join(name)));
    // The distribution's own library may be there.
    let is_other = |path: &Path| path.parent() == Some(&*shared) && !reads_settings(path);
    paths.into_iter().find(|path| path.is_file() && !is_other(path)).ok_or_else(|| {
        let dirs = dirs.map(|dir| dir.display().to_string()).join(", ");
        format!(
            "there is no {} of Spanwire in {dirs}: `cargo build --release` makes it; or set \
             {VARIABLE} to its path",
            NAMES[0]
        )
        .into()
    })
}

/// True if the library has the name of a variable of [`VARIABLES`], as ours does.
fn reads_settings(path: &Path) -> bool {
    let name = VARIABLES[0].as_bytes();
    let library = read(path, "libraries", LIBRARY_BYTES_MAX);
    library.is_ok_and(|bytes| bytes.windows(name.len()).any(|at| at == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn find__is_the_named_one_or_beside_the_program_or_installed() {
        let root = std::env::temp_dir().join(format!("spanwire-run-{}", std::process::id()));
        let exe = root.join("bin/spanwire");
        for dir in ["bin", "lib/spanwire", "a b"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let file = |name: &str, content: &[u8]| {
            let path = root.join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let refused = |named: Option<&Path>| {
            find(&exe, named.map(Path::as_os_str)).expect_err("refused").to_string()
        };
        let distribution = file("lib/libibverbs.so.1", b"\x7fELF");
        let error = refused(None);
        assert!(error.contains(&format!("{}/lib/spanwire,", root.display())), "{error}");
        assert!(error.contains("cargo build --release") && error.contains(VARIABLE), "{error}");
        // From the last place to the first.
        for (name, content) in [
            ("lib/libibverbs.so", &b"\x7fELF SPANWIRE_DEV"[..]),
            ("lib/spanwire/libibverbs.so.1", b"\x7fELF"),
            ("bin/libibverbs.so", b"\x7fELF"),
            ("bin/libibverbs.so.1", b"\x7fELF"),
        ] {
            let path = file(name, content);
            assert_eq!(find(&exe, None).unwrap(), path);
        }
        assert_eq!(find(&exe, Some(distribution.as_os_str())).unwrap(), distribution);
        assert!(find(&exe, Some(OsStr::new(""))).unwrap().starts_with(&root));
        assert!(refused(Some(&root.join("none"))).contains("no shared library"));
        assert!(refused(Some(&file("a b/x.so", b"\x7fELF"))).contains("install it elsewhere"));
        fs::remove_dir_all(root).unwrap();
    }
}
