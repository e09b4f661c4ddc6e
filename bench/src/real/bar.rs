//! A bar, the host's lateness that excuses a miss, and the verdict.

use super::host::Lateness;
use serde::Serialize;

/// Inclusive limits of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// The least that meets it.
    pub min: Option<f64>,
    /// The most that meets it.
    pub max: Option<f64>,
}

/// The lateness of the host that could explain a miss. Above either limit, a sample that misses its
/// bar proves nothing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Excuse {
    /// The latest wake-up, in milliseconds.
    pub late_ms: f64,
    /// The share of all cores that other processes used, 0..=1.
    pub stolen: f64,
}

/// One sample of a figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// The figure; none if the sample failed.
    pub value: Option<f64>,
    /// The host's lateness meanwhile.
    #[serde(flatten)]
    pub host: Lateness,
    /// Why it failed.
    pub failure: Option<String>,
    /// Data were wrong, which no lateness excuses.
    pub is_wrong: bool,
}

/// The result of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Most samples meet the bar.
    Met,
    /// They do not, and the host was not late.
    Missed,
    /// They do not, and the host was late.
    #[serde(rename = "host late")]
    HostLate,
    /// There is no bar.
    Reported,
    /// A program that it needs is not installed.
    Skipped,
    /// There was no time left.
    #[serde(rename = "not run")]
    NotRun,
}

impl Bar {
    /// No limit: the figure is reported.
    pub(super) const NONE: Self = Self { min: None, max: None };

    /// At least `min`.
    pub(super) const fn at_least(min: f64) -> Self {
        Self { min: Some(min), max: None }
    }

    /// At most `max`.
    pub(super) const fn at_most(max: f64) -> Self {
        Self { min: None, max: Some(max) }
    }

    /// From `min` to `max`.
    pub(super) const fn between(min: f64, max: f64) -> Self {
        Self { min: Some(min), max: Some(max) }
    }

    /// Within 5 % of `expected`.
    pub(super) const fn near(expected: f64) -> Self {
        Self::between(expected * 0.95, expected * 1.05)
    }

    /// True if `value` is within the limits. NaN is not.
    pub(super) fn is_met(self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    /// The bar as text: `>= 0.95`, `<= 60`, `88..97.2`.
    pub(super) fn text(self) -> String {
        match (self.min, self.max) {
            (Some(min), Some(max)) => format!("{}..{}", number(min), number(max)),
            (Some(min), None) => format!(">= {}", number(min)),
            (None, Some(max)) => format!("<= {}", number(max)),
            (None, None) => String::new(),
        }
    }
}

/// A number with four significant digits at most.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 1000.0 => 0,
        large if large >= 100.0 => 1,
        large if large >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

impl Excuse {
    /// True if the host was so late that a miss proves nothing.
    pub(super) fn covers(self, host: Lateness) -> bool {
        host.late_ms > self.late_ms || host.stolen > self.stolen
    }
}

impl Verdict {
    /// The verdict of `samples`, of which there is at least one. The bar is met if most of them
    /// meet it. If it is not, samples of a late host do not count.
    pub(super) fn of(samples: &[Sample], bar: Bar, excuse: Excuse) -> Self {
        if samples.iter().any(|sample| sample.is_wrong) {
            return Self::Missed;
        }
        if most(samples.iter(), bar) {
            return if bar == Bar::NONE { Self::Reported } else { Self::Met };
        }
        let mut punctual = samples.iter().filter(|sample| !excuse.covers(sample.host)).peekable();
        match punctual.peek().is_none() || most(punctual, bar) {
            true => Self::HostLate,
            false => Self::Missed,
        }
    }

    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::HostLate => "host late",
            Self::Reported => "",
            Self::Skipped => "skipped",
            Self::NotRun => "not run",
        }
    }
}

/// True if more than half of `samples` meet `bar`.
fn most<'a>(samples: impl Iterator<Item = &'a Sample>, bar: Bar) -> bool {
    let met: Vec<bool> = samples.map(|s| s.value.is_some_and(|value| bar.is_met(value))).collect();
    met.iter().filter(|met| **met).count() * 2 > met.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCUSE: Excuse = Excuse { late_ms: 20.0, stolen: 0.1 };

    fn sample(value: f64, late_ms: f64, stolen: f64) -> Sample {
        let host = Lateness { late_ms, late_p99_ms: 0.0, stolen };
        Sample { value: Some(value), host, failure: None, is_wrong: false }
    }

    fn verdict(samples: &[Sample]) -> Verdict {
        Verdict::of(samples, Bar::at_least(0.95), EXCUSE)
    }

    #[test]
    fn is_met__at_both_ends_and_not_by_nan() {
        let bar = Bar::between(12.0, 18.6);
        assert!(bar.is_met(12.0) && bar.is_met(18.6));
        assert!(!bar.is_met(11.9) && !bar.is_met(18.7) && !bar.is_met(f64::NAN));
        assert!(Bar::at_least(1.0).is_met(f64::INFINITY) && !Bar::at_least(1.0).is_met(0.9));
        assert!(Bar::at_most(1.0).is_met(-5.0) && !Bar::at_most(1.0).is_met(1.1));
        assert!(Bar::near(100.0).is_met(95.01) && !Bar::near(100.0).is_met(94.99));
    }

    #[test]
    fn text__of_each_kind() {
        let bars = [Bar::at_least(0.95), Bar::at_most(60.0), Bar::between(87.961, 97.22)];
        assert_eq!(bars.map(Bar::text), [">= 0.95", "<= 60", "87.96..97.22"]);
        assert_eq!(number(14_999.0), "14999");
        assert_eq!(number(0.0), "0");
    }

    #[test]
    fn verdict__a_bar_that_is_met_needs_no_excuse() {
        assert_eq!(verdict(&[sample(0.96, 500.0, 0.9)]), Verdict::Met);
        let reported = Verdict::of(&[sample(0.96, 500.0, 0.9)], Bar::NONE, EXCUSE);
        assert_eq!(reported, Verdict::Reported);
    }

    #[test]
    fn verdict__a_miss_is_excused_above_either_limit_only() {
        assert_eq!(verdict(&[sample(0.9, 20.0, 0.1)]), Verdict::Missed);
        assert_eq!(verdict(&[sample(0.9, 20.1, 0.0)]), Verdict::HostLate);
        assert_eq!(verdict(&[sample(0.9, 0.0, 0.11)]), Verdict::HostLate);
    }

    #[test]
    fn verdict__of_several_samples_is_that_of_most() {
        let [good, bad, late] =
            [(0.96, 0.0), (0.9, 0.0), (0.9, 99.0)].map(|(v, l)| sample(v, l, 0.0));
        let of = |samples: [&Sample; 3]| verdict(&samples.map(Clone::clone));
        assert_eq!(of([&good, &bad, &good]), Verdict::Met);
        assert_eq!(of([&good, &bad, &bad]), Verdict::Missed);
        // Without the late one, half of the rest miss.
        assert_eq!(of([&good, &bad, &late]), Verdict::Missed);
        assert_eq!(of([&good, &late, &late]), Verdict::HostLate);
        assert_eq!(of([&late, &late, &late]), Verdict::HostLate);
        assert_eq!(of([&bad, &late, &late]), Verdict::Missed);
    }

    #[test]
    fn verdict__a_failed_sample_misses_and_wrong_data_have_no_excuse() {
        let failed =
            Sample { value: None, failure: Some("no route".to_owned()), ..sample(0.0, 0.0, 0.0) };
        assert_eq!(verdict(std::slice::from_ref(&failed)), Verdict::Missed);
        let late = Sample { host: sample(0.0, 99.0, 0.0).host, ..failed };
        assert_eq!(verdict(std::slice::from_ref(&late)), Verdict::HostLate);
        let wrong = Sample { is_wrong: true, ..late };
        assert_eq!(
            verdict(&[sample(1.0, 0.0, 0.0), sample(1.0, 0.0, 0.0), wrong]),
            Verdict::Missed
        );
    }

    #[test]
    fn json__of_a_verdict_is_its_name() {
        let all = [Verdict::Met, Verdict::Missed, Verdict::HostLate, Verdict::Reported];
        let json = serde_json::to_value([&all[..], &[Verdict::Skipped, Verdict::NotRun]].concat());
        let names = ["met", "missed", "host late", "reported", "skipped", "not run"];
        assert_eq!(json.unwrap(), serde_json::json!(names));
    }
}
