//! The header of SR feedback of a switch, after the BTH: the delay of a data packet to there, or
//! the telemetry that it had collected.
//!
//! ```text
//!  0      version 4 = 1 | kind 4
//!  1      PSN 31..24 (the BTH has the rest)
//!  2      hop limit of the data packet at the switch
//!  3      reserved
//!  4..12  echo: time sent of the data packet, ps
//! 12..    kind 1 only: hops 8, format 8, reserved 16, a record for each hop
//! ```
//! It goes to the queue pair that sent the data packet. The layout and its reasons are in
//! docs/protocol/sr.md, "Feedback of switches".

use crate::BufferTooShort;
use crate::int::IntRecords;
use crate::sr_data::VERSION;
use crate::{DropReason, be};

/// The kind of feedback of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NearKind {
    /// The packet has passed the switch. Its round trip to there is a delay sample, no delivery.
    PseudoAck,
    /// The records of the ports that the packet has passed, the switch's own included.
    Telemetry,
}

/// The header of feedback of a switch about one data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrNearRepr<'a> {
    /// Its kind.
    pub kind: NearKind,
    /// The PSN of the data packet: the BTH has the low 24 bits.
    pub psn: u32,
    /// Hop limit, or TTL, with which the data packet reached the switch.
    pub hop_limit: u8,
    /// The time that the data packet was sent, by the clock of its sender.
    pub echo_ps: u64,
    /// The records of [`NearKind::Telemetry`]; none of a pseudo-ACK.
    pub int: IntRecords<'a>,
}

impl<'a> SrNearRepr<'a> {
    /// Bytes of the header without records.
    pub const LEN: usize = LEN;

    /// Bytes of the header, 12..=400.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        Self::LEN + self.int.as_bytes().len()
    }

    /// Parses all of `bytes`, which follow the BTH. `psn_low` is the BTH's PSN. Reserved bits are
    /// ignored.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`], [`DropReason::UnexpectedPayload`], [`DropReason::SrVersion`] or
    /// [`DropReason::SrKind`], which is also that of telemetry without records, with too many, or
    /// in an unknown format.
    pub fn parse(psn_low: u32, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, mut rest) = bytes.split_first_chunk().ok_or(DropReason::ExtTooShort)?;
        let header: &[u8; LEN] = header;
        if header[0] >> 4 != VERSION {
            return Err(DropReason::SrVersion);
        }
        let (kind, int) = match header[0] & 0xf {
            0 => (NearKind::PseudoAck, IntRecords::NONE),
            1 => (NearKind::Telemetry, IntRecords::take(&mut rest)?),
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
            int,
        })
    }

    /// Writes the header into the first [`SrNearRepr::header_len`] bytes of `out`. The BTH gets the
    /// low 24 bits of the PSN.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn emit(&self, out: &mut [u8]) -> Result<(), BufferTooShort> {
        let out = out.get_mut(..self.header_len()).ok_or(BufferTooShort)?;
        let (out, records) = out.split_first_chunk_mut().ok_or(BufferTooShort)?;
        let out: &mut [u8; LEN] = out;
        let [psn_hi, ..] = self.psn.to_be_bytes();
        let kind = match self.kind {
            NearKind::PseudoAck => 0,
            NearKind::Telemetry => 1,
        };
        be::put(out, 0, [VERSION << 4 | kind, psn_hi, self.hop_limit, 0]);
        be::put(out, 4, self.echo_ps.to_be_bytes());
        records.copy_from_slice(self.int.as_bytes());
        Ok(())
    }
}

const LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPR: SrNearRepr<'static> = SrNearRepr {
        kind: NearKind::PseudoAck,
        psn: 0xab12_3456,
        hop_limit: 63,
        echo_ps: 0x1122_3344_5566_7788,
        int: IntRecords::NONE,
    };

    /// Two compact records.
    const RECORDS: [u8; 20] =
        [2, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8];

    #[test]
    fn emit__writes_the_records_behind_the_header() {
        let int = IntRecords::parse(&RECORDS);
        let repr = SrNearRepr { kind: NearKind::Telemetry, int, ..REPR };
        assert_eq!((repr.header_len(), repr.int.compact_hops().count()), (32, 2));
        let mut out = [0xee; 32];
        repr.emit(&mut out).unwrap();
        assert_eq!(out[..4], [0x11, 0xab, 63, 0]);
        assert_eq!(out[12..], RECORDS);
        assert_eq!(SrNearRepr::parse(0x12_3456, &out), Ok(repr));
        for cut in 0..out.len() {
            assert_eq!(SrNearRepr::parse(0, &out[..cut]), Err(DropReason::ExtTooShort));
            let mut short = out;
            assert_eq!(repr.emit(&mut short[..cut]), Err(BufferTooShort));
        }
        let longer = [&out[..], &[0]].concat();
        assert_eq!(SrNearRepr::parse(0, &longer), Err(DropReason::UnexpectedPayload));
    }

    #[test]
    fn parse__telemetry_has_one_to_sixteen_records_of_a_known_format() {
        for (hops, format, bytes, want) in [
            (0, 0, 0, Err(DropReason::SrKind)),
            (1, 0, 24, Ok(1)),
            (16, 0, 384, Ok(16)),
            (17, 0, 408, Err(DropReason::SrKind)),
            (16, 1, 128, Ok(16)),
            (1, 2, 24, Err(DropReason::SrKind)),
            (2, 0, 24, Err(DropReason::ExtTooShort)),
        ] {
            let mut out = vec![0; SrNearRepr::LEN];
            REPR.emit(&mut out).unwrap();
            out[0] |= 1;
            out.extend([hops, format, 0, 0]);
            out.resize(out.len() + bytes, 7);
            let found = SrNearRepr::parse(0, &out).map(|near| near.int.len());
            assert_eq!(found, want, "{hops} {format}");
        }
    }

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
        for (first, why) in [(0x00, DropReason::SrVersion), (0x12, DropReason::SrKind)] {
            out[0] = first;
            assert_eq!(SrNearRepr::parse(0, &out[..SrNearRepr::LEN]), Err(why));
        }
    }

    proptest! {
        #[test]
        fn parse__never_panics_and_accepted_headers_round_trip(
            psn in 0u32..1 << 24,
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            first in prop::sample::select(vec![0x10, 0x11, 0x12]),
            hops in 0..4_u8,
        ) {
            for (at, value) in [(0, first), (12, hops), (13, hops & 1)] {
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
            }
            if let Ok(repr) = SrNearRepr::parse(psn, &bytes) {
                let mut again = vec![0; repr.header_len()];
                repr.emit(&mut again).unwrap();
                again[3] = bytes[3]; // reserved
                prop_assert_eq!(&again[..], &bytes[..]);
            }
        }
    }
}
