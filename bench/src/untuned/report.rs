//! The report of a run: rows with every sample, as text and JSON.

use super::algorithm::Algorithm;
use super::case::{Bar, Case, Measure};
use super::measure::Reading;
use super::plan::Plan;
use super::verdict::{Figures, figure};
use crate::machine::Machine;
use crate::stats::Spread;
use serde::Serialize;
use std::fmt;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Its plan.
    pub plan: Plan,
    /// It was interrupted: the samples are those before.
    pub interrupted: bool,
    /// A row for each algorithm on each case that has samples.
    pub rows: Vec<Row>,
}

/// The samples of one algorithm on one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case's name.
    pub case: String,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The figure that the bar limits.
    pub measure: Measure,
    /// The bar, if there is one for this algorithm.
    pub bar: Option<Bar>,
    /// All samples, by round.
    pub samples: Vec<Sample>,
    /// Payload of all flows together, 10^6 bits a second.
    pub mbps: Option<Spread>,
    /// The figure, over the samples.
    pub figure: Option<Spread>,
    /// Its worst.
    pub worst: Option<f64>,
    /// The lowest second of any sample, as a share of the same whole.
    pub least_second: Option<f64>,
    /// The bars that were missed.
    pub misses: Vec<String>,
    /// A run that ended too late.
    pub overrun: Option<String>,
}

/// One sample.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Its readings; none if it failed.
    #[serde(flatten)]
    pub reading: Option<Reading>,
    /// Its figure; none if it failed or has no reference.
    pub figure: Option<f64>,
    /// The command that failed, and why.
    pub failure: Option<String>,
}

/// The result of a sample: its readings, or the failure.
pub(super) type Outcome = Result<Reading, String>;

impl Row {
    /// The row of `algorithm` on `case`: `outcomes` by round, with those of `none`.
    pub(super) fn new(
        case: &Case,
        algorithm: Algorithm,
        outcomes: &[Outcome],
        none: &[Outcome],
    ) -> Self {
        let (mut figures, mut mbps) = (Figures::default(), Vec::new());
        let mut sample = |(round, outcome): (usize, &Outcome)| match outcome {
            Ok(reading) => {
                let none = none.get(round).and_then(|none| none.as_ref().ok());
                let none = none.and_then(|none| none.mbps.first().copied());
                let figure = figure(case, algorithm, reading, none);
                figures.add(reading, figure);
                mbps.push(reading.mbps.iter().sum());
                let (reading, figure) = (Some(reading.clone()), figure.map(|(share, _)| share));
                Sample { reading, figure, failure: None }
            }
            Err(why) => {
                figures.add_failed(case.measure);
                mbps.push(0.0);
                Sample { reading: None, figure: None, failure: Some(why.clone()) }
            }
        };
        let samples = outcomes.iter().enumerate().map(&mut sample).collect();
        let bar = case.bar_for(algorithm);
        Self {
            case: case.name.clone(),
            algorithm,
            measure: case.measure,
            bar,
            samples,
            mbps: Spread::of(&mbps),
            figure: Spread::of(&figures.all),
            worst: figures.worst(case.measure),
            least_second: figures.least_second,
            misses: bar.map(|bar| figures.misses(case.measure, bar)).unwrap_or_default(),
            overrun: figures.overrun(),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.bar {
            _ if self.overrun.is_some() => "MISSED",
            None => "",
            Some(_) if self.figure.is_none() => "no reference",
            Some(_) if self.misses.is_empty() => "met",
            Some(_) => "MISSED",
        }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
        let mbps = self.mbps.map_or_else(|| "-".to_owned(), |mbps| format!("{:.1}", mbps.median));
        let median = number(self.figure.map(|figure| figure.median));
        let Self { case, algorithm, measure, .. } = self;
        let (worst, bar) = (number(self.worst), self.bar.map(text).unwrap_or_default());
        let (name, of, verdict) = (algorithm.name(), measure.name(), self.verdict());
        writeln!(
            out,
            "| {case:<26} | {name:<9} | {mbps:>7} | {of:<13} | {median:>6} | {worst:>6} \
             | {bar:<16} | {verdict:<12} |"
        )
    }
}

/// A bar as text: median, worst, second.
fn text(bar: Bar) -> String {
    let part = |limit: Option<f64>| limit.map_or_else(|| "-".to_owned(), |l| format!("{l:.2}"));
    let second = bar.second.map(|second| format!(", {second:.2}")).unwrap_or_default();
    format!("{:.2}, {}{second}", bar.median, part(bar.worst))
}

impl Report {
    /// The number of bars that were missed.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.rows.iter().map(|row| row.misses.len()).sum()
    }

    /// The number of samples that failed, and of rows with a run that ended too late.
    #[must_use]
    pub fn failed(&self) -> usize {
        let samples = self.rows.iter().flat_map(|row| &row.samples);
        samples.filter(|sample| sample.failure.is_some()).count()
            + self.rows.iter().filter(|row| row.overrun.is_some()).count()
    }
}

/// A table in Markdown, then missed bars and failures.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, seconds, .. } = &self.plan;
        writeln!(out, "{}", self.machine)?;
        writeln!(out, "{rounds} interleaved rounds of {seconds} s; a bar is for the median, the")?;
        writeln!(out, "worst sample and the lowest second")?;
        if self.interrupted {
            writeln!(out, "interrupted: not all samples were taken")?;
        }
        writeln!(
            out,
            "\n| {:<26} | {:<9} | {:>7} | {:<13} | {:>6} | {:>6} | {:<16} | {:<12} |",
            "path", "algorithm", "Mbit/s", "figure", "median", "worst", "bar", "verdict"
        )?;
        writeln!(out, "|---|---|--:|---|--:|--:|---|---|")?;
        self.rows.iter().try_for_each(|row| row.write(out))?;
        let named = |row: &Row| format!("{}, {}", row.case, row.algorithm.name());
        for row in &self.rows {
            for miss in row.misses.iter().chain(&row.overrun) {
                writeln!(out, "missed: {}: {miss}", named(row))?;
            }
        }
        for row in &self.rows {
            for why in row.samples.iter().filter_map(|sample| sample.failure.as_ref()) {
                writeln!(out, "failed: {}: {why}", named(row))?;
            }
        }
        Ok(())
    }
}

impl Measure {
    /// Its name in a table.
    fn name(self) -> &'static str {
        match self {
            Self::ShareOfLine => "of the line",
            Self::ShareOfNone => "of none",
            Self::Jain => "Jain",
            Self::LeastOfFairShare => "least of fair",
            Self::LeastOfLine => "least of line",
            Self::QueueBdps => "queue, BDPs",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::matrix::matrix;
    use super::*;

    fn reading(mbps: f64) -> Outcome {
        let reading = Reading { mbps: vec![mbps], overrun_s: Some(0.5), ..Reading::default() };
        Ok(reading)
    }

    /// Two cases: the veth of `auto` and `none`, and a line of which a sample of `auto` fails.
    pub(in super::super) fn report() -> Report {
        let cases = matrix();
        let case = |name: &str| cases.iter().find(|case| case.name == name).expect(name);
        let none = [reading(1000.0), reading(500.0)];
        let auto = [reading(990.0), reading(490.0)];
        let line = [reading(184.0), Err("b# spanwire perf client: no route".to_owned())];
        let rows = vec![
            Row::new(case("veth"), Algorithm::Auto, &auto, &none),
            Row::new(case("veth"), Algorithm::None, &none, &none),
            Row::new(case("200M/1ms"), Algorithm::Auto, &line, &[]),
        ];
        let plan = crate::testing::options(&["--rounds", "2"]).unwrap();
        Report { machine: Machine::this(), plan, interrupted: false, rows }
    }

    #[test]
    fn row__shares_of_none_are_of_the_same_round() {
        let rows = report().rows;
        let figure = rows[0].figure.expect("two samples");
        assert!((figure.min - 0.98).abs() < 1e-9 && (figure.max - 0.99).abs() < 1e-9);
        assert_eq!((rows[0].verdict(), rows[1].verdict()), ("met", ""));
        assert_eq!(rows[1].figure.map(|figure| figure.median), Some(1.0));
    }

    #[test]
    fn row__a_failed_sample_counts_as_zero_and_keeps_its_command() {
        let row = &report().rows[2];
        assert_eq!((row.worst, row.verdict()), (Some(0.0), "MISSED"));
        assert_eq!(row.samples[1].failure.as_deref(), Some("b# spanwire perf client: no route"));
        assert_eq!(row.misses.len(), 2, "median and worst: {:?}", row.misses);
    }

    #[test]
    fn row__without_a_reference_there_is_no_verdict() {
        let cases = matrix();
        let row = Row::new(&cases[0], Algorithm::Auto, &[reading(900.0)], &[]);
        assert_eq!((row.figure, row.verdict()), (None, "no reference"));
    }

    #[test]
    fn row__a_run_that_ends_late_is_a_miss_of_any_algorithm() {
        let late = Reading { mbps: vec![9.0], overrun_s: Some(2.5), ..Reading::default() };
        let cases = matrix();
        let row = Row::new(&cases[1], Algorithm::None, &[Ok(late)], &[]);
        assert_eq!(row.verdict(), "MISSED");
        assert!(row.overrun.expect("late").contains("2.5 s"));
    }

    #[test]
    fn text__has_rows_misses_and_failures() {
        let report = report();
        let text = report.to_string();
        assert_eq!((report.missed(), report.failed()), (2, 1));
        for part in [
            "missed: 200M/1ms, auto: worst 0.000 of at least 0.75, missed by 0.750",
            "failed: 200M/1ms, auto: b# spanwire perf client: no route",
            "0.95, 0.80",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| ")).count();
        assert_eq!(rows, 1 + report.rows.len());
    }

    #[test]
    fn json__has_every_sample() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["rows"][0]["algorithm"], "auto");
        assert_eq!(json["rows"][0]["samples"][1]["mbps"][0], 490.0);
        assert_eq!(json["rows"][2]["samples"][1]["figure"], serde_json::Value::Null);
    }
}
