//! Headers as nearly all packets have them: parsed without the parts that are rare, and written
//! from the few parts of a middle packet.

use super::{
    FIRST, FIXED_LEN, LAST, RECEIVE, RESPONSE_TO, RETH, RETRANSMISSION, SrDataRepr, SrKind, VERSION,
};
use crate::split::take;
use crate::{BufferTooShort, Reth, RethRepr, be, reth};

/// The header of a middle packet of a SEND or WRITE in no block, sent for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrMiddleRepr {
    /// As [`SrDataRepr::psn`].
    pub psn: u32,
    /// As [`SrDataRepr::path`].
    pub path: u16,
    /// As [`SrDataRepr::sent_ps`].
    pub sent_ps: u64,
    /// As [`SrDataRepr::message`].
    pub message: u32,
    /// As [`SrDataRepr::offset`].
    pub offset: u32,
    /// Its kind, and the part that this kind has.
    pub part: SrMiddlePart,
}

/// The kind of a middle packet and the part of its header that only this kind has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrMiddlePart {
    /// A SEND: [`SrDataRepr::receive`].
    Send(u32),
    /// A WRITE: [`SrDataRepr::reth`].
    Write(RethRepr),
}

impl SrMiddleRepr {
    /// As [`SrDataRepr::header_len`].
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self.part {
            SrMiddlePart::Send(_) => FIXED_LEN + 4,
            SrMiddlePart::Write(_) => FIXED_LEN + reth::LEN,
        }
    }

    /// As [`SrDataRepr::emit`].
    ///
    /// # Errors
    /// [`BufferTooShort`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<(), BufferTooShort> {
        let (first, bits) = match self.part {
            SrMiddlePart::Send(_) => (SEND, RECEIVE),
            SrMiddlePart::Write(_) => (WRITE, RETH),
        };
        let (fixed, rest) = out.split_first_chunk_mut::<FIXED_LEN>().ok_or(BufferTooShort)?;
        let [psn_hi, ..] = self.psn.to_be_bytes();
        let [bits_hi, bits_lo] = bits.to_be_bytes();
        be::put(fixed, 0, [first, psn_hi, bits_hi, bits_lo, 0, 0]);
        be::put(fixed, 6, self.path.to_be_bytes());
        be::put(fixed, 8, self.sent_ps.to_be_bytes());
        be::put(fixed, 16, self.message.to_be_bytes());
        be::put(fixed, 20, self.offset.to_be_bytes());
        match &self.part {
            SrMiddlePart::Send(receive) => {
                *rest.first_chunk_mut().ok_or(BufferTooShort)? = receive.to_be_bytes();
            }
            SrMiddlePart::Write(reth) => {
                reth.emit(rest.first_chunk_mut().ok_or(BufferTooShort)?);
            }
        }
        Ok(())
    }
}

impl SrDataRepr {
    /// As [`SrDataRepr::parse`], of a SEND, a WRITE or a response to a READ, in no block, and
    /// without immediate data, a key to invalidate or a QPN. `None` for any other.
    #[inline(always)]
    pub(crate) fn parse_usual(psn_low: u32, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, mut rest) = bytes.split_first_chunk::<FIXED_LEN>()?;
        let [first, psn_hi, _, _, flags, ..] = *fixed;
        let kind = match (first, be::u16_at(fixed, 2)) {
            (SEND, RECEIVE) => SrKind::Send,
            (WRITE, RETH) => SrKind::Write,
            (READ_RESPONSE, RESPONSE_TO) => SrKind::ReadResponse,
            _ => return None,
        };
        let psn = u32::from(psn_hi) << 24 | psn_low;
        let mut this = Self {
            first: flags & FIRST != 0,
            last: flags & LAST != 0,
            is_retransmission: flags & RETRANSMISSION != 0,
            path: be::u16_at(fixed, 6),
            sent_ps: be::u64_at(fixed, 8),
            offset: be::u32_at(fixed, 20),
            ..Self::new(kind, psn, be::u32_at(fixed, 16))
        };
        if kind == SrKind::Write {
            let reth: &[u8; reth::LEN] = take(&mut rest).ok()?;
            this.reth = Some(RethRepr::parse(&Reth::new(reth).ok()?));
        } else {
            let number = Some(be::u32_at(take::<4>(&mut rest).ok()?, 0));
            match kind {
                SrKind::Send => this.receive = number,
                _ => this.response_to = number,
            }
        }
        Some((this, rest))
    }
}

/// The first byte of the header of these kinds.
const SEND: u8 = VERSION << 4 | SrKind::Send as u8;
const WRITE: u8 = VERSION << 4 | SrKind::Write as u8;
const READ_RESPONSE: u8 = VERSION << 4 | SrKind::ReadResponse as u8;
