//! The round-trip time of a stream.

use spanwire_base::Dur;

/// The RTT estimate of a stream. ACKs echo timestamps, so retransmissions give valid samples too.
///
/// # Source
/// RFC 6298 2 for the smoothing (gains 1/8 and 1/4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    srtt: Option<Dur>,
    rttvar: Dur,
    min_rtt: Dur,
    latest_rtt: Dur,
    /// The largest recent `ack_delay`; it decays with each sample.
    max_ack_delay: Dur,
    /// The timeouts that follow from these, computed once per sample.
    probe_timeout: Option<Dur>,
    retransmission_timeout: Dur,
}

impl Rtt {
    /// Adds a sample. `rtt` is from sending to the arrival of the ACK, and includes `ack_delay`,
    /// the time for which the peer held the ACK.
    pub(crate) fn sample(&mut self, rtt: Dur, ack_delay: Dur) {
        let ack_delay = ack_delay.min(rtt);
        let rtt = Dur::from_ps(rtt.as_ps() - ack_delay.as_ps());
        self.max_ack_delay = ack_delay.max(self.max_ack_delay / 16 * 15);
        self.latest_rtt = rtt;
        match self.srtt {
            None => {
                (self.srtt, self.rttvar, self.min_rtt) = (Some(rtt), rtt / 2, rtt);
            }
            Some(old) => {
                let (a, b) = (old.as_ps(), rtt.as_ps());
                let deviation = Dur::from_ps(a.abs_diff(b));
                self.rttvar = self.rttvar / 4 * 3 + deviation / 4;
                self.srtt = Some(old / 8 * 7 + rtt / 8);
                self.min_rtt = self.min_rtt.min(rtt);
            }
        }
        let srtt = self.srtt.unwrap_or_default();
        self.probe_timeout = Some((srtt * 2 + self.max_ack_delay).max(PROBE_TIMEOUT_MIN));
        // On a path without variation rttvar approaches zero. The RTO needs a margin all the same:
        // it counts from the last ACK, and the packet that it covers may have been sent a little
        // later.
        let margin = (self.rttvar * 4).max(srtt / 4);
        self.retransmission_timeout = srtt + margin + self.max_ack_delay;
    }

    /// The smoothed RTT without `ack_delay`; none before the first sample.
    pub(crate) fn srtt(&self) -> Option<Dur> {
        self.srtt
    }

    /// The smallest sample; zero before the first one.
    pub(crate) fn min_rtt(&self) -> Dur {
        self.min_rtt
    }

    /// The last sample; zero before the first one.
    pub(crate) fn latest_rtt(&self) -> Dur {
        self.latest_rtt
    }

    /// The time without an ACK after which a TLP is sent; none before the first sample.
    #[inline]
    pub(crate) fn probe_timeout(&self) -> Option<Dur> {
        self.probe_timeout
    }

    /// The RTO, at least `floor`; `unknown` before the first sample.
    #[inline]
    pub(crate) fn retransmission_timeout(&self, floor: Dur, unknown: Dur) -> Dur {
        match self.srtt {
            Some(_) => self.retransmission_timeout.max(floor),
            None => unknown,
        }
    }
}

/// The least TLP timeout, below the delay of any path and host. An invalid echo must not make a TLP
/// due at once.
const PROBE_TIMEOUT_MIN: Dur = Dur::from_us(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Dur {
        Dur::from_us(n)
    }

    #[test]
    fn sample__smooths_and_subtracts_the_ack_delay() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.probe_timeout(), None);
        assert_eq!(rtt.retransmission_timeout(us(1), us(77)), us(77));
        rtt.sample(us(110), us(10));
        assert_eq!((rtt.srtt(), rtt.min_rtt()), (Some(us(100)), us(100)));
        assert_eq!(rtt.retransmission_timeout(us(1), us(77)), us(100 + 4 * 50 + 10));
        rtt.sample(us(180), us(0));
        assert_eq!(rtt.srtt(), Some(us(110)), "7/8 of 100 and 1/8 of 180");
        let held = us(10) / 16 * 15;
        assert_eq!(rtt.retransmission_timeout(us(1), us(77)), us(110) + us(230) + held);
        assert_eq!(rtt.probe_timeout(), Some(us(220) + held));
        assert_eq!((rtt.min_rtt(), rtt.latest_rtt()), (us(100), us(180)));
    }

    #[test]
    fn sample__of_a_steady_path_converges_to_rto_min() {
        let mut rtt = Rtt::default();
        for _ in 0..200 {
            rtt.sample(us(20), us(0));
        }
        assert_eq!(rtt.retransmission_timeout(us(4000), us(0)), us(4000));
        assert_eq!(
            rtt.retransmission_timeout(us(1), us(0)),
            us(25),
            "a margin of a quarter remains"
        );
    }

    #[test]
    fn sample__an_ack_delay_above_the_rtt_is_clamped() {
        let mut rtt = Rtt::default();
        rtt.sample(us(10), us(1_000_000));
        assert_eq!(rtt.srtt(), Some(Dur::ZERO));
        let mut at_once = Rtt::default();
        at_once.sample(us(0), us(0));
        assert_eq!(at_once.probe_timeout(), Some(us(1)));
        assert_eq!(rtt.probe_timeout(), Some(us(10)));
    }
}
