//! The telemetry (INT) that data packets request.

use spanwire_base::u32_from;
use spanwire_wire::{
    INT_CREDIT_HEADER_LEN, INT_HEADER_LEN, IntFormat, int_request, int_request_credit,
};

/// The telemetry that data packets request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IntRequest {
    /// The most switches, 1..=16; 0 for no telemetry.
    pub(crate) hops: u8,
    /// The format of the records.
    pub(crate) format: IntFormat,
    /// Stacks have a credit (version 2), and their records are for the peer: none is echoed.
    pub(crate) has_credit: bool,
}

impl IntRequest {
    /// The bytes that a packet needs behind its ICRC, with the records of all switches.
    pub(super) fn room_bytes(&self) -> u32 {
        let header = if self.has_credit { INT_CREDIT_HEADER_LEN } else { INT_HEADER_LEN };
        match self.hops {
            0 => 0,
            n => u32_from(header + usize::from(n) * self.format.record_len()),
        }
    }

    /// ACKs may echo records in this format.
    pub(super) fn allows_echo(&self, format: IntFormat) -> bool {
        !self.has_credit && self.allows_near(format)
    }

    /// Switches may send telemetry in this format.
    pub(in crate::sr) fn allows_near(&self, format: IntFormat) -> bool {
        self.hops > 0 && format == self.format
    }

    /// Appends an empty stack to the packet of `len` bytes in `frame`. Returns its new length:
    /// `len` if there is no room, or nothing to request.
    ///
    /// A packet with no QPN by which switches tell flows apart carries no credit.
    pub(in crate::sr) fn append(&self, frame: &mut [u8], len: usize, has_qpn: bool) -> usize {
        let request = match (self.has_credit, has_qpn) {
            (false, _) => int_request(frame, len, self.hops, self.format),
            (true, true) => int_request_credit(frame, len, self.hops, self.format),
            (true, false) => None,
        };
        request.unwrap_or(len)
    }
}
