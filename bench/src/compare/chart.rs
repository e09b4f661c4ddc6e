//! The rates as an SVG chart: a group of bars for each MTU.

use super::report::{RateRow, Report};
use super::subject::{Control, LARGE, Subject};
use spanwire_plot::{AxisSpec, Bar, BarFigure, BarSeries, Quantity};

/// The one-way goodput of the main rows as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mtus = &report.plan.link_mtus;
    let (machine, rounds, ms) = (&report.machine, report.plan.rounds, report.plan.ms);
    let series = subjects(report).into_iter().map(|subject| {
        let name = subject.name();
        let bar = |mtu: &u32| {
            let row = |row: &&RateRow| row.link_mtu == *mtu && row.name == name;
            let spread = report.rates.iter().find(row)?.goodput_gbps?;
            let [value, low, high] = [spread.median, spread.min, spread.max].map(|g| g * 1e9);
            Some(Bar { value, low, high })
        };
        BarSeries { bars: mtus.iter().map(bar).collect(), name }
    });
    BarFigure {
        title: "One-way goodput over a veth pair".to_owned(),
        subtitle: format!("median of {rounds} x {ms} ms, line: smallest to largest; {machine}"),
        y: AxisSpec::linear("goodput", Quantity::BitsPerSecond),
        groups: mtus.iter().map(|mtu| format!("MTU {mtu}")).collect(),
        series: series.collect(),
    }
    .to_svg()
}

/// The rows that are measured at every MTU, as many as there are colours: those without congestion
/// control yield.
fn subjects(report: &Report) -> Vec<Subject> {
    let mut subjects = Subject::rates(0, true);
    let is_measured = |subject: &Subject| {
        let name = subject.name();
        report.rates.iter().any(|row| row.name == name)
    };
    subjects.retain(is_measured);
    if subjects.len() > COLOURS {
        subjects.retain(|subject| match subject {
            Subject::Write(flow) => flow.control == Control::Auto,
            Subject::RawUdp { source_bytes } => *source_bytes == LARGE,
            _ => true,
        });
    }
    subjects
}

/// Colours of the plot before it shades.
const COLOURS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Plan, Results, Series};
    use crate::sample::{Rate, Reading};
    use crate::testing::options;

    fn report(only: Option<&str>, gbps: Option<f64>) -> Report {
        let mut plan: Plan = options(&[]).unwrap();
        plan.common.only = only.map(str::to_owned);
        let reading = |goodput_gbps| Reading::Rate(Rate { goodput_gbps, ..Rate::default() });
        let series = |variant| Series::new(variant, vec![gbps.map(reading)]);
        let series = plan.variants().unwrap().into_iter().map(series).collect();
        let results = Results { series, seconds: 1.0, ..Results::default() };
        Report::new(None, &plan, &results)
    }

    #[test]
    fn svg__has_a_group_for_each_mtu_and_ours_beside_tcp() {
        let svg = svg(&report(None, Some(5.0)));
        for mtu in options::<Plan>(&[]).unwrap().link_mtus {
            assert!(svg.contains(&format!("MTU {mtu}")), "{mtu}");
        }
        for name in ["kernel TCP, offloads on", "raw UDP GSO", "AF_XDP SR auto WRITE 1 MiB"] {
            assert!(svg.contains(name), "{name}");
        }
        // A background, and of each of the eight rows a colour in the legend and a bar at each MTU.
        assert_eq!(svg.matches("<rect").count(), 1 + 8 * (1 + 4));
    }

    #[test]
    fn svg__rows_that_were_not_measured_are_not_in_it() {
        let svg_of_tcp = svg(&report(Some("kernel TCP"), Some(5.0)));
        assert!(!svg_of_tcp.contains("AF_XDP SR auto"));
        assert!(svg(&report(None, None)).contains("no data"));
    }
}
