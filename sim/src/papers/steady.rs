//! The length of a queue in the steady state.

use super::{place, queue_bytes};
use crate::record::Series;
use serde::{Deserialize, Serialize};
use spanwire_base::{Time, u64_from};

/// A queue in the steady state.
#[derive(Clone, PartialEq, Debug)]
pub struct Steady {
    /// The queue, as in [`QueueReport::name`](crate::QueueReport::name).
    pub queue: String,
    /// The start of the steady state.
    pub from: Time,
    /// Its end.
    pub until: Time,
}

/// The length of a queue in the steady state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SteadyReport {
    /// The mean, rounded down.
    pub queue_bytes_mean: u64,
    /// The least of all samples.
    pub queue_bytes_least: u64,
    /// The most of all samples.
    pub queue_bytes_most: u64,
}

impl Steady {
    pub(super) fn report(&self, series: &Series) -> SteadyReport {
        let queue = queue_bytes(series, &self.queue);
        let span = place(series, self.from)..place(series, self.until);
        let bytes = queue.get(span).unwrap_or_default();
        SteadyReport {
            queue_bytes_mean: bytes.iter().sum::<u64>() / u64_from(bytes.len()).max(1),
            queue_bytes_least: bytes.iter().copied().min().unwrap_or(0),
            queue_bytes_most: bytes.iter().copied().max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::series;
    use super::*;
    use spanwire_base::Dur;

    #[test]
    fn report__is_of_the_steady_state_alone() {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let queue = "hub:0".to_owned();
        let steady = Steady { queue, from: at(20), until: at(50) };
        let report = steady.report(&series(&[], &[9, 1, 4, 4, 0, 9]));
        let found = (report.queue_bytes_mean, report.queue_bytes_least, report.queue_bytes_most);
        assert_eq!(found, (3, 1, 4));
    }
}
