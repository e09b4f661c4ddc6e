//! RC's notification point, which answers a marked packet with a CNP, and the rate limit on CNPs
//! from the peer.

use spanwire_base::{Dur, Time};
use spanwire_wire::OpClass;

/// The congestion notifications that one queue pair owes: at most one at a time, and not too often.
#[derive(Debug, Default)]
pub(super) struct Cnps {
    is_owed: bool,
    not_before: Time,
    /// The peer's are ignored before this.
    none_counts_before: Time,
}

impl Cnps {
    /// A packet came marked.
    pub(super) fn on_marked(&mut self, now: Time, class: OpClass) {
        if now >= self.not_before && class != OpClass::Notification {
            self.is_owed = true;
            self.not_before = now + INTERVAL;
        }
    }

    /// Whether a CNP of the peer counts: one each round trip, or each `INTERVAL` before a round
    /// trip is known.
    pub(super) fn counts(&mut self, now: Time, srtt: Option<Dur>) -> bool {
        let counts = now >= self.none_counts_before;
        if counts {
            self.none_counts_before = now + srtt.unwrap_or(INTERVAL);
        }
        counts
    }

    pub(super) fn are_owed(&self) -> bool {
        self.is_owed
    }

    /// The CNP that was due leaves.
    pub(super) fn on_sent(&mut self) {
        self.is_owed = false;
    }
}

/// One notification in so long a time.
///
/// # Source
/// DCQCN 3.1 (SIGCOMM 2015): N = 50 us; adapters have the same default.
const INTERVAL: Dur = Dur::from_us(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_marked__owes_one_in_50_us() {
        let mut c = Cnps::default();
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut owed = |us, class| {
            c.is_owed = false;
            c.on_marked(at(us), class);
            c.are_owed()
        };
        assert!(!owed(0, OpClass::Notification), "never for one of its own");
        assert!(owed(1, OpClass::Request));
        assert!(!owed(50, OpClass::Response));
        assert!(owed(51, OpClass::Response));
    }

    #[test]
    fn counts__once_in_a_round_trip() {
        let mut c = Cnps::default();
        let at = |us| Time::ZERO + Dur::from_us(us);
        let srtt = Some(Dur::from_us(20));
        assert!(c.counts(at(0), None), "the first");
        assert_eq!([1, 49, 50].map(|us| c.counts(at(us), srtt)), [false, false, true]);
        assert_eq!([51, 69, 70].map(|us| c.counts(at(us), srtt)), [false, false, true]);
    }
}
