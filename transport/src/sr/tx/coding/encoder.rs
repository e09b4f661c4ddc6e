//! The FEC encoder: which packets form a block, and its parity (docs/protocol/sr.md, "Blocks", 1 to
//! 3).

use super::digest::digest;
use crate::coding::{CodingWhen, ErasureCoding};
use crate::sr::tx::rtt::Rtt;
use spanwire_base::{Dur, usize_from};
use spanwire_erasure::{Code, parity_for};
use spanwire_wire::{BlockRepr, SrDataRepr};
use std::num::NonZeroU64;

/// Divides data into blocks and computes their parity.
#[derive(Debug)]
pub(super) struct Encoder {
    choice: ErasureCoding,
    /// The configured base RTT, if any.
    base_rtt: Option<Dur>,
    /// Parity packets of new blocks.
    parity: u8,
    loss: LossMeter,
    /// The running parity of the open block, one row for each parity packet; as many rows as the
    /// most parity packets.
    rows: Vec<Vec<u8>>,
    open: Option<OpenBlock>,
    /// The digest of the source packet that was written last.
    pub(super) digest: Option<NonZeroU64>,
}

/// The open block: at least one of its packets was sent, and not all.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    code: Code,
    /// The position of its next packet.
    block: BlockRepr,
    /// The header of a segment with all data of the block.
    block_header: SrDataRepr,
    solicited: bool,
    /// Bytes of its data.
    bytes: u32,
    /// The length of its full segments. Later blocks may have another one.
    segment_bytes: u32,
    /// Its data are a READ response, not a request.
    is_response: bool,
}

/// The recent loss rate of coded packets.
#[derive(Clone, Copy, Debug, Default)]
struct LossMeter {
    sent: u32,
    lost: u32,
    smoothed_ppm: u32,
}

impl Encoder {
    pub(super) fn new(choice: ErasureCoding, base_rtt: Option<Dur>) -> Self {
        let rows = vec![Vec::new(); choice.parity_max().into()];
        let loss = LossMeter::default();
        Self { choice, base_rtt, parity: choice.parity, loss, rows, open: None, digest: None }
    }

    /// The next packet of the open block: its position, whether its data are a READ response, and
    /// the length of full segments. Nothing else may begin before the block is complete.
    pub(super) fn next(&self) -> Option<(BlockRepr, (bool, u32))> {
        let open = self.open.as_ref()?;
        Some((open.block, (open.is_response, open.segment_bytes)))
    }

    /// The position of a packet that would begin a block; none if it is not coded. Its message has
    /// `left_bytes` from it on, in segments of `segment_bytes`.
    pub(super) fn plan_block(
        &self,
        left_bytes: u32,
        segment_bytes: u32,
        rtt: &Rtt,
    ) -> Option<BlockRepr> {
        let measured = rtt.srtt().map(|_| rtt.min_rtt());
        let is_on = match self.choice.when {
            CodingWhen::Always => true,
            CodingWhen::BaseRtt(least) => {
                self.base_rtt.or(measured).is_some_and(|rtt| rtt >= least)
            }
        };
        let segments = left_bytes.div_ceil(segment_bytes.max(1));
        let data = u8::try_from(segments).unwrap_or(u8::MAX).min(self.choice.data);
        let (parity, scheme) = (self.parity, self.choice.scheme.id());
        (is_on && data > 0).then_some(BlockRepr { index: 0, data, parity, scheme })
    }

    /// Opens a block, whose first packet is about to be written. `block_header` is the header of a
    /// segment with all its `bytes` of data, with its solicited bit.
    pub(super) fn open(
        &mut self,
        block: BlockRepr,
        (block_header, solicited): (SrDataRepr, bool),
        bytes: u32,
        (is_response, segment_bytes): (bool, u32),
    ) {
        let code = Code::new(self.choice.scheme, block.data.into(), block.parity.into());
        let Ok(code) = code else { return };
        self.rows.iter_mut().for_each(Vec::clear);
        self.open = Some(OpenBlock {
            code,
            block,
            block_header,
            solicited,
            bytes,
            segment_bytes,
            is_response,
        });
    }

    /// The payload of a packet of a block was written; empty if it is elided. That of the next
    /// source packet is added to the parity.
    #[inline]
    pub(super) fn on_filled(&mut self, payload: &[u8], is_new: bool) {
        self.digest = Some(digest(payload));
        if is_new {
            self.add(payload);
        }
    }

    #[inline]
    fn add(&mut self, payload: &[u8]) {
        let Some(open) = &self.open else { return };
        let rows = &mut self.rows[..open.block.parity.into()];
        for row in rows.iter_mut().filter(|row| row.is_empty()) {
            row.resize(usize_from(open.bytes.min(open.segment_bytes).into()), 0);
        }
        open.code.add(open.block.index, payload, rows);
    }

    /// The header of the next parity packet, its solicited bit, and its payload bytes.
    pub(super) fn parity_header(&self, psn: u32) -> Option<(SrDataRepr, bool, u32)> {
        let open = self.open.as_ref()?;
        let (block, block_bytes) = (Some(open.block), Some(open.bytes));
        let header = SrDataRepr { psn, block, block_bytes, ..open.block_header };
        Some((header, open.solicited, open.bytes.min(open.segment_bytes)))
    }

    /// Copies the payload of the next parity packet; false if it has another length.
    pub(super) fn copy_parity(&self, out: &mut [u8]) -> bool {
        let Some(open) = &self.open else { return out.is_empty() };
        let row = open.block.index.checked_sub(open.block.data);
        let row = row.and_then(|row| self.rows.get(usize::from(row)));
        let fits = row.filter(|row| row.len() == out.len());
        fits.is_some_and(|row| {
            out.copy_from_slice(row);
            true
        })
    }

    /// The next packet of the block was sent.
    pub(super) fn advance(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.block.index += 1;
        self.loss.sent = self.loss.sent.saturating_add(1);
        if open.block.index == open.block.pkts() {
            self.open = None;
            self.adapt();
        }
    }

    /// Counts lost packets of blocks.
    pub(super) fn on_lost(&mut self, pkts: u64) {
        let lost = u32::try_from(pkts).unwrap_or(u32::MAX);
        self.loss.lost = self.loss.lost.saturating_add(lost);
    }

    /// Abandons the open block: its message ended early.
    pub(super) fn abandon(&mut self) {
        self.open = None;
    }

    /// Adapts the parity of new blocks to the loss rate, after a block.
    fn adapt(&mut self) {
        let Some((least, most)) = self.choice.adaptive else { return };
        if self.loss.ends_period() {
            let x = usize::from(self.choice.data);
            let most = most.max(least);
            self.parity = parity_for(x, self.loss.smoothed_ppm, least, most);
        }
    }
}

impl LossMeter {
    /// Updates the smoothed rate after [`LOSS_PERIOD_PKTS`] packets: with weight 1/2 if the rate
    /// rises, 1/8 if it falls. True at the end of a period.
    fn ends_period(&mut self) -> bool {
        if self.sent < LOSS_PERIOD_PKTS {
            return false;
        }
        let ppm = u64::from(self.lost.min(self.sent)) * 1_000_000 / u64::from(self.sent);
        let (now, was) = (u32::try_from(ppm).unwrap_or(u32::MAX), self.smoothed_ppm);
        let smoothed_ppm = if now > was { was + (now - was) / 2 } else { was - (was - now) / 8 };
        *self = Self { sent: 0, lost: 0, smoothed_ppm };
        true
    }
}

/// Packets of a period: enough that one burst does not determine the rate, few enough to follow a
/// path that degrades.
const LOSS_PERIOD_PKTS: u32 = 256;
