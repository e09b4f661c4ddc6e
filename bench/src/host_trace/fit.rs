//! The host model of a trace.
//!
//! CPU times are a weighted least-squares fit of steps on their frames and bytes. A stall is the
//! part of a step beyond that, if it is at least [`STALL_MIN`] and three times the work, because
//! the time of a frame varies that much with the batch.

use super::PACED;
use super::trace::{LONG, Row, Run, Sampled, SocketBuffers, Trace};
use crate::sample::Error;
use spanwire_base::{Dur, usize_from};
use spanwire_io::driver::Polling;
use spanwire_sim::{HostModel, Lateness, Sockets};
use std::fmt::Write as _;

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

/// Computes the host model of `trace`, with values rounded as in a preset.
///
/// # Errors
/// It has no steps with frames, or no sleeps.
pub fn model_of(trace: &Trace) -> Result<HostModel, Error> {
    let idle = merged(trace.runs.iter().map(|run| &run.idle_ns));
    let step = quantile(&idle, 0.5).ok_or("no step without frames")?;
    // At first all steps count as work, because their frames are not known to explain less.
    let mut costs = Costs { step, each: [f64::INFINITY; REGRESSORS] };
    for _ in 0..ROUNDS {
        costs.each = regress(step, &ordinary(trace, &costs)).ok_or("too few kinds of steps")?;
    }
    // Adaptive drivers also sleep within the bursts of the other flows, where they wake 54 us after
    // a frame in the median; 15 us after a frame of the paced flow, which is alone.
    let has_sleeps = |run: &&Run| trace.spin_ns.is_some() || run.flow == PACED;
    let wakeups = trace.runs.iter().filter(has_sleeps);
    let wakeups = wakeups.flat_map(|run| [&run.frame_wakeups_ns, &run.timer_wakeups_ns]);
    let wakeup = lateness(&merged(wakeups)).ok_or("no sleep")?;
    let stalls = stalls(trace, &costs);
    let running: u64 = trace.runs.iter().map(|run| run.running_ns).sum();
    let stalled: f64 = stalls.iter().map(|(ns, weight)| ns * weight).sum();
    let count: f64 = stalls.iter().map(|(_, weight)| weight).sum();
    let interval = if count > 0.0 { (running as f64 - stalled) / count } else { 0.0 };
    let cost = |ns| Dur::from_ns(rounded(ns, COST_UNIT));
    Ok(HostModel {
        step: cost(costs.step),
        rx_frame: cost(costs.each[0]),
        tx_frame: cost(costs.each[1]),
        kibibyte: cost(costs.each[2]),
        batch: usize_from(trace.batch),
        rx_ring: usize_from(trace.rx_ring),
        tx_ring: usize_from(trace.tx_ring),
        polling: trace.polling(),
        wakeup,
        stall_interval: Dur::from_us(rounded(interval / 1e3, INTERVAL_UNIT)),
        stall: lateness(&stalls).unwrap_or_else(Lateness::none),
        timestamps: true,
        sockets: trace.sockets.map(|SocketBuffers { rx_bytes, tx_bytes, run_frames }| Sockets {
            rx_call: cost(costs.each[3]),
            tx_call: cost(costs.each[4]),
            run_frames,
            rx_bytes,
            tx_bytes,
        }),
    })
}

/// The fields of `model` as in the source of a preset.
#[must_use]
pub fn to_source(model: &HostModel) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {value},");
    };
    let ns = |time: Dur| format!("Dur::from_ns({})", grouped(time.as_ns()));
    let us = |time: Dur| format!("Dur::from_us({})", grouped(time.as_us()));
    let list = |late: &Lateness| {
        let us = late.quantiles().iter().map(|(_, time)| grouped(time.as_us()));
        format!("Lateness::measured(&[{}])", us.collect::<Vec<_>>().join(", "))
    };
    field("step", ns(model.step));
    field("rx_frame", ns(model.rx_frame));
    field("tx_frame", ns(model.tx_frame));
    field("kibibyte", ns(model.kibibyte));
    field("batch", model.batch.to_string());
    field("rx_ring", model.rx_ring.to_string());
    field("tx_ring", model.tx_ring.to_string());
    field(
        "polling",
        match model.polling {
            Polling::Spin(spin) => format!("Polling::Spin({})", us(spin)),
            polling => format!("Polling::{polling:?}"),
        },
    );
    field("wakeup", list(&model.wakeup));
    field("stall_interval", us(model.stall_interval));
    field("stall", list(&model.stall));
    field("timestamps", "true".to_owned());
    let sockets = model.sockets.as_ref().map(|sockets| {
        format!(
            "Some(Sockets {{\n    rx_call: {},\n    tx_call: {},\n    run_frames: {},\n    \
             rx_bytes: {},\n    tx_bytes: {},\n}})",
            ns(sockets.rx_call),
            ns(sockets.tx_call),
            sockets.run_frames,
            grouped(sockets.rx_bytes),
            grouped(sockets.tx_bytes),
        )
    });
    field("sockets", sockets.unwrap_or("None".to_owned()));
    text
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

/// The distribution of `values` in nanoseconds.
fn lateness(values: &[(f64, f64)]) -> Option<Lateness> {
    let last = values.last()?.0;
    let us = Lateness::PARTS.map(|part| {
        let is_last = part == MILLION;
        let value = quantile(values, f64::from(part) / f64::from(MILLION)).filter(|_| !is_last);
        rounded(value.unwrap_or(last) / 1e3, 1)
    });
    Some(Lateness::measured(&us))
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
