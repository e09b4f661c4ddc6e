//! The page of a paper: Markdown with figures.

use spanwire_plot::{AxisSpec, Group, LineFigure, Quantity, Series, Shape, ViolinFigure};
use spanwire_sim::rows::{self, Figure, Paper, Results, Row, RowReport, Run, number};
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
        if let Some(svg) = row.figure.as_ref().and_then(|figure| draw(figure, row, results).ok()) {
            let name = format!("{}-{}.svg", paper.name, row.id);
            fs::write(dir.join(&name), svg)?;
            figures.push((row.id, name));
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
    let command = format!("spanwire sim reproduce --paper {}", paper.name);
    let _ = writeln!(
        out,
        "Written by `{command}`: edit the rows, not this page.\n\n\
         | row | paper | bar | metric | median | least | most | seeds | verdict |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for r in reports {
        let values = r.ours.map_or([None; 3], |o| [o.median, o.min, o.max].map(Some));
        let values = values.map(|v| v.map_or_else(|| "-".to_owned(), number)).join(" | ");
        let (n, verdict) = (r.ours.map_or(0, |o| o.n), r.verdict_text());
        // A cell is one line.
        let cell = |text: &str| text.replace('|', "\\|");
        let texts = [r.id, r.source, &r.bar, &r.metric].map(cell);
        let _ = writeln!(out, "| {} | {values} | {n} | {verdict} |", texts.join(" | "));
    }
    out.push_str(VERDICTS);
    for report in reports {
        write_row(&mut out, report, figures);
    }
    out
}

fn write_row(out: &mut String, r: &RowReport, figures: &[(&str, String)]) {
    let _ = writeln!(out, "\n## {}: {}\n", r.id, r.source);
    let _ = writeln!(out, "{}\n", wrapped(&format!("Claim: {}", r.claim)));
    for (name, text) in [("Scale", r.scale), ("Why", r.why), ("Error", r.error.as_deref())] {
        if let Some(text) = text {
            let _ = writeln!(out, "{}\n", wrapped(&format!("{name}: {text}")));
        }
    }
    for c in &r.checks {
        let verdict = if c.ok { "holds" } else { "does not hold" };
        let [median, min, max] = [c.ours.median, c.ours.min, c.ours.max].map(number);
        let ours = format!("- {verdict}: {}. Ours {median} ({min} to {max})", c.check);
        let _ = writeln!(out, "{}", wrapped(&ours));
    }
    for (_, file) in figures.iter().filter(|(id, _)| *id == r.id) {
        let _ = writeln!(out, "\n![{}: {}]({file})", r.id, r.metric);
    }
    let _ = writeln!(out, "\n```sh\n{}\n```", r.commands.join("\n"));
}

/// The figure of a row.
fn draw(figure: &Figure, row: &Row, results: &Results) -> Result<String, String> {
    let subtitle = format!("{}, {}", row.id, row.source);
    let axis = |label: &str| AxisSpec::linear(label, Quantity::Number);
    match figure {
        Figure::Violins { title, groups, reading } => {
            let group = |(name, run): &(&str, Run)| -> Result<Group, String> {
                let seeds = results.of(run)?.iter().map(|seed| reading.of(seed));
                let values: Vec<Vec<f64>> = seeds.collect::<Result<_, _>>()?;
                Ok(Group { name: (*name).to_owned(), values: values.concat() })
            };
            let groups = groups.iter().map(group).collect::<Result<_, _>>()?;
            let label = format!("{} {}", reading.name, reading.unit);
            let (title, y) = ((*title).to_owned(), axis(label.trim_end()));
            Ok(ViolinFigure { title, subtitle, y, groups }.to_svg())
        }
        Figure::Lines { title, axes, x, lines } => {
            let line = |(name, at): &(String, Vec<rows::Quantity>)| -> Result<Series, String> {
                let medians = at.iter().map(|quantity| quantity.median(results));
                let points = medians.collect::<Result<Vec<f64>, _>>()?;
                Ok(Series { name: name.clone(), points: x.iter().copied().zip(points).collect() })
            };
            let series = lines.iter().map(line).collect::<Result<_, _>>()?;
            let axes = axes.map(axis);
            Ok(LineFigure::new(*title, subtitle, axes, Shape::Line, series).to_svg())
        }
    }
}

/// Breaks a paragraph into lines of at most [`COLUMNS`] columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let n = word.chars().count();
        if column > 0 && column + 1 + n > COLUMNS {
            out.push('\n');
            column = 0;
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
The median, the least and the most are over the seeds. A bar holds for medians. `met`: the bar is
met. `scaled`: it is met by an experiment smaller than the paper's. `missed`: it is not met.
`refuted`: it is not met, and the result contradicts the claim.
";

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_sim::rows::{SeedResult, ratio, reading, value};

    /// A row of two runs at three seeds, which misses by one of its checks.
    fn paper() -> (Paper, Results) {
        let delay = reading("delay", "us", |seed| seed.mean_us);
        let [low, high] = ["low", "high"].map(|load| Run::of("pair", 3).set("load", load));
        let violins = Figure::Violins {
            title: "Delay",
            groups: vec![("low", low.clone()), ("high", high.clone())],
            reading: delay.clone(),
        };
        let at = [&low, &high].map(|run| value(run, &delay)).to_vec();
        let lines = Figure::Lines {
            title: "Delay",
            axes: ["load", "us"],
            x: vec![1.0, 2.0],
            lines: vec![("by load".to_owned(), at)],
        };
        let row = Row { source: "Fig. 1", claim: "more load, more delay", ..Row::default() };
        let checks =
            vec![ratio(&low, &high, &delay).at_most(1.0), value(&high, &delay).at_most(1.0)];
        let first = Row { id: "X-1", why: "the queue is long", checks, ..row.clone() };
        let checks = vec![value(&low, &delay).at_least(0.0)];
        let second = Row { id: "X-2", checks, figure: Some(violins), ..row };
        let first = Row { figure: Some(lines), ..first };
        let rows = vec![first, second];
        let seeds = |run: &Run, delays: [f64; 3]| {
            let of = |us| SeedResult { mean_us: Some(us), ..SeedResult::default() };
            (run.command_line(None), delays.map(of).to_vec())
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
            "| X-1 | Fig. 1 | delay, low over high: at most 1; delay, high: at most 1 us | \
             delay, low over high | 0.286 | 0.200 | 0.462 | 3 | missed |",
            "| X-2 | Fig. 1 | delay, low: at least 0 us | delay, low, us | 2 | 1 | 3 | 3 | met |",
            "Why: the queue is long\n",
            "- holds: delay, low over high: at most 1. Ours 0.286 (0.200 to 0.462)\n\
             - does not hold: delay, high: at most 1 us. Ours 6.500 (5 to 7)\n",
            "![X-1: delay, low over high](x-X-1.svg)",
            "spanwire sim run pair --set load=low --seeds 3 --json\n",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        for row in ["X-1", "X-2"] {
            let svg = fs::read_to_string(dir.join(format!("x-{row}.svg"))).expect("it is there");
            assert!(roxmltree::Document::parse(&svg).is_ok() && svg.contains("Delay"), "{row}");
        }
        let figure = paper.rows[0].figure.as_ref().expect("it has one");
        assert!(draw(figure, &paper.rows[0], &Results::default()).is_err());
        fs::remove_dir_all(&dir).expect("it was created");
    }

    #[test]
    fn wrapped__breaks_at_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(wrapped("a\n  b"), "a b");
    }
}
