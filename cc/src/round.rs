//! Round trips, delimited by the times at which packets were sent.

use crate::units::{bytes_per_ns, ns};
use crate::{Ack, Path};
use spanwire_base::{Dur, Rate, Time};

/// Consecutive round trips: the first begins with the first acknowledgement. Each ends with the
/// first acknowledgement of a packet sent after it began.
///
/// # Source
/// Uno's epochs. On an ordered path this equals the rule by sequence numbers, which a late packet
/// of a sprayed path would end early or stall.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Round {
    began: Option<Time>,
}

impl Round {
    /// Returns true and begins the next round if `sent_at` is after the start of this one.
    pub(crate) fn ends(&mut self, now: Time, sent_at: Time) -> bool {
        let ends = self.began.is_some_and(|began| sent_at >= began);
        if ends || self.began.is_none() {
            self.began = Some(now);
        }
        ends
    }
}

/// The base round trip (without any queue), and the bandwidth-delay product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Base {
    configured: Option<Dur>,
    smallest: Option<Dur>,
    line: f64,
    /// [`Base::bdp_once`] has returned the product.
    is_bdp_taken: bool,
}

impl Base {
    pub(crate) fn new(path: &Path) -> Self {
        let (configured, line) = (path.base_rtt, bytes_per_ns(path.line_rate));
        Self { configured, smallest: None, line, is_bdp_taken: false }
    }

    /// Applies the sample of an acknowledgement. Returns true for the first sample.
    pub(crate) fn on_ack(&mut self, a: &Ack<'_>) -> bool {
        let Some(rtt) = a.fabric_rtt() else { return false };
        let is_first = self.smallest.is_none();
        self.smallest = Some(self.smallest.map_or(rtt, |s| s.min(rtt)));
        is_first
    }

    /// Sets the link and the base round trip.
    pub(crate) fn set(&mut self, line_rate: Rate, base_rtt: Dur) {
        (self.line, self.configured) = (bytes_per_ns(line_rate), Some(base_rtt));
    }

    /// The base round trip; none before the first sample, unless configured.
    pub(crate) fn rtt(&self) -> Option<Dur> {
        self.configured.or(self.smallest)
    }

    /// In nanoseconds, at least one.
    pub(crate) fn rtt_ns(&self) -> Option<f64> {
        self.rtt().map(|d| ns(d).max(1.0))
    }

    /// The bandwidth-delay product in bytes.
    pub(crate) fn bdp(&self) -> Option<f64> {
        self.rtt_ns().map(|t| t * self.line)
    }

    /// The bandwidth-delay product, returned once, when it is known: to convert a window in packets
    /// to one in bandwidth-delay products.
    pub(crate) fn bdp_once(&mut self) -> Option<f64> {
        let bdp = self.bdp().filter(|_| !self.is_bdp_taken);
        self.is_bdp_taken |= bdp.is_some();
        bdp
    }

    /// Bytes per nanosecond of our own link.
    pub(crate) fn line(&self) -> f64 {
        self.line
    }
}

/// A guard that admits one event per `span`: one decrease for each round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Guard {
    closed_at: Option<Time>,
}

impl Guard {
    /// True if no event passed for `span`.
    pub(crate) fn is_open(self, now: Time, span: Dur) -> bool {
        self.closed_at.is_none_or(|at| now.since(at) >= span)
    }

    /// Returns true and closes if no event passed for `span`.
    pub(crate) fn pass(&mut self, now: Time, span: Dur) -> bool {
        let passes = self.is_open(now, span);
        if passes {
            self.close(now);
        }
        passes
    }

    /// Records an event at `now`.
    pub(crate) fn close(&mut self, now: Time) {
        self.closed_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rate;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    #[test]
    fn ends__once_for_each_round_trip_whatever_the_order() {
        let mut round = Round::default();
        assert!(!round.ends(at(10), at(0)), "the first acknowledgement begins it");
        assert!(!round.ends(at(11), at(9)));
        assert!(!round.ends(at(12), at(5)), "late");
        assert!(round.ends(at(21), at(10)));
        assert!(!round.ends(at(22), at(11)), "sent before the new round began");
    }

    #[test]
    fn base__is_the_configured_or_the_smallest_round_trip() {
        let line_rate = Rate::from_gbps(100);
        let mut base = Base::new(&Path { mtu_bytes: 4096, line_rate, base_rtt: None });
        assert_eq!((base.rtt(), base.bdp()), (None, None));
        let ack = |us, hold| Ack {
            rtt: Some(Dur::from_us(us)),
            ack_delay: Dur::from_us(hold),
            ..Ack::default()
        };
        assert!(base.on_ack(&ack(20, 2)));
        assert!(!base.on_ack(&ack(16, 2)));
        base.on_ack(&ack(30, 0));
        assert_eq!(base.rtt(), Some(Dur::from_us(14)));
        assert!((base.bdp().unwrap() - 175_000.0).abs() < 1e-6);
        let base_rtt = Some(Dur::from_us(10));
        let mut base = Base::new(&Path { mtu_bytes: 4096, line_rate, base_rtt });
        base.on_ack(&ack(3, 0));
        assert_eq!(base.rtt(), base_rtt);
    }

    #[test]
    fn bdp_once__returns_the_product_once() {
        let line_rate = Rate::from_gbps(8);
        let mut base = Base::new(&Path { mtu_bytes: 4096, line_rate, base_rtt: None });
        assert_eq!(base.bdp_once(), None);
        base.on_ack(&Ack { rtt: Some(Dur::from_us(20)), ..Ack::default() });
        assert_eq!((base.bdp_once(), base.bdp_once()), (Some(20_000.0), None));
        base.on_ack(&Ack { rtt: Some(Dur::from_us(10)), ..Ack::default() });
        assert_eq!((base.bdp_once(), base.bdp()), (None, Some(10_000.0)));
    }

    #[test]
    fn guard__opens_after_its_span() {
        let mut g = Guard::default();
        assert!(g.is_open(at(0), Dur::from_us(5)));
        g.close(at(1));
        assert!(!g.is_open(at(5), Dur::from_us(5)) && g.is_open(at(6), Dur::from_us(5)));
    }
}
