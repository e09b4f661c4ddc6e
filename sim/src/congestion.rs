//! Congestion control of a network's queue pairs.

use spanwire_base::Dur;
use spanwire_cc::Algorithm;
use spanwire_transport::{CongestionControl, Preset};

/// Congestion control of a network's queue pairs. The default is none: static windows alone.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Congestion {
    /// The algorithm with its parameters.
    pub algorithm: Option<Algorithm>,
    /// A minimum base RTT and the algorithm of flows whose base RTT exceeds it.
    pub far: Option<(Dur, Algorithm)>,
    /// The algorithms have the constants of their papers, or are calibrated to the path.
    pub preset: Preset,
    /// Queue pairs measure their base RTT. Otherwise each is configured with the base RTT of its
    /// path.
    pub measures_rtt: bool,
    /// The least time between two CNPs that count; none for a round trip.
    pub cnp_spacing: Option<Dur>,
}

impl Congestion {
    /// The congestion control of a queue pair whose base RTT is `base_rtt`.
    #[must_use]
    pub fn of(&self, base_rtt: Dur) -> CongestionControl {
        let far = self.far.filter(|(from, _)| base_rtt > *from).map(|(_, algorithm)| algorithm);
        match far.or(self.algorithm) {
            None => CongestionControl::NONE,
            algorithm => CongestionControl {
                algorithm,
                base_rtt: Some(base_rtt).filter(|_| !self.measures_rtt),
                preset: self.preset,
                cnp_spacing: self.cnp_spacing,
            },
        }
    }

    /// True if any queue pair has congestion control.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.algorithm.is_some() || self.far.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__selects_by_distance_and_sets_base_rtt_unless_it_is_measured() {
        let named = |name| Algorithm::named(name).unwrap();
        let (near, far) = (Dur::from_us(14), Dur::from_ms(2));
        assert_eq!(Congestion::default().of(near), CongestionControl::NONE);
        assert!(!Congestion::default().is_on());
        let algorithm = Some(named("mprdma"));
        let all = Congestion {
            algorithm,
            far: Some((Dur::from_us(100), named("bbr"))),
            ..Congestion::default()
        };
        for (rtt, name) in [(near, "mprdma"), (far, "bbr")] {
            let of = all.of(rtt);
            assert_eq!((of.algorithm.unwrap().name(), of.base_rtt), (name, Some(rtt)));
        }
        let some = Congestion { algorithm: None, measures_rtt: true, ..all };
        assert_eq!(some.of(near), CongestionControl::NONE);
        assert!(some.is_on() && some.of(far).base_rtt.is_none());
    }
}
