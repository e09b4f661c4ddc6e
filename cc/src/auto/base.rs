//! The base round trip over a window of time.

use spanwire_base::{Dur, Time};

/// The lowest delay of the present and the previous window of 5 s.
///
/// Once a window has enough intervals, the lowest is left out, so that one false sample has no
/// effect. A path that became longer is known after two windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseRtt {
    configured: Option<f64>,
    began: Option<Time>,
    intervals: u32,
    /// Lowest and second-lowest of the present window, ns.
    low: [f64; 2],
    previous: f64,
}

impl BaseRtt {
    /// The base round trip if `configured`, ns, else measured.
    pub(super) fn new(configured: Option<f64>) -> Self {
        let low = [f64::MAX; 2];
        Self { configured, began: None, intervals: 0, low, previous: f64::MAX }
    }

    /// Applies the lowest delay of an interval, ns; returns the base round trip.
    pub(super) fn on_interval(&mut self, now: Time, min: f64) -> f64 {
        if self.began.is_none_or(|at| now.since(at) >= WINDOW) {
            self.previous = self.present();
            (self.began, self.intervals, self.low) = (Some(now), 0, [f64::MAX; 2]);
        }
        self.intervals += 1;
        let [a, b] = self.low;
        self.low = if min < a { [min, a] } else { [a, b.min(min)] };
        self.ns().unwrap_or(min)
    }

    /// Starts anew: the path has changed.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.configured);
    }

    /// In nanoseconds; none before the first interval.
    pub(super) fn ns(&self) -> Option<f64> {
        let measured = self.present().min(self.previous);
        self.configured.or(Some(measured).filter(|ns| *ns < f64::MAX))
    }

    fn present(&self) -> f64 {
        let [lowest, second] = self.low;
        if self.intervals >= ENOUGH { second } else { lowest }
    }
}

const WINDOW: Dur = Dur::from_secs(5);
/// Intervals of a window after which the lowest is left out.
const ENOUGH: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn on_interval__one_false_sample_has_no_effect_for_long() {
        let mut base = BaseRtt::new(None);
        assert_eq!(base.on_interval(at(0), 1444.0), 1444.0);
        for us in 1..20 {
            base.on_interval(at(us * 100), 2000.0);
        }
        assert_eq!(base.ns(), Some(2000.0));
    }

    #[test]
    fn on_interval__a_longer_path_is_known_after_two_windows() {
        let mut base = BaseRtt::new(None);
        let run = |base: &mut BaseRtt, from_s: u64, delay: f64| {
            (0..50).for_each(|n| _ = base.on_interval(at(from_s * 1_000_000 + n * 100_000), delay));
        };
        run(&mut base, 0, 100.0);
        run(&mut base, 5, 900.0);
        assert_eq!(base.ns(), Some(100.0));
        run(&mut base, 10, 900.0);
        run(&mut base, 15, 900.0);
        assert_eq!(base.ns(), Some(900.0));
    }

    #[test]
    fn ns__is_the_configured_one() {
        let mut base = BaseRtt::new(Some(50.0));
        base.on_interval(at(0), 10.0);
        base.forget();
        assert_eq!(base.ns(), Some(50.0));
    }
}
