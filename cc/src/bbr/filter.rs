//! A windowed maximum filter over rounds.

/// The largest value of the last ten rounds, from three candidates: the largest, the largest after
/// it, and the largest after that.
///
/// # Source
/// Kathleen Nichols' windowed filter, as Linux has it in `win_minmax`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxFilter {
    best: [Option<(u64, f64)>; 3],
}

impl MaxFilter {
    /// The largest; none before the first value.
    pub(super) fn max(&self) -> Option<f64> {
        self.best[0].map(|(_, value)| value)
    }

    /// Adds a value of round `round`, which never decreases.
    pub(super) fn update(&mut self, round: u64, value: f64) {
        let new = Some((round, value));
        let [first, second, third] = self.best;
        let beats = |old: Option<(u64, f64)>| old.is_none_or(|(_, v)| value >= v);
        if beats(first) || third.is_some_and(|(at, _)| round - at > ROUNDS) {
            self.best = [new; 3];
            return;
        }
        if beats(second) {
            self.best = [first, new, new];
        } else if beats(third) {
            self.best[2] = new;
        }
        self.expire(round, new);
    }

    fn expire(&mut self, round: u64, new: Option<(u64, f64)>) {
        let age = |of: Option<(u64, f64)>| of.map_or(0, |(at, _)| round - at);
        if age(self.best[0]) > ROUNDS {
            self.best = [self.best[1], self.best[2], new];
            if age(self.best[0]) > ROUNDS {
                self.best = [self.best[1], self.best[2], new];
            }
        } else if self.best[1] == self.best[0] && age(self.best[0]) > ROUNDS / 4 {
            // A quarter of the window passed without a second candidate: take the new value.
            self.best = [self.best[0], new, new];
        } else if self.best[2] == self.best[1] && age(self.best[0]) > ROUNDS / 2 {
            self.best[2] = new;
        }
    }
}

/// The length of the window in rounds.
const ROUNDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Lies between the true maximum of the window and that of a slightly longer one.
        #[test]
        fn max__is_near_the_largest_of_the_window(
            values in proptest::collection::vec(1..1000u32, 1..200),
        ) {
            let mut filter = MaxFilter::default();
            for (round, value) in (0u64..).zip(&values) {
                filter.update(round, f64::from(*value));
                let got = filter.max().unwrap();
                let last = spanwire_base::usize_from(round);
                let in_window = &values[last.saturating_sub(10)..=last];
                let most = f64::from(*in_window.iter().max().unwrap());
                prop_assert!(got <= most + 1e-9, "{got} of {in_window:?}");
                prop_assert!(got >= f64::from(*value));
            }
        }
    }

    #[test]
    fn max__expires_after_ten_rounds() {
        let mut filter = MaxFilter::default();
        filter.update(0, 100.0);
        for round in 1..=10 {
            filter.update(round, 10.0);
            assert_eq!(filter.max(), Some(100.0));
        }
        filter.update(11, 10.0);
        assert_eq!(filter.max(), Some(10.0));
    }
}
