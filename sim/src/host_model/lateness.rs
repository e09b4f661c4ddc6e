//! A distribution of times, by its quantiles.

use spanwire_base::{Dur, Rng};

/// A distribution of times, linear between its quantiles.
///
/// Draws are integers, so that they are the same on any machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lateness(Vec<(u32, Dur)>);

impl Lateness {
    /// Parts in a million of the quantiles in presets.
    pub const PARTS: [u32; 9] =
        [0, 500_000, 750_000, 900_000, 950_000, 990_000, 995_000, 999_000, MILLION];

    /// No lateness.
    #[must_use]
    pub fn none() -> Self {
        Self(vec![(0, Dur::ZERO), (MILLION, Dur::ZERO)])
    }

    /// The distribution with these quantiles: parts in a million of all draws that are at most as
    /// long.
    ///
    /// # Panics
    /// If the first part is not zero, the last not a million, or one of both columns decreases.
    #[must_use]
    pub fn new(quantiles: &[(u32, Dur)]) -> Self {
        let ends = (quantiles.first().map(|q| q.0), quantiles.last().map(|q| q.0));
        assert_eq!(ends, (Some(0), Some(MILLION)), "quantiles from 0 to a million");
        let ascends = |pair: &[(u32, Dur)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(quantiles.windows(2).all(ascends), "quantiles ascend");
        Self(quantiles.to_vec())
    }

    /// The distribution with these times in microseconds at [`Lateness::PARTS`]: minimum, median,
    /// percentiles 75, 90, 95, 99, 99.5 and 99.9, and maximum.
    ///
    /// # Panics
    /// If they decrease.
    #[must_use]
    pub fn measured(us: &[u64; Self::PARTS.len()]) -> Self {
        let all: Vec<_> = Self::PARTS.into_iter().zip(us.map(Dur::from_us)).collect();
        Self::new(&all)
    }

    /// The quantiles: parts in a million, and the time.
    #[must_use]
    pub fn quantiles(&self) -> &[(u32, Dur)] {
        &self.0
    }

    /// The maximum.
    #[must_use]
    pub fn max(&self) -> Dur {
        self.0.last().map_or(Dur::ZERO, |(_, max)| *max)
    }

    /// A time of the distribution.
    pub fn draw(&self, rng: &mut Rng) -> Dur {
        let part = u32::try_from(rng.below(MILLION.into())).unwrap_or(0);
        let above = self.0.partition_point(|(p, _)| *p <= part);
        let [(p, low), (q, high)] = [self.0[above - 1], self.0[above]];
        let span = high.as_ps() - low.as_ps();
        let into = u128::from(span) * u128::from(part - p) / u128::from(q - p);
        low + Dur::from_ps(u64::try_from(into).unwrap_or(span))
    }
}

const MILLION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draw__has_its_quantiles() {
        let us = Dur::from_us;
        let late = Lateness::new(&[
            (0, us(5)),
            (500_000, us(10)),
            (990_000, us(100)),
            (MILLION, us(9_000)),
        ]);
        let mut rng = Rng::new(3);
        let mut draws: Vec<Dur> = (0..100_000).map(|_| late.draw(&mut rng)).collect();
        draws.sort_unstable();
        assert!(draws[0] >= us(5) && draws[99_999] < us(9_000) && draws[99_999] > us(8_000));
        assert!((9_900..10_100).contains(&draws[50_000].as_ns()), "{:?}", draws[50_000]);
        assert!((97_000..140_000).contains(&draws[99_000].as_ns()), "{:?}", draws[99_000]);
        assert_eq!(Lateness::none().draw(&mut rng), Dur::ZERO);
    }

    #[test]
    #[should_panic(expected = "ascend")]
    fn new__rejects_quantiles_that_decrease() {
        let us = Dur::from_us;
        let _ = Lateness::new(&[(0, us(5)), (500, us(4)), (MILLION, us(6))]);
    }
}
