//! How long the way there and back takes.

use spanwire_base::Dur;

/// Smoothed round trip, its variation, and the smallest, of a stream whose acknowledgements echo
/// timestamps: a sample is as good for a packet that was sent again.
///
/// # Source
/// RFC 6298 2 for the smoothing (gains 1/8 and 1/4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Dur>,
    variation: Dur,
    smallest: Dur,
    latest: Dur,
    /// The longest time that the peer held an acknowledgement back, lately.
    hold_max: Dur,
    /// What follows from these, for every packet to ask.
    probe_timeout: Option<Dur>,
    retransmission_timeout: Dur,
}

impl Rtt {
    /// Takes a sample: from sending to the acknowledgement's arrival, of which the peer held it
    /// back for `hold`.
    pub(crate) fn sample(&mut self, rtt: Dur, hold: Dur) {
        let hold = hold.min(rtt);
        let rtt = Dur::from_ps(rtt.as_ps() - hold.as_ps());
        self.hold_max = hold.max(self.hold_max / 16 * 15);
        self.latest = rtt;
        match self.smoothed {
            None => {
                (self.smoothed, self.variation, self.smallest) = (Some(rtt), rtt / 2, rtt);
            }
            Some(old) => {
                let (a, b) = (old.as_ps(), rtt.as_ps());
                let off = Dur::from_ps(a.abs_diff(b));
                self.variation = self.variation / 4 * 3 + off / 4;
                self.smoothed = Some(old / 8 * 7 + rtt / 8);
                self.smallest = self.smallest.min(rtt);
            }
        }
        let smoothed = self.smoothed.unwrap_or_default();
        self.probe_timeout = Some((smoothed * 2 + self.hold_max).max(PROBE_TIMEOUT_MIN));
        // A way that never varies says nothing of the next acknowledgement: silence is counted from
        // the last one, and what is waited for may have left a little later.
        let margin = (self.variation * 4).max(smoothed / 4);
        self.retransmission_timeout = smoothed + margin + self.hold_max;
    }

    /// The smoothed round trip without what the peer held back; none before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Dur> {
        self.smoothed
    }

    /// The smallest of all; zero before the first sample.
    pub(crate) fn smallest(&self) -> Dur {
        self.smallest
    }

    /// The last sample.
    pub(crate) fn latest(&self) -> Dur {
        self.latest
    }

    /// After how long without an acknowledgement the newest packet is worth sending again; none
    /// before the first sample.
    #[inline]
    pub(crate) fn probe_timeout(&self) -> Option<Dur> {
        self.probe_timeout
    }

    /// After how long everything must be taken for lost, at least `floor`; `unknown` before the
    /// first sample.
    #[inline]
    pub(crate) fn retransmission_timeout(&self, floor: Dur, unknown: Dur) -> Dur {
        match self.smoothed {
            Some(_) => self.retransmission_timeout.max(floor),
            None => unknown,
        }
    }
}

/// Whatever a peer makes of the echo, a probe is not due at once: less than any path and host take.
const PROBE_TIMEOUT_MIN: Dur = Dur::from_us(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Dur {
        Dur::from_us(n)
    }

    #[test]
    fn sample__smooths_and_takes_the_hold_off() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.probe_timeout(), None);
        assert_eq!(rtt.retransmission_timeout(us(1), us(77)), us(77));
        rtt.sample(us(110), us(10));
        assert_eq!((rtt.smoothed(), rtt.smallest()), (Some(us(100)), us(100)));
        assert_eq!(rtt.retransmission_timeout(us(1), us(77)), us(100 + 4 * 50 + 10));
        rtt.sample(us(180), us(0));
        assert_eq!(rtt.smoothed(), Some(us(110)), "7/8 of 100 and 1/8 of 180");
        let held = us(10) / 16 * 15;
        assert_eq!(rtt.retransmission_timeout(us(1), us(77)), us(110) + us(230) + held);
        assert_eq!(rtt.probe_timeout(), Some(us(220) + held));
        assert_eq!((rtt.smallest(), rtt.latest()), (us(100), us(180)));
    }

    #[test]
    fn sample__settles_on_a_steady_path_down_to_the_floor() {
        let mut rtt = Rtt::default();
        for _ in 0..200 {
            rtt.sample(us(20), us(0));
        }
        assert_eq!(rtt.retransmission_timeout(us(4000), us(0)), us(4000));
        assert_eq!(rtt.retransmission_timeout(us(1), us(0)), us(25), "a quarter of it is left");
    }

    #[test]
    fn sample__a_hold_longer_than_the_trip_is_a_lie_and_costs_nothing() {
        let mut rtt = Rtt::default();
        rtt.sample(us(10), us(1_000_000));
        assert_eq!(rtt.smoothed(), Some(Dur::ZERO));
        let mut at_once = Rtt::default();
        at_once.sample(us(0), us(0));
        assert_eq!(at_once.probe_timeout(), Some(us(1)));
        assert_eq!(rtt.probe_timeout(), Some(us(10)));
    }
}
