//! Ethernet II, 14 bytes: destination 48 | source 48 | EtherType 16. No VLAN tag, no FCS.

use core::fmt;

use crate::DropReason;
use crate::be;

/// Bytes of an Ethernet header.
pub(crate) const LEN: usize = 14;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

/// An Ethernet header in a received frame. Its length is checked.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a>(&'a [u8; LEN]);

/// An Ethernet header's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthernetRepr {
    /// The destination.
    pub dst: MacAddr,
    /// The source.
    pub src: MacAddr,
    /// The EtherType. In an emitted frame the IP header determines it instead.
    pub ethertype: u16,
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> Self {
        Self::new(octets)
    }
}

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The address of these bytes.
    #[must_use]
    #[inline]
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// Its bytes.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// True for a group address, the broadcast address included.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'a> Ethernet<'a> {
    /// The view of the first 14 bytes of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::EthernetTooShort`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        bytes.first_chunk().map(Self).ok_or(DropReason::EthernetTooShort)
    }

    /// The destination.
    #[must_use]
    pub const fn dst(&self) -> MacAddr {
        MacAddr(be::bytes_at(self.0, 0))
    }

    /// The source.
    #[must_use]
    pub const fn src(&self) -> MacAddr {
        MacAddr(be::bytes_at(self.0, 6))
    }

    /// The EtherType.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        be::u16_at(self.0, 12)
    }
}

impl EthernetRepr {
    /// The EtherType of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// The EtherType of IPv6.
    pub const IPV6: u16 = 0x86dd;

    /// The fields of an Ethernet header.
    #[must_use]
    #[inline]
    pub const fn parse(eth: &Ethernet<'_>) -> Self {
        Self { dst: eth.dst(), src: eth.src(), ethertype: eth.ethertype() }
    }

    /// Writes all 14 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        be::put(out, 0, self.dst.0);
        be::put(out, 6, self.src.0);
        be::put(out, 12, self.ethertype.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addr__shows_as_hex() {
        let mac = MacAddr::new([0x52, 0x54, 0, 0x4f, 0xd8, 1]);
        assert_eq!(mac.to_string(), "52:54:00:4f:d8:01");
        assert!(!mac.is_multicast());
        assert!(MacAddr::BROADCAST.is_multicast());
    }

    #[test]
    fn parse__and_emit_are_inverse() {
        let wire = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd];
        let r = EthernetRepr::parse(&Ethernet::new(&wire).unwrap());
        assert_eq!(r.dst.octets(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(r.src.octets(), [7, 8, 9, 10, 11, 12]);
        assert_eq!(r.ethertype, EthernetRepr::IPV6);
        let mut out = [0; 14];
        r.emit(&mut out);
        assert_eq!(out, wire);
        assert_eq!(Ethernet::new(&wire[1..]).unwrap_err(), DropReason::EthernetTooShort);
    }
}
