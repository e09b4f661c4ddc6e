//! The queue and the rates of flows that cross a DCI switch.

use super::{arrived, mean_gbps, place};
use crate::record::{DciFlowSeries, Series, to_f64, us};
use crate::sharing::jain;
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Time, u64_from};
use std::ops::Range;

/// Flows that cross a DCI switch into its datacenter.
///
/// # Source
/// MLCC II and IV, figures 2 to 4 and 7 to 10.
#[derive(Clone, PartialEq, Debug)]
pub struct Dci {
    /// The switch.
    pub switch: String,
    /// When the first of these flows begins, and the last.
    pub starts: [Time; 2],
    /// The time from a sender to the switch.
    pub way: Dur,
    /// The round trip within the datacenter.
    pub rtt_d: Dur,
    /// When flows stop.
    pub until: Time,
    /// The fair share of each flow, Gbit/s on the wire.
    pub fair_gbps: f64,
    /// Flows within the sender's datacenter, by their places, while as many cross as the place of
    /// the stage says.
    pub intra: Vec<u32>,
    /// Those stages.
    pub stages: Vec<IntraStage>,
}

/// A time in which as many flows are active.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IntraStage {
    /// Its start.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// The fair share of all flows within together, Gbit/s of payload.
    pub fair_gbps: f64,
}

/// The queue and the rates of flows that cross a DCI switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DciReport {
    /// When more than 30 KB are queued in the receivers' datacenter from the time on at which the
    /// first packet of these flows can be there, us; `None` if that is never.
    pub onset_us: Option<f64>,
    /// Pause frames of that datacenter's switches from one of its round trips after the onset on.
    pub pfc_pauses_after_onset: u64,
    /// The greatest queue of the switch.
    pub dci_peak_bytes: u64,
    /// Its mean queue in the last quarter of the time.
    pub dci_settled_bytes: u64,
    /// From the arrival of the first flow until the queue stays within a quarter of that, us;
    /// `None` if it does not before the last quarter.
    pub settle_us: Option<f64>,
    /// By how much the queue is below that after its peak at most.
    pub undershoot_bytes: u64,
    /// How often the queue rises above half of its peak and falls below a tenth of it.
    pub cycles: u32,
    /// From the start of the last flow until the index of the rates at which senders may send stays
    /// at 0.95, us; `None` if it does not, or with one flow.
    pub jain_time_us: Option<f64>,
    /// The least sum of those rates from the first round trip on, as a part of the fair shares.
    pub dip: Option<f64>,
    /// The mean sum of those rates in the last quarter of the time, as a part of the fair shares.
    pub end_share: Option<f64>,
    /// Jain's index of the goodput of these flows in the last quarter of the time.
    pub jain: Option<f64>,
    /// The payload of flows within the sender's datacenter, as a part of their fair share, by the
    /// number of flows that cross.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intra_share: Vec<f64>,
    /// By flow; empty without MLCC.
    pub dci_flows: Vec<DciFlowReport>,
}

/// A flow that MLCC lets in.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DciFlowReport {
    /// The flow's place in the list of all.
    pub flow: u32,
    /// The most bytes that wait.
    pub peak_bytes: u64,
    /// Their mean in the last quarter of the time.
    pub settled_bytes: u64,
    /// The mean rate at which it is let in there, Gbit/s.
    pub credit_gbps: f64,
}

impl Dci {
    pub(super) fn report(&self, series: &Series) -> DciReport {
        let none = crate::record::DciSeries::default();
        let dci = series.dci.as_ref().unwrap_or(&none);
        let [first, last] = self.starts;
        let arrival = first + self.way;
        let end = place(series, self.until);
        let all = place(series, arrival)..end;
        let tail = end - (end - all.start.min(end)) / 4..end;
        let onset = (all.start..series.at_us.len())
            .find(|i| dci.behind_bytes.get(*i).is_some_and(|bytes| *bytes > ONSET_BYTES));
        let onset_us = onset.and_then(|i| series.at_us.get(i).copied());
        let settled = mean(&dci.bytes, tail.clone());
        let peak = dci.bytes.iter().copied().max().unwrap_or(0);
        let peak_at = dci.bytes.iter().position(|bytes| *bytes == peak).unwrap_or(0);
        let after_peak = dci.bytes.get(peak_at..end.max(peak_at)).unwrap_or_default();
        let least = after_peak.iter().copied().min().unwrap_or(0);
        let rates = Rates { series, flows: &dci.flows };
        let sending = place(series, last)..end;
        DciReport {
            onset_us,
            pfc_pauses_after_onset: self.pauses_since(series, &dci.pauses, onset_us),
            dci_peak_bytes: peak,
            dci_settled_bytes: settled,
            settle_us: settle(&dci.bytes, settled, all, tail.start)
                .and_then(|i| Some(series.at_us.get(i)? - us(arrival))),
            undershoot_bytes: settled.saturating_sub(least),
            cycles: cycles(&dci.bytes, peak),
            jain_time_us: rates.jain_from(sending.clone()).map(|at| at - us(last)),
            dip: rates.least_share(place(series, last + self.way * 2)..end, self.fair_gbps),
            end_share: rates.mean_share(tail.clone(), self.fair_gbps),
            jain: jain(&rates.goodput([tail.start, tail.end.saturating_sub(1)])),
            intra_share: self.stages.iter().map(|stage| self.share(series, stage)).collect(),
            dci_flows: dci.flows.iter().filter_map(|flow| of_flow(flow, tail.clone())).collect(),
        }
    }

    fn pauses_since(&self, series: &Series, pauses: &[u64], onset_us: Option<f64>) -> u64 {
        let Some(onset_us) = onset_us else { return 0 };
        let from = onset_us + to_f64(self.rtt_d.as_ps()) / 1e6;
        let at = series.at_us.partition_point(|at| *at < from);
        let before = pauses.get(at).copied();
        before.map_or(0, |before| pauses.last().copied().unwrap_or(0) - before)
    }

    fn share(&self, series: &Series, stage: &IntraStage) -> f64 {
        let span = [place(series, stage.from), place(series, stage.until)];
        mean_gbps(series, &arrived(series, &self.intra), span) / stage.fair_gbps
    }
}

/// The rates at which senders may send.
struct Rates<'a> {
    series: &'a Series,
    flows: &'a [DciFlowSeries],
}

impl Rates<'_> {
    fn at(&self, i: usize) -> Vec<f64> {
        self.flows.iter().filter_map(|flow| flow.sending_gbps.get(i).copied()).collect()
    }

    /// From when on the index stays at 0.95, us.
    fn jain_from(&self, span: Range<usize>) -> Option<f64> {
        let is_fair = |i: &usize| jain(&self.at(*i)).is_some_and(|index| index >= FAIR);
        let unfair = span.clone().rev().find(|i| !is_fair(i));
        let first = unfair.map_or(span.start, |i| i + 1);
        (first < span.end).then(|| self.series.at_us.get(first).copied()).flatten()
    }

    fn least_share(&self, span: Range<usize>, fair_gbps: f64) -> Option<f64> {
        let fair = fair_gbps * to_f64(u64_from(self.flows.len()));
        let sums = span.map(|i| self.at(i).iter().sum::<f64>() / fair);
        sums.reduce(f64::min).filter(|_| fair > 0.0)
    }

    fn mean_share(&self, span: Range<usize>, fair_gbps: f64) -> Option<f64> {
        let fair = fair_gbps * to_f64(u64_from(self.flows.len()));
        let samples = to_f64(u64_from(span.len()));
        let sum: f64 = span.flat_map(|i| self.at(i)).sum();
        (fair > 0.0 && samples > 0.0).then(|| sum / samples / fair)
    }

    fn goodput(&self, span: [usize; 2]) -> Vec<f64> {
        let of = |flow: &DciFlowSeries| {
            mean_gbps(self.series, &arrived(self.series, &[flow.flow]), span)
        };
        self.flows.iter().map(of).collect()
    }
}

fn of_flow(flow: &DciFlowSeries, tail: Range<usize>) -> Option<DciFlowReport> {
    let credits = flow.credit_gbps.get(tail.clone()).filter(|credits| !credits.is_empty())?;
    Some(DciFlowReport {
        flow: flow.flow,
        peak_bytes: flow.waiting_bytes.iter().copied().max()?,
        settled_bytes: mean(&flow.waiting_bytes, tail),
        credit_gbps: credits.iter().sum::<f64>() / to_f64(u64_from(credits.len())),
    })
}

fn mean(bytes: &[u64], span: Range<usize>) -> u64 {
    let bytes = bytes.get(span).unwrap_or_default();
    bytes.iter().sum::<u64>() / u64_from(bytes.len()).max(1)
}

/// From which sample on the queue stays within a quarter of `settled`, if that is before `latest`.
fn settle(bytes: &[u64], settled: u64, span: Range<usize>, latest: usize) -> Option<usize> {
    let is_off = |i: &usize| bytes.get(*i).is_none_or(|b| b.abs_diff(settled) > settled / 4);
    let off = span.clone().rev().find(is_off);
    let from = off.map_or(span.start, |i| i + 1);
    (from < latest).then_some(from)
}

/// How often a queue rises above half of its peak and falls below a tenth of it.
fn cycles(bytes: &[u64], peak: u64) -> u32 {
    let (mut is_high, mut count) = (false, 0);
    for bytes in bytes {
        if *bytes > peak / 2 {
            is_high = true;
        } else if *bytes < peak / 10 && std::mem::take(&mut is_high) {
            count += 1;
        }
    }
    count
}

/// Rates are fair from this index on.
const FAIR: f64 = 0.95;
/// More than flows within the datacenter queue in the steady state.
const ONSET_BYTES: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::super::testing::series;
    use super::*;
    use crate::record::DciSeries;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    #[test]
    fn cycles__counts_falls_from_half_to_a_tenth_of_the_peak() {
        assert_eq!(cycles(&[0, 10, 100, 60, 40, 9, 51, 30, 5, 55], 100), 2);
        assert_eq!(cycles(&[], 0), 0);
    }

    #[test]
    fn settle__is_when_the_queue_stays_near_its_last_mean() {
        let bytes = [0, 50, 12, 9, 10, 11, 10, 10];
        assert_eq!(settle(&bytes, 10, 0..8, 6), Some(2));
        assert_eq!(settle(&bytes, 10, 0..8, 2), None);
    }

    #[test]
    fn report__of_a_queue_that_rises_and_settles() {
        let mut s = series(&[&[10.0; 20], &[5.0; 20]], &[0; 20]);
        let flow = |flow, gbps: f64| DciFlowSeries {
            flow,
            sending_gbps: (0..20).map(|i| if i < 8 { gbps } else { 10.0 }).collect(),
            waiting_bytes: (0..20).map(|i| if i < 10 { 90 } else { 5 }).collect(),
            credit_gbps: vec![12.5; 20],
        };
        s.dci = Some(DciSeries {
            bytes: [0, 0, 0, 40, 80, 100, 60, 30, 0, 2, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]
                .to_vec(),
            behind_bytes: (0..20).map(|i| if i == 4 { 40_000 } else { 0 }).collect(),
            pauses: (0..20).map(|i| if i > 10 { 7 } else { 4 }).collect(),
            flows: vec![flow(0, 25.0), flow(1, 2.0)],
            ..DciSeries::default()
        });
        let dci = Dci {
            switch: "dc1.dci".to_owned(),
            starts: [at(10), at(20)],
            way: Dur::from_us(20),
            rtt_d: Dur::from_us(22),
            until: at(200),
            fair_gbps: 12.5,
            intra: vec![0],
            stages: vec![IntraStage { from: at(50), until: at(100), fair_gbps: 20.0 }],
        };
        let report = dci.report(&s);
        assert_eq!((report.onset_us, report.pfc_pauses_after_onset), (Some(50.0), 3));
        assert_eq!((report.dci_peak_bytes, report.dci_settled_bytes), (100, 10));
        assert_eq!((report.settle_us, report.undershoot_bytes), (Some(80.0), 10));
        assert_eq!((report.jain_time_us, report.cycles), (Some(70.0), 1));
        assert_eq!((report.dip, report.end_share, report.jain), (Some(0.8), Some(0.8), Some(0.9)));
        assert_eq!(report.intra_share, [0.5]);
        let of = |f: &DciFlowReport| (f.flow, f.peak_bytes, f.settled_bytes, f.credit_gbps);
        let flows: Vec<_> = report.dci_flows.iter().map(of).collect();
        assert_eq!(flows, [(0, 90, 5, 12.5), (1, 90, 5, 12.5)]);
    }
}
