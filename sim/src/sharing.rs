//! How flows share a queue: link utilisation, fairness and queue length.

use crate::network::Network;
use crate::record::{FlowSeries, Series, to_f64, us};
use serde::Serialize;
use spanwire_base::{Dur, Rate, Time};

/// Parameters of measuring how flows share a queue. All flows outlast the run.
#[derive(Clone, PartialEq, Debug)]
pub struct Sharing {
    /// The queue that all of them pass, as in [`QueueReport::name`](crate::QueueReport::name).
    pub queue: String,
    /// The rate of the link behind it.
    pub rate: Rate,
    /// When the last flow begins: the convergence time starts here.
    pub from: Time,
    /// Start of the steady state, in which everything but convergence is measured.
    pub steady_from: Time,
    /// Averaging time of rates; it must exceed the time of a packet.
    pub smooth: Dur,
    /// The flows of the far group, by their places in the list of all.
    pub far: Vec<u32>,
}

/// The results.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SharingReport {
    /// Payload that arrived, in any order, relative to the link's capacity in full packets.
    pub utilisation: f64,
    /// Jain's index of the flows' mean rates, 1 for equal ones; `None` for a single flow.
    pub jain: Option<f64>,
    /// Convergence time in us: from the start of the last flow until the index stays at
    /// [`JAIN_FAIR`] or above. `None` if it does not converge, or for a single flow.
    pub jain_time_us: Option<f64>,
    /// The mean length of the queue in bytes.
    pub queue_bytes_mean: f64,
    /// 99th percentile of the queue length in bytes.
    pub queue_bytes_p99: u64,
    /// The mean rate of far flows relative to that of near flows; `None` without both.
    pub inter_intra_ratio: Option<f64>,
}

/// Jain's index from which the shares count as fair.
pub const JAIN_FAIR: f64 = 0.95;

impl Sharing {
    /// Jain's index over time, of the flows that have begun; `None` while there are fewer than two.
    pub(crate) fn jain_over_time(&self, network: &Network, series: &Series) -> Vec<Option<f64>> {
        let totals = totals(series);
        let smooth = to_f64(self.smooth.as_ps()) / 1e6;
        let starts: Vec<f64> = network.flows().iter().map(|flow| us(flow.start)).collect();
        let mut first = 0;
        let mut out = Vec::with_capacity(series.at_us.len());
        for (last, at) in series.at_us.iter().enumerate() {
            while series.at_us[first] < at - smooth {
                first += 1;
            }
            let rates: Vec<f64> = totals
                .iter()
                .zip(&starts)
                .filter(|(_, start)| **start <= at - smooth)
                .map(|(total, _)| total[last] - total[first])
                .collect();
            out.push(jain(&rates));
        }
        out
    }

    pub(crate) fn report(&self, network: &Network, series: &Series) -> SharingReport {
        let steady = series.at_us.partition_point(|at| *at <= us(self.steady_from));
        let span_us = series.at_us.last().zip(series.at_us.get(steady.saturating_sub(1)));
        let span_us = span_us.map_or(0.0, |(to, from)| to - from);
        let carried: Vec<f64> = totals(series)
            .iter()
            .map(|total| {
                total.last().unwrap_or(&0.0) - total.get(steady.saturating_sub(1)).unwrap_or(&0.0)
            })
            .collect();
        let fair_from = fair_from(&self.jain_over_time(network, series), &series.at_us);
        let (queue_bytes_mean, queue_bytes_p99) = self.queue_lengths(series, steady);
        SharingReport {
            utilisation: carried.iter().sum::<f64>()
                / (self.capability_gbps(network) * span_us).max(1e-9),
            jain: jain(&carried).filter(|_| carried.len() > 1),
            jain_time_us: fair_from
                .filter(|_| carried.len() > 1)
                .map(|at| (at - us(self.from)).max(0.0)),
            queue_bytes_mean,
            queue_bytes_p99,
            inter_intra_ratio: self.ratio(&carried),
        }
    }

    /// Payload that the link carries in full packets, in Gbit/s.
    fn capability_gbps(&self, network: &Network) -> f64 {
        let ends = network.flows().first().map_or([0, 1], |flow| [flow.src, flow.dst]);
        let setup = network.setup();
        let payload = to_f64(setup.full_payload(ends));
        let overhead = to_f64(setup.data_overhead(ends));
        to_f64(self.rate.as_bps()) / 1e9 * payload / (payload + overhead)
    }

    /// Mean and 99th percentile of the samples from `steady` on.
    pub(crate) fn queue_lengths(&self, series: &Series, steady: usize) -> (f64, u64) {
        let queue = series.queues.iter().find(|q| q.name == self.queue);
        let mut bytes = queue.map_or_else(Vec::new, |q| q.bytes[steady..].to_vec());
        bytes.sort_unstable();
        let Some(last) = bytes.len().checked_sub(1) else { return (0.0, 0) };
        let mean = to_f64(bytes.iter().sum()) / to_f64(spanwire_base::u64_from(bytes.len()));
        (mean, bytes[(bytes.len() * 99).div_ceil(100).saturating_sub(1).min(last)])
    }

    fn ratio(&self, carried: &[f64]) -> Option<f64> {
        let mean = |is_far: bool| {
            let of = (0..).zip(carried).filter(|(i, _)| self.far.contains(i) == is_far);
            let (sum, n) = of.fold((0.0, 0.0), |(sum, n), (_, carried)| (sum + carried, n + 1.0));
            (n > 0.0).then(|| sum / n)
        };
        let (far, near) = (mean(true)?, mean(false)?);
        (near > 0.0).then(|| far / near)
    }
}

/// Payload of each flow that has arrived by each sample, in Gbit/s times us.
fn totals(series: &Series) -> Vec<Vec<f64>> {
    let total = |flow: &FlowSeries| {
        let (mut sum, mut before) = (0.0, 0.0);
        let so_far = |(at, gbps): (&f64, &f64)| {
            sum += gbps * (at - before);
            before = *at;
            sum
        };
        series.at_us.iter().zip(&flow.acked_gbps).map(so_far).collect()
    };
    series.flows.iter().map(total).collect()
}

/// Jain's index; `None` for fewer than two shares, or if all are zero.
///
/// # Source
/// Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
/// Allocation in Shared Computer Systems", DEC-TR-301, 1984.
#[must_use]
pub fn jain(shares: &[f64]) -> Option<f64> {
    let n = to_f64(spanwire_base::u64_from(shares.len()));
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (n > 1.5 && squares > 0.0).then(|| sum * sum / (n * squares))
}

/// The time in us from which the index is fair until the end.
fn fair_from(jain: &[Option<f64>], at_us: &[f64]) -> Option<f64> {
    let is_unfair = |j: &Option<f64>| j.is_none_or(|j| j < JAIN_FAIR);
    let first = jain.iter().rposition(is_unfair).map_or(0, |last| last + 1);
    at_us.get(first).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::QueueSeries;
    use crate::workload::Flow;
    use crate::{Setup, Topology};

    /// Two flows into one host, the second starting at 4 us; five samples, one every 2 us.
    fn network() -> Network {
        let topology = Topology::star(2, Rate::from_gbps(10), Dur::ZERO);
        let flows = [0, 4_000].map(Time::from_ns);
        let flows = (0..).zip(flows).map(|(src, at)| Flow::new(src, 2, at, 1 << 20)).collect();
        Network::new(topology, flows, Setup { elided: true, ..Setup::default() }).unwrap()
    }

    fn series(rates: [[f64; 5]; 2]) -> Series {
        let flow = |(flow, rates): (u32, [f64; 5])| FlowSeries {
            flow,
            goodput_gbps: vec![0.0; 5],
            acked_gbps: rates.to_vec(),
            in_flight_pkts: vec![1; 5],
            done_bytes: vec![0; 5],
        };
        Series {
            at_us: vec![2.0, 4.0, 6.0, 8.0, 10.0],
            flows: (0..).zip(rates).map(flow).collect(),
            queues: vec![QueueSeries {
                name: "hub:2".to_owned(),
                bytes: vec![900, 900, 900, 10, 30],
                marks: vec![0; 5],
                drops: vec![0; 5],
            }],
            ..Series::default()
        }
    }

    fn sharing(far: &[u32]) -> Sharing {
        Sharing {
            queue: "hub:2".to_owned(),
            rate: Rate::from_gbps(10),
            from: Time::from_ns(4_000),
            steady_from: Time::from_ns(6_000),
            smooth: Dur::from_us(2),
            far: far.to_vec(),
        }
    }

    #[test]
    fn report__measures_the_steady_part_alone() {
        let network = network();
        let series = series([[9.0, 9.0, 8.0, 6.0, 4.0], [0.0, 0.0, 0.0, 3.0, 3.0]]);
        let report = sharing(&[1]).report(&network, &series);
        // 4096 of 4096 + 58 + 24 bytes are payload.
        let full = 10.0 * 4_096.0 / 4_178.0;
        assert!((report.utilisation - 8.0 / full).abs() < 1e-12, "{report:?}");
        assert_eq!((report.queue_bytes_mean, report.queue_bytes_p99), (20.0, 30));
        assert!(report.inter_intra_ratio.is_some_and(|r| (r - 0.6).abs() < 1e-12), "{report:?}");
        let want = 64.0 / (2.0 * (25.0 + 9.0));
        assert!(report.jain.is_some_and(|j| (j - want).abs() < 1e-12), "{report:?}");
        assert_eq!(sharing(&[]).report(&network, &series).inter_intra_ratio, None);
    }

    #[test]
    fn report__converges_when_the_index_stays_fair() {
        let network = network();
        let fair_after = |second| {
            let series = series([[9.0, 9.0, 5.0, 5.0, 5.0], second]);
            sharing(&[]).report(&network, &series).jain_time_us
        };
        assert_eq!(fair_after([0.0, 0.0, 5.0, 5.0, 5.0]), Some(2.0));
        assert_eq!(fair_after([0.0, 0.0, 5.0, 1.0, 5.0]), Some(6.0));
        assert_eq!(fair_after([0.0, 0.0, 5.0, 5.0, 1.0]), None);
    }

    #[test]
    fn jain_over_time__counts_flows_that_have_begun() {
        let series = series([[9.0, 9.0, 8.0, 6.0, 4.0], [0.0, 0.0, 8.0, 3.0, 4.0]]);
        let over_time = sharing(&[]).jain_over_time(&network(), &series);
        assert_eq!(over_time[..2], [None, None]);
        assert_eq!([over_time[2], over_time[4]], [Some(1.0), Some(1.0)]);
        assert!(over_time[3].is_some_and(|j| (j - 0.9).abs() < 1e-12), "{over_time:?}");
    }

    #[test]
    fn jain__is_one_for_equals_and_one_of_n_for_a_hog() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[0.0, 8.0, 0.0, 0.0]), Some(0.25));
        assert_eq!([jain(&[5.0]), jain(&[]), jain(&[0.0, 0.0])], [None; 3]);
    }
}
