//! Congestion notification of RC: CNPs for received packets marked CE (notification point), and the
//! rate limit on received CNPs.

use spanwire_base::{Dur, Time};
use spanwire_wire::OpClass;

/// The CNPs of one queue pair: at most one is due, at most one each `Config::cnp_interval`.
#[derive(Debug, Default)]
pub(super) struct Cnps {
    is_due: bool,
    next_at: Time,
    /// CNPs of the peer are ignored before this.
    accept_from: Time,
}

impl Cnps {
    /// A packet marked CE arrived; CNPs are at least `interval` apart.
    pub(super) fn on_marked(&mut self, now: Time, class: OpClass, interval: Dur) {
        if now >= self.next_at && class != OpClass::Notification {
            self.is_due = true;
            self.next_at = now + interval;
        }
    }

    /// Accepts a CNP that arrived at `now`, or ignores it: one each `spacing`, or each
    /// [`UNKNOWN_RTT`] before the spacing, a round trip, is known.
    pub(super) fn accept(&mut self, now: Time, spacing: Option<Dur>) -> bool {
        let is_accepted = now >= self.accept_from;
        if is_accepted {
            self.accept_from = now + spacing.unwrap_or(UNKNOWN_RTT);
        }
        is_accepted
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// The CNP is being sent.
    pub(super) fn on_sent(&mut self) {
        self.is_due = false;
    }
}

/// The spacing of accepted CNPs before a round trip is measured: the interval at which receivers
/// send them.
///
/// # Source
/// DCQCN 3.1 (SIGCOMM 2015): N = 50 us; adapters have the same default.
const UNKNOWN_RTT: Dur = Dur::from_us(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_marked__schedules_one_in_50_us() {
        let mut c = Cnps::default();
        let at = |us| Time::ZERO + Dur::from_us(us);
        let mut due = |us, class| {
            c.is_due = false;
            c.on_marked(at(us), class, Dur::from_us(50));
            c.is_due()
        };
        assert!(!due(0, OpClass::Notification), "a CNP causes no CNP");
        assert!(due(1, OpClass::Request));
        assert!(!due(50, OpClass::Response));
        assert!(due(51, OpClass::Response));
    }

    #[test]
    fn accept__once_in_a_round_trip() {
        let mut c = Cnps::default();
        let at = |us| Time::ZERO + Dur::from_us(us);
        let srtt = Some(Dur::from_us(20));
        assert!(c.accept(at(0), None), "the first");
        assert_eq!([1, 49, 50].map(|us| c.accept(at(us), srtt)), [false, false, true]);
        assert_eq!([51, 69, 70].map(|us| c.accept(at(us), srtt)), [false, false, true]);
    }
}
