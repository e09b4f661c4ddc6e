//! The rate of a bottleneck from the packets of one round trip.

/// Consecutive acknowledgements of packets that were delayed by more than the target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Train {
    count: u32,
    /// Arrival of the first and the last, ns, and the bytes of all but the first.
    first: f64,
    last: f64,
    bytes: f64,
}

impl Train {
    /// Adds an acknowledgement of `bytes` that arrived `at` ns.
    pub(super) fn add(&mut self, is_above: bool, at: f64, bytes: f64) {
        *self = match (is_above, self.count) {
            (false, _) => Self::default(),
            (true, 0) => Self { count: 1, first: at, last: at, bytes: 0.0 },
            (true, count) => {
                Self { count: count + 1, last: at, bytes: self.bytes + bytes, ..*self }
            }
        };
    }

    /// It shows the rate of the bottleneck on a path with this base round trip, ns.
    pub(super) fn is_long(&self, base: f64) -> bool {
        self.count >= 8 && self.last - self.first >= base / 16.0
    }

    /// Bytes per nanosecond; zero if all arrived together.
    pub(super) fn rate(&self) -> f64 {
        let time = self.last - self.first;
        if time > 0.0 { self.bytes / time } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate__is_that_of_consecutive_delayed_packets() {
        let mut train = Train::default();
        for n in 0..20_u32 {
            train.add(n >= 5, f64::from(n) * 100.0, 1000.0);
            assert_eq!(train.is_long(1600.0), n >= 12, "{n}");
        }
        assert_eq!(train.rate(), 10.0);
        train.add(false, 2000.0, 1000.0);
        assert!(!train.is_long(1600.0) && train.rate() == 0.0);
    }

    #[test]
    fn rate__is_unknown_if_all_arrive_at_once() {
        let mut train = Train::default();
        (0..20).for_each(|_| train.add(true, 7.0, 1000.0));
        assert!(!train.is_long(1600.0) && train.rate() == 0.0);
    }
}
