//! Throughput by bins of time, utilisation of links, and the cost of agents that choose thresholds.

use super::{arrived, mean_gbps, place};
use crate::network::Network;
use crate::record::{Series, to_f64, us};
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Time, u64_from};

/// Throughput by bins of time.
///
/// # Source
/// LAECN V: figures 2, 3, 6 to 8.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bins {
    /// The length of a bin.
    pub width: Dur,
    /// Links whose utilisation is measured: their places in the topology, and whether in the
    /// direction from b to a.
    pub links: Vec<(usize, bool)>,
}

/// Throughput by bins of time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BinsReport {
    /// The mean completion time of all flows in us; `None` if none completed.
    pub afct_us: Option<f64>,
    /// The rate of all flows together in each whole bin before the last flow ends.
    pub throughput_gbps: Vec<f64>,
    /// The standard deviation of these rates over their mean; `None` without two bins.
    pub cv: Option<f64>,
    /// The least of these rates.
    pub worst_bin_gbps: Option<f64>,
    /// The bytes of the links with their overhead, over those that they could have carried until
    /// the last flow ended.
    pub link_utilisation: f64,
    /// Decisions of all switches about thresholds.
    pub decisions: u64,
    /// Those that triggered the policy network.
    pub activations: u64,
    /// Floating-point operations of all decision networks.
    pub flops_decision: u64,
    /// Floating-point operations of all policy networks.
    pub flops_policy: u64,
    /// Turns that ports skipped because an earlier decision was not finished.
    pub skipped: u64,
}

impl Bins {
    pub(super) fn report(&self, network: &Network, series: &Series) -> BinsReport {
        let progress = network.progress();
        let times = progress.iter().filter_map(|flow| Some((flow.started?, flow.finished?)));
        let times: Vec<(Time, Time)> = times.collect();
        let end = times.iter().map(|(_, end)| *end).max().unwrap_or(Time::ZERO);
        let sum: f64 = times.iter().map(|(from, to)| to_f64(to.since(*from).as_ps()) / 1e6).sum();
        let throughput_gbps = self.throughput(network, series, end);
        let agents: Vec<_> =
            network.switches().flat_map(|(_, switch)| switch.agents(network.world.now())).collect();
        let total = |name: &str| -> u64 {
            let all = agents.iter().flat_map(|agent| &agent.counters);
            all.filter(|(own, _)| *own == name).map(|(_, n)| *n).sum()
        };
        BinsReport {
            afct_us: (!times.is_empty()).then(|| sum / to_f64(u64_from(times.len()))),
            cv: variation(&throughput_gbps),
            worst_bin_gbps: throughput_gbps.iter().copied().min_by(f64::total_cmp),
            throughput_gbps,
            link_utilisation: self.utilisation(network, end),
            decisions: total("decisions"),
            activations: total("activations"),
            flops_decision: total("flops_decision"),
            flops_policy: total("flops_policy"),
            skipped: total("skipped"),
        }
    }

    fn throughput(&self, network: &Network, series: &Series, end: Time) -> Vec<f64> {
        let flows: Vec<u32> = (0..).zip(network.flows()).map(|(flow, _)| flow).collect();
        let sums = arrived(series, &flows);
        let width = self.width.as_ps().max(1);
        let bin = |n: u64| {
            let at = |n: u64| place(series, Time::from_ps(n * width));
            // The first sample is after the beginning: what it has belongs to the first bin.
            let before = if n == 0 { 0.0 } else { sums.get(at(n)).copied().unwrap_or(0.0) };
            match n {
                0 => sums.get(at(1)).map_or(0.0, |sum| (sum - before) / us(Time::from_ps(width))),
                _ => mean_gbps(series, &sums, [at(n), at(n + 1)]),
            }
        };
        (0..end.as_ps() / width).map(bin).collect()
    }

    fn utilisation(&self, network: &Network, end: Time) -> f64 {
        let (mut bits, mut most) = (0.0, 0.0);
        for (link, backwards) in &self.links {
            let id = network.directions(*link)[usize::from(*backwards)];
            let counters = network.world.link_counters(id);
            let overhead = counters.sent * u64::from(network.setup().overhead_bytes);
            bits += to_f64(counters.sent_bytes + overhead) * 8.0;
            let rate = network.topology().links[*link].rate_bps;
            most += to_f64(rate) * to_f64(end.as_ps()) / 1e12;
        }
        if most > 0.0 { bits / most } else { 0.0 }
    }
}

/// The standard deviation over the mean.
fn variation(values: &[f64]) -> Option<f64> {
    let n = to_f64(u64_from(values.len()));
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (values.len() > 1 && mean > 0.0).then(|| (squares / n).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation__of_two_bins_or_more() {
        assert_eq!(variation(&[2.0, 4.0]), Some(1.0 / 3.0));
        assert_eq!((variation(&[2.0]), variation(&[])), (None, None));
    }
}
