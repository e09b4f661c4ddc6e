//! Rules of style and structure as tests, so that reviews need not repeat them.
//!
//! Each rule reads the whole tree, reports all violations with file, line and fix, and has a test
//! on a bad sample that proves that it fires. They use the standard library only and take about a
//! second.
#![forbid(unsafe_code)]
#![expect(non_snake_case, reason = "tests are named function__case")]

#[path = "tidy/bans.rs"]
mod bans;
#[path = "tidy/clauses.rs"]
mod clauses;
#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/deps.rs"]
mod deps;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/language.rs"]
mod language;
#[path = "tidy/refs.rs"]
mod refs;
#[path = "tidy/scan.rs"]
mod scan;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/walk.rs"]
mod walk;

use files::{root, sources, texts};
use std::fmt;
use std::fs;

/// One violation.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    path: String,
    /// From 1.
    line: usize,
    /// The violation and its fix.
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn messages(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(Finding::to_string).collect()
}

#[track_caller]
fn report(mut findings: Vec<Finding>) {
    findings.sort();
    let count = findings.len();
    let list = messages(&findings).join("\n");
    assert!(count == 0, "{count} to mend:\n{list}\n");
}

/// The manifest of each crate.
fn manifests() -> Vec<(String, String)> {
    let mut all = texts().to_vec();
    all.retain(|(path, _)| path.ends_with("/Cargo.toml"));
    all
}

#[test]
fn tidy__files_and_functions_are_small() {
    let ratchet = fs::read_to_string(root().join(sizes::RATCHET)).expect("the ratchet is there");
    report(sizes::check(sources(), &ratchet));
}

#[test]
fn tidy__dependencies_point_down() {
    report(deps::check(&manifests()));
}

#[test]
fn tidy__architecture_says_the_dependencies() {
    let document = fs::read_to_string(root().join(deps::ARCHITECTURE)).expect("it is there");
    report(deps::check_table(&document));
}

#[test]
fn tidy__architecture_leads_through_code_that_exists() {
    let document = fs::read_to_string(root().join(walk::MAP)).expect("it is there");
    report(walk::check(&document, sources()));
}

#[test]
fn tidy__import_cycles_only_shrink() {
    let ratchet = fs::read_to_string(root().join(cycles::RATCHET)).expect("the ratchet is there");
    report(cycles::check(sources(), &ratchet));
}

#[test]
fn tidy__only_the_queue_pair_knows_its_engine() {
    report(cycles::check_engine(sources()));
}

#[test]
fn tidy__nothing_banned_is_called() {
    report(bans::check_words(sources()));
}

#[test]
fn tidy__crates_forbid_unsafe_code() {
    report(bans::check_forbid(sources()));
}

#[test]
fn tidy__todos_have_issues() {
    report(bans::check_todos(sources()));
}

#[test]
fn tidy__every_file_is_compiled() {
    report(tree::check_orphans(sources(), &manifests()));
}

#[test]
fn tidy__lines_are_clean() {
    report(tree::check_lines(sources()));
}

#[test]
fn tidy__no_path_of_one_machine() {
    report(tree::check_denied(texts()));
}

#[test]
fn tidy__rules_of_others_are_cited_where_they_are() {
    let document = fs::read_to_string(root().join(clauses::DOCUMENT)).expect("it is there");
    report(clauses::check_cited(&document, sources()));
    report(clauses::check_form(sources()));
}

/// `SPANWIRE_BLESS=1` writes the counts of today, if their sum has not grown.
#[test]
fn tidy__private_language_only_shrinks() {
    let path = root().join(language::RATCHET);
    let ratchet = fs::read_to_string(&path).expect("the ratchet is there");
    if std::env::var_os("SPANWIRE_BLESS").is_some()
        && let Some(tightened) = language::tightened(texts(), sources(), &ratchet)
    {
        fs::write(&path, tightened).expect("the ratchet can be written");
        return;
    }
    report(language::check(texts(), sources(), &ratchet));
}

#[test]
fn tidy__links_lead_somewhere() {
    let root = root();
    report(docs::check_links(texts(), |path| root.join(path).exists()));
}

#[test]
fn tidy__anchors_and_references_lead_to_sections() {
    report(refs::check_anchors(texts()));
    report(refs::check_references(texts(), sources()));
}

#[test]
fn tidy__documents_have_lines_of_100_columns() {
    report(docs::check_widths(texts()));
}

#[test]
fn tidy__decisions_are_numbered_and_listed() {
    let folder = root().join(docs::DECISIONS);
    let mut names: Vec<String> = fs::read_dir(&folder)
        .map(|entries| entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    names.sort();
    let readme = fs::read_to_string(folder.join("README.md")).ok();
    report(docs::check_decisions(&names, readme.as_deref()));
}
