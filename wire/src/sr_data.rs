//! The header of SR data, after the BTH: the message of the payload and its destination.
//!
//! ```text
//!  0      version 4 = 1 | kind 4
//!  1      PSN 31..24 (the BTH has the rest)
//!  2..4   presence bits
//!  4      first 1 | last 1 | retransmission 1 | reserved 5
//!  5      reserved
//!  6..8   path
//!  8..16  time sent, ps
//! 16..20  message number
//! 20..24  offset in the message
//! 24..    the parts that the presence bits name, in the order of the bits
//! ```
//! The layout and its reasons are in docs/protocol/sr.md, "Packets".

mod usual;

pub use usual::{SrUsualPart, SrUsualRepr};

use crate::split::{take, take_mut};
use crate::{
    AtomicEth, AtomicEthRepr, BlockRepr, BufferTooShort, DropReason, Qpn, Reth, RethRepr, atomic,
    be, reth,
};

/// The operation that an SR data packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SrKind {
    /// A SEND.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ request.
    ReadRequest,
    /// The response to a READ request.
    ReadResponse,
    /// An atomic fetch-and-add.
    FetchAdd,
    /// An atomic compare-and-swap.
    CmpSwap,
    /// The result of an atomic operation.
    AtomicResponse,
}

/// The header of an SR data packet.
///
/// With [`SrDataRepr::parse`] the parts are exactly those that the kind requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrDataRepr {
    /// The operation.
    pub kind: SrKind,
    /// The packet's number in its sender's stream: the BTH has the low 24 bits.
    pub psn: u32,
    /// The message's first segment.
    pub first: bool,
    /// The message's last segment.
    pub last: bool,
    /// This is a retransmission. Its payload was read from memory again and may differ from the
    /// first transmission, over which the parity of its block was computed.
    pub is_retransmission: bool,
    /// The path it was sent on, as its sender numbers paths.
    pub path: u16,
    /// The time sent, by the sender's clock; the receiver only echoes it.
    pub sent_ps: u64,
    /// The message, counted by the sender of requests from 0.
    pub message: u32,
    /// Bytes of the message before this segment.
    pub offset: u32,
    /// WRITE: the remote range of this segment. READ request: the range to read.
    pub reth: Option<RethRepr>,
    /// Atomic operation: its operands.
    pub atomic: Option<AtomicEthRepr>,
    /// Immediate data, in host order; on a last segment only.
    pub imm: Option<u32>,
    /// The rkey to invalidate; on a last segment only.
    pub ieth: Option<u32>,
    /// The receive request it consumes, counted from the first ever posted: in every SEND, and in
    /// the last segment of a WRITE with immediate.
    pub receive: Option<u32>,
    /// Response: the number of the request message.
    pub response_to: Option<u32>,
    /// Atomic response: the word before the operation.
    pub original: Option<u64>,
    /// The packet's place in a block of an erasure code: only with payload.
    pub block: Option<BlockRepr>,
    /// Parity: the data bytes of its block, whose header fields describe them as one segment. None
    /// in a parity packet that only fills its PSN.
    pub block_bytes: Option<u32>,
    /// The sender's QPN, for feedback of switches; not in parity.
    pub source_qpn: Option<Qpn>,
}

impl SrDataRepr {
    /// A header with only the fields of every packet.
    #[must_use]
    pub const fn new(kind: SrKind, psn: u32, message: u32) -> Self {
        Self {
            kind,
            psn,
            first: true,
            last: true,
            is_retransmission: false,
            path: 0,
            sent_ps: 0,
            message,
            offset: 0,
            reth: None,
            atomic: None,
            imm: None,
            ieth: None,
            receive: None,
            response_to: None,
            original: None,
            block: None,
            block_bytes: None,
            source_qpn: None,
        }
    }

    /// Bytes of the header, 24..=80.
    #[must_use]
    #[inline]
    pub fn header_len(&self) -> usize {
        FIXED_LEN + parts_len(self.presence())
    }

    /// Parses the header at the start of `bytes`, which follow the BTH; also returns the rest.
    /// `psn_low` is the BTH's PSN.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`], [`DropReason::SrVersion`], [`DropReason::SrFeature`] or
    /// [`DropReason::SrKind`].
    pub fn parse(psn_low: u32, bytes: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        Self::parse_as(false, psn_low, bytes)
    }

    /// As [`SrDataRepr::parse`] for a parity packet: the header of a segment with all data of its
    /// block, or only its place if the packet fills its PSN.
    ///
    /// # Errors
    /// As [`SrDataRepr::parse`].
    pub fn parse_parity(psn_low: u32, bytes: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        Self::parse_as(true, psn_low, bytes)
    }

    fn parse_as(is_parity: bool, psn_low: u32, bytes: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let (fixed, mut rest) = bytes.split_first_chunk().ok_or(DropReason::ExtTooShort)?;
        let fixed: &[u8; FIXED_LEN] = fixed;
        if fixed[0] >> 4 != VERSION {
            return Err(DropReason::SrVersion);
        }
        let kind = SrKind::from_u8(fixed[0] & 0xf).ok_or(DropReason::SrKind)?;
        let bits = be::u16_at(fixed, 2);
        if bits & !KNOWN != 0 {
            return Err(DropReason::SrFeature);
        }
        let mut this = Self {
            first: fixed[4] & FIRST != 0,
            last: fixed[4] & LAST != 0,
            is_retransmission: fixed[4] & RETRANSMISSION != 0,
            path: be::u16_at(fixed, 6),
            sent_ps: be::u64_at(fixed, 8),
            offset: be::u32_at(fixed, 20),
            ..Self::new(kind, u32::from(fixed[1]) << 24 | psn_low, be::u32_at(fixed, 16))
        };
        if bits & RETH != 0 {
            this.reth = Some(RethRepr::parse(&Reth::new(rest)?));
            rest = &rest[reth::LEN..];
        }
        rest = this.parse_rest(bits, rest)?;
        let fits = if is_parity { this.is_parity(bits) } else { this.is_data(bits) };
        if fits { Ok((this, rest)) } else { Err(DropReason::SrKind) }
    }

    /// Parses the parts behind the RETH.
    fn parse_rest<'a>(&mut self, bits: u16, mut rest: &'a [u8]) -> Result<&'a [u8], DropReason> {
        let this = self;
        if bits & ATOMIC != 0 {
            this.atomic = Some(AtomicEthRepr::parse(&AtomicEth::new(rest)?));
            rest = &rest[atomic::LEN..];
        }
        for (bit, field) in [
            (IMM, &mut this.imm),
            (IETH, &mut this.ieth),
            (RECEIVE, &mut this.receive),
            (RESPONSE_TO, &mut this.response_to),
        ] {
            if bits & bit != 0 {
                *field = Some(be::u32_at(take::<4>(&mut rest)?, 0));
            }
        }
        if bits & ORIGINAL != 0 {
            this.original = Some(be::u64_at(take::<8>(&mut rest)?, 0));
        }
        if bits & BLOCK != 0 {
            this.block = Some(BlockRepr::parse(*take(&mut rest)?)?);
        }
        if bits & BLOCK_BYTES != 0 {
            this.block_bytes = Some(be::u32_at(take::<4>(&mut rest)?, 0));
        }
        if bits & SOURCE_QPN != 0 {
            this.source_qpn = Some(Qpn::new(be::u32_at(take::<4>(&mut rest)?, 0) >> 8));
        }
        Ok(rest)
    }

    /// Writes the header into the first [`SrDataRepr::header_len`] bytes of `out`. The BTH
    /// gets the low 24 bits of the PSN.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn emit(&self, out: &mut [u8]) -> Result<(), BufferTooShort> {
        let bits = self.presence();
        let out = out.get_mut(..FIXED_LEN + parts_len(bits)).ok_or(BufferTooShort)?;
        let (fixed, mut rest) = out.split_first_chunk_mut().ok_or(BufferTooShort)?;
        let fixed: &mut [u8; FIXED_LEN] = fixed;
        let [psn_hi, ..] = self.psn.to_be_bytes();
        be::put(fixed, 0, [VERSION << 4 | self.kind.to_u8(), psn_hi]);
        be::put(fixed, 2, bits.to_be_bytes());
        be::put(fixed, 4, [self.flags(), 0]);
        be::put(fixed, 6, self.path.to_be_bytes());
        be::put(fixed, 8, self.sent_ps.to_be_bytes());
        be::put(fixed, 16, self.message.to_be_bytes());
        be::put(fixed, 20, self.offset.to_be_bytes());
        if let Some(reth) = &self.reth {
            reth.emit(take_mut(&mut rest)?);
        }
        if let Some(atomic) = &self.atomic {
            atomic.emit(take_mut(&mut rest)?);
        }
        for field in [self.imm, self.ieth, self.receive, self.response_to].into_iter().flatten() {
            *take_mut(&mut rest)? = field.to_be_bytes();
        }
        if let Some(original) = self.original {
            *take_mut(&mut rest)? = original.to_be_bytes();
        }
        if let Some(block) = &self.block {
            *take_mut(&mut rest)? = block.emit();
        }
        if let Some(bytes) = self.block_bytes {
            *take_mut(&mut rest)? = bytes.to_be_bytes();
        }
        if let Some(qpn) = self.source_qpn {
            *take_mut(&mut rest)? = (qpn.get() << 8).to_be_bytes();
        }
        Ok(())
    }

    #[inline]
    fn flags(&self) -> u8 {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        flag(self.first, FIRST)
            | flag(self.last, LAST)
            | flag(self.is_retransmission, RETRANSMISSION)
    }

    #[inline]
    fn presence(&self) -> u16 {
        let bit = |there: bool, bit: u16| if there { bit } else { 0 };
        bit(self.reth.is_some(), RETH)
            | bit(self.atomic.is_some(), ATOMIC)
            | bit(self.imm.is_some(), IMM)
            | bit(self.ieth.is_some(), IETH)
            | bit(self.receive.is_some(), RECEIVE)
            | bit(self.response_to.is_some(), RESPONSE_TO)
            | bit(self.original.is_some(), ORIGINAL)
            | bit(self.block.is_some(), BLOCK)
            | bit(self.block_bytes.is_some(), BLOCK_BYTES)
            | bit(self.source_qpn.is_some(), SOURCE_QPN)
    }

    #[inline]
    fn is_data(&self, bits: u16) -> bool {
        let place = self.block.is_none_or(|block| !block.is_parity() && self.may_be_coded());
        self.kind_allows(bits & !(BLOCK | SOURCE_QPN)) && place
    }

    fn is_parity(&self, bits: u16) -> bool {
        let whole = self.block_bytes.is_some()
            && self.may_be_coded()
            && self.kind_allows(bits & !(BLOCK | BLOCK_BYTES));
        self.block.is_some_and(|block| block.is_parity()) && (whole || bits == BLOCK)
    }

    /// Data of this kind may be in a block, or the packet is in none.
    fn may_be_coded(&self) -> bool {
        let has_data = matches!(self.kind, SrKind::Send | SrKind::Write | SrKind::ReadResponse);
        self.block.is_none() || has_data
    }

    /// The parts in `bits` are those that the kind allows at this position in the message.
    fn kind_allows(&self, bits: u16) -> bool {
        let single = self.first && self.last && self.offset == 0;
        match self.kind {
            SrKind::Send => match bits & !RECEIVE {
                0 => bits & RECEIVE != 0,
                IMM | IETH => bits & RECEIVE != 0 && self.last,
                _ => false,
            },
            SrKind::Write => match bits & !RETH {
                0 => bits & RETH != 0,
                with_imm => with_imm == IMM | RECEIVE && bits & RETH != 0 && self.last,
            },
            SrKind::ReadRequest => bits == RETH && single,
            SrKind::ReadResponse => bits == RESPONSE_TO,
            SrKind::FetchAdd | SrKind::CmpSwap => bits == ATOMIC && single,
            SrKind::AtomicResponse => bits == RESPONSE_TO | ORIGINAL && single,
        }
    }
}

/// Bytes of the parts that `bits` name.
#[inline]
const fn parts_len(bits: u16) -> usize {
    const WORDS: u16 = IMM | IETH | RECEIVE | RESPONSE_TO | BLOCK | BLOCK_BYTES | SOURCE_QPN;
    match bits {
        RETH => reth::LEN,
        RECEIVE | RESPONSE_TO => 4,
        _ => {
            let mut len = (bits & WORDS).count_ones() as usize * 4;
            if bits & RETH != 0 {
                len += reth::LEN;
            }
            if bits & ATOMIC != 0 {
                len += atomic::LEN;
            }
            if bits & ORIGINAL != 0 {
                len += 8;
            }
            len
        }
    }
}

impl SrKind {
    /// Every kind, by its number.
    pub const ALL: [Self; 7] = [
        Self::Send,
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::FetchAdd,
        Self::CmpSwap,
        Self::AtomicResponse,
    ];

    fn from_u8(v: u8) -> Option<Self> {
        Self::ALL.get(usize::from(v)).copied()
    }

    fn to_u8(self) -> u8 {
        self as u8
    }
}

/// The version of SR's headers.
pub(crate) const VERSION: u8 = 1;
pub(crate) const FIXED_LEN: usize = 24;
const FIRST: u8 = 1 << 7;
const LAST: u8 = 1 << 6;
const RETRANSMISSION: u8 = 1 << 5;

pub(crate) const RETH: u16 = 1 << 0;
pub(crate) const ATOMIC: u16 = 1 << 1;
pub(crate) const IMM: u16 = 1 << 2;
pub(crate) const IETH: u16 = 1 << 3;
pub(crate) const RECEIVE: u16 = 1 << 4;
pub(crate) const RESPONSE_TO: u16 = 1 << 5;
pub(crate) const ORIGINAL: u16 = 1 << 6;
pub(crate) const BLOCK: u16 = 1 << 8;
pub(crate) const BLOCK_BYTES: u16 = 1 << 9;
pub(crate) const SOURCE_QPN: u16 = 1 << 10;
pub(crate) const KNOWN: u16 = ((1 << 7) - 1) | BLOCK | BLOCK_BYTES | SOURCE_QPN;

#[cfg(test)]
mod tests;
