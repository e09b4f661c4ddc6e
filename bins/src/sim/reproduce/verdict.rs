//! The evaluation of rows.

use super::expression::{Values, least, median, most};
use super::paper::{Paper, Quick, Row};
use super::runner::Outcome;
use crate::sim::report::write_checks;
use serde::Serialize;
use spanwire_base::u64_from;
use std::fmt::Write as _;

/// The JSON object of `spanwire sim reproduce --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Reproduction {
    /// The runs are smaller than the rows' and give no result.
    pub(super) quick: bool,
    pub(super) rows: Vec<RowReport>,
    /// Rows that missed their bar, or could not be evaluated, without a known reason.
    pub(super) unexplained: Vec<String>,
    /// No checker failed.
    pub(super) checkers_ok: bool,
    /// Violations that the checkers found.
    pub(super) violations: Vec<String>,
    /// Runs of one seed.
    pub(super) runs: usize,
    /// Those of them whose results were stored by an earlier call.
    pub(super) cached: usize,
    /// Wall-clock seconds of this call.
    pub(super) wall_s: f64,
}

/// A row with its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct RowReport {
    /// Name of the paper.
    pub(super) paper: String,
    pub(super) id: String,
    /// The figure or table of the paper.
    pub(super) source: String,
    pub(super) claim: String,
    pub(super) bar: String,
    /// Name of the metric `ours`, with its unit.
    pub(super) metric: String,
    /// `None` if it could not be evaluated.
    pub(super) ours: Option<Ours>,
    /// `None` if it could not be evaluated, or with small runs that give none.
    pub(super) verdict: Option<Verdict>,
    /// Evidence, if a bar is missed for a known reason.
    pub(super) why: Option<String>,
    /// How the experiment is smaller than the paper's.
    pub(super) scale: Option<String>,
    /// The conditions of the bar.
    pub(super) checks: Vec<CheckReport>,
    /// Why the row could not be evaluated.
    pub(super) error: Option<String>,
    /// The commands of its runs.
    pub(super) commands: Vec<String>,
    /// Wall-clock seconds of its runs, summed; runs that rows share count for each.
    pub(super) wall_s: f64,
}

/// A metric over the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Ours {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Number of seeds.
    pub(super) n: u64,
}

/// The result of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The bar is met.
    Met,
    /// The bar is met by an experiment smaller than the paper's.
    Scaled,
    /// The bar is missed.
    Missed,
    /// The bar is missed, and the result contradicts the claim.
    Refuted,
}

/// A condition of a bar.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct CheckReport {
    pub(super) check: String,
    pub(super) ok: bool,
}

impl Verdict {
    /// The name, as in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Scaled => "scaled",
            Self::Missed => "missed",
            Self::Refuted => "refuted",
        }
    }
}

impl Ours {
    /// The statistics of `values`; a list counts with its median element. `None` without values.
    fn of(values: &Values) -> Option<Self> {
        let of_seed = |list: &Vec<f64>| (!list.is_empty()).then(|| median(list));
        let seeds: Vec<f64> = values.iter().map(of_seed).collect::<Option<_>>()?;
        if seeds.is_empty() {
            return None;
        }
        let (min, max) = (least(&seeds), most(&seeds));
        Some(Self { median: median(&seeds), min, max, n: u64_from(seeds.len()) })
    }
}

impl RowReport {
    /// Evaluates `row` with the results of its runs.
    pub(super) fn new(paper: &Paper, row: &Row, outcome: &Outcome, quick: bool) -> Self {
        let runs = row.runs();
        let mut report = Self {
            paper: paper.name.clone(),
            id: row.id.clone(),
            source: row.source.clone(),
            claim: row.claim.clone(),
            bar: row.bar.clone(),
            metric: row.metric.clone(),
            ours: None,
            verdict: None,
            why: None,
            scale: Some(row.scale.clone()).filter(|scale| !scale.is_empty()),
            checks: Vec::new(),
            error: None,
            commands: runs.iter().map(|name| paper.runs[name].command_line()).collect(),
            wall_s: runs.iter().filter_map(|name| outcome.wall_s.get(name)).sum(),
        };
        let failed = runs.iter().find_map(|name| Some((name, outcome.errors.get(name)?)));
        report.error = match failed {
            Some((name, why)) => Some(format!("{name}: {why}")),
            None => report.evaluate(row, outcome, quick).err(),
        };
        report
    }

    fn evaluate(&mut self, row: &Row, outcome: &Outcome, quick: bool) -> Result<(), String> {
        self.ours = Ours::of(&row.ours.evaluate(&outcome.results)?);
        for check in &row.checks {
            let ok = check.holds(&outcome.results)?;
            self.checks.push(CheckReport { check: check.text.clone(), ok });
        }
        let is_met = self.checks.iter().all(|check| check.ok);
        let is_small = quick || !row.scale.is_empty();
        self.verdict = Some(match (is_met, &row.refuted) {
            (true, _) if is_small => Verdict::Scaled,
            (true, _) => Verdict::Met,
            (false, Some(refuted)) if refuted.holds(&outcome.results)? => Verdict::Refuted,
            (false, _) => Verdict::Missed,
        });
        if quick && row.quick != Quick::Bar && !is_met {
            self.verdict = None;
        }
        let is_known = !is_met && !row.why.is_empty();
        self.why = is_known.then(|| row.why.clone());
        Ok(())
    }

    /// True if the row could not be evaluated, or misses without a known reason.
    pub(super) fn is_unexplained(&self) -> bool {
        let misses = matches!(self.verdict, Some(Verdict::Missed | Verdict::Refuted));
        self.error.is_some() || (misses && self.why.is_none())
    }

    /// The verdict in a table.
    pub(super) fn verdict_text(&self) -> &'static str {
        match (self.verdict, &self.error) {
            (Some(verdict), _) => verdict.name(),
            (None, Some(_)) => "error",
            (None, None) => "-",
        }
    }
}

impl Reproduction {
    /// The rows as a table.
    pub(super) fn to_text(&self) -> String {
        // Writing to a String cannot fail, here and below.
        let mut out = format!(
            "{:<7} {:<8} {:>10} {:>10} {:>10} {:>3}  metric\n",
            "row", "verdict", "median", "min", "max", "n"
        );
        for row in &self.rows {
            let [median, min, max] =
                row.ours.map_or([None; 3], |o| [o.median, o.min, o.max].map(Some));
            let [median, min, max] = [median, min, max].map(|n| n.map_or("-".to_owned(), number));
            let (n, verdict) = (row.ours.map_or(0, |o| o.n), row.verdict_text());
            let _ = writeln!(
                out,
                "{:<7} {verdict:<8} {median:>10} {min:>10} {max:>10} {n:>3}  {}",
                row.id, row.metric
            );
        }
        for row in &self.rows {
            let why = row.error.iter().chain(&row.why);
            why.for_each(|why| _ = writeln!(out, "{}: {why}", row.id));
            let missed = row.checks.iter().filter(|check| !check.ok);
            missed.for_each(|c| _ = writeln!(out, "{}: does not hold: {}", row.id, c.check));
        }
        let (runs, cached, wall) = (self.runs, self.cached, self.wall_s);
        let _ = writeln!(out, "{runs} runs, {cached} of them stored, in {wall:.1} s");
        if self.quick {
            out.push_str("--quick: small runs, which are a check and no result\n");
        }
        write_checks(&mut out, &self.violations, usize::MAX);
        out
    }
}

/// Three or four significant digits.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "never".to_owned(),
        _ if size >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ if size >= 100.0 => format!("{value:.1}"),
        _ if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAPER: &str = r#"
        paper = "x"
        title = "X"
        [[run]]
        name = "a"
        scenario = "pair"
        [[run]]
        name = "b"
        scenario = "pair"
        [[row]]
        id = "X-1"
        source = "Fig. 1"
        claim = "a is lower"
        bar = "a < b"
        metric = "a / b"
        ours = "a:peak / b:peak"
        checks = ["a:peak < b:peak"]
    "#;

    /// The row, with more lines, for the peaks of a and b by seed.
    fn row(more: &str, peaks: [[f64; 3]; 2], quick: bool) -> RowReport {
        let paper = Paper::parse(&format!("{PAPER}\n{more}"), quick).expect("it is valid");
        let mut outcome = Outcome::default();
        for (name, peaks) in ["a", "b"].into_iter().zip(peaks) {
            let seeds = peaks.map(|peak| json!({ "peak": peak })).to_vec();
            outcome.results.insert(name.to_owned(), seeds);
            outcome.wall_s.insert(name.to_owned(), 2.5);
        }
        RowReport::new(&paper, &paper.rows[0], &outcome, quick)
    }

    const LOWER: [[f64; 3]; 2] = [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]];
    const HIGHER: [[f64; 3]; 2] = [[4.0, 2.0, 8.0], [2.0, 2.0, 2.0]];

    #[test]
    fn new__verdict_follows_from_the_medians() {
        let met = row("", LOWER, false);
        assert_eq!((met.verdict, met.is_unexplained()), (Some(Verdict::Met), false));
        let ours = met.ours.expect("it has values");
        assert_eq!((ours.median, ours.min, ours.max, ours.n), (0.5, 0.25, 0.75, 3));
        assert_eq!((met.wall_s, met.commands.len()), (5.0, 2));
        assert_eq!(row("scale = \"half\"", LOWER, false).verdict, Some(Verdict::Scaled));
        let missed = row("", HIGHER, false);
        assert_eq!((missed.verdict, missed.is_unexplained()), (Some(Verdict::Missed), true));
        let refuted = row("refuted = \"a:peak > 1.5 * b:peak\"", HIGHER, false);
        assert_eq!((refuted.verdict, refuted.is_unexplained()), (Some(Verdict::Refuted), true));
    }

    #[test]
    fn new__a_known_miss_has_its_reason() {
        let missed = row("why = \"ties\"", HIGHER, false);
        assert_eq!((missed.why.as_deref(), missed.is_unexplained()), (Some("ties"), false));
        assert_eq!(row("why = \"ties\"", LOWER, false).why, None);
    }

    #[test]
    fn new__small_runs_give_a_verdict_only_if_the_row_says_so() {
        assert_eq!(row("quick = \"show\"", LOWER, true).verdict, Some(Verdict::Scaled));
        assert_eq!(row("quick = \"show\"", HIGHER, true).verdict, None);
        assert!(!row("quick = \"show\"", HIGHER, true).is_unexplained());
        assert!(row("quick = \"bar\"", HIGHER, true).is_unexplained());
    }

    #[test]
    fn new__a_missing_run_or_metric_is_never_explained() {
        let paper = Paper::parse(&format!("{PAPER}\nwhy = \"ties\""), false).expect("valid");
        let mut outcome = Outcome::default();
        outcome.errors.insert("b".to_owned(), "no such scenario".to_owned());
        let report = RowReport::new(&paper, &paper.rows[0], &outcome, false);
        assert_eq!(report.error.as_deref(), Some("b: no such scenario"));
        assert!(report.is_unexplained() && report.verdict_text() == "error");
        outcome = Outcome::default();
        for name in ["a", "b"] {
            outcome.results.insert(name.to_owned(), vec![json!({ "speed": 1 })]);
        }
        let report = RowReport::new(&paper, &paper.rows[0], &outcome, false);
        assert!(report.error.expect("there is no peak").contains("peak"));
    }

    #[test]
    fn number__has_few_digits() {
        let texts = [576_000.4, 125.25, 12.345, 0.12345, 3.0, f64::INFINITY].map(number);
        assert_eq!(texts, ["576000", "125.2", "12.35", "0.123", "3", "never"]);
    }
}
