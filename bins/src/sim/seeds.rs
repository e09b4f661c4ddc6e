//! `spanwire sim run NAME --seeds N`: statistics of a scenario over many seeds.

use super::args::RunArgs;
use super::file::Chosen;
use super::numbers::{decimals, per_second, rounded};
use super::prepare::{cannot_write, prepare};
use super::report::write_checks;
use super::seed_run::{SeedRow, SeedRun};
use super::store::Store;
use super::summary::Summary;
use super::sweep::sweep_all;
use crate::exit::Exit;
use crate::report::print_report;
use serde::Serialize;
use spanwire_host::fabric::Error;
use spanwire_plot::{AxisSpec, Group, Quantity, ViolinFigure};
use spanwire_sim::Measure;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::num::NonZero;
use std::time::Instant;

/// The JSON object of `spanwire sim run NAME --seeds N --json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct SeedsReport {
    scenario: String,
    /// The values of all parameters.
    parameters: BTreeMap<&'static str, String>,
    /// The measure of the completion times.
    measure: Measure,
    /// Ideal completion time, if the scenario has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ideal_us: Option<f64>,
    /// Results by seed, ascending.
    pub(super) seeds: Vec<SeedRow>,
    pub(super) summary: Summaries,
    /// Frames and packets dropped, summed over all seeds.
    drops: BTreeMap<String, u64>,
    /// The engines' counters, summed over all seeds.
    engine: BTreeMap<String, u64>,
    /// No checker failed.
    pub(super) checkers_ok: bool,
    /// Violations that the checkers found.
    pub(super) violations: Vec<String>,
    events: u64,
    packet_hops: u64,
    /// Wall-clock seconds.
    wall_s: f64,
}

/// Statistics over all seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Summaries {
    /// Flows, or messages, that did not complete.
    pub(super) failed: u64,
    /// Statistics of all completion times.
    pub(super) fct_us: Option<Summary>,
    /// Statistics of the mean of each seed.
    mean_us: Option<Summary>,
    /// Statistics of the longest completion time of each seed.
    max_us: Option<Summary>,
    /// Statistics of the mean of each seed over the ideal.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_over_ideal: Option<Summary>,
    /// Statistics of the longest completion time of each seed over the ideal.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_over_ideal: Option<Summary>,
}

/// Runs the scenario with `seeds` seeds on all cores, each as a simulation of its own.
pub(super) fn run(args: &RunArgs, chosen: &Chosen, seeds: NonZero<u64>) -> Result<Exit, Error> {
    let of_one = [args.pcap.is_some(), args.samples.is_some(), args.flows.is_some()];
    if of_one.contains(&true) {
        return Err("--seeds is many runs: --pcap, --samples and --flows need a single run".into());
    }
    let report = simulate(chosen, seeds, &chosen.name, !args.json, &Store::none())?;
    if let Some(dir) = &args.plot {
        let write = || fs::create_dir_all(dir).and_then(|()| report.write_violin(dir));
        write().map_err(|e| cannot_write(dir, &e))?;
    }
    print_report(args.json, &report, SeedsReport::to_text)?;
    Ok(if report.checkers_ok { Exit::Success } else { Exit::Failure })
}

/// Runs the scenario with `seeds` seeds on all cores, and shows the progress as `title` if `live`.
/// Results that are stored are taken from there.
pub(super) fn simulate(
    chosen: &Chosen,
    seeds: NonZero<u64>,
    title: &str,
    live: bool,
    store: &Store,
) -> Result<SeedsReport, Error> {
    chosen.seed.checked_add(seeds.get()).ok_or("there are not as many seeds")?;
    let (_, parameters) = prepare(chosen)?;
    let started = Instant::now();
    let one = |i| SeedRun::of(&chosen.with_seed(chosen.seed + i), store);
    let runs = sweep_all(seeds.get(), live, &format!("seeds of {title}"), one)?;
    Ok(SeedsReport::new(runs, parameters, started.elapsed().as_secs_f64()))
}

impl SeedsReport {
    /// The report of all seeds; `runs` has at least one.
    fn new(runs: Vec<SeedRun>, parameters: BTreeMap<&'static str, String>, wall_s: f64) -> Self {
        let first = runs.first();
        let ideal_us = first.and_then(|run| run.ideal_us);
        let (scenario, measure) =
            first.map(|run| (run.scenario.clone(), run.measure)).unwrap_or_default();
        let mut sums = [BTreeMap::new(), BTreeMap::new()];
        for run in &runs {
            for (sum, of_seed) in sums.iter_mut().zip([&run.row.drops, &run.engine]) {
                for (name, n) in of_seed {
                    // Numbers of a file may have any value.
                    let sum: &mut u64 = sum.entry(name.clone()).or_default();
                    *sum = sum.saturating_add(*n);
                }
            }
        }
        let [drops, engine] = sums;
        let checkers_ok = runs.iter().all(|run| run.checkers_ok);
        let [events, packet_hops] = [|run: &SeedRun| run.events, |run: &SeedRun| run.packet_hops]
            .map(|of| runs.iter().map(of).fold(0, u64::saturating_add));
        let violations = runs.iter().flat_map(SeedRun::stamped).collect();
        let seeds: Vec<SeedRow> = runs.into_iter().map(SeedRun::into_row).collect();
        Self {
            scenario,
            parameters,
            measure,
            ideal_us,
            summary: Summaries::new(&seeds, ideal_us),
            seeds,
            drops,
            engine,
            checkers_ok,
            violations,
            events,
            packet_hops,
            wall_s,
        }
    }

    /// Retransmitted packets of all seeds.
    pub(super) fn retransmitted_packets(&self) -> u64 {
        self.seeds.iter().map(|row| row.retransmitted_packets).fold(0, u64::saturating_add)
    }

    /// Frames and packets dropped in all seeds.
    pub(super) fn dropped(&self) -> u64 {
        self.drops.values().copied().fold(0, u64::saturating_add)
    }

    /// The report as text.
    pub(super) fn to_text(&self) -> String {
        let (what, from) = match self.measure {
            Measure::Messages => ("messages", "post to completion"),
            Measure::Deliveries => ("gaps", "one delivery to the next"),
            Measure::Completion => ("flows", "post to completion"),
            Measure::Arrival => ("flows", "post to arrival"),
        };
        let (first, last) = (self.seeds.first(), self.seeds.last());
        let [first, last] = [first, last].map(|row| row.map_or(0, |row| row.seed));
        // Writing to a String cannot fail, here and below.
        let mut out = format!("{}, seeds {first} to {last}\n", self.scenario);
        let _ = writeln!(
            out,
            "  {:<18} {:>7} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "us", "n", "mean", "deviation", "min", "median", "p99", "max"
        );
        let s = &self.summary;
        for (name, summary) in [
            (what, s.fct_us),
            ("mean of a seed", s.mean_us),
            ("last of a seed", s.max_us),
            ("mean / ideal", s.mean_over_ideal),
            ("last / ideal", s.max_over_ideal),
        ] {
            let Some(s) = summary else { continue };
            let columns = [s.mean, s.deviation, s.min, s.median, s.p99, s.max].map(decimals);
            let columns = columns.map(|c| format!(" {c:>10}")).concat();
            let _ = writeln!(out, "  {name:<18} {:>7}{columns}", s.n);
        }
        let _ = writeln!(out, "  from {from}; {} {what} failed", s.failed);
        let drops: Vec<String> = self.drops.iter().map(|(name, n)| format!("{name} {n}")).collect();
        if !drops.is_empty() {
            let _ = writeln!(out, "  drops: {}", drops.join(", "));
        }
        let rate = rounded(per_second(self.packet_hops, self.wall_s));
        let (hops, wall) = (self.packet_hops, self.wall_s);
        let _ = writeln!(out, "  {hops} packet hops in {wall:.1} s, {rate} a second");
        write_checks(&mut out, &self.violations, usize::MAX);
        out
    }

    fn write_violin(&self, dir: &std::path::Path) -> std::io::Result<()> {
        let times = self.seeds.iter().flat_map(|row| row.fct_us.iter().flatten());
        let values = times.map(|us| us / 1e6).collect();
        let figure = ViolinFigure {
            title: "Completion times".to_owned(),
            subtitle: format!("{}, {} seeds", self.scenario, self.seeds.len()),
            y: AxisSpec::linear("FCT", Quantity::Seconds),
            groups: vec![Group { name: self.scenario.clone(), values }],
        };
        fs::write(dir.join("fct_violin.svg"), figure.to_svg())
    }
}

impl Summaries {
    fn new(seeds: &[SeedRow], ideal_us: Option<f64>) -> Self {
        let all = seeds.iter().flat_map(|row| row.fct_us.iter().flatten().copied());
        let means = || seeds.iter().filter_map(|row| row.mean_us);
        let lasts = || seeds.iter().filter_map(|row| row.max_us);
        Self {
            failed: seeds.iter().map(|row| row.failed).fold(0, u64::saturating_add),
            fct_us: Summary::of(all),
            mean_us: Summary::of(means()),
            max_us: Summary::of(lasts()),
            mean_over_ideal: ideal_us.and_then(|ideal| Summary::of(means().map(|us| us / ideal))),
            max_over_ideal: ideal_us.and_then(|ideal| Summary::of(lasts().map(|us| us / ideal))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, report};
    use spanwire_sim::Report;

    fn reports() -> Vec<Report> {
        let one = |seed: u32| {
            let flows = (1..=4).map(|i| flow(0, i, 1 << 20, f64::from(seed * i)));
            let mut r = report(flows.collect());
            r.seed = seed.into();
            r.drops = [("line_loss".to_owned(), seed.into())].into();
            r
        };
        (1..=3).map(one).collect()
    }

    fn of(reports: &[Report]) -> SeedsReport {
        SeedsReport::new(reports.iter().map(SeedRun::new).collect(), BTreeMap::new(), 1.0)
    }

    #[test]
    fn new__keeps_every_time_in_the_order_of_seeds_and_flows() {
        let mut reports = reports();
        reports[1].flows[2].fct_us = None;
        reports[1].flows[2].failed = Some("RETRY_EXC_ERR");
        reports[2].violations = vec!["a byte is wrong".to_owned()];
        reports[2].checkers_ok = false;
        let r = of(&reports);
        assert_eq!(r.seeds[1].fct_us, [Some(2.0), Some(4.0), None, Some(8.0)]);
        assert_eq!((r.seeds[1].failed, r.seeds[1].max_us), (1, Some(8.0)));
        assert_eq!((r.summary.failed, r.summary.fct_us.map(|s| s.n)), (1, Some(11)));
        assert_eq!((r.drops["line_loss"], r.packet_hops), (6, 3_000));
        assert!(!r.checkers_ok);
        assert_eq!(r.violations, ["seed 3: a byte is wrong"]);
        let text = r.to_text();
        for part in ["seeds 1 to 3", "1 flows failed", "line_loss 6", "FAILED, 1 violations"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("ideal"), "{text}");
        let json = serde_json::to_value(&r).expect("it is plain data");
        assert!(json["seeds"][1]["fct_us"][2].is_null() && json.get("ideal_us").is_none());
        assert_eq!(json["summary"]["mean_us"]["n"], 3);
        // A metric of the run is in the row of its seed; lists and what the row has by itself not.
        assert_eq!(json["seeds"][1]["pfc_pauses"], 0);
        assert!(json["seeds"][1].get("flows").is_none(), "{json}");
    }

    #[test]
    fn new__compares_with_the_ideal_if_any() {
        let mut reports = reports();
        reports.iter_mut().for_each(|r| r.ideal_us = Some(2.5));
        let r = of(&reports);
        let [mean, max] = [r.summary.mean_over_ideal, r.summary.max_over_ideal].map(|s| {
            let s = s.expect("three seeds");
            (s.min, s.median, s.max)
        });
        assert_eq!((mean, max), ((1.0, 2.0, 3.0), (1.6, 3.2, 4.8)));
        assert!(r.to_text().contains("mean / ideal"));
    }

    #[test]
    fn new__of_messages_takes_each() {
        let mut reports = reports();
        for r in &mut reports {
            r.measure = Measure::Messages;
            r.flows.truncate(1);
            r.flows[0].messages_us = vec![7.0, 8.0];
        }
        let r = of(&reports);
        assert_eq!(r.seeds[0].fct_us, [Some(7.0), Some(8.0)]);
        assert!(r.to_text().contains("messages"));
    }
}
