//! Claims of papers, and their verdicts.

use super::check::{Check, CheckReport};
use super::quantity::{Quantity, Results};
use super::reading::Reading;
use super::run::Run;
use super::statistics::Ours;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// A paper: its rows.
#[derive(Clone, Debug)]
pub struct Paper {
    /// Short name, in lower case: the name of its page.
    pub name: &'static str,
    /// Heading of the page.
    pub title: &'static str,
    /// Paragraph under the heading, Markdown.
    pub about: &'static str,
    /// In the order of the paper.
    pub rows: Vec<Row>,
}

/// A claim of a paper, and the checks of it.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its name in the catalogue.
    pub id: &'static str,
    /// The figure or table of the paper.
    pub source: &'static str,
    /// The paper's statement.
    pub claim: &'static str,
    /// All of them must hold. The quantity of the first is shown.
    pub checks: Vec<Check>,
    /// If it holds and another does not, the claim is refuted.
    pub refuted: Option<Check>,
    /// How the experiment is smaller than the paper's; empty if it is not.
    pub scale: &'static str,
    /// Evidence for a known miss; empty without one.
    pub why: &'static str,
    /// Why it does not run unless it is named; empty if it does.
    pub not_run: &'static str,
    /// The seed does not change the quantity of the first check: it has one value.
    pub is_deterministic: bool,
    /// Choices of ours that the paper leaves open, or in which the row departs from the paper.
    pub choices: Vec<Choice>,
    /// Its part in quick checks.
    pub quick: Quick,
    /// Numbers and schemes of the claim that no check is about: they describe the experiment.
    pub described: &'static [&'static str],
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// A choice that a row depends on.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Its description.
    pub text: &'static str,
    /// The checks with the other choice, if it changes one.
    pub checks: Vec<Check>,
}

/// How a row takes part in quick checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Quick {
    /// Its checks count.
    Bar,
    /// It runs, without a verdict if it misses.
    Show,
    /// It does not run.
    #[default]
    Skip,
}

/// A figure of a row.
#[derive(Clone, Debug)]
pub enum Figure {
    /// A violin of each run, of a reading's numbers at all seeds.
    Violins {
        /// Its heading.
        title: &'static str,
        /// The runs by name.
        groups: Vec<(&'static str, Run)>,
        /// The reading.
        reading: Reading,
    },
    /// Groups of bars: medians, each with its 95 % interval.
    Bars {
        /// Its heading.
        title: &'static str,
        /// The label of the values.
        y: &'static str,
        /// Names of the groups.
        groups: Vec<String>,
        /// The bars of each group by name, with a quantity for each group.
        bars: Vec<(String, Vec<Quantity>)>,
    },
    /// Values over time: means of all seeds, in a band from the least to the most.
    OverTime {
        /// Its heading.
        title: &'static str,
        /// The label of the values.
        y: &'static str,
        /// The first and the last time that is shown, ms.
        span: [f64; 2],
        /// The lines by name: a run, and the name of its [`Trace`](crate::Trace).
        lines: Vec<(String, Run, String)>,
    },
}

/// The result of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All checks hold.
    Met,
    /// All hold, of an experiment smaller than the paper's.
    Scaled,
    /// One does not hold.
    Missed,
    /// One does not hold, and the result contradicts the claim.
    Refuted,
    /// It did not run.
    #[serde(rename = "not run")]
    NotRun,
}

/// A row with its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RowReport {
    /// The name of the paper.
    pub paper: &'static str,
    /// As of [`Row`].
    pub id: &'static str,
    /// As of [`Row`].
    pub source: &'static str,
    /// As of [`Row`].
    pub claim: &'static str,
    /// The checks in words.
    pub bar: String,
    /// The quantity of the first check, with its unit.
    pub metric: String,
    /// Its value; `None` if it could not be evaluated.
    pub ours: Option<Ours>,
    /// `None` if it could not be evaluated, or in a quick check that gives none.
    pub verdict: Option<Verdict>,
    /// Evidence, if a check does not hold for a known reason, or why the row did not run.
    pub why: Option<&'static str>,
    /// How the experiment is smaller than the paper's.
    pub scale: Option<&'static str>,
    /// The checks.
    pub checks: Vec<CheckReport>,
    /// The choices, each with its text and checks.
    pub choices: Vec<(&'static str, Vec<CheckReport>)>,
    /// Why the row could not be evaluated.
    pub error: Option<String>,
    /// The commands of its runs.
    pub commands: Vec<String>,
}

impl Verdict {
    /// The name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Scaled => "scaled",
            Self::Missed => "missed",
            Self::Refuted => "refuted",
            Self::NotRun => "not run",
        }
    }
}

impl Row {
    /// The row of a claim.
    pub(super) fn new(
        id: &'static str,
        source: &'static str,
        claim: &'static str,
        checks: impl Into<Vec<Check>>,
    ) -> Self {
        Self { id, source, claim, checks: checks.into(), ..Self::default() }
    }

    /// A row that has no checks, or whose runs take too long, for this reason.
    pub(super) fn absent([id, source, claim]: [&'static str; 3], reason: &'static str) -> Self {
        Self { not_run: reason, ..Self::new(id, source, claim, []) }
    }

    /// With a choice, and the checks with the other one.
    pub(super) fn choice(mut self, text: &'static str, checks: impl Into<Vec<Check>>) -> Self {
        self.choices.push(Choice { text, checks: checks.into() });
        self
    }

    /// The runs that it needs, by their command lines.
    #[must_use]
    pub fn runs(&self) -> BTreeMap<String, Run> {
        if !self.not_run.is_empty() {
            return BTreeMap::new();
        }
        let choices = self.choices.iter().flat_map(|choice| &choice.checks);
        let checks = self.checks.iter().chain(choices).chain(&self.refuted);
        let mut runs: Vec<Run> = checks.flat_map(|check| check.quantity.runs.clone()).collect();
        runs.extend(self.figures.iter().flat_map(Figure::runs));
        runs.into_iter().map(|run| (run.command_line(None), run)).collect()
    }

    /// Evaluates the row; `quick` if the results are of the smaller runs.
    #[must_use]
    pub fn report(&self, paper: &'static str, results: &Results, quick: bool) -> RowReport {
        let runs = self.runs();
        let given = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        let text = |check: &Check| check.text();
        let metric = self.checks.first().map(|check| check.quantity.with_unit());
        let mut report = RowReport {
            paper,
            id: self.id,
            source: self.source,
            claim: self.claim,
            bar: self.checks.iter().map(text).collect::<Vec<_>>().join("; "),
            metric: metric.unwrap_or_default(),
            ours: None,
            verdict: given(self.not_run).map(|_| Verdict::NotRun),
            why: given(self.not_run),
            scale: given(self.scale),
            checks: Vec::new(),
            choices: self.choices.iter().map(|choice| (choice.text, Vec::new())).collect(),
            error: None,
            commands: runs.values().map(|run| run.command_line(None)).collect(),
        };
        if self.not_run.is_empty() {
            let failed = runs.iter().find_map(|(key, run)| Some((run, results.errors.get(key)?)));
            report.error = match failed {
                Some((run, why)) => Some(format!("{}: {why}", run.label())),
                None => self.evaluate(&mut report, results, quick).err(),
            };
        }
        report
    }

    fn evaluate(
        &self,
        report: &mut RowReport,
        results: &Results,
        quick: bool,
    ) -> Result<(), String> {
        let of = |checks: &[Check]| -> Result<Vec<CheckReport>, String> {
            checks.iter().map(|check| check.report(results)).collect()
        };
        report.checks = of(&self.checks)?;
        report.ours = report.checks.first().map(|check| check.ours);
        for (choice, shown) in self.choices.iter().zip(&mut report.choices) {
            shown.1 = of(&choice.checks)?;
        }
        if let Some(ours) = report.ours
            && !quick
            && ours.n > 1
            && (ours.min == ours.max) != self.is_deterministic
        {
            let [is, says] =
                if self.is_deterministic { ["differ", "one"] } else { ["are equal", "many"] };
            return Err(format!(
                "the values of the seeds {is}, and the row says that it has {says}"
            ));
        }
        let is_met = report.checks.iter().all(|check| check.ok);
        let is_refuted = match &self.refuted {
            Some(check) => !is_met && check.report(results)?.ok,
            None => false,
        };
        let is_small = quick || !self.scale.is_empty();
        report.verdict = match (is_met, is_refuted) {
            (false, _) if quick && self.quick != Quick::Bar => None,
            (true, _) if is_small => Some(Verdict::Scaled),
            (true, _) => Some(Verdict::Met),
            (false, true) => Some(Verdict::Refuted),
            (false, false) => Some(Verdict::Missed),
        };
        report.why = Some(self.why).filter(|why| !is_met && !why.is_empty());
        Ok(())
    }
}

impl Figure {
    /// The queue that the scenario's metric is about, of each run.
    pub(super) fn queues(title: &'static str, span: [f64; 2], runs: &[(&str, Run)]) -> Self {
        let line =
            |(name, run): &(&str, Run)| ((*name).to_owned(), run.clone(), "queue".to_owned());
        Self::OverTime { title, y: "queue", span, lines: runs.iter().map(line).collect() }
    }

    /// The queues or rates of these flows over time, as the scenario's figure has them.
    pub(super) fn flows(
        title: &'static str,
        y: &'static str,
        span: [f64; 2],
        run: &Run,
        flows: Range<u32>,
    ) -> Self {
        let first = flows.start;
        let line =
            |flow| (format!("flow {}", flow - first + 1), run.clone(), format!("flow {flow}"));
        Self::OverTime { title, y, span, lines: flows.map(line).collect() }
    }

    fn runs(&self) -> Vec<Run> {
        match self {
            Self::Violins { groups, .. } => groups.iter().map(|(_, run)| run.clone()).collect(),
            Self::Bars { bars, .. } => {
                let all = bars.iter().flat_map(|(_, quantities)| quantities);
                all.flat_map(|quantity| quantity.runs.clone()).collect()
            }
            Self::OverTime { lines, .. } => lines.iter().map(|(_, run, _)| run.clone()).collect(),
        }
    }
}

impl RowReport {
    /// True if the row could not be evaluated, or misses without a known reason.
    #[must_use]
    pub fn is_unexplained(&self) -> bool {
        let misses = matches!(self.verdict, Some(Verdict::Missed | Verdict::Refuted));
        self.error.is_some() || (misses && self.why.is_none())
    }

    /// The verdict in a table.
    #[must_use]
    pub fn verdict_text(&self) -> &'static str {
        match (self.verdict, &self.error) {
            (Some(verdict), _) => verdict.name(),
            (None, Some(_)) => "error",
            (None, None) => "-",
        }
    }
}
