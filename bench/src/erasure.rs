//! Speed of encoding and decoding, compared with ISA-L and two crates, in one run.
//!
//! Blocks of (8, 2) that stay in the cache, at the same memory addresses for all subjects. Rounds
//! interleave all subjects; time that other programs took of the core is excluded. ISA-L is
//! compiled from C and runs in a process of its own on the same core.

pub mod isal;
pub mod work;

use crate::machine::Machine;
use crate::quiet::StealWatch;
use crate::rounds::interleaved;
use crate::sample::Error;
use crate::stats::{Ratio, Spread, cell};
use isal::Isal;
use serde::Serialize;
use spanwire_erasure::{Kernel, Scheme};
use std::fmt;
use std::time::Instant;
use work::{Task, Work, X, Y};

/// The plan of a run.
#[derive(Clone, PartialEq, Debug, Serialize, clap::Args)]
pub struct Plan {
    /// Samples of each
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of a sample
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub ms: u64,
    /// Bytes of a packet: even numbers
    #[arg(long, value_delimiter = ',', default_values_t = [4096, 1408],
        value_parser = clap::value_parser!(u32).range(64..=65_536))]
    pub bytes: Vec<u32>,
    /// Print JSON instead of tables
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
    /// Ticks of the processor's counter in a nanosecond, if known.
    pub ticks_per_ns: Option<f64>,
    /// The reason for missing ISA-L rows, if they are missing.
    pub without_isal: Option<String>,
    /// One for each subject and size.
    pub rows: Vec<Row>,
}

/// A timed task.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Bytes of a packet.
    pub bytes: u32,
    /// The task, for each block.
    pub task: &'static str,
    /// The implementation.
    #[serde(rename = "who")]
    pub implementation_name: String,
    /// Nanoseconds of a block.
    pub ns: Option<Spread>,
    /// Bytes of data of a block over the median time, 10^9 a second.
    pub gb_per_s: f64,
    /// Ticks of the processor's counter for each byte of data.
    pub ticks_per_byte: Option<f64>,
    /// Time of ISA-L's `ec_encode_data` for the same task, over the time of this one: encoding for
    /// encoding, decoding with prepared tables for decoding. None without ISA-L.
    pub isal_over_this: Option<Ratio>,
}

/// Measures all of `plan`. `watch` receives the round and the subject before each sample and
/// cancels the run by returning true.
///
/// # Errors
/// The kernel keeps no scheduler statistics, an implementation fails, or the run was cancelled.
pub fn run(plan: &Plan, mut watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    let mut subjects = Vec::new();
    let (mut isal, without_isal) = match Isal::start() {
        Ok(isal) => (Some(isal), None),
        Err(e) => (None, Some(e.to_string())),
    };
    for bytes in &plan.bytes {
        subjects.extend(Subject::all(*bytes, isal.is_some())?);
    }
    for (round, i) in interleaved(plan.rounds, subjects.len()) {
        if watch(round, &subjects[i].name) {
            return Err("interrupted".into());
        }
        subjects[i].sample(plan.ms, isal.as_mut())?;
    }
    let ticks_per_ns = Machine::ticks_per_ns();
    let rows = subjects.iter().map(|subject| subject.row(&subjects, ticks_per_ns)).collect();
    let machine = Machine::this();
    Ok(Report { machine, plan: plan.clone(), ticks_per_ns, without_isal, rows })
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rounds, ms, bytes, .. } = &self.plan;
        writeln!(out, "{}", self.machine)?;
        writeln!(
            out,
            "({X}, {Y}), median [least..most] of {rounds} samples of {ms} ms; others' time on the \
             core is left out"
        )?;
        if let Some(why) = &self.without_isal {
            writeln!(out, "without ISA-L: {why}")?;
        }
        for (bytes, task) in bytes.iter().flat_map(|bytes| Task::ALL.map(|task| (bytes, task))) {
            writeln!(
                out,
                "\n{:<32} {:>24} {:>7} {:>11}  times ISA-L's speed",
                format!("{}, {bytes} bytes", task.name()),
                "ns a block",
                "GB/s",
                "ticks/byte",
            )?;
            let of_this = |row: &&Row| row.bytes == *bytes && row.task == task.name();
            for row in self.rows.iter().filter(of_this) {
                let ticks = row.ticks_per_byte.map_or("-".to_owned(), |t| format!("{t:.3}"));
                writeln!(
                    out,
                    "  {:<30} {:>24} {:>7.1} {ticks:>11}  {}",
                    row.implementation_name,
                    cell(row.ns, 0),
                    row.gb_per_s,
                    cell(row.isal_over_this.and_then(|ratio| ratio.paired), 2),
                )?;
            }
        }
        Ok(())
    }
}

/// An implementation of a task, and its samples.
struct Subject {
    bytes: u32,
    task: Task,
    name: String,
    implementation: Implementation,
    ns: Vec<Option<f64>>,
}

enum Implementation {
    /// An implementation in this process.
    InProcess(Work),
    /// ISA-L, with this code name.
    Isal(&'static str),
}

impl Subject {
    fn all(bytes: u32, isal: bool) -> Result<Vec<Self>, Error> {
        let len = usize::try_from(bytes)?;
        let mut all = Vec::new();
        for task in Task::ALL {
            let mut add = |name: String, implementation| {
                all.push(Self { bytes, task, name, implementation, ns: Vec::new() });
            };
            for kernel in Kernel::available() {
                for scheme in [Scheme::PQ, Scheme::CAUCHY] {
                    let work = work::ours(task, scheme, kernel, len);
                    add(format!("{scheme} on {kernel}"), Implementation::InProcess(work));
                }
            }
            if isal && task != Task::Add {
                add(ISAL.to_owned(), Implementation::Isal(task.of_isal()));
            }
            if isal && task == Task::Encode {
                add("ISA-L, pq_gen".to_owned(), Implementation::Isal("pq"));
            }
            if let Some(work) = work::reed_solomon_erasure(task, len)? {
                add("reed-solomon-erasure".to_owned(), Implementation::InProcess(work));
            }
            if let Some(work) = work::reed_solomon_simd(task, len)? {
                add("reed-solomon-simd".to_owned(), Implementation::InProcess(work));
            }
        }
        Ok(all)
    }

    fn sample(&mut self, ms: u64, isal: Option<&mut Isal>) -> Result<(), Error> {
        let ns = match (&mut self.implementation, isal) {
            (Implementation::InProcess(work), _) => median_ns(ms, work)?,
            (Implementation::Isal(code), Some(isal)) => {
                isal.ns(code, [X, Y], usize::try_from(self.bytes)?, ms)?
            }
            (Implementation::Isal(_), None) => return Err("ISA-L is not available".into()),
        };
        self.ns.push(Some(ns));
        Ok(())
    }

    fn row(&self, all: &[Self], ticks_per_ns: Option<f64>) -> Row {
        let ns = Spread::of_present(&self.ns);
        let data = f64::from(self.bytes) * X as f64;
        let ns_per_byte = ns.map_or(f64::NAN, |ns| ns.median / data);
        // Its tables are prepared in every comparison: its best case.
        let reference = match self.task {
            Task::Encode | Task::Add => Task::Encode,
            Task::Decode | Task::PlanAndDecode => Task::Decode,
        };
        let isal = all
            .iter()
            .find(|other| (other.bytes, other.task, &*other.name) == (self.bytes, reference, ISAL));
        Row {
            bytes: self.bytes,
            task: self.task.name(),
            implementation_name: self.name.clone(),
            ns,
            gb_per_s: 1.0 / ns_per_byte,
            ticks_per_byte: ticks_per_ns.map(|ticks| ticks * ns_per_byte),
            isal_over_this: isal.and_then(|isal| Ratio::of(&isal.ns, &self.ns)),
        }
    }
}

/// Nanoseconds of `work`: the median of [`RUNS`] runs that take `ms` together. As in `isal.c`.
fn median_ns(ms: u64, work: &mut Work) -> Result<f64, Error> {
    let run_s = ms as f64 / 1e3 / f64::from(RUNS);
    let mut times = 16u32;
    loop {
        let start = Instant::now();
        (0..times).for_each(|_| work());
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed > run_s / 2.0 || times > u32::MAX / 4 {
            break;
        }
        times *= 2;
    }
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let (watch, start) = (StealWatch::start()?, Instant::now());
        (0..times).for_each(|_| work());
        let (elapsed, stolen) = (start.elapsed(), watch.end()?.0.clamp(0.0, 1.0));
        runs.push(elapsed.as_secs_f64() * (1.0 - stolen) * 1e9 / f64::from(times));
    }
    Ok(Spread::of(&runs).ok_or("no runs")?.median)
}

/// Runs per sample.
const RUNS: u32 = 16;
const ISAL: &str = "ISA-L, ec_encode_data";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run__measures_all_with_and_without_isal() {
        let plan = Plan { rounds: 2, ms: 1, bytes: vec![128], json: false };
        let mut calls = 0;
        let report = run(&plan, |_, _| {
            calls += 1;
            false
        })
        .unwrap();
        assert_eq!(calls, 2 * report.rows.len());
        let with_isal = report.rows.iter().any(|row| row.implementation_name == ISAL);
        assert_eq!(with_isal, report.without_isal.is_none());
        for row in &report.rows {
            assert!(row.ns.unwrap().min > 0.0 && row.gb_per_s > 0.0);
            assert_eq!(row.isal_over_this.is_some(), with_isal, "{row:?}");
        }
        let text = report.to_string();
        for row in &report.rows {
            assert!(text.contains(&row.implementation_name) && text.contains(row.task), "{text}");
        }
        let ours = report.rows.iter().filter(|row| row.implementation_name.starts_with("PQ on "));
        assert_eq!(ours.count(), Task::ALL.len() * Kernel::available().count());
    }

    #[test]
    fn run__can_be_cancelled() {
        let plan = Plan { rounds: 1, ms: 1, bytes: vec![64], json: false };
        assert!(run(&plan, |_, _| true).is_err());
    }
}
