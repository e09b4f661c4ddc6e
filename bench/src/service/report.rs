//! The report of a run: rows with every sample, as text and JSON.

use super::case::Subject;
use super::plan::Plan;
use crate::machine::Machine;
use crate::stats::{Ratio, Spread};
use serde::Serialize;
use std::fmt;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Its plan.
    pub plan: Plan,
    /// Its duration.
    pub seconds: f64,
    /// It was interrupted: the samples are those before.
    pub interrupted: bool,
    /// A row for each transport in each case.
    pub rows: Vec<Row>,
}

/// One transport in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case.
    pub name: String,
    /// The transport.
    pub transport: &'static str,
    /// Requests a second that an open loop offers.
    pub offered_per_s: Option<u64>,
    /// Its figures, the main one first. Empty without a sample.
    pub values: Vec<Value>,
    /// The errors of failed samples.
    pub failures: Vec<String>,
    /// Samples for which no time was left.
    pub not_run: usize,
}

/// A figure of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Value {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The median of the samples.
    pub value: f64,
    /// Their range.
    pub spread: Spread,
    /// Over blocking kernel TCP in the same case. None if that was not measured.
    pub ratio: Option<Ratio>,
    /// All samples, by round.
    pub samples: Vec<Option<f64>>,
}

/// The result of a sample.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    /// The value of each figure.
    Values(Vec<f64>),
    Failed(String),
    NotRun,
}

impl Row {
    /// The row of `subject` with its samples by round, and those of its reference.
    pub(super) fn new(subject: Subject, taken: &[Taken], reference: &[Taken]) -> Self {
        let figures = subject.figures().iter().enumerate();
        let failure = |taken: &Taken| match taken {
            Taken::Failed(why) => Some(why.clone()),
            Taken::Values(_) | Taken::NotRun => None,
        };
        Self {
            name: subject.case(),
            transport: subject.transport(),
            offered_per_s: subject.offered_per_s(),
            values: figures.filter_map(|(n, of)| Value::new(*of, n, taken, reference)).collect(),
            failures: taken.iter().filter_map(failure).collect(),
            not_run: taken.iter().filter(|taken| matches!(taken, Taken::NotRun)).count(),
        }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, transport, .. } = self;
        write!(out, "| {name:<27} | {transport:<10} |")?;
        for value in &self.values {
            write!(out, " {:>9} |", number(value.value))?;
        }
        let Some(main) = self.values.first() else {
            return writeln!(out, " no sample |");
        };
        let Spread { min, max, .. } = main.spread;
        let range = format!("{}..{}", number(min), number(max));
        let ratio = main.ratio.map_or_else(|| "-".to_owned(), |ratio| text(&ratio));
        write!(out, " {range:<19} | {ratio:<18} |")?;
        let offered = self.offered_per_s.unwrap_or_default() as f64;
        match self.values.iter().find(|value| value.name == "requests_per_s") {
            Some(reached) if reached.value < REACHED * offered => {
                writeln!(out, " reached {:.0} of {offered} |", reached.value)
            }
            _ => writeln!(out),
        }
    }
}

impl Value {
    fn new(
        (name, unit): (&'static str, &'static str),
        n: usize,
        taken: &[Taken],
        reference: &[Taken],
    ) -> Option<Self> {
        let value = |taken: &Taken| match taken {
            Taken::Values(values) => values.get(n).copied(),
            Taken::Failed(_) | Taken::NotRun => None,
        };
        let series = |taken: &[Taken]| taken.iter().map(value).collect::<Vec<_>>();
        let samples = series(taken);
        let spread = Spread::of_present(&samples)?;
        let ratio = Ratio::of(&samples, &series(reference));
        Some(Self { name, unit, value: spread.median, spread, ratio, samples })
    }
}

impl Report {
    /// The number of samples that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.rows.iter().map(|row| row.failures.len()).sum()
    }
}

/// Tables in Markdown, then failures.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, ms, requests, mib, .. } = &self.plan;
        let sample = match requests {
            Some(requests) => format!("{requests} requests"),
            None => format!("{ms} ms"),
        };
        writeln!(out, "{}", self.machine)?;
        writeln!(out, "{rounds} interleaved rounds of {sample}, bulk data {mib} MiB; medians;")?;
        writeln!(out, "the ratio is to blocking TCP of the same round: median, min..max")?;
        if let Some([client, server]) = self.plan.cores.as_deref() {
            writeln!(out, "the client is pinned to core {client}, the server to core {server}")?;
        }
        if self.interrupted {
            writeln!(out, "interrupted: not all samples were taken")?;
        }
        let (bulk, services): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.name == "bulk");
        let (verbs, services): (Vec<&Row>, Vec<&Row>) =
            services.into_iter().partition(|row| row.name == "a verb");
        let (open, closed): (Vec<&Row>, Vec<&Row>) =
            services.into_iter().partition(|row| row.offered_per_s.is_some());
        let figures = ["requests/s", "p50 us", "p99 us", "client CPU", "server CPU"];
        table(out, &closed, &figures)?;
        table(out, &open, &[&["CPU"], &figures[..], &["schedule"]].concat())?;
        table(out, &bulk, &["Gbit/s", "client CPU", "server CPU"])?;
        table(out, &verbs, &["post ns", "poll ns"])?;
        for row in &self.rows {
            let Row { name, transport, failures, not_run, .. } = row;
            for why in failures {
                writeln!(out, "failed: {name}: {transport}: {why}")?;
            }
            if *not_run > 0 {
                writeln!(out, "not run: {name}: {transport}: no time was left for {not_run}")?;
            }
        }
        Ok(())
    }
}

fn table(out: &mut fmt::Formatter<'_>, rows: &[&Row], figures: &[&str]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    write!(out, "\n| {:<27} | {:<10} |", "case", "transport")?;
    figures.iter().try_for_each(|figure| write!(out, " {figure:>9} |"))?;
    writeln!(out, " {:<19} | {:<18} |", "range", "ratio")?;
    writeln!(out, "|---|---|{}---|---|", "--:|".repeat(figures.len()))?;
    rows.iter().try_for_each(|row| row.write(out))
}

/// The ratio in the rounds that have both.
fn text(ratio: &Ratio) -> String {
    match ratio.paired {
        Some(Spread { median, min, max, .. }) => format!("{median:.2}, {min:.2}..{max:.2}"),
        None => format!("{:.2}", ratio.of_medians),
    }
}

/// An open loop that reaches less of what it offers does not reach it.
const REACHED: f64 = 0.99;

/// Three digits, and all before the point.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::super::case::{Load, Transport};
    use super::*;

    const LOAD: Load =
        Load { request_bytes: 64, reply_bytes: 4096, connections: 1, outstanding: 16, per_s: None };

    fn row(transport: Transport, taken: &[Taken], reference: &[Taken]) -> Row {
        Row::new(Subject::Service(LOAD, transport), taken, reference)
    }

    fn values(rate: f64) -> Taken {
        Taken::Values(vec![rate, 10.0, 20.0, 3.0, 4.0])
    }

    #[test]
    fn new__ratios_are_those_of_the_same_rounds() {
        let tcp = [values(100.0), Taken::NotRun, values(400.0)];
        let ours = [values(50.0), values(70.0), values(100.0)];
        let row = row(Transport::Stream, &ours, &tcp);
        let names: Vec<&str> = row.values.iter().map(|value| value.name).collect();
        let expected = ["requests_per_s", "p50_us", "p99_us", "client_cpu_us", "server_cpu_us"];
        assert_eq!(names, expected);
        let main = &row.values[0];
        assert_eq!((main.value, main.samples.len()), (70.0, 3));
        let paired = main.ratio.unwrap().paired.unwrap();
        assert_eq!((paired.min, paired.max, paired.n), (0.25, 0.5, 2));
    }

    #[test]
    fn text__names_failures_and_samples_that_were_not_taken() {
        let taken = [values(12_345.6), Taken::Failed("it broke".to_owned()), Taken::NotRun];
        let rows = vec![row(Transport::Verbs, &taken, &[]), row(Transport::Tcp, &[], &[])];
        let words = ["--rounds", "3", "--ms", "50", "--mib", "1"];
        let plan = crate::testing::options(&words).unwrap();
        let (machine, seconds) = (Machine::this(), 1.0);
        let report = Report { machine, plan, seconds, interrupted: false, rows };
        let text = report.to_string();
        assert_eq!(report.failed(), 1);
        for part in [
            "3 interleaved rounds of 50 ms",
            "| 64 B/4 KiB, 16 outstanding  | verbs      |     12346 |",
            "| no sample |",
            "failed: 64 B/4 KiB, 16 outstanding: verbs: it broke",
            "verbs: no time was left for 1",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains("Gbit/s"), "{text}");
    }

    #[test]
    fn text__says_what_an_open_loop_does_not_reach() {
        let text = |reached: f64| {
            let load = Load { per_s: Some(250_000), ..LOAD };
            let taken = [Taken::Values(vec![7.0, reached, 10.0, 20.0, 3.0, 4.0, 0.5])];
            let rows = vec![Row::new(Subject::Service(load, Transport::Tcp), &taken, &taken)];
            let (machine, plan) = (Machine::this(), crate::testing::options(&[]).unwrap());
            Report { machine, plan, seconds: 1.0, interrupted: false, rows }.to_string()
        };
        assert!(text(180_000.0).contains("| reached 180000 of 250000 |"));
        assert!(!text(249_000.0).contains("reached"));
    }

    #[test]
    fn number__has_three_digits() {
        assert_eq!([0.5, 12.34, 123.4, 54_321.0].map(number), ["0.50", "12.3", "123", "54321"]);
    }
}
