//! Full frames of the transports, as a line of the switch counts them.

/// A full frame at an MTU of 1500.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// Payload bytes.
    pub(crate) payload_bytes: u32,
    /// All bytes on the wire; 24 of them are preamble, FCS and gap.
    pub(crate) wire_bytes: u32,
}

impl Frame {
    /// Of SR.
    pub(crate) const SR: Self = Self { payload_bytes: 1408, wire_bytes: 1530 };
    /// Of SR with a source packet of a block; a parity packet has four bytes more.
    pub(crate) const SR_CODED: Self = Self { payload_bytes: 1400, wire_bytes: 1526 };
    /// Of RC, at its path MTU of 1024.
    pub(crate) const RC: Self = Self { payload_bytes: 1024, wire_bytes: 1106 };
    /// Of kernel TCP with timestamps.
    pub(crate) const TCP: Self = Self { payload_bytes: 1448, wire_bytes: 1538 };

    /// The share of payload.
    pub(crate) fn efficiency(self) -> f64 {
        f64::from(self.payload_bytes) / f64::from(self.wire_bytes)
    }

    /// Payload bits a second of a line with this rate, without any loss.
    pub(crate) fn payload_bps(self, rate_bps: u64) -> f64 {
        rate_bps as f64 * self.efficiency()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_transport::Offer;

    /// Preamble, Ethernet header, FCS and gap; IPv4 header.
    const ETHERNET: u32 = 14 + 24;
    const IPV4: u32 = 20;

    #[test]
    fn wire_bytes__are_headers_and_payload() {
        // UDP, BTH, ICRC.
        let rc = ETHERNET + IPV4 + 8 + 12 + 1024 + 4;
        assert_eq!(Frame::RC.wire_bytes, rc);
        // TCP with timestamps fills the MTU.
        assert_eq!(Frame::TCP.wire_bytes, ETHERNET + 1500);
        assert_eq!(Frame::TCP.payload_bytes, 1500 - IPV4 - 20 - 12);
        // UDP, BTH, SR, RETH, ICRC.
        let sr = ETHERNET + IPV4 + 8 + 12 + 24 + 16 + Frame::SR.payload_bytes + 4;
        assert_eq!(Frame::SR.wire_bytes, sr);
        // UDP, BTH, SR, RETH, block, ICRC.
        let coded = ETHERNET + IPV4 + 8 + 12 + 24 + 16 + 4 + Frame::SR_CODED.payload_bytes + 4;
        assert_eq!(Frame::SR_CODED.wire_bytes, coded);
        assert_eq!(Offer::segment_bytes(1500, true), Some(Frame::SR.payload_bytes));
    }

    #[test]
    fn payload_bps__of_a_line() {
        assert!((Frame::SR.payload_bps(200_000_000) / 1e6 - 184.05).abs() < 0.01);
        assert!((Frame::TCP.payload_bps(200_000_000) / 1e6 - 188.30).abs() < 0.01);
        assert!((Frame::RC.payload_bps(200_000_000) / 1e6 - 185.17).abs() < 0.01);
    }
}
