//! `spanwire sim compare NAME --schemes A,B`: the same scenario and seeds with several schemes.

use super::args::CompareArgs;
use super::file::Chosen;
use super::numbers::decimals;
use super::prepare::{cannot_write, prepare};
use super::report::write_checks;
use super::seed_run::{SeedRow, SeedRun};
use super::seeds::{SeedsReport, simulate};
use super::shard::{Shard, print_part};
use super::store::Store;
use super::summary::Summary;
use super::sweep::sweep_all;
use crate::exit::Exit;
use crate::report::print_report;
use serde::Serialize;
use spanwire_base::{u64_from, usize_from};
use spanwire_host::fabric::Error;
use spanwire_plot::{AxisSpec, Group, LineFigure, Quantity, Series, Shape, ViolinFigure};
use spanwire_sim::{Scenario, Trace};
use std::fmt::Write as _;
use std::fs;

/// The JSON object of `spanwire sim compare --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Comparison {
    scenario: String,
    /// The parameter in which the schemes differ.
    key: String,
    /// The first seed.
    seed: u64,
    /// Number of seeds of each scheme.
    seeds: u64,
    /// In the order of the command line.
    schemes: Vec<Scheme>,
    /// No checker failed in any run.
    checkers_ok: bool,
}

/// One scheme and its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Scheme {
    /// The value of the parameter.
    scheme: String,
    /// As of `sim run NAME --seeds N --json`.
    #[serde(flatten)]
    report: SeedsReport,
}

/// Runs all schemes, one after the other, each on all cores.
pub(super) fn run(args: &CompareArgs) -> Result<Exit, Error> {
    let store = Store::of(args.store.as_deref())?;
    if let Some(shard) = args.shard {
        return run_part(args, &store, shard);
    }
    let comparison = Comparison::new(args, &store)?;
    if let Some(dir) = &args.plot {
        let queues = comparison.queues_to_svg().map(|figure| ("queues.svg", figure));
        let figures = [("compare.svg", comparison.to_svg())].into_iter().chain(queues);
        let write = |(name, figure)| fs::write(dir.join(name), figure);
        let written =
            fs::create_dir_all(dir).and_then(|()| figures.into_iter().try_for_each(write));
        written.map_err(|e| cannot_write(dir, &e))?;
    }
    print_report(args.json, &comparison, Comparison::to_text)?;
    Ok(if comparison.checkers_ok { Exit::Success } else { Exit::Failure })
}

/// Runs the part of a shard: of all schemes and seeds each, one after the other.
fn run_part(args: &CompareArgs, store: &Store, shard: Shard) -> Result<Exit, Error> {
    let schemes = chosen(args)?;
    let seeds = args.seeds.get();
    let all = u64_from(schemes.len()).checked_mul(seeds).ok_or("there are not as many seeds")?;
    let one = |i| -> Result<Vec<String>, Error> {
        let unit = shard.place + i * shard.of;
        let scheme = &schemes[usize_from(unit / seeds)];
        let run = SeedRun::of(&scheme.with_seed(scheme.seed + unit % seeds), store)?;
        Ok(run.stamped().collect())
    };
    let count = shard.count(all);
    let violations = sweep_all(count, !args.json, "runs", one)?.concat();
    print_part(args.json, usize_from(count), &violations, &[])
}

/// The scenario with each scheme. A wrong value of the last one is reported before the first one
/// has run.
fn chosen(args: &CompareArgs) -> Result<Vec<Chosen>, Error> {
    let seed = args.seed.unwrap_or(1);
    seed.checked_add(args.seeds.get()).ok_or("there are not as many seeds")?;
    let key = args.key.clone().unwrap_or_else(|| key_of(&args.name));
    let of = |scheme: &String| {
        let own = (key.clone(), scheme.clone());
        let set = args.set.iter().cloned().chain([own]).collect();
        Chosen { name: args.name.clone(), seed, set }
    };
    let all: Vec<Chosen> = args.schemes.iter().map(of).collect();
    all.iter().try_for_each(|chosen| prepare(chosen).map(drop))?;
    Ok(all)
}

impl Comparison {
    fn new(args: &CompareArgs, store: &Store) -> Result<Self, Error> {
        let one = |(scheme, chosen): (&String, Chosen)| -> Result<Scheme, Error> {
            let report = simulate(&chosen, args.seeds, scheme, !args.json, store)?;
            Ok(Scheme { scheme: scheme.clone(), report })
        };
        let schemes: Vec<Scheme> =
            args.schemes.iter().zip(chosen(args)?).map(one).collect::<Result<_, _>>()?;
        Ok(Self {
            scenario: args.name.clone(),
            key: args.key.clone().unwrap_or_else(|| key_of(&args.name)),
            seed: args.seed.unwrap_or(1),
            seeds: args.seeds.get(),
            checkers_ok: schemes.iter().all(|s| s.report.checkers_ok),
            schemes,
        })
    }

    fn to_text(&self) -> String {
        let last = self.seed + self.seeds - 1;
        // Writing to a String cannot fail, here and below.
        let mut out = format!("{}, seeds {} to {last}\n", self.scenario, self.seed);
        let columns = ["n", "failed", "mean", "median", "p99", "max", "sent again", "drops"];
        let columns = columns.map(|c| format!(" {c:>10}")).concat();
        let _ = writeln!(out, "  {:<18}{columns}", self.key);
        for Scheme { scheme, report } in &self.schemes {
            let s = report.summary.fct_us;
            let of = |f: fn(&Summary) -> f64| {
                s.as_ref().map_or_else(|| "-".to_owned(), |s| decimals(f(s)))
            };
            let (n, failed) = (s.map_or(0, |s| s.n), report.summary.failed);
            let times = [of(|s| s.mean), of(|s| s.median), of(|s| s.p99), of(|s| s.max)];
            let times = times.map(|t| format!(" {t:>10}")).concat();
            let (retransmitted, drops) = (report.retransmitted_packets(), report.dropped());
            let _ = writeln!(
                out,
                "  {scheme:<18} {n:>10} {failed:>10}{times} {retransmitted:>10} {drops:>10}"
            );
        }
        let _ = writeln!(out, "  completion times in us, over all flows and seeds");
        let named = |s: &Scheme| -> Vec<String> {
            s.report.violations.iter().map(|v| format!("{}, {v}", s.scheme)).collect()
        };
        let violations: Vec<String> = self.schemes.iter().flat_map(named).collect();
        write_checks(&mut out, &violations, usize::MAX);
        out
    }

    /// The queue that the scenario's metric is about, over time: a line for each scheme, the mean
    /// of its seeds, in a band from the least to the most. `None` if there is no such queue.
    fn queues_to_svg(&self) -> Option<String> {
        let line = |s: &Scheme| {
            let traces = s.report.seeds.iter().flat_map(|row| &row.over_time);
            let queues = traces.filter(|trace| trace.name == "queue");
            let mut points: Vec<(f64, f64)> =
                queues.flat_map(Trace::points).map(|(us, bytes)| (us / 1e6, bytes)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name: s.scheme.clone(), points }
        };
        let series: Vec<Series> = self.schemes.iter().map(line).collect();
        let has_points = series.iter().any(|s| !s.points.is_empty());
        let axes = [("time", Quantity::Seconds), ("queue", Quantity::Bytes)]
            .map(|(label, quantity)| AxisSpec::linear(label, quantity));
        let figure = LineFigure::new("Queue", self.subtitle(), axes, Shape::Line, series);
        has_points.then(|| figure.to_svg())
    }

    fn to_svg(&self) -> String {
        let group = |s: &Scheme| Group {
            name: s.scheme.clone(),
            values: s.report.seeds.iter().flat_map(SeedRow::times_us).map(|us| us / 1e6).collect(),
        };
        let figure = ViolinFigure {
            title: "Completion times".to_owned(),
            subtitle: self.subtitle(),
            y: AxisSpec::log("FCT", Quantity::Seconds),
            groups: self.schemes.iter().map(group).collect(),
        };
        figure.to_svg()
    }

    fn subtitle(&self) -> String {
        format!("{} by {}, {} seeds", self.scenario, self.key, self.seeds)
    }
}

/// The parameter in which the schemes of a scenario differ, unless it is named; empty if there is
/// no such scenario.
fn key_of(scenario: &str) -> String {
    Scenario::find(scenario).map_or("", |s| s.params().compared()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZero;

    fn args(schemes: &[&str]) -> CompareArgs {
        CompareArgs {
            name: "incast-32".to_owned(),
            schemes: schemes.iter().map(|s| (*s).to_owned()).collect(),
            key: Some("mode".to_owned()),
            seed: Some(3),
            seeds: NonZero::new(2).expect("two is not zero"),
            set: vec![("bytes".to_owned(), "64KiB".to_owned())],
            json: true,
            plot: None,
            store: None,
            shard: None,
        }
    }

    #[test]
    fn new__schemes_run_in_order_from_the_same_seeds() {
        let c = Comparison::new(&args(&["sr", "rc"]), &Store::none()).expect("both are modes");
        let json = serde_json::to_value(&c).expect("it is plain data");
        for (at, scheme) in [(0, "sr"), (1, "rc")] {
            let of = &json["schemes"][at];
            assert_eq!(
                (&of["scheme"], &of["parameters"]["mode"]),
                (&scheme.into(), &scheme.into())
            );
            assert_eq!((&of["seeds"][0]["seed"], &of["seeds"][1]["seed"]), (&3.into(), &4.into()));
            assert_eq!(of["summary"]["fct_us"]["n"], 64);
            assert!(of["seeds"][1]["pfc_pauses"].is_number(), "{of}");
        }
        let hash = |at: usize| json["schemes"][at]["seeds"][0]["event_hash"].clone();
        assert_ne!(hash(0), hash(1));
        let text = c.to_text();
        for part in ["seeds 3 to 4", "mode", "sr  ", "rc  ", "64"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(roxmltree::Document::parse(&c.to_svg()).is_ok());
    }

    #[test]
    fn queues_to_svg__has_a_line_for_each_scheme() {
        let mut args = args(&["dcqcn", "pacc"]);
        args.name = "pacc-steady".to_owned();
        args.key = None;
        args.set = vec![("time".to_owned(), "300us".to_owned())];
        let c = Comparison::new(&args, &Store::none()).expect("both are schemes");
        let figure = c.queues_to_svg().expect("the metric is about a queue");
        assert!(roxmltree::Document::parse(&figure).is_ok());
        assert!(figure.contains("dcqcn") && figure.contains("pacc"));
        let other = Comparison::new(&self::args(&["rc"]), &Store::none()).expect("a mode");
        assert_eq!(other.queues_to_svg(), None);
    }

    #[test]
    fn new__rejects_an_unknown_scheme_before_anything_runs() {
        let error = Comparison::new(&args(&["rc", "tcp"]), &Store::none())
            .expect_err("there is no such mode");
        assert!(error.to_string().contains("mode"), "{error}");
    }

    #[test]
    fn key_of__every_scenario_declares_a_parameter_of_its_own() {
        let keys = ["pacc-burst", "reflex-fct", "cc-solo", "nothing"].map(key_of);
        assert_eq!(keys, ["scheme", "reflex", "cc", ""]);
        for scenario in Scenario::all() {
            assert!(scenario.params().has(&key_of(scenario.name)), "{}", scenario.name);
        }
    }
}
