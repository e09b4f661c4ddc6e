//! Import cycles between files, and the files that may match on the engine of a queue pair.

use crate::Finding;
use crate::imports::{Import, imports};
use crate::scan::{Source, has_word};
use std::collections::{BTreeMap, BTreeSet};

/// The existing cycles.
pub(crate) const RATCHET: &str = "tests/tidy/cycles.txt";

/// Import cycles: strongly connected components of the graph of files ([`imports`] defines an edge)
/// with more than one member. A parent may use its children; it is a cycle only if one of them uses
/// an item that the parent defines as well.
///
/// Every crate is checked. `ratchet` has a line for each known cycle: its files from the root of
/// the workspace, sorted, separated by blanks; `#` at the start of a line comments. A cycle may
/// only lose members, and its line must then be shortened.
pub(crate) fn check(sources: &[Source], ratchet: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let known = (1..).zip(ratchet.lines());
    let known = known.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut known: BTreeMap<&str, usize> = known.map(|(number, line)| (line, number)).collect();
    for folder in folders(sources) {
        let edges = imports(sources, &folder);
        for cycle in cycles(&edges) {
            let line = cycle.join(" ");
            if known.remove(&*line).is_some() {
                continue;
            }
            let members: BTreeSet<&str> = line.split(' ').collect();
            let larger = known.iter().find(|(known, _)| {
                let known: BTreeSet<&str> = known.split(' ').collect();
                members.is_subset(&known)
            });
            if let Some((_, number)) = larger {
                let what = format!("a cycle has shrunk: write `{line}` in its place");
                findings.push(Finding::new(RATCHET, *number, what));
                continue;
            }
            let edges = edges.iter().filter(|e| cycle.contains(&e.from) && cycle.contains(&e.to));
            let below = |path: &str| path[folder.len() + 1..].to_owned();
            let edges = edges.map(|e| format!("{}:{} > {}", below(&e.from), e.line, below(&e.to)));
            let what = format!(
                "import cycle `{line}`: move what both need into a file of its own ({})",
                edges.collect::<Vec<_>>().join(", ")
            );
            findings.push(Finding::new(&cycle[0], 1, what));
        }
    }
    for (line, number) in known {
        let what = format!("`{line}` is no cycle any more: remove the line, or write what is left");
        findings.push(Finding::new(RATCHET, number, what));
    }
    findings
}

/// `crate/src` of every crate. Nothing of the crate `tests` ships.
fn folders(sources: &[Source]) -> BTreeSet<String> {
    let shipped = sources.iter().filter(|s| !s.is_test_file());
    let inside = shipped.filter(|s| s.path[s.krate().len()..].starts_with("/src/"));
    inside.map(|s| format!("{}/src", s.krate())).collect()
}

/// The components with more than one member, each sorted.
fn cycles(edges: &[Import]) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for edge in edges {
        next.entry(&edge.from).or_default().insert(&edge.to);
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reachable(from, &next))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (from, reached) in &reach {
        if seen.contains(from) || !reached.contains(from) {
            continue;
        }
        let back = |to: &&&str| reach.get(**to).is_some_and(|list| list.contains(from));
        let cycle: BTreeSet<&str> = reached.iter().filter(back).copied().collect();
        seen.extend(cycle.iter().copied());
        found.push(cycle.into_iter().map(str::to_owned).collect());
    }
    found
}

/// Everything that can be reached in one step or more.
fn reachable<'a>(from: &str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(next.get(file).into_iter().flatten());
        }
    }
    found
}

/// Code that tests which engine a queue pair has.
const ENGINE_KIND: &[&str] = &["Engine::Rc", "Engine::Sr", "self.selective"];
/// The folder that may test it; all other code calls a method of the queue pair.
const ENGINE_HOME: &str = "transport/src/qp/";

/// No file outside the queue pair's folder matches on the kind of engine.
pub(crate) fn check_engine(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|s| s.krate() == "transport") {
        if source.path.starts_with(ENGINE_HOME) {
            continue;
        }
        for (number, line) in source.code_lines(true) {
            for word in ENGINE_KIND.iter().filter(|word| has_word(line, word)) {
                let what = format!("`{word}`: ask the queue pair by one method ({ENGINE_HOME})");
                findings.push(Finding::new(&source.path, number, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages;

    fn source(name: &str, text: &str) -> Source {
        Source::new(&format!("transport/src/{name}"), text)
    }

    fn three() -> [Source; 4] {
        [
            source("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            source("a.rs", "use crate::b::B;\npub struct A;\n"),
            source("b.rs", "use crate::c::C;\npub struct B;\n"),
            source("c.rs", "\nuse crate::a::A;\npub struct C;\n"),
        ]
    }

    /// The line of the ratchet for these files.
    fn known(names: &str) -> String {
        let paths = names.split(' ').map(|name| format!("transport/src/{name}.rs"));
        paths.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn check__a_cycle_fires_with_its_edges() {
        assert_eq!(
            messages(&check(&three(), "")),
            ["transport/src/a.rs:1: import cycle `transport/src/a.rs transport/src/b.rs \
                 transport/src/c.rs`: move what both need into a file of its own \
                 (a.rs:1 > b.rs, b.rs:1 > c.rs, c.rs:2 > a.rs)"]
        );
        assert_eq!(check(&three(), &format!("# why\n{}\n", known("a b c"))), []);
        let mut no_cycle = three();
        no_cycle[3] = source("c.rs", "pub struct C;\n");
        assert_eq!(check(&no_cycle, ""), []);
    }

    #[test]
    fn check__every_crate_is_checked_by_itself() {
        let pair = |krate: &str| {
            let file = |name: &str, text: &str| Source::new(&format!("{krate}/{name}"), text);
            [
                file("src/a.rs", "use crate::b::B;\npub struct A;\n"),
                file("src/b.rs", "use crate::a::A;\npub struct B;\n"),
                file("targets/c.rs", "use crate::d::D;\npub struct C;\n"),
                file("targets/d.rs", "use crate::c::C;\npub struct D;\n"),
            ]
        };
        let [io, sim] = [pair("io"), pair("sim")];
        let all: Vec<Source> = io.into_iter().chain(sim).chain(pair("tests")).collect();
        let found: Vec<String> = check(&all, "").into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["io/src/a.rs", "sim/src/a.rs"]);
        let apart = [
            Source::new("io/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            Source::new("sim/src/b.rs", "use crate::a::A;\npub struct B;\n"),
        ];
        assert_eq!(check(&apart, ""), []);
    }

    #[test]
    fn check__the_ratchet_only_shrinks() {
        let (more, now) = (known("a b c d"), known("a b c"));
        assert_eq!(
            messages(&check(&three(), &format!("{more}\n"))),
            [
                format!("tests/tidy/cycles.txt:1: a cycle has shrunk: write `{now}` in its place"),
                format!(
                    "tests/tidy/cycles.txt:1: `{more}` is no cycle any more: remove the line, or \
                     write what is left"
                ),
            ]
        );
        assert_eq!(check(&three(), &format!("{}\n", known("a b"))).len(), 2, "it has grown");
    }

    #[test]
    fn check__a_parent_may_use_its_children_unless_they_use_it() {
        let parent = source("a/mod.rs", "mod b;\nuse b::B;\npub struct A;\n");
        let alone = source("a/b.rs", "pub struct B;\n");
        let root = || source("lib.rs", "mod a;\n");
        assert_eq!(check(&[root(), parent, alone], ""), []);
        let parent = source("a/mod.rs", "mod b;\nuse b::B;\npub struct A;\n");
        let child = source("a/b.rs", "use super::A;\npub struct B;\n");
        let found = messages(&check(&[root(), parent, child], ""));
        assert!(
            found[0].contains("import cycle `transport/src/a/b.rs transport/src/a/mod.rs`"),
            "{found:?}"
        );
        let lends = source("a/mod.rs", "mod b;\npub use b::B;\npub struct A;\n");
        let child = source("a/b.rs", "use super::A;\npub struct B;\n");
        assert_eq!(check(&[root(), lends, child], ""), []);
    }

    #[test]
    fn check_engine__fires_outside_the_queue_pair() {
        let of = |name, text| check_engine(&[source(name, text)]).len();
        for bad in ["if self.selective.is_some() {}", "match e { Engine::Rc(_) => 1 }"] {
            assert_eq!(of("endpoint.rs", bad), 1, "{bad}");
            assert_eq!(of("qp/post.rs", bad), 0, "{bad}");
        }
        assert_eq!(of("endpoint.rs", "// self.selective\nlet x = self.selective_repeat;"), 0);
        assert_eq!(of("endpoint/tests.rs", "x(self.selective);"), 0);
    }
}
