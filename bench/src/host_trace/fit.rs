//! The host model of a trace.
//!
//! CPU times are a weighted least-squares fit of steps on their frames and bytes. A stall is the
//! part of a step beyond that, if it is at least [`STALL_MIN`] and three times the work, because
//! the time of a frame varies that much with the batch.

use super::trace::{LONG, Row, Sampled, SocketBuffers, Trace};
use crate::sample::Error;
use spanwire_base::{Dur, usize_from};
use spanwire_sim::{HostModel, Lateness, Sockets};
use std::fmt::Write as _;

/// The values of a host model, rounded as in a preset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fit {
    /// CPU time of a step without frames.
    pub step_ns: u64,
    /// CPU time to receive a frame.
    pub rx_frame_ns: u64,
    /// CPU time to send a frame.
    pub tx_frame_ns: u64,
    /// CPU time per 1024 bytes.
    pub kibibyte_ns: u64,
    /// Maximum frames of a step in each direction.
    pub batch: usize,
    /// Entries of the receive ring.
    pub rx_ring: usize,
    /// Entries of the transmit ring.
    pub tx_ring: usize,
    /// How long an idle host spins.
    pub spin_us: u64,
    /// Quantiles [`PARTS`] of the lateness of a host that slept.
    pub wakeup_us: [u64; PARTS.len()],
    /// Mean running time between two stalls; zero for none.
    pub stall_interval_us: u64,
    /// Quantiles [`PARTS`] of stalls.
    pub stall_us: [u64; PARTS.len()],
    /// UDP sockets.
    pub sockets: Option<SocketsFit>,
}

/// The values of UDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketsFit {
    /// CPU time of a call that receives.
    pub rx_call_ns: u64,
    /// CPU time of a call that sends.
    pub tx_call_ns: u64,
    /// Their buffers and limits.
    pub buffers: SocketBuffers,
}

/// CPU times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Costs {
    step: f64,
    /// Of each of [`regressors`].
    each: [f64; REGRESSORS],
}

/// A step and how many steps it represents.
#[derive(Clone, Copy, Debug)]
struct Weighted {
    row: Row,
    weight: f64,
}

impl Fit {
    /// Computes the values of `trace`.
    ///
    /// # Errors
    /// It has no steps with frames, or no sleeps.
    pub fn of(trace: &Trace) -> Result<Self, Error> {
        let idle = merged(trace.runs.iter().map(|run| &run.idle_ns));
        let step = quantile(&idle, 0.5).ok_or("no step without frames")?;
        // At first all steps count as work, because their frames are not known to explain less.
        let mut costs = Costs { step, each: [f64::INFINITY; REGRESSORS] };
        for _ in 0..ROUNDS {
            costs.each = regress(step, &ordinary(trace, &costs)).ok_or("too few kinds of steps")?;
        }
        let wakeups =
            trace.runs.iter().flat_map(|run| [&run.frame_wakeups_ns, &run.timer_wakeups_ns]);
        let wakeup_us = quantiles_us(&merged(wakeups)).ok_or("no sleep")?;
        let stalls = stalls(trace, &costs);
        let running: u64 = trace.runs.iter().map(|run| run.running_ns).sum();
        let stalled: f64 = stalls.iter().map(|(ns, weight)| ns * weight).sum();
        let count: f64 = stalls.iter().map(|(_, weight)| weight).sum();
        let interval = if count > 0.0 { (running as f64 - stalled) / count } else { 0.0 };
        Ok(Self {
            step_ns: rounded(costs.step, COST_UNIT),
            rx_frame_ns: rounded(costs.each[0], COST_UNIT),
            tx_frame_ns: rounded(costs.each[1], COST_UNIT),
            kibibyte_ns: rounded(costs.each[2], COST_UNIT),
            batch: usize_from(trace.batch),
            rx_ring: usize_from(trace.rx_ring),
            tx_ring: usize_from(trace.tx_ring),
            spin_us: trace.spin_ns / 1_000,
            wakeup_us,
            stall_interval_us: rounded(interval / 1e3, INTERVAL_UNIT),
            stall_us: quantiles_us(&stalls).unwrap_or_default(),
            sockets: trace.sockets.map(|buffers| SocketsFit {
                rx_call_ns: rounded(costs.each[3], COST_UNIT),
                tx_call_ns: rounded(costs.each[4], COST_UNIT),
                buffers,
            }),
        })
    }

    /// The host model with these values.
    #[must_use]
    pub fn model(&self) -> HostModel {
        HostModel {
            step: Dur::from_ns(self.step_ns),
            rx_frame: Dur::from_ns(self.rx_frame_ns),
            tx_frame: Dur::from_ns(self.tx_frame_ns),
            kibibyte: Dur::from_ns(self.kibibyte_ns),
            batch: self.batch,
            rx_ring: self.rx_ring,
            tx_ring: self.tx_ring,
            spin: Dur::from_us(self.spin_us),
            wakeup: lateness(&self.wakeup_us),
            stall_interval: Dur::from_us(self.stall_interval_us),
            stall: lateness(&self.stall_us),
            timestamps: true,
            sockets: self.sockets.as_ref().map(SocketsFit::model),
        }
    }

    /// The fields as in the source of a preset.
    #[must_use]
    pub fn to_source(&self) -> String {
        let Self { batch, rx_ring, tx_ring, wakeup_us, stall_us, .. } = self;
        let mut text = String::new();
        let mut field = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {value},");
        };
        let ns = |ns: u64| format!("Dur::from_ns({})", grouped(ns));
        let us = |us: u64| format!("Dur::from_us({})", grouped(us));
        let list =
            |us: &[u64; PARTS.len()]| format!("quantiles(&[{}])", us.map(grouped).join(", "));
        field("step", ns(self.step_ns));
        field("rx_frame", ns(self.rx_frame_ns));
        field("tx_frame", ns(self.tx_frame_ns));
        field("kibibyte", ns(self.kibibyte_ns));
        field("batch", batch.to_string());
        field("rx_ring", rx_ring.to_string());
        field("tx_ring", tx_ring.to_string());
        field("spin", us(self.spin_us));
        field("wakeup", list(wakeup_us));
        field("stall_interval", us(self.stall_interval_us));
        field("stall", list(stall_us));
        field("timestamps", "true".to_owned());
        let sockets = self.sockets.map(|SocketsFit { rx_call_ns, tx_call_ns, buffers }| {
            format!(
                "Some(Sockets {{\n    rx_call: {},\n    tx_call: {},\n    run_frames: {},\n    \
                 rx_bytes: {},\n    tx_bytes: {},\n}})",
                ns(rx_call_ns),
                ns(tx_call_ns),
                buffers.run_frames,
                grouped(buffers.rx_bytes),
                grouped(buffers.tx_bytes),
            )
        });
        field("sockets", sockets.unwrap_or("None".to_owned()));
        text
    }
}

impl SocketsFit {
    fn model(&self) -> Sockets {
        let SocketBuffers { rx_bytes, tx_bytes, run_frames } = self.buffers;
        Sockets {
            rx_call: Dur::from_ns(self.rx_call_ns),
            tx_call: Dur::from_ns(self.tx_call_ns),
            run_frames,
            rx_bytes,
            tx_bytes,
        }
    }
}

impl Costs {
    /// CPU time that the frames of `row` explain, in nanoseconds.
    fn explained(&self, row: &Row) -> f64 {
        let each = regressors(row).into_iter().zip(self.each);
        self.step + each.filter(|(x, _)| *x > 0.0).map(|(x, each)| x * each).sum::<f64>()
    }

    /// The stall in the step `row`, in nanoseconds.
    fn stall(&self, row: &Row) -> Option<f64> {
        let explained = self.explained(row);
        let beyond = row.3 as f64 - explained;
        let work_varies = explained * WORK_VARIES;
        (beyond >= work_varies.max(STALL_MIN.as_ns() as f64)).then_some(beyond)
    }
}

/// Frames received, frames sent, KiB, and over UDP sockets calls that received and that sent.
fn regressors(row: &Row) -> [f64; REGRESSORS] {
    [row.0 as f64, row.1 as f64, row.2 as f64 / 1024.0, row.4 as f64, row.5 as f64]
}

/// A step of a sample and how many it represents.
fn weighted((row, weight): (Row, f64)) -> Weighted {
    Weighted { row, weight }
}

fn long(trace: &Trace) -> impl Iterator<Item = Weighted> {
    trace.runs.iter().flat_map(|run| run.long.weighted().map(weighted))
}

/// The steps with frames and without a stall.
fn ordinary(trace: &Trace, costs: &Costs) -> Vec<Weighted> {
    let sample = trace.runs.iter().flat_map(|run| {
        let weight = run.working as f64 / run.sample.len().max(1) as f64;
        run.sample.iter().map(move |row| Weighted { row: *row, weight })
    });
    let explained =
        |Weighted { row, .. }: &Weighted| row.0 + row.1 > 0 && costs.stall(row).is_none();
    sample.chain(long(trace).filter(explained)).collect()
}

/// Stalls in nanoseconds, ascending, and how many each represents.
fn stalls(trace: &Trace, costs: &Costs) -> Vec<(f64, f64)> {
    let stall = |Weighted { row, weight }| Some((costs.stall(&row)?, weight));
    sorted(long(trace).filter_map(stall).collect())
}

/// The costs of [`regressors`] beside `step` that fit `steps` best, none of them negative. Weights
/// are inverse to the time of a step, so that each microsecond counts alike. `None` if `steps` do
/// not determine a cost; that of calls is zero if no step has any.
fn regress(step: f64, steps: &[Weighted]) -> Option<[f64; REGRESSORS]> {
    let has_calls = steps.iter().any(|Weighted { row, .. }| row.4 + row.5 > 0);
    let mut used: Vec<usize> = (0..if has_calls { REGRESSORS } else { CALLS_FROM }).collect();
    loop {
        let n = used.len();
        let mut normal = vec![vec![0.0; n + 1]; n];
        for Weighted { row, weight } in steps {
            let x = regressors(row);
            let took = row.3 as f64;
            let weight = weight / took.max(1.0);
            for (i, equation) in normal.iter_mut().enumerate() {
                for (j, column) in used.iter().enumerate() {
                    equation[j] += weight * x[used[i]] * x[*column];
                }
                equation[n] += weight * x[used[i]] * (took - step);
            }
        }
        let found = solve(normal)?;
        let negative = found.iter().position(|cost| *cost < 0.0);
        let Some(negative) = negative else {
            let mut each = [0.0; REGRESSORS];
            used.iter().zip(found).for_each(|(column, cost)| each[*column] = cost);
            return Some(each);
        };
        used.remove(negative);
    }
}

/// Solves linear equations, each with its right side last, by elimination with pivots. `None` if
/// they have no unique solution.
fn solve(mut equations: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let n = equations.len();
    for column in 0..n {
        let size = |row: &usize| equations[*row][column].abs();
        let pivot = (column..n).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        equations.swap(column, pivot);
        let pivot = equations[column].clone();
        if pivot[column].abs() < f64::EPSILON {
            return None;
        }
        for (row, equation) in equations.iter_mut().enumerate() {
            if row != column {
                let factor = equation[column] / pivot[column];
                equation.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
            }
        }
    }
    Some((0..n).map(|row| equations[row][n] / equations[row][row]).collect())
}

/// The values of several distributions with their weights, ascending.
fn merged<'a>(all: impl Iterator<Item = &'a Sampled<u64>>) -> Vec<(f64, f64)> {
    let values = all.flat_map(Sampled::weighted);
    sorted(values.map(|(value, weight)| (value as f64, weight)).collect())
}

fn sorted(mut values: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values
}

/// The value that this part of `values`, which ascend and have weights, do not exceed. The value
/// of part 0 is the minimum, that of 1 the maximum.
fn quantile(values: &[(f64, f64)], part: f64) -> Option<f64> {
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut before = 0.0;
    let reaches = |(_, weight): &&(f64, f64)| {
        before += weight;
        before >= part * total
    };
    values.iter().find(reaches).or(values.last()).map(|(value, _)| *value)
}

/// Quantiles [`PARTS`] of `values` in nanoseconds, in microseconds.
fn quantiles_us(values: &[(f64, f64)]) -> Option<[u64; PARTS.len()]> {
    let last = values.last()?.0;
    let of = |part: u32| match part {
        MILLION => Some(last),
        part => quantile(values, f64::from(part) / f64::from(MILLION)),
    };
    let mut all = [0; PARTS.len()];
    for (us, part) in all.iter_mut().zip(PARTS) {
        *us = rounded(of(part)? / 1e3, 1);
    }
    Some(all)
}

fn lateness(us: &[u64; PARTS.len()]) -> Lateness {
    let all: Vec<_> = PARTS.into_iter().zip(us.map(Dur::from_us)).collect();
    Lateness::new(&all)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of a recording in nanoseconds, at least zero"
)]
fn rounded(value: f64, unit: u32) -> u64 {
    let unit = f64::from(unit);
    ((value / unit).round() * unit).max(0.0) as u64
}

/// `n` with `_` between groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    let groups: Vec<_> = groups.into_iter().map(String::from_utf8_lossy).collect();
    groups.join("_")
}

/// The shortest stall. Shorter ones count as CPU time of frames.
pub const STALL_MIN: Dur = LONG;
/// The longest time beyond the expected work that still is work, in multiples of it.
const WORK_VARIES: f64 = 3.0;
/// Parts in a million of the quantiles in presets.
pub const PARTS: [u32; 9] =
    [0, 500_000, 750_000, 900_000, 950_000, 990_000, 995_000, 999_000, MILLION];
const MILLION: u32 = 1_000_000;
/// Number of costs beside that of a step.
const REGRESSORS: usize = 5;
/// The costs from here on are those of system calls.
const CALLS_FROM: usize = 3;
/// Nanoseconds to which CPU times are rounded.
const COST_UNIT: u32 = 10;
/// Microseconds to which the stall interval is rounded.
const INTERVAL_UNIT: u32 = 100;
/// Stalls depend on the CPU times, and these on the steps without stalls.
const ROUNDS: usize = 4;

#[cfg(test)]
mod tests;
