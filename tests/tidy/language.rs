//! Patterns of private language, counted for each crate; a count may only fall.
//!
//! CONTRIBUTING.md has the rules and the glossary. This test detects a small part of the
//! violations.

use crate::Finding;
use crate::refs::prose;
use crate::scan::Source;
use crate::scan::has_word;
use std::collections::BTreeMap;

/// Counts today.
pub(crate) const RATCHET: &str = "tests/tidy/language.txt";

/// Forbidden beginnings of doc comments: the first word should be the noun of the item.
const BEGINNINGS: &[&str] = &["What ", "Who "];
/// Words that hide the subject of a sentence or personify packets.
const WORDS: &[&str] = &["nobody", "whoever", "somebody", "weather", "told"];
/// Documents that keep their words: dated entries and past releases.
const AS_WRITTEN: &[&str] = &["docs/perf/", "CHANGELOG.md"];

/// One place: path, line, the pattern.
type Place<'a> = (&'a str, usize, &'static str);

/// Holds the counts of comments and documents against `ratchet`, with a line `crate:count` for each
/// crate or folder that has any; `#` at the start of a line comments.
pub(crate) fn check(texts: &[(String, String)], sources: &[Source], ratchet: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut allowed: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (number, entry) in (1..).zip(ratchet.lines()) {
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        match entry.split_once(':').and_then(|(name, n)| Some((name, n.parse().ok()?))) {
            Some((name, count)) => drop(allowed.insert(name, (number, count))),
            None => findings.push(Finding::new(RATCHET, number, "not `crate:count`")),
        }
    }
    for (name, places) in counts(texts, sources) {
        let (number, count) = allowed.remove(name).unwrap_or((1, 0));
        let found = places.len();
        if found < count {
            let what = format!("{name} has {found} of {count} now: tighten the ratchet");
            findings.push(Finding::new(RATCHET, number, what));
        } else if found > count {
            let what = format!(
                "{name} has {found} of at most {count} patterns of private language ({}): name \
                 the mechanism by its term (CONTRIBUTING.md, \"Language\")",
                examples(&places)
            );
            findings.push(Finding::new(places[0].0, places[0].1, what));
        }
    }
    for (name, (number, _)) in allowed {
        let what = format!("{name} has none left or is gone: remove the line");
        findings.push(Finding::new(RATCHET, number, what));
    }
    findings
}

/// The ratchet with the counts of today, or `None` if their sum has grown. Counts may move between
/// crates, as code does.
pub(crate) fn tightened(
    texts: &[(String, String)],
    sources: &[Source],
    ratchet: &str,
) -> Option<String> {
    let (comments, entries): (Vec<&str>, Vec<&str>) =
        ratchet.lines().partition(|line| line.starts_with('#'));
    let allowed = entries.iter().filter_map(|entry| entry.split_once(':')?.1.parse::<usize>().ok());
    let counts = counts(texts, sources);
    let found: usize = counts.values().map(Vec::len).sum();
    let lines = comments.into_iter().map(str::to_owned);
    let lines = lines.chain(counts.iter().map(|(name, places)| format!("{name}:{}", places.len())));
    (found <= allowed.sum()).then(|| lines.map(|line| line + "\n").collect())
}

/// The last places of a list, because new lines are often at the end of a file.
fn examples(places: &[Place<'_>]) -> String {
    let last = places.iter().rev().take(3).rev();
    let shown: Vec<String> =
        last.map(|(path, line, pattern)| format!("{path}:{line} `{}`", pattern.trim())).collect();
    shown.join(", ")
}

/// All places in comments and documents, by the first part of their path.
fn counts<'a>(
    texts: &'a [(String, String)],
    sources: &'a [Source],
) -> BTreeMap<&'a str, Vec<Place<'a>>> {
    let mut found: BTreeMap<&str, Vec<Place<'_>>> = BTreeMap::new();
    let mut add = |path: &'a str, line, pattern| {
        let name = path.split('/').next().unwrap_or_default();
        found.entry(name).or_default().push((path, line, pattern));
    };
    for source in sources {
        for (number, line) in (1..).zip(source.comments.lines()) {
            patterns(line, &mut |pattern| add(&source.path, number, pattern));
        }
    }
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        if AS_WRITTEN.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        for (number, line) in prose(text) {
            words(line, &mut |pattern| add(path, number, pattern));
        }
    }
    found
}

fn patterns(comment: &str, add: &mut impl FnMut(&'static str)) {
    let comment = comment.trim_start();
    let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
    if let Some(doc) = doc.map(str::trim_start) {
        for beginning in BEGINNINGS.iter().filter(|beginning| doc.starts_with(**beginning)) {
            add(beginning);
        }
    }
    words(comment, add);
}

/// Words outside backticks.
fn words(line: &str, add: &mut impl FnMut(&'static str)) {
    let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    for word in WORDS.iter().filter(|word| has_word(&plain, word)) {
        add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn rust(path: &str, text: &str) -> Vec<Source> {
        let is_rust = path.ends_with(".rs");
        is_rust.then(|| Source::new(path, text)).into_iter().collect()
    }

    fn of(path: &str, text: &str, ratchet: &str) -> Vec<String> {
        let texts = [(path.to_owned(), text.to_owned())];
        messages(&check(&texts, &rust(path, text), ratchet))
    }

    fn count(path: &str, text: &str) -> usize {
        let texts = [(path.to_owned(), text.to_owned())];
        counts(&texts, &rust(path, text)).values().map(Vec::len).sum()
    }

    #[test]
    fn counts__each_pattern_is_seen_in_comments() {
        for bad in [
            "/// What an ACK says.",
            "//! Who sends.",
            "// Nobody waits.",
            "/* whoever asks */",
            "let x = 1; // for somebody",
            "/// The weather.",
            "    // The sender is told.",
        ] {
            assert_eq!(count("io/src/a.rs", bad), 1, "{bad}");
        }
        assert_eq!(count("docs/A.md", "whoever is told\n"), 2);
        assert_eq!(count("README.md", "Nobody.\n"), 1);
    }

    #[test]
    fn counts__code_literals_quotes_and_fences_are_not_language() {
        for fine in [
            "let told = \"nobody\";",
            "// What follows is a comment of code",
            "/// Somewhat whatever: a retold tale of `told` and `nobody`.",
        ] {
            assert_eq!(count("io/src/a.rs", fine), 0, "{fine}");
        }
        assert_eq!(count("docs/A.md", "What is this?\n```\nnobody\n```\nuse `told`\n"), 0);
        assert_eq!(count("docs/perf/2026-11.md", "nobody was told\n"), 0);
        assert_eq!(count("CHANGELOG.md", "nobody was told\n"), 0);
        assert_eq!(count("io/a.py", "# nobody"), 0);
    }

    #[test]
    fn check__a_count_may_only_fall() {
        let text = "/// What it is.\nfn a() {}\n// nobody\n";
        assert_eq!(of("io/src/a.rs", text, "# why\nio:2\n"), [] as [&str; 0]);
        let found = of("io/src/a.rs", text, "io:1\n");
        assert_eq!(
            found,
            ["io/src/a.rs:1: io has 2 of at most 1 patterns of private language (io/src/a.rs:1 \
              `What`, io/src/a.rs:3 `nobody`): name the mechanism by its term (CONTRIBUTING.md, \
              \"Language\")"]
        );
        assert_eq!(of("io/src/a.rs", text, "").len(), 1);
        let found = of("io/src/a.rs", text, "\nio:3\n");
        assert_eq!(found, ["tests/tidy/language.txt:2: io has 2 of 3 now: tighten the ratchet"]);
        let found = of("io/src/a.rs", "", "io:3\nx\n");
        assert_eq!(
            found,
            [
                "tests/tidy/language.txt:2: not `crate:count`",
                "tests/tidy/language.txt:1: io has none left or is gone: remove the line",
            ]
        );
    }

    #[test]
    fn tightened__writes_lower_counts_only() {
        let sources = [Source::new("io/src/a.rs", "// nobody\n")];
        let of = |ratchet| tightened(&[], &sources, ratchet);
        assert_eq!(of("# why\nio:3\nwire:1\n").as_deref(), Some("# why\nio:1\n"));
        assert_eq!(of("bins:1\n").as_deref(), Some("io:1\n"), "code moves");
        assert_eq!(of("# why\n"), None);
    }
}
