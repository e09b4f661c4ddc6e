//! Cost of the agents of a switch: nanoseconds of a packet that passes one, and bytes of an entry.
//!
//! The same packets pass a switch without agents and switches with one each, in turn; the cost of
//! an agent is the difference. Time is simulated: only the switch takes time. Time that other
//! programs took of the core is excluded.

mod work;

use crate::machine::Machine;
use crate::quiet::StealWatch;
use crate::rounds::interleaved;
use crate::sample::Error;
use crate::stats::{Spread, cell};
use serde::Serialize;
use spanwire_switch::AgentConfig;
use std::fmt;
use std::time::Instant;
use work::Work;

/// The plan of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Samples of each
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Packets of a sample
    #[arg(long, default_value_t = 400_000,
        value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub packets: u64,
    /// Flows
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub flows: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The plan.
    pub plan: Plan,
    /// A row for each kind.
    pub agents: Vec<Row>,
    /// The largest share of a sample that other programs took of the core, 0..=1.
    pub stolen_max: f64,
}

/// The cost of one kind of agent.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its kind, as in the configuration of a switch.
    pub kind: &'static str,
    /// Bytes of a flow in its table.
    pub bytes_per_entry: usize,
    /// Median of the nanoseconds that it adds to a packet: each sample with it less the one without
    /// of the same round.
    pub ns_per_packet: f64,
    /// The same, with its spread.
    pub added_ns: Option<Spread>,
    /// Nanoseconds of a packet through the switch with it.
    pub with_ns: Option<Spread>,
    /// Nanoseconds of the same packet through the switch without agents.
    pub without_ns: Option<Spread>,
    /// Feedback per packet.
    pub feedback_per_packet: f64,
}

/// Measures all kinds. `watch` receives the round and the kind before each sample, and cancels the
/// run by returning true.
///
/// # Errors
/// The kernel keeps no scheduler statistics, or the run was cancelled.
pub fn run(plan: &Plan, mut watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    let mut subjects =
        work::KINDS.iter().map(|kind| Subject::new(kind, plan)).collect::<Result<Vec<_>, _>>()?;
    let mut stolen_max: f64 = 0.0;
    for (round, i) in interleaved(plan.rounds, subjects.len()) {
        if watch(round, subjects[i].kind) {
            return Err("interrupted".into());
        }
        stolen_max = stolen_max.max(subjects[i].sample(round, plan.packets)?);
    }
    Ok(Report {
        machine: Machine::this(),
        plan: plan.clone(),
        agents: subjects.iter().map(Subject::row).collect(),
        stolen_max,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, packets, flows, .. } = self.plan;
        writeln!(out, "{}", self.machine)?;
        writeln!(
            out,
            "median [least..most] of {rounds} samples of {packets} packets of {flows} flows, ns a \
             packet; others had the core for up to {:.0} % of a sample, which is left out\n",
            self.stolen_max * 100.0
        )?;
        writeln!(
            out,
            "agent  adds                   with it                without it             feedback  \
             bytes a flow"
        )?;
        for row in &self.agents {
            writeln!(
                out,
                "{:<5}  {:<21}  {:<21}  {:<21}  {:>8.4}  {:>12}",
                row.kind,
                cell(row.added_ns, 1),
                cell(row.with_ns, 1),
                cell(row.without_ns, 1),
                row.feedback_per_packet,
                row.bytes_per_entry,
            )?;
        }
        Ok(())
    }
}

/// A kind of agent, and its samples.
struct Subject {
    kind: &'static str,
    bytes_per_entry: usize,
    with: Work,
    without: Work,
    with_ns: Vec<f64>,
    without_ns: Vec<f64>,
}

impl Subject {
    fn new(kind: &'static str, plan: &Plan) -> Result<Self, Error> {
        let agent = work::agent(kind, plan.flows);
        let bytes_per_entry = AgentConfig::entry_bytes(&agent);
        let has_credit = matches!(agent, AgentConfig::Mlcc(_));
        let of = |agent| Work::new(agent, plan.flows, has_credit);
        let (with, without) = (of(Some(agent))?, of(None)?);
        let (with_ns, without_ns) = (Vec::new(), Vec::new());
        Ok(Self { kind, bytes_per_entry, with, without, with_ns, without_ns })
    }

    /// Takes a sample of both, in alternating order; returns the larger share that others took.
    fn sample(&mut self, round: u32, packets: u64) -> Result<f64, Error> {
        let mut stolen_max: f64 = 0.0;
        for turn in 0..2 {
            let (work, ns) = match (round + turn) % 2 {
                0 => (&mut self.with, &mut self.with_ns),
                _ => (&mut self.without, &mut self.without_ns),
            };
            // A fraction first, so that caches and predictors know it.
            work.pass(packets / 16);
            let (watch, start) = (StealWatch::start()?, Instant::now());
            work.pass(packets);
            let (elapsed, stolen) = (start.elapsed(), watch.end()?.0.clamp(0.0, 1.0));
            ns.push(elapsed.as_secs_f64() * (1.0 - stolen) * 1e9 / packets as f64);
            stolen_max = stolen_max.max(stolen);
        }
        Ok(stolen_max)
    }

    fn row(&self) -> Row {
        let added: Vec<f64> = self
            .with_ns
            .iter()
            .zip(&self.without_ns)
            .map(|(with, without)| with - without)
            .collect();
        let added_ns = Spread::of(&added);
        Row {
            kind: self.kind,
            bytes_per_entry: self.bytes_per_entry,
            ns_per_packet: added_ns.map_or(f64::NAN, |spread| spread.median),
            added_ns,
            with_ns: Spread::of(&self.with_ns),
            without_ns: Spread::of(&self.without_ns),
            feedback_per_packet: self.with.feedback_per_packet(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run__measures_every_kind() {
        let plan = Plan { rounds: 2, packets: 2_000, flows: 64, json: false };
        let mut calls = Vec::new();
        let report = run(&plan, |round, kind| {
            calls.push((round, kind.to_owned()));
            false
        })
        .unwrap();
        assert_eq!(calls.len(), 2 * work::KINDS.len());
        for row in &report.agents {
            assert!(row.bytes_per_entry > 0 && row.with_ns.unwrap().min > 0.0, "{row:?}");
            assert_eq!(row.added_ns.unwrap().n, 2);
        }
        assert!(report.to_string().contains("\npacc "), "{}", report.to_string());
    }

    #[test]
    fn run__can_be_cancelled() {
        let plan = Plan { rounds: 2, packets: 1_000, flows: 8, json: false };
        assert!(run(&plan, |_, _| true).is_err());
    }
}
