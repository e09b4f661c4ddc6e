//! `spanwire sim reproduce`: the rows of papers ([`spanwire_sim::rows`]), run and written to pages.

mod figure;
mod index;
mod page;
mod plan;
mod runner;
mod verify;

use super::args::ReproduceArgs;
use super::prepare::cannot_write;
use super::report::write_checks;
use super::shard::print_part;
use super::store::{self, Store, cannot_store};
use crate::exit::Exit;
use crate::output::print_error;
use crate::report::print_report;
use runner::Outcome;
use serde::Serialize;
use spanwire_host::fabric::Error;
use spanwire_host::text::unknown;
use spanwire_sim::rows::{Paper, Quick, Row, RowReport, number, papers};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The JSON object of `spanwire sim reproduce --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Reproduction {
    /// The runs are smaller than the rows' and give no result.
    quick: bool,
    rows: Vec<RowReport>,
    /// Rows that missed their bar, or could not be evaluated, without a known reason.
    unexplained: Vec<&'static str>,
    /// No checker failed.
    checkers_ok: bool,
    /// Violations that the checkers found.
    violations: Vec<String>,
    /// Runs of one seed.
    runs: usize,
}

/// Runs the selected rows of the selected papers, or a shard of their runs; or prints the plan.
///
/// # Returns
/// 1 if a row without a known reason misses, a checker fails, or a result is not repeated.
pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    let papers = selected(args)?;
    let runs = papers.iter().flat_map(|paper| &paper.rows).flat_map(Row::runs).collect();
    let (mut units, is_part) = (plan::units(&runs, args.quick), args.shard.is_some());
    if let Some(shard) = args.shard {
        units = shard.part(units);
    }
    if args.plan {
        print_report(args.json, &plan::lines(&units), |lines| plan::to_text(lines))?;
        return Ok(Exit::Success);
    }
    let store = open_store(args)?;
    if let Some(count) = args.verify {
        return verify::run(&units, &store, count, args.json);
    }
    let started = Instant::now();
    let outcome = runner::run_all(units, &store, !args.json).map_err(|e| cannot_store(&e))?;
    let wall = started.elapsed().as_secs_f64();
    let (run, stored) = (outcome.runs - outcome.stored, outcome.stored);
    print_error(&format!("{run} runs and {stored} stored results in {wall:.1} s"));
    if is_part {
        let errors: Vec<String> = outcome.results.errors.into_values().collect();
        return print_part(args.json, outcome.runs, &outcome.violations, &errors);
    }
    let reproduction = reproduce(args, &papers, &outcome);
    for paper in &papers {
        let Some(dir) = pages_dir(args) else { break };
        let rows: Vec<&RowReport> =
            reproduction.rows.iter().filter(|row| row.paper == paper.name).collect();
        let write = || page::write(&dir, paper, &rows, &outcome.results);
        write().map_err(|e| cannot_write(&dir, &e))?;
    }
    if let Some(dir) = pages_dir(args).filter(|_| args.all && args.paper.is_empty()) {
        index::write(&dir, &papers, &reproduction.rows).map_err(|e| cannot_write(&dir, &e))?;
    }
    print_report(args.json, &reproduction, Reproduction::to_text)?;
    let ok = reproduction.unexplained.is_empty() && reproduction.checkers_ok;
    Ok(if ok { Exit::Success } else { Exit::Failure })
}

/// The selected papers, with the selected rows.
fn selected(args: &ReproduceArgs) -> Result<Vec<Paper>, Error> {
    let mut papers = papers();
    let names: Vec<&str> = papers.iter().map(|paper| paper.name).collect();
    if let Some(wrong) = args.paper.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(unknown("paper", wrong, names).into());
    }
    papers.retain(|paper| args.paper.is_empty() || args.paper.iter().any(|own| own == paper.name));
    let ids: Vec<&str> = papers.iter().flat_map(|paper| &paper.rows).map(|row| row.id).collect();
    if let Some(wrong) = args.row.iter().find(|row| !ids.contains(&row.as_str())) {
        return Err(unknown("row", wrong, ids).into());
    }
    let is_wanted = |row: &Row| {
        let is_named = args.row.is_empty() || args.row.iter().any(|own| own == row.id);
        is_named && !(args.quick && row.quick == Quick::Skip)
    };
    for paper in &mut papers {
        paper.rows.retain(is_wanted);
        // A row that is named runs if it can, and so does its small form.
        let is_chosen = args.quick || args.all || !args.row.is_empty();
        let runs = |row: &&mut Row| !row.checks.is_empty() && is_chosen;
        paper.rows.iter_mut().filter(runs).for_each(|row| row.not_run = "");
    }
    papers.retain(|paper| !paper.rows.is_empty());
    if papers.is_empty() {
        return Err("no row is selected: those without a small form do not run with --quick".into());
    }
    Ok(papers)
}

/// Evaluates the rows of `papers`.
fn reproduce(args: &ReproduceArgs, papers: &[Paper], outcome: &Outcome) -> Reproduction {
    let report =
        |paper: &'static str| move |row: &Row| row.report(paper, &outcome.results, args.quick);
    let rows: Vec<RowReport> =
        papers.iter().flat_map(|paper| paper.rows.iter().map(report(paper.name))).collect();
    let unexplained = rows.iter().filter(|row| row.is_unexplained()).map(|row| row.id);
    Reproduction {
        quick: args.quick,
        unexplained: unexplained.collect(),
        rows,
        checkers_ok: outcome.violations.is_empty(),
        violations: outcome.violations.clone(),
        runs: outcome.runs,
    }
}

fn open_store(args: &ReproduceArgs) -> Result<Store, Error> {
    if args.store.is_some() || args.no_store {
        return Store::of(args.store.as_deref());
    }
    // Without it runs are repeated next time; nothing else is lost.
    let default = store::default_dir().and_then(|dir| Store::open(&dir).ok());
    Ok(default.filter(Store::is_writable).unwrap_or_else(Store::none))
}

/// The directory of the pages, if they are to be written: a part of a paper's rows, or small runs,
/// must not replace a page unless the caller says so.
fn pages_dir(args: &ReproduceArgs) -> Option<PathBuf> {
    let is_whole = args.row.is_empty() && !args.quick && Path::new(DOCS).is_dir();
    args.out.clone().or_else(|| is_whole.then(|| Path::new(DOCS).join("reproduction")))
}

const DOCS: &str = "docs";

impl Reproduction {
    /// The rows as a table.
    fn to_text(&self) -> String {
        // Writing to a String cannot fail, here and below.
        let mut out = format!(
            "{:<7} {:<8} {:>10} {:>10} {:>10} {:>3}  metric\n",
            "row", "verdict", "median", "min", "max", "n"
        );
        for row in &self.rows {
            let [median, min, max] =
                row.ours.map_or([None; 3], |o| [o.median, o.min, o.max].map(Some));
            let [median, min, max] = [median, min, max].map(|n| n.map_or("-".to_owned(), number));
            let (n, verdict) = (row.ours.map_or(0, |o| o.n), row.verdict_text());
            let _ = writeln!(
                out,
                "{:<7} {verdict:<8} {median:>10} {min:>10} {max:>10} {n:>3}  {}",
                row.id, row.metric
            );
        }
        for row in &self.rows {
            let why = row.error.as_deref().into_iter().chain(row.why);
            why.for_each(|why| _ = writeln!(out, "{}: {why}", row.id));
            let missed = row.checks.iter().filter(|check| !check.ok);
            missed.for_each(|c| _ = writeln!(out, "{}: does not hold: {}", row.id, c.check));
        }
        if self.quick {
            out.push_str("--quick: small runs, which are a check and no result\n");
        }
        write_checks(&mut out, &self.violations, usize::MAX);
        out
    }
}

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
            all: false,
            plan: false,
            shard: None,
            verify: None,
            store: None,
            no_store: true,
        }
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
        let units = plan::units(&papers[0].rows[0].runs(), true);
        let outcome = runner::run_all(units, &Store::none(), false).expect("it stores nothing");
        let r = reproduce(&args, &papers, &outcome);
        let json = serde_json::to_value(&r).expect("it is plain data");
        let row = &json["rows"][0];
        assert_eq!((&row["id"], &row["verdict"]), (&"U-11".into(), &"scaled".into()), "{row}");
        assert!(row["ours"]["min"].as_f64() <= row["ours"]["median"].as_f64(), "{row}");
        assert!(row["commands"][0].as_str().is_some_and(|c| c.contains("uno-fig13a")), "{row}");
        assert_eq!((outcome.stored, json["checkers_ok"].as_bool()), (0, Some(true)));
    }
}
