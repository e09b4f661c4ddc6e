//! Files and functions named in docs/ARCHITECTURE.md must exist.

use crate::Finding;
use crate::scan::{Source, has_word, is_word};

/// The checked document.
pub(crate) const MAP: &str = "docs/ARCHITECTURE.md";
/// The head of a table of files; the first cell of each row names some, in backticks.
const TABLE_HEAD: &str = "| file in ";

/// Three forms are checked: a path `crate/src/file.rs` anywhere; `crate/src/file.rs  name:`, a
/// step of a walk by a function or type of that file; and the rows of a table
/// `| file in crate/src | .. |`.
pub(crate) fn check(document: &str, sources: &[Source]) -> Vec<Finding> {
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    let mut findings = Vec::new();
    let mut add = |line, what: String| findings.push(Finding::new(MAP, line, what));
    let mut folder: Option<&str> = None;
    for (number, line) in (1..).zip(document.lines()) {
        for (path, after) in paths(line) {
            let Some(source) = find(path) else {
                add(number, format!("there is no {path}: say where it went"));
                continue;
            };
            if let Some(name) = step(after)
                && !source.functions().iter().any(|f| f.name == name)
                && !source.code_lines(true).any(|(_, code)| is_type(code, name))
            {
                add(number, format!("{path} has no `{name}`: mend the walk"));
            }
        }
        if let Some(head) = line.strip_prefix(TABLE_HEAD) {
            folder = head.split(' ').next();
        } else if !line.starts_with('|') {
            folder = None;
        } else if let Some(folder) = folder {
            let cell = line.split('|').nth(1).unwrap_or_default();
            for missing in rows(folder, cell, sources) {
                add(number, format!("there is no {missing}: mend the table"));
            }
        }
    }
    findings
}

/// Each path `crate/src/..rs` of a line, and the text after it.
fn paths(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || "_/.-".contains(c);
    line.match_indices("/src/").filter_map(move |(at, _)| {
        let start = line[..at].rfind(|c| !part(c)).map_or(0, |before| before + 1);
        let rest = &line[start..];
        let len = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let path = rest[..len].trim_start_matches("../");
        path.ends_with(".rs").then_some((path, &rest[len..]))
    })
}

/// `name` of `  name: ..` or `  Type::name: ..`.
fn step(after: &str) -> Option<&str> {
    let rest = after.strip_prefix(' ')?.trim_start();
    let len = rest.bytes().position(|b| !is_word(b) && b != b':').unwrap_or(rest.len());
    rest[..len].strip_suffix(':')?.rsplit(':').next().filter(|name| !name.is_empty())
}

/// True if a type of this name is declared in the line.
fn is_type(code: &str, name: &str) -> bool {
    ["struct", "enum", "trait"].iter().any(|kind| has_word(code, &format!("{kind} {name}")))
}

/// Files named in a cell that do not exist. A file without a folder is beside the preceding one, if
/// it exists there; `x/*` is a folder with files.
fn rows(folder: &str, cell: &str, sources: &[Source]) -> Vec<String> {
    let exists = |path: &str| match path.strip_suffix('*') {
        Some(prefix) => sources.iter().any(|source| source.path.starts_with(prefix)),
        None => sources.iter().any(|source| source.path == path),
    };
    let mut beside = String::new();
    let mut missing = Vec::new();
    for name in cell.split('`').skip(1).step_by(2) {
        let path = format!("{folder}/{name}");
        if !exists(&path) && !exists(&format!("{folder}/{beside}{name}")) {
            missing.push(path);
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            beside = format!("{parent}/");
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn of(document: &str) -> Vec<String> {
        let source = |path, text| Source::new(path, text);
        let sources = [
            source("io/src/driver.rs", "pub struct Driver {}\nfn step() {\n}\n"),
            source("io/src/xdp/open.rs", ""),
            source("io/src/xdp/umem.rs", ""),
        ];
        messages(&check(document, &sources))
    }

    #[test]
    fn check__files_and_functions_that_are_not_there_fire() {
        assert_eq!(
            of("io/src/driver.rs  step: x\nio/src/driver.rs  stop: x, [y](../io/src/gone.rs)\n"),
            [
                "docs/ARCHITECTURE.md:2: io/src/driver.rs has no `stop`: mend the walk",
                "docs/ARCHITECTURE.md:2: there is no io/src/gone.rs: say where it went",
            ]
        );
        let fine = "io/src/driver.rs passes it on; io/src is a folder\n\
                    io/src/driver.rs  Driver: x\nio/src/driver.rs   Driver::step: x\n\
                    io/src/driver.rs  Node::stop (y)\n";
        assert_eq!(of(fine), [] as [&str; 0]);
    }

    #[test]
    fn check__rows_of_tables_are_files() {
        let table = "| file in io/src | owns |\n|---|---|\n";
        let fine = "| `driver.rs`, `xdp/open.rs`, `umem.rs`; `xdp/*` | `gone.rs` |\n";
        assert_eq!(of(&format!("{table}{fine}")), [] as [&str; 0]);
        let found = of(&format!("{table}| `umem.rs` | x |\n| `pipe/*` | y |\n\n| `z.rs` | |\n"));
        assert_eq!(
            found,
            [
                "docs/ARCHITECTURE.md:3: there is no io/src/umem.rs: mend the table",
                "docs/ARCHITECTURE.md:4: there is no io/src/pipe/*: mend the table",
            ]
        );
    }
}
