//! The report of a run: rows with every sample, as text and JSON.

use super::bar::{Bar, Excuse, Sample, Verdict, number};
use super::cases::{Case, Figure};
use super::host::Lateness;
use super::plan::Plan;
use crate::machine::Machine;
use crate::stats::Spread;
use serde::Serialize;
use std::fmt;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// As 2026-11-23, UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The plan.
    pub plan: Plan,
    /// Its duration.
    pub seconds: f64,
    /// It was interrupted: the samples are those before.
    pub interrupted: bool,
    /// All rows.
    pub rows: Vec<Row>,
}

/// A figure with its bar.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Case and figure.
    pub name: String,
    /// The median of the samples.
    pub value: Option<f64>,
    /// The unit of the value and of the bar.
    pub unit: &'static str,
    /// The bar.
    pub bar: Bar,
    /// The range of the samples.
    pub spread: Option<Spread>,
    /// The latest wake-up of the host during any sample, in milliseconds.
    pub late_ms: Option<f64>,
    /// The largest share of all cores that other processes used during a sample, 0..=1.
    pub stolen: Option<f64>,
    /// The lateness above which a miss proves nothing.
    pub excuse: Excuse,
    /// The verdict.
    pub verdict: Verdict,
    /// Why a sample failed, was skipped or was not taken.
    pub reason: Option<String>,
    /// All samples that were taken, by round.
    pub samples: Vec<Sample>,
}

/// The result of a sample of a case.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Taken {
    /// The value of each figure.
    Values(Vec<f64>, Lateness),
    /// It failed.
    Failed(String, Lateness),
    /// Data were wrong.
    Wrong(String, Lateness),
    /// A program is not installed.
    Skipped(String),
    /// There was no time for it.
    NotRun(String),
}

impl Row {
    /// The rows of `case`.
    pub(super) fn of_case(case: &Case, taken: &[Taken]) -> Vec<Self> {
        let names = case.names().zip(case.figures).enumerate();
        names.map(|(n, (name, figure))| Self::new(name, figure, n, taken)).collect()
    }

    /// The row of figure `n` of a case.
    fn new(name: String, figure: &Figure, n: usize, taken: &[Taken]) -> Self {
        let samples: Vec<Sample> = taken.iter().filter_map(|taken| taken.sample(n)).collect();
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.value).collect();
        let spread = Spread::of(&values);
        let largest = |of: fn(&Sample) -> f64| samples.iter().map(of).max_by(f64::total_cmp);
        let is_skipped = taken.iter().any(|taken| matches!(taken, Taken::Skipped(_)));
        let verdict = match samples.is_empty() {
            false => Verdict::of(&samples, figure.bar, figure.excuse),
            true if is_skipped => Verdict::Skipped,
            true => Verdict::NotRun,
        };
        Self {
            name,
            value: spread.map(|spread| spread.median),
            unit: figure.unit,
            bar: figure.bar,
            spread,
            late_ms: largest(|sample| sample.host.late_ms),
            stolen: largest(|sample| sample.host.stolen),
            excuse: figure.excuse,
            verdict,
            reason: taken.iter().find_map(Taken::reason),
            samples,
        }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let range = match self.spread {
            Some(Spread { min, max, n, .. }) if n > 1 => {
                format!("{}..{}", number(min), number(max))
            }
            _ => String::new(),
        };
        let Self { name, unit, bar, .. } = self;
        let stolen = self.stolen.map(|share| share * 100.0);
        writeln!(
            out,
            "| {name:<NAME_WIDTH$} | {:>7} | {range:<14} | {:<22} | {:>8} | {:>7} | {:<9} |",
            shown(self.value),
            format!("{} {unit}", bar.text()).trim(),
            shown(self.late_ms),
            stolen.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0}")),
            self.verdict.name(),
        )
    }
}

impl Taken {
    /// The sample of figure `n`; none if none was taken.
    fn sample(&self, n: usize) -> Option<Sample> {
        let failed = |why: &String, host: &Lateness, is_wrong| {
            Some(Sample { value: None, host: *host, failure: Some(why.clone()), is_wrong })
        };
        match self {
            Self::Values(values, host) => {
                // Not a number: a rate without any time, for example.
                let value = values.get(n).copied().filter(|value| value.is_finite());
                let failure = value.is_none().then(|| "it has no value".to_owned());
                Some(Sample { value, host: *host, failure, is_wrong: false })
            }
            Self::Failed(why, host) => failed(why, host, false),
            Self::Wrong(why, host) => failed(why, host, true),
            Self::Skipped(_) | Self::NotRun(_) => None,
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::Values(..) => None,
            Self::Failed(why, _) | Self::Wrong(why, _) | Self::Skipped(why) | Self::NotRun(why) => {
                Some(why.clone())
            }
        }
    }
}

impl Report {
    /// The number of rows that are missed.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict == Verdict::Missed).count()
    }
}

/// A table in Markdown, then reasons.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}, {}", self.machine, self.date)?;
        writeln!(out, "`{}`: {:.0} s", self.command, self.seconds)?;
        let rounds = self.plan.rounds;
        writeln!(
            out,
            "median and range of {rounds} interleaved rounds; late: latest wake-up of a"
        )?;
        writeln!(out, "1 ms sleep; stolen: share of all cores that other processes used")?;
        if self.interrupted {
            writeln!(out, "interrupted: not all samples were taken")?;
        }
        writeln!(
            out,
            "\n| {:<NAME_WIDTH$} | {:>7} | {:<14} | {:<22} | {:>8} | {:>7} | {:<9} |",
            "row", "value", "range", "bar", "late, ms", "stolen%", "verdict"
        )?;
        writeln!(out, "|---|--:|---|---|--:|--:|---|")?;
        self.rows.iter().try_for_each(|row| row.write(out))?;
        for row in &self.rows {
            if let Some(why) = &row.reason {
                writeln!(out, "{}: {}: {why}", row.verdict.name(), row.name)?;
            }
        }
        for row in self.rows.iter().filter(|row| row.verdict == Verdict::HostLate) {
            let Excuse { late_ms, stolen } = row.excuse;
            let percent = stolen * 100.0;
            writeln!(out, "host late: {}: above {late_ms} ms or {percent} %", row.name)?;
        }
        Ok(())
    }
}

/// The longest name in the table of cases.
const NAME_WIDTH: usize = 57;

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Lateness = Lateness { late_ms: 3.0, late_p99_ms: 1.0, stolen: 0.02 };
    const LATE: Lateness = Lateness { late_ms: 300.0, late_p99_ms: 40.0, stolen: 0.6 };

    const FIGURES: [Figure; 2] = [
        Figure::new("Jain", "", Bar::at_least(0.95)),
        Figure::new("total", "Mbit/s", Bar::at_least(30.0)),
    ];

    const CASE: Case = Case {
        name: "auto, 2 processes",
        quick: true,
        seconds: 8,
        figures: &FIGURES,
        take: |_| Err("not measured".into()),
    };

    fn report(taken: &[Taken]) -> Report {
        let plan = crate::testing::options(&[]).unwrap();
        Report {
            machine: Machine::this(),
            date: "2026-11-23".to_owned(),
            command: "spanwire-bench real".to_owned(),
            plan,
            seconds: 12.0,
            interrupted: false,
            rows: Row::of_case(&CASE, taken),
        }
    }

    #[test]
    fn row__is_the_median_with_the_latest_host() {
        let values = |jain: f64, host| Taken::Values(vec![jain, 40.0], host);
        let taken = [values(0.99, CALM), values(0.9, LATE), values(0.97, CALM)];
        let rows = report(&taken).rows;
        assert_eq!((&*rows[0].name, rows[0].verdict), ("auto, 2 processes: Jain", Verdict::Met));
        assert_eq!((rows[0].value, rows[0].late_ms), (Some(0.97), Some(300.0)));
        assert_eq!((rows[1].value, rows[1].unit), (Some(40.0), "Mbit/s"));
    }

    #[test]
    fn row__failures_count_and_are_reported() {
        let failed = |host| Taken::Failed("no route".to_owned(), host);
        let rows = report(&[failed(CALM), failed(LATE)]).rows;
        assert_eq!(
            (rows[0].verdict, rows[0].reason.as_deref()),
            (Verdict::Missed, Some("no route"))
        );
        assert_eq!(report(&[failed(LATE)]).rows[1].verdict, Verdict::HostLate);
        let wrong = Taken::Wrong("byte 7".to_owned(), LATE);
        assert_eq!(report(&[wrong]).missed(), 2);
        let nan = Taken::Values(vec![f64::NAN, 40.0], CALM);
        let rows = report(&[nan]).rows;
        assert_eq!((rows[0].verdict, rows[1].verdict), (Verdict::Missed, Verdict::Met));
    }

    #[test]
    fn row__without_samples_it_is_skipped_or_not_run() {
        let skipped = Taken::Skipped("iperf3 is not installed".to_owned());
        let report_of = |taken: &[Taken]| report(taken).rows[0].verdict;
        assert_eq!(report_of(&[skipped]), Verdict::Skipped);
        assert_eq!(report_of(&[Taken::NotRun("60 s".to_owned())]), Verdict::NotRun);
        assert_eq!(report_of(&[]), Verdict::NotRun);
        assert_eq!(report(&[]).missed(), 0);
    }

    #[test]
    fn json__has_machine_date_command_and_rows() {
        let json = serde_json::to_value(report(&[Taken::Values(vec![0.9, 40.0], CALM)])).unwrap();
        assert!(json["machine"]["cores"].is_u64() && json["command"].is_string());
        assert_eq!(json["date"].as_str().map(str::len), Some(10));
        let row = &json["rows"][0];
        assert_eq!((&row["value"], &row["bar"]["min"]), (&0.9.into(), &0.95.into()));
        assert!(row["bar"]["max"].is_null());
        assert_eq!((&row["verdict"], &row["late_ms"]), (&"missed".into(), &3.0.into()));
        assert_eq!((&row["samples"][0]["stolen"], &row["unit"]), (&0.02.into(), &"".into()));
    }

    #[test]
    fn text__has_each_row_and_its_reason() {
        let text = report(&[Taken::Failed("no route".to_owned(), LATE)]).to_string();
        for part in [
            "| auto, 2 processes: Jain ",
            "| >= 30 Mbit/s ",
            "| host late |",
            "host late: auto, 2 processes: total: no route",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
}
