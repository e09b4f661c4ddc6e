//! Payload of packets: bytes, or elided by a simulation (`spanwire_base::TxMeta`), or lent to a
//! port (`spanwire_base::LentPayload`).

use spanwire_base::u32_from;
use spanwire_mem::Lent;
use spanwire_wire::{Packet, PlainRc};

/// Received payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// This many bytes that are not in memory.
    Elided(u32),
}

/// Destination of a packet's payload.
#[derive(Debug)]
pub(crate) enum PayloadMut<'a> {
    Bytes(&'a mut [u8]),
    /// This many bytes, which are not written.
    Elided(u32),
    /// The place of the bytes, which are copied or lent.
    Lendable(&'a mut [u8], &'a mut Option<Lent>),
}

impl<'a> Payload<'a> {
    pub(crate) fn of(p: &Packet<'a>) -> Self {
        match p.elided_bytes {
            0 => Self::Bytes(p.payload),
            n => Self::Elided(u32_from(n)),
        }
    }

    /// That of a plain packet.
    #[inline]
    pub(crate) fn of_plain(p: &PlainRc<'a>) -> Self {
        match p.elided_bytes {
            0 => Self::Bytes(p.payload),
            n => Self::Elided(u32_from(n)),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Bytes(bytes) => u32_from(bytes.len()),
            Self::Elided(len) => *len,
        }
    }
}

impl PayloadMut<'_> {
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Bytes(bytes) | Self::Lendable(bytes, _) => u32_from(bytes.len()),
            Self::Elided(len) => *len,
        }
    }
}

/// Copies from byte `skip` of `from` on into all of `to`; false if `from` is too short.
pub(crate) fn copy_part(from: &[u8], skip: u32, to: PayloadMut<'_>) -> bool {
    let part = from.get(skip as usize..).and_then(|rest| rest.get(..to.len() as usize));
    match (part, to) {
        (Some(part), PayloadMut::Bytes(to) | PayloadMut::Lendable(to, _)) => {
            to.copy_from_slice(part);
        }
        (Some(_), PayloadMut::Elided(_)) => {}
        (None, _) => return false,
    }
    true
}
