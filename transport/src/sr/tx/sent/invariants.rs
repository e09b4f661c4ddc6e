//! Invariants of the packets sent, which hold between calls.

use super::Sent;
use super::entry::State;
use super::run::Strided;
use spanwire_base::u64_from;

impl<T: Strided> Sent<T> {
    /// Asserts packet order and window accounting.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(in crate::sr) fn check_invariants(&self) {
        let of_runs: u64 = self.runs.iter().map(|run| u64::from(run.pkts)).sum();
        let len = u64_from(self.ring.len()) + of_runs;
        debug_assert!(self.una <= self.data_una, "what is acknowledged is not awaited");
        debug_assert!(self.data_una <= self.next(), "what is awaited was sent");
        debug_assert!(
            self.ring.front().is_none_or(|e| e.state != State::Arrived),
            "una is the oldest packet that has not arrived"
        );
        debug_assert_eq!(self.una + len, self.next, "all packets sent are kept");
        debug_assert!(self.in_flight_pkts <= len, "packets in flight are kept");
        debug_assert!(
            self.in_flight_pkts > 0 || self.in_flight_bytes == 0,
            "bytes in flight are of packets in flight"
        );
        debug_assert!(
            self.in_flight_pkts <= u64_from(self.order.len()) + of_runs,
            "each packet in flight has its transmission in the order of time"
        );
        if len <= SMALL_PKTS {
            let packets = (self.una..self.next).filter_map(|number| self.packet(number));
            let in_flight = packets.filter(|packet| packet.state == State::InFlight);
            let (pkts, bytes) = in_flight
                .fold((0, 0), |(pkts, bytes), packet| (pkts + 1, bytes + u64::from(packet.bytes)));
            debug_assert_eq!(self.in_flight_pkts, pkts, "window, packets");
            debug_assert_eq!(self.in_flight_bytes, bytes, "window, bytes");
            debug_assert!(self.order.iter().is_sorted_by_key(|t| t.at), "transmissions by time");
        }
    }
}

/// Windows up to this are checked packet by packet.
const SMALL_PKTS: u64 = 64;
