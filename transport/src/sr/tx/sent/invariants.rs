//! Invariants of the packets sent, which hold between calls.

use super::Sent;
use super::entry::State;
use spanwire_base::u64_from;

impl<T: Copy> Sent<T> {
    /// Asserts packet order and window accounting.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        let len = u64_from(self.ring.len());
        debug_assert!(self.una <= self.data_una, "what is acknowledged is not awaited");
        debug_assert!(self.data_una <= self.next(), "what is awaited was sent");
        debug_assert!(
            self.ring.front().is_none_or(|e| e.state != State::Arrived),
            "una is the oldest packet that has not arrived"
        );
        debug_assert!(self.in_flight_pkts <= len, "packets in flight are kept");
        debug_assert!(
            self.in_flight_pkts > 0 || self.in_flight_bytes == 0,
            "bytes in flight are of packets in flight"
        );
        debug_assert!(
            self.in_flight_pkts <= u64_from(self.order.len()),
            "each packet in flight has its transmission in the order of time"
        );
        if len <= SMALL_PKTS {
            let in_flight = || self.ring.iter().filter(|e| e.state == State::InFlight);
            debug_assert_eq!(self.in_flight_pkts, u64_from(in_flight().count()), "window, packets");
            let bytes: u64 = in_flight().map(|e| u64::from(e.bytes)).sum();
            debug_assert_eq!(self.in_flight_bytes, bytes, "window, bytes");
            debug_assert!(self.order.iter().is_sorted_by_key(|t| t.at), "transmissions by time");
        }
    }
}

/// Windows up to this are checked packet by packet.
const SMALL_PKTS: u64 = 64;
