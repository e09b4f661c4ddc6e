//! `spanwire sim run NAME --seeds N`: statistics of a scenario over many seeds.

use super::args::RunArgs;
use super::file::Chosen;
use super::numbers::{decimals, per_second, rounded};
use super::prepare::{cannot_write, prepare};
use super::report::write_checks;
use super::sweep::sweep_all;
use crate::exit::Exit;
use crate::report::print_report;
use serde::Serialize;
use serde_json::{Map, Value};
use spanwire_base::u64_from;
use spanwire_host::fabric::Error;
use spanwire_plot::{AxisSpec, Group, Quantity, ViolinFigure};
use spanwire_sim::{FlowReport, Measure, NetworkError, Report, Trace, Watch};
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

/// The result of one seed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct SeedRow {
    seed: u64,
    /// Completion times of its flows, or messages, in their order; null for a failed one.
    fct_us: Vec<Option<f64>>,
    /// The mean of the completion times.
    mean_us: Option<f64>,
    /// The longest completion time: the total duration, if the flows started together.
    max_us: Option<f64>,
    /// Flows that ended with an error, or have not completed although they have an end.
    failed: u64,
    event_hash: String,
    drops: BTreeMap<String, u64>,
    retransmitted_packets: u64,
    /// The other members of the run's report, such as the metrics of its scenario; without lists
    /// of flows, queues and agents.
    #[serde(flatten)]
    metrics: Map<String, Value>,
    /// The queues and rates that the scenario's metric is about, at each sample.
    #[serde(skip)]
    pub(super) over_time: Vec<Trace>,
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

/// Statistics of a set of values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) n: u64,
    pub(super) mean: f64,
    /// Standard deviation of the population, not of a sample.
    deviation: f64,
    min: f64,
    pub(super) median: f64,
    /// The smallest value that 99 % do not exceed.
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// Runs the scenario with `seeds` seeds on all cores, each as a simulation of its own.
pub(super) fn run(args: &RunArgs, chosen: &Chosen, seeds: NonZero<u64>) -> Result<Exit, Error> {
    let of_one = [args.pcap.is_some(), args.samples.is_some(), args.flows.is_some()];
    if of_one.contains(&true) {
        return Err("--seeds is many runs: --pcap, --samples and --flows need a single run".into());
    }
    let report = simulate(chosen, seeds, &chosen.name, !args.json)?;
    if let Some(dir) = &args.plot {
        let write = || fs::create_dir_all(dir).and_then(|()| report.write_violin(dir));
        write().map_err(|e| cannot_write(dir, &e))?;
    }
    print_report(args.json, &report, SeedsReport::to_text)?;
    Ok(if report.checkers_ok { Exit::Success } else { Exit::Failure })
}

/// Runs the scenario with `seeds` seeds on all cores, and shows the progress as `title` if `live`.
pub(super) fn simulate(
    chosen: &Chosen,
    seeds: NonZero<u64>,
    title: &str,
    live: bool,
) -> Result<SeedsReport, Error> {
    chosen.seed.checked_add(seeds.get()).ok_or("there are not as many seeds")?;
    let (_, parameters) = prepare(chosen)?;
    let started = Instant::now();
    let one = |i| run_one(&chosen.with_seed(chosen.seed + i));
    let reports = sweep_all(seeds.get(), live, &format!("seeds of {title}"), one)?;
    Ok(SeedsReport::new(&reports, parameters, started.elapsed().as_secs_f64()))
}

/// Runs the scenario once. The error is text, so that threads can return it.
pub(super) fn run_one(chosen: &Chosen) -> Result<Report, String> {
    let (plan, _) = prepare(chosen).map_err(|e| e.to_string())?;
    plan.run(Watch::default(), &mut ()).map_err(|e: NetworkError| e.to_string())
}

/// The members of a report that are no list of flows, queues or agents, and that [`SeedRow`] does
/// not have by itself.
fn metrics_of(report: &Report) -> Map<String, Value> {
    let Ok(Value::Object(mut members)) = serde_json::to_value(report) else {
        return Map::new();
    };
    members.retain(|name, _| !NOT_METRICS.contains(&name.as_str()));
    members
}

impl SeedsReport {
    /// The report of all seeds; `reports` has at least one.
    fn new(reports: &[Report], parameters: BTreeMap<&'static str, String>, wall_s: f64) -> Self {
        let first = reports.first();
        let ideal_us = first.and_then(|r| r.ideal_us);
        let seeds: Vec<SeedRow> = reports.iter().map(SeedRow::new).collect();
        let mut sums = [BTreeMap::new(), BTreeMap::new()];
        for report in reports {
            for (sum, of_seed) in sums.iter_mut().zip([&report.drops, &report.engine]) {
                for (name, n) in of_seed {
                    *sum.entry(name.clone()).or_default() += n;
                }
            }
        }
        let [drops, engine] = sums;
        let stamped =
            |r: &Report| r.violations.iter().map(|v| format!("seed {}: {v}", r.seed)).collect();
        let violations: Vec<String> = reports.iter().flat_map::<Vec<_>, _>(stamped).collect();
        Self {
            scenario: first.map(|r| r.scenario.clone()).unwrap_or_default(),
            parameters,
            measure: first.map(|r| r.measure).unwrap_or_default(),
            ideal_us,
            summary: Summaries::new(&seeds, ideal_us),
            seeds,
            drops,
            engine,
            checkers_ok: reports.iter().all(|r| r.checkers_ok),
            violations,
            events: reports.iter().map(|r| r.events).sum(),
            packet_hops: reports.iter().map(|r| r.packet_hops).sum(),
            wall_s,
        }
    }

    /// Retransmitted packets of all seeds.
    pub(super) fn retransmitted_packets(&self) -> u64 {
        self.seeds.iter().map(|row| row.retransmitted_packets).sum()
    }

    /// Frames and packets dropped in all seeds.
    pub(super) fn dropped(&self) -> u64 {
        self.drops.values().sum()
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

impl SeedRow {
    /// The row of one run.
    pub(super) fn new(report: &Report) -> Self {
        let of_flow = |f: &FlowReport| match report.measure.is_of_messages() {
            true => f.messages_us.iter().map(|us| Some(*us)).collect(),
            false => vec![f.fct_us],
        };
        let fct_us: Vec<Option<f64>> = report.flows.iter().flat_map(of_flow).collect();
        let summary = Summary::of(fct_us.iter().flatten().copied());
        // A run that measures how flows share a queue ends before its flows.
        let outlast = report.sharing.is_some();
        let is_failed = |f: &&FlowReport| f.is_failed() && (f.failed.is_some() || !outlast);
        let failed = report.flows.iter().filter(is_failed);
        Self {
            seed: report.seed,
            mean_us: summary.map(|s| s.mean),
            max_us: summary.map(|s| s.max),
            failed: u64_from(failed.count()),
            fct_us,
            event_hash: report.event_hash.clone(),
            drops: report.drops.clone(),
            retransmitted_packets: report.engine.get("retransmitted_packets").copied().unwrap_or(0),
            metrics: metrics_of(report),
            over_time: report.over_time.clone(),
        }
    }

    /// Completion times in us of the flows, or messages, that completed.
    pub(super) fn times_us(&self) -> impl Iterator<Item = f64> {
        self.fct_us.iter().flatten().copied()
    }
}

/// Members of a run's report that are lists, of the run itself, or in the row under this name.
const NOT_METRICS: [&str; 15] = [
    "agents",
    "checkers_ok",
    "drops",
    "engine",
    "event_hash",
    "events",
    "flows",
    "ideal_us",
    "measure",
    "queues",
    "scenario",
    "seed",
    "series",
    "simulated_us",
    "violations",
];

impl Summaries {
    fn new(seeds: &[SeedRow], ideal_us: Option<f64>) -> Self {
        let all = seeds.iter().flat_map(|row| row.fct_us.iter().flatten().copied());
        let means = || seeds.iter().filter_map(|row| row.mean_us);
        let lasts = || seeds.iter().filter_map(|row| row.max_us);
        Self {
            failed: seeds.iter().map(|row| row.failed).sum(),
            fct_us: Summary::of(all),
            mean_us: Summary::of(means()),
            max_us: Summary::of(lasts()),
            mean_over_ideal: ideal_us.and_then(|ideal| Summary::of(means().map(|us| us / ideal))),
            max_over_ideal: ideal_us.and_then(|ideal| Summary::of(lasts().map(|us| us / ideal))),
        }
    }
}

impl Summary {
    /// The statistics of `values`; `None` if empty.
    #[expect(clippy::cast_precision_loss, reason = "counts of values that are in memory")]
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let variance = sorted.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        // Percentile: the value that so many hundredths do not exceed.
        let at = |hundredths: usize| sorted[(n * hundredths).div_ceil(100).max(1) - 1];
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let deviation = variance.sqrt();
        Some(Self { n: u64_from(n), mean, deviation, min, median, p99: at(99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, report};

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

    #[test]
    fn new__keeps_every_time_in_the_order_of_seeds_and_flows() {
        let mut reports = reports();
        reports[1].flows[2].fct_us = None;
        reports[1].flows[2].failed = Some("RETRY_EXC_ERR");
        reports[2].violations = vec!["a byte is wrong".to_owned()];
        reports[2].checkers_ok = false;
        let r = SeedsReport::new(&reports, BTreeMap::new(), 1.0);
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
    fn new__a_flow_without_an_end_has_not_failed() {
        let failed = |change: &dyn Fn(&mut Report)| {
            let mut r = report(vec![flow(0, 1, 1 << 20, 1.0), flow(1, 2, 1 << 20, 1.0)]);
            r.flows[1].fct_us = None;
            change(&mut r);
            SeedRow::new(&r).failed
        };
        assert_eq!(failed(&|_| {}), 1);
        assert_eq!(failed(&|r| r.flows[1].is_timed = true), 0);
        let error = |r: &mut Report| {
            (r.flows[1].is_timed, r.flows[1].failed) = (true, Some("RETRY_EXC_ERR"));
        };
        assert_eq!(failed(&error), 1);
    }

    #[test]
    fn new__compares_with_the_ideal_if_any() {
        let mut reports = reports();
        reports.iter_mut().for_each(|r| r.ideal_us = Some(2.5));
        let r = SeedsReport::new(&reports, BTreeMap::new(), 1.0);
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
        let r = SeedsReport::new(&reports, BTreeMap::new(), 1.0);
        assert_eq!(r.seeds[0].fct_us, [Some(7.0), Some(8.0)]);
        assert!(r.to_text().contains("messages"));
    }

    #[test]
    fn of__a_hundred_values() {
        let s = Summary::of((1..=100).rev().map(f64::from)).expect("there are some");
        assert_eq!((s.n, s.mean, s.min, s.median), (100, 50.5, 1.0, 50.5));
        assert_eq!((s.p99, s.max), (99.0, 100.0));
        assert!((s.deviation - 28.866).abs() < 0.001);
        let one = Summary::of([5.0].into_iter()).expect("there is one");
        assert_eq!((one.p99, one.median, one.deviation), (5.0, 5.0, 0.0));
        assert_eq!(Summary::of(std::iter::empty()), None);
    }
}
