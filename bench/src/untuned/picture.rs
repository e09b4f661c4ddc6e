//! The figures as a heat map in SVG: a row for each case, a column for each algorithm.

use super::algorithm::Algorithm;
use super::report::{Report, Row};
use std::fmt::{self, Write as _};

/// The figures of `report` as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_svg(&mut out, report);
    out
}

fn write_svg(out: &mut String, report: &Report) -> fmt::Result {
    let present = |algorithm: &Algorithm| report.rows.iter().any(|row| row.algorithm == *algorithm);
    let columns: Vec<Algorithm> = Algorithm::all().filter(present).collect();
    let mut cases: Vec<&str> = report.rows.iter().map(|row| &*row.case).collect();
    cases.dedup();
    let width = (left(columns.len()) + MARGIN).max(WIDTH_MIN);
    let height = top(cases.len()) + BOTTOM;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">"
    )?;
    writeln!(out, "<title>Congestion control with its defaults, by path</title>")?;
    writeln!(out, "<style>{STYLE}</style>")?;
    writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>")?;
    text(out, MARGIN, 24.0, "h", "Defaults only: share of the path")?;
    let (rounds, seconds) = (report.plan.rounds, report.plan.seconds);
    let subtitle = format!("median of {rounds} x {seconds} s; dark border: a bar was missed");
    text(out, MARGIN, 42.0, "f", &subtitle)?;
    for (at, algorithm) in columns.iter().enumerate() {
        text(out, left(at) + CELL_WIDTH / 2.0, TOP - 8.0, "c", algorithm.name())?;
    }
    for (line, case) in cases.iter().enumerate() {
        text(out, MARGIN, top(line) + BASELINE, "n", case)?;
        for row in report.rows.iter().filter(|row| row.case == *case) {
            let column = columns.iter().position(|algorithm| *algorithm == row.algorithm);
            cell(out, row, (left(column.unwrap_or(0)), top(line)))?;
        }
    }
    let machine = &report.machine;
    let foot = [
        format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel),
        "of what the line, loss and coding leave; veth and short messages: of none; 2 flows and \
         more: Jain's index;"
            .to_owned(),
        "two round trips: least flow over its fair share; beside TCP: least flow over the line; \
         queue: in BDPs"
            .to_owned(),
    ];
    for (n, line) in (1_u8..).zip(&foot) {
        text(out, MARGIN, top(cases.len()) + 6.0 + 15.0 * f64::from(n), "f", line)?;
    }
    writeln!(out, "</svg>")
}

/// The cell of `row` with its corner at (x, y).
fn cell(out: &mut String, row: &Row, (x, y): (f64, f64)) -> fmt::Result {
    let Some(figure) = row.figure else {
        return text(out, x + CELL_WIDTH / 2.0, y + BASELINE, "c", "-");
    };
    let share = match (row.measure.is_limit_from_above(), figure.median) {
        // A queue within its bar is as good as a full share.
        (true, median) if median <= 0.0 => 1.0,
        (true, median) => (1.0 / median).min(1.0),
        (false, median) => median.clamp(0.0, 1.0),
    };
    let [red, green, blue] = colour(share);
    let missed = !row.misses.is_empty() || row.overrun.is_some();
    let border = if missed { " stroke=\"#222222\" stroke-width=\"2\"" } else { "" };
    writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
         fill=\"#{red:02x}{green:02x}{blue:02x}\"{border}/>",
        x + GAP,
        y + GAP,
        CELL_WIDTH - 2.0 * GAP,
        CELL_HEIGHT - 2.0 * GAP
    )?;
    let class = if is_dark([red, green, blue]) { "w" } else { "c" };
    text(out, x + CELL_WIDTH / 2.0, y + BASELINE, class, &format!("{:.2}", figure.median))
}

/// The left edge of a column.
fn left(column: usize) -> f64 {
    MARGIN + LABELS + CELL_WIDTH * column as f64
}

/// The upper edge of a row.
fn top(row: usize) -> f64 {
    TOP + CELL_HEIGHT * row as f64
}

/// The colour of a share from 0 to 1, between the [`ANCHORS`].
fn colour(share: f64) -> [u8; 3] {
    let upper = ANCHORS.iter().position(|(at, _)| share <= *at).unwrap_or(ANCHORS.len() - 1).max(1);
    let ((from, a), (to, b)) = (ANCHORS[upper - 1], ANCHORS[upper]);
    let along = ((share - from) / (to - from)).clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between two bytes"
    )]
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * along).round() as u8;
    [mix(a[0], b[0]), mix(a[1], b[1]), mix(a[2], b[2])]
}

/// True if white text is more legible than black (ITU-R BT.601 luma).
fn is_dark([red, green, blue]: [u8; 3]) -> bool {
    0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue) < 140.0
}

/// Writes a text element with the style class `class`.
fn text(out: &mut String, x: f64, y: f64, class: &str, words: &str) -> fmt::Result {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>")
}

/// Colours that are distinguishable with any form of colour blindness: vermillion for a path that
/// is hardly used, blue for one that is full. Half of the scale is for the range of the bars.
const ANCHORS: [(f64, [u8; 3]); 4] = [
    (0.0, [0xd5, 0x5e, 0x00]),
    (0.5, [0xf4, 0xb9, 0x7a]),
    (0.75, [0xf2, 0xf2, 0xf2]),
    (1.0, [0x00, 0x72, 0xb2]),
];

const MARGIN: f64 = 12.0;
/// Room for the lines below the cells.
const WIDTH_MIN: f64 = 740.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 64.0;
/// Width of the names of cases.
const LABELS: f64 = 200.0;
const CELL_WIDTH: f64 = 72.0;
const CELL_HEIGHT: f64 = 24.0;
/// Half of the space between two cells.
const GAP: f64 = 1.5;
/// The base line of a cell's text below its upper edge.
const BASELINE: f64 = 16.5;
const STYLE: &str = "text{font:13px sans-serif;fill:#222222}.h{font:bold 16px sans-serif}\
                     .f{font-size:11px;fill:#5f5f5f}.c,.w{text-anchor:middle}.w{fill:#ffffff}";

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn svg__a_cell_for_each_row_within_the_picture() {
        let report = report();
        let svg = svg(&report);
        let cells = svg.matches("<rect x=").count();
        assert_eq!(cells, report.rows.len());
        assert_eq!(svg.matches("stroke-width").count(), 1, "one missed its bar");
        let attribute = |text: &str, name: &str| -> f64 {
            let from = text.find(&format!(" {name}=\"")).expect(name) + name.len() + 3;
            text[from..].split('"').next().expect("a value").parse().expect("a number")
        };
        let (width, height) = (attribute(&svg, "width"), attribute(&svg, "height"));
        for rect in svg.lines().filter(|line| line.starts_with("<rect x=")) {
            let right = attribute(rect, "x") + attribute(rect, "width");
            let bottom = attribute(rect, "y") + attribute(rect, "height");
            assert!(right <= width && bottom <= height, "{rect}");
        }
        for line in svg.lines().filter(|line| line.starts_with("<text class=\"f\"")) {
            let words = line.split(['>', '<']).nth(2).expect("words");
            // Wide fonts take six tenths of their size for a character on average.
            let right = MARGIN + words.chars().count() as f64 * 0.6 * 11.0;
            assert!(right <= width && attribute(line, "y") <= height, "{line}");
        }
    }

    #[test]
    fn svg__cells_are_in_the_row_of_their_case_and_the_column_of_their_algorithm() {
        let svg = svg(&report());
        let corner = |(column, row)| {
            let (x, y) = (left(column) + GAP, top(row) + GAP);
            format!("<rect x=\"{x:.1}\" y=\"{y:.1}\"")
        };
        for at in [(0, 0), (1, 0), (0, 1)] {
            assert!(svg.contains(&corner(at)), "{at:?}");
        }
        assert!(!svg.contains(&corner((1, 1))), "none has no row of this case");
        for text in ["200M/1ms", "veth", ">auto<", ">none<", ">1.00<"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn colour__grows_from_vermillion_to_blue() {
        assert_eq!(colour(0.0), ANCHORS[0].1);
        assert_eq!(colour(0.75), ANCHORS[2].1);
        assert_eq!(colour(1.0), ANCHORS[3].1);
        assert!(is_dark(colour(1.0)) && !is_dark(colour(0.75)));
        assert!(colour(0.9)[2] > colour(0.9)[0]);
    }
}
