//! RTT estimation.

use spanwire_base::Dur;

/// The RTT estimator of a path or a flow: smoothed RTT, its deviation, and the smallest.
///
/// # Source
/// RFC 6298 2, with its gains of 1/8 and 1/4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rtt {
    known: Option<Known>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    smoothed_ps: u64,
    deviation_ps: u64,
    min_ps: u64,
}

impl Rtt {
    pub(crate) fn sample(&mut self, rtt: Dur) {
        let ps = rtt.as_ps();
        self.known = Some(match self.known {
            None => Known { smoothed_ps: ps, deviation_ps: ps / 2, min_ps: ps },
            Some(k) => Known {
                smoothed_ps: towards(k.smoothed_ps, ps, 8),
                deviation_ps: towards(k.deviation_ps, k.smoothed_ps.abs_diff(ps), 4),
                min_ps: k.min_ps.min(ps),
            },
        });
    }

    pub(crate) fn smoothed(&self) -> Option<Dur> {
        self.known.map(|k| Dur::from_ps(k.smoothed_ps))
    }

    pub(crate) fn min(&self) -> Option<Dur> {
        self.known.map(|k| Dur::from_ps(k.min_ps))
    }

    /// The retransmission timeout without minimum and backoff.
    pub(crate) fn timeout(&self) -> Option<Dur> {
        let k = self.known?;
        Some(Dur::from_ps(k.smoothed_ps.saturating_add(k.deviation_ps.saturating_mul(4))))
    }
}

/// An average moved by one part in `parts` towards a sample.
pub(crate) fn towards(average: u64, sample: u64, parts: u64) -> u64 {
    if sample >= average {
        average + (sample - average) / parts
    } else {
        average - (average - sample) / parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample__smooths_and_keeps_the_smallest() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.smoothed(), rtt.min(), rtt.timeout()), (None, None, None));
        rtt.sample(Dur::from_us(80));
        assert_eq!(rtt.timeout(), Some(Dur::from_us(80 + 4 * 40)));
        rtt.sample(Dur::from_us(160));
        assert_eq!(rtt.smoothed(), Some(Dur::from_us(90)));
        assert_eq!(rtt.timeout(), Some(Dur::from_us(90 + 4 * 50)));
        rtt.sample(Dur::from_us(10));
        assert_eq!((rtt.smoothed(), rtt.min()), (Some(Dur::from_us(80)), Some(Dur::from_us(10))));
    }

    #[test]
    fn sample__the_longest_round_trip_does_not_overflow() {
        let mut rtt = Rtt::default();
        rtt.sample(Dur::MAX);
        rtt.sample(Dur::ZERO);
        rtt.sample(Dur::MAX);
        assert_eq!((rtt.min(), rtt.timeout()), (Some(Dur::ZERO), Some(Dur::MAX)));
    }
}
