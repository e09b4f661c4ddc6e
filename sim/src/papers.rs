//! Metrics of papers' figures: queues and rates around a burst, recovery, steady queues, fairness
//! by stage, isolated flows, and throughput by bins.

mod bins;
mod burst;
mod isolated;
mod mlcc;
mod recover;
pub mod rows;
mod stages;
mod steady;
mod trace;

pub use bins::{Bins, BinsReport};
pub use burst::{Burst, BurstReport};
pub use isolated::IsolatedReport;
pub use mlcc::{Dci, DciFlowReport, DciReport, IntraStage};
pub use recover::{Disturbed, Recover, RecoverReport};
pub use stages::{Stage, Stages, StagesReport};
pub use steady::{Steady, SteadyReport};
pub use trace::{Trace, TraceUnit};

use crate::ids::LinkId;
use crate::network::Network;
use crate::record::{Keep, Series, is_queue, us};
use serde::{Deserialize, Serialize};
use spanwire_base::{Time, usize_from};
use spanwire_wire::Opcode;
use std::collections::BTreeMap;

/// A metric of a paper's figure, taken from the time series of a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Metric {
    /// The queue and the rates during and after a burst.
    Burst(Burst),
    /// How long rates take to recover.
    Recover(Recover),
    /// The length of a queue in the steady state.
    Steady(Steady),
    /// Fairness and total rate by stage.
    Stages(Stages),
    /// Flows that switches have isolated.
    Isolated,
    /// Throughput by bins of time.
    Bins(Bins),
    /// The queue and the rates of flows that cross a DCI switch.
    Dci(Dci),
}

/// The value of a metric.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetricReport {
    /// Of [`Metric::Burst`].
    Burst(BurstReport),
    /// Of [`Metric::Recover`].
    Recover(RecoverReport),
    /// Of [`Metric::Steady`].
    Steady(SteadyReport),
    /// Of [`Metric::Stages`].
    Stages(StagesReport),
    /// Of [`Metric::Isolated`].
    Isolated(IsolatedReport),
    /// Of [`Metric::Bins`].
    Bins(BinsReport),
    /// Of [`Metric::Dci`].
    Dci(DciReport),
}

impl Metric {
    /// The time in which it counts CNPs, if it does.
    pub(crate) fn counts_cnps(&self) -> Option<[Time; 2]> {
        match self {
            Self::Burst(burst) => Some([burst.at, burst.until]),
            Self::Recover(_)
            | Self::Steady(_)
            | Self::Stages(_)
            | Self::Isolated
            | Self::Bins(_)
            | Self::Dci(_) => None,
        }
    }

    /// The DCI switch that it is about.
    pub(crate) fn dci(&self) -> Option<&str> {
        match self {
            Self::Dci(dci) => Some(&dci.switch),
            _ => None,
        }
    }

    /// The time series that it needs.
    pub(crate) fn keep(&self) -> Keep {
        match self {
            Self::Isolated => Keep::Means,
            _ => Keep::Rates(self.queue().map(str::to_owned)),
        }
    }

    /// The queue that it is about, as in [`QueueReport::name`](crate::QueueReport::name).
    fn queue(&self) -> Option<&str> {
        match self {
            Self::Burst(Burst { queue, .. }) | Self::Steady(Steady { queue, .. }) => Some(queue),
            Self::Recover(_) | Self::Stages(_) | Self::Isolated | Self::Bins(_) | Self::Dci(_) => {
                None
            }
        }
    }

    pub(crate) fn report(
        &self,
        network: &Network,
        series: &Series,
        cnps: Option<&CnpCount>,
    ) -> MetricReport {
        match self {
            Self::Burst(burst) => MetricReport::Burst(burst.report(network, series, cnps)),
            Self::Recover(recover) => MetricReport::Recover(recover.report(series)),
            Self::Steady(steady) => MetricReport::Steady(steady.report(series)),
            Self::Stages(stages) => MetricReport::Stages(stages.report(series)),
            Self::Isolated => MetricReport::Isolated(IsolatedReport::of(network)),
            Self::Bins(bins) => MetricReport::Bins(bins.report(network, series)),
            Self::Dci(dci) => MetricReport::Dci(dci.report(series)),
        }
    }
}

/// A count of the CNPs that arrive at hosts, by queue pair.
#[derive(Debug)]
pub(crate) struct CnpCount {
    span: [Time; 2],
    /// The host at the end of each direction of a link, if there is one.
    hosts: Vec<Option<u32>>,
    /// By host and QPN.
    counts: BTreeMap<(u32, u32), u64>,
    /// Where the BTH begins.
    bth: usize,
}

impl CnpCount {
    /// Counts those that arrive from the first time on and before the second.
    pub(crate) fn new(network: &Network, span: [Time; 2]) -> Self {
        let host = |link| {
            let [_, (node, _)] = network.world.ends(link);
            u32::try_from(node.index()).ok().filter(|node| network.topology().is_host(*node))
        };
        let bth = if network.setup().ipv6 { BTH_IPV6 } else { BTH_IPV4 };
        let hosts = network.world.links().map(host).collect();
        Self { span, hosts, counts: BTreeMap::new(), bth }
    }

    pub(crate) fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8]) {
        let Some(host) = self.hosts.get(link.index()).copied().flatten() else { return };
        let [from, to] = self.span;
        // Only RoCEv2 frames and pause frames arrive at hosts; pause frames are shorter.
        let bth = frame.get(self.bth..self.bth + BTH_BYTES).unwrap_or_default();
        if now >= from
            && now < to
            && let [opcode, _, _, _, _, a, b, c, ..] = *bth
            && Opcode::from_u8(opcode) == Some(Opcode::Cnp)
        {
            let qpn = u32::from_be_bytes([0, a, b, c]);
            *self.counts.entry((host, qpn)).or_default() += 1;
        }
    }

    /// Those that the requester of each flow has received, by flow.
    pub(crate) fn by_flow(&self, network: &Network) -> Vec<u64> {
        let mut all = vec![0; network.flows().len()];
        for (number, host) in network.numbered_engines() {
            for state in host.app().requesting() {
                let count = self.counts.get(&(number, state.qpn.get()));
                all[usize_from(state.flow.into())] = count.copied().unwrap_or(0);
            }
        }
        all
    }
}

/// The place of the first sample at `at` or later.
fn place(series: &Series, at: Time) -> usize {
    series.at_us.partition_point(|t| *t < us(at))
}

/// The bytes of a queue at each sample; all zero if it was always empty.
fn queue_bytes(series: &Series, name: &str) -> Vec<u64> {
    // The first queue of the port, if it has several.
    let queue = series.queues.iter().find(|q| is_queue(&q.name, name));
    queue.map_or_else(|| vec![0; series.at_us.len()], |q| q.bytes.clone())
}

/// Payload of some flows that arrived by each sample, in Gbit/s times us.
fn arrived(series: &Series, flows: &[u32]) -> Vec<f64> {
    let (mut sum, mut before) = (0.0, 0.0);
    let at = |(i, at): (usize, &f64)| {
        let rates = flows.iter().filter_map(|flow| series.flows.get(usize_from((*flow).into())));
        let gbps: f64 = rates.filter_map(|flow| flow.goodput_gbps.get(i)).sum();
        sum += gbps * (at - before);
        before = *at;
        sum
    };
    series.at_us.iter().enumerate().map(at).collect()
}

/// The mean rate of what `arrived` between two samples, in Gbit/s; zero without time between them.
fn mean_gbps(series: &Series, arrived: &[f64], [from, to]: [usize; 2]) -> f64 {
    let last = series.at_us.len().saturating_sub(1);
    let at = |i: usize| (series.at_us.get(i.min(last)), arrived.get(i.min(last)));
    match (at(from), at(to)) {
        ((Some(t0), Some(a0)), (Some(t1), Some(a1))) if t1 > t0 => (a1 - a0) / (t1 - t0),
        _ => 0.0,
    }
}

/// The rate of what `arrived` at each sample, as the mean over the last [`SMOOTH_US`].
fn smooth(series: &Series, arrived: &[f64]) -> Vec<f64> {
    let mut first = 0;
    let at = |(i, at): (usize, &f64)| {
        while series.at_us[first] < at - SMOOTH_US {
            first += 1;
        }
        mean_gbps(series, arrived, [first, i])
    };
    series.at_us.iter().enumerate().map(at).collect()
}

/// Averaging time of rates in us: above the time of several packets at 25 Gbit/s, below that of
/// the reactions to be seen.
const SMOOTH_US: f64 = 20.0;
/// Ethernet, IP and UDP.
const BTH_IPV4: usize = 14 + 20 + 8;
const BTH_IPV6: usize = 14 + 40 + 8;
const BTH_BYTES: usize = 12;

#[cfg(test)]
mod testing {
    use crate::record::{FlowSeries, QueueSeries, Series};

    /// Series with a sample every 10 us, of flows with these rates and of the queue `hub:0`.
    pub(super) fn series(rates: &[&[f64]], queue: &[u64]) -> Series {
        let n = queue.len().max(rates.first().map_or(0, |r| r.len()));
        let flow = |(flow, rates): (u32, &&[f64])| FlowSeries {
            flow,
            goodput_gbps: rates.to_vec(),
            ..FlowSeries::default()
        };
        let bytes = queue.to_vec();
        let queue = QueueSeries { name: "hub:0".to_owned(), bytes, ..QueueSeries::default() };
        Series {
            at_us: (1u32..).map(|i| f64::from(i) * 10.0).take(n).collect(),
            flows: (0..).zip(rates).map(flow).collect(),
            queues: vec![queue],
            ..Series::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::series;
    use super::*;

    #[test]
    fn queue_bytes__of_the_first_queue_of_a_port() {
        let mut s = series(&[], &[1, 2]);
        assert_eq!(queue_bytes(&s, "hub:0"), [1, 2]);
        s.queues[0].name = "hub:0.0".to_owned();
        assert_eq!(queue_bytes(&s, "hub:0"), [1, 2]);
        assert_eq!(queue_bytes(&s, "hub:1"), [0, 0]);
    }

    #[test]
    fn smooth__is_the_mean_over_the_last_20_us() {
        let s = series(&[&[1.0, 1.0, 4.0, 4.0], &[1.0, 1.0, 0.0, 0.0]], &[]);
        let total = arrived(&s, &[0, 1]);
        assert_eq!(total, [20.0, 40.0, 80.0, 120.0]);
        assert_eq!(smooth(&s, &total), [0.0, 2.0, 3.0, 4.0]);
        assert_eq!(mean_gbps(&s, &total, [0, 9]), 100.0 / 30.0, "up to the last sample");
    }
}
