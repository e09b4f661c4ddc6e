//! The figures of one run.

use super::case::{Case, Figure};
use crate::plan::Plan;
use crate::record::{Series, to_f64, us};
use crate::report::Report;
use crate::sharing::{Sharing, jain};
use crate::workload::FlowOp;
use serde::Serialize;
use spanwire_base::{Dur, Time, u64_from};
use spanwire_transport::WireMode;
use std::collections::BTreeMap;

/// The figures of one run. Rates are those of completed messages. The measured part is the second
/// half of the run's `time`; drops, marks and retransmissions are of the complete run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// The seed.
    pub seed: u64,
    /// The figure that the bar limits.
    pub figure: f64,
    /// Goodput as a share of the payload that the link carries in full packets and that random loss
    /// and coding leave; of the complete network if the flows end.
    pub utilisation: f64,
    /// Goodput relative to that without congestion control, where it is measured.
    pub share_of_none: Option<f64>,
    /// Jain's index of the flows' rates; none of a single flow.
    pub jain: Option<f64>,
    /// The least flow, relative to an equal share of the link.
    pub least_of_fair_share: f64,
    /// The lowest rate in a window of a second, or a tenth of a short run. Of a single flow: as a
    /// share of the line, from its start on. Of several: of any flow in the measured part, relative
    /// to an equal share.
    pub least_window_share: f64,
    /// Time from the start of the last flow until it has 0.9 of its final rate.
    pub time_to_90_us: Option<f64>,
    /// Mean length of the bottleneck's queue.
    pub queue_mean_bytes: f64,
    /// 99th percentile of it.
    pub queue_p99_bytes: u64,
    /// The mean in bandwidth-delay products.
    pub queue_mean_bdps: f64,
    /// The 99th percentile in bandwidth-delay products.
    pub queue_p99_bdps: f64,
    /// Frames and packets dropped, by place and cause.
    pub drops: BTreeMap<String, u64>,
    /// Frames marked by switches.
    pub marks: u64,
    /// Retransmissions.
    pub retransmitted_pkts: u64,
    /// Timeouts of senders.
    pub timeouts: u64,
    /// All flows.
    pub flows: u64,
    /// Flows that failed, or did not complete if they end.
    pub stalled_flows: u64,
    /// Median and 99th percentile of the slowdown of flows that end: their completion time relative
    /// to that of the flow alone.
    pub slowdown: Option<Summary>,
    /// The event hash.
    pub event_hash: String,
}

/// Two percentiles.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The median.
    pub p50: f64,
    /// The value that 99 % do not exceed.
    pub p99: f64,
}

/// A run's series, prepared for figures.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    case: &'a Case,
    series: Option<(&'a Series, &'a Sharing)>,
    /// Payload of the line in bytes for each microsecond.
    line_bytes_us: f64,
    /// When the last flow begins, and which it is.
    last: (usize, f64),
    /// The measured part in us.
    steady: (f64, f64),
}

impl<'a> Measured<'a> {
    pub(super) fn of(case: &'a Case, plan: &'a Plan, report: &'a Report) -> Self {
        let starts = plan.flows.iter().map(|flow| us(flow.start)).enumerate();
        let last = starts.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0));
        let sharing = plan.sharing.as_ref();
        let from = sharing.map_or(Time::ZERO, |sharing| sharing.steady_from);
        Self {
            case,
            series: report.series.as_ref().zip(sharing),
            line_bytes_us: line_bytes_us(plan),
            last,
            steady: (us(from), report.simulated_us),
        }
    }

    /// The sample, without its figure.
    pub(super) fn sample(&self, seed: u64, report: &Report) -> Sample {
        let rates = self.rates(self.steady);
        let total = if self.series.is_some() { rates.iter().sum() } else { ended_bytes_us(report) };
        let fair = self.line_bytes_us / to_f64(u64_from(rates.len().max(1)));
        let least = rates.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
        let (queue_mean_bytes, queue_p99_bytes) = self.queue();
        let bdp = to_f64(self.case.bdp_bytes.max(1));
        let engine = |name: &str| report.engine.get(name).copied().unwrap_or(0);
        let ends = self.series.is_none();
        let is_stalled = |f: &&crate::FlowReport| f.failed.is_some() || ends && f.fct_us.is_none();
        Sample {
            seed,
            figure: 0.0,
            utilisation: total / self.line_bytes_us,
            share_of_none: None,
            jain: jain(&rates),
            least_of_fair_share: least / fair,
            least_window_share: self.least_window(fair),
            time_to_90_us: self.time_to_90(),
            queue_mean_bytes,
            queue_p99_bytes,
            queue_mean_bdps: queue_mean_bytes / bdp,
            queue_p99_bdps: to_f64(queue_p99_bytes) / bdp,
            drops: report.drops.clone(),
            marks: report.queues.iter().map(|queue| queue.marks).sum(),
            retransmitted_pkts: engine("retransmitted_packets"),
            timeouts: engine("local_ack_timeout_err"),
            flows: u64_from(report.flows.len()),
            stalled_flows: u64_from(report.flows.iter().filter(is_stalled).count()),
            slowdown: Summary::of(report.flows.iter().filter(|_| ends).filter_map(|f| f.slowdown)),
            event_hash: report.event_hash.clone(),
        }
    }

    /// Goodput relative to that of another run.
    pub(super) fn share_of(&self, whole: &Self) -> Option<f64> {
        let total = |of: &Self| of.rates(of.steady).iter().sum::<f64>();
        let whole = total(whole);
        (whole > 0.0).then(|| total(self) / whole)
    }

    /// The lowest window relative to the mean rate of another run.
    pub(super) fn least_window_of(&self, whole: &Self) -> f64 {
        self.least_window(whole.rates(whole.steady).iter().sum())
    }

    /// Bytes of a flow completed by a time in us: linear between samples.
    fn done(&self, flow: usize, at_us: f64) -> f64 {
        let Some((series, _)) = self.series else { return 0.0 };
        let (at, done) = (&series.at_us, &series.flows[flow].done_bytes);
        let after = at.partition_point(|t| *t < at_us);
        let value = |i: usize| to_f64(done[i.min(done.len() - 1)]);
        match after {
            0 => value(0) * at_us.max(0.0) / at[0],
            n if n >= at.len() => value(n),
            n => {
                let part = (at_us - at[n - 1]) / (at[n] - at[n - 1]);
                value(n - 1) + part * (value(n) - value(n - 1))
            }
        }
    }

    /// Mean rates of all flows between two times, in bytes a microsecond.
    fn rates(&self, (from, to): (f64, f64)) -> Vec<f64> {
        let flows = self.series.map_or(0, |(series, _)| series.flows.len());
        (0..flows).map(|i| (self.done(i, to) - self.done(i, from)) / (to - from)).collect()
    }

    /// The lowest rate of any flow in consecutive windows, as a share of `whole`.
    fn least_window(&self, whole: f64) -> f64 {
        let is_alone = self.series.is_none_or(|(series, _)| series.flows.len() == 1);
        let (from, to) = if is_alone { (self.last.1, self.steady.1) } else { self.steady };
        let window = (us(Time::ZERO + WINDOW)).min((to - from) / WINDOWS_MIN);
        let mut least = f64::INFINITY;
        let mut at = from;
        // A remainder shorter than a window belongs to none.
        while at + window <= to * (1.0 + 1e-9) && window > 0.0 {
            let rates = self.rates((at, at + window));
            least = rates.into_iter().fold(least, f64::min);
            at += window;
        }
        if least.is_finite() { least / whole } else { 0.0 }
    }

    /// The first time from which the last flow has 0.9 of its final rate over a hundredth of the
    /// run, relative to its start.
    fn time_to_90(&self) -> Option<f64> {
        let (series, _) = self.series?;
        let (flow, start) = self.last;
        let end = self.steady.1;
        let rate = |from, to| (self.done(flow, to) - self.done(flow, from)) / (to - from);
        let wanted = rate(self.steady.0, end) * 0.9;
        let window = (end - start) / 100.0;
        let later = series.at_us.iter().copied().filter(|at| *at > start && at + window <= end);
        let mut times = std::iter::once(start).chain(later);
        times.find(|at| wanted > 0.0 && rate(*at, at + window) >= wanted).map(|at| at - start)
    }

    /// Mean and 99th percentile of the bottleneck's queue in the measured part.
    fn queue(&self) -> (f64, u64) {
        let Some((series, sharing)) = self.series else { return (0.0, 0) };
        let steady = series.at_us.partition_point(|at| *at <= self.steady.0);
        sharing.queue_lengths(series, steady)
    }
}

/// Payload that the shared link carries, in bytes for each microsecond, as its headers, random loss
/// and coding leave it. Of the links of all hosts without a shared link.
fn line_bytes_us(plan: &Plan) -> f64 {
    let setup = &plan.setup;
    let ends = plan.flows.first().map_or([0, 1], |flow| [flow.src, flow.dst]);
    let is_sr = setup.agreed(ends).is_some_and(|agreed| agreed.mode() == WireMode::Sr);
    // The RETH of every packet in SR. In RC only the first packet of a message has one.
    let has_reth = is_sr && plan.flows.first().is_some_and(|flow| flow.op == FlowOp::Write);
    let reth = if has_reth { RETH_BYTES } else { 0.0 };
    let payload = to_f64(setup.full_payload(ends)).min(to_f64(setup.message_bytes.into()));
    let efficiency = payload / (payload + to_f64(setup.data_overhead(ends)) + reth);
    let lost = plan.faults.first().map_or(0, |fault| fault.impairments.loss.ppb());
    let arrives = 1.0 - f64::from(lost) / 1e9;
    let blocks = setup
        .erasure
        .map_or(1.0, |blocks| f64::from(blocks.data) / f64::from(blocks.data + blocks.parity));
    let all: u64 = match &plan.sharing {
        Some(sharing) => sharing.rate.as_bps(),
        None => plan.topology.links[..plan.topology.hosts.len()].iter().map(|l| l.rate_bps).sum(),
    };
    to_f64(all) / 8e6 * efficiency * arrives * blocks
}

/// Bytes of the flows that completed for each microsecond of the run.
fn ended_bytes_us(report: &Report) -> f64 {
    let ended = report.flows.iter().filter(|flow| flow.fct_us.is_some());
    let bytes: u64 = ended.map(|flow| flow.bytes).sum();
    to_f64(bytes) / report.simulated_us.max(1e-9)
}

impl Sample {
    /// The value of a figure.
    pub(super) fn figure_of(&self, figure: Figure) -> f64 {
        match figure {
            Figure::ShareOfLine => self.utilisation,
            Figure::ShareOfNone => self.share_of_none.unwrap_or(0.0),
            Figure::Jain => self.jain.unwrap_or(0.0),
            Figure::LeastOfFairShare => self.least_of_fair_share,
            Figure::QueueBdps => self.queue_mean_bdps,
            Figure::Completed => 1.0 - to_f64(self.stalled_flows) / to_f64(self.flows.max(1)),
        }
    }

    /// Drops other than those of a lossy line.
    #[must_use]
    pub fn congestion_drops(&self) -> u64 {
        let of_queues = |(name, _): &(&String, &u64)| !name.starts_with("line_");
        self.drops.iter().filter(of_queues).map(|(_, n)| n).sum()
    }
}

impl Summary {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let at = |hundredths: usize| sorted.get((n * hundredths).div_ceil(100).max(1) - 1).copied();
        at(50).zip(at(99)).map(|(p50, p99)| Self { p50, p99 })
    }
}

/// The window of [`Sample::least_window_share`].
const WINDOW: Dur = Dur::from_secs(1);
/// The windows of a run that is shorter than so many of these.
const WINDOWS_MIN: f64 = 10.0;
/// The header of a WRITE's first packet, of every packet in SR.
const RETH_BYTES: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::super::matrix::matrix;
    use super::*;
    use crate::record::{FlowSeries, QueueSeries};
    use crate::run::Watch;
    use crate::scenario::Scenario;

    /// A case, its plan, and the report of a run that ended at once.
    fn case(name: &str) -> (Case, Plan, Report) {
        let case = matrix().into_iter().find(|case| case.name == name).expect(name);
        let set = case.set.iter().map(|(name, text)| (*name, text.as_str()));
        let plan = Scenario::find(case.scenario).unwrap().plan(1, set).unwrap();
        let short = Plan { until: Time::ZERO, ..plan.clone() };
        let report = short.run(Watch { series: true, ..Watch::default() }, &mut ()).unwrap();
        (case, plan, report)
    }

    /// A report with samples every second and the bytes that each flow completed in each.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive counts of bytes far below 2^53"
    )]
    fn report(mut report: Report, plan: &Plan, rates: &[&[f64]], queue: &[u64]) -> Report {
        let flow = |(flow, rates): (u32, &&[f64])| {
            let mut sum = 0;
            let mut add = |bytes: &f64| {
                sum += bytes.round() as u64;
                sum
            };
            let done_bytes = rates.iter().map(&mut add).collect();
            FlowSeries { flow, done_bytes, ..FlowSeries::default() }
        };
        let name = plan.sharing.as_ref().unwrap().queue.clone();
        let bytes = queue.to_vec();
        report.series = Some(Series {
            at_us: (1..=rates[0].len()).map(|s| s as f64 * 1e6).collect(),
            flows: (0..).zip(rates).map(flow).collect(),
            queues: vec![QueueSeries { name, bytes, ..QueueSeries::default() }],
            ..Series::default()
        });
        report.simulated_us = rates[0].len() as f64 * 1e6;
        report
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn line_bytes_us__is_what_the_matrix_on_real_packets_has() {
        // Mbit/s, as in the bench's test of the same name.
        for (name, mbps) in [
            ("200M/1ms", 184.05),
            ("200M/1ms, SEND, RC", 185.17),
            ("200M/1ms, loss 2 %", 180.37),
            ("100G/5us", 98_651.0),
        ] {
            let (_, plan, _) = case(name);
            let got = line_bytes_us(&plan) * 8.0;
            assert!((got / mbps - 1.0).abs() < 1e-3, "{name}: {got}");
        }
    }

    #[test]
    fn sample__of_a_flow_alone() {
        let (case, plan, r) = case("200M/1ms");
        let line = line_bytes_us(&plan) * 1e6;
        let mut rates = [line; 10];
        (rates[0], rates[1], rates[7]) = (line / 4.0, line / 2.0, line / 5.0);
        let queue = [9_000_000, 0, 0, 0, 0, 25_000, 25_000, 25_000, 25_000, 75_000];
        let r = report(r, &plan, &[&rates], &queue);
        let sample = Measured::of(&case, &plan, &r).sample(7, &r);
        assert!(close(sample.utilisation, 4.2 / 5.0), "{sample:?}");
        assert!(close(sample.least_window_share, 0.2), "{sample:?}");
        assert!(close(sample.queue_mean_bytes, 35_000.0), "{sample:?}");
        assert!(close(sample.queue_mean_bdps, 0.7) && sample.queue_p99_bytes == 75_000);
        assert_eq!((sample.jain, sample.seed, sample.stalled_flows), (None, 7, 0));
        // 0.9 of 0.84 of the line; the second second has half.
        assert!(close(sample.time_to_90_us.unwrap(), 2e6), "{sample:?}");
        assert!(close(sample.figure_of(Figure::ShareOfLine), sample.utilisation));
    }

    #[test]
    fn sample__of_two_flows() {
        let (case, plan, r) = case("200M/1ms, 2 flows");
        let line = line_bytes_us(&plan) * 1e6;
        let (one, two) = ([line * 0.75; 30], [line * 0.25; 30]);
        let r = report(r, &plan, &[&one, &two], &[0; 30]);
        let sample = Measured::of(&case, &plan, &r).sample(1, &r);
        assert!(close(sample.utilisation, 1.0) && close(sample.least_of_fair_share, 0.5));
        assert!(close(sample.least_window_share, 0.5), "{sample:?}");
        assert!(sample.jain.is_some_and(|jain| close(jain, 0.8)), "{sample:?}");
    }

    #[test]
    fn share_of__is_relative_to_the_other_run() {
        let (case, plan, r) = case("veth");
        let runs =
            [[3.0; 10], [4.0; 10]].map(|rates| report(r.clone(), &plan, &[&rates], &[0; 10]));
        let [some, none] = [&runs[0], &runs[1]].map(|r| Measured::of(&case, &plan, r));
        assert!(some.share_of(&none).is_some_and(|share| close(share, 0.75)));
        assert!(close(some.least_window_of(&none), 0.75));
    }

    #[test]
    fn congestion_drops__are_not_those_of_the_line() {
        let (case, plan, r) = case("200M/1ms");
        let r = report(r, &plan, &[&[1.0; 10]], &[0; 10]);
        let mut sample = Measured::of(&case, &plan, &r).sample(1, &r);
        sample.drops = [("line_loss", 9), ("switch_queue_full", 2), ("host_rx_ring", 1)]
            .map(|(name, n)| (name.to_owned(), n))
            .into();
        assert_eq!(sample.congestion_drops(), 3);
    }

    #[test]
    fn summary__has_percentiles() {
        let summary = Summary::of((1..=200).rev().map(f64::from));
        assert_eq!(summary, Some(Summary { p50: 100.0, p99: 198.0 }));
        assert_eq!(Summary::of(std::iter::empty()), None);
    }
}
