//! Medians, spreads and ratios of a few samples. Means are not used: one slow sample of a shared
//! machine would move them.

use serde::Serialize;

/// The median and the range of several samples.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The number of samples.
    pub n: usize,
}

/// The ratio of two series.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// Median of the first over median of the second.
    pub of_medians: f64,
    /// The ratio in each round that has both, in which slow drift cancels out. `None` if no round
    /// has both.
    pub paired: Option<Spread>,
}

impl Spread {
    /// The spread of `samples`, in any order; `None` if there are none. NaN counts as largest.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let median = if n % 2 == 1 {
            sorted[n / 2]
        } else {
            f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])
        };
        Some(Self { median, min, max, n })
    }

    /// The spread of those of `samples` that are present.
    #[must_use]
    pub fn of_present(samples: &[Option<f64>]) -> Option<Self> {
        Self::of(&samples.iter().flatten().copied().collect::<Vec<f64>>())
    }

    /// The same in another unit.
    #[must_use]
    pub fn over(self, unit: f64) -> Self {
        let Self { median, min, max, n } = self;
        Self { median: median / unit, min: min / unit, max: max / unit, n }
    }
}

/// Median and range as text, or a dash.
#[must_use]
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |Spread { median, min, max, .. }| {
        format!("{median:.digits$} [{min:.digits$}..{max:.digits$}]")
    })
}

impl Ratio {
    /// `ours` over `theirs`, given by round; a round without a sample is `None`. Returns `None` if
    /// either series is empty or a median of `theirs` is zero.
    #[must_use]
    pub fn of(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Self> {
        let ours_spread = Spread::of_present(ours)?;
        let theirs_spread = Spread::of_present(theirs)?;
        if theirs_spread.median == 0.0 {
            return None;
        }
        let both = ours.iter().zip(theirs).filter_map(|(a, b)| a.zip(*b));
        let paired: Vec<f64> = both.filter(|(_, b)| *b != 0.0).map(|(a, b)| a / b).collect();
        Some(Self {
            of_medians: ours_spread.median / theirs_spread.median,
            paired: Spread::of(&paired),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of__odd_even_and_none() {
        let odd = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Spread { median: 2.0, min: 1.0, max: 3.0, n: 3 });
        let even = Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert!((even.median - 2.5).abs() < 1e-12);
        assert_eq!((even.min, even.max, even.n), (1.0, 4.0, 4));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn spread_of__one_outlier_does_not_move_the_median() {
        let calm = Spread::of(&[10.0, 11.0, 12.0]).unwrap();
        let spoilt = Spread::of(&[10.0, 11.0, 9000.0]).unwrap();
        assert!((calm.median - spoilt.median).abs() < 1e-12);
    }

    #[test]
    fn ratio_of__pairs_only_rounds_that_have_both() {
        let ours = [Some(6.0), None, Some(7.0), Some(8.0)];
        let theirs = [Some(10.0), Some(10.0), None, Some(16.0)];
        let ratio = Ratio::of(&ours, &theirs).unwrap();
        assert!((ratio.of_medians - 0.7).abs() < 1e-12);
        let paired = ratio.paired.unwrap();
        assert_eq!(paired.n, 2);
        assert!((paired.min - 0.5).abs() < 1e-12);
        assert!((paired.max - 0.6).abs() < 1e-12);
    }

    #[test]
    fn ratio_of__nothing_to_compare_is_none() {
        assert_eq!(Ratio::of(&[None], &[Some(1.0)]), None);
        assert_eq!(Ratio::of(&[Some(1.0)], &[]), None);
        assert_eq!(Ratio::of(&[Some(1.0)], &[Some(0.0)]), None);
        let apart = Ratio::of(&[Some(1.0), None], &[None, Some(2.0)]).unwrap();
        assert!((apart.of_medians - 0.5).abs() < 1e-12);
        assert_eq!(apart.paired, None);
    }
}
