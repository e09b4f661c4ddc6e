//! Parsed expressions and comparisons, and their evaluation.

use super::super::path;
use super::values::{Values, by_seed, columns, concatenated, joined, least, median, medians, most};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Results of runs, a JSON object for each seed, by the name of the run.
pub(in crate::sim::reproduce) type Results = BTreeMap<String, Vec<Json>>;

/// `first OP second OP third ...`
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) first: Node,
    pub(super) rest: Vec<(String, Node)>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Number(f64),
    Metric {
        runs: Vec<String>,
        path: String,
    },
    Call(Function, Vec<Node>),
    /// The operation `+`, `-`, `*` or `/`.
    Binary(String, Box<Node>, Box<Node>),
}

/// A function of the arguments of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    /// Reduces a seed's list, with all elements of all arguments.
    OfList(fn(&[f64]) -> f64),
    /// Compares the arguments element by element.
    Elementwise(fn(f64, f64) -> f64),
    /// Reduces the seeds.
    OfSeeds(fn(&[f64]) -> f64),
}

impl Chain {
    pub(super) fn holds(&self, results: &Results) -> Result<bool, String> {
        let mut left = medians(&self.first.evaluate(results)?)?;
        let mut ok = true;
        for (compare, node) in &self.rest {
            let right = medians(&node.evaluate(results)?)?;
            let holds = joined(&left, &right, |a, b| match &**compare {
                "<" => a < b,
                "<=" => a <= b,
                ">" => a > b,
                _ => a >= b,
            })?;
            ok &= holds.iter().all(|holds| *holds);
            left = right;
        }
        Ok(ok)
    }
}

impl Node {
    pub(super) fn binary(a: Self, op: &str, b: Self) -> Self {
        Self::Binary(op.to_owned(), Box::new(a), Box::new(b))
    }

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
                by_seed(&a.evaluate(results)?, &b.evaluate(results)?, |a, b| match &**op {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    _ => a / b,
                })
            }
        }
    }
}

impl Function {
    const ALL: [(&str, Self); 12] = [
        ("min", Self::OfList(least)),
        ("max", Self::OfList(most)),
        ("mean", Self::OfList(|list| total(list) / count(list))),
        ("sum", Self::OfList(total)),
        ("count", Self::OfList(count)),
        ("median", Self::OfList(median)),
        ("spread", Self::OfList(|list| most(list) - least(list))),
        ("lowest", Self::Elementwise(f64::min)),
        ("highest", Self::Elementwise(f64::max)),
        ("median_of_seeds", Self::OfSeeds(median)),
        ("min_of_seeds", Self::OfSeeds(least)),
        ("max_of_seeds", Self::OfSeeds(most)),
    ];

    /// The function of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    /// The value for the arguments `values`, of which there is at least one.
    fn of(self, values: Vec<Values>) -> Result<Values, String> {
        let mut arguments = values.into_iter();
        let mut lists = arguments.next().ok_or("a function without arguments")?;
        for more in arguments {
            lists = match self {
                Self::Elementwise(of) => by_seed(&lists, &more, of)?,
                Self::OfList(_) | Self::OfSeeds(_) => concatenated(&lists, &more)?,
            };
        }
        Ok(match self {
            Self::Elementwise(_) => lists,
            Self::OfList(of) => lists.iter().map(|list| vec![of(list)]).collect(),
            Self::OfSeeds(of) => vec![columns(&lists)?.iter().map(|column| of(column)).collect()],
        })
    }
}

fn total(list: &[f64]) -> f64 {
    list.iter().sum()
}

#[expect(clippy::cast_precision_loss, reason = "lengths of lists in memory")]
fn count(list: &[f64]) -> f64 {
    list.len() as f64
}

/// The lists of all `runs`, joined for each seed.
fn metric(results: &Results, runs: &[String], path: &str) -> Result<Values, String> {
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
