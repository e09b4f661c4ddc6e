//! The units of work of rows: one run of one seed each, and their division among machines.

use super::store;
use serde::Serialize;
use spanwire_sim::rows::Run;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A run from one seed, or the smaller run in its place.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Unit {
    /// The key of its result; `None` if the run does not exist, which its row reports.
    pub(super) key: Option<String>,
    /// [`Run::command_line`] of the row's run, for all seeds.
    pub(super) of: String,
    pub(super) run: Run,
    /// From 1.
    pub(super) seed: u64,
}

/// One of several machines: its place, from 0, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sim) struct Shard {
    pub(in crate::sim) place: u64,
    pub(in crate::sim) of: u64,
}

/// The units of these runs, by [`Run::command_line`] of all seeds.
pub(super) fn units(runs: &BTreeMap<String, Run>, quick: bool) -> Vec<Unit> {
    let mut all = Vec::new();
    for (of, run) in runs {
        let run = if quick { run.smaller() } else { run.clone() };
        let unit =
            |seed| Unit { key: store::key(&run, seed), of: of.clone(), run: run.clone(), seed };
        all.extend((1..=run.seeds).map(unit));
    }
    all
}

/// A unit as `--plan` prints it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Line {
    key: Option<String>,
    /// About, on one core.
    seconds: f64,
    command: String,
}

/// The plan: a line for each unit.
pub(super) fn lines(units: &[Unit]) -> Vec<Line> {
    let line = |unit: &Unit| Line {
        key: unit.key.clone(),
        seconds: unit.run.seconds(),
        command: unit.command(),
    };
    units.iter().map(line).collect()
}

pub(super) fn to_text(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let key = line.key.as_deref().unwrap_or("-");
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{key} {:>6.1} {}", line.seconds, line.command);
    }
    out
}

impl Unit {
    /// The command that repeats it.
    pub(super) fn command(&self) -> String {
        self.run.command_line(Some(self.seed))
    }
}

impl Shard {
    /// Its part of `units`: the longest first, each goes to the shard that has the least so far.
    /// All shards have the same parts in mind, whatever is stored and whenever they start.
    pub(super) fn part(self, mut units: Vec<Unit>) -> Vec<Unit> {
        let seconds = |unit: &Unit| unit.run.seconds();
        units.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)).then(a.key.cmp(&b.key)));
        let mut loads: Vec<(f64, u64)> = (0..self.of).map(|place| (0.0, place)).collect();
        units.retain(|unit| {
            let least = loads.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((load, place)) = least else { return false };
            *load += seconds(unit);
            *place == self.place
        });
        units
    }

    /// Parses `I/N`.
    pub(in crate::sim) fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(place, of)| (place.parse(), of.parse()));
        match numbers {
            Some((Ok(place), Ok(of))) if place < of && of <= SHARDS_MAX => Ok(Self { place, of }),
            _ => Err(format!("not I/N, with I from 0 to N - 1 and N of at most {SHARDS_MAX}")),
        }
    }
}

/// More than there are units.
const SHARDS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Unit> {
        let runs = [Run::of("mlcc-fig9", 7), Run::of("pair", 50), Run::of("reflex-fct", 3)];
        units(&runs.map(|run| (run.command_line(None), run)).into(), false)
    }

    #[test]
    fn part__shards_have_all_units_once_and_equal_times() {
        for of in [1, 2, 4, 200] {
            let parts: Vec<_> = (0..of).map(|place| Shard { place, of }.part(all())).collect();
            let commands: Vec<String> = parts.iter().flatten().map(Unit::command).collect();
            assert_eq!((commands.len(), BTreeSet::from_iter(&commands).len()), (60, 60), "{of}");
            let times = parts.iter().map(|part| part.iter().map(|u| u.run.seconds()).sum::<f64>());
            let times: Vec<f64> = times.collect();
            let [most, least] = [f64::max, f64::min].map(|by| times.iter().copied().reduce(by));
            let longest = all().iter().map(|unit| unit.run.seconds()).fold(0.0, f64::max);
            assert!(most.zip(least).is_some_and(|(a, b)| a - b <= longest), "{of}: {times:?}");
        }
    }

    #[test]
    fn part__does_not_depend_on_the_order() {
        let shard = Shard { place: 1, of: 3 };
        let turned = all().into_iter().rev().collect();
        assert_eq!(shard.part(all()), shard.part(turned));
    }

    #[test]
    fn parse__is_a_place_below_a_number() {
        assert_eq!(Shard::parse("3/4"), Ok(Shard { place: 3, of: 4 }));
        for wrong in ["", "4/4", "1", "a/b", "-1/4", "0/0", "0/1000000"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }
}
