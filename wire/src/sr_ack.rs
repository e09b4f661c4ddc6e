//! The header of an SR acknowledgement, after the BTH: arrivals, their times and their ECN marks.
//!
//! ```text
//!  0      version 4 = 1 | words 4
//!  1      `next` 31..24 (the BTH has the rest)
//!  2..4   presence bits
//!  4..8   newest: PSN of the last arrival
//!  8..10  path of the newest
//! 10      reason
//! 11      hop limit of the newest on arrival
//! 12..20  echo: time sent of the newest
//! 20..24  hold: its arrival to this acknowledgement, ns
//! 24..28  receive delay: port to engine, ns
//! 28..32  packets received
//! 32..36  packets marked CE
//! 36..44  bytes received
//! 44..52  bytes marked CE
//! 52..56  PSN limit
//! 56..60  receive limit
//! 60..    12 bytes a word: base 32, bits 64; then, if refused: PSN 32, code 8, reserved 24; then,
//!         with presence bit 0: hops 8, format 8, reserved 16, 24 or 8 bytes a hop;
//!         with presence bit 1: credit 32, credit rate 32, suggested rate 32 (kbit/s);
//!         with presence bit 2: reports of blocks; with presence bit 3: marks 64
//! ```
//! The layout and its reasons are in docs/protocol/sr.md, "Packets".

use crate::BufferTooShort;
use crate::int::IntRecords;
use crate::split::{take, take_mut};
use crate::sr_data::VERSION;
use crate::{BlockReports, DropReason, NakCode, be};

/// The most bitmap words of one acknowledgement.
pub const SACK_WORDS_MAX: usize = 15;

/// The arrival bitmap of 64 packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackWord {
    /// The PSN of bit 0, a multiple of 64.
    pub base: u32,
    /// Bit i: `base + i` has arrived.
    pub bits: u64,
}

/// A list of at most [`SACK_WORDS_MAX`] words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackWords {
    words: [SackWord; SACK_WORDS_MAX],
    len: usize,
}

/// The reason for sending an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AckReason {
    /// The packet count limit was reached.
    #[default]
    Count,
    /// The delay limit of an arrival was reached.
    Time,
    /// A gap, a duplicate or a CE mark.
    Gap,
    /// The sender requested it.
    Requested,
    /// A limit that the sender had reached has advanced.
    Limit,
    /// A request was rejected.
    Nak,
    /// A block was recovered, or lacks packets.
    Block,
    /// The newest packet was discarded, because no receive request was posted.
    NoReceive,
}

/// A negative acknowledgement (NAK): a request was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrNak {
    /// The PSN of its packet.
    pub psn: u32,
    /// The reason.
    pub code: NakCode,
}

/// The credit of a flow's receiver, for the switch that releases its packets into the receiver's
/// datacenter, and for its sender (MLCC). Sent only if both ends listed the feature `mlcc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrCredit {
    /// The number of the receiver's round, modulo 2^32 (C_R).
    pub credit: u32,
    /// The rate at which the switch releases the flow, kbit/s (R_credit); saturates.
    pub rate_kbps: u32,
    /// The rate at which the sender sends at most, kbit/s; saturates.
    pub suggested_kbps: u32,
}

/// The header of an SR acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrAckRepr<'a> {
    /// The lowest PSN that has not arrived: the BTH has the low 24 bits.
    pub next: u32,
    /// The PSN of the last arrival.
    pub newest: u32,
    /// The path of the newest.
    pub path: u16,
    /// The reason for sending it.
    pub reason: AckReason,
    /// Hop limit, or TTL, of the newest at the receiver; 0 if not reported.
    pub hop_limit: u8,
    /// The newest packet's time sent, echoed.
    pub echo_ps: u64,
    /// From its arrival to this acknowledgement, ns; saturates.
    pub ack_delay_ns: u32,
    /// It may have arrived earlier by so much, ns; saturates: the wait in a receive ring without
    /// timestamps.
    pub rx_delay_ns: u32,
    /// Packets received since the connection began, duplicates included, modulo 2^32.
    pub rx_pkts: u32,
    /// Of those marked CE.
    pub ce_pkts: u32,
    /// Bytes of IP packets received since the connection began.
    pub rx_bytes: u64,
    /// Of those marked CE.
    pub ce_bytes: u64,
    /// The receiver discards packets with this PSN or above.
    pub psn_limit: u32,
    /// The receiver has no receive request with this number or above.
    pub receive_limit: u32,
    /// Arrivals above `next`, as far as they fit.
    pub words: SackWords,
    /// A NAK; present if and only if the reason is [`AckReason::Nak`].
    pub nak: Option<SrNak>,
    /// The records of switches that followed the newest.
    pub int: IntRecords<'a>,
    /// The receiver's credit.
    pub credit: Option<SrCredit>,
    /// Reports of blocks.
    pub blocks: BlockReports,
    /// The packets marked CE, if some were marked and some were not: bit i is the PSN of the newest
    /// less i. Not 0.
    pub marks: Option<u64>,
}

impl SackWord {
    /// Its bytes on the wire.
    pub const LEN: usize = WORD_LEN;
}

impl SackWords {
    /// Adds a word; false when the list is full.
    pub fn push(&mut self, word: SackWord) -> bool {
        let place = self.words.get_mut(self.len);
        let added = place.map(|place| *place = word).is_some();
        self.len += usize::from(added);
        added
    }

    /// Keeps only the first `len` words.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.words[len..self.len].fill(SackWord::default());
            self.len = len;
        }
    }

    /// The words, in the order of the wire.
    #[must_use]
    pub fn as_slice(&self) -> &[SackWord] {
        &self.words[..self.len]
    }
}

impl<'a> SrAckRepr<'a> {
    /// The most bytes of a header without bitmap words, telemetry and reports.
    pub const WORDLESS_LEN: usize = FIXED_LEN + NAK_LEN;

    /// Bytes of the header, 60..=724.
    #[must_use]
    pub fn header_len(&self) -> usize {
        let nak = if self.nak.is_some() { NAK_LEN } else { 0 };
        let marks = if self.marks.is_some() { MARKS_LEN } else { 0 };
        let credit = if self.credit.is_some() { SrCredit::LEN } else { 0 };
        let int = self.int.as_bytes().len();
        FIXED_LEN + self.words.len * WORD_LEN + nak + int + credit + self.blocks.wire_len() + marks
    }

    /// Parses all of `bytes`, which follow the BTH. `next_low` is the BTH's PSN.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`], [`DropReason::SrVersion`], [`DropReason::SrFeature`] or
    /// [`DropReason::UnexpectedPayload`]. [`DropReason::SrKind`] for an unknown reason or rejection
    /// code, a word that begins within a word, telemetry in an unknown format, or a number of hops
    /// that is 0 or too large.
    pub fn parse(next_low: u32, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (fixed, mut rest) = bytes.split_first_chunk().ok_or(DropReason::ExtTooShort)?;
        let fixed: &[u8; FIXED_LEN] = fixed;
        if fixed[0] >> 4 != VERSION {
            return Err(DropReason::SrVersion);
        }
        let presence = be::u16_at(fixed, 2);
        if presence & !(INT | CREDIT | BLOCKS | MARKS) != 0 {
            return Err(DropReason::SrFeature);
        }
        let reason = AckReason::from_u8(fixed[10]).ok_or(DropReason::SrKind)?;
        let mut this = Self {
            next: u32::from(fixed[1]) << 24 | next_low,
            newest: be::u32_at(fixed, 4),
            path: be::u16_at(fixed, 8),
            reason,
            hop_limit: fixed[11],
            echo_ps: be::u64_at(fixed, 12),
            ack_delay_ns: be::u32_at(fixed, 20),
            rx_delay_ns: be::u32_at(fixed, 24),
            rx_pkts: be::u32_at(fixed, 28),
            ce_pkts: be::u32_at(fixed, 32),
            rx_bytes: be::u64_at(fixed, 36),
            ce_bytes: be::u64_at(fixed, 44),
            psn_limit: be::u32_at(fixed, 52),
            receive_limit: be::u32_at(fixed, 56),
            ..Self::default()
        };
        for _ in 0..fixed[0] & 0xf {
            let word: &[u8; WORD_LEN] = take(&mut rest)?;
            let (base, bits) = (be::u32_at(word, 0), be::u64_at(word, 4));
            if !base.is_multiple_of(64) {
                return Err(DropReason::SrKind);
            }
            this.words.push(SackWord { base, bits });
        }
        if reason == AckReason::Nak {
            let nak: &[u8; NAK_LEN] = take(&mut rest)?;
            let code = NakCode::from_u8(nak[4]).ok_or(DropReason::SrKind)?;
            this.nak = Some(SrNak { psn: be::u32_at(nak, 0), code });
        }
        if presence & INT != 0 {
            this.int = IntRecords::take(&mut rest)?;
        }
        if presence & CREDIT != 0 {
            this.credit = Some(SrCredit::parse(take(&mut rest)?));
        }
        if presence & BLOCKS != 0 {
            this.blocks = BlockReports::take(&mut rest)?;
        }
        if presence & MARKS != 0 {
            this.marks = Some(u64::from_be_bytes(*take(&mut rest)?));
        }
        if rest.is_empty() { Ok(this) } else { Err(DropReason::UnexpectedPayload) }
    }

    /// Writes the header into the first [`SrAckRepr::header_len`] bytes of `out`. The BTH
    /// gets the low 24 bits of `next`.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn emit(&self, out: &mut [u8]) -> Result<(), BufferTooShort> {
        let out = out.get_mut(..self.header_len()).ok_or(BufferTooShort)?;
        let (fixed, mut rest) = out.split_first_chunk_mut().ok_or(BufferTooShort)?;
        let fixed: &mut [u8; FIXED_LEN] = fixed;
        let words = u8::try_from(self.words.len).map_err(|_| BufferTooShort)?;
        let int_bytes = self.int.as_bytes();
        let [next_hi, ..] = self.next.to_be_bytes();
        let reason = match self.nak {
            Some(_) => AckReason::Nak,
            None => self.reason,
        };
        be::put(fixed, 0, [VERSION << 4 | words, next_hi]);
        let int = if int_bytes.is_empty() { 0 } else { INT };
        let blocks = if self.blocks.as_slice().is_empty() { 0 } else { BLOCKS };
        let marks = if self.marks.is_some() { MARKS } else { 0 };
        let credit = if self.credit.is_some() { CREDIT } else { 0 };
        be::put(fixed, 2, (int | credit | blocks | marks).to_be_bytes());
        be::put(fixed, 4, self.newest.to_be_bytes());
        be::put(fixed, 8, self.path.to_be_bytes());
        be::put(fixed, 10, [reason.to_u8(), self.hop_limit]);
        be::put(fixed, 12, self.echo_ps.to_be_bytes());
        be::put(fixed, 20, self.ack_delay_ns.to_be_bytes());
        be::put(fixed, 24, self.rx_delay_ns.to_be_bytes());
        be::put(fixed, 28, self.rx_pkts.to_be_bytes());
        be::put(fixed, 32, self.ce_pkts.to_be_bytes());
        be::put(fixed, 36, self.rx_bytes.to_be_bytes());
        be::put(fixed, 44, self.ce_bytes.to_be_bytes());
        be::put(fixed, 52, self.psn_limit.to_be_bytes());
        be::put(fixed, 56, self.receive_limit.to_be_bytes());
        for word in self.words.as_slice() {
            let out: &mut [u8; WORD_LEN] = take_mut(&mut rest)?;
            be::put(out, 0, word.base.to_be_bytes());
            be::put(out, 4, word.bits.to_be_bytes());
        }
        if let Some(nak) = &self.nak {
            let out: &mut [u8; NAK_LEN] = take_mut(&mut rest)?;
            be::put(out, 0, nak.psn.to_be_bytes());
            be::put(out, 4, [nak.code.to_u8(), 0, 0, 0]);
        }
        if !int_bytes.is_empty() {
            let (out, behind) = rest.split_at_mut(int_bytes.len());
            out.copy_from_slice(int_bytes);
            rest = behind;
        }
        if let Some(credit) = self.credit {
            credit.emit(take_mut(&mut rest)?);
        }
        if blocks != 0 {
            self.blocks.emit(&mut rest)?;
        }
        if let Some(marks) = self.marks {
            *take_mut(&mut rest)? = marks.to_be_bytes();
        }
        Ok(())
    }
}

impl SrCredit {
    /// Its bytes on the wire.
    pub const LEN: usize = 12;

    pub(crate) const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            credit: be::u32_at(bytes, 0),
            rate_kbps: be::u32_at(bytes, 4),
            suggested_kbps: be::u32_at(bytes, 8),
        }
    }

    fn emit(self, out: &mut [u8; Self::LEN]) {
        be::put(out, 0, self.credit.to_be_bytes());
        be::put(out, 4, self.rate_kbps.to_be_bytes());
        be::put(out, 8, self.suggested_kbps.to_be_bytes());
    }
}

impl AckReason {
    const ALL: [Self; 8] = [
        Self::Count,
        Self::Time,
        Self::Gap,
        Self::Requested,
        Self::Limit,
        Self::Nak,
        Self::Block,
        Self::NoReceive,
    ];

    fn from_u8(v: u8) -> Option<Self> {
        Self::ALL.get(usize::from(v)).copied()
    }

    fn to_u8(self) -> u8 {
        self as u8
    }
}

/// The number of [`AckReason::Nak`], with which a refusal follows the words.
pub(crate) const REFUSED: u8 = AckReason::Nak as u8;

/// Bytes of the part that every acknowledgement has.
pub(crate) const FIXED_LEN: usize = 60;
pub(crate) const WORD_LEN: usize = 12;
pub(crate) const NAK_LEN: usize = 8;
/// Presence bit: records of switches follow.
pub(crate) const INT: u16 = 1 << 0;
/// Presence bit: the receiver's credit follows.
pub(crate) const CREDIT: u16 = 1 << 1;
/// Presence bit: reports of blocks follow.
const BLOCKS: u16 = 1 << 2;
/// Presence bit: the packets marked CE follow.
const MARKS: u16 = 1 << 3;
const MARKS_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockReport, BlockReportKind, INT_ECHO_HEADER_LEN, INT_FULL_LEN, IntFormat};
    use proptest::prelude::*;

    fn sample(words: u32, nak: Option<SrNak>) -> SrAckRepr<'static> {
        let mut repr = SrAckRepr {
            next: 0xab12_3456,
            newest: 0xab12_4000,
            path: 7,
            reason: if nak.is_some() { AckReason::Nak } else { AckReason::Gap },
            hop_limit: 61,
            echo_ps: 1 << 60,
            ack_delay_ns: 3,
            rx_delay_ns: 4,
            rx_pkts: 5,
            ce_pkts: 6,
            rx_bytes: 7 << 40,
            ce_bytes: 8 << 40,
            psn_limit: 9,
            receive_limit: 10,
            nak,
            ..SrAckRepr::default()
        };
        for i in 0..words {
            assert!(repr.words.push(SackWord { base: i * 64, bits: !u64::from(i) }));
        }
        repr
    }

    /// The echo of `hops` records in the format with this number.
    fn echo(hops: u8, format: u8) -> IntRecords<'static> {
        let len = IntFormat::from_u8(format).map_or(0, IntFormat::record_len);
        let mut bytes = vec![hops, format, 0, 0];
        bytes.resize(INT_ECHO_HEADER_LEN + usize::from(hops) * len, 0x5a);
        IntRecords::parse(bytes.leak())
    }

    fn samples() -> Vec<SrAckRepr<'static>> {
        let nak = SrNak { psn: 0xab12_3456, code: NakCode::RemoteAccess };
        let mut all = Vec::new();
        for words in [0, 1, 15] {
            for (hops, format) in [(0, 0), (1, 0), (16, 0), (1, 1), (16, 1)] {
                for nak in [None, Some(nak)] {
                    let int = echo(hops, format);
                    all.push(SrAckRepr { int, ..sample(words, nak) });
                    let mut blocks = BlockReports::default();
                    blocks.push(BlockReport {
                        first: 9,
                        kind: BlockReportKind::Settled,
                        data: 8,
                        bits: 5,
                    });
                    all.push(SrAckRepr { int, blocks, ..sample(words, nak) });
                    let credit =
                        Some(SrCredit { credit: 1, rate_kbps: 2 << 24, suggested_kbps: 3 });
                    all.push(SrAckRepr { int, credit, ..sample(words, nak) });
                    let marks = Some(0x8000_0000_0000_0005);
                    all.push(SrAckRepr { int, blocks, marks, ..sample(words, nak) });
                    all.push(SrAckRepr { int, credit, blocks, marks, ..sample(words, nak) });
                }
            }
        }
        all
    }

    fn bytes_of(repr: &SrAckRepr<'_>) -> Vec<u8> {
        let mut out = vec![0xee; repr.header_len()];
        repr.emit(&mut out).unwrap();
        out
    }

    #[test]
    fn push__stops_at_the_limit() {
        let mut full = sample(15, None).words;
        assert!(!full.push(SackWord::default()));
        assert_eq!(full.as_slice().len(), SACK_WORDS_MAX);
    }

    #[test]
    fn truncate__keeps_the_first() {
        let mut repr = sample(15, None);
        repr.words.truncate(20);
        assert_eq!(repr, sample(15, None));
        repr.words.truncate(3);
        assert_eq!(repr, sample(3, None));
    }

    #[test]
    fn parse__returns_what_was_emitted() {
        for repr in samples() {
            assert_eq!(SrAckRepr::parse(0x12_3456, &bytes_of(&repr)), Ok(repr));
        }
    }

    #[test]
    fn parse__requires_the_exact_length() {
        for repr in samples() {
            let mut bytes = bytes_of(&repr);
            for cut in 0..bytes.len() {
                let got = SrAckRepr::parse(0, &bytes[..cut]);
                assert_eq!(got, Err(DropReason::ExtTooShort));
                assert_eq!(repr.emit(&mut vec![0; cut]), Err(BufferTooShort));
            }
            bytes.push(0);
            assert_eq!(SrAckRepr::parse(0, &bytes), Err(DropReason::UnexpectedPayload));
        }
    }

    #[test]
    fn parse__rejects_unknown_versions_and_parts() {
        let bytes = bytes_of(&sample(1, None));
        for (at, value, want) in [
            (0, 2 << 4 | 1, DropReason::SrVersion),
            (2, 1, DropReason::SrFeature),
            (3, 16, DropReason::SrFeature),
            (10, 8, DropReason::SrKind),
            (63, 1, DropReason::SrKind),
        ] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(SrAckRepr::parse(0, &other), Err(want));
        }
    }

    #[test]
    fn parse__accepts_one_to_sixteen_hops_of_a_known_format() {
        let mut bytes = bytes_of(&SrAckRepr { int: echo(16, 0), ..sample(0, None) });
        for (hops, format, want) in [
            (0, 0, DropReason::SrKind),
            (15, 0, DropReason::UnexpectedPayload),
            (16, 1, DropReason::UnexpectedPayload),
            (17, 0, DropReason::SrKind),
            (17, 1, DropReason::SrKind),
            (255, 0, DropReason::SrKind),
            (1, 2, DropReason::SrKind),
            (1, 255, DropReason::SrKind),
        ] {
            (bytes[60], bytes[61]) = (hops, format);
            bytes.resize(64 + 17 * INT_FULL_LEN, 0);
            assert_eq!(SrAckRepr::parse(0, &bytes), Err(want), "{hops} {format}");
        }
    }

    proptest! {
        #[test]
        fn parse__never_panics(
            next in 0u32..1 << 24,
            mut bytes in prop::collection::vec(any::<u8>(), 0..700),
            plausible in any::<bool>(),
        ) {
            if let (true, [first, _, a, b, ..]) = (plausible, &mut bytes[..]) {
                (*first, *a, *b) = (VERSION << 4 | *first & 0xf, 0, *b & 3);
                let format_at = FIXED_LEN + usize::from(*first & 0xf) * WORD_LEN + 1;
                bytes.get_mut(format_at).iter_mut().for_each(|format| **format &= 1);
            }
            if let Ok(repr) = SrAckRepr::parse(next, &bytes) {
                prop_assert_eq!(repr.header_len(), bytes.len());
                let again = bytes_of(&repr);
                prop_assert_eq!(SrAckRepr::parse(next, &again), Ok(repr));
            }
        }
    }
}
