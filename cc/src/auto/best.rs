//! The highest delivery rate of recent time.

use spanwire_base::{Dur, Time};

/// The highest rate of the present and the previous window of time, in bytes per nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct BestRate {
    window: Dur,
    rates: [f64; 2],
    began: Time,
}

impl BestRate {
    /// No rate; windows last `window`.
    pub(super) fn new(window: Dur) -> Self {
        Self { window, rates: [0.0; 2], began: Time::ZERO }
    }

    /// Applies the delivery rate of an interval; `least`: windows last as long at least.
    pub(super) fn add(&mut self, now: Time, rate: f64, least: Dur) {
        if now.since(self.began) > self.window.max(least) {
            (self.rates, self.began) = ([0.0, self.rates[0]], now);
        }
        self.rates[0] = self.rates[0].max(rate);
    }

    /// The highest; zero before the first.
    pub(super) fn get(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn add__a_rate_counts_for_one_to_two_windows() {
        let mut best = BestRate::new(Dur::from_us(100));
        for (us, rate, expected) in
            [(0, 5.0, 5.0), (50, 3.0, 5.0), (110, 2.0, 5.0), (230, 1.0, 2.0)]
        {
            best.add(at(us), rate, Dur::ZERO);
            assert_eq!(best.get(), expected, "{us}");
        }
        best.add(at(400), 0.5, Dur::from_us(1000));
        assert_eq!(best.get(), 2.0);
    }
}
