//! The fields of SR packets that a switch reads as they pass. They are found without checking the
//! rest, and nothing of it is needed to find them.

use crate::int::IntRecords;
use crate::sr_data::{
    ATOMIC, BLOCK, BLOCK_BYTES, IETH, IMM, KNOWN, ORIGINAL, RECEIVE, RESPONSE_TO, RETH, SOURCE_QPN,
    VERSION,
};
use crate::{Qpn, SrCredit, atomic, be, reth, sr_ack, sr_data};

/// The fields of SR data that a switch reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrDataPassing {
    /// The PSN.
    pub psn: u32,
    /// When it was sent, by its sender's clock, ps.
    pub sent_ps: u64,
    /// The sender's QPN, if it is there.
    pub source_qpn: Option<Qpn>,
}

/// The fields of an SR acknowledgement that a switch reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrAckPassing {
    /// The PSN of the last arrival.
    pub newest: u32,
    /// From its arrival to this acknowledgement, ns; saturates.
    pub ack_delay_ns: u32,
    /// It may have arrived earlier by so much, ns; saturates.
    pub rx_delay_ns: u32,
    /// Credit, if it is there.
    pub credit: Option<SrCredit>,
}

impl SrDataPassing {
    /// The fields in `bytes`, which follow the BTH; `psn_low` is the BTH's PSN. `None` if they are
    /// too short, of another version, or have unknown parts.
    #[must_use]
    #[inline]
    pub fn of(psn_low: u32, bytes: &[u8]) -> Option<Self> {
        let fixed: &[u8; sr_data::FIXED_LEN] = bytes.first_chunk()?;
        let bits = be::u16_at(fixed, 2);
        if fixed[0] >> 4 != VERSION || bits & !KNOWN != 0 {
            return None;
        }
        let source_qpn = match bits & SOURCE_QPN {
            0 => None,
            _ => {
                let word: &[u8; 4] = bytes.get(source_qpn_at(bits)..)?.first_chunk()?;
                Some(Qpn::new(u32::from_be_bytes(*word) >> 8))
            }
        };
        let psn = u32::from(fixed[1]) << 24 | psn_low;
        Some(Self { psn, sent_ps: be::u64_at(fixed, 8), source_qpn })
    }
}

impl SrAckPassing {
    /// The fields in `bytes`, which follow the BTH; `None` if they are too short, or of another
    /// version.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let fixed: &[u8; sr_ack::FIXED_LEN] = bytes.first_chunk()?;
        (fixed[0] >> 4 == VERSION).then(|| Self {
            newest: be::u32_at(fixed, 4),
            ack_delay_ns: be::u32_at(fixed, 20),
            rx_delay_ns: be::u32_at(fixed, 24),
            credit: credit_of(fixed, bytes),
        })
    }
}

/// The credit of an acknowledgement, which is behind the words, the refusal and the telemetry.
#[inline]
fn credit_of(fixed: &[u8; sr_ack::FIXED_LEN], bytes: &[u8]) -> Option<SrCredit> {
    let bits = be::u16_at(fixed, 2);
    if bits & sr_ack::CREDIT == 0 {
        return None;
    }
    let words = usize::from(fixed[0] & 0xf) * sr_ack::WORD_LEN;
    let nak = if fixed[10] == sr_ack::REFUSED { sr_ack::NAK_LEN } else { 0 };
    let mut rest = bytes.get(sr_ack::FIXED_LEN + words + nak..)?;
    if bits & sr_ack::INT != 0 {
        IntRecords::take(&mut rest).ok()?;
    }
    Some(SrCredit::parse(rest.first_chunk()?))
}

/// The place of the sender's QPN, which is behind all other parts.
#[inline]
fn source_qpn_at(bits: u16) -> usize {
    let has = |bit: u16| usize::from(bits & bit != 0);
    let long = has(RETH) * reth::LEN + has(ATOMIC) * atomic::LEN + has(ORIGINAL) * 8;
    let words = usize::try_from((bits & WORDS).count_ones()).unwrap_or(0);
    sr_data::FIXED_LEN + long + words * 4
}

/// The parts of one word.
const WORDS: u16 = IMM | IETH | RECEIVE | RESPONSE_TO | BLOCK | BLOCK_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AtomicEthRepr, BlockRepr, NakCode, RethRepr, SackWord, SrAckRepr, SrDataRepr, SrKind, SrNak,
    };
    use proptest::prelude::*;

    fn passing(repr: &SrDataRepr) -> Option<SrDataPassing> {
        let mut bytes = vec![0; repr.header_len()];
        repr.emit(&mut bytes).unwrap();
        SrDataPassing::of(repr.psn & 0xff_ffff, &bytes)
    }

    proptest! {
        /// Every combination of parts, valid or not: the fields are those that were emitted.
        #[test]
        fn of__finds_the_fields_behind_any_parts(
            parts in any::<[bool; 9]>(),
            psn in any::<u32>(),
            sent_ps in any::<u64>(),
        ) {
            let some = |n: usize| parts[n].then_some(7);
            let repr = SrDataRepr {
                sent_ps,
                reth: parts[0].then_some(RethRepr { va: 1, rkey: 2, dma_len: 3 }),
                atomic: parts[1].then_some(AtomicEthRepr::default()),
                imm: some(2),
                ieth: some(3),
                receive: some(4),
                response_to: some(5),
                original: some(6).map(u64::from),
                block: parts[7].then_some(BlockRepr { index: 0, data: 8, parity: 2, scheme: 1 }),
                source_qpn: parts[8].then_some(Qpn::new(0x12_3456)),
                ..SrDataRepr::new(SrKind::Send, psn, 0)
            };
            let SrDataRepr { source_qpn, .. } = repr;
            prop_assert_eq!(passing(&repr), Some(SrDataPassing { psn, sent_ps, source_qpn }));
        }

        #[test]
        fn of__never_panics(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
            _ = SrDataPassing::of(0, &bytes);
            _ = SrAckPassing::of(&bytes);
        }
    }

    #[test]
    fn of__an_acknowledgement_s_times() {
        let credit = SrCredit { credit: 4, rate_kbps: 5, suggested_kbps: 6 };
        let mut repr =
            SrAckRepr { newest: 9, ack_delay_ns: 20_000, rx_delay_ns: 3, ..SrAckRepr::default() };
        assert!(repr.words.push(SackWord { base: 64, bits: 1 }));
        let mut bytes = vec![0; repr.header_len()];
        repr.emit(&mut bytes).unwrap();
        let expected =
            SrAckPassing { newest: 9, ack_delay_ns: 20_000, rx_delay_ns: 3, credit: None };
        assert_eq!(SrAckPassing::of(&bytes), Some(expected));
        assert_eq!(SrAckPassing::of(&bytes[..59]), None);
        bytes[0] ^= 0xf0;
        assert_eq!(SrAckPassing::of(&bytes), None);
        // Behind words, a refusal and telemetry.
        let echo = [&[2, 1, 0, 0][..], &[7; 16]].concat();
        let nak = Some(SrNak { psn: 1, code: NakCode::RemoteAccess });
        for (nak, int) in [(None, IntRecords::NONE), (nak, IntRecords::parse(&echo))] {
            let repr = SrAckRepr { nak, int, credit: Some(credit), marks: Some(1), ..repr };
            let mut bytes = vec![0; repr.header_len()];
            repr.emit(&mut bytes).unwrap();
            assert_eq!(SrAckPassing::of(&bytes).and_then(|ack| ack.credit), Some(credit));
            let cut = SrAckPassing::of(&bytes[..bytes.len() - 9]);
            assert_eq!(cut.map(|ack| ack.credit), Some(None), "cut");
        }
    }
}
