//! Files: each is compiled, has clean lines, and contains no machine-specific path.

use crate::Finding;
use crate::docs::resolve;
use crate::scan::Source;
use std::collections::BTreeSet;

const LINE_MAX: usize = 100;

/// Machine-specific paths, in halves so that this file does not contain them.
const DENIED: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Files that no Cargo target reaches are never compiled.
pub(crate) fn check_orphans(sources: &[Source], manifests: &[(String, String)]) -> Vec<Finding> {
    let known: BTreeSet<&str> = sources.iter().map(|s| &*s.path).collect();
    let mut queue: Vec<String> = roots(&known, manifests);
    let mut reached = BTreeSet::new();
    while let Some(path) = queue.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let root = !manifests.is_empty() && is_root(&path, &known, manifests);
        if let Some(source) = sources.iter().find(|s| s.path == path) {
            queue.extend(children(source, root).into_iter().filter(|c| known.contains(&**c)));
        }
    }
    known
        .iter()
        .filter(|path| !reached.contains(**path))
        .map(|path| Finding::new(path, 1, "no Cargo target and no `mod` reaches it: delete it"))
        .collect()
}

fn is_root(path: &str, known: &BTreeSet<&str>, manifests: &[(String, String)]) -> bool {
    roots(known, manifests).iter().any(|root| root == path)
}

/// The root files of Cargo targets: by their location, or by a `path` in the manifest.
fn roots(known: &BTreeSet<&str>, manifests: &[(String, String)]) -> Vec<String> {
    let mut roots = Vec::new();
    for (manifest, text) in manifests {
        let folder = manifest.trim_end_matches("Cargo.toml");
        for line in text.lines() {
            if let Some(value) = line.trim().strip_prefix("path") {
                let value = value.trim_start_matches([' ', '=']).trim_matches('"');
                roots.push(resolve(folder, value));
            }
        }
        for path in known.iter().filter_map(|path| path.strip_prefix(folder)) {
            let parts: Vec<&str> = path.split('/').collect();
            let by_place = matches!(
                parts[..],
                ["build.rs"]
                    | ["src", "lib.rs" | "main.rs"]
                    | ["src", "bin", _]
                    | ["src", "bin", _, "main.rs"]
                    | ["tests" | "benches" | "examples", _]
                    | ["tests" | "benches" | "examples", _, "main.rs"]
            );
            if by_place {
                roots.push(format!("{folder}{path}"));
            }
        }
    }
    roots
}

/// Where the modules that a file declares may be.
fn children(source: &Source, root: bool) -> Vec<String> {
    let (folder, name) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let stem = name.trim_end_matches(".rs");
    let inside =
        if root || name == "mod.rs" { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut found = Vec::new();
    let raw: Vec<&str> = source.text.lines().collect();
    for (at, line) in source.code.lines().enumerate() {
        let Some(module) = declared(line) else {
            continue;
        };
        let attributes = raw[..at].iter().rev().take_while(|l| l.trim().starts_with("#["));
        let given = attributes.filter_map(|l| l.trim().strip_prefix("#[path = \""));
        match given.filter_map(|l| l.split('"').next()).next() {
            Some(path) => found.push(resolve(folder, path)),
            None => {
                found.push(format!("{inside}/{module}.rs"));
                found.push(format!("{inside}/{module}/mod.rs"));
            }
        }
    }
    found
}

/// The module of a line `mod name;`, with any visibility.
fn declared(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    let visibility = before.trim();
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name.trim())
}

/// Lines of Rust: limited length, no tabs, no trailing blanks, a newline at the end of the file.
pub(crate) fn check_lines(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let mut add = |line, what: &str| findings.push(Finding::new(&source.path, line, what));
        // A table that rustfmt skips may be as wide as its rows.
        let mut table = false;
        for (number, line) in (1..).zip(source.text.split('\n')) {
            table = line == "#[rustfmt::skip]" || table && !line.starts_with([']', '}']);
            // An address cannot be broken.
            if line.chars().count() > LINE_MAX && !table && !line.contains("https://") {
                add(number, "longer than 100 characters: break it");
            }
            if line.contains('\t') {
                add(number, "a tab: use spaces, or \\t in a literal");
            }
            if line.ends_with([' ', '\r']) {
                add(number, "ends in a blank: remove it");
            }
        }
        if !source.text.ends_with('\n') {
            add(source.text.lines().count(), "no line end at the end of the file");
        }
    }
    findings
}

/// Machine-specific words in any text of the tree; `texts` are (path, text).
pub(crate) fn check_denied(texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in texts {
        for (number, line) in (1..).zip(text.lines()) {
            for word in DENIED.iter().filter(|word| line.contains(**word)) {
                let what =
                    format!("`{word}` is a path of one machine: say it relative to the root");
                findings.push(Finding::new(path, number, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn orphans(files: &[(&str, &str)], manifest: &str) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(p, t)| Source::new(p, t)).collect();
        let manifests = [("io/Cargo.toml".to_owned(), manifest.to_owned())];
        let found = check_orphans(&sources, &manifests);
        found.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn check_orphans__a_file_without_mod_fires() {
        let files = [
            ("io/src/lib.rs", "pub mod a;\n// mod gone;\n"),
            ("io/src/a.rs", "pub(crate) mod b;\n#[cfg(test)]\nmod tests;\n"),
            ("io/src/a/b.rs", ""),
            ("io/src/a/tests.rs", ""),
            ("io/src/gone.rs", ""),
            ("io/src/b.rs", ""),
        ];
        assert_eq!(orphans(&files, ""), ["io/src/b.rs", "io/src/gone.rs"]);
    }

    #[test]
    fn check_orphans__knows_targets_mod_rs_and_given_paths() {
        let files = [
            ("io/src/main.rs", "mod a;\n"),
            ("io/src/a/mod.rs", "mod b;\n"),
            ("io/src/a/b.rs", ""),
            ("io/tests/e2e.rs", "mod support;\n#[path = \"odd/x.rs\"]\nmod x;\n"),
            ("io/tests/support/mod.rs", ""),
            ("io/tests/odd/x.rs", "#[path = \"../../away.rs\"]\nmod up;\n"),
            ("io/away.rs", ""),
            ("io/tests/big/main.rs", "mod part;\n"),
            ("io/tests/big/part.rs", ""),
            ("io/far.rs", "mod near;\n"),
            ("io/near.rs", ""),
            ("io/lost.rs", ""),
            ("out/main.rs", ""),
        ];
        let manifest = "[[test]]\nname = \"far\"\npath = \"far.rs\"\npath = \"../out/main.rs\"\n";
        assert_eq!(orphans(&files, manifest), ["io/lost.rs"]);
    }

    #[test]
    fn check_lines__long_lines_tabs_blanks_and_a_missing_end_fire() {
        let of = |text: &str| messages(&check_lines(&[Source::new("io/src/a.rs", text)]));
        let long = "x".repeat(101);
        assert!(of(&format!("\n{long}\n"))[0].starts_with("io/src/a.rs:2: longer"));
        assert!(of("\ta\n")[0].contains("tab"));
        assert!(of("a \n")[0].contains("blank"));
        assert!(of("a")[0].contains("line end"));
        let fine = format!("{}\n// https://{long}\n", "\u{e9}".repeat(100));
        assert_eq!(of(&fine), [] as [&str; 0]);
        let table = format!("#[rustfmt::skip]\nconst T: X = [\n{long}\n];\n");
        assert_eq!(of(&table), [] as [&str; 0]);
        assert_eq!(of(&format!("{table}{long}\n")).len(), 1);
    }

    #[test]
    fn check_denied__a_path_of_one_machine_fires() {
        let of = |text: &str| check_denied(&[("README.md".to_owned(), text.to_owned())]).len();
        assert_eq!(of(&format!("cd {}main\n", DENIED[0])), 1);
        assert_eq!(of(&format!("\n{}x and {}y\n", DENIED[0], DENIED[1])), 2);
        assert_eq!(of("the work of a root\n"), 0);
    }
}
