//! The figures of `spanwire sim run loss-sweep`: for each RTT, goodput over loss and over
//! reordering.

use super::{INDEX, escaped, html};
use crate::sim::loss_sweep::SweepReport;
use spanwire_plot::{AxisSpec, LineFigure, Quantity, Series, Shape};
use spanwire_sim::SweepRow;
use std::fs;
use std::io;
use std::path::Path;

/// Writes the figures and `index.html` into `dir`, which is created if missing.
///
/// # Returns
/// The names of the figures.
///
/// # Errors
/// A file cannot be written.
pub(in crate::sim) fn write_sweep(report: &SweepReport, dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let mut names = Vec::new();
    for (name, svg) in figures(report) {
        fs::write(dir.join(&name), svg)?;
        names.push(name);
    }
    fs::write(dir.join(INDEX), page(report, &names))?;
    Ok(names)
}

/// (file name, SVG) of each figure that has data.
fn figures(report: &SweepReport) -> Vec<(String, String)> {
    let mut trips: Vec<f64> = report.rows.iter().map(|r| r.rtt_us).collect();
    trips.dedup();
    let lossy = |r: &SweepRow| r.reorder_us == 0.0 && r.loss > 0.0;
    let late = |r: &SweepRow| r.reorder_us > 0.0;
    let mut figures = Vec::new();
    for rtt in trips {
        let of = |what: &dyn Fn(&SweepRow) -> bool, x: &dyn Fn(&SweepRow) -> f64| {
            ["rc", "sr"].map(|mode| {
                let here = |r: &&SweepRow| r.mode == mode && r.rtt_us == rtt && what(r);
                let rows = report.rows.iter().filter(here);
                let points = rows.map(|r| (x(r), r.goodput_fraction)).collect();
                Series { name: mode.to_uppercase(), points }
            })
        };
        let loss = AxisSpec::log("loss, a fraction of 1", Quantity::Share);
        let title = format!("Goodput over random loss, round trip {}", time(rtt, " "));
        let over_loss = of(&lossy, &|r| r.loss);
        let name = format!("loss_{}.svg", time(rtt, ""));
        figures.extend(figure(report, name, title, loss, over_loss));
        let held = AxisSpec::log("held back", Quantity::Seconds);
        let title = format!("Goodput where packets are overtaken, round trip {}", time(rtt, " "));
        let over_time = of(&late, &|r| r.reorder_us / 1e6);
        let name = format!("late_{}.svg", time(rtt, ""));
        figures.extend(figure(report, name, title, held, over_time));
    }
    figures
}

/// One figure; `None` without points.
fn figure(
    report: &SweepReport,
    name: String,
    title: String,
    x: AxisSpec,
    series: [Series; 2],
) -> Option<(String, String)> {
    let has_points = series.iter().any(|s| !s.points.is_empty());
    let rate = report.parameters.get("rate").map_or("", String::as_str);
    let subtitle = format!("loss-sweep, seed {}, a link of {rate}", report.seed);
    let y = AxisSpec::linear("payload, a share of the link", Quantity::Share);
    let figure = LineFigure::new(title, subtitle, [x, y], Shape::Line, series.into());
    has_points.then(|| (name, figure.to_svg()))
}

/// Formats microseconds with `between` between number and unit: 20us, 2 ms.
fn time(us: f64, between: &str) -> String {
    if us >= 1_000.0 { format!("{}{between}ms", us / 1_000.0) } else { format!("{us}{between}us") }
}

fn page(report: &SweepReport, names: &[String]) -> String {
    let title = escaped("spanwire sim run loss-sweep");
    let mut rows = vec![("seed", report.seed.to_string())];
    rows.extend(report.parameters.iter().map(|(key, value)| (*key, value.clone())));
    let verdict = |ok: bool| if ok { "ok" } else { "FAILED" };
    rows.extend(report.bars.iter().map(|bar| (bar.name, verdict(bar.ok).to_owned())));
    rows.push(("checkers", verdict(report.checkers_ok).to_owned()));
    html(&title, &rows, names)
}
