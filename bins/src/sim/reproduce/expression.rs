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

mod grammar;
mod tree;
mod values;

pub(super) use tree::Results;
pub(super) use values::{Values, least, median, medians, most};

use grammar::{alternatives, parse, sum};
use serde::Deserialize;
use std::collections::BTreeSet;
use tree::{Chain, Node};

/// A parsed expression.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Expression(Node);

/// A parsed condition: alternatives of comparisons that must all hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Condition {
    /// As it was parsed.
    pub(super) text: String,
    alternatives: Vec<Vec<Chain>>,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The text is none; the message names the place.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        parse(text, sum).map(Self)
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
        let alternatives = parse(text, alternatives)?;
        Ok(Self { text: text.to_owned(), alternatives })
    }

    /// Adds the names of the runs that it needs.
    pub(super) fn add_runs(&self, to: &mut BTreeSet<String>) {
        for chain in self.alternatives.iter().flatten() {
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
        for all in &self.alternatives {
            let mut ok = true;
            for chain in all {
                ok &= chain.holds(results)?;
            }
            any |= ok;
        }
        Ok(any)
    }
}

impl TryFrom<String> for Expression {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
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
    fn add_runs__has_each_once() {
        let mut runs = BTreeSet::new();
        let condition = "max(a.{1,2}:x, 3) < -b:y[].z and a.1:q > 1";
        Condition::parse(condition).expect("it is one").add_runs(&mut runs);
        assert_eq!(runs.into_iter().collect::<Vec<_>>(), ["a.1", "a.2", "b"]);
    }
}
