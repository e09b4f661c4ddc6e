//! One run of a scenario: its result as reports over seeds have it, and as a store keeps it.

use super::file::Chosen;
use super::prepare::prepare;
use super::store::{Store, Stored, cannot_store, key};
use super::summary::Summary;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spanwire_base::u64_from;
use spanwire_host::fabric::Error;
use spanwire_sim::{FlowReport, Identity, Measure, NetworkError, Report, Trace, Watch};
use std::collections::BTreeMap;
use std::time::Instant;

/// The result of one seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct SeedRow {
    pub(super) seed: u64,
    /// Completion times of its flows, or messages, in their order; null for a failed one.
    pub(super) fct_us: Vec<Option<f64>>,
    /// The mean of the completion times.
    pub(super) mean_us: Option<f64>,
    /// The longest completion time: the total duration, if the flows started together.
    pub(super) max_us: Option<f64>,
    /// Flows that ended with an error, or have not completed although they have an end.
    pub(super) failed: u64,
    event_hash: String,
    pub(super) drops: BTreeMap<String, u64>,
    pub(super) retransmitted_packets: u64,
    /// The other members of the run's report, such as the metrics of its scenario; without lists
    /// of flows, queues and agents.
    #[serde(flatten)]
    metrics: Map<String, Value>,
    /// The queues and rates that the scenario's metric is about, at each sample.
    #[serde(skip)]
    pub(super) over_time: Vec<Trace>,
}

/// A run, as a report over several seeds needs it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct SeedRun {
    pub(super) scenario: String,
    pub(super) measure: Measure,
    pub(super) ideal_us: Option<f64>,
    pub(super) row: SeedRow,
    /// As of [`SeedRow`], which does not print them.
    over_time: Vec<Trace>,
    pub(super) engine: BTreeMap<String, u64>,
    pub(super) events: u64,
    pub(super) packet_hops: u64,
    pub(super) checkers_ok: bool,
    violations: Vec<String>,
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

impl SeedRun {
    /// The run of the chosen scenario, stored or new; a new one is stored.
    ///
    /// # Errors
    /// The scenario cannot be run, or its result not stored.
    pub(super) fn of(chosen: &Chosen, store: &Store) -> Result<Self, Error> {
        let (plan, _) = prepare(chosen)?;
        let identity = Identity::of(&chosen.name, chosen.set(), chosen.seed)?;
        let key = key(&format!("seed\n{}", identity.text), &Identity::files_of(&plan.setup.agents));
        let stored: Option<Self> =
            store.load(&key).and_then(|stored| serde_json::from_value(stored.metrics).ok());
        if let Some(run) = stored.filter(|run| run.row.seed == chosen.seed) {
            return Ok(run);
        }
        let started = Instant::now();
        let run = Self::new(&plan.run(Watch::default(), &mut ())?);
        let metrics = (run.violations.clone(), serde_json::to_value(&run)?);
        let seconds = started.elapsed().as_secs_f64();
        let stored = Stored { seconds, ..Stored::new(chosen.command(), key, metrics) };
        store.save(&stored).map_err(|e| cannot_store(&e))?;
        Ok(run)
    }

    pub(super) fn new(report: &Report) -> Self {
        Self {
            scenario: report.scenario.clone(),
            measure: report.measure,
            ideal_us: report.ideal_us,
            row: SeedRow::new(report),
            over_time: report.over_time.clone(),
            engine: report.engine.clone(),
            events: report.events,
            packet_hops: report.packet_hops,
            checkers_ok: report.checkers_ok,
            violations: report.violations.clone(),
        }
    }

    /// The violations, each with the seed.
    pub(super) fn stamped(&self) -> impl Iterator<Item = String> {
        self.violations.iter().map(|v| format!("seed {}: {v}", self.row.seed))
    }

    /// The row of a report, with the values over time.
    pub(super) fn into_row(self) -> SeedRow {
        SeedRow { over_time: self.over_time, ..self.row }
    }
}

impl SeedRow {
    /// The row of one run, without values over time.
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
            over_time: Vec::new(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{flow, report};

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
    fn of__a_stored_run_is_the_same() {
        let root = std::env::temp_dir().join(format!("spanwire-seed-run-{}", std::process::id()));
        let store = Store::open(&root).expect("it can be created");
        let set = |time: &str| vec![("time".to_owned(), time.to_owned())];
        let name = "pacc-steady".to_owned();
        let chosen = Chosen { name, seed: 3, set: set("300us") };
        let run = SeedRun::of(&chosen, &store).expect("it can be run");
        let files = || std::fs::read_dir(&root).expect("it exists").count();
        assert!(!run.over_time.is_empty() && files() == 1, "{run:?}");
        assert_eq!(SeedRun::of(&chosen, &store).expect("it is stored"), run);
        for other in [chosen.with_seed(4), Chosen { set: set("200us"), ..chosen }] {
            assert_ne!(SeedRun::of(&other, &store).expect("it can be run"), run);
        }
        assert_eq!(files(), 3);
        std::fs::remove_dir_all(&root).expect("it was created");
    }
}
