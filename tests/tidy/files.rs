//! The files of the tree.

use crate::scan::Source;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ is in the workspace").to_owned()
}

/// Every text file of the tree as (path from the root, text), sorted. Binary files, build output
/// and hidden files are left out, except for hidden folders that are part of the project.
pub(crate) fn texts() -> &'static [(String, String)] {
    static TEXTS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let mut found = Vec::new();
        walk(&root(), "", &mut found);
        found.sort();
        assert!(found.len() > 50, "the tree has not been found");
        found
    })
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of the tree can be read") {
        let path = entry.expect("an entry of the tree can be read").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let hidden = name.starts_with('.') && !matches!(name, ".ci" | ".github" | ".gitignore");
        if hidden || (name == "target" && prefix.is_empty()) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            walk(&path, &format!("{prefix}{name}/"), found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((format!("{prefix}{name}"), text));
        }
    }
}

/// Every Rust file of the tree.
pub(crate) fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let rust = texts().iter().filter(|(path, _)| path.ends_with(".rs"));
        rust.map(|(path, text)| Source::new(path, text)).collect()
    })
}
