//! The report: results, machine, and the number of dropped samples.

mod text;

use super::plan::{Plan, Variant};
use super::subject::{Flow, Subject};
use super::{Results, Series};
use crate::machine::Machine;
use crate::quiet::Disturbance;
use crate::raw::Touch;
use crate::sample::{Rate, Reading};
use crate::stats::{Ratio, Spread};
use serde::Serialize;
use spanwire_host::oob::Op;

/// The report of a run, as printed by `--json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A title given by the caller: a date, a commit.
    pub label: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The plan.
    pub plan: Plan,
    /// The duration of the run.
    pub seconds: f64,
    /// The run was interrupted: the samples are those before.
    pub interrupted: bool,
    /// One-way rates.
    pub rates: Vec<RateRow>,
    /// Processor time of flows at a rate.
    pub cpu: Vec<CpuRow>,
    /// Latencies.
    pub latencies: Vec<LatencyRow>,
    /// The engine's WRITE beside raw AF_XDP, by MTU.
    pub shares: Vec<Share>,
    /// Round trip of a cache line between the cores, before and after each sample, in nanoseconds.
    pub distance_ns: Option<Spread>,
}

/// The samples of one variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Tally {
    /// Samples kept, one a round at most.
    pub kept: usize,
    /// Samples dropped because the cores were far apart.
    pub dropped_cores_apart: usize,
    /// Samples dropped because other programs used a core.
    pub dropped_stolen: usize,
    /// Samples that failed.
    pub failed: usize,
    /// Samples for which no time was left.
    pub not_run: usize,
}

/// A one-way rate.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RateRow {
    /// The subject.
    pub name: String,
    /// The interfaces' MTU.
    pub link_mtu: u32,
    /// Payload bytes of a data packet; none for TCP.
    pub payload: Option<u32>,
    /// Payload, 10^9 bits a second; none if no sample was kept.
    pub goodput_gbps: Option<Spread>,
    /// The goodput of each round; none if its sample was not kept.
    pub samples_gbps: Vec<Option<f64>>,
    /// The goodput over that of kernel TCP with offloads at the same MTU.
    pub ratio: Option<Ratio>,
    /// Processor seconds of both threads, user and system, for 10^9 bytes of payload.
    pub cpu_s_per_gb: Option<Spread>,
    /// Data packets a second; none for TCP.
    pub packets_per_s: Option<Spread>,
    /// Packets that a system call sent; none if unknown.
    pub packets_per_call: Option<Spread>,
    /// Packets retransmitted (engine) or lost (raw) in all kept samples.
    pub lost: u64,
    /// Payload bytes received in all kept samples.
    pub bytes: u64,
    /// Bytes compared with those sent in all kept samples.
    pub verified_bytes: u64,
    /// Samples kept and dropped.
    pub tally: Tally,
    /// The errors of failed samples.
    pub failures: Vec<String>,
    /// The reason why the row is not possible on this link.
    pub not_possible: Option<String>,
}

/// Processor time of a flow at a rate.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CpuRow {
    /// The subject.
    pub name: String,
    /// The interfaces' MTU.
    pub link_mtu: u32,
    /// Processor time of both ends over that of the sample: cores.
    pub cores: Option<Spread>,
    /// The cores of each round; none if its sample was not kept.
    pub samples: Vec<Option<f64>>,
    /// The cores over those of kernel TCP at the same rate.
    pub ratio: Option<Ratio>,
    /// Cores of the machine that were not idle: with interrupts, and with other programs.
    pub busy_cores: Option<Spread>,
    /// Payload, 10^6 bits a second.
    pub goodput_mbps: Option<Spread>,
    /// Samples kept and dropped.
    pub tally: Tally,
    /// The errors of failed samples.
    pub failures: Vec<String>,
}

/// A latency.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LatencyRow {
    /// The subject.
    pub name: String,
    /// The interfaces' MTU.
    pub link_mtu: u32,
    /// The median round trips of all samples, in microseconds.
    pub rtt_p50_us: Option<Spread>,
    /// The 99th percentiles of all samples, in microseconds.
    pub rtt_p99_us: Option<Spread>,
    /// Half the median round trip; none if the reverse direction carries no message.
    pub one_way_us: Option<f64>,
    /// Samples kept and dropped.
    pub tally: Tally,
    /// The errors of failed samples.
    pub failures: Vec<String>,
}

/// The engine's WRITE packets a second over raw AF_XDP's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The interfaces' MTU.
    pub link_mtu: u32,
    /// The raw subject.
    pub of: String,
    /// This is the fastest copying subject: the main result.
    pub headline: bool,
    /// The ratio.
    pub ratio: Ratio,
}

impl Report {
    /// The report of a run.
    #[must_use]
    pub fn new(label: Option<String>, plan: &Plan, results: &Results) -> Self {
        let mut report = Self {
            label,
            machine: Machine::this(),
            plan: plan.clone(),
            seconds: results.seconds,
            interrupted: results.interrupted,
            rates: Vec::new(),
            cpu: Vec::new(),
            latencies: Vec::new(),
            shares: Vec::new(),
            distance_ns: Spread::of(&results.distances_ns),
        };
        let goodput = |series: &Series| by_round(series, |r| Some(r.goodput_gbps));
        for series in &results.series {
            if let Subject::Cpu(paced) = series.variant.subject {
                let tcp = Subject::Cpu(paced.reference());
                let tcp = results.series.iter().find(|other| other.variant.subject == tcp);
                report.cpu.push(CpuRow::of(series, tcp));
                continue;
            }
            if !series.variant.subject.is_rate() {
                report.latencies.push(LatencyRow::of(series));
                continue;
            }
            let is_tcp = |other: &&Series| {
                let Variant { subject, link_mtu, .. } = other.variant;
                subject == REFERENCE && link_mtu == series.variant.link_mtu
            };
            let tcp = results.series.iter().find(is_tcp).map(goodput).unwrap_or_default();
            report.rates.push(RateRow::of(series, goodput(series), &tcp));
        }
        for link_mtu in &plan.link_mtus {
            report.shares.extend(shares(&results.series, *link_mtu));
        }
        report
    }

    /// The smallest headline share; `None` if a pair of series had no common round.
    #[must_use]
    pub fn least_share(&self) -> Option<f64> {
        let write = Subject::Write(Flow::of_shares()).name();
        let mut least: Option<f64> = None;
        for row in self.rates.iter().filter(|row| row.name == write) {
            let mut shares = self.shares.iter();
            let share = shares.find(|share| share.headline && share.link_mtu == row.link_mtu)?;
            let of_medians = share.ratio.of_medians;
            least = Some(least.map_or(of_medians, |least| least.min(of_medians)));
        }
        least
    }

    /// The samples that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        let rates = self.rates.iter().map(|row| row.tally.failed);
        let cpu = self.cpu.iter().map(|row| row.tally.failed);
        rates.chain(cpu).chain(self.latencies.iter().map(|row| row.tally.failed)).sum()
    }
}

impl RateRow {
    /// The row of `series` with its goodput and that of kernel TCP by round.
    fn of(series: &Series, samples_gbps: Vec<Option<f64>>, tcp_gbps: &[Option<f64>]) -> Self {
        let variant = series.variant;
        let rates: Vec<Rate> = series.rounds.iter().filter_map(rate).collect();
        let spread = |of: &dyn Fn(&Rate) -> Option<f64>| {
            Spread::of(&rates.iter().filter_map(of).collect::<Vec<f64>>())
        };
        let known = |value: f64| Some(value).filter(|value| *value > 0.0);
        let has_packets = !matches!(variant.subject, Subject::Tcp { .. });
        Self {
            name: variant.subject.name(),
            link_mtu: variant.link_mtu,
            payload: rates.iter().map(|r| r.payload).find(|payload| *payload > 0),
            goodput_gbps: spread(&|r| Some(r.goodput_gbps)),
            ratio: Ratio::of(&samples_gbps, tcp_gbps),
            samples_gbps,
            cpu_s_per_gb: spread(&Rate::cpu_s_per_gb),
            packets_per_s: spread(&|r| Some(r.packets_per_s).filter(|_| has_packets)),
            packets_per_call: spread(&|r| known(r.packets_per_call)),
            lost: rates.iter().map(|r| r.lost).sum(),
            bytes: rates.iter().map(|r| r.bytes).sum(),
            verified_bytes: rates.iter().map(|r| r.verified_bytes).sum(),
            tally: Tally::of(series),
            failures: series.failures.clone(),
            not_possible: series.impossible.clone(),
        }
    }
}

impl CpuRow {
    /// The row of `series`, and that of kernel TCP at its rate.
    fn of(series: &Series, tcp: Option<&Series>) -> Self {
        let cores = |series: &Series| by_round(series, |r| r.cores());
        let samples = cores(series);
        Self {
            name: series.variant.subject.name(),
            link_mtu: series.variant.link_mtu,
            cores: Spread::of_present(&samples),
            ratio: Ratio::of(&samples, &tcp.map(cores).unwrap_or_default()),
            samples,
            busy_cores: Spread::of_present(&by_round(series, |r| Some(r.busy_cores))),
            goodput_mbps: Spread::of_present(&by_round(series, |r| Some(r.goodput_gbps * 1e3))),
            tally: Tally::of(series),
            failures: series.failures.clone(),
        }
    }
}

impl LatencyRow {
    fn of(series: &Series) -> Self {
        let variant = series.variant;
        let trips = series.rounds.iter().flatten().filter_map(|reading| match reading {
            Reading::Latency(latency) => Some((latency.rtt_p50_us, latency.rtt_p99_us)),
            Reading::Rate(_) => None,
        });
        let (p50, p99): (Vec<f64>, Vec<f64>) = trips.unzip();
        let rtt_p50_us = Spread::of(&p50);
        let to_completion = matches!(variant.subject, Subject::EnginePing(op) if op != Op::Send);
        Self {
            name: variant.subject.name(),
            link_mtu: variant.link_mtu,
            rtt_p50_us,
            rtt_p99_us: Spread::of(&p99),
            one_way_us: rtt_p50_us.filter(|_| !to_completion).map(|s| s.median / 2.0),
            tally: Tally::of(series),
            failures: series.failures.clone(),
        }
    }
}

impl Tally {
    fn of(series: &Series) -> Self {
        let dropped = |why| series.dropped.iter().filter(|d| **d == why).count();
        Self {
            kept: series.rounds.iter().flatten().count(),
            dropped_cores_apart: dropped(Disturbance::CoresApart),
            dropped_stolen: dropped(Disturbance::Stolen),
            failed: series.failures.len(),
            not_run: series.not_run,
        }
    }
}

/// The engine's WRITE compared with each raw series of that MTU.
fn shares(series: &[Series], link_mtu: u32) -> Vec<Share> {
    let here = || series.iter().filter(|s| s.variant.link_mtu == link_mtu);
    let packets = |s: &Series| by_round(s, |r| Some(r.packets_per_s));
    let Some(write) = here().find(|s| s.variant.subject == Subject::Write(Flow::of_shares()))
    else {
        return Vec::new();
    };
    let write = packets(write);
    let raw = here().filter(|s| matches!(s.variant.subject, Subject::Raw { .. }));
    let mut shares: Vec<Share> = raw
        .filter_map(|s| {
            let (of, ratio) = (s.variant.subject.name(), Ratio::of(&write, &packets(s))?);
            Some(Share { link_mtu, of, headline: s.variant.subject.is_raw(Touch::Copy), ratio })
        })
        .collect();
    // The fastest raw subject gives the smallest share.
    let copying = shares.iter().filter(|share| share.headline);
    let least = copying.map(|share| share.ratio.of_medians).min_by(f64::total_cmp);
    for share in &mut shares {
        share.headline &= Some(share.ratio.of_medians) == least;
    }
    shares
}

/// A figure of each round of `series`.
fn by_round(series: &Series, of: impl Fn(Rate) -> Option<f64>) -> Vec<Option<f64>> {
    series.rounds.iter().map(|r| rate(r).and_then(&of)).collect()
}

fn rate(reading: &Option<Reading>) -> Option<Rate> {
    match reading {
        Some(Reading::Rate(rate)) => Some(*rate),
        _ => None,
    }
}

/// The row that the ratios refer to.
const REFERENCE: Subject = Subject::Tcp { offloads: true };

#[cfg(test)]
mod tests;
