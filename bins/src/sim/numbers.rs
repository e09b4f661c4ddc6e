//! Numbers as text.

/// Formats a number with one decimal from 100 on, else with three.
pub(super) fn decimals(value: f64) -> String {
    let places = if value >= 100.0 { 1 } else { 3 };
    format!("{value:.places$}")
}

/// `n` per second.
#[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
pub(super) fn per_second(n: u64, seconds: f64) -> f64 {
    n as f64 / seconds.max(1e-9)
}

/// Formats a number in thousands or millions.
pub(super) fn rounded(value: f64) -> String {
    if value >= 1e6 { format!("{:.2} M", value / 1e6) } else { format!("{:.0} k", value / 1e3) }
}
