//! Claims of papers, and their verdicts.

use super::check::{Check, CheckReport};
use super::quantity::{Quantity, Results};
use super::reading::Reading;
use super::run::Run;
use super::statistics::Ours;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Its part in quick checks.
    pub quick: Quick,
    /// Its figure.
    pub figure: Option<Figure>,
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
    /// Lines over the numbers of `x`.
    Lines {
        /// Its heading.
        title: &'static str,
        /// Labels of both axes.
        axes: [&'static str; 2],
        /// Places on the x axis.
        x: Vec<f64>,
        /// The lines by name, with a quantity for each place, of which the median is drawn.
        lines: Vec<(String, Vec<Quantity>)>,
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
    /// Evidence, if a check does not hold for a known reason.
    pub why: Option<&'static str>,
    /// How the experiment is smaller than the paper's.
    pub scale: Option<&'static str>,
    /// The checks.
    pub checks: Vec<CheckReport>,
    /// Why the row could not be evaluated.
    pub error: Option<String>,
    /// The commands of its runs.
    pub commands: Vec<String>,
    /// Wall-clock seconds of its runs, summed; runs that rows share count for each.
    pub wall_s: f64,
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

    /// The runs that it needs, by their command lines.
    #[must_use]
    pub fn runs(&self) -> BTreeMap<String, Run> {
        let checks = self.checks.iter().chain(&self.refuted);
        let mut runs: Vec<Run> = checks.flat_map(|check| check.quantity.runs.clone()).collect();
        match &self.figure {
            Some(Figure::Violins { groups, .. }) => {
                runs.extend(groups.iter().map(|(_, run)| run.clone()));
            }
            Some(Figure::Lines { lines, .. }) => {
                let all = lines.iter().flat_map(|(_, quantities)| quantities);
                runs.extend(all.flat_map(|quantity| quantity.runs.clone()));
            }
            None => {}
        }
        runs.into_iter().map(|run| (run.command_line(None), run)).collect()
    }

    /// Evaluates the row; `quick` if the results are of the smaller runs.
    #[must_use]
    pub fn report(&self, paper: &'static str, results: &Results, quick: bool) -> RowReport {
        let runs = self.runs();
        let checks: Result<Vec<CheckReport>, String> =
            self.checks.iter().map(|check| check.report(results)).collect();
        let failed = runs.iter().find_map(|(key, run)| Some((run, results.errors.get(key)?)));
        let failed = failed.map(|(run, why)| format!("{}: {why}", run.label()));
        let verdict = checks.clone().and_then(|checks| self.verdict(&checks, results, quick));
        let error = failed.or_else(|| verdict.clone().err());
        let text = |check: &Check| check.text();
        let metric = self.checks.first().map(|check| check.quantity.with_unit());
        let checks = checks.unwrap_or_default();
        let is_missed = checks.iter().any(|check| !check.ok);
        let given = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        RowReport {
            paper,
            id: self.id,
            source: self.source,
            claim: self.claim,
            bar: self.checks.iter().map(text).collect::<Vec<_>>().join("; "),
            metric: metric.unwrap_or_default(),
            ours: checks.first().map(|check| check.ours),
            verdict: verdict.ok().flatten().filter(|_| error.is_none()),
            why: given(self.why).filter(|_| is_missed),
            scale: given(self.scale),
            checks,
            error,
            commands: runs.values().map(|run| run.command_line(None)).collect(),
            wall_s: runs.keys().filter_map(|key| results.wall_s.get(key)).sum(),
        }
    }

    fn verdict(
        &self,
        checks: &[CheckReport],
        results: &Results,
        quick: bool,
    ) -> Result<Option<Verdict>, String> {
        let is_met = checks.iter().all(|check| check.ok);
        let is_refuted = match &self.refuted {
            Some(check) => !is_met && check.report(results)?.ok,
            None => false,
        };
        let is_small = quick || !self.scale.is_empty();
        Ok(match (is_met, is_refuted) {
            (false, _) if quick && self.quick != Quick::Bar => None,
            (true, _) if is_small => Some(Verdict::Scaled),
            (true, _) => Some(Verdict::Met),
            (false, true) => Some(Verdict::Refuted),
            (false, false) => Some(Verdict::Missed),
        })
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
