//! Statistics over seeds, and their digits.

use crate::record::to_f64;
use serde::Serialize;
use spanwire_base::u64_from;

/// A quantity over the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ours {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Number of seeds.
    pub n: u64,
    /// The 95 % interval of the median; `None` with fewer than six seeds.
    pub interval: Option<[f64; 2]>,
}

impl Ours {
    /// The interval, or without one the least and the most.
    #[must_use]
    pub fn band(&self) -> [f64; 2] {
        self.interval.unwrap_or([self.min, self.max])
    }

    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        let (n, interval) = (u64_from(values.len()), interval(values));
        Some(Self { median: median(values), min, max, n, interval })
    }
}

/// The 95 % interval of the median by order statistics, which assumes no distribution: of six
/// values the least and the most, of ten the second and the ninth. Each value is below the median
/// with probability 1/2, so the number below it is binomial.
pub(super) fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let n = values.len();
    // The probability that at most `left` values are below the median.
    let (mut below, mut one, mut left) = (0.0, 0.5_f64.powi(i32::try_from(n).ok()?), 0);
    for (i, rest) in (0..n).rev().enumerate() {
        below += one;
        if below > 0.025 {
            break;
        }
        left = i + 1;
        one *= to_f64(u64_from(rest + 1)) / to_f64(u64_from(i + 1));
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (left > 0).then(|| [sorted[left - 1], sorted[n - left]])
}

/// The middle of values, or the mean of both middle ones; not a number of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    if lower == upper { upper } else { (lower + upper) / 2.0 }
}

/// Three or four significant digits; `never` if infinite.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "never".to_owned(),
        _ if size >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ if size >= 100.0 => format!("{value:.1}"),
        _ if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
