//! The page of a paper: Markdown with figures.

use super::expression::medians;
use super::paper::{Figure, Paper, Row};
use super::runner::Outcome;
use super::verdict::{RowReport, number};
use spanwire_plot::{AxisSpec, Group, LineFigure, Quantity, Series, Shape, ViolinFigure};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Writes `PAPER.md` and the figures of its rows into `dir`. The same results give the same bytes.
pub(super) fn write(
    dir: &Path,
    paper: &Paper,
    reports: &[&RowReport],
    outcome: &Outcome,
) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut figures = Vec::new();
    for row in &paper.rows {
        if let Some(svg) = row.figure.as_ref().and_then(|figure| draw(figure, row, outcome)) {
            let name = format!("{}-{}.svg", paper.name, row.id);
            fs::write(dir.join(&name), svg)?;
            figures.push((row.id.as_str(), name));
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
        let _ = writeln!(out, "{}\n", wrapped(&paper.about));
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
        let cell = |text: &String| text.replace('|', "\\|").replace('\n', " ");
        let texts = [&r.id, &r.source, &r.bar, &r.metric].map(cell);
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
    let _ = writeln!(out, "{}\n", wrapped(&format!("Bar: {}", r.bar)));
    for (name, text) in [("Scale", &r.scale), ("Why", &r.why), ("Error", &r.error)] {
        if let Some(text) = text {
            let _ = writeln!(out, "{}\n", wrapped(&format!("{name}: {text}")));
        }
    }
    for c in &r.checks {
        let verdict = if c.ok { "holds" } else { "does not hold" };
        let _ = writeln!(out, "{}", wrapped(&format!("- {verdict}: `{}`", c.check)));
    }
    for (_, file) in figures.iter().filter(|(id, _)| *id == r.id) {
        let _ = writeln!(out, "\n![{}: {}]({file})", r.id, r.metric);
    }
    let _ = writeln!(out, "\n```sh\n{}\n```", r.commands.join("\n"));
}

/// The figure of a row; `None` if a value is missing.
fn draw(figure: &Figure, row: &Row, outcome: &Outcome) -> Option<String> {
    let subtitle = format!("{}, {}", row.id, row.source);
    let axis = |label: &str| AxisSpec::linear(label, Quantity::Number);
    let mut values = Vec::new();
    for (name, expression) in &figure.series {
        values.push((name.clone(), expression.evaluate(&outcome.results).ok()?));
    }
    if figure.at.is_empty() {
        let group = |(name, lists): (String, Vec<Vec<f64>>)| Group { name, values: lists.concat() };
        let groups = values.into_iter().map(group).collect();
        let (title, y) = (figure.title.clone(), axis(&figure.y));
        return Some(ViolinFigure { title, subtitle, y, groups }.to_svg());
    }
    let mut series = Vec::new();
    for (name, lists) in values {
        let points = figure.at.iter().copied().zip(medians(&lists).ok()?).collect();
        series.push(Series { name, points });
    }
    let axes = [axis(&figure.x), axis(&figure.y)];
    Some(LineFigure::new(&figure.title, subtitle, axes, Shape::Line, series).to_svg())
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
    use serde_json::json;

    const PAPER: &str = r#"
        paper = "x"
        title = "X: a paper"
        [[run]]
        name = "{load}"
        scenario = "pair"
        each = { load = ["low", "high"] }
        [[row]]
        id = "X-1"
        source = "Fig. 1"
        claim = "more load, more delay"
        bar = "low |\nhigh"
        metric = "delay, us"
        ours = "high:delay"
        checks = ["low:delay < high:delay", "high:delay < 1"]
        why = "the queue is long"
        [row.figure]
        title = "Delay"
        y = "us"
        x = "load"
        at = [1, 2]
        series = [["delay", "{low,high}:delay"], ["less", "{low,high}:delay - 1"]]
        [[row]]
        id = "X-2"
        source = "text"
        claim = "little delay"
        bar = "some"
        metric = "delay, us"
        ours = "low:delay"
        checks = ["low:delay > 0"]
        figure = { title = "Delay", y = "us", series = [["low", "low:delay"]] }
    "#;

    fn outcome() -> Outcome {
        let seeds = |delays: [f64; 3]| delays.map(|delay| json!({ "delay": delay })).to_vec();
        let low = ("low".to_owned(), seeds([1.0, 2.0, 3.0]));
        let high = ("high".to_owned(), seeds([5.0, 7.0, 6.5]));
        Outcome { results: [low, high].into(), ..Outcome::default() }
    }

    #[test]
    fn write__a_page_with_a_figure_for_each_row_that_has_one() {
        let dir = std::env::temp_dir().join(format!("spanwire-page-{}", std::process::id()));
        let (paper, outcome) = (Paper::parse(PAPER, false).expect("it is valid"), outcome());
        let rows: Vec<RowReport> =
            paper.rows.iter().map(|row| RowReport::new(&paper, row, &outcome, false)).collect();
        write(&dir, &paper, &rows.iter().collect::<Vec<_>>(), &outcome).expect("it can be written");
        let page = fs::read_to_string(dir.join("x.md")).expect("it was written");
        for part in [
            "# X: a paper\n",
            "| X-1 | Fig. 1 | low \\| high | delay, us | 6.500 | 5 | 7 | 3 | missed |",
            "| X-2 | text | some | delay, us | 2 | 1 | 3 | 3 | met |",
            "Why: the queue is long\n",
            "- holds: `low:delay < high:delay`\n- does not hold: `high:delay < 1`\n",
            "![X-1: delay, us](x-X-1.svg)",
            "spanwire sim run pair --seeds 1 --json\n",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        for row in ["X-1", "X-2"] {
            let svg = fs::read_to_string(dir.join(format!("x-{row}.svg"))).expect("it is there");
            assert!(roxmltree::Document::parse(&svg).is_ok(), "{row}");
        }
        fs::remove_dir_all(&dir).expect("it was created");
    }

    #[test]
    fn draw__needs_all_values() {
        let paper = Paper::parse(PAPER, false).expect("it is valid");
        let row = &paper.rows[0];
        let figure = row.figure.as_ref().expect("it has one");
        let svg = draw(figure, row, &outcome()).expect("all values are there");
        assert!(svg.contains("Delay") && svg.contains("less") && svg.contains("load"));
        assert_eq!(draw(figure, row, &Outcome::default()), None);
    }

    #[test]
    fn wrapped__breaks_at_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(wrapped("a\n  b"), "a b");
    }
}
