//! The queue and the rates during and after a burst.

use super::{CnpCount, arrived, mean_gbps, place, queue_bytes, smooth};
use crate::network::Network;
use crate::record::{Series, us};
use serde::{Deserialize, Serialize};
use spanwire_base::{Time, usize_from};

/// A burst into the queue of a long flow.
///
/// # Source
/// PACC II, figures 1 and 2.
#[derive(Clone, PartialEq, Debug)]
pub struct Burst {
    /// The queue, as in [`QueueReport::name`](crate::QueueReport::name).
    pub queue: String,
    /// When it begins.
    pub at: Time,
    /// The end of the time in which rates are measured and CNPs counted.
    pub until: Time,
    /// The long flow through the queue, by its place in the list of all.
    pub long: u32,
    /// The flows of the burst.
    pub short: Vec<u32>,
}

/// The queue and the rates during and after a burst.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BurstReport {
    /// The greatest length of the queue from the burst on, of all samples.
    pub peak_bytes: u64,
    /// From the start of the burst until the queue is below 200 KB after its peak, in us; `None` if
    /// it stays above.
    pub below_200kb_us: Option<f64>,
    /// From the last completion of the burst until the long flow has 95 % of its rate before, and
    /// keeps it for 100 us, in us: bytes that still wait in the queue arrive at the full rate, also
    /// of a flow that has almost stopped. `None` if it does not recover, or the burst did not
    /// complete.
    pub refill_us: Option<f64>,
    /// The rate of the long flow and of each flow of the burst, in Gbit/s: payload that arrived
    /// from the start of the burst until [`Burst::until`], or until the flow's completion.
    pub rates_gbps: Vec<f64>,
    /// CNPs that each of these flows received in that time.
    pub cnps: Vec<u64>,
}

impl Burst {
    pub(super) fn report(
        &self,
        network: &Network,
        series: &Series,
        cnps: Option<&CnpCount>,
    ) -> BurstReport {
        let progress = network.progress();
        let ends: Vec<Option<Time>> = progress.iter().map(|flow| flow.finished).collect();
        let flows: Vec<u32> = [self.long].iter().chain(&self.short).copied().collect();
        let counts = cnps.map_or_else(Vec::new, |cnps| cnps.by_flow(network));
        let of = |flow: &u32| counts.get(usize_from((*flow).into())).copied().unwrap_or(0);
        BurstReport { cnps: flows.iter().map(of).collect(), ..self.measure(series, &ends) }
    }

    /// The report without CNPs; `ends` are the completion times of all flows.
    fn measure(&self, series: &Series, ends: &[Option<Time>]) -> BurstReport {
        let end_of = |flow: &u32| ends.get(usize_from((*flow).into())).copied().flatten();
        let start = place(series, self.at);
        let queue = queue_bytes(series, &self.queue);
        let burst = queue.get(start..).unwrap_or_default();
        let peak_bytes = burst.iter().copied().max().unwrap_or(0);
        let peak = start + burst.iter().position(|b| *b == peak_bytes).unwrap_or(0);
        let low = queue.iter().enumerate().skip(peak).find(|(_, b)| **b < LOW_BYTES);
        let rate = |flow: &u32| {
            let to = end_of(flow).map_or(self.until, |end| end.min(self.until));
            mean_gbps(series, &arrived(series, &[*flow]), [start, place(series, to)])
        };
        let flows = [self.long].into_iter().chain(self.short.iter().copied());
        BurstReport {
            peak_bytes,
            below_200kb_us: low.map(|(i, _)| series.at_us[i] - us(self.at)),
            refill_us: self.refill_us(series, self.short.iter().map(end_of).collect()),
            rates_gbps: flows.map(|flow| rate(&flow)).collect(),
            cnps: Vec::new(),
        }
    }

    /// `ends` are the completion times of the burst's flows.
    fn refill_us(&self, series: &Series, ends: Option<Vec<Time>>) -> Option<f64> {
        let end = ends?.into_iter().max()?;
        let long = arrived(series, &[self.long]);
        let start = place(series, self.at);
        // The second half of the time before: the flow has converged.
        let before = mean_gbps(series, &long, [start / 2, start.saturating_sub(1)]);
        let rates = smooth(series, &long);
        let from = place(series, end);
        let mut full_from = None;
        for (rate, at) in rates.iter().zip(&series.at_us).skip(from) {
            if *rate < FULL * before {
                full_from = None;
            } else if at - *full_from.get_or_insert(*at) >= KEPT_US {
                break;
            }
        }
        full_from.map(|at| (at - us(end)).max(0.0))
    }
}

/// The link counts as full again from this part of the rate before on.
const FULL: f64 = 0.95;
/// And once it has it for so long: a queue of 300 KB at 25 Gbit/s.
const KEPT_US: f64 = 100.0;
/// PACC's reference is 125 KB at 25 Gbit/s.
const LOW_BYTES: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::super::testing::series;
    use super::*;
    use spanwire_base::Dur;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    /// A burst of one flow at 40 us, measured until 80.
    fn burst() -> Burst {
        let queue = "hub:0".to_owned();
        Burst { queue, at: at(40), until: at(80), long: 0, short: vec![1] }
    }

    #[test]
    fn measure__queue_and_rates_from_the_burst_on() {
        let long = [8.0, 8.0, 8.0, 8.0, 4.0, 2.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0];
        let short = [0.0, 0.0, 0.0, 0.0, 4.0, 6.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let queue = [900_000, 0, 0, 0, 500_000, 600_000, 300_000, 200_000, 199_999, 0, 0, 0];
        let series = series(&[&long, &short], &queue);
        let report = burst().measure(&series, &[None, Some(at(70))]);
        assert_eq!(report.peak_bytes, 600_000, "not the one before the burst");
        assert_eq!(report.below_200kb_us, Some(50.0));
        // From 40 to 80 us, and to its end at 70.
        assert_eq!(report.rates_gbps, [3.0, 16.0 / 3.0]);
        // Means over 20 us: 3 at 80 us, 6 at 90, 8 at 100.
        assert_eq!(report.refill_us, Some(30.0));
    }

    #[test]
    fn measure__a_queue_that_drains_is_no_recovery() {
        // After the burst the queue holds 20 us of the long flow, which then has to recover.
        let long = [8.0, 8.0, 8.0, 8.0, 4.0, 8.0, 8.0, 0.0, 4.0, 8.0, 8.0, 8.0];
        let series = series(&[&long, &[0.0; 12]], &[0; 12]);
        let report = burst().measure(&series, &[None, Some(at(50))]);
        // Means over 20 us: 6 at 100 us, 8 from 110 on.
        assert_eq!(report.refill_us, Some(60.0));
    }

    #[test]
    fn measure__what_does_not_happen_has_no_time() {
        let long = [8.0, 8.0, 8.0, 8.0, 4.0, 2.0];
        let series = series(&[&long, &[0.0; 6]], &[0, 0, 0, 0, 500_000, 600_000]);
        let report = burst().measure(&series, &[None, Some(at(60))]);
        assert_eq!((report.below_200kb_us, report.refill_us), (None, None));
        assert_eq!(burst().measure(&series, &[None, None]).refill_us, None, "it never ends");
    }
}
