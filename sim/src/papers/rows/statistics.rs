//! Statistics over seeds, and their digits.

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
}

impl Ours {
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: median(values), min, max, n: u64_from(values.len()) })
    }
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
