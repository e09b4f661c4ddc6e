//! Documents: links have existing targets, lines are short, decisions are numbered and listed.

use crate::Finding;
use crate::refs::prose;
use std::collections::BTreeSet;

/// Relative links in Markdown; `exists` is true for an existing path from the root of the
/// workspace.
pub(crate) fn check_links(
    texts: &[(String, String)],
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(text) {
            for target in targets(line) {
                let file = target.split('#').next().unwrap_or_default();
                let elsewhere = file.contains("://") || file.starts_with("mailto:");
                if !file.is_empty() && !elsewhere && !exists(&resolve(folder, file)) {
                    let what = format!("the link to {file} leads nowhere: mend it");
                    findings.push(Finding::new(path, number, what));
                }
            }
        }
    }
    findings
}

/// The targets of the links `[..](target)` of a line, except those in `code`.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](")
        .filter(|(at, _)| line[..*at].matches('`').count().is_multiple_of(2))
        .filter_map(|(at, _)| line[at + 2..].split([')', ' ']).next())
}

const LINE_MAX: usize = 100;

/// Documents that tests parse line by line, so their lines may have any length.
const READ_BY_LINE: &[&str] = &["tests/golden/rxe/captures.md"];

/// Lines of Markdown have at most 100 characters, except rows of tables, fenced code, and a line
/// that is one word (an address, a link's end).
pub(crate) fn check_widths(texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let documents = texts.iter().filter(|(path, _)| path.ends_with(".md"));
    for (path, text) in documents.filter(|(path, _)| !READ_BY_LINE.contains(&&**path)) {
        for (number, line) in prose(text) {
            let free = line.trim_start().starts_with('|') || !line.trim().contains(' ');
            if line.chars().count() > LINE_MAX && !free {
                let what = "longer than 100 characters: break it";
                findings.push(Finding::new(path, number, what));
            }
        }
    }
    findings
}

/// `file` as seen from `folder`, without `.` and `..`.
pub(crate) fn resolve(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Where decision records are.
pub(crate) const DECISIONS: &str = "docs/decisions";

/// Decision records: `NNNN-title.md`, each number once, each in the list.
pub(crate) fn check_decisions(names: &[String], readme: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbers = BTreeSet::new();
    for name in names.iter().filter(|name| *name != "README.md") {
        let path = format!("{DECISIONS}/{name}");
        let mut add = |what: String| findings.push(Finding::new(&path, 1, what));
        let Some(number) = record_number(name) else {
            add("not named NNNN-title.md (small letters, digits, hyphens)".to_owned());
            continue;
        };
        if !numbers.insert(number) {
            add(format!("the number {number} is taken: use the next one"));
        }
        if !readme.is_some_and(|text| text.contains(&format!("({name})"))) {
            add(format!("not listed in {DECISIONS}/README.md: add [title]({name})"));
        }
    }
    findings
}

fn record_number(name: &str) -> Option<&str> {
    let (number, title) = name.strip_suffix(".md")?.split_once('-')?;
    let digits = number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit());
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    (digits && !title.is_empty() && title.bytes().all(plain)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn links(path: &str, text: &str) -> Vec<String> {
        let texts = [(path.to_owned(), text.to_owned())];
        messages(&check_links(&texts, |path| {
            matches!(path, "README.md" | "docs/A.md" | "docs" | "io/src/lib.rs")
        }))
    }

    #[test]
    fn check_links__a_dead_one_fires() {
        let found = links("docs/A.md", "[a](A.md)\nsee [b](B.md#part) and [c](../gone.md)\n");
        let nowhere = "leads nowhere: mend it";
        assert_eq!(
            found,
            [
                format!("docs/A.md:2: the link to B.md {nowhere}"),
                format!("docs/A.md:2: the link to ../gone.md {nowhere}"),
            ]
        );
    }

    #[test]
    fn check_links__live_ones_addresses_and_code_pass() {
        let text = "[a](../README.md) [b](#part) [c](https://x.org/y) ![d](./A.md \"title\")\n\
                    [e](../io/src/lib.rs) [f](../docs/) `[g](gone.md)` [h](mailto:a@b)\n\
                    ```\n[i](gone.md)\n```\n";
        assert_eq!(links("docs/A.md", text), [] as [&str; 0]);
        assert_eq!(links("docs/a.txt", "[a](gone.md)"), [] as [&str; 0]);
    }

    #[test]
    fn check_widths__a_long_line_of_prose_fires() {
        let of = |path: &str, line: &str| {
            check_widths(&[(path.to_owned(), format!("short\n{line}\n"))]).len()
        };
        let long = "word ".repeat(21);
        assert_eq!(of("docs/A.md", &long), 1);
        assert_eq!(of("docs/A.md", &format!("- {long}")), 1);
        assert_eq!(of("docs/A.md", &"\u{e9} ".repeat(50)), 0, "characters, not bytes");
        assert_eq!(of("docs/A.md", &format!("| {long} |")), 0);
        assert_eq!(of("docs/A.md", &format!("```sh\n{long}\n```")), 0);
        assert_eq!(of("docs/A.md", &format!("  entry](a.md#{})", "x".repeat(100))), 0);
        assert_eq!(of(READ_BY_LINE[0], &long), 0);
        assert_eq!(of("docs/a.txt", &long), 0);
    }

    #[test]
    fn check_decisions__names_numbers_and_the_list_are_checked() {
        let names = ["0001-time.md", "0001-again.md", "0002_Bad.md", "README.md"];
        let names = names.map(str::to_owned);
        let readme = "[time](0001-time.md)\n[again](0001-again.md)\n";
        let found = messages(&check_decisions(&names, Some(readme)));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("0001-again.md:1: the number 0001 is taken"));
        assert!(found[1].contains("0002_Bad.md:1: not named"));
        let found = messages(&check_decisions(&names[..1], None));
        assert!(found[0].contains("not listed"));
        assert_eq!(check_decisions(&names[..1], Some(readme)), []);
    }
}
