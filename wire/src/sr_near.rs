//! The header of SR feedback of a switch, after the BTH: the delay of a data packet to there.
//!
//! ```text
//!  0      version 4 = 1 | kind 4
//!  1      PSN 31..24 (the BTH has the rest)
//!  2      hop limit of the data packet at the switch
//!  3      reserved
//!  4..12  echo: time sent of the data packet, ps
//! ```
//! It goes to the queue pair that sent the data packet. The layout and its reasons are in
//! docs/protocol/sr.md, "Feedback of switches".

use crate::BufferTooShort;
use crate::sr_data::VERSION;
use crate::{DropReason, be};

/// The kind of feedback of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NearKind {
    /// The packet has passed the switch. Its round trip to there is a delay sample, no delivery.
    PseudoAck,
}

/// The header of feedback of a switch about one data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrNearRepr {
    /// Its kind.
    pub kind: NearKind,
    /// The PSN of the data packet: the BTH has the low 24 bits.
    pub psn: u32,
    /// Hop limit, or TTL, with which the data packet reached the switch.
    pub hop_limit: u8,
    /// The time that the data packet was sent, by the clock of its sender.
    pub echo_ps: u64,
}

impl SrNearRepr {
    /// Bytes of the header.
    pub const LEN: usize = 12;

    /// Parses all of `bytes`, which follow the BTH. `psn_low` is the BTH's PSN. Reserved bits are
    /// ignored.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`], [`DropReason::UnexpectedPayload`], [`DropReason::SrVersion`] or
    /// [`DropReason::SrKind`].
    pub fn parse(psn_low: u32, bytes: &[u8]) -> Result<Self, DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::ExtTooShort)?;
        let header: &[u8; Self::LEN] = header;
        if header[0] >> 4 != VERSION {
            return Err(DropReason::SrVersion);
        }
        let kind = match header[0] & 0xf {
            0 => NearKind::PseudoAck,
            _ => return Err(DropReason::SrKind),
        };
        if !rest.is_empty() {
            return Err(DropReason::UnexpectedPayload);
        }
        Ok(Self {
            kind,
            psn: u32::from(header[1]) << 24 | psn_low,
            hop_limit: header[2],
            echo_ps: be::u64_at(header, 4),
        })
    }

    /// Writes the header into the first [`SrNearRepr::LEN`] bytes of `out`. The BTH gets the low 24
    /// bits of the PSN.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn emit(&self, out: &mut [u8]) -> Result<(), BufferTooShort> {
        let out: &mut [u8; Self::LEN] = out.first_chunk_mut().ok_or(BufferTooShort)?;
        let [psn_hi, ..] = self.psn.to_be_bytes();
        let kind = match self.kind {
            NearKind::PseudoAck => 0,
        };
        be::put(out, 0, [VERSION << 4 | kind, psn_hi, self.hop_limit, 0]);
        be::put(out, 4, self.echo_ps.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPR: SrNearRepr = SrNearRepr {
        kind: NearKind::PseudoAck,
        psn: 0xab12_3456,
        hop_limit: 63,
        echo_ps: 0x1122_3344_5566_7788,
    };

    #[test]
    fn emit__writes_the_documented_bytes() {
        let mut out = [0xee; SrNearRepr::LEN];
        REPR.emit(&mut out).unwrap();
        assert_eq!(out, [0x10, 0xab, 63, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(SrNearRepr::parse(0x12_3456, &out), Ok(REPR));
        for cut in 0..SrNearRepr::LEN {
            assert_eq!(SrNearRepr::parse(0, &out[..cut]), Err(DropReason::ExtTooShort));
            let mut short = out;
            assert_eq!(REPR.emit(&mut short[..cut]), Err(BufferTooShort));
        }
    }

    #[test]
    fn parse__rejects_versions_kinds_and_payload() {
        let mut out = [0; SrNearRepr::LEN + 1];
        REPR.emit(&mut out).unwrap();
        assert_eq!(SrNearRepr::parse(0, &out), Err(DropReason::UnexpectedPayload));
        for (first, why) in [(0x00, DropReason::SrVersion), (0x11, DropReason::SrKind)] {
            out[0] = first;
            assert_eq!(SrNearRepr::parse(0, &out[..SrNearRepr::LEN]), Err(why));
        }
    }

    proptest! {
        #[test]
        fn parse__never_panics_and_accepted_headers_round_trip(
            psn in 0u32..1 << 24,
            bytes in prop::collection::vec(any::<u8>(), 0..16),
        ) {
            if let Ok(repr) = SrNearRepr::parse(psn, &bytes) {
                let mut again = [0; SrNearRepr::LEN];
                repr.emit(&mut again).unwrap();
                again[3] = bytes[3]; // reserved
                prop_assert_eq!(&again[..], &bytes[..]);
            }
        }
    }
}
