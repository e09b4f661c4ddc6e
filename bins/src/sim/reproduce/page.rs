//! The page of a paper: Markdown with figures.

use super::figure::draw;
use spanwire_sim::rows::{CheckReport, Ours, Paper, Results, RowReport, Verdict, number};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Writes `PAPER.md` and the figures of its rows into `dir`. The same results give the same bytes.
pub(super) fn write(
    dir: &Path,
    paper: &Paper,
    reports: &[&RowReport],
    results: &Results,
) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut figures = Vec::new();
    for row in &paper.rows {
        for (figure, number) in row.figures.iter().zip(1..) {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            if let Ok(svg) = draw(figure, row, results) {
                let name = format!("{}-{}{number}.svg", paper.name, row.id);
                fs::write(dir.join(&name), svg)?;
                figures.push((row.id, name));
            }
        }
    }
    let page = page(paper, reports, &figures);
    fs::write(dir.join(format!("{}.md", paper.name)), page)
}

/// The page; `figures` are pairs of row and file.
fn page(paper: &Paper, reports: &[&RowReport], figures: &[(&str, String)]) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = format!("# {}\n\n", paper.title);
    if !paper.about.is_empty() {
        let _ = writeln!(out, "{}\n", wrapped(paper.about));
    }
    let command = format!("spanwire sim reproduce --all --paper {}", paper.name);
    let _ = writeln!(
        out,
        "Written by `{command}`: edit the rows, not this page.\n\n\
         | row | paper | first check | ours | 95 % | seeds | verdict |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    for r in reports {
        let first = r.checks.first();
        let check = first.map_or(r.claim, |check| &check.check).replace('|', "\\|");
        let [median, interval] = first.map_or(["-".to_owned(), "-".to_owned()], |c| shown(&c.ours));
        let (n, verdict) = (r.ours.map_or(0, |ours| ours.n), r.verdict_text());
        let _ = writeln!(
            out,
            "| {} | {} | {check} | {median} | {interval} | {n} | {verdict} |",
            r.id, r.source
        );
    }
    out.push_str(VERDICTS);
    let (absent, run): (Vec<&RowReport>, Vec<&RowReport>) =
        reports.iter().partition(|r| r.verdict == Some(Verdict::NotRun));
    for report in run {
        write_row(&mut out, report, figures);
    }
    if !absent.is_empty() {
        out.push_str("\n## Rows that did not run\n\n");
    }
    for r in absent {
        let why = r.why.unwrap_or_default();
        let line = format!("- {}, {}: {} {why}", r.id, r.source, r.claim);
        let _ = writeln!(out, "{}", wrapped(&line).replace('\n', "\n  "));
    }
    out
}

fn write_row(out: &mut String, r: &RowReport, figures: &[(&str, String)]) {
    let _ = writeln!(out, "\n## {}\n", heading(r));
    let _ = writeln!(out, "{}\n", wrapped(&format!("Claim: {}", r.claim)));
    for (name, text) in [("Scale", r.scale), ("Why", r.why), ("Error", r.error.as_deref())] {
        if let Some(text) = text {
            let _ = writeln!(out, "{}\n", wrapped(&format!("{name}: {text}")));
        }
    }
    write_checks(out, &r.checks);
    for (text, checks) in &r.choices {
        let _ = writeln!(out, "\n{}", wrapped(&format!("Choice: {text}")));
        if !checks.is_empty() {
            out.push('\n');
            write_checks(out, checks);
        }
    }
    for (_, file) in figures.iter().filter(|(id, _)| *id == r.id) {
        let _ = writeln!(out, "\n![{}, {}]({file})", r.id, r.source);
    }
    let _ = writeln!(out, "\n```sh\n{}\n```", r.commands.join("\n"));
}

/// The heading of a row.
pub(super) fn heading(r: &RowReport) -> String {
    format!("{}: {}", r.id, r.source)
}

fn write_checks(out: &mut String, checks: &[CheckReport]) {
    for c in checks {
        let verdict = if c.ok { "holds" } else { "does not hold" };
        let [median, interval] = shown(&c.ours);
        let interval = if interval == "-" { interval } else { format!("95 %: {interval}") };
        let line = format!("- {verdict}: {}. Ours: {median} ({interval})", c.check);
        let _ = writeln!(out, "{}", indented(&line.replace(" (-)", ""), "  "));
    }
}

/// The median, and its interval, or without one the least and the most; one value has none.
pub(super) fn shown(ours: &Ours) -> [String; 2] {
    let [least, most] = ours.band().map(number);
    let band = if ours.min == ours.max { "-".to_owned() } else { format!("{least} to {most}") };
    [number(ours.median), band]
}

/// Breaks a paragraph into lines of at most [`COLUMNS`] columns.
pub(super) fn wrapped(text: &str) -> String {
    indented(text, "")
}

/// The same, with all lines but the first indented.
fn indented(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let n = word.chars().count();
        if column > 0 && column + 1 + n > COLUMNS {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += n;
    }
    out
}

const COLUMNS: usize = 100;
const VERDICTS: &str = "
Ours is the median over the seeds. Schemes are compared seed by seed. 95 % is the interval of the
median by order statistics, of six seeds the least and the most; a quantity that the seed does not
change has none. A check holds if the median and its interval are within the bounds. `met`: all
checks hold. `scaled`: they hold, of an experiment smaller than the paper's. `missed`: one does not.
`refuted`: one does not, and the result contradicts the claim. Bars are medians with these
intervals; values over time are means of the seeds, in a band from the least to the most.
";

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_sim::rows::{Choice, Figure, Row, Run, SeedResult, ratio, reading, value};
    use spanwire_sim::{Trace, TraceUnit};

    /// A row of two runs at six seeds, which misses by one of its checks, and two others.
    fn paper() -> (Paper, Results) {
        let delay = reading("delay", "us", |seed| seed.mean_us);
        let [low, high] = ["low", "high"].map(|load| Run::of("pair", 6).set("load", load));
        let violins = Figure::Violins {
            title: "Delay",
            groups: vec![("low", low.clone()), ("high", high.clone())],
            reading: delay.clone(),
        };
        let at = [&low, &high].map(|run| value(run, &delay)).to_vec();
        let bars = Figure::Bars {
            title: "Delay",
            y: "us",
            groups: vec!["low".to_owned(), "high".to_owned()],
            bars: vec![("by load".to_owned(), at)],
        };
        let trace = (String::new(), low.clone(), "queue".to_owned());
        let (title, y, span) = ("Delay over time", "queue", [0.0, 1.0]);
        let over_time = Figure::OverTime { title, y, span, lines: vec![trace] };
        let row = Row { source: "Fig. 1", claim: "more load, more delay", ..Row::default() };
        let checks =
            vec![ratio(&low, &high, &delay).at_most(1.0), value(&high, &delay).at_most(1.0)];
        let first = Row { id: "X-1", why: "the queue is long", checks, ..row.clone() };
        let checks = vec![value(&low, &delay).at_least(0.0)];
        let second = Row { id: "X-2", checks, figures: vec![violins], ..row };
        let first = Row { figures: vec![bars, over_time], ..first };
        let more = Choice { text: "of load", checks: vec![value(&high, &delay).at_least(1.0)] };
        let second = Row { choices: vec![more], ..second };
        let none = Row { id: "X-3", source: "text", claim: "no delay", ..Row::default() };
        let rows = vec![first, second, Row { not_run: "no load", ..none }];
        let seeds = |run: &Run, delays: [f64; 3]| {
            let (name, unit, values) = ("queue".to_owned(), TraceUnit::Bytes, vec![1e3, 2e3, 2e3]);
            let queue = Trace { name, unit, from_us: 200.0, every_us: 700.0, values };
            let of = |us| SeedResult {
                mean_us: Some(us),
                over_time: vec![queue.clone()],
                ..SeedResult::default()
            };
            (run.command_line(None), [delays, delays].concat().into_iter().map(of).collect())
        };
        let all = [seeds(&low, [1.0, 2.0, 3.0]), seeds(&high, [5.0, 7.0, 6.5])];
        let results = Results { seeds: all.into(), ..Results::default() };
        (Paper { name: "x", title: "X: a paper", about: "A test.", rows }, results)
    }

    #[test]
    fn write__a_page_with_a_figure_for_each_row_that_has_one() {
        let dir = std::env::temp_dir().join(format!("spanwire-page-{}", std::process::id()));
        let (paper, results) = paper();
        let rows: Vec<RowReport> =
            paper.rows.iter().map(|row| row.report(paper.name, &results, false)).collect();
        write(&dir, &paper, &rows.iter().collect::<Vec<_>>(), &results).expect("it can be written");
        let page = fs::read_to_string(dir.join("x.md")).expect("it was written");
        for part in [
            "# X: a paper\n",
            "| X-1 | Fig. 1 | delay, low over high: at most 1 | 0.286 | 0.200 to 0.462 | 6 | \
             missed |",
            "| X-2 | Fig. 1 | delay, low: at least 0 us | 2 | 1 to 3 | 6 | met |",
            "| X-3 | text | no delay | - | - | 0 | not run |",
            "Why: the queue is long\n",
            "- holds: delay, low over high: at most 1. Ours: 0.286 (95 %: 0.200 to 0.462)\n\
             - does not hold: delay, high: at most 1 us. Ours: 6.500 (95 %: 5 to 7)\n",
            "\nChoice: of load\n\n- holds: delay, high: at least 1 us",
            "## Rows that did not run\n\n- X-3, text: no delay no load\n",
            "![X-1, Fig. 1](x-X-1.svg)\n\n![X-1, Fig. 1](x-X-1-2.svg)",
            "spanwire sim run pair --set load=low --seeds 6 --json\n",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        for (figure, axis) in [("X-1", "us"), ("X-1-2", "queue [kB]"), ("X-2", "delay us")] {
            let svg = fs::read_to_string(dir.join(format!("x-{figure}.svg"))).expect("it is there");
            let is_drawn = svg.contains("Delay") && svg.contains(axis);
            assert!(roxmltree::Document::parse(&svg).is_ok() && is_drawn, "{figure}: {svg}");
        }
        // A page without its results, or without what a figure is of, has no figure.
        let mut none = results.clone();
        none.seeds.values_mut().flatten().for_each(|seed| seed.over_time.clear());
        let [bars, over_time] = &paper.rows[0].figures[..] else { panic!("two figures") };
        assert!(draw(bars, &paper.rows[0], &Results::default()).is_err());
        assert!(draw(over_time, &paper.rows[0], &none).is_err());
        fs::remove_dir_all(&dir).expect("it was created");
    }

    #[test]
    fn wrapped__breaks_at_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(wrapped("a\n  b"), "a b");
        let text = indented(&"word ".repeat(50), "  ");
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
    }
}
