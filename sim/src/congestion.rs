//! Which congestion control the queue pairs of a network have.

use spanwire_base::Dur;
use spanwire_cc::Algorithm;
use spanwire_transport::CongestionControl;

/// Congestion control of a network's queue pairs. The default is none: static windows alone.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Congestion {
    /// Which, with its parameters.
    pub algorithm: Option<Algorithm>,
    /// Another one for flows whose round trip without queues is longer than this.
    pub far: Option<(Dur, Algorithm)>,
    /// Queue pairs measure the round trip of their way. If not, they are told what it is without
    /// queues, as a network is configured that knows itself.
    pub measures_rtt: bool,
}

impl Congestion {
    /// That of a queue pair whose round trip without queues is `base_rtt`.
    #[must_use]
    pub fn of(&self, base_rtt: Dur) -> Option<CongestionControl> {
        let far = self.far.filter(|(from, _)| base_rtt > *from).map(|(_, algorithm)| algorithm);
        let algorithm = far.or(self.algorithm)?;
        Some(CongestionControl {
            algorithm,
            base_rtt: Some(base_rtt).filter(|_| !self.measures_rtt),
        })
    }

    /// True if any queue pair has one.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.algorithm.is_some() || self.far.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__is_by_distance_and_tells_the_round_trip_unless_it_is_measured() {
        let named = |name| Algorithm::named(name).unwrap();
        let (near, far) = (Dur::from_us(14), Dur::from_ms(2));
        assert_eq!(Congestion::default().of(near), None);
        assert!(!Congestion::default().is_on());
        let algorithm = Some(named("mprdma"));
        let all = Congestion {
            algorithm,
            far: Some((Dur::from_us(100), named("bbr"))),
            ..Congestion::default()
        };
        for (rtt, name) in [(near, "mprdma"), (far, "bbr")] {
            let of = all.of(rtt).unwrap();
            assert_eq!((of.algorithm.name(), of.base_rtt), (name, Some(rtt)));
        }
        let some = Congestion { algorithm: None, measures_rtt: true, ..all };
        assert_eq!(some.of(near), None);
        assert!(some.is_on() && some.of(far).unwrap().base_rtt.is_none());
    }
}
