//! Blocks of an erasure code: a packet's place in its block, and reports of a block's state.
//!
//! ```text
//! place    index 8 | data 8 | parity 8 | scheme 8
//! reports  count 8 | reserved 24, then for each:
//!          first PSN 32 | kind 8 | data 8 | reserved 16 | bits 64
//! ```
//! docs/protocol/sr.md, "Blocks", defines their meaning.

use crate::split::{take, take_mut};
use crate::{BufferTooShort, DropReason, be};

/// The most packets of a block. A report has a bit for each.
pub const BLOCK_PKTS_MAX: u8 = 64;

/// The most reports of one acknowledgement.
pub const BLOCK_REPORTS_MAX: usize = 4;

/// A packet's place in its block. The block's first PSN is the packet's less `index`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRepr {
    /// The packet's index: data come first, then the rows of parity. Below `data + parity`.
    pub index: u8,
    /// Data packets of the block, at least 1.
    pub data: u8,
    /// Parity packets of the block, at least 1; with the data at most [`BLOCK_PKTS_MAX`].
    pub parity: u8,
    /// The number of the code's scheme. Receivers that do not know the scheme discard its parity.
    pub scheme: u8,
}

/// The kind of a report by the receiver of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BlockReportKind {
    /// Too few packets arrived and no more are expected: `bits` are the packets that count.
    #[default]
    Nack,
    /// The packets `bits` did not arrive and are no longer needed.
    Settled,
    /// The packets `bits` were recovered by decoding. They may still arrive.
    Recovered,
}

/// A report of one block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockReport {
    /// The block's first PSN.
    pub first: u32,
    /// The kind of report.
    pub kind: BlockReportKind,
    /// Data packets of the block.
    pub data: u8,
    /// Packets: bit i is `first + i`.
    pub bits: u64,
}

/// A list of at most [`BLOCK_REPORTS_MAX`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockReports {
    reports: [BlockReport; BLOCK_REPORTS_MAX],
    len: u8,
}

impl BlockRepr {
    /// It is one of the parity packets.
    #[must_use]
    #[inline]
    pub const fn is_parity(&self) -> bool {
        self.index >= self.data
    }

    /// Packets of the block.
    #[must_use]
    #[inline]
    pub const fn pkts(&self) -> u8 {
        self.data + self.parity
    }

    /// # Errors
    /// [`DropReason::SrKind`] for an impossible block.
    pub(crate) fn parse([index, data, parity, scheme]: [u8; LEN]) -> Result<Self, DropReason> {
        let pkts = u16::from(data) + u16::from(parity);
        let fits = data > 0 && parity > 0 && pkts <= BLOCK_PKTS_MAX.into();
        if !fits || u16::from(index) >= pkts {
            return Err(DropReason::SrKind);
        }
        Ok(Self { index, data, parity, scheme })
    }

    pub(crate) fn emit(&self) -> [u8; LEN] {
        [self.index, self.data, self.parity, self.scheme]
    }
}

impl BlockReports {
    /// Adds a report; false when the list is full.
    pub fn push(&mut self, report: BlockReport) -> bool {
        let place = self.reports.get_mut(usize::from(self.len));
        let added = place.map(|place| *place = report).is_some();
        self.len += u8::from(added);
        added
    }

    /// The reports, in the order of the wire.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[BlockReport] {
        &self.reports[..usize::from(self.len)]
    }

    /// Bytes on the wire; 0 for an empty list.
    #[must_use]
    pub(crate) fn wire_len(&self) -> usize {
        if self.len == 0 { 0 } else { COUNT_LEN + usize::from(self.len) * REPORT_LEN }
    }

    /// Parses a list, which has at least one report, off the front of `rest`.
    #[inline(never)]
    pub(crate) fn take(rest: &mut &[u8]) -> Result<Self, DropReason> {
        let &[count, ..] = take::<COUNT_LEN>(rest)?;
        if !(1..=BLOCK_REPORTS_MAX).contains(&usize::from(count)) {
            return Err(DropReason::SrKind);
        }
        let mut list = Self::default();
        for _ in 0..count {
            let report: &[u8; REPORT_LEN] = take(rest)?;
            let kind = match report[4] {
                0 => BlockReportKind::Nack,
                1 => BlockReportKind::Settled,
                2 => BlockReportKind::Recovered,
                _ => return Err(DropReason::SrKind),
            };
            let (first, data) = (be::u32_at(report, 0), report[5]);
            if !(1..BLOCK_PKTS_MAX).contains(&data) {
                return Err(DropReason::SrKind);
            }
            list.push(BlockReport { first, kind, data, bits: be::u64_at(report, 8) });
        }
        Ok(list)
    }

    pub(crate) fn emit(&self, rest: &mut &mut [u8]) -> Result<(), BufferTooShort> {
        *take_mut::<COUNT_LEN>(rest)? = [self.len, 0, 0, 0];
        for report in self.as_slice() {
            let out: &mut [u8; REPORT_LEN] = take_mut(rest)?;
            be::put(out, 0, report.first.to_be_bytes());
            be::put(out, 4, [report.kind as u8, report.data, 0, 0]);
            be::put(out, 8, report.bits.to_be_bytes());
        }
        Ok(())
    }
}

/// Bytes of a packet's place in its block.
pub(crate) const LEN: usize = 4;
const COUNT_LEN: usize = 4;
const REPORT_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__accepts_exactly_the_valid_blocks() {
        for bytes in [[0, 8, 2, 1], [9, 8, 2, 1], [63, 63, 1, 2], [0, 1, 63, 9]] {
            let block = BlockRepr::parse(bytes).unwrap();
            assert_eq!(block.emit(), bytes);
            assert_eq!(block.is_parity(), bytes[0] >= bytes[1]);
        }
        for bytes in [[0, 0, 2, 1], [0, 8, 0, 1], [10, 8, 2, 1], [0, 63, 2, 1], [0, 255, 255, 1]] {
            assert_eq!(BlockRepr::parse(bytes), Err(DropReason::SrKind), "{bytes:?}");
        }
    }

    #[test]
    fn take__parses_what_emit_wrote_and_rejects_the_rest() {
        let mut list = BlockReports::default();
        for (i, kind) in [BlockReportKind::Nack, BlockReportKind::Settled]
            .into_iter()
            .cycle()
            .take(5)
            .enumerate()
        {
            let report = BlockReport { first: 7 << i, kind, data: 8, bits: 0x2ff >> i };
            assert_eq!(list.push(report), i < BLOCK_REPORTS_MAX);
        }
        let mut bytes = vec![0; list.wire_len()];
        list.emit(&mut &mut bytes[..]).unwrap();
        assert_eq!(BlockReports::take(&mut &bytes[..]), Ok(list));
        for cut in 0..bytes.len() {
            let short = BlockReports::take(&mut &bytes[..cut]);
            assert_eq!(short, Err(DropReason::ExtTooShort));
            assert!(list.emit(&mut &mut vec![0; cut][..]).is_err());
        }
        for (at, wrong) in [(0, 0), (0, 5), (8, 3), (9, 0), (9, 64)] {
            let mut other = bytes.clone();
            other[at] = wrong;
            assert_eq!(BlockReports::take(&mut &other[..]), Err(DropReason::SrKind), "{at}");
        }
        assert_eq!(BlockReports::default().wire_len(), 0);
    }
}
