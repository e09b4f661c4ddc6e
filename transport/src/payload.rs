//! Payload that is there, or that a simulation left out of the frame (`spanwire_base::TxMeta`).

use spanwire_base::u32_from;
use spanwire_wire::Packet;

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// This many bytes that are nowhere.
    Elided(u32),
}

/// Where the payload of a packet goes.
#[derive(Debug)]
pub(crate) enum PayloadMut<'a> {
    Bytes(&'a mut [u8]),
    /// This many bytes, nowhere.
    Elided(u32),
}

impl<'a> Payload<'a> {
    pub(crate) fn of(p: &Packet<'a>) -> Self {
        match p.elided_bytes {
            0 => Self::Bytes(p.payload),
            n => Self::Elided(u32_from(n)),
        }
    }

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
            Self::Bytes(bytes) => u32_from(bytes.len()),
            Self::Elided(len) => *len,
        }
    }
}

/// Copies all of `to` from byte `skip` of `from` on; false when there are not so many.
pub(crate) fn copy_part(from: &[u8], skip: u32, to: PayloadMut<'_>) -> bool {
    let part = from.get(skip as usize..).and_then(|rest| rest.get(..to.len() as usize));
    match (part, to) {
        (Some(part), PayloadMut::Bytes(to)) => to.copy_from_slice(part),
        (Some(_), PayloadMut::Elided(_)) => {}
        (None, _) => return false,
    }
    true
}
