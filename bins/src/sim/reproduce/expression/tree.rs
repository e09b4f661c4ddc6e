//! Parsed expressions and comparisons, and their evaluation.

use super::super::path;
use super::values::{Values, by_seed, columns, concatenated, joined, least, median, medians, most};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Results of runs, a JSON object for each seed, by the name of the run.
pub(in crate::sim::reproduce) type Results = BTreeMap<String, Vec<Json>>;

/// `first OP second OP third ...`
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chain {
    pub(super) first: Node,
    pub(super) rest: Vec<(Compare, Node)>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    Number(f64),
    Metric { runs: Vec<String>, path: String },
    Call(Function, Vec<Node>),
    Binary(char, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Min,
    Max,
    Mean,
    Sum,
    Count,
    Median,
    Spread,
    Lowest,
    Highest,
    MedianOfSeeds,
    MinOfSeeds,
    MaxOfSeeds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compare {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Chain {
    pub(super) fn holds(&self, results: &Results) -> Result<bool, String> {
        let mut left = medians(&self.first.evaluate(results)?)?;
        let mut ok = true;
        for (compare, node) in &self.rest {
            let right = medians(&node.evaluate(results)?)?;
            let pairs = joined(&left, &right, |a, b| f64::from(u8::from(compare.holds(a, b))))?;
            ok &= pairs.iter().all(|holds| *holds > 0.0);
            left = right;
        }
        Ok(ok)
    }
}

impl Compare {
    pub(super) fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

impl Node {
    pub(super) fn add_runs(&self, to: &mut BTreeSet<String>) {
        match self {
            Self::Number(_) => {}
            Self::Metric { runs, .. } => to.extend(runs.iter().cloned()),
            Self::Call(_, nodes) => nodes.iter().for_each(|node| node.add_runs(to)),
            Self::Binary(_, a, b) => [a, b].iter().for_each(|node| node.add_runs(to)),
        }
    }

    pub(super) fn evaluate(&self, results: &Results) -> Result<Values, String> {
        match self {
            Self::Number(n) => Ok(vec![vec![*n]]),
            Self::Metric { runs, path } => metric(results, runs, path),
            Self::Call(function, nodes) => {
                let values: Result<Vec<Values>, String> =
                    nodes.iter().map(|node| node.evaluate(results)).collect();
                function.of(values?)
            }
            Self::Binary(op, a, b) => {
                by_seed(&a.evaluate(results)?, &b.evaluate(results)?, |a, b| match op {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    _ => a / b,
                })
            }
        }
    }
}

impl Function {
    pub(super) const ALL: [(&str, Self); 12] = [
        ("min", Self::Min),
        ("max", Self::Max),
        ("mean", Self::Mean),
        ("sum", Self::Sum),
        ("count", Self::Count),
        ("median", Self::Median),
        ("spread", Self::Spread),
        ("lowest", Self::Lowest),
        ("highest", Self::Highest),
        ("median_of_seeds", Self::MedianOfSeeds),
        ("min_of_seeds", Self::MinOfSeeds),
        ("max_of_seeds", Self::MaxOfSeeds),
    ];

    /// The value for the arguments `values`, of which there is at least one.
    pub(super) fn of(self, values: Vec<Values>) -> Result<Values, String> {
        let mut arguments = values.into_iter();
        let mut lists = arguments.next().ok_or("a function without arguments")?;
        for more in arguments {
            lists = match self {
                Self::Lowest => by_seed(&lists, &more, f64::min)?,
                Self::Highest => by_seed(&lists, &more, f64::max)?,
                _ => concatenated(&lists, &more)?,
            };
        }
        let over_seeds = |of: fn(&mut Vec<f64>) -> f64| {
            let columns = columns(&lists)?;
            Ok(vec![columns.into_iter().map(|mut column| of(&mut column)).collect()])
        };
        match self {
            Self::MedianOfSeeds => over_seeds(|column| median(column)),
            Self::MinOfSeeds => over_seeds(|column| least(column)),
            Self::MaxOfSeeds => over_seeds(|column| most(column)),
            Self::Lowest | Self::Highest => Ok(lists),
            _ => Ok(lists.iter().map(|list| vec![self.of_list(list)]).collect()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "lengths of lists in memory")]
    pub(super) fn of_list(self, list: &[f64]) -> f64 {
        match self {
            Self::Min => least(list),
            Self::Max => most(list),
            Self::Median => median(&mut list.to_vec()),
            Self::Spread => most(list) - least(list),
            Self::Count => list.len() as f64,
            Self::Mean => list.iter().sum::<f64>() / list.len() as f64,
            _ => list.iter().sum(),
        }
    }
}

/// The lists of all `runs`, joined for each seed.
pub(super) fn metric(results: &Results, runs: &[String], path: &str) -> Result<Values, String> {
    let mut all: Option<Values> = None;
    for run in runs {
        let seeds = results.get(run).ok_or_else(|| format!("there are no results of {run}"))?;
        let one = |json: &Json| path::numbers(json, path).map_err(|e| format!("{run}: {e}"));
        let lists: Values = seeds.iter().map(one).collect::<Result<_, _>>()?;
        all = Some(match all {
            None => lists,
            Some(before) => concatenated(&before, &lists)?,
        });
    }
    all.ok_or_else(|| format!("no run has the metric {path}"))
}
