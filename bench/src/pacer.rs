//! Cost of the scheduling decision: which queue pair sends next, and when.
//!
//! Time is simulated and packets are not sent: only the decision takes time. Rounds interleave all
//! numbers of queue pairs; time that other programs took of the core is excluded.

pub mod endpoint;
mod load;

use crate::machine::Machine;
use crate::quiet::StealWatch;
use crate::rounds::interleaved;
use crate::sample::Error;
use crate::stats::{Ratio, Spread, cell};
use endpoint::Flows;
use load::Load;
use serde::Serialize;
use spanwire_base::Rate;
use spanwire_io::clock::Clock;
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Samples of each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of a sample
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub ms: u64,
    /// Numbers of paced queue pairs
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 10_000, 65_536, 100_000],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub qps: Vec<u32>,
    /// Print JSON instead of a table
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The plan.
    pub plan: Plan,
    /// A row for each number of queue pairs.
    pub rows: Vec<Row>,
    /// Nanoseconds to read the worker's clock.
    pub clock_ns: Option<Spread>,
    /// Nanoseconds to read the standard library's clock.
    pub instant_ns: Option<Spread>,
    /// The largest share of a sample that other programs took of the core, 0..=1.
    pub stolen_max: f64,
}

/// The result for a number of queue pairs that share [`TOTAL`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The number of queue pairs.
    pub qps: u32,
    /// Nanoseconds of a decision: out of the wheel, into the round robin, its turn, its clock, a
    /// packet charged, out of the round robin and into the wheel.
    pub decision_ns: Option<Spread>,
    /// Nanoseconds of a packet from one endpoint to another, all paced, with its share of
    /// acknowledgements and completions at both. None above [`endpoint::QPS_MAX`].
    pub paced_packet_ns: Option<Spread>,
    /// The same without pacing.
    pub unpaced_packet_ns: Option<Spread>,
    /// Paced over unpaced.
    pub ratio: Option<Ratio>,
}

/// The rate of all queue pairs together.
pub const TOTAL: Rate = Rate::from_gbps(100);

/// Measures all of `plan`. `watch` receives the round and the number of queue pairs before each
/// sample and cancels the run by returning true.
///
/// # Errors
/// The kernel keeps no scheduler statistics, the engine rejects something, or the run was
/// cancelled.
pub fn run(plan: &Plan, mut watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    let mut bed = Bed { span: Duration::from_millis(plan.ms), stolen_max: 0.0 };
    let mut subjects = plan.qps.iter().map(|n| Subject::new(*n)).collect::<Result<Vec<_>, _>>()?;
    let (mut clock_ns, mut instant_ns) = (Vec::new(), Vec::new());
    let clock = Clock::start();
    // The clocks are one more subject.
    for (round, n) in interleaved(plan.rounds, subjects.len() + 1) {
        let Some(subject) = subjects.get_mut(n) else {
            clock_ns.push(bed.ns_each(|| Ok(readings(|| clock.now())))?);
            instant_ns.push(bed.ns_each(|| Ok(readings(Instant::now)))?);
            continue;
        };
        if watch(round, &format!("{} queue pairs", plan.qps[n])) {
            return Err("interrupted".into());
        }
        subject.sample(&mut bed)?;
    }
    Ok(Report {
        machine: Machine::this(),
        plan: plan.clone(),
        rows: subjects.iter().map(Subject::row).collect(),
        clock_ns: Spread::of(&clock_ns),
        instant_ns: Spread::of(&instant_ns),
        stolen_max: bed.stolen_max,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, ms, .. } = self.plan;
        let stolen = self.stolen_max * 100.0;
        writeln!(out, "{}", self.machine)?;
        writeln!(
            out,
            "median [least..most] of {rounds} samples of {ms} ms, ns; others had the core for up \
             to {stolen:.0} % of a sample, which is left out\n"
        )?;
        writeln!(
            out,
            "paced QPs   a decision              a packet, paced         a packet, unpaced       \
             paced / unpaced"
        )?;
        for row in &self.rows {
            let ratio = row.ratio.and_then(|r| r.paired);
            writeln!(
                out,
                "{:>9}   {:<22}  {:<22}  {:<22}  {}",
                row.qps,
                cell(row.decision_ns, 1),
                cell(row.paced_packet_ns, 0),
                cell(row.unpaced_packet_ns, 0),
                cell(ratio, 2),
            )?;
        }
        let (clock, instant) = (cell(self.clock_ns, 1), cell(self.instant_ns, 1));
        writeln!(out, "\na reading of the worker's clock: {clock}; of Instant: {instant}")?;
        Ok(())
    }
}

/// One number of queue pairs, and its samples.
struct Subject {
    load: Load,
    /// Paced and unpaced.
    flows: Option<[Flows; 2]>,
    qps: u32,
    decision_ns: Vec<f64>,
    packet_ns: [Vec<Option<f64>>; 2],
}

impl Subject {
    fn new(qps: u32) -> Result<Self, Error> {
        let share = Rate::from_bps((TOTAL.as_bps() / u64::from(qps)).max(1));
        let flows = (qps <= endpoint::QPS_MAX)
            .then(|| Ok::<_, Error>([Flows::new(qps, Some(share))?, Flows::new(qps, None)?]))
            .transpose()?;
        let load = Load::new(qps, TOTAL);
        Ok(Self { load, flows, qps, decision_ns: Vec::new(), packet_ns: [vec![], vec![]] })
    }

    fn sample(&mut self, bed: &mut Bed) -> Result<(), Error> {
        let load = &mut self.load;
        self.decision_ns.push(bed.ns_each(|| {
            let chosen = (0..BATCH).fold(0, |sum, _| sum ^ load.decide());
            black_box(chosen);
            Ok(u64::from(BATCH))
        })?);
        for (flows, ns) in self.flows.iter_mut().flatten().zip(&mut self.packet_ns) {
            ns.push(Some(bed.ns_each(|| flows.packets(u64::from(BATCH)))?));
        }
        Ok(())
    }

    fn row(&self) -> Row {
        let [paced, unpaced] = &self.packet_ns;
        Row {
            qps: self.qps,
            decision_ns: Spread::of(&self.decision_ns),
            paced_packet_ns: Spread::of_present(paced),
            unpaced_packet_ns: Spread::of_present(unpaced),
            ratio: Ratio::of(paced, unpaced),
        }
    }
}

/// The settings and the buffers of a sample.
struct Bed {
    span: Duration,
    stolen_max: f64,
}

impl Bed {
    /// Repeats `work`, which returns its number of operations, and returns the nanoseconds of each.
    /// The first run does not count, nor does time that other programs took of the core.
    fn ns_each(&mut self, mut work: impl FnMut() -> Result<u64, Error>) -> Result<f64, Error> {
        work()?;
        let (watch, start, mut done) = (StealWatch::start()?, Instant::now(), 0);
        while start.elapsed() < self.span {
            done += work()?;
        }
        let (elapsed, stolen) = (start.elapsed(), watch.end()?.0.clamp(0.0, 1.0));
        self.stolen_max = self.stolen_max.max(stolen);
        Ok(elapsed.as_secs_f64() * (1.0 - stolen) * 1e9 / done as f64)
    }
}

fn readings<T>(read: impl Fn() -> T) -> u64 {
    for _ in 0..BATCH {
        black_box(read());
    }
    u64::from(BATCH)
}

/// Operations between two readings of the clock.
const BATCH: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run__measures_the_whole_plan() {
        let plan = Plan { rounds: 2, ms: 2, qps: vec![1, 50, endpoint::QPS_MAX + 1], json: false };
        let mut calls = Vec::new();
        let report = run(&plan, |round, qps| {
            calls.push((round, qps.to_owned()));
            false
        })
        .unwrap();
        let most = endpoint::QPS_MAX + 1;
        let calls_expected = [(0, 1), (0, 50), (0, most), (1, most), (1, 50), (1, 1)];
        assert_eq!(calls, calls_expected.map(|(round, n)| (round, format!("{n} queue pairs"))));
        for row in &report.rows {
            assert!(row.decision_ns.unwrap().min > 0.0);
            assert_eq!(row.paced_packet_ns.is_some(), row.qps <= endpoint::QPS_MAX);
            assert_eq!(row.ratio.is_some(), row.qps <= endpoint::QPS_MAX);
        }
        let text = report.to_string();
        assert!(text.lines().count() == 9 && text.contains("\n       50   "), "{text}");
    }

    #[test]
    fn run__can_be_cancelled() {
        let plan = Plan { rounds: 2, ms: 1, qps: vec![1], json: false };
        assert!(run(&plan, |_, _| true).is_err());
    }
}
