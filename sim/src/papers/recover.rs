//! How long rates take to recover.

use super::{arrived, mean_gbps, place, smooth};
use crate::record::{Series, us};
use serde::{Deserialize, Serialize};
use spanwire_base::Time;

/// Disturbed links.
///
/// # Source
/// PACC II, figure 3.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recover {
    /// The links.
    pub links: Vec<Disturbed>,
}

/// A link whose flows should recover from a disturbance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disturbed {
    /// The flows that share it, by their places in the list of all.
    pub flows: Vec<u32>,
    /// When the disturbance begins.
    pub at: Time,
    /// The time of undisturbed transmission, from which the reference rate is taken.
    pub reference: [Time; 2],
}

/// How long rates take to recover.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecoverReport {
    /// For each link, from the beginning of the disturbance until the end of the last period below
    /// 90 % of the reference rate that began at most 100 us after it, in us. Zero if there is no
    /// such period, `None` if it does not end. Rates are means over 20 us.
    pub recover_us: Vec<Option<f64>>,
}

impl Recover {
    pub(super) fn report(&self, series: &Series) -> RecoverReport {
        RecoverReport { recover_us: self.links.iter().map(|l| l.recover_us(series)).collect() }
    }
}

impl Disturbed {
    fn recover_us(&self, series: &Series) -> Option<f64> {
        let arrived = arrived(series, &self.flows);
        let rates = smooth(series, &arrived);
        let full = FULL * mean_gbps(series, &arrived, self.reference.map(|at| place(series, at)));
        let (mut end, mut is_low) = (Some(0.0), false);
        for (at, rate) in series.at_us.iter().zip(&rates).skip(place(series, self.at)) {
            let since = at - us(self.at);
            let was_low = std::mem::replace(&mut is_low, *rate < full);
            if was_low && !is_low && end.is_none() {
                end = Some(since);
            }
            if is_low && !was_low && since <= GRACE_US {
                end = None;
            }
        }
        end
    }
}

/// The link counts as full from this part of the reference rate on.
const FULL: f64 = 0.9;
/// Eight base round trips of PACC's network: by then a disturbance has had its effect.
const GRACE_US: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::super::testing::series;
    use super::*;
    use spanwire_base::Dur;

    /// The recovery of a flow with these rates from a disturbance at 30 us. The reference is the
    /// second rate.
    fn recover(rates: &[f64]) -> Option<f64> {
        let at = |us| Time::ZERO + Dur::from_us(us);
        let link = Disturbed { flows: vec![0], at: at(30), reference: [at(10), at(20)] };
        let metric = Recover { links: vec![link] };
        metric.report(&series(&[rates], &[])).recover_us[0]
    }

    #[test]
    fn report__is_the_end_of_the_last_low_period_that_began_soon() {
        assert_eq!(recover(&[10.0; 8]), Some(0.0));
        // Means over 20 us: 5 at 40 us, 0 at 50, 5 at 60, 10 at 70.
        assert_eq!(recover(&[10.0, 10.0, 10.0, 0.0, 0.0, 10.0, 10.0]), Some(40.0));
        let mut rates = [10.0; 30];
        rates[3] = 0.0;
        rates[8] = 0.0;
        assert_eq!(recover(&rates), Some(80.0), "the second began at 90 us");
        rates[20] = 0.0;
        assert_eq!(recover(&rates), Some(80.0), "another disturbance");
        assert_eq!(recover(&[10.0, 10.0, 10.0, 0.0, 0.0]), None);
    }
}
