//! The contents of a packet: enough to write it again.

use super::sent::run::{Stride, Strided};
use crate::mr::{MrTable, PdId};
use crate::payload::PayloadMut;
use spanwire_wire::{BlockRepr, SrDataRepr, SrKind, SrUsualPart};

/// The contents of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contents {
    Request(Segment),
    Read(ReadSegment),
    Atomic {
        response_to: u32,
        original: u64,
    },
    /// Parity of a block. Its payload is not kept after it is sent.
    Parity,
}

impl Strided for Contents {
    #[inline]
    fn stride_to(&self, next: &Self) -> Option<Stride> {
        match (self, next) {
            (Self::Request(a), Self::Request(b)) => Some(Stride {
                messages: b.message.wrapping_sub(a.message),
                bytes: b.offset.wrapping_sub(a.offset),
            }),
            (Self::Read(a), Self::Read(_)) => Some(Stride { messages: 0, bytes: a.len }),
            _ => None,
        }
    }

    #[inline(always)]
    fn is_before(&self, stride: Stride, n: u32, next: &Self) -> bool {
        let bytes = stride.bytes.wrapping_mul(n);
        match (self, next) {
            (Self::Request(a), Self::Request(b)) => {
                let message = a.message.wrapping_add(stride.messages.wrapping_mul(n));
                (message, a.offset.wrapping_add(bytes), a.len) == (b.message, b.offset, b.len)
            }
            // The rest is that of the request, which its PSN names: a peer may give two READs one
            // message number.
            (Self::Read(a), Self::Read(b)) => {
                let offset = a.offset.wrapping_add(bytes);
                (a.request_psn, offset, a.len) == (b.request_psn, b.offset, b.len)
            }
            _ => false,
        }
    }

    #[inline]
    fn after(&self, stride: Stride, n: u32) -> Self {
        let bytes = stride.bytes.wrapping_mul(n);
        match *self {
            Self::Request(s) => Self::Request(Segment {
                message: s.message.wrapping_add(stride.messages.wrapping_mul(n)),
                offset: s.offset.wrapping_add(bytes),
                len: s.len,
            }),
            Self::Read(s) => {
                let left = s.left.wrapping_sub(bytes);
                let (va, offset) = (s.va.wrapping_add(bytes.into()), s.offset.wrapping_add(bytes));
                Self::Read(ReadSegment { va, offset, left, last: left == s.len, ..s })
            }
            Self::Atomic { .. } | Self::Parity => *self,
        }
    }
}

/// A segment of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) message: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// A segment of a READ response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadSegment {
    pub(super) response_to: u32,
    /// The wire number of the request's packet.
    pub(crate) request_psn: u32,
    pub(super) va: u64,
    pub(super) rkey: u32,
    pub(super) offset: u32,
    pub(crate) len: u32,
    /// Bytes of the response from this segment on.
    pub(super) left: u32,
    pub(super) last: bool,
}

impl ReadSegment {
    /// Copies its data; false if their memory is no longer registered.
    #[inline]
    pub(super) fn fetch(&self, payload: PayloadMut<'_>, (pd, mrs): (PdId, &MrTable)) -> bool {
        self.len == 0 || mrs.fetch_remote(pd, self.rkey, self.va, self.len, payload)
    }

    /// The header of the segment, as the packet `psn`.
    pub(super) fn header(&self, psn: u32) -> SrDataRepr {
        SrDataRepr {
            first: self.offset == 0,
            last: self.last,
            offset: self.offset,
            response_to: Some(self.response_to),
            ..SrDataRepr::new(SrKind::ReadResponse, psn, self.response_to)
        }
    }
}

/// A plain packet: see `middle.rs`.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct Plain {
    pub(in crate::sr) contents: Contents,
    pub(in crate::sr) message: u32,
    pub(in crate::sr) offset: u32,
    pub(in crate::sr) len: u32,
    pub(in crate::sr) part: SrUsualPart,
    /// The last one of its message.
    pub(in crate::sr) is_last: bool,
    pub(in crate::sr) solicited: bool,
    /// No data are waiting behind it.
    pub(super) is_last_posted: bool,
    pub(super) is_inline: bool,
}

/// A packet chosen to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlannedPacket {
    pub(crate) number: u64,
    pub(crate) contents: Contents,
    pub(crate) kind: TransmissionKind,
    /// It requests an ACK.
    pub(crate) requests_ack: bool,
    /// Its position in a block, if it is in one.
    pub(crate) position: Option<BlockRepr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransmissionKind {
    /// The first transmission.
    First,
    /// A retransmission of an unacknowledged packet.
    Retransmission,
    /// A copy of an acknowledged packet, sent only to elicit an ACK.
    Probe,
}
