//! Headers as nearly all packets have them: parsed and written without the parts that are rare.

use super::{
    FIRST, FIXED_LEN, LAST, RECEIVE, RESPONSE_TO, RETH, RETRANSMISSION, SrDataRepr, SrKind, VERSION,
};
use crate::split::{take, take_mut};
use crate::{BufferTooShort, Reth, RethRepr, be, reth};

/// The header of a packet of a SEND, a WRITE or a response to a READ, in no block, not marked as a
/// retransmission, and without immediate data, a key to invalidate or a QPN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrUsualRepr {
    /// As [`SrDataRepr::psn`].
    pub psn: u32,
    /// As [`SrDataRepr::first`].
    pub first: bool,
    /// As [`SrDataRepr::last`].
    pub last: bool,
    /// As [`SrDataRepr::path`].
    pub path: u16,
    /// As [`SrDataRepr::sent_ps`].
    pub sent_ps: u64,
    /// As [`SrDataRepr::message`].
    pub message: u32,
    /// As [`SrDataRepr::offset`].
    pub offset: u32,
    /// Its kind, and the part that this kind has.
    pub part: SrUsualPart,
}

/// The kind of a packet and the part of its header that only this kind has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrUsualPart {
    /// A SEND: [`SrDataRepr::receive`].
    Send(u32),
    /// A WRITE: [`SrDataRepr::reth`].
    Write(RethRepr),
    /// A response to a READ: [`SrDataRepr::response_to`].
    ReadResponse(u32),
}

impl SrUsualRepr {
    /// As [`SrDataRepr::header_len`].
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self.part {
            SrUsualPart::Send(_) | SrUsualPart::ReadResponse(_) => FIXED_LEN + 4,
            SrUsualPart::Write(_) => FIXED_LEN + reth::LEN,
        }
    }

    /// As [`SrDataRepr::parse`]. `None` for any other header.
    #[must_use]
    #[inline(always)]
    pub fn parse(psn_low: u32, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, mut rest) = bytes.split_first_chunk::<FIXED_LEN>()?;
        let [kind, psn_hi, _, _, flags, ..] = *fixed;
        if flags & RETRANSMISSION != 0 {
            return None;
        }
        let part = match (kind, be::u16_at(fixed, 2)) {
            (SEND, RECEIVE) => SrUsualPart::Send(number(&mut rest)?),
            (READ_RESPONSE, RESPONSE_TO) => SrUsualPart::ReadResponse(number(&mut rest)?),
            (WRITE, RETH) => {
                let reth: &[u8; reth::LEN] = take(&mut rest).ok()?;
                SrUsualPart::Write(RethRepr::parse(&Reth::new(reth).ok()?))
            }
            _ => return None,
        };
        let this = Self {
            psn: u32::from(psn_hi) << 24 | psn_low,
            first: flags & FIRST != 0,
            last: flags & LAST != 0,
            path: be::u16_at(fixed, 6),
            sent_ps: be::u64_at(fixed, 8),
            message: be::u32_at(fixed, 16),
            offset: be::u32_at(fixed, 20),
            part,
        };
        Some((this, rest))
    }

    /// As [`SrDataRepr::emit`].
    ///
    /// # Errors
    /// [`BufferTooShort`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<(), BufferTooShort> {
        let (kind, bits) = match self.part {
            SrUsualPart::Send(_) => (SEND, RECEIVE),
            SrUsualPart::Write(_) => (WRITE, RETH),
            SrUsualPart::ReadResponse(_) => (READ_RESPONSE, RESPONSE_TO),
        };
        let (fixed, mut rest) = out.split_first_chunk_mut::<FIXED_LEN>().ok_or(BufferTooShort)?;
        let [psn_hi, ..] = self.psn.to_be_bytes();
        let [bits_hi, bits_lo] = bits.to_be_bytes();
        let flags = if self.first { FIRST } else { 0 } | if self.last { LAST } else { 0 };
        be::put(fixed, 0, [kind, psn_hi, bits_hi, bits_lo, flags, 0]);
        be::put(fixed, 6, self.path.to_be_bytes());
        be::put(fixed, 8, self.sent_ps.to_be_bytes());
        be::put(fixed, 16, self.message.to_be_bytes());
        be::put(fixed, 20, self.offset.to_be_bytes());
        match &self.part {
            SrUsualPart::Send(number) | SrUsualPart::ReadResponse(number) => {
                *take_mut(&mut rest)? = number.to_be_bytes();
            }
            SrUsualPart::Write(reth) => reth.emit(take_mut(&mut rest)?),
        }
        Ok(())
    }
}

impl From<SrUsualRepr> for SrDataRepr {
    fn from(usual: SrUsualRepr) -> Self {
        let SrUsualRepr { psn, first, last, path, sent_ps, message, offset, part } = usual;
        let (kind, reth, receive, response_to) = match part {
            SrUsualPart::Send(receive) => (SrKind::Send, None, Some(receive), None),
            SrUsualPart::Write(reth) => (SrKind::Write, Some(reth), None, None),
            SrUsualPart::ReadResponse(to) => (SrKind::ReadResponse, None, None, Some(to)),
        };
        let plain = Self::new(kind, psn, message);
        Self { first, last, path, sent_ps, offset, reth, receive, response_to, ..plain }
    }
}

#[inline(always)]
fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(be::u32_at(take::<4>(rest).ok()?, 0))
}

/// The first byte of the header of these kinds.
const SEND: u8 = VERSION << 4 | SrKind::Send as u8;
const WRITE: u8 = VERSION << 4 | SrKind::Write as u8;
const READ_RESPONSE: u8 = VERSION << 4 | SrKind::ReadResponse as u8;
