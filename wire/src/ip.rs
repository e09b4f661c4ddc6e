//! The IP header of either version, for the layers above.

use std::net::IpAddr;

use crate::{Ipv4Repr, Ipv6Repr, ipv4, ipv6};

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpRepr {
    /// Version 4.
    V4(Ipv4Repr),
    /// Version 6.
    V6(Ipv6Repr),
}

/// The two ECN bits of an IP header (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: a congested queue drops instead of marking.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, codepoint 1 (RFC 9331 gives it to L4S).
    Ect1 = 0b01,
    /// ECN-capable, codepoint 0, which RoCE senders set.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class byte.
    #[must_use]
    pub const fn from_tos(dscp_ecn: u8) -> Self {
        match dscp_ecn & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Its two bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

impl IpRepr {
    /// A header with this crate's defaults, `None` if the addresses are of different versions.
    #[must_use]
    #[inline]
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Some(Self::V4(Ipv4Repr::new(s, d))),
            (IpAddr::V6(s), IpAddr::V6(d)) => Some(Self::V6(Ipv6Repr::new(s, d))),
            _ => None,
        }
    }

    /// The source address.
    #[must_use]
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.src),
            Self::V6(ip) => IpAddr::V6(ip.src),
        }
    }

    /// The destination address.
    #[must_use]
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::V4(ip) => IpAddr::V4(ip.dst),
            Self::V6(ip) => IpAddr::V6(ip.dst),
        }
    }

    /// The TOS or traffic class byte: DSCP 6 | ECN 2.
    #[must_use]
    pub const fn dscp_ecn(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.dscp_ecn,
            Self::V6(ip) => ip.dscp_ecn,
        }
    }

    /// Sets the TOS or traffic class byte.
    pub const fn set_dscp_ecn(&mut self, dscp_ecn: u8) {
        match self {
            Self::V4(ip) => ip.dscp_ecn = dscp_ecn,
            Self::V6(ip) => ip.dscp_ecn = dscp_ecn,
        }
    }

    /// The remaining TTL, or hop limit.
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(v4) => v4.ttl,
            Self::V6(v6) => v6.hop_limit,
        }
    }

    /// The ECN codepoint.
    #[must_use]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.dscp_ecn())
    }

    /// Bytes of the header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::LEN,
            Self::V6(_) => ipv6::LEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__requires_one_ip_version() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let v6 = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
        assert_eq!(IpRepr::new(v4, v6), None);
        let ip = IpRepr::new(v6, v6).unwrap();
        assert_eq!((ip.src(), ip.dst(), ip.header_len()), (v6, v6, 40));
        let v4 = IpRepr::new(v4, v4).unwrap();
        assert_eq!((v4.header_len(), v4.hop_limit(), ip.hop_limit()), (20, 64, 64));
    }

    #[test]
    fn ecn__is_the_low_two_bits() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let mut ip = IpRepr::new(v4, v4).unwrap();
        for (bits, ecn) in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce].iter().enumerate() {
            let bits = u8::try_from(bits).unwrap();
            ip.set_dscp_ecn(0x68 | bits);
            assert_eq!((ip.ecn(), ecn.bits(), ip.dscp_ecn()), (*ecn, bits, 0x68 | bits));
        }
    }
}
