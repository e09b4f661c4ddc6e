//! Axes: quantity, range and ticks.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// The specification of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct AxisSpec {
    /// Its name, without the unit.
    pub label: String,
    /// The quantity of its values.
    pub quantity: Quantity,
    /// The scale.
    pub scale: Scale,
}

/// The physical quantity of a value, which defines its base unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// Seconds, shown as s, ms, µs or ns.
    Seconds,
    /// Bits per second, shown with k, M, G or T.
    BitsPerSecond,
    /// Bytes, shown with k, M or G (powers of ten, as rates are).
    Bytes,
    /// A number without a unit.
    Number,
    /// A fraction, shown as 0 to 1.
    Share,
}

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
}

/// An axis with its range and ticks, for [`plotters`].
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    label: String,
    scale: Scale,
    low: f64,
    high: f64,
    /// The shown unit in base units.
    unit: f64,
    ticks: Vec<f64>,
}

impl AxisSpec {
    /// A linear axis.
    #[must_use]
    pub fn linear(label: &str, quantity: Quantity) -> Self {
        Self { label: label.to_owned(), quantity, scale: Scale::Linear }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: &str, quantity: Quantity) -> Self {
        Self { label: label.to_owned(), quantity, scale: Scale::Log }
    }

    /// True for a value that can be drawn on such an axis.
    pub(crate) fn includes(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }
}

impl Axis {
    /// An axis over all `values` that ends at a round number; a linear one begins at zero.
    pub(crate) fn over(spec: &AxisSpec, values: impl IntoIterator<Item = f64>) -> Self {
        Self::tight(spec, values).rounded()
    }

    /// As [`Axis::over`], but if the values are close together, a linear axis does not begin at
    /// zero, so that their differences are visible.
    pub(crate) fn around(spec: &AxisSpec, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = extremes(spec, values);
        let is_close = spec.scale == Scale::Linear && low > high / 2.0 && low < high;
        let low = if is_close || spec.scale == Scale::Log { low } else { 0.0 };
        Self::between(spec, low, high).rounded()
    }

    /// An axis that ends at the largest of `values`, for time; a linear one begins at zero.
    pub(crate) fn tight(spec: &AxisSpec, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = extremes(spec, values);
        Self::between(spec, if spec.scale == Scale::Linear { 0.0 } else { low }, high)
    }

    fn between(spec: &AxisSpec, low: f64, high: f64) -> Self {
        let (unit, symbol) = unit_of(spec.quantity, high);
        let label = match symbol {
            "" => spec.label.clone(),
            symbol => format!("{} [{symbol}]", spec.label),
        };
        let axis = Self { label, scale: spec.scale, low, high, unit, ticks: Vec::new() };
        axis.with_ticks()
    }

    /// The same axis with its ends extended to round numbers.
    fn rounded(mut self) -> Self {
        match self.scale {
            Scale::Linear => {
                let step = step((self.high - self.low) / self.unit, TICKS_MAX) * self.unit;
                // Tolerance for rounding errors: a value next to a tick counts as on it.
                let first = (self.low / step + 1e-9).floor();
                let last = (self.high / step - 1e-9).ceil().max(first + 1.0);
                (self.low, self.high) = (first * step, last * step);
            }
            Scale::Log => {
                let (low, high) = (round_down(self.low), round_up(self.high));
                (self.low, self.high) = (low, if high > low { high } else { low * 10.0 });
            }
        }
        self.with_ticks()
    }

    fn with_ticks(mut self) -> Self {
        self.ticks = match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
        };
        self
    }

    /// An axis for `n` groups side by side, at 0.5, 1.5, ...
    pub(crate) fn places(n: usize) -> Self {
        let high = n.max(1) as f64;
        let (label, scale) = (String::new(), Scale::Linear);
        Self { label, scale, low: 0.0, high, unit: 1.0, ticks: Vec::new() }
    }

    /// Its name and unit.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Its lower end.
    pub(crate) fn low(&self) -> f64 {
        self.low
    }

    /// Positions of its ticks, ascending, with their labels.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let step = match self.ticks[..] {
            [a, b, ..] if self.scale == Scale::Linear => (b - a) / self.unit,
            _ => f64::INFINITY,
        };
        self.ticks.iter().map(move |at| (*at, number(at / self.unit, step)))
    }

    /// Distance in pixels from the start of an axis that is `length` pixels long.
    fn along(&self, value: f64, length: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low) * length,
            Scale::Log => (value / self.low).log10() / (self.high / self.low).log10() * length,
        }
    }

    /// Ticks at steps of 1, 2 or 5 times a power of ten in the shown unit.
    fn linear_ticks(&self) -> Vec<f64> {
        let step = step((self.high - self.low) / self.unit, TICKS_MAX) * self.unit;
        let first = (self.low / step - 1e-9).ceil();
        (0..=TICKS_MAX)
            .map(|i| (first + f64::from(i)) * step)
            .filter(|t| *t <= self.high + step * 1e-6)
            .collect()
    }

    /// Ticks at the decades, and in a short range also at 2 and 5 times a decade.
    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let within: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let last = exponent(self.high).min(exponent(self.low) + DECADES_MAX);
        (exponent(self.low)..=last)
            .flat_map(|e| within.iter().map(move |f| f * 10f64.powi(e)))
            .filter(|t| *t >= self.low * 0.999_999 && *t <= self.high * 1.000_001)
            .collect()
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "a place near a figure, by the clamp")]
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let length = f64::from(limit.1 - limit.0);
        let along = self.along(*value, length).clamp(-2.0 * length.abs(), 2.0 * length.abs());
        limit.0 + along.round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        number(value / self.unit, f64::INFINITY)
    }
}

/// The smallest and the largest value that can be drawn on such an axis; without any, a default
/// range.
fn extremes(spec: &AxisSpec, values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for value in values.into_iter().filter(|v| spec.includes(*v)) {
        low = low.min(value);
        high = high.max(value);
    }
    if high > 0.0 { (low, high) } else { (0.1, 1.0) }
}

/// The unit in which `high` has one to three digits before the point, and its symbol.
fn unit_of(quantity: Quantity, high: f64) -> (f64, &'static str) {
    let units: &[(f64, &str)] = match quantity {
        Quantity::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        Quantity::BitsPerSecond => {
            &[(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")]
        }
        Quantity::Bytes => &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        Quantity::Number | Quantity::Share => &[(1.0, "")],
    };
    let smallest = units[units.len() - 1];
    units.iter().copied().find(|(unit, _)| high >= *unit).unwrap_or(smallest)
}

/// The smallest of 1, 2 and 5 times a power of ten that needs at most `ticks_max` steps to `high`.
fn step(high: f64, ticks_max: u32) -> f64 {
    let least = high / f64::from(ticks_max);
    let power = 10f64.powi(exponent(least));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= least * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// The largest power of ten that is not above `value`, which is positive.
#[expect(clippy::cast_possible_truncation, reason = "the exponent of an f64 is below 400")]
fn exponent(value: f64) -> i32 {
    let guess = value.log10().floor() as i32;
    // The logarithm of an exact power may be slightly below a whole number.
    if 10f64.powi(guess + 1) <= value * (1.0 + 1e-12) { guess + 1 } else { guess }
}

/// The largest of 1, 2 and 5 times a power of ten that is not above `value`, which is positive.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powi(exponent(value));
    let factor = [5.0, 2.0].into_iter().find(|f| f * power <= value * (1.0 + 1e-9));
    factor.unwrap_or(1.0) * power
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `value`, which is positive.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powi(exponent(value));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Formats `value` with the number of decimals that steps of `step` need.
fn number(value: f64, step: f64) -> String {
    let least = step.min(value.abs());
    let decimals =
        if least > 0.0 && least < 1.0 { exponent(least).unsigned_abs() as usize } else { 0 };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Limit of steps of a linear axis.
const TICKS_MAX: u32 = 8;
/// Limit of labelled decades of a logarithmic axis, more than any simulation spans.
const DECADES_MAX: i32 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().map(|(_, text)| text).collect()
    }

    #[test]
    fn over__ends_with_a_tick_and_holds_all() {
        let axis = Axis::over(&AxisSpec::linear("rate", Quantity::BitsPerSecond), [3e9, 93e9, 1e9]);
        assert_eq!(axis.label(), "rate [Gbit/s]");
        assert_eq!(labels(&axis), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(axis.range(), 0.0..100e9);
    }

    #[test]
    fn over__does_not_add_a_step_for_a_value_on_a_tick() {
        for high in [1.0, 0.3, 7e-6, 100e9] {
            let axis = Axis::over(&AxisSpec::linear("x", Quantity::Number), [high]);
            assert!((axis.high / high - 1.0).abs() < 1e-6, "{high} became {}", axis.high);
        }
    }

    #[test]
    fn over__log_begins_and_ends_with_a_round_number() {
        let axis = Axis::over(&AxisSpec::log("fct", Quantity::Seconds), [3e-6, 40e-3, 0.0, -1.0]);
        assert_eq!(axis.label(), "fct [ms]");
        assert_eq!(axis.range(), 2e-6..50e-3);
        assert_eq!(labels(&axis), ["0.01", "0.1", "1", "10"]);
    }

    #[test]
    fn over__log_of_one_value_still_has_a_length() {
        let axis = Axis::over(&AxisSpec::log("fct", Quantity::Seconds), [1e-3]);
        assert_eq!(labels(&axis), ["1", "2", "5", "10"]);
    }

    #[test]
    fn over__nothing_is_a_unit_axis() {
        let axis = Axis::over(&AxisSpec::linear("x", Quantity::Number), [f64::NAN, f64::INFINITY]);
        assert_eq!(axis.range(), 0.0..1.0);
        assert_eq!(labels(&axis).last().map(String::as_str), Some("1"));
    }

    #[test]
    fn around__begins_near_values_that_are_close_together() {
        let fct = AxisSpec::linear("fct", Quantity::Seconds);
        let axis = Axis::around(&fct, [1.323e-3, 1.3715e-3]);
        assert_eq!(labels(&axis), ["1.32", "1.33", "1.34", "1.35", "1.36", "1.37", "1.38"]);
        assert_eq!(axis.map(&1.35e-3, (0, 100)), 50);
        assert_eq!(Axis::around(&fct, [1e-3, 9e-3]), Axis::over(&fct, [1e-3, 9e-3]));
        assert_eq!(Axis::around(&fct, [1e-3; 2]), Axis::over(&fct, [1e-3; 2]));
        let log = AxisSpec::log("fct", Quantity::Seconds);
        assert_eq!(Axis::around(&log, [1e-3, 9e-3]), Axis::over(&log, [1e-3, 9e-3]));
    }

    #[test]
    fn tight__ends_with_the_data() {
        let axis = Axis::tight(&AxisSpec::linear("time", Quantity::Seconds), [1.33e-3]);
        assert_eq!(axis.label(), "time [ms]");
        assert_eq!(axis.range(), 0.0..1.33e-3);
        assert_eq!(labels(&axis), ["0", "0.2", "0.4", "0.6", "0.8", "1", "1.2"]);
    }

    #[test]
    fn map__runs_both_ways() {
        let axis = Axis::over(&AxisSpec::linear("x", Quantity::Number), [10.0]);
        assert_eq!(axis.map(&5.0, (0, 100)), 50);
        assert_eq!(axis.map(&0.0, (100, 0)), 100);
        let axis = Axis::over(&AxisSpec::log("x", Quantity::Number), [1.0, 100.0]);
        assert_eq!(axis.map(&10.0, (100, 0)), 50);
        assert_eq!(axis.map(&0.0, (0, 100)), -200, "far off, but a place");
        assert_eq!(axis.map(&f64::INFINITY, (0, 100)), 200);
    }

    #[test]
    fn unit_of__selects_the_prefix() {
        for (value, symbol) in [(2.0, "s"), (0.5, "ms"), (1e-3, "ms"), (1e-12, "ns")] {
            assert_eq!(unit_of(Quantity::Seconds, value).1, symbol);
        }
        assert_eq!(unit_of(Quantity::Bytes, 4096.0), (1e3, "kB"));
    }

    #[test]
    fn number__has_the_decimals_that_steps_need() {
        assert_eq!(number(0.30000000000000004, 0.1), "0.3");
        assert_eq!(number(0.0, 0.25), "0");
        assert_eq!(number(1.0, 0.05), "1");
        assert_eq!(number(20.0, 20.0), "20");
        assert_eq!(number(0.001, f64::INFINITY), "0.001");
    }

    #[test]
    fn exponent__is_exact_at_powers() {
        for e in -12..15 {
            assert_eq!(exponent(10f64.powi(e)), e);
        }
    }
}
