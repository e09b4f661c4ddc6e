//! The compact form of a recording: samples, quantiles and counts instead of every step.

use super::tap::{Step, Wakeup};
use crate::machine::Machine;
use crate::sample::Error;
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, u64_from};
use spanwire_io::driver::Polling;
use std::fmt::Write as _;
use std::path::Path;

/// A recording of drivers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// Its origin.
    pub recorded: Provenance,
    /// Maximum frames of a step in each direction.
    pub batch: u64,
    /// Entries of the receive ring; for UDP sockets, the shortest frames that fit the buffer.
    pub rx_ring: u64,
    /// Entries of the transmit ring; for UDP sockets, the port's transmit buffers.
    pub tx_ring: u64,
    /// The buffers of UDP sockets; none for rings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketBuffers>,
    /// How long an idle driver spins before it sleeps; `None` for adaptive polling.
    pub spin_ns: Option<u64>,
    /// One for each flow and host.
    pub runs: Vec<Run>,
}

/// The buffers of UDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SocketBuffers {
    /// The receive buffer that the kernel granted, in bytes.
    pub rx_bytes: u64,
    /// The send buffer that the kernel granted, in bytes.
    pub tx_bytes: u64,
    /// Maximum frames of a system call.
    pub run_frames: u32,
}

/// The origin of a recording.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// UTC, as 2026-11-23.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// Load average of the last minute before the recording.
    pub load: f64,
    /// Processes that spin beside the drivers.
    pub spinners: u32,
}

/// The steps of one host during one flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The flow.
    pub flow: String,
    /// `client`, which sends the data, or `server`.
    pub host: String,
    /// From the first to the last step that moved frames.
    pub time_ns: u64,
    /// Of that, the time in steps; the rest is sleep.
    pub running_ns: u64,
    /// Steps shorter than [`LONG`] that moved frames. `sample` has every `every`-th of them.
    pub working: u64,
    /// The stride of `sample`.
    pub every: u64,
    /// Steps that moved frames.
    pub sample: Vec<Row>,
    /// Steps of at least [`LONG`], with and without frames, by duration.
    pub long: Sampled<Row>,
    /// Steps that moved none.
    pub idle_ns: Sampled<u64>,
    /// Times from an arrival to the step of a host that slept.
    pub frame_wakeups_ns: Sampled<u64>,
    /// Times from a deadline to the step of a host that slept.
    pub timer_wakeups_ns: Sampled<u64>,
}

/// A step: frames received, frames sent, bytes of both, nanoseconds; and over UDP sockets the
/// system calls that received and that sent the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row(
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    #[serde(default)] pub u64,
    #[serde(default)] pub u64,
);

/// A distribution: the largest values, and a sample of the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sampled<T> {
    /// Number of values.
    pub count: u64,
    /// Evenly spaced order statistics of the values below `largest`, with the minimum.
    pub spaced: Vec<T>,
    /// The largest values, ascending: all of them, because stalls and late wakeups are rare.
    pub largest: Vec<T>,
}

impl Trace {
    /// The polling of the drivers.
    #[must_use]
    pub fn polling(&self) -> Polling {
        self.spin_ns.map_or(Polling::Adaptive, |ns| Polling::Spin(Dur::from_ns(ns)))
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is not a trace.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let error = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| error(&e))?;
        Ok(serde_json::from_str(&text).map_err(|e| error(&e))?)
    }

    /// JSON, with each run on a line of its own.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn to_json(&self) -> Result<String, Error> {
        let head = Self { runs: Vec::new(), ..self.clone() };
        let mut text = serde_json::to_string_pretty(&head)?;
        let empty = "[]\n}";
        text.truncate(text.trim_end_matches(empty).len());
        for (n, run) in self.runs.iter().enumerate() {
            let before = if n == 0 { "[\n" } else { ",\n" };
            write!(text, "{before}{}", serde_json::to_string(run)?)?;
        }
        text.push_str(if self.runs.is_empty() { "[]\n}\n" } else { "\n]}\n" });
        Ok(text)
    }
}

impl Run {
    /// Summarises the steps of one host, in order.
    #[must_use]
    pub fn of(flow: &str, host: &str, steps: &[Step]) -> Self {
        let first = steps.iter().position(Step::has_frames).unwrap_or(0);
        let last = steps.iter().rposition(Step::has_frames).unwrap_or(0);
        let steps = steps.get(first..=last).unwrap_or_default();
        let time = steps.last().zip(steps.first()).map(|(last, first)| last.end.since(first.begin));
        let working: Vec<&Step> =
            steps.iter().filter(|step| step.has_frames() && step.took() < LONG).collect();
        let every = working.len().div_ceil(ROWS_MAX).max(1);
        let wakeups = || steps.iter().filter_map(Step::wakeup);
        let idle = steps.iter().filter(|step| !step.has_frames() && step.took() < LONG);
        let long = steps.iter().filter(|step| step.took() >= LONG);
        let mut long: Vec<Row> = long.map(Row::of).collect();
        long.sort_unstable_by_key(|row| row.3);
        Self {
            flow: flow.to_owned(),
            host: host.to_owned(),
            time_ns: time.map_or(0, Dur::as_ns),
            running_ns: steps.iter().map(|step| step.took().as_ns()).sum(),
            working: u64_from(working.len()),
            every: u64_from(every),
            sample: working.into_iter().step_by(every).map(Row::of).collect(),
            long: Sampled::of(&long),
            idle_ns: ascending(idle.map(|step| step.took().as_ns())),
            frame_wakeups_ns: ascending(wakeups().filter_map(|wakeup| match wakeup {
                Wakeup::Frame(late) => Some(late.as_ns()),
                Wakeup::Timer(_) => None,
            })),
            timer_wakeups_ns: ascending(wakeups().filter_map(|wakeup| match wakeup {
                Wakeup::Timer(late) => Some(late.as_ns()),
                Wakeup::Frame(_) => None,
            })),
        }
    }
}

impl Row {
    fn of(step: &Step) -> Self {
        let [rx_calls, tx_calls] = step.calls.map(u64::from);
        let frames = [step.rx, step.tx].map(u64::from);
        Self(frames[0], frames[1], step.bytes.into(), step.took().as_ns(), rx_calls, tx_calls)
    }
}

impl<T: Copy> Sampled<T> {
    /// The distribution of `values`, which ascend.
    #[must_use]
    pub fn of(values: &[T]) -> Self {
        let (rest, largest) = values.split_at(values.len().saturating_sub(LARGEST));
        let spaced = match rest.len() <= SPACED_MAX {
            true => rest.to_vec(),
            false => {
                (0..SPACED_MAX).map(|n| rest[n * (rest.len() - 1) / (SPACED_MAX - 1)]).collect()
            }
        };
        Self { count: u64_from(values.len()), spaced, largest: largest.to_vec() }
    }

    /// The values, ascending, and how many each represents.
    pub fn weighted(&self) -> impl Iterator<Item = (T, f64)> {
        let rest = self.count.saturating_sub(u64_from(self.largest.len()));
        let weight = rest as f64 / self.spaced.len().max(1) as f64;
        let spaced = self.spaced.iter().map(move |value| (*value, weight));
        spaced.chain(self.largest.iter().map(|value| (*value, 1.0)))
    }
}

impl<T> Default for Sampled<T> {
    fn default() -> Self {
        Self { count: 0, spaced: Vec::new(), largest: Vec::new() }
    }
}

fn ascending(values: impl Iterator<Item = u64>) -> Sampled<u64> {
    let mut all: Vec<u64> = values.collect();
    all.sort_unstable();
    Sampled::of(&all)
}

/// The shortest step that is a long one: shorter losses of the CPU count as work.
pub const LONG: Dur = Dur::from_us(100);
/// Maximum rows of a sample of ordinary steps.
const ROWS_MAX: usize = 500;
/// Maximum spaced values of a distribution.
const SPACED_MAX: usize = 301;
/// Largest values that are all kept.
const LARGEST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Time;

    /// A step from `begin` to `end`, in microseconds, that receives `rx` frames of 100 bytes.
    fn step(begin: u64, end: u64, rx: u32) -> Step {
        let [begin, end] = [begin, end].map(|us| Time::ZERO + Dur::from_us(us));
        Step { begin, end, rx, tx: 0, bytes: rx * 100, calls: [0; 2], arrival: None, slept: None }
    }

    #[test]
    fn run_of__separates_work_spinning_and_long_steps() {
        let slept = Some([14, 30].map(|us| Time::ZERO + Dur::from_us(us)));
        let steps = [
            step(0, 5, 0),
            step(5, 10, 2),
            step(10, 14, 0),
            Step { slept, ..step(40, 43, 1) },
            step(43, 300, 0),
            step(300, 302, 3),
            step(302, 310, 0),
        ];
        let run = Run::of("bulk", "client", &steps);
        assert_eq!((run.time_ns, run.running_ns), (297_000, 271_000));
        assert_eq!(
            run.sample,
            [Row(2, 0, 200, 5_000, 0, 0), Row(1, 0, 100, 3_000, 0, 0), Row(3, 0, 300, 2_000, 0, 0)]
        );
        assert_eq!(run.long.largest, [Row(0, 0, 0, 257_000, 0, 0)]);
        assert_eq!(run.idle_ns.largest, [4_000]);
        assert_eq!(run.timer_wakeups_ns.largest, [10_000]);
        assert_eq!(run.frame_wakeups_ns.count, 0);
        assert_eq!(Run::of("bulk", "client", &[]).working, 0);
    }

    #[test]
    fn sampled_of__keeps_minimum_tail_and_weights() {
        let few = ascending([3, 1, 2].into_iter());
        assert_eq!((few.count, few.spaced.len(), few.largest.as_slice()), (3, 0, &[1, 2, 3][..]));
        let many = ascending((0..100_000).rev());
        assert_eq!((many.count, many.spaced.len()), (100_000, SPACED_MAX));
        assert_eq!((many.spaced[0], many.spaced[SPACED_MAX / 2]), (0, 49_949));
        assert!(many.largest.iter().copied().eq(99_900..100_000));
        let sum: f64 = many.weighted().map(|(_, weight)| weight).sum();
        assert!((sum - 100_000.0).abs() < 1e-6);
        assert_eq!(many.weighted().last(), Some((99_999, 1.0)));
    }

    #[test]
    fn to_json__is_read_again() {
        let recorded = Provenance {
            date: "2026-11-23".to_owned(),
            command: "spanwire-bench host-trace".to_owned(),
            machine: Machine::this(),
            load: 0.5,
            spinners: 2,
        };
        for runs in [vec![], vec![Run::of("bulk", "client", &[step(0, 5, 1)]); 2]] {
            let recorded = recorded.clone();
            let sockets = Some(SocketBuffers { rx_bytes: 1, tx_bytes: 2, run_frames: 3 });
            let sockets = sockets.filter(|_| !runs.is_empty());
            let (rx_ring, tx_ring) = (256, 256);
            let trace =
                Trace { recorded, batch: 64, rx_ring, tx_ring, sockets, spin_ns: Some(1), runs };
            let text = trace.to_json().expect("finite numbers");
            assert_eq!(serde_json::from_str::<Trace>(&text).expect("JSON"), trace, "{text}");
        }
    }
}
