//! The rows of a paper, from the TOML file of the paper.
//!
//! A file has `paper`, `title`, tables `[[run]]` ([`RunData`]) and `[[row]]` ([`Row`]). A run with
//! `each` stands for one run for each combination of its values, which replace `{KEY}` in its name,
//! its parameters and its command.

use super::expression::{Condition, Expression};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A paper: its runs and rows.
#[derive(Clone, Debug)]
pub(super) struct Paper {
    /// Short name, in lower case: the name of its page.
    pub(super) name: String,
    /// Heading of the page.
    pub(super) title: String,
    /// Paragraph under the heading, Markdown.
    pub(super) about: String,
    /// By name.
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) rows: Vec<Row>,
}

/// A run of many seeds, or a command.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    /// Name of the scenario; empty for a command.
    pub(super) scenario: String,
    /// In the order of their names.
    pub(super) set: BTreeMap<String, String>,
    /// Number of seeds, from 1; repetitions of a command.
    pub(super) seeds: u64,
    /// A program and its arguments. It prints a JSON object.
    pub(super) command: Vec<String>,
}

/// A claim of the paper, and its bar.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) id: String,
    /// The figure or table of the paper.
    pub(super) source: String,
    /// The paper's statement.
    pub(super) claim: String,
    /// The bar in words.
    pub(super) bar: String,
    /// Name of the metric `ours`, with its unit.
    pub(super) metric: String,
    /// Our value for each seed. Lists are shown by their median element.
    pub(super) ours: Expression,
    /// All of them must hold.
    pub(super) checks: Vec<Condition>,
    /// If it holds and the bar is missed, the claim is refuted.
    pub(super) refuted: Option<Condition>,
    /// How the experiment is smaller than the paper's; empty if it is not.
    #[serde(default)]
    pub(super) scale: String,
    /// Evidence for a known miss; empty without one.
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) quick: Quick,
    pub(super) figure: Option<Figure>,
}

/// How a row takes part in `--quick`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Quick {
    /// Its bar counts.
    Bar,
    /// It runs, without a verdict.
    Show,
    /// It does not run.
    #[default]
    Skip,
}

/// A figure of a row: one violin for each series, or lines over `x`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) y: String,
    #[serde(default)]
    pub(super) x: String,
    /// Places on the x axis, one for each element of the series; empty for violins.
    #[serde(default)]
    pub(super) at: Vec<f64>,
    /// Pairs of name and expression.
    pub(super) series: Vec<(String, Expression)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    paper: String,
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    run: Vec<RunData>,
    row: Vec<Row>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunData {
    name: String,
    #[serde(default)]
    scenario: String,
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default = "one")]
    seeds: u64,
    #[serde(default)]
    command: Vec<String>,
    /// Values by the name that they replace in braces.
    #[serde(default)]
    each: BTreeMap<String, Vec<String>>,
    quick: Option<QuickRun>,
}

/// Differences of a run in `--quick`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickRun {
    seeds: Option<u64>,
    #[serde(default)]
    set: BTreeMap<String, String>,
}

fn one() -> u64 {
    1
}

impl Paper {
    /// Parses the file of a paper, with the smaller runs if `quick`.
    ///
    /// # Errors
    /// The file or an expression in it is invalid, two runs or rows have one name, a row has no
    /// check, or a row needs a run that does not exist.
    pub(super) fn parse(text: &str, quick: bool) -> Result<Self, String> {
        let file: PaperFile = toml::from_str(text).map_err(|e| e.to_string())?;
        let mut runs = BTreeMap::new();
        for data in &file.run {
            for (name, run) in data.expanded(quick)? {
                if runs.insert(name.clone(), run).is_some() {
                    return Err(format!("two runs are named {name}"));
                }
            }
        }
        let mut ids = BTreeSet::new();
        for row in &file.row {
            if row.checks.is_empty() {
                return Err(format!("{}: it has no checks", row.id));
            }
            if !ids.insert(&row.id) {
                return Err(format!("two rows are named {}", row.id));
            }
            if let Some(missing) = row.runs().iter().find(|name| !runs.contains_key(*name)) {
                return Err(format!("{}: there is no run {missing}", row.id));
            }
        }
        Ok(Self { name: file.paper, title: file.title, about: file.about, runs, rows: file.row })
    }
}

impl RunData {
    /// All combinations of `each`, by name.
    fn expanded(&self, quick: bool) -> Result<Vec<(String, Run)>, String> {
        if self.scenario.is_empty() == self.command.is_empty() {
            return Err(format!("{}: either a scenario or a command", self.name));
        }
        let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for (key, values) in &self.each {
            let mut longer = Vec::new();
            for before in &all {
                let one = |value: &String| [&before[..], &[(key.clone(), value.clone())]].concat();
                longer.extend(values.iter().map(one));
            }
            all = longer;
        }
        Ok(all.iter().map(|values| self.with(values, quick)).collect())
    }

    /// The run with `values` in place of their names.
    fn with(&self, values: &[(String, String)], quick: bool) -> (String, Run) {
        let fill = |text: &str| {
            let fill = |text: String, (key, value): &(String, String)| {
                text.replace(&format!("{{{key}}}"), value)
            };
            values.iter().fold(text.to_owned(), fill)
        };
        let smaller = self.quick.as_ref().filter(|_| quick);
        let mut set = self.set.clone();
        set.extend(smaller.iter().flat_map(|quick| quick.set.clone()));
        let run = Run {
            scenario: self.scenario.clone(),
            set: set.iter().map(|(key, value)| (key.clone(), fill(value))).collect(),
            seeds: smaller.and_then(|quick| quick.seeds).unwrap_or(self.seeds).max(1),
            command: self.command.iter().map(|word| fill(word)).collect(),
        };
        (fill(&self.name), run)
    }
}

impl Run {
    /// The command line that runs all seeds.
    pub(super) fn command_line(&self) -> String {
        if !self.command.is_empty() {
            return self.command.join(" ");
        }
        let set = self.set.iter().map(|(key, value)| format!(" --set {key}={value}"));
        let (set, seeds) = (set.collect::<String>(), self.seeds);
        format!("spanwire sim run {}{set} --seeds {seeds} --json", self.scenario)
    }
}

impl Row {
    /// The names of the runs that it needs.
    pub(super) fn runs(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        self.ours.add_runs(&mut all);
        self.checks.iter().chain(&self.refuted).for_each(|check| check.add_runs(&mut all));
        let series = self.figure.iter().flat_map(|figure| &figure.series);
        series.for_each(|(_, values)| values.add_runs(&mut all));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
        paper = "x"
        title = "X"
        [[run]]
        name = "fct.{load}.{scheme}"
        scenario = "pacc-fct"
        seeds = 5
        set = { scheme = "{scheme}", load = "{load}%" }
        each = { scheme = ["pacc", "timely"], load = ["30", "50"] }
        quick = { seeds = 1, set = { time = "1ms" } }
        [[run]]
        name = "cost"
        command = ["bench", "agents", "--json"]
        [[row]]
        id = "P-8"
        source = "Fig. 7"
        claim = "shorter"
        bar = "at each load"
        metric = "reduction"
        ours = "max(1 - fct.{30,50}.pacc:mean / fct.{30,50}.timely:mean)"
        checks = ["fct.{30,50}.pacc:mean < fct.{30,50}.timely:mean"]
    "#;

    #[test]
    fn parse__a_run_stands_for_all_combinations() {
        let paper = Paper::parse(TWO, false).expect("it is valid");
        let names: Vec<&str> = paper.runs.keys().map(String::as_str).collect();
        let all = ["cost", "fct.30.pacc", "fct.30.timely", "fct.50.pacc", "fct.50.timely"];
        assert_eq!(names, all);
        let command = "spanwire sim run pacc-fct --set load=50% --set scheme=pacc --seeds 5 --json";
        assert_eq!(paper.runs["fct.50.pacc"].command_line(), command);
        assert_eq!(paper.runs["cost"].command_line(), "bench agents --json");
        assert_eq!(paper.rows[0].runs().into_iter().collect::<Vec<_>>(), all[1..]);
    }

    #[test]
    fn parse__quick_runs_are_smaller() {
        let paper = Paper::parse(TWO, true).expect("it is valid");
        let run = &paper.runs["fct.30.timely"];
        assert_eq!((run.seeds, run.set["time"].as_str(), run.set.len()), (1, "1ms", 3));
        assert_eq!(paper.rows[0].quick, Quick::Skip);
    }

    #[test]
    fn parse__rejects_what_cannot_be_run_or_checked() {
        let wrong = |from: &str, to: &str| {
            assert!(TWO.contains(from), "{from}");
            Paper::parse(&TWO.replace(from, to), false).expect_err(to)
        };
        assert!(wrong("scenario = \"pacc-fct\"", "").contains("either a scenario"));
        assert!(wrong("fct.{30,50}.pacc:mean <", "fct.70.pacc:mean <").contains("fct.70.pacc"));
        let error = wrong("pacc:mean <", "pacc:mean +");
        assert!(error.contains("line 21") && error.contains("timely:mean`: it ends"), "{error}");
        assert!(wrong("\"cost\"", "\"fct.30.pacc\"").contains("two runs"));
        assert!(wrong("bar = ", "bars = ").contains("bars"));
        let check = "\"fct.{30,50}.pacc:mean < fct.{30,50}.timely:mean\"";
        assert!(wrong(check, "").contains("no checks"));
    }
}
