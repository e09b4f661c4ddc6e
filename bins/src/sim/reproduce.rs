//! `spanwire sim reproduce`: the experiments of papers, with their claims as bars.
//!
//! A paper is a file of data (`reproduce/papers/NAME.toml`); a further paper is a further file and
//! a line in [`PAPERS`]. [`expression`] is the language of its metrics and bars.

mod cache;
mod expression;
mod page;
mod paper;
mod path;
mod runner;
mod verdict;

use super::args::ReproduceArgs;
use super::prepare::cannot_write;
use crate::exit::Exit;
use crate::report::print_report;
use cache::Cache;
use paper::{Paper, Quick, Row, Run};
use runner::Outcome;
use spanwire_host::fabric::Error;
use spanwire_host::file;
use spanwire_host::text::unknown;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use verdict::{Reproduction, RowReport};

/// Runs the selected rows of the selected papers.
///
/// # Returns
/// 1 if a row without a known reason misses, or a checker fails.
pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    let papers = selected(args)?;
    let (reproduction, outcomes) = reproduce(args, &papers);
    for (paper, outcome) in papers.iter().zip(&outcomes) {
        let Some(dir) = pages_dir(args) else { break };
        let rows: Vec<&RowReport> =
            reproduction.rows.iter().filter(|row| row.paper == paper.name).collect();
        let write = || page::write(&dir, paper, &rows, outcome);
        write().map_err(|e| cannot_write(&dir, &e))?;
    }
    print_report(args.json, &reproduction, Reproduction::to_text)?;
    let ok = reproduction.unexplained.is_empty() && reproduction.checkers_ok;
    Ok(if ok { Exit::Success } else { Exit::Failure })
}

/// The selected papers, with the selected rows.
fn selected(args: &ReproduceArgs) -> Result<Vec<Paper>, Error> {
    let names = || PAPERS.iter().map(|(name, _)| *name);
    if let Some(wrong) = args.paper.iter().find(|name| !names().any(|known| known == *name)) {
        return Err(unknown("paper", wrong, names()).into());
    }
    let mut papers = Vec::new();
    let mut ids = Vec::new();
    for (name, text) in PAPERS {
        if !args.paper.is_empty() && !args.paper.iter().any(|wanted| wanted == name) {
            continue;
        }
        let mut paper = Paper::parse(text, args.quick).map_err(|e| format!("{name}: {e}"))?;
        ids.extend(paper.rows.iter().map(|row| row.id.clone()));
        let is_wanted = |row: &Row| {
            let is_named = args.row.is_empty() || args.row.contains(&row.id);
            is_named && !(args.quick && row.quick == Quick::Skip)
        };
        paper.rows.retain(is_wanted);
        papers.push(paper);
    }
    if let Some(wrong) = args.row.iter().find(|row| !ids.contains(row)) {
        return Err(unknown("row", wrong, ids.iter().map(String::as_str)).into());
    }
    papers.retain(|paper| !paper.rows.is_empty());
    if papers.is_empty() {
        return Err("no row is selected: those without a small form do not run with --quick".into());
    }
    Ok(papers)
}

/// Runs and evaluates the rows of `papers`; also the results of each paper's runs.
fn reproduce(args: &ReproduceArgs, papers: &[Paper]) -> (Reproduction, Vec<Outcome>) {
    let started = Instant::now();
    let cache = open_cache(args);
    let (mut rows, mut outcomes) = (Vec::new(), Vec::new());
    for paper in papers {
        let needed = |name: &String| paper.rows.iter().any(|row| row.runs().contains(name));
        let runs: BTreeMap<&str, &Run> = paper
            .runs
            .iter()
            .filter(|(name, _)| needed(name))
            .map(|(name, run)| (name.as_str(), run))
            .collect();
        let outcome = runner::run_all(&runs, &cache, !args.json);
        let row = |row: &Row| RowReport::new(paper, row, &outcome, args.quick);
        rows.extend(paper.rows.iter().map(row));
        outcomes.push(outcome);
    }
    let unexplained = rows.iter().filter(|row| row.is_unexplained()).map(|row| row.id.clone());
    let violations: Vec<String> = outcomes.iter().flat_map(|o| o.violations.clone()).collect();
    let reproduction = Reproduction {
        quick: args.quick,
        unexplained: unexplained.collect(),
        rows,
        checkers_ok: violations.is_empty(),
        violations,
        runs: outcomes.iter().map(|o| o.runs).sum(),
        cached: outcomes.iter().map(|o| o.cached).sum(),
        wall_s: started.elapsed().as_secs_f64(),
    };
    (reproduction, outcomes)
}

fn open_cache(args: &ReproduceArgs) -> Cache {
    let root = args.cache.clone().or_else(cache::default_root).filter(|_| !args.no_cache);
    let program =
        std::env::current_exe().and_then(|path| file::read(&path, "programs", 1 << 30)).ok();
    root.zip(program).map_or_else(Cache::none, |(root, program)| Cache::new(&root, &program))
}

/// The directory of the pages, if they are to be written: a part of a paper's rows, or small runs,
/// must not replace a page unless the caller says so.
fn pages_dir(args: &ReproduceArgs) -> Option<PathBuf> {
    let is_whole = args.row.is_empty() && !args.quick && Path::new(DOCS).is_dir();
    args.out.clone().or_else(|| is_whole.then(|| Path::new(DOCS).join("reproduction")))
}

/// The papers: name and file.
const PAPERS: [(&str, &str); 4] = [
    ("uno", include_str!("reproduce/papers/uno.toml")),
    ("pacc", include_str!("reproduce/papers/pacc.toml")),
    ("reflex", include_str!("reproduce/papers/reflex.toml")),
    ("mlcc", include_str!("reproduce/papers/mlcc.toml")),
];
const DOCS: &str = "docs";

#[cfg(test)]
mod tests {
    use super::*;

    fn args(paper: &[&str], row: &[&str]) -> ReproduceArgs {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ReproduceArgs {
            paper: owned(paper),
            row: owned(row),
            quick: true,
            json: true,
            out: None,
            cache: None,
            no_cache: true,
        }
    }

    #[test]
    fn selected__every_paper_is_valid_at_both_scales() {
        for quick in [false, true] {
            let all = ReproduceArgs { quick, ..args(&[], &[]) };
            let papers = selected(&all).expect("the files are valid");
            let names: Vec<&str> = papers.iter().map(|paper| paper.name.as_str()).collect();
            assert_eq!(names, PAPERS.map(|(name, _)| name));
        }
        let full = ReproduceArgs { quick: false, ..args(&[], &[]) };
        let rows = |at: usize| selected(&full).expect("the files are valid")[at].rows.len();
        assert_eq!([rows(1), rows(2)], [10, 12]);
    }

    #[test]
    fn selected__rejects_unknown_papers_and_rows() {
        let error = |paper: &[&str], row: &[&str]| {
            selected(&args(paper, row)).expect_err("it does not exist").to_string()
        };
        assert!(error(&["umo"], &[]).contains("uno"));
        assert!(error(&["uno"], &["P-1"]).contains("U-11"));
    }

    #[test]
    fn reproduce__a_row_of_uno() {
        let args = args(&["uno"], &["U-11"]);
        let papers = selected(&args).expect("it exists");
        let (r, _) = reproduce(&args, &papers);
        let json = serde_json::to_value(&r).expect("it is plain data");
        let row = &json["rows"][0];
        assert_eq!((&row["id"], &row["verdict"]), (&"U-11".into(), &"scaled".into()), "{row}");
        assert!(row["ours"]["min"].as_f64() <= row["ours"]["median"].as_f64(), "{row}");
        assert!(row["commands"][0].as_str().is_some_and(|c| c.contains("uno-fig13a")), "{row}");
        assert_eq!((r.cached, json["checkers_ok"].as_bool()), (0, Some(true)));
    }
}
