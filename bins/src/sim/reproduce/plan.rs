//! The units of work of rows: one run of one seed each, and their division among machines.

use crate::sim::shard::Shard;
use crate::sim::store;
use serde::Serialize;
use spanwire_sim::RESULTS_VERSION;
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

/// The units of these runs, by [`Run::command_line`] of all seeds.
pub(super) fn units(runs: &BTreeMap<String, Run>, quick: bool) -> Vec<Unit> {
    let mut all = Vec::new();
    for (of, run) in runs {
        let run = if quick { run.smaller() } else { run.clone() };
        let unit = |seed| Unit { key: key(&run, seed), of: of.clone(), run: run.clone(), seed };
        all.extend((1..=run.seeds).map(unit));
    }
    all
}

/// The key of a run's result from one seed. `None` if it cannot run.
fn key(run: &Run, seed: u64) -> Option<String> {
    match run.identity(seed).ok()? {
        Some(identity) => Some(store::key(&identity.text, &identity.files)),
        None => {
            let command = run.command_line(Some(seed));
            Some(store::key(&format!("results {RESULTS_VERSION}\n{command}"), &[]))
        }
    }
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
}

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
    fn key__is_of_the_parameters_and_the_seed() {
        let run = Run::of("pair", 6);
        let [one, two] = [1, 2].map(|seed| key(&run, seed).expect("it exists"));
        assert!(one.len() == 64 && one != two, "{one}");
        assert_eq!(
            key(&run.clone().set("mtu", "4096"), 1),
            key(&run.clone().set("mtu", "4096"), 1)
        );
        assert_ne!(key(&run.clone().set("mtu", "256"), 1), Some(one));
        assert_eq!(key(&run.set("no_such", "1"), 1), None);
        let echo = Run::command(&["echo"]);
        assert!(key(&echo, 1).is_some() && key(&echo, 1) != key(&echo, 2));
    }
}
