//! The page of all papers: Markdown with a line for each row.

use super::page::{heading, shown, wrapped};
use spanwire_sim::rows::{Paper, Row, RowReport, Run, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Writes `index.md` into `dir`. The same results give the same bytes.
pub(super) fn write(dir: &Path, papers: &[Paper], rows: &[RowReport]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("index.md"), index(papers, rows))
}

fn index(papers: &[Paper], rows: &[RowReport]) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = format!("# Claims of the papers\n\n{}\n\n", wrapped(ABOUT));
    let heads = VERDICTS.map(Verdict::name).join(" | ");
    let _ = writeln!(out, "| paper | {heads} | hours |\n| --- |{} --- |", " --- |".repeat(5));
    for paper in papers {
        let of = |verdict| {
            let is_of = |row: &&RowReport| row.paper == paper.name && row.verdict == Some(verdict);
            rows.iter().filter(is_of).count().to_string()
        };
        let runs: BTreeMap<String, Run> = paper.rows.iter().flat_map(Row::runs).collect();
        let hours = seconds(&runs) / 3600.0;
        let counts = VERDICTS.map(of).join(" | ");
        let (title, name) = (paper.title, paper.name);
        let _ = writeln!(out, "| [{title}]({name}.md) | {counts} | {hours:.1} |");
    }
    for paper in papers {
        let _ = writeln!(
            out,
            "\n## {}\n\n| row | paper | claim | first check | ours | 95 % | seeds | verdict | \
             seconds | command |\n|{}",
            paper.title,
            " --- |".repeat(10)
        );
        for row in &paper.rows {
            let report = rows.iter().find(|own| own.id == row.id);
            report.iter().for_each(|report| line(&mut out, paper.name, row, report));
        }
    }
    out
}

fn line(out: &mut String, paper: &str, row: &Row, report: &RowReport) {
    let cell = |text: &str| text.replace('|', "\\|");
    let first = report.checks.first();
    let check = first.map_or_else(String::new, |check| cell(&check.check));
    let [ours, interval] = first.map_or(["-".to_owned(), "-".to_owned()], |c| shown(&c.ours));
    let seeds = report.ours.map_or(0, |ours| ours.n);
    let (mut name, mut picture, mut command) = (row.id.to_owned(), "", "-".to_owned());
    let figure = format!(" [figure]({paper}-{}.svg)", row.id);
    if first.is_some() {
        name = format!("[{}]({paper}.md#{})", row.id, anchor(&heading(report)));
        command = format!("`spanwire sim reproduce --row {}`", row.id);
        picture = if row.figures.is_empty() { "" } else { &figure };
    }
    let scale = if row.scale.is_empty() { String::new() } else { format!(" ({})", row.scale) };
    let _ = writeln!(
        out,
        "| {name}{picture} | {} | {}{scale} | {check} | {ours} | {interval} | {seeds} | {} | {:.0} \
         | {command} |",
        row.source,
        cell(row.claim),
        report.verdict_text(),
        seconds(&row.runs())
    );
}

/// The anchor of a heading, as renderers of Markdown make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "- _".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Seconds of runs on one core, about.
fn seconds(runs: &BTreeMap<String, Run>) -> f64 {
    let of = |run: &Run| f64::from(u32::try_from(run.seeds).unwrap_or(u32::MAX)) * run.seconds();
    // A sum of none would be -0.
    runs.values().map(of).fold(0.0, |sum, seconds| sum + seconds)
}

const VERDICTS: [Verdict; 5] =
    [Verdict::Met, Verdict::Scaled, Verdict::Missed, Verdict::Refuted, Verdict::NotRun];
const ABOUT: &str = "Written by `spanwire sim reproduce --all`. A row is a claim of a paper; its \
    page has all of its checks, the reasons of misses, choices of ours, figures and commands. \
    The last column repeats it. `met`: all checks hold. `scaled`: they hold, of \
    an experiment smaller than the paper's. `missed`: one does not. `refuted`: one does not, and \
    the result contradicts the claim. Ours is the median over the seeds of the first check, with \
    the 95 % interval. Seconds are of one core; rows that share runs count them each, papers once.";

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_sim::rows::{Results, papers};

    /// Without results every row that has checks is an error, and still has its line.
    #[test]
    fn index__has_a_line_for_each_row() {
        let papers = papers();
        let of = |paper: &Paper| -> Vec<RowReport> {
            let report = |row: &Row| row.report(paper.name, &Results::default(), false);
            paper.rows.iter().map(report).collect()
        };
        let rows: Vec<RowReport> = papers.iter().flat_map(of).collect();
        let page = index(&papers, &rows);
        for row in &rows {
            let begins = [format!("| {} |", row.id), format!("| {} [", row.id)];
            let is_of = |line: &&str| begins.iter().any(|begin| line.starts_with(begin));
            let lines: Vec<&str> = page.lines().filter(is_of).collect();
            assert_eq!(lines.len(), 1, "{}", row.id);
            let cells = lines[0].replace("\\|", "").matches('|').count();
            assert_eq!(cells, 11, "{}", lines[0]);
            assert!(lines[0].contains(row.verdict_text()), "{}", lines[0]);
        }
        assert_eq!(anchor("P-8: Figs. 7, 8"), "p-8-figs-7-8");
        assert!(page.lines().take(10).all(|line| line.len() <= 100), "{page}");
        assert!(page.contains("| [Uno: failures between data centres](uno.md) | 0 |"), "{page}");
    }
}
