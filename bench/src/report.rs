//! The report: results, machine, and the number of dropped samples.

use crate::machine::Machine;
use crate::quiet::Disturbance;
use crate::raw::{ACK_EVERY, BATCH, HEADERS_BYTES, ICRC_BYTES, Touch};
use crate::sample::{Rate, Reading};
use crate::stats::{Ratio, Spread};
use crate::veth::{Plan, Results, Series, Subject};
use crate::{engine, veth};
use serde::Serialize;
use spanwire_host::oob::Op;
use std::fmt::Write as _;

/// The report of a run, as printed by `--json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A title given by the caller: a date, a commit.
    pub label: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The plan.
    pub plan: Plan,
    /// The configuration of each side, one fact a line.
    pub setup: Vec<String>,
    /// One-way rates.
    pub rates: Vec<RateRow>,
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
    /// Data packets a second; none for TCP.
    pub packets_per_s: Option<Spread>,
    /// Packets retransmitted (engine) or lost (raw) in all kept samples.
    pub lost: u64,
    /// Samples kept and dropped.
    pub tally: Tally,
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
            setup: setup(plan),
            rates: Vec::new(),
            latencies: Vec::new(),
            shares: Vec::new(),
            distance_ns: Spread::of(&results.distances_ns),
        };
        for series in &results.series {
            match series.variant.subject {
                Subject::Raw { .. } | Subject::Engine(_) | Subject::Tcp { .. } => {
                    report.rates.push(RateRow::of(series));
                }
                _ => report.latencies.push(LatencyRow::of(series)),
            }
        }
        for link_mtu in &plan.link_mtus {
            report.shares.extend(shares(&results.series, *link_mtu));
        }
        report
    }

    /// The smallest headline share; `None` if a pair of series had no common round.
    #[must_use]
    pub fn least_share(&self) -> Option<f64> {
        let mut least: Option<f64> = None;
        for mtu in &self.plan.link_mtus {
            let mut shares = self.shares.iter();
            let share = shares.find(|share| share.headline && share.link_mtu == *mtu)?;
            let of_medians = share.ratio.of_medians;
            least = Some(least.map_or(of_medians, |least| least.min(of_medians)));
        }
        least
    }

    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let Plan { rounds, ms, .. } = self.plan;
        if let Some(label) = &self.label {
            writeln!(out, "{label}")?;
        }
        let Machine { cpu, kernel, cores, virtual_machine } = &self.machine;
        let guest = if *virtual_machine { " (virtual machine)" } else { "" };
        writeln!(out, "{cpu}, {cores} cores{guest}, Linux {kernel}")?;
        writeln!(out, "{rounds} interleaved rounds of {ms} ms; median [min..max]")?;
        if let Some(d) = self.distance_ns {
            let Spread { median, min, max, .. } = d;
            writeln!(out, "core to core and back {median:.0} ns [{min:.0}..{max:.0}]")?;
        }
        for link_mtu in &self.plan.link_mtus {
            self.write_rates(out, *link_mtu)?;
        }
        self.write_latencies(out)?;
        writeln!(out)?;
        for fact in &self.setup {
            writeln!(out, "* {fact}")?;
        }
        Ok(())
    }

    fn write_rates(&self, out: &mut String, link_mtu: u32) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<38} {:>24} {:>26} {:>6} {:>12}",
            format!("one way, link MTU {link_mtu}"),
            "goodput Gbit/s",
            "data packets, 1000/s",
            "lost",
            "kept/dropped"
        )?;
        for row in self.rates.iter().filter(|row| row.link_mtu == link_mtu) {
            writeln!(
                out,
                "  {:<36} {:>24} {:>26} {:>6} {:>12}",
                row.name,
                spread(row.goodput_gbps, 1.0, 2),
                spread(row.packets_per_s, 1e3, 0),
                row.lost,
                row.tally.to_string(),
            )?;
        }
        for share in self.shares.iter().filter(|share| share.link_mtu == link_mtu) {
            let Ratio { of_medians, paired } = share.ratio;
            let mark = if share.headline { "  <- best raw" } else { "" };
            let by_round = paired.map_or("no round has both".to_owned(), |s| {
                format!("by round: {} %", spread(Some(s), 0.01, 0))
            });
            writeln!(
                out,
                "  WRITE is {:.0} % of {} ({by_round}){mark}",
                of_medians * 100.0,
                share.of
            )?;
        }
        Ok(())
    }

    fn write_latencies(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<38} {:>24} {:>26} {:>8} {:>12}",
            format!("{} bytes, one at a time", veth::PING_BYTES),
            "RTT p50 us",
            "RTT p99 us",
            "RTT/2 us",
            "kept/dropped"
        )?;
        for row in &self.latencies {
            writeln!(
                out,
                "  {:<36} {:>24} {:>26} {:>8} {:>12}",
                row.name,
                spread(row.rtt_p50_us, 1.0, 1),
                spread(row.rtt_p99_us, 1.0, 1),
                row.one_way_us.map_or("-".to_owned(), |us| format!("{us:.2}")),
                row.tally.to_string(),
            )?;
        }
        Ok(())
    }
}

impl RateRow {
    fn of(series: &Series) -> Self {
        let variant = series.variant;
        let rates: Vec<Rate> = series.rounds.iter().filter_map(rate).collect();
        let packets: Vec<f64> = rates.iter().map(|r| r.packets_per_s).collect();
        let is_tcp = matches!(variant.subject, Subject::Tcp { .. });
        let goodputs: Vec<f64> = rates.iter().map(|r| r.goodput_gbps).collect();
        Self {
            name: variant.subject.name(),
            link_mtu: variant.link_mtu,
            payload: (!is_tcp).then_some(variant.path_mtu),
            goodput_gbps: Spread::of(&goodputs),
            packets_per_s: Spread::of(&packets).filter(|_| !is_tcp),
            lost: rates.iter().map(|r| r.lost).sum(),
            tally: Tally::of(series),
        }
    }
}

impl LatencyRow {
    fn of(series: &Series) -> Self {
        let variant = series.variant;
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        for reading in series.rounds.iter().flatten() {
            if let Reading::Latency(latency) = reading {
                p50.push(latency.rtt_p50_us);
                p99.push(latency.rtt_p99_us);
            }
        }
        let rtt_p50_us = Spread::of(&p50);
        let to_completion = matches!(variant.subject, Subject::EnginePing(op) if op != Op::Send);
        Self {
            name: variant.subject.name(),
            link_mtu: variant.link_mtu,
            rtt_p50_us,
            rtt_p99_us: Spread::of(&p99),
            one_way_us: rtt_p50_us.filter(|_| !to_completion).map(|s| s.median / 2.0),
            tally: Tally::of(series),
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
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kept)?;
        let (apart, stolen) = (self.dropped_cores_apart, self.dropped_stolen);
        match (apart, stolen) {
            (0, 0) => write!(f, "/0"),
            (_, 0) => write!(f, "/{apart}a"),
            (0, _) => write!(f, "/{stolen}s"),
            _ => write!(f, "/{apart}a+{stolen}s"),
        }
    }
}

/// The engine's WRITE compared with each raw series of that MTU.
fn shares(series: &[Series], link_mtu: u32) -> Vec<Share> {
    let here = || series.iter().filter(|s| s.variant.link_mtu == link_mtu);
    let packets = |s: &Series| -> Vec<Option<f64>> {
        let by_round = s.rounds.iter();
        by_round.map(|r| rate(r).map(|r| r.packets_per_s)).collect()
    };
    let Some(write) = here().find(|s| s.variant.subject == Subject::Engine(Op::Write)) else {
        return Vec::new();
    };
    let write = packets(write);
    let raw = here().filter(|s| matches!(s.variant.subject, Subject::Raw { .. }));
    let mut shares: Vec<(bool, Share)> = raw
        .filter_map(|s| {
            let share = Share {
                link_mtu,
                of: s.variant.subject.name(),
                headline: false,
                ratio: Ratio::of(&write, &packets(s))?,
            };
            Some((s.variant.subject.is_raw(Touch::Copy), share))
        })
        .collect();
    // The fastest raw subject gives the smallest share.
    let copying = shares.iter_mut().filter(|(copies, _)| *copies);
    let by_ratio = |a: &&mut (bool, Share), b: &&mut (bool, Share)| {
        a.1.ratio.of_medians.total_cmp(&b.1.ratio.of_medians)
    };
    if let Some((_, share)) = copying.min_by(by_ratio) {
        share.headline = true;
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

fn rate(reading: &Option<Reading>) -> Option<Rate> {
    match reading {
        Some(Reading::Rate(rate)) => Some(*rate),
        _ => None,
    }
}

fn spread(spread: Option<Spread>, unit: f64, digits: usize) -> String {
    spread.map_or("-".to_owned(), |s| {
        let [median, min, max] = [s.median, s.min, s.max].map(|value| value / unit);
        format!("{median:.digits$} [{min:.digits$}..{max:.digits$}]")
    })
}

fn setup(plan: &Plan) -> Vec<String> {
    let [a, b] = plan.cores;
    let overhead = HEADERS_BYTES + ICRC_BYTES;
    let (size, depth) = (engine::MESSAGE_BYTES >> 10, engine::DEPTH);
    let limits = plan.limits;
    vec![
        format!("one thread a side, sender on core {a}, receiver on core {b}; both spin"),
        "a veth pair of one queue between two namespaces; pfifo 1000 in front of the AF_XDP ports"
            .to_owned(),
        "AF_XDP: native copy mode, rings of 256, 4 KiB chunks, side poll on both ends".to_owned(),
        format!(
            "raw: frames of the path MTU + {overhead} bytes (Ethernet, IPv4, UDP, BTH, ICRC), as \
             WRITE's middle packets; batch {BATCH}, cumulative ACK every {ACK_EVERY}; no ICRC \
             computed"
        ),
        format!(
            "spanwire: RC, one queue pair, {size} KiB messages, {depth} outstanding; packets/s = \
             completed payload / path MTU"
        ),
        "TCP: a veth pair of its own without XDP (attaching XDP switches the peer's TSO off) and \
         without a qdisc, 128 KiB writes"
            .to_owned(),
        format!(
            "dropped and taken again (at most {} times): core to core above {:.0} ns after the \
             sample, or before it and for {} ms more (a); a thread waited for its core more than \
             {:.0} % of the time (s)",
            plan.repeats,
            limits.distance_ns,
            plan.wait_ms,
            limits.stolen * 100.0
        ),
    ]
}

#[cfg(test)]
mod tests;
