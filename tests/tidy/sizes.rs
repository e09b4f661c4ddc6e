//! Size limits of files and functions; existing exceptions may only shrink.

use crate::Finding;
use crate::scan::Source;
use std::collections::BTreeMap;

/// Lines of a file above its test module.
const FILE_MAX: usize = 400;
/// Lines of a test module at the bottom of a file; above it, it moves to `x/tests.rs`.
const INLINE_TESTS_MAX: usize = 300;
/// Lines of a file of tests.
const TEST_FILE_MAX: usize = 800;
/// Lines between the braces of a function that ships.
const FUNCTION_MAX: usize = 70;
/// All crates depend on `base`, so it must not collect unrelated code.
const BASE_MAX: usize = 800;

/// The list of exceptions.
pub(crate) const RATCHET: &str = "tests/tidy/ratchet.txt";

/// An item larger than its cap: a name (`path`, `path#tests`, `path#function`, `base/`), where it
/// is, its lines and the cap.
struct Oversize {
    name: String,
    line: usize,
    lines: usize,
    cap: usize,
}

/// `ratchet` has a line `name:lines` for each exception; `#` at the start of a line comments.
pub(crate) fn check(sources: &[Source], ratchet: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = BTreeMap::new();
    for (number, entry) in (1..).zip(ratchet.lines()) {
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        let parsed = entry
            .rsplit_once(':')
            .and_then(|(name, lines)| Some((name, lines.parse::<usize>().ok()?)));
        match parsed {
            Some((name, lines)) => {
                listed.insert(name, (number, lines));
            }
            None => findings.push(Finding::new(RATCHET, number, "not `name:lines`")),
        }
    }
    for over in oversizes(sources) {
        let path = over.name.split('#').next().unwrap_or_default();
        let (lines, cap) = (over.lines, over.cap);
        match listed.remove(&*over.name) {
            Some((_, allowed)) if allowed == lines => {}
            Some((number, allowed)) if allowed > lines => {
                let what = format!("{} has {lines} lines now: tighten the ratchet", over.name);
                findings.push(Finding::new(RATCHET, number, what));
            }
            Some((_, allowed)) => {
                let what = format!(
                    "{} grew from {allowed} to {lines} lines (cap {cap}): split it",
                    over.name
                );
                findings.push(Finding::new(path, over.line, what));
            }
            None => {
                let what = format!("{} has {lines} lines, cap {cap}: split it", over.name);
                findings.push(Finding::new(path, over.line, what));
            }
        }
    }
    for (name, (number, _)) in listed {
        let what = format!("{name} is within its cap or gone: remove the line");
        findings.push(Finding::new(RATCHET, number, what));
    }
    findings
}

fn oversizes(sources: &[Source]) -> Vec<Oversize> {
    let mut all = Vec::new();
    let mut add = |name: String, line: usize, lines: usize, cap: usize| {
        if lines > cap {
            let over = Oversize { name, line, lines, cap };
            all.push(over);
        }
    };
    let mut base = 0;
    for source in sources {
        let total = source.text.lines().count();
        let path = &source.path;
        if source.is_test_file() {
            add(path.clone(), 1, total, TEST_FILE_MAX);
            continue;
        }
        base += usize::from(source.krate() == "base") * source.body_lines;
        add(path.clone(), 1, source.body_lines, FILE_MAX);
        let tests = total - source.body_lines;
        let at = source.body_lines + 1;
        add(format!("{path}#tests"), at, tests, INLINE_TESTS_MAX);
        for function in source.functions() {
            if function.line <= source.body_lines {
                let name = format!("{path}#{}", function.name);
                add(name, function.line, function.lines, FUNCTION_MAX);
            }
        }
    }
    add("base/".to_owned(), 1, base, BASE_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn file(path: &str, lines: usize) -> Source {
        Source::new(path, &"// a line\n".repeat(lines))
    }

    #[test]
    fn check__a_long_file_fires() {
        let long = [file("io/src/a.rs", 401), file("io/src/b.rs", 400)];
        assert_eq!(
            messages(&check(&long, "")),
            ["io/src/a.rs:1: io/src/a.rs has 401 lines, cap 400: split it"]
        );
        assert_eq!(check(&[file("io/src/a/tests.rs", 800)], ""), []);
        assert_eq!(check(&[file("io/src/a/tests.rs", 801)], "").len(), 1);
    }

    #[test]
    fn check__long_tests_at_the_bottom_fire() {
        let text = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(300));
        let found = messages(&check(&[Source::new("io/src/a.rs", &text)], ""));
        assert!(found[0].contains("io/src/a.rs#tests has 303 lines"), "{found:?}");
    }

    #[test]
    fn check__a_long_function_fires_unless_it_is_a_test() {
        let function = |n| format!("fn long() {{\n{}}}\n", "    x();\n".repeat(n));
        let source = |text: &str| [Source::new("io/src/a.rs", text)];
        assert_eq!(check(&source(&function(70)), ""), []);
        assert_eq!(
            messages(&check(&source(&format!("\n{}", function(71))), "")),
            ["io/src/a.rs:2: io/src/a.rs#long has 71 lines, cap 70: split it"]
        );
        let test = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(71));
        assert_eq!(check(&source(&test), ""), []);
    }

    #[test]
    fn check__base_has_a_cap_of_its_own() {
        let files = [file("base/src/a.rs", 400), file("base/src/b.rs", 399)];
        assert_eq!(check(&files, ""), []);
        let files = [file("base/src/a.rs", 400), file("base/src/b.rs", 400)];
        assert_eq!(check(&files, ""), []);
        let files = ["a", "b", "c"].map(|n| file(&format!("base/src/{n}.rs"), 300));
        assert_eq!(check(&files, "").len(), 1);
    }

    #[test]
    fn check__the_ratchet_only_tightens() {
        let long = [file("io/src/a.rs", 500)];
        assert_eq!(check(&long, "# why\n\nio/src/a.rs:500\n"), []);
        assert_eq!(
            messages(&check(&long, "io/src/a.rs:501\n")),
            ["tests/tidy/ratchet.txt:1: io/src/a.rs has 500 lines now: tighten the ratchet"]
        );
        assert_eq!(
            messages(&check(&long, "io/src/a.rs:499\n")),
            ["io/src/a.rs:1: io/src/a.rs grew from 499 to 500 lines (cap 400): split it"]
        );
        assert_eq!(
            messages(&check(&[], "\nio/src/a.rs:500\n")),
            ["tests/tidy/ratchet.txt:2: io/src/a.rs is within its cap or gone: remove the line"]
        );
        assert_eq!(
            messages(&check(&[], "io/src/a.rs\n")),
            ["tests/tidy/ratchet.txt:1: not `name:lines`"]
        );
    }
}
