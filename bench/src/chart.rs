//! The rates as an SVG chart: horizontal bars with the spread, one group per MTU.

use crate::report::{RateRow, Report};
use std::fmt::{self, Write as _};

/// The report's one-way goodput as an SVG document. It follows the viewer's light or dark scheme.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_svg(&mut out, report);
    out
}

fn write_svg(out: &mut String, report: &Report) -> fmt::Result {
    let spreads = report.rates.iter().filter_map(|row| row.goodput_gbps);
    let most = spreads.map(|s| s.max).fold(1.0, f64::max);
    let groups = report.plan.link_mtus.len();
    let rows = f64::from(u16::try_from(report.rates.len() + groups).unwrap_or(u16::MAX));
    let height = TOP + rows * ROW + BOTTOM;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">"
    )?;
    writeln!(out, "<title>One-way goodput over a veth pair, Gbit/s</title>")?;
    writeln!(out, "<style>{STYLE}</style>")?;
    let (rounds, ms) = (report.plan.rounds, report.plan.ms);
    let head = format!("Goodput over veth, Gbit/s: median of {rounds} x {ms} ms, line: min to max");
    text(out, 10.0, 22.0, "h", &head)?;
    let mut y = TOP;
    for link_mtu in &report.plan.link_mtus {
        text(out, 10.0, y + 16.0, "h", &format!("link MTU {link_mtu}"))?;
        y += ROW;
        for row in report.rates.iter().filter(|row| row.link_mtu == *link_mtu) {
            bar(out, row, y, BARS / most)?;
            y += ROW;
        }
    }
    let machine = &report.machine;
    let foot = format!(
        "{}, {} cores, Linux {}. Raw frames and spanwire packets are of one size.",
        machine.cpu, machine.cores, machine.kernel
    );
    text(out, 10.0, y + 18.0, "f", &foot)?;
    writeln!(out, "</svg>")
}

/// One row: name, bar to the median, a line from minimum to maximum, the number.
fn bar(out: &mut String, row: &RateRow, y: f64, per_gbps: f64) -> fmt::Result {
    text(out, 22.0, y + 15.0, "n", &row.name)?;
    let Some(goodput) = row.goodput_gbps else {
        return text(out, LABELS + 6.0, y + 15.0, "n", "no quiet sample");
    };
    let [median, min, max] = [goodput.median, goodput.min, goodput.max].map(|g| g * per_gbps);
    let class = class(&row.name);
    let middle = y + ROW / 2.0;
    writeln!(
        out,
        "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{:.1}\" \
         width=\"{median:.1}\" height=\"{:.1}\"/>",
        y + 3.0,
        ROW - 6.0
    )?;
    writeln!(
        out,
        "<path class=\"w\" d=\"M{:.1} {middle:.1}H{:.1}\"/>",
        LABELS + min,
        LABELS + max
    )?;
    let number = format!("{:.1}", goodput.median);
    text(out, LABELS + max + 8.0, y + 15.0, "n", &number)
}

/// Writes a text element with the style class `class`.
pub(crate) fn text(out: &mut String, x: f64, y: f64, class: &str, words: &str) -> fmt::Result {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>")
}

/// The colour class: engine, raw AF_XDP, or kernel.
fn class(name: &str) -> &'static str {
    match name {
        name if name.starts_with("spanwire") => "s",
        name if name.starts_with("raw") => "r",
        _ => "t",
    }
}

const WIDTH: f64 = 800.0;
const TOP: f64 = 36.0;
const ROW: f64 = 22.0;
const BOTTOM: f64 = 32.0;
/// The left edge of the bars, and the length of the longest.
const LABELS: f64 = 280.0;
const BARS: f64 = 450.0;
const STYLE: &str = "text{font:13px sans-serif;fill:#1f2328}.h{font-weight:bold}.f{font-size:11px}\
                     .s{fill:#0969da}.r{fill:#8c959f}.t{fill:#bf8700}\
                     .w{stroke:#1f2328;stroke-width:1.5}\
                     @media(prefers-color-scheme:dark){text{fill:#e6edf3}.w{stroke:#e6edf3}}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::sample::{Rate, Reading};
    use crate::veth::{Plan, Results, Series};

    fn report() -> Report {
        let plan = Plan::default();
        let results = Results {
            series: plan
                .variants()
                .unwrap()
                .into_iter()
                .map(|variant| Series {
                    variant,
                    rounds: vec![Some(Reading::Rate(Rate {
                        goodput_gbps: 5.0,
                        packets_per_s: 1e6,
                        lost: 0,
                    }))],
                    dropped: vec![],
                })
                .collect(),
            distances_ns: vec![],
        };
        Report::new(None, &plan, &results)
    }

    #[test]
    fn svg__a_bar_for_each_rate_within_the_picture() {
        let report = report();
        let svg = svg(&report);
        assert_eq!(svg.matches("<rect").count(), report.rates.len());
        assert!(svg.contains("width=\"450.0\""), "the longest bar has the full width");
        assert!(svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn svg__marks_a_row_without_samples() {
        let mut report = report();
        report.rates[0].goodput_gbps = None;
        assert!(svg(&report).contains("no quiet sample"));
    }

    #[test]
    fn text__markup_in_words_is_escaped() {
        let mut out = String::new();
        text(&mut out, 0.0, 0.0, "n", "a<b & c").unwrap();
        assert!(out.contains("a&lt;b &amp; c"));
    }
}
