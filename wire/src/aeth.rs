//! The ACK extended transport header, 4 bytes: syndrome 8 | MSN 24.

use crate::DropReason;
use crate::be;

/// Bytes of an AETH.
pub(crate) const LEN: usize = 4;

/// An AETH in a received packet. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct Aeth<'a>(&'a [u8; LEN]);

/// The code of a NAK: the reason a request was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN was skipped; the packet's PSN is the missing one.
    SequenceError = 0,
    /// The request is malformed or not allowed on this queue pair.
    InvalidRequest = 1,
    /// The rkey, range or access right does not hold.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
    /// The reliable datagram domain is wrong (not used by Reliable Connections).
    InvalidRd = 4,
}

/// The first byte of an AETH: bit 7 zero, bits 6..5 the kind, bits 4..0 its value.
///
/// [`Syndrome::from_u8`] and [`Syndrome::to_u8`] lose nothing: encodings without a meaning are kept
/// as [`Syndrome::Reserved`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Acknowledged.
    Ack {
        /// The credit count's code, 0..=31; [`Syndrome::NO_CREDIT_LIMIT`] disables the limit.
        credits: u8,
    },
    /// Receiver not ready: no receive was posted.
    RnrNak {
        /// The code of the RNR timer, 0..=31.
        timer: u8,
    },
    /// Rejected.
    Nak(NakCode),
    /// The whole byte of an encoding that has no meaning.
    Reserved(u8),
}

/// An AETH's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AethRepr {
    /// The kind of acknowledgement.
    pub syndrome: Syndrome,
    /// The message sequence number: request messages completed by the responder, 24 bits.
    pub msn: u32,
}

impl NakCode {
    /// The code of a NAK syndrome's low five bits, `None` when it is reserved.
    #[must_use]
    #[inline]
    pub const fn from_u8(v: u8) -> Option<Self> {
        Some(match v {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRd,
            _ => return None,
        })
    }

    /// The code.
    #[must_use]
    #[inline]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }
}

impl Syndrome {
    /// The credit code of a responder without end-to-end flow control.
    pub const NO_CREDIT_LIMIT: u8 = 31;

    /// The meaning of a syndrome byte.
    #[must_use]
    #[inline]
    pub const fn from_u8(v: u8) -> Self {
        let value = v & VALUE_MASK;
        match v & !VALUE_MASK {
            ACK => Self::Ack { credits: value },
            RNR_NAK => Self::RnrNak { timer: value },
            NAK => match NakCode::from_u8(value) {
                Some(code) => Self::Nak(code),
                None => Self::Reserved(v),
            },
            _ => Self::Reserved(v),
        }
    }

    /// The byte on the wire. Values beyond five bits are cut to them.
    #[must_use]
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credits } => ACK | credits & VALUE_MASK,
            Self::RnrNak { timer } => RNR_NAK | timer & VALUE_MASK,
            Self::Nak(code) => NAK | code as u8,
            Self::Reserved(v) => v,
        }
    }
}

impl<'a> Aeth<'a> {
    /// The view of the first 4 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::ExtTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::ExtTooShort)
    }

    /// The kind of acknowledgement.
    #[must_use]
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome::from_u8(self.0[0])
    }

    /// The message sequence number, 0..2^24.
    #[must_use]
    pub const fn msn(&self) -> u32 {
        be::u24_at(self.0, 1)
    }
}

impl AethRepr {
    /// The fields of an AETH.
    #[must_use]
    #[inline]
    pub const fn parse(aeth: &Aeth<'_>) -> Self {
        Self { syndrome: aeth.syndrome(), msn: aeth.msn() }
    }

    /// Writes all 4 bytes; the MSN is cut to its 24 bits.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        out[0] = self.syndrome.to_u8();
        be::put_u24(out, 1, self.msn);
    }
}

const VALUE_MASK: u8 = 0x1f;
const ACK: u8 = 0x00;
const RNR_NAK: u8 = 0x20;
const NAK: u8 = 0x60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndrome__loses_no_byte() {
        for b in 0..=255 {
            assert_eq!(Syndrome::from_u8(b).to_u8(), b, "{b:#x}");
        }
    }

    #[test]
    fn syndrome_from_u8__distinguishes_the_kinds() {
        assert_eq!(Syndrome::from_u8(0x1f), Syndrome::Ack { credits: Syndrome::NO_CREDIT_LIMIT });
        assert_eq!(Syndrome::from_u8(0x2c), Syndrome::RnrNak { timer: 12 });
        assert_eq!(Syndrome::from_u8(0x60), Syndrome::Nak(NakCode::SequenceError));
        assert_eq!(Syndrome::from_u8(0x64), Syndrome::Nak(NakCode::InvalidRd));
        for odd in [0x40, 0x65, 0x7f, 0x80, 0xe0] {
            assert_eq!(Syndrome::from_u8(odd), Syndrome::Reserved(odd));
        }
    }

    #[test]
    fn parse__and_emit_are_inverse() {
        let wire = [0x62, 0xab, 0xcd, 0xef];
        let r = AethRepr::parse(&Aeth::new(&wire).unwrap());
        assert_eq!(r.syndrome, Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(r.msn, 0xab_cdef);
        let mut out = [0; 4];
        r.emit(&mut out);
        assert_eq!(out, wire);
        assert_eq!(Aeth::new(&wire[1..]).unwrap_err(), DropReason::ExtTooShort);
    }
}
