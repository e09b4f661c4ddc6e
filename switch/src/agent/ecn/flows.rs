//! Whether a long flow passes a port.

use crate::agent::sets::{KEY_BYTES, Sets, Standing};
use spanwire_base::{Dur, Time};

/// The bytes of each flow of a port, in a bounded table: of a full set the flow goes that was seen
/// longest ago.
#[derive(Debug)]
pub(super) struct Flows {
    places: Sets<Flow>,
    /// Until then a long flow counts, if no further packet of it passes.
    long_until: Time,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    seen: Time,
    bytes: u64,
}

impl Flows {
    /// Places for `most` flows.
    pub(super) fn new(most: u32) -> Self {
        let places = Sets::new(most, &Flow { seen: Time::ZERO, bytes: 0 });
        Self { places, long_until: Time::ZERO }
    }

    /// Flows that are not forgotten after `idle` without a packet. O(places).
    pub(super) fn len(&self, now: Time, idle: Dur) -> usize {
        self.places.values().filter(|flow| now.since(flow.seen) <= idle).count()
    }

    /// Counts a packet. A flow without one for `idle` is forgotten.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Time, key: u64, bytes: u64, idle: Dur) {
        let at = self.places.find(key).unwrap_or_else(|| self.take_place(key));
        let flow = self.places.get_mut(at);
        if now.since(flow.seen) > idle {
            flow.bytes = 0;
        }
        flow.seen = now;
        flow.bytes = flow.bytes.saturating_add(bytes);
        if flow.bytes > LONG_BYTES {
            self.long_until = now + idle;
        }
    }

    /// True if a flow that has passed [`LONG_BYTES`] is not forgotten.
    #[inline]
    pub(super) fn is_long(&self, now: Time) -> bool {
        now < self.long_until
    }

    fn take_place(&mut self, key: u64) -> usize {
        let by_age = |flow: &Flow| Some(Standing { rank: flow.seen, is_used: true });
        let new = Flow { seen: Time::ZERO, bytes: 0 };
        self.places.take(key, new, by_age).expect("any may go").0
    }

    /// Flows that were forgotten for lack of room.
    pub(super) fn evicted(&self) -> u64 {
        self.places.evicted()
    }
}

/// Bytes of a flow in the table.
pub(super) const BYTES: usize = KEY_BYTES + size_of::<Flow>();
/// A flow of more is long.
///
/// # Source
/// LAECN IV-C.
const LONG_BYTES: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    const IDLE: Dur = Dur::from_us(400);

    #[test]
    fn is_long__from_100_kb_of_one_flow_until_it_is_forgotten() {
        let mut flows = Flows::new(16);
        for (us, key) in (0..100).map(|n| (n, 8 + n % 2)) {
            flows.on_packet(at(us), key, 2_000, IDLE);
            assert!(!flows.is_long(at(us)), "two flows of less");
        }
        flows.on_packet(at(100), 8, 1, IDLE);
        assert!(flows.is_long(at(499)) && !flows.is_long(at(500)));
        flows.on_packet(at(600), 8, 1, IDLE);
        assert!(!flows.is_long(at(600)), "it was forgotten");
    }

    #[test]
    fn on_packet__a_flood_of_flows_cannot_grow_the_table() {
        let mut flows = Flows::new(64);
        for key in 0..100_000 {
            flows.on_packet(at(key), key, 100, IDLE);
        }
        assert!(flows.evicted() > 99_000);
        assert_eq!((flows.places.len(), flows.len(at(99_999), IDLE)), (128, 128));
        assert_eq!(flows.len(at(100_400), IDLE), 0);
    }
}
