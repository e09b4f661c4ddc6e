//! The correction of rates for headers and parity.

use crate::Sent;
use crate::units::float;

/// The bytes that the pacer counts, and the payload, of recent packets.
///
/// The delivery rate is one of payload; the pacer counts headers and parity, too. Without their
/// part a flow of short packets, or with much parity, would send less than it measured, measure
/// that, and lower its rate with each round: packets of 64 bytes with as much parity have six
/// times as many bytes on the wire as payload. Retransmissions are not part of it, so that a flow
/// does not send faster as it loses more.
///
/// BBR paces at the rate that it measures, and `auto` makes it the link of other algorithms.
///
/// # Source
/// Linux's `tcp_bbr` multiplies its rate by the size of a packet over its payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireShare {
    paced: u64,
    payload: u64,
}

impl WireShare {
    pub(crate) fn add(&mut self, sent: &Sent) {
        if sent.is_retransmission {
            return;
        }
        self.paced += u64::from(sent.paced_bytes);
        self.payload += u64::from(sent.bytes);
        if self.paced >= RECENT_BYTES {
            (self.paced, self.payload) = (self.paced / 2, self.payload / 2);
        }
    }

    /// The factor of the rate, at least 1. The gain of the probing phase makes up for the headers
    /// of long packets.
    pub(crate) fn correction(self) -> f64 {
        if self.payload == 0 {
            return 1.0;
        }
        (float(self.paced) / float(self.payload) / HEADERS_IN_GAIN).max(1.0)
    }
}

/// The bytes on the wire for a byte of payload up to which nothing is corrected: half of the gain
/// of the probing phase, as a factor (docs/decisions/0026-bbr-headers.md).
const HEADERS_IN_GAIN: f64 = 1.125;
/// Half of so many bytes are recent, or more.
const RECENT_BYTES: u64 = 1 << 20;
