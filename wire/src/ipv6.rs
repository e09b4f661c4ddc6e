//! The fixed IPv6 header (RFC 8200), 40 bytes. RoCE packets have no extension headers.

use std::net::Ipv6Addr;

use crate::DropReason;
use crate::be;
use crate::udp;

/// Bytes of an IPv6 header.
pub(crate) const LEN: usize = 40;

/// An IPv6 header in a received frame. The constructor has checked its version and its lengths.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a>(&'a [u8; LEN]);

/// An IPv6 header's fields, without the length: that follows from the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Repr {
    /// The source address.
    pub src: Ipv6Addr,
    /// The destination address.
    pub dst: Ipv6Addr,
    /// The traffic class: DSCP 6 | ECN 2.
    pub dscp_ecn: u8,
    /// The remaining hops.
    pub hop_limit: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
}

impl<'a> Ipv6<'a> {
    /// The view of the packet at the start of `bytes`, and its payload. Bytes after that are link
    /// padding.
    ///
    /// # Errors
    /// [`DropReason::IpTooShort`], [`DropReason::BadIpVersion`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), DropReason> {
        Self::elided(bytes, 0)
    }

    /// As [`Ipv6::new`] for a packet with `elided_bytes` of its payload elided.
    pub(crate) fn elided(
        bytes: &'a [u8],
        elided_bytes: usize,
    ) -> Result<(Self, &'a [u8]), DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::IpTooShort)?;
        if header[0] >> 4 != 6 {
            return Err(DropReason::BadIpVersion);
        }
        let view = Self(header);
        let len = usize::from(view.payload_len());
        let len = len.checked_sub(elided_bytes).ok_or(DropReason::IpTooShort)?;
        let payload = rest.get(..len).ok_or(DropReason::IpTooShort)?;
        Ok((view, payload))
    }

    /// The traffic class: DSCP 6 | ECN 2.
    #[must_use]
    pub const fn dscp_ecn(&self) -> u8 {
        (self.0[0] << 4) | (self.0[1] >> 4)
    }

    /// The flow label, 20 bits.
    #[must_use]
    pub const fn flow_label(&self) -> u32 {
        be::u24_at(self.0, 1) & FLOW_MASK
    }

    /// Bytes of the payload.
    #[must_use]
    pub const fn payload_len(&self) -> u16 {
        be::u16_at(self.0, 4)
    }

    /// The protocol of the payload.
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.0[6]
    }

    /// The remaining hops.
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        self.0[7]
    }

    /// The source address.
    #[must_use]
    pub const fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(be::bytes_at(self.0, 8)))
    }

    /// The destination address.
    #[must_use]
    pub const fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(be::bytes_at(self.0, 24)))
    }
}

impl Ipv6Repr {
    /// A header with this crate's defaults: hop limit 64, flow label 0, best effort, not
    /// ECN-capable.
    #[must_use]
    #[inline]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self { src, dst, dscp_ecn: 0, hop_limit: 64, flow_label: 0 }
    }

    /// The fields of the header of a whole UDP packet.
    ///
    /// # Errors
    /// [`DropReason::IpFragment`], [`DropReason::NotUdp`].
    #[inline]
    pub fn parse(ip: &Ipv6<'_>) -> Result<Self, DropReason> {
        match ip.next_header() {
            udp::PROTOCOL => {}
            FRAGMENT => return Err(DropReason::IpFragment),
            _ => return Err(DropReason::NotUdp),
        }
        Ok(Self {
            src: ip.src(),
            dst: ip.dst(),
            dscp_ecn: ip.dscp_ecn(),
            hop_limit: ip.hop_limit(),
            flow_label: ip.flow_label(),
        })
    }

    /// Writes all 40 bytes of the header of a UDP packet with `payload_len` bytes. The flow label
    /// is cut to its 20 bits.
    #[inline]
    pub fn emit(&self, payload_len: u16, out: &mut [u8; LEN]) {
        let word = 6 << 28 | u32::from(self.dscp_ecn) << 20 | self.flow_label & FLOW_MASK;
        be::put(out, 0, word.to_be_bytes());
        be::put(out, 4, payload_len.to_be_bytes());
        out[6] = udp::PROTOCOL;
        out[7] = self.hop_limit;
        be::put(out, 8, self.src.octets());
        be::put(out, 24, self.dst.octets());
    }
}

const FLOW_MASK: u32 = 0xf_ffff;
/// The next header value of a fragment.
const FRAGMENT: u8 = 44;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        let mut p = vec![0x6a, 0xbc, 0xde, 0xf1, 0, 3, 17, 255];
        p.extend((0..32).chain([1, 2, 3]));
        p
    }

    #[test]
    fn ipv6_new__checks_the_lengths() {
        let mut p = packet();
        assert_eq!(Ipv6::new(&p).unwrap().1, [1, 2, 3]);
        assert_eq!(Ipv6::new(&p[..42]).unwrap_err(), DropReason::IpTooShort);
        assert_eq!(Ipv6::new(&p[..39]).unwrap_err(), DropReason::IpTooShort);
        p.push(4);
        assert_eq!(Ipv6::new(&p).unwrap().1, [1, 2, 3]);
        p[0] = 0x4a;
        assert_eq!(Ipv6::new(&p).unwrap_err(), DropReason::BadIpVersion);
    }

    #[test]
    fn parse__requires_udp_next() {
        for (next, why) in [(44, DropReason::IpFragment), (0, DropReason::NotUdp)] {
            let mut p = packet();
            p[6] = next;
            assert_eq!(Ipv6Repr::parse(&Ipv6::new(&p).unwrap().0), Err(why));
        }
    }

    #[test]
    fn emit__writes_what_was_parsed() {
        let p = packet();
        let r = Ipv6Repr::parse(&Ipv6::new(&p).unwrap().0).unwrap();
        assert_eq!((r.dscp_ecn, r.flow_label, r.hop_limit), (0xab, 0xc_def1, 255));
        let mut out = [0x55; 40];
        r.emit(3, &mut out);
        assert_eq!(out, p[..40]);
    }
}
