//! Quantities of command lines: numbers, durations, percentages and sizes.
//!
//! The parsers are those of all commands, so that none accepts a quantity without a meaning: NaN,
//! an infinite number, or one beyond the range in which the command works.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A finite number within `range`.
///
/// # Errors
/// It is none; the message has the range.
pub fn number(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let (least, most) = (*range.start(), *range.end());
    let parsed = text.trim().parse().ok().filter(|n: &f64| n.is_finite() && range.contains(n));
    parsed.ok_or_else(|| match most {
        f64::MAX => format!("{text} is no number from {least} on"),
        _ => format!("{text} is no number from {least} to {most}"),
    })
}

/// A finite number, not negative: a limit.
///
/// # Errors
/// It is none.
pub fn limit(text: &str) -> Result<f64, String> {
    number(text, 0.0..=f64::MAX)
}

/// A percentage, 0 to 100.
///
/// # Errors
/// It is none.
pub fn percent(text: &str) -> Result<f64, String> {
    number(text, 0.0..=100.0).map_err(|_| format!("{text} is no percentage, 0 to 100"))
}

/// A percentage, in millionths.
///
/// # Errors
/// It is none, or not 0 but below 0.0001, which is a millionth.
pub fn ppm(text: &str) -> Result<u32, String> {
    let percent = percent(text)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a million, checked above"
    )]
    let ppm = (percent * 10_000.0).round() as u32;
    match ppm {
        0 if percent > 0.0 => Err(format!("{text} is less than the least percentage, 0.0001")),
        ppm => Ok(ppm),
    }
}

/// `ppm` millionths as a percentage that [`ppm`] parses to the same number.
#[must_use]
pub fn ppm_text(ppm: u32) -> String {
    (f64::from(ppm) / 10_000.0).to_string()
}

/// A number of seconds within `range`.
///
/// # Errors
/// It is none; the message has the range.
pub fn seconds(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let (least, most) = (*range.start(), *range.end());
    number(text, range).map_err(|_| format!("{text} is no time from {least} to {most} seconds"))
}

/// A duration within `range`, in seconds.
///
/// # Errors
/// It is none; the message has the range.
pub fn duration(text: &str, range: RangeInclusive<f64>) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds(text, range)?).map_err(|e| e.to_string())
}

/// The duration of a measurement in seconds: a millisecond to a day.
///
/// # Errors
/// It is none.
pub fn run_seconds(text: &str) -> Result<f64, String> {
    seconds(text, 0.001..=DAY)
}

/// The interval of a report in seconds: 10 ms to a day.
///
/// # Errors
/// It is none.
pub fn interval(text: &str) -> Result<f64, String> {
    seconds(text, 0.01..=DAY)
}

/// An [`interval`], or 0 for no report.
///
/// # Errors
/// It is neither.
pub fn interval_or_none(text: &str) -> Result<f64, String> {
    match number(text, 0.0..=0.0) {
        Ok(none) => Ok(none),
        Err(_) => interval(text).map_err(|why| format!("{why}, nor 0 for none")),
    }
}

/// A size such as `64K`, in bytes; the units are binary.
///
/// # Errors
/// It is none, 0 or above 2^64.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_owned(), 1 << 10),
        t if t.ends_with('m') => (t[..t.len() - 1].to_owned(), 1 << 20),
        t if t.ends_with('g') => (t[..t.len() - 1].to_owned(), 1 << 30),
        t => (t, 1),
    };
    let n: u64 = digits.parse().map_err(|_| format!("{text} is no size (try 64, 64K or 1M)"))?;
    match n.checked_mul(unit) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("{text} is out of range")),
    }
}

const DAY: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that are no quantity of any kind.
    const NONE: [&str; 12] =
        ["nan", "NaN", "-nan", "inf", "-inf", "infinity", "1e999", "-1", "-1e-9", "", "x", "1,5"];

    #[test]
    fn parsers__refuse_what_is_no_quantity() {
        for text in NONE {
            assert!(limit(text).is_err(), "{text}");
            assert!(percent(text).is_err() && ppm(text).is_err(), "{text}");
            assert!(run_seconds(text).is_err() && interval(text).is_err(), "{text}");
            assert!(interval_or_none(text).is_err() && size(text).is_err(), "{text}");
            assert!(duration(text, 0.0..=1.0).is_err(), "{text}");
        }
    }

    #[test]
    fn number__has_bounds_and_names_them() {
        assert_eq!((number("0.5", 0.5..=2.0), number(" 2 ", 0.5..=2.0)), (Ok(0.5), Ok(2.0)));
        assert_eq!(number("3", 0.5..=2.0), Err("3 is no number from 0.5 to 2".to_owned()));
        assert_eq!(limit("-3"), Err("-3 is no number from 0 on".to_owned()));
        assert_eq!((limit("0"), limit("1e300")), (Ok(0.0), Ok(1e300)));
    }

    #[test]
    fn ppm__is_percent_times_ten_thousand() {
        assert_eq!((ppm("0"), ppm("1.5"), ppm("0.0001")), (Ok(0), Ok(15_000), Ok(1)));
        assert_eq!((ppm("100"), percent("99.5")), (Ok(1_000_000), Ok(99.5)));
        for bad in ["100.1", "101", "0.00001", "1e-9"] {
            assert!(ppm(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ppm_text__is_the_inverse_of_ppm() {
        for millionths in (0..=1_000_000).step_by(7).chain([1, 15_000, 1_000_000]) {
            assert_eq!(ppm(&ppm_text(millionths)), Ok(millionths));
        }
        assert_eq!((ppm_text(1), ppm_text(15_000)), ("0.0001".to_owned(), "1.5".to_owned()));
    }

    #[test]
    fn seconds__below_and_beyond_the_range_are_refused() {
        assert_eq!((run_seconds("0.001"), run_seconds("86400")), (Ok(0.001), Ok(86_400.0)));
        assert_eq!((interval("0.01"), interval_or_none("0")), (Ok(0.01), Ok(0.0)));
        assert_eq!(interval_or_none("0.5"), Ok(0.5));
        assert_eq!(duration("0.1", 0.1..=1.0), Ok(Duration::from_millis(100)));
        for bad in ["0", "0.0009", "86401"] {
            assert!(run_seconds(bad).is_err(), "{bad}");
        }
        for bad in ["1e-9", "0.009", "86401"] {
            assert!(interval(bad).is_err() && interval_or_none(bad).is_err(), "{bad}");
        }
        assert!(interval("0").unwrap_err().contains("0.01 to 86400 seconds"));
    }

    #[test]
    fn size__takes_binary_units_and_refuses_nonsense() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("1g"), Ok(1 << 30));
        for bad in ["K", "0", "1T", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
