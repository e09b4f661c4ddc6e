//! Statistics of a set of values.

use serde::Serialize;
use spanwire_base::u64_from;

/// Statistics of a set of values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) n: u64,
    pub(super) mean: f64,
    /// Standard deviation of the population, not of a sample.
    pub(super) deviation: f64,
    pub(super) min: f64,
    pub(super) median: f64,
    /// The smallest value that 99 % do not exceed.
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Summary {
    /// The statistics of `values`; `None` if empty.
    #[expect(clippy::cast_precision_loss, reason = "counts of values that are in memory")]
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let variance = sorted.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        // Percentile: the value that so many hundredths do not exceed.
        let at = |hundredths: usize| sorted[(n * hundredths).div_ceil(100).max(1) - 1];
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let deviation = variance.sqrt();
        Some(Self { n: u64_from(n), mean, deviation, min, median, p99: at(99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__a_hundred_values() {
        let s = Summary::of((1..=100).rev().map(f64::from)).expect("there are some");
        assert_eq!((s.n, s.mean, s.min, s.median), (100, 50.5, 1.0, 50.5));
        assert_eq!((s.p99, s.max), (99.0, 100.0));
        assert!((s.deviation - 28.866).abs() < 0.001);
        let one = Summary::of([5.0].into_iter()).expect("there is one");
        assert_eq!((one.p99, one.median, one.deviation), (5.0, 5.0, 0.0));
        assert_eq!(Summary::of(std::iter::empty()), None);
    }
}
