//! Expressions over the results of runs: the metrics and the bars of a paper's rows.
//!
//! A value is a list of numbers for each seed. `RUN:PATH` is a metric of a run ([`super::path`]);
//! `{a,b}` in its name stands for several runs, whose lists are joined: `fct.{30,50}.pacc:x`.
//! Numbers and `+ - * /` work element by element. `min`, `max`, `mean`, `sum`, `count` `median` and
//! `spread` (largest minus smallest) reduce a seed's list to one number; with several arguments
//! they take all their elements. `lowest` and `highest` compare their arguments element by element.
//! `median_of_seeds`, `min_of_seeds` and `max_of_seeds` reduce the
//! seeds to one.
//!
//! A condition compares expressions with `<`, `<=`, `>`, `>=`, also in chains (`a < b < c`), joined
//! by `and` and `or`. A comparison takes the median over the seeds of both sides, and must hold for
//! all elements.

mod parser;

use super::path;
use parser::parse;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Results of runs, a JSON object for each seed, by the name of the run.
pub(super) type Results = BTreeMap<String, Vec<Json>>;

/// A list of numbers for each seed. A constant has one list.
pub(super) type Values = Vec<Vec<f64>>;

/// A parsed expression.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Expression(Node);

/// A parsed condition: alternatives of comparisons that must all hold.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Condition(Vec<Vec<Chain>>);

/// `first OP second OP third ...`
#[derive(Clone, PartialEq, Debug)]
struct Chain {
    first: Node,
    rest: Vec<(Compare, Node)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Number(f64),
    Metric { runs: Vec<String>, path: String },
    Call(Function, Vec<Node>),
    Binary(char, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Function {
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
enum Compare {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The text is none; the message names the place.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        parse(text, |parser| parser.sum().map(Self))
    }

    /// Adds the names of the runs that it needs.
    pub(super) fn add_runs(&self, to: &mut BTreeSet<String>) {
        self.0.add_runs(to);
    }

    /// Its value.
    ///
    /// # Errors
    /// A run or a metric is missing, or lists do not fit together.
    pub(super) fn evaluate(&self, results: &Results) -> Result<Values, String> {
        self.0.evaluate(results)
    }
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// The text is none; the message names the place.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        parse(text, |parser| parser.alternatives().map(Self))
    }

    /// Adds the names of the runs that it needs.
    pub(super) fn add_runs(&self, to: &mut BTreeSet<String>) {
        for chain in self.0.iter().flatten() {
            chain.first.add_runs(to);
            chain.rest.iter().for_each(|(_, node)| node.add_runs(to));
        }
    }

    /// True if it holds for the medians over the seeds.
    ///
    /// # Errors
    /// As [`Expression::evaluate`].
    pub(super) fn holds(&self, results: &Results) -> Result<bool, String> {
        // Every comparison is evaluated, so that a missing metric is reported in any case.
        let mut any = false;
        for all in &self.0 {
            let mut ok = true;
            for chain in all {
                ok &= chain.holds(results)?;
            }
            any |= ok;
        }
        Ok(any)
    }
}

impl Chain {
    fn holds(&self, results: &Results) -> Result<bool, String> {
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
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

impl Node {
    fn add_runs(&self, to: &mut BTreeSet<String>) {
        match self {
            Self::Number(_) => {}
            Self::Metric { runs, .. } => to.extend(runs.iter().cloned()),
            Self::Call(_, nodes) => nodes.iter().for_each(|node| node.add_runs(to)),
            Self::Binary(_, a, b) => [a, b].iter().for_each(|node| node.add_runs(to)),
        }
    }

    fn evaluate(&self, results: &Results) -> Result<Values, String> {
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
    const ALL: [(&str, Self); 12] = [
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
    fn of(self, values: Vec<Values>) -> Result<Values, String> {
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
    fn of_list(self, list: &[f64]) -> f64 {
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

/// Joins the lists of each seed. A constant fits any number of seeds.
fn concatenated(a: &Values, b: &Values) -> Result<Values, String> {
    let n = common(a.len(), b.len(), "seeds")?;
    let of = |all: &Values, i: usize| all[if all.len() == 1 { 0 } else { i }].clone();
    Ok((0..n).map(|i| [of(a, i), of(b, i)].concat()).collect())
}

/// Applies `op` seed by seed and element by element.
fn by_seed(a: &Values, b: &Values, op: impl Fn(f64, f64) -> f64) -> Result<Values, String> {
    let n = common(a.len(), b.len(), "seeds")?;
    let of = |all: &'_ Values, i: usize| if all.len() == 1 { 0 } else { i };
    (0..n).map(|i| joined(&a[of(a, i)], &b[of(b, i)], &op)).collect()
}

/// Applies `op` element by element; a list of one element fits any other.
fn joined(a: &[f64], b: &[f64], op: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>, String> {
    let n = common(a.len(), b.len(), "elements")?;
    let of = |list: &[f64], i: usize| list[if list.len() == 1 { 0 } else { i }];
    Ok((0..n).map(|i| op(of(a, i), of(b, i))).collect())
}

fn common(a: usize, b: usize, what: &str) -> Result<usize, String> {
    match (a, b) {
        (1, n) | (n, 1) => Ok(n),
        (a, b) if a == b => Ok(a),
        (a, b) => Err(format!("{a} {what} on one side and {b} on the other")),
    }
}

/// The median of each element over the seeds.
pub(super) fn medians(values: &Values) -> Result<Vec<f64>, String> {
    Ok(columns(values)?.into_iter().map(|mut column| median(&mut column)).collect())
}

/// The elements by place, each over all seeds.
fn columns(values: &Values) -> Result<Vec<Vec<f64>>, String> {
    let n = values.first().map_or(0, Vec::len);
    if n == 0 || values.iter().any(|list| list.len() != n) {
        return Err("lists are empty or of different lengths: reduce them with min, max, mean, \
                    sum, count or spread"
            .to_owned());
    }
    Ok((0..n).map(|i| values.iter().map(|list| list[i]).collect()).collect())
}

/// The median; `values` is sorted by it. Not a number if there are no values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return f64::NAN;
    }
    let (low, high) = (values[(n - 1) / 2], values[n / 2]);
    // The mean of two infinities is computed as it is, since midpoint() would be NaN.
    if low.to_bits() == high.to_bits() { low } else { f64::midpoint(low, high) }
}

pub(super) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(super) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The names that `pattern` stands for: each `{a,b}` is replaced by its alternatives in turn.
pub(super) fn braces(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let Some((names, after)) = rest.split_once('}') else {
        return vec![pattern.to_owned()];
    };
    let tails = braces(after);
    let one = |name: &str| -> Vec<String> {
        tails.iter().map(|tail| format!("{before}{}{tail}", name.trim())).collect()
    };
    names.split(',').flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Three seeds of two schemes, and of one at two loads.
    fn results() -> Results {
        let run = |peaks: [f64; 3]| {
            peaks.map(|peak| json!({ "peak": peak, "rates": [peak, 2.0 * peak, 1.0] })).to_vec()
        };
        [
            ("burst.pacc".to_owned(), run([3.0, 1.0, 2.0])),
            ("burst.pacc-timer".to_owned(), run([6.0, 4.0, 50.0])),
            ("load.30.pacc".to_owned(), run([10.0, 10.0, 10.0])),
            ("load.50.pacc".to_owned(), run([20.0, 20.0, 20.0])),
            ("never".to_owned(), vec![json!({ "refill_us": null }); 3]),
        ]
        .into()
    }

    fn value(text: &str) -> Values {
        let expression = Expression::parse(text).expect("it is an expression");
        expression.evaluate(&results()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn holds(text: &str) -> bool {
        let condition = Condition::parse(text).expect("it is a condition");
        condition.holds(&results()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn evaluate__works_seed_by_seed_and_element_by_element() {
        assert_eq!(value("1 + 2 * 3 - 4 / (1 + 1)"), [[5.0]]);
        assert_eq!(value("10 - 2 - 3"), [[5.0]]);
        assert_eq!(value("-burst.pacc:peak + 1"), [[-2.0], [0.0], [-1.0]]);
        assert_eq!(value("burst.pacc-timer:peak / burst.pacc:peak"), [[2.0], [4.0], [25.0]]);
        assert_eq!(value("2 * burst.pacc:rates[]")[0], [6.0, 12.0, 2.0]);
        assert_eq!(value("load.{30,50}.pacc:peak"), vec![vec![10.0, 20.0]; 3]);
        assert_eq!(value("1 - burst.pacc:peak / load.{30,50}.pacc:peak")[2], [0.8, 0.9]);
    }

    #[test]
    fn evaluate__functions_reduce_a_list_or_the_seeds() {
        assert_eq!(value("max(burst.pacc:rates[])"), [[6.0], [2.0], [4.0]]);
        assert_eq!(value("spread(burst.pacc:rates[])"), [[5.0], [1.0], [3.0]]);
        assert_eq!(value("mean(1, 2, 6) + sum(1, 2) + count(7, 7)"), [[8.0]]);
        assert_eq!(value("median(7, 1, 2)"), [[2.0]]);
        let both = "lowest(load.{30,50}.pacc:peak, 15) + highest(1, 2)";
        assert_eq!(value(both)[0], [12.0, 17.0]);
        assert_eq!(value("min(burst.pacc:peak, 2)"), [[2.0], [1.0], [2.0]]);
        assert_eq!(value("max_of_seeds(burst.pacc-timer:peak)"), [[50.0]]);
        assert_eq!(value("min_of_seeds(load.{30,50}.pacc:peak)"), [[10.0, 20.0]]);
        let ratio = "median_of_seeds(burst.pacc-timer:peak) / median_of_seeds(burst.pacc:peak)";
        assert_eq!(value(ratio), [[3.0]]);
    }

    #[test]
    fn holds__for_medians_and_all_elements() {
        assert!(holds("burst.pacc:peak <= 2") && !holds("burst.pacc:peak < 2"));
        // One seed of 50 is not the median.
        assert!(holds("burst.pacc-timer:peak < 10"));
        assert!(holds("burst.pacc:peak < load.{30,50}.pacc:peak"));
        assert!(!holds("load.{30,50}.pacc:peak < 15") && holds("load.{30,50}.pacc:peak < 21"));
        assert!(holds("1 < burst.pacc:peak < burst.pacc-timer:peak < 7"));
        assert!(!holds("1 < burst.pacc:peak < burst.pacc-timer:peak < 6"));
        assert!(holds("2 < 1 and 1 < 2 or 1 < 2") && !holds("1 < 2 and 2 < 1 or 2 < 1"));
    }

    #[test]
    fn holds__an_event_that_never_happened_is_at_infinity() {
        assert!(!holds("never:refill_us <= 1e9") && holds("burst.pacc:peak < never:refill_us"));
        // The ratio of two infinities is not a number, which meets no bar.
        assert!(!holds("never:refill_us / never:refill_us >= 0"));
    }

    #[test]
    fn holds__reports_what_does_not_fit() {
        let error = |text: &str| {
            let condition = Condition::parse(text).expect("it is a condition");
            condition.holds(&results()).expect_err("it does not fit")
        };
        assert!(error("no.such:peak < 1").contains("no.such"));
        assert!(error("1 < 2 or burst.pacc:speed < 1").contains("speed"));
        assert!(error("burst.pacc:rates[] < load.{30,50}.pacc:peak").contains("3 elements"));
    }

    #[test]
    fn parse__rejects_other_texts() {
        for text in ["", "1 +", "(1", "max()", "max 1", "middle(a:b)", "peak", "1 2", "a:b $ 2"] {
            let error = Expression::parse(text).expect_err(text);
            assert!(error.contains(text), "{error}");
        }
        for text in ["1", "a:b and 1 < 2", "1 < 2 and", "1 < 2 3"] {
            assert!(Condition::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn braces__are_replaced_in_turn() {
        assert_eq!(braces("a.b"), ["a.b"]);
        assert_eq!(braces("{x, y}.{1,2}z"), ["x.1z", "x.2z", "y.1z", "y.2z"]);
    }

    #[test]
    fn add_runs__has_each_once() {
        let mut runs = BTreeSet::new();
        let condition = "max(a.{1,2}:x, 3) < -b:y[].z and a.1:q > 1";
        Condition::parse(condition).expect("it is one").add_runs(&mut runs);
        assert_eq!(runs.into_iter().collect::<Vec<_>>(), ["a.1", "a.2", "b"]);
    }
}
