//! Anchors of links between documents, and references to documents in comments.

use crate::Finding;
use crate::docs::{resolve, targets};
use crate::scan::Source;
use std::collections::BTreeMap;

/// Links with an anchor, `[..](file.md#anchor)` and `[..](#anchor)`: the heading must exist.
pub(crate) fn check_anchors(texts: &[(String, String)]) -> Vec<Finding> {
    let documents = documents(texts);
    let anchors: BTreeMap<&str, Vec<String>> =
        documents.iter().map(|(path, text)| (*path, anchors(text))).collect();
    let mut findings = Vec::new();
    for (path, text) in &documents {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(text) {
            for (file, anchor) in targets(line).filter_map(|target| target.split_once('#')) {
                let file = if file.is_empty() { (*path).to_owned() } else { resolve(folder, file) };
                let found = anchors.get(&*file).is_none_or(|list| list.iter().any(|a| a == anchor));
                if !found {
                    let what = format!("{file} has no heading #{anchor}: mend the link");
                    findings.push(Finding::new(path, number, what));
                }
            }
        }
    }
    findings
}

/// References in comments, a path below `docs` alone or with a `, "Section"`: the document must
/// exist, and the section must be a heading of it or the text of a link in it (an index).
pub(crate) fn check_references(texts: &[(String, String)], sources: &[Source]) -> Vec<Finding> {
    let documents = documents(texts);
    let mut findings = Vec::new();
    let rust = sources.iter().map(|source| (&source.path, &source.comments));
    let others = texts.iter().filter(|(path, _)| {
        let extension = path.rsplit_once('.').map(|(_, extension)| extension);
        matches!(extension, Some("py" | "c" | "h" | "lua" | "sh" | "toml"))
    });
    for (path, comments) in rust.chain(others.map(|(path, text)| (path, text))) {
        let flat = Flat::new(comments);
        for reference in flat.references() {
            let number = reference.line;
            let mut add = |what| findings.push(Finding::new(path, number, what));
            let named = &reference.document;
            let Some(document) = documents.get(&**named) else {
                let record = texts.iter().any(|(path, _)| path.starts_with(named));
                if named.ends_with(".md") || !record {
                    add(format!("there is no {named}: mend the reference"));
                }
                continue;
            };
            if let Some(section) = reference.section.filter(|s| !has_section(document, s)) {
                add(format!("{named} has no section \"{section}\": mend the reference"));
            }
        }
    }
    findings
}

fn documents(texts: &[(String, String)]) -> BTreeMap<&str, &str> {
    let markdown = texts.iter().filter(|(path, _)| path.ends_with(".md"));
    markdown.map(|(path, text)| (&**path, &**text)).collect()
}

/// The lines of a document outside fenced code, with their numbers.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| line.trim_start_matches('#').trim())
}

/// The anchors of a document's headings, as GitHub makes them: a repeated one is numbered.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for heading in headings(text) {
        let plain = slug(heading);
        let count = seen.entry(plain.clone()).or_default();
        found.push(if *count == 0 { plain } else { format!("{plain}-{count}") });
        *count += 1;
    }
    found
}

/// Lower-case letters, digits, `-` and `_`; a blank becomes a hyphen, anything else is dropped.
fn slug(heading: &str) -> String {
    let keep = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.chars().filter_map(keep).collect()
}

fn has_section(document: &str, section: &str) -> bool {
    headings(document).any(|heading| heading.replace('`', "") == section.replace('`', ""))
        || document.contains(&format!("[{section}]("))
}

/// One mention of a document.
struct Reference {
    line: usize,
    document: String,
    section: Option<String>,
}

/// Comments joined to one line, without their markers, so that a reference may be broken anywhere.
struct Flat {
    text: String,
    /// Where each line begins in the text.
    starts: Vec<usize>,
}

impl Flat {
    fn new(comments: &str) -> Self {
        let mut flat = Self { text: String::new(), starts: Vec::new() };
        for line in comments.lines() {
            flat.starts.push(flat.text.len());
            let line = line.trim_start_matches([' ', '/', '!', '*', '#', '-', ';']).trim_end();
            flat.text.push_str(line);
            flat.text.push(' ');
        }
        flat
    }

    fn references(&self) -> Vec<Reference> {
        let path_end = |c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c));
        let mut found = Vec::new();
        for (at, _) in self.text.match_indices("docs/") {
            if self.text[..at].ends_with(|c| !path_end(c)) {
                continue;
            }
            let rest = &self.text[at..];
            let path = &rest[..rest.find(path_end).unwrap_or(rest.len())];
            let document = path.trim_end_matches(['.', '-', '_']);
            let after = &rest[document.len()..];
            let after = after.trim_start_matches('`');
            let after = after.strip_prefix(',').unwrap_or(after).trim_start();
            let section = after.strip_prefix('"').and_then(|quoted| quoted.split('"').next());
            found.push(Reference {
                line: self.starts.partition_point(|start| *start <= at),
                document: document.to_owned(),
                section: section.map(str::to_owned),
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn texts(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn check_anchors__a_heading_that_is_not_there_fires() {
        let found = messages(&check_anchors(&texts(&[
            ("docs/a.md", "# A\n## The `x`, and y\n## B\n## B\n[1](#the-x-and-y) [2](#b-1)\n"),
            ("b.md", "[3](docs/a.md#b) [4](docs/a.md#c)\n[5](#d) [6](https://x.org/#e)\n"),
            ("c.md", "```\n# no heading\n[7](#x)\n```\n[8](#no-heading) [9](src/lib.rs#L1)\n"),
        ])));
        assert_eq!(
            found,
            [
                "b.md:1: docs/a.md has no heading #c: mend the link",
                "b.md:2: b.md has no heading #d: mend the link",
                "c.md:5: c.md has no heading #no-heading: mend the link",
            ]
        );
    }

    #[test]
    fn check_references__a_document_or_section_that_is_not_there_fires() {
        let texts = texts(&[
            ("docs/a.md", "# A\n## One of two\nand [Two](b.md#two)\n"),
            ("docs/decisions/0007-x.md", ""),
            (
                "io/src/a.rs",
                "//! See docs/a.md, \"One of\n//! two\", 4, `docs/a.md` \"Two\" and docs/gone.md.\n\
                 // (docs/a.md, \"Three\"); docs/decisions/0007; docs/decisions/0008\n\
                 let s = \"docs/gone.md\";\n",
            ),
            ("bench/a.py", "# docs/a.md\n# ../docs/gone.md is a path of another folder\n"),
            ("bench/b.py", "# docs/gone.md\n"),
        ]);
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let sources: Vec<Source> = rust.map(|(path, text)| Source::new(path, text)).collect();
        let found = messages(&check_references(&texts, &sources));
        assert_eq!(
            found,
            [
                "io/src/a.rs:2: there is no docs/gone.md: mend the reference",
                "io/src/a.rs:3: docs/a.md has no section \"Three\": mend the reference",
                "io/src/a.rs:3: there is no docs/decisions/0008: mend the reference",
                "bench/b.py:1: there is no docs/gone.md: mend the reference",
            ]
        );
    }
}
