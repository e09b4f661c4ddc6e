//! Numbers by seed, made of readings of runs.

use super::reading::{Reading, SeedResult};
use super::run::Run;
use super::statistics::{Ours, median};
use spanwire_base::usize_from;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// The results of runs, by [`Run::command_line`] of all seeds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Results {
    /// One a seed, of the runs that could be run with all of them.
    pub seeds: BTreeMap<String, Vec<SeedResult>>,
    /// Why the others could not be run.
    pub errors: BTreeMap<String, String>,
}

/// A number for each seed. Runs are paired by seed: a ratio is one of the same seed.
#[derive(Clone)]
pub struct Quantity {
    /// Its text.
    pub text: String,
    /// Its unit; empty for a number.
    pub unit: &'static str,
    /// The runs that it needs.
    pub runs: Vec<Run>,
    of: Rc<BySeed>,
}

type BySeed = dyn Fn(&Results) -> Result<Vec<f64>, String>;

/// A reading of a run.
#[must_use]
pub fn value(run: &Run, reading: &Reading) -> Quantity {
    let (run, reading) = (run.clone(), reading.clone());
    let (text, unit) = (format!("{}, {}", reading.name, run.label()), reading.unit);
    let (runs, name) = (vec![run.clone()], run.label());
    let of = move |results: &Results| {
        let one = |result| match reading.of(result)?[..] {
            [number] => Ok(number),
            _ => Err(format!("{} is a list", reading.name)),
        };
        let seeds = results.of(&run)?;
        seeds.iter().map(one).collect::<Result<_, _>>().map_err(|e| format!("{name}: {e}"))
    };
    Quantity { text, unit, runs, of: Rc::new(of) }
}

/// A reading of one run over that of another.
#[must_use]
pub fn ratio(a: &Run, b: &Run, reading: &Reading) -> Quantity {
    let text = format!("{}, {} over {}", reading.name, a.label(), b.label());
    Quantity { text, ..over(&value(a, reading), &value(b, reading)) }
}

/// By how many percent a reading of one run is below that of another, for the seeds that both have.
#[must_use]
pub fn reduction(a: &Run, b: &Run, reading: &Reading) -> Quantity {
    let text = format!("{}, {} below {}", reading.name, a.label(), b.label());
    let of = |a, b| 100.0 * (1.0 - a / b);
    let [a_of, b_of] = [a, b].map(|run| value(run, reading).of_first(a.seeds.min(b.seeds)));
    combined(text, "%", [&a_of, &b_of], of)
}

/// A quantity over another.
#[must_use]
pub fn over(a: &Quantity, b: &Quantity) -> Quantity {
    combined(format!("({}) / ({})", a.text, b.text), "", [a, b], |a, b| a / b)
}

/// A quantity less another of the same unit.
pub(super) fn minus(a: &Quantity, b: &Quantity) -> Quantity {
    combined(format!("{} - {}", a.text, b.text), a.unit, [a, b], |a, b| a - b)
}

/// The greatest of quantities, seed by seed.
#[must_use]
pub fn most(all: impl IntoIterator<Item = Quantity>) -> Quantity {
    reduced("highest", all, |list| list.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The least of quantities.
#[must_use]
pub fn least(all: impl IntoIterator<Item = Quantity>) -> Quantity {
    reduced("lowest", all, |list| list.iter().copied().fold(f64::INFINITY, f64::min))
}

/// The median of quantities.
#[must_use]
pub fn middle(all: impl IntoIterator<Item = Quantity>) -> Quantity {
    reduced("median", all, median)
}

/// The greatest of quantities less the least, over the least.
#[must_use]
pub fn spread(all: impl IntoIterator<Item = Quantity>) -> Quantity {
    let all: Vec<Quantity> = all.into_iter().collect();
    let text = format!("spread over the lowest: {}", common(&all));
    let (most, least) = (most(all.clone()), least(all));
    Quantity { text, ..combined(String::new(), "", [&most, &least], |a, b| (a - b) / b) }
}

/// How far the first seed of a quantity is from the range of another over all of its seeds, as a
/// part of the end that is nearer; 0 within. So an experiment at full size, from one seed, is
/// compared with a smaller one.
pub(super) fn outside(one: &Quantity, all: &Quantity) -> Quantity {
    let text = format!("{}, distance from the range of: {}", one.text, all.text);
    let runs = [&one.runs[..], &all.runs].concat();
    let (one, all) = (one.clone(), all.clone());
    let of = move |results: &Results| {
        let (one, all) = (one.of(results)?, all.of(results)?);
        let value = *one.first().ok_or("it has no seeds")?;
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Ok(vec![(least / value - 1.0).max(value / most - 1.0).max(0.0)])
    };
    Quantity { text, unit: "", runs, of: Rc::new(of) }
}

impl Results {
    /// Those of a run, by seed.
    ///
    /// # Errors
    /// There are none.
    pub fn of(&self, run: &Run) -> Result<&[SeedResult], String> {
        let missing = || format!("{}: it has no results", run.label());
        self.seeds.get(&run.command_line(None)).map(Vec::as_slice).ok_or_else(missing)
    }
}

impl Quantity {
    /// Its text, with its unit.
    #[must_use]
    pub fn with_unit(&self) -> String {
        let comma = if self.unit.is_empty() { "" } else { ", " };
        format!("{}{comma}{}", self.text, self.unit)
    }

    /// The number of each seed.
    ///
    /// # Errors
    /// A result is missing, or has no such number, or the runs have different seeds.
    pub fn of(&self, results: &Results) -> Result<Vec<f64>, String> {
        (self.of)(results)
    }

    /// Its median over the seeds, with its interval.
    ///
    /// # Errors
    /// As [`Quantity::of`].
    pub fn ours(&self, results: &Results) -> Result<Ours, String> {
        Ours::of(&self.of(results)?).ok_or_else(|| "it has no seeds".to_owned())
    }

    /// Of at most so many seeds: the first.
    pub(super) fn of_first(self, seeds: u64) -> Self {
        let all = Rc::clone(&self.of);
        let of = move |results: &Results| {
            Ok(all(results)?.into_iter().take(usize_from(seeds)).collect())
        };
        Self { of: Rc::new(of), ..self }
    }

    /// With another text, which is shorter.
    pub(super) fn named(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quantity").field("text", &self.text).finish_non_exhaustive()
    }
}

fn combined(
    text: String,
    unit: &'static str,
    parts: [&Quantity; 2],
    by: impl Fn(f64, f64) -> f64 + 'static,
) -> Quantity {
    let all = parts.map(Clone::clone);
    Quantity { text, unit, ..reduced("", all, move |list| by(list[0], list[1])) }
}

fn reduced(
    how: &str,
    all: impl IntoIterator<Item = Quantity>,
    by: impl Fn(&[f64]) -> f64 + 'static,
) -> Quantity {
    let all: Vec<Quantity> = all.into_iter().collect();
    let text = format!("{how}: {}", common(&all));
    let unit = all.first().map_or("", |first| first.unit);
    let runs = all.iter().flat_map(|quantity| quantity.runs.clone()).collect();
    let of = move |results: &Results| {
        let lists: Vec<Vec<f64>> =
            all.iter().map(|one| one.of(results)).collect::<Result<_, _>>()?;
        let seeds = lists.first().map_or(0, Vec::len);
        if lists.iter().any(|list| list.len() != seeds) {
            return Err("runs of different seeds cannot be paired".to_owned());
        }
        let of_seed = |i: usize| lists.iter().map(|list| list[i]).collect::<Vec<f64>>();
        Ok((0..seeds).map(|i| by(&of_seed(i))).collect())
    };
    Quantity { text, unit, runs, of: Rc::new(of) }
}

/// The texts of quantities, with what they begin and end with once.
fn common(all: &[Quantity]) -> String {
    let words: Vec<Vec<&str>> = all.iter().map(|one| one.text.split(' ').collect()).collect();
    let Some(first) = words.first() else { return String::new() };
    let shortest = words.iter().map(Vec::len).min().unwrap_or(0);
    let is_same = |at: fn(&[&str], usize) -> usize, i: usize| {
        words.iter().all(|own| own[at(own, i)] == first[at(first, i)])
    };
    let head = (0..shortest).take_while(|i| is_same(|_, i| i, *i)).count();
    let left = shortest - head;
    let tail = (0..left).take_while(|i| is_same(|own, i| own.len() - 1 - i, *i)).count();
    let middles = words.iter().map(|own| own[head..own.len() - tail].join(" "));
    let middles: Vec<String> = middles.filter(|middle| !middle.is_empty()).collect();
    let [head, tail] = [&first[..head], &first[first.len() - tail..]].map(|part| part.join(" "));
    let parts = [head, middles.join(" | "), tail];
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}
