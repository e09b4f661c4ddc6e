//! UDP, 8 bytes: source port 16 | destination port 16 | length 16 | checksum 16.
//!
//! The checksum is never verified. RoCEv2 senders set it to 0, also over IPv6. The ICRC protects
//! more, and on a veth pair the kernel passes on partial checksums (checksum offload).

use crate::DropReason;
use crate::be;

/// The UDP destination port of RoCEv2, as IANA assigned it.
pub const ROCE_PORT: u16 = 4791;

/// Bytes of a UDP header.
pub(crate) const LEN: usize = 8;
/// The IP protocol number of UDP.
pub(crate) const PROTOCOL: u8 = 17;

/// A UDP header in a received frame. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a>(&'a [u8; LEN]);

/// A UDP header's fields, without the length: that follows from the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpRepr {
    /// The source port: a flow's path entropy for ECMP. Receivers ignore it.
    pub src_port: u16,
    /// The destination port, [`ROCE_PORT`].
    pub dst_port: u16,
    /// The checksum on the wire; 0 is none.
    pub checksum: u16,
}

impl<'a> Udp<'a> {
    /// The view of the first 8 bytes of an IP payload, and the bytes after them.
    ///
    /// # Errors
    /// [`DropReason::UdpTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::UdpTooShort)?;
        Ok((Self(header), rest))
    }

    /// The source port.
    #[must_use]
    pub const fn src_port(&self) -> u16 {
        be::u16_at(self.0, 0)
    }

    /// The destination port.
    #[must_use]
    pub const fn dst_port(&self) -> u16 {
        be::u16_at(self.0, 2)
    }

    /// The length field: bytes of header and payload.
    #[must_use]
    pub const fn length(&self) -> u16 {
        be::u16_at(self.0, 4)
    }

    /// The checksum on the wire.
    #[must_use]
    pub const fn checksum(&self) -> u16 {
        be::u16_at(self.0, 6)
    }
}

impl UdpRepr {
    /// A header to the RoCE port without a checksum.
    #[must_use]
    #[inline]
    pub const fn new(src_port: u16) -> Self {
        Self { src_port, dst_port: ROCE_PORT, checksum: 0 }
    }

    /// Parses the header before `payload_len` bytes.
    ///
    /// # Errors
    /// [`DropReason::NotRoce`], [`DropReason::BadUdpLength`].
    #[inline]
    pub fn parse(udp: &Udp<'_>, payload_len: usize) -> Result<Self, DropReason> {
        if udp.dst_port() != ROCE_PORT {
            return Err(DropReason::NotRoce);
        }
        if usize::from(udp.length()) != LEN + payload_len {
            return Err(DropReason::BadUdpLength);
        }
        Ok(Self::of(udp))
    }

    /// The fields of a header whose port and length are right.
    #[inline]
    pub(crate) const fn of(udp: &Udp<'_>) -> Self {
        Self { src_port: udp.src_port(), dst_port: udp.dst_port(), checksum: udp.checksum() }
    }

    /// Writes all 8 bytes; `length` counts header and payload.
    #[inline]
    pub fn emit(&self, length: u16, out: &mut [u8; LEN]) {
        be::put(out, 0, self.src_port.to_be_bytes());
        be::put(out, 2, self.dst_port.to_be_bytes());
        be::put(out, 4, length.to_be_bytes());
        be::put(out, 6, self.checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: [u8; 10] = [0xc0, 0x12, 0x12, 0xb7, 0, 10, 0xab, 0xcd, 1, 2];

    #[test]
    fn parse__checks_port_and_length() {
        let (udp, rest) = Udp::new(&WIRE).unwrap();
        assert_eq!(UdpRepr::parse(&udp, rest.len() + 1), Err(DropReason::BadUdpLength));
        assert_eq!(Udp::new(&WIRE[..7]).unwrap_err(), DropReason::UdpTooShort);
        let mut other = WIRE;
        other[3] += 1;
        let (udp, rest) = Udp::new(&other).unwrap();
        assert_eq!(UdpRepr::parse(&udp, rest.len()), Err(DropReason::NotRoce));
    }

    #[test]
    fn emit__writes_what_was_parsed() {
        let (udp, rest) = Udp::new(&WIRE).unwrap();
        let r = UdpRepr::parse(&udp, rest.len()).unwrap();
        assert_eq!((r.src_port, r.dst_port, r.checksum), (0xc012, 4791, 0xabcd));
        let mut out = [0; 8];
        r.emit(10, &mut out);
        assert_eq!(out, WIRE[..8]);
    }
}
