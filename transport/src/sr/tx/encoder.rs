//! The sender's side of erasure coding: which packets form a block, and its parity
//! (docs/protocol/sr.md, "Blocks", 1 to 3).

use super::rtt::Rtt;
use crate::coding::{CodingWhen, ErasureCoding};
use spanwire_base::{Dur, usize_from};
use spanwire_erasure::{Code, parity_for};
use spanwire_wire::{BlockRepr, SrDataRepr};

/// Cuts data into blocks and adds up their parity.
#[derive(Debug)]
pub(super) struct Encoder {
    choice: ErasureCoding,
    /// The round trip without queues, if it was given.
    base_rtt: Option<Dur>,
    /// Parity packets of the blocks that begin now.
    parity: u8,
    loss: LossMeter,
    /// The running parity of the block that is being sent, a row each; as many as there may be.
    rows: Vec<Vec<u8>>,
    open: Option<OpenBlock>,
}

/// The block that is being sent: one of its packets has left.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    code: Code,
    block: BlockRepr,
    /// The header of a segment that has all its data.
    block_header: SrDataRepr,
    solicited: bool,
    /// Bytes of its data, and of its longest segment.
    bytes: u32,
    longest_bytes: u32,
    /// Full segments of it are this long, whatever those of later blocks are.
    segment_bytes: u32,
    /// What it is made of.
    is_response: bool,
    /// Packets of it that have left.
    sent: u8,
}

/// What comes next of the block that is being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextInBlock {
    /// A segment of a request, or of an answer.
    Data {
        is_response: bool,
        segment_bytes: u32,
    },
    Parity,
}

/// How much of what was sent was lost lately.
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
        Self { choice, base_rtt, parity: choice.parity, loss, rows, open: None }
    }

    /// The block that has begun, and must be gone on with before anything else is begun.
    pub(super) fn next_in_block(&self) -> Option<NextInBlock> {
        let open = self.open.as_ref()?;
        let &OpenBlock { is_response, segment_bytes, .. } = open;
        Some(match open.sent < open.block.data {
            true => NextInBlock::Data { is_response, segment_bytes },
            false => NextInBlock::Parity,
        })
    }

    /// The place of the next packet of the block that has begun.
    pub(super) fn next_position(&self) -> Option<BlockRepr> {
        self.open.as_ref().map(|open| BlockRepr { index: open.sent, ..open.block })
    }

    /// The place of a packet that begins a block, with `left_bytes` of its message from it on in
    /// segments of `segment_bytes`; none if it is not to be coded.
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

    /// The first packet of a block is being written. `block_header` is the header of a segment with
    /// all its `bytes` of data, which is solicited or not.
    pub(super) fn open(
        &mut self,
        block: BlockRepr,
        (block_header, solicited): (SrDataRepr, bool),
        bytes: u32,
        (is_response, segment_bytes): (bool, u32),
    ) {
        let code = Code::new(self.choice.scheme, block.data.into(), block.parity.into());
        let Ok(code) = code else { return };
        let longest_bytes = bytes.min(segment_bytes);
        self.rows.iter_mut().for_each(Vec::clear);
        let sent = 0;
        let open = OpenBlock {
            code,
            block,
            block_header,
            solicited,
            bytes,
            longest_bytes,
            segment_bytes,
            is_response,
            sent,
        };
        self.open = Some(open);
    }

    /// The payload of the next data packet.
    #[inline]
    pub(super) fn add(&mut self, payload: &[u8]) {
        let Some(open) = &self.open else { return };
        let rows = &mut self.rows[..open.block.parity.into()];
        for row in rows.iter_mut().filter(|row| row.is_empty()) {
            row.resize(usize_from(open.longest_bytes.into()), 0);
        }
        open.code.add(open.sent, payload, rows);
    }

    /// The header of the parity packet that is next, whether it is solicited, and its bytes.
    pub(super) fn parity_header(&self, psn: u32) -> Option<(SrDataRepr, bool, u32)> {
        let open = self.open.as_ref()?;
        let block = Some(BlockRepr { index: open.sent, ..open.block });
        let header = SrDataRepr { psn, block, block_bytes: Some(open.bytes), ..open.block_header };
        Some((header, open.solicited, open.longest_bytes))
    }

    /// Copies the payload of the parity packet that is next; false if it has another length.
    pub(super) fn copy_parity(&self, out: &mut [u8]) -> bool {
        let Some(open) = &self.open else { return out.is_empty() };
        let row = open.sent.checked_sub(open.block.data);
        let row = row.and_then(|row| self.rows.get(usize::from(row)));
        let fits = row.filter(|row| row.len() == out.len());
        fits.is_some_and(|row| {
            out.copy_from_slice(row);
            true
        })
    }

    /// The next packet of the block has left.
    pub(super) fn advance(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.sent += 1;
        self.loss.sent = self.loss.sent.saturating_add(1);
        if open.sent == open.block.pkts() {
            self.open = None;
            self.adapt();
        }
    }

    /// Packets of blocks were lost.
    pub(super) fn on_lost(&mut self, pkts: u64) {
        let lost = u32::try_from(pkts).unwrap_or(u32::MAX);
        self.loss.lost = self.loss.lost.saturating_add(lost);
    }

    /// The rest of the block will not come: its message is over.
    pub(super) fn abandon(&mut self) {
        self.open = None;
    }

    /// A block is over: the next ones may have more or less parity.
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
    /// Smooths over periods of [`LOSS_PERIOD_PKTS`] packets: more loss counts by half at once, less
    /// by an eighth. True at the end of one.
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

/// Long enough that one burst is not a rate, short enough to follow a path that turns bad.
const LOSS_PERIOD_PKTS: u32 = 256;
