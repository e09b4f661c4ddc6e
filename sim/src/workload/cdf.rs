//! Flow size distributions.

use spanwire_base::Rng;
use std::fmt;

/// A distribution of sizes: points of its CDF with linear interpolation.
///
/// All values are integers, so a seed draws the same sizes on any machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cdf {
    /// (bytes, probability of at most as many in [`ONE`]), both never decreasing; the last is ONE.
    points: Vec<(u64, u64)>,
}

/// The reason why the text of a distribution is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CdfError {
    /// A line is not `size probability`.
    Line(usize),
    /// A size or probability is below that of the line before.
    Decreasing(usize),
    /// The last probability is not 1, or there is no line.
    NotOne,
}

impl Cdf {
    /// Reads lines of `size_bytes cumulative_probability`; `#` begins a comment.
    ///
    /// # Errors
    /// See [`CdfError`].
    pub fn parse(text: &str) -> Result<Self, CdfError> {
        let mut points: Vec<(u64, u64)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = line.split_whitespace().collect();
            let point = match fields[..] {
                [] => continue,
                [size, probability] => size.parse().ok().zip(fraction(probability)),
                _ => None,
            };
            let point = point.ok_or(CdfError::Line(number))?;
            if points.last().is_some_and(|last| last.0 > point.0 || last.1 > point.1) {
                return Err(CdfError::Decreasing(number));
            }
            points.push(point);
        }
        match points.last() {
            Some((_, ONE)) => Ok(Self { points }),
            _ => Err(CdfError::NotOne),
        }
    }

    /// A built-in distribution, by the name of its file without `.cdf`; sim/workloads/README.md has
    /// their sources.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(n, _)| *n == name)?;
        Some(Self::parse(text).expect("a test parses every file"))
    }

    /// The names that [`Cdf::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Draws a size, at least 1.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let u = rng.below(ONE);
        let i = self.points.partition_point(|(_, p)| *p < u);
        let (size, p) = self.points[i];
        let Some((size_before, p_before)) = i.checked_sub(1).map(|b| self.points[b]) else {
            // The probability of the first point is a step at its size.
            return size.max(1);
        };
        let part = u128::from(size - size_before) * u128::from(u - p_before);
        let more = part / u128::from(p - p_before);
        (size_before + u64::try_from(more).expect("at most the distance of two sizes")).max(1)
    }

    /// The mean size in thousandths of a byte.
    #[must_use]
    pub fn mean_millibytes(&self) -> u128 {
        let (size, p) = self.points[0];
        let first = u128::from(size) * u128::from(p);
        let between = self.points.windows(2).map(|w| {
            // Twice the midpoint of both sizes.
            u128::from(w[0].0 + w[1].0) * u128::from(w[1].1 - w[0].1)
        });
        (first * 2 + between.sum::<u128>()) * 1000 / (2 * u128::from(ONE))
    }
}

/// A decimal number from 0 to 1, with or without an exponent, in [`ONE`]; exact.
fn fraction(text: &str) -> Option<u64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let digits = format!("{whole}{decimals}");
    if digits.is_empty() || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let behind = i32::try_from(decimals.len()).ok()?.checked_sub(exponent)?;
    let scale = DECIMALS.checked_sub(behind)?;
    let number: u128 = digits.parse().ok()?;
    let ten_to = |n: i32| 10u128.checked_pow(n.unsigned_abs());
    let value = match scale {
        0.. => number.checked_mul(ten_to(scale)?)?,
        _ => number / ten_to(scale)?,
    };
    u64::try_from(value).ok().filter(|v| *v <= ONE)
}

impl fmt::Display for CdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(n) => write!(f, "line {n} is not `size_bytes probability`"),
            Self::Decreasing(n) => write!(f, "line {n} is below the line before it"),
            Self::NotOne => f.write_str("the last probability is not 1"),
        }
    }
}

impl std::error::Error for CdfError {}

/// Probability 1. The files have up to 13 decimals.
const ONE: u64 = 10u64.pow(15);
const DECIMALS: i32 = 15;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../workloads/", $name, ".cdf")))),*]
    };
}

const BUILT_IN: &[(&str, &str)] = built_in![
    "alibaba_solar",
    "alibaba_storage",
    "alibaba_wan",
    "alibaba_wan_full",
    "cache_follower",
    "cache_follower_homa",
    "data_mining",
    "data_mining_vl2",
    "fb_hadoop",
    "fb_hadoop_abm",
    "fb_hadoop_homa_w4",
    "google_rpc",
    "google_rpc_homa_w3",
    "google_searchrpc_homa_w2",
    "web_server",
    "web_server_homa",
    "websearch",
    "websearch_homa_w5",
    "websearch_pfabric",
    "websearch_powertcp",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__says_which_line_is_wrong() {
        assert_eq!(Cdf::parse("1 0\n2 x"), Err(CdfError::Line(2)));
        assert_eq!(Cdf::parse("1 0 0"), Err(CdfError::Line(1)));
        assert_eq!(Cdf::parse("1 1.1"), Err(CdfError::Line(1)));
        assert_eq!(Cdf::parse("5 0.5\n\n4 1"), Err(CdfError::Decreasing(3)));
        assert_eq!(Cdf::parse("5 0.5\n6 0.4"), Err(CdfError::Decreasing(2)));
        assert_eq!(Cdf::parse("5 0.5"), Err(CdfError::NotOne));
        assert_eq!(Cdf::parse("# nothing\n"), Err(CdfError::NotOne));
    }

    #[test]
    fn fraction__is_exact() {
        let of = |text| fraction(text).map(|v| v * 1000 / ONE);
        assert_eq!(
            [of("0"), of("1"), of("1.0"), of(".5")],
            [Some(0), Some(1000), Some(1000), Some(500)]
        );
        assert_eq!(fraction("0.1"), Some(ONE / 10));
        assert_eq!(fraction("1e-05"), Some(ONE / 100_000));
        assert_eq!(fraction("10e-1"), Some(ONE));
        for bad in ["", ".", "-0.1", "+1", "1e", "2", "0x1", "1e99999999999", "9e20"] {
            assert_eq!(fraction(bad), None, "{bad}");
        }
    }

    #[test]
    fn named__every_file_parses_and_has_the_mean_of_its_table() {
        let readme = include_str!("../../workloads/README.md");
        for name in Cdf::names() {
            let mean = Cdf::named(name).unwrap().mean_millibytes() / 1000;
            let row = readme.lines().find(|l| l.starts_with(&format!("| {name}.cdf |"))).unwrap();
            let stated: u128 =
                row.split('|').nth(3).unwrap().trim().replace(',', "").parse().unwrap();
            assert!(mean.abs_diff(stated) <= 1, "{name}: {mean}, the table says {stated}");
        }
        assert!(Cdf::named("nothing").is_none());
    }

    #[test]
    fn sample__has_the_mean_and_the_steps() {
        let cdf = Cdf::parse("100 0.25\n100 0.5\n300 1").unwrap();
        let mut rng = Rng::new(1);
        let draws: Vec<u64> = (0..100_000).map(|_| cdf.sample(&mut rng)).collect();
        let at_100 = draws.iter().filter(|s| **s == 100).count();
        assert!((49_000..52_000).contains(&at_100), "{at_100}: half of the mass, and one of 200");
        let mean: u64 = draws.iter().sum::<u64>() / 100_000;
        assert!((148..152).contains(&mean) && cdf.mean_millibytes() == 150_000, "{mean}");
        assert!(draws.iter().all(|s| (100..=300).contains(s)));
        assert_eq!(Cdf::parse("0 1").unwrap().sample(&mut rng), 1, "a size is never zero");
    }
}
