//! IPv4 without options (RFC 791), 20 bytes.
//!
//! The ICRC covers the identification and the flags, so its computation fixes them:
//! this crate sends id 0 with DF, which RFC 6864 allows for packets never fragmented.

use std::net::Ipv4Addr;

use crate::DropReason;
use crate::be;
use crate::udp;

/// Bytes of an IPv4 header without options.
pub(crate) const LEN: usize = 20;

/// An IPv4 header in a received frame.
///
/// The constructor has checked that this is version 4 without options, and its lengths.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a>(&'a [u8; LEN]);

/// An IPv4 header's fields, without the length and the checksum: those follow from the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Repr {
    /// The source address.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
    /// The type of service byte: DSCP 6 | ECN 2.
    pub dscp_ecn: u8,
    /// The remaining hops.
    pub ttl: u8,
    /// The identification.
    pub id: u16,
    /// The don't-fragment flag.
    pub dont_fragment: bool,
}

impl<'a> Ipv4<'a> {
    /// The view of the packet at the start of `bytes`, and its payload up to the total length.
    /// Bytes after that are link padding.
    ///
    /// # Errors
    /// [`DropReason::IpTooShort`], [`DropReason::BadIpVersion`], [`DropReason::BadIpLength`],
    /// [`DropReason::IpOptions`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), DropReason> {
        Self::elided(bytes, 0)
    }

    /// As [`Ipv4::new`] for a packet with `elided_bytes` of its payload elided.
    pub(crate) fn elided(
        bytes: &'a [u8],
        elided_bytes: usize,
    ) -> Result<(Self, &'a [u8]), DropReason> {
        let header = bytes.first_chunk().ok_or(DropReason::IpTooShort)?;
        match header[0] {
            VERSION_IHL => {}
            b if b >> 4 != 4 => return Err(DropReason::BadIpVersion),
            b if b < VERSION_IHL => return Err(DropReason::BadIpLength),
            _ => return Err(DropReason::IpOptions),
        }
        let view = Self(header);
        let total = usize::from(view.total_len());
        if total < LEN {
            return Err(DropReason::BadIpLength);
        }
        let end = total.checked_sub(elided_bytes).ok_or(DropReason::BadIpLength)?;
        let payload = bytes.get(LEN..end).ok_or(DropReason::IpTooShort)?;
        Ok((view, payload))
    }

    /// The type of service byte: DSCP 6 | ECN 2.
    #[must_use]
    pub const fn dscp_ecn(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of header and payload.
    #[must_use]
    pub const fn total_len(&self) -> u16 {
        be::u16_at(self.0, 2)
    }

    /// The identification.
    #[must_use]
    pub const fn id(&self) -> u16 {
        be::u16_at(self.0, 4)
    }

    /// The reserved flag, DF, MF and the fragment offset, as on the wire.
    #[must_use]
    pub const fn flags_fragment(&self) -> u16 {
        be::u16_at(self.0, 6)
    }

    /// The remaining hops.
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        self.0[8]
    }

    /// The protocol of the payload.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.0[9]
    }

    /// True if the header checksum is right.
    #[must_use]
    pub fn checksum_is_good(&self) -> bool {
        fold(sum(self.0)) == 0xffff
    }

    /// The source address.
    #[must_use]
    pub const fn src(&self) -> Ipv4Addr {
        let [a, b, c, d] = be::bytes_at(self.0, 12);
        Ipv4Addr::new(a, b, c, d)
    }

    /// The destination address.
    #[must_use]
    pub const fn dst(&self) -> Ipv4Addr {
        let [a, b, c, d] = be::bytes_at(self.0, 16);
        Ipv4Addr::new(a, b, c, d)
    }
}

impl Ipv4Repr {
    /// A header with this crate's defaults: id 0, DF, TTL 64, best effort, not ECN-capable.
    #[must_use]
    #[inline]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self { src, dst, dscp_ecn: 0, ttl: 64, id: 0, dont_fragment: true }
    }

    /// The fields of the header of a whole UDP packet.
    ///
    /// # Errors
    /// [`DropReason::BadIpChecksum`], [`DropReason::IpFragment`], [`DropReason::NotUdp`].
    #[inline]
    pub fn parse(ip: &Ipv4<'_>) -> Result<Self, DropReason> {
        if !ip.checksum_is_good() {
            return Err(DropReason::BadIpChecksum);
        }
        if ip.flags_fragment() & !DF != 0 {
            return Err(DropReason::IpFragment);
        }
        if ip.protocol() != udp::PROTOCOL {
            return Err(DropReason::NotUdp);
        }
        Ok(Self {
            src: ip.src(),
            dst: ip.dst(),
            dscp_ecn: ip.dscp_ecn(),
            ttl: ip.ttl(),
            id: ip.id(),
            dont_fragment: ip.flags_fragment() & DF != 0,
        })
    }

    /// Writes all 20 bytes of the header of a UDP packet of `total_len` bytes, header included.
    #[inline]
    pub fn emit(&self, total_len: u16, out: &mut [u8; LEN]) {
        out[0] = VERSION_IHL;
        out[1] = self.dscp_ecn;
        be::put(out, 2, total_len.to_be_bytes());
        be::put(out, 4, self.id.to_be_bytes());
        be::put(out, 6, if self.dont_fragment { DF } else { 0 }.to_be_bytes());
        out[8] = self.ttl;
        out[9] = udp::PROTOCOL;
        be::put(out, 10, [0, 0]);
        be::put(out, 12, self.src.octets());
        be::put(out, 16, self.dst.octets());
        let checksum = !fold(sum(out));
        be::put(out, 10, checksum.to_be_bytes());
    }
}

/// The sum of the header's 16-bit words before folding the carries (RFC 1071). Ten words cannot
/// overflow 32 bits, nor can the length that the template adds.
pub(crate) fn sum(header: &[u8; LEN]) -> u32 {
    let (words, _) = header.as_chunks::<2>();
    words.iter().map(|w| u32::from(u16::from_be_bytes(*w))).sum()
}

/// Folds the carries in: a one's complement sum of 16 bits.
pub(crate) const fn fold(sum: u32) -> u16 {
    // At most 0xffff + 0xffff after the first round, so the second leaves no carry.
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let [_, _, hi, lo] = sum.to_be_bytes();
    u16::from_be_bytes([hi, lo])
}

const VERSION_IHL: u8 = 0x45;
const DF: u16 = 0x4000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Summed by hand: the words without the checksum give 0x2479c, folded 0x479e, inverted 0xb861.
    const WIRE: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    fn packet() -> Vec<u8> {
        let mut p = WIRE.to_vec();
        p.resize(0x73, 0);
        p
    }

    /// Parses after changing one byte and making the checksum right again.
    fn with(at: usize, value: u8) -> Result<Ipv4Repr, DropReason> {
        let mut p = packet();
        p[at] = value;
        p[10..12].fill(0);
        let checksum = !fold(sum(p.first_chunk().unwrap()));
        p[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ipv4Repr::parse(&Ipv4::new(&p)?.0)
    }

    #[test]
    fn ipv4_new__checks_the_lengths() {
        let mut p = packet();
        let (view, payload) = Ipv4::new(&p).unwrap();
        assert_eq!((usize::from(view.total_len()), payload.len()), (0x73, 0x73 - 20));
        p.push(0);
        assert_eq!(Ipv4::new(&p).unwrap().1.len(), 0x73 - 20);
        assert_eq!(Ipv4::new(&p[..0x72]).unwrap_err(), DropReason::IpTooShort);
        assert_eq!(Ipv4::new(&p[..19]).unwrap_err(), DropReason::IpTooShort);
        p[3] = 19;
        assert_eq!(Ipv4::new(&p).unwrap_err(), DropReason::BadIpLength);
    }

    #[test]
    fn ipv4_new__checks_version_and_header_length() {
        assert_eq!(with(0, 0x65), Err(DropReason::BadIpVersion));
        assert_eq!(with(0, 0x44), Err(DropReason::BadIpLength));
        assert_eq!(with(0, 0x46), Err(DropReason::IpOptions));
    }

    #[test]
    fn parse__checks_checksum_fragments_and_protocol() {
        let mut p = packet();
        p[8] -= 1;
        let (view, _) = Ipv4::new(&p).unwrap();
        assert_eq!(Ipv4Repr::parse(&view), Err(DropReason::BadIpChecksum));
        assert_eq!(with(6, 0x20), Err(DropReason::IpFragment));
        assert_eq!(with(7, 0x01), Err(DropReason::IpFragment));
        assert_eq!(with(6, 0x80), Err(DropReason::IpFragment));
        assert_eq!(with(9, 6), Err(DropReason::NotUdp));
        assert_eq!(with(6, 0x00).map(|r| r.dont_fragment), Ok(false));
    }

    #[test]
    fn emit__writes_what_was_parsed() {
        let p = packet();
        let r = Ipv4Repr::parse(&Ipv4::new(&p).unwrap().0).unwrap();
        assert_eq!(r, Ipv4Repr::new([192, 168, 0, 1].into(), [192, 168, 0, 199].into()));
        let mut out = [0xaa; 20];
        r.emit(0x73, &mut out);
        assert_eq!(out, WIRE);
    }

    #[test]
    fn fold__carries_twice() {
        assert_eq!(fold(0x1_ffff), 1);
        assert_eq!(fold(0xffff_ffff), 0xffff);
        assert_eq!(fold(0xffff), 0xffff);
    }
}
