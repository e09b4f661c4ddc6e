//! IP prefixes and the addresses of an interface.

use super::error::{NetError, NetErrorKind};
use super::link::check_name;
use super::netlink::{Netlink, RequestError};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP address with its prefix length: `10.77.0.1/24`. Host bits may be set, so it can be a
/// network or an interface's address in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpPrefix {
    addr: IpAddr,
    len: u8,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address and the network it is in.
    pub prefix: IpPrefix,
    /// IPv6 duplicate address detection is still running: not yet usable as a source.
    pub tentative: bool,
    /// IPv6 duplicate address detection failed, because another host on the link has the address:
    /// not usable.
    pub duplicate: bool,
}

impl IpPrefix {
    /// A prefix of `len` bits, 0..=32 (IPv4) or 0..=128 (IPv6); `None` if it is longer.
    #[must_use]
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        (len <= width(&addr)).then_some(Self { addr, len })
    }

    /// The address, host bits included.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The length of the network part in bits.
    #[must_use]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// True for the prefix of length 0, which contains every address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `n`-th address of the network with its prefix length: `10.77.0.0/24` and 2 give
    /// `10.77.0.2/24`. `None` if the network has no such host, or if for IPv4 it is the broadcast
    /// address.
    #[must_use]
    pub fn host(&self, n: u32) -> Option<Self> {
        let host_bits = u32::from(width(&self.addr) - self.len);
        if host_bits < 32 && n >> host_bits != 0 {
            return None;
        }
        let addr = match self.addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
                let all_ones = n == !mask && host_bits > 1;
                if all_ones {
                    return None;
                }
                IpAddr::V4(Ipv4Addr::from_bits((addr.to_bits() & mask) | n))
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits((addr.to_bits() & mask) | u128::from(n)))
            }
        };
        Some(Self { addr, len: self.len })
    }

    /// Checks that all addresses of the network can be those of interfaces: none is unspecified,
    /// loopback, multicast or reserved, and no IPv6 address is link-local.
    ///
    /// # Errors
    /// [`NetErrorKind::Invalid`], with the range that the network overlaps.
    pub fn check_for_hosts(&self) -> Result<(), NetError> {
        let overlaps = |(range, _): &&(Self, &str)| self.overlaps(range);
        match UNUSABLE.iter().find(overlaps) {
            None => Ok(()),
            Some((range, what)) => {
                let operation = format!("give hosts addresses of {self}: {range} is {what}");
                Err(NetError::new(NetErrorKind::Invalid, operation)
                    .advise("choose a private network, as 10.77.0.0/24 or fd77::/64"))
            }
        }
    }

    /// True if both networks have an address in common, which is if one contains the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let common = u32::from(self.len.min(other.len));
        let equal_bits = match (self.addr, other.addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        equal_bits >= common
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl FromStr for IpPrefix {
    type Err = NetError;

    /// Parses `ADDRESS/LENGTH`.
    fn from_str(text: &str) -> Result<Self, NetError> {
        let parsed = text.split_once('/').and_then(|(addr, len)| {
            // `parse` would take a leading plus sign.
            let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
            let len = len.parse().ok().filter(|_| digits)?;
            Self::new(addr.parse().ok()?, len)
        });
        parsed.ok_or_else(|| {
            NetError::new(NetErrorKind::Invalid, format!("use {text:?} as a prefix"))
                .advise("write an address, a slash and a length, as in 10.77.0.0/24 or fd77::/64")
        })
    }
}

impl Netlink {
    /// Adds an address to an interface. IPv6 addresses are usable immediately: duplicate detection,
    /// which takes a second, is disabled.
    ///
    /// # Errors
    /// No such interface, no CAP_NET_ADMIN, or the interface already has the address.
    pub fn add_address(&mut self, name: &str, prefix: IpPrefix) -> Result<(), NetError> {
        let operation = format!("add the address {prefix}");
        let mut message = AddressMessage::default();
        message.header.family = family(&prefix.addr);
        message.header.prefix_len = prefix.len;
        message.header.index = self.ifindex(name)?;
        if prefix.addr.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes =
            vec![AddressAttribute::Local(prefix.addr), AddressAttribute::Address(prefix.addr)];
        self.request(NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewAddress(message))
            .map_err(|r| r.during(operation).on(name))?;
        Ok(())
    }

    /// The addresses of an interface, IPv4 first, each family in the kernel's order.
    ///
    /// # Errors
    /// No such interface.
    pub fn addresses(&mut self, name: &str) -> Result<Vec<InterfaceAddress>, NetError> {
        let messages = self.address_messages(name)?;
        Ok(messages.iter().filter_map(address_of).collect())
    }

    /// Removes all addresses of an interface; returns how many there were.
    ///
    /// # Errors
    /// No such interface, or no CAP_NET_ADMIN.
    pub fn flush_addresses(&mut self, name: &str) -> Result<usize, NetError> {
        let mut flushed = 0;
        for message in self.address_messages(name)? {
            match self.request(0, RouteNetlinkMessage::DelAddress(message)) {
                Ok(_) => flushed += 1,
                // Removing a primary IPv4 address also removes its secondaries.
                Err(r) if r.errno() == Some(libc::EADDRNOTAVAIL) => flushed += 1,
                Err(r) => return Err(r.during("remove an address").on(name)),
            }
        }
        Ok(flushed)
    }

    /// The addresses of all interfaces of the namespace, each with its interface index, in the
    /// kernel's order: the local addresses of the host.
    ///
    /// # Errors
    /// The kernel does not reply.
    pub fn all_addresses(&mut self) -> Result<Vec<(u32, InterfaceAddress)>, NetError> {
        let messages = self.dump_addresses(0).map_err(|r| r.during("list the addresses"))?;
        let of = |message: &AddressMessage| Some((message.header.index, address_of(message)?));
        Ok(messages.iter().filter_map(of).collect())
    }

    fn address_messages(&mut self, name: &str) -> Result<Vec<AddressMessage>, NetError> {
        check_name(name)?;
        let ifindex = self.ifindex(name)?;
        let mut found =
            self.dump_addresses(ifindex).map_err(|r| r.during("list the addresses").on(name))?;
        found.retain(|message| message.header.index == ifindex);
        Ok(found)
    }

    /// The addresses of one interface, or of all with index 0, IPv4 first.
    fn dump_addresses(&mut self, ifindex: u32) -> Result<Vec<AddressMessage>, RequestError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = AddressMessage::default();
            query.header.family = family;
            query.header.index = ifindex;
            let answers = match self.dump(&RouteNetlinkMessage::GetAddress(query)) {
                Ok(answers) => answers,
                // A kernel without IPv6 does not have this table.
                Err(r) if r.errno() == Some(libc::EOPNOTSUPP) => continue,
                Err(r) => return Err(r),
            };
            found.extend(answers.into_iter().filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => Some(message),
                _ => None,
            }));
        }
        Ok(found)
    }
}

/// The address in a message. On point-to-point interfaces `Address` is the peer's and `Local` the
/// host's; elsewhere only one of the two may be present.
fn address_of(message: &AddressMessage) -> Option<InterfaceAddress> {
    let mut local = None;
    let mut address = None;
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(addr) => local = Some(*addr),
            AddressAttribute::Address(addr) => address = Some(*addr),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    Some(InterfaceAddress {
        prefix: IpPrefix::new(local.or(address)?, message.header.prefix_len)?,
        tentative: flags.contains(AddressFlags::Tentative),
        duplicate: flags.contains(AddressFlags::Dadfailed),
    })
}

/// The address family of an address.
pub(super) fn family(addr: &IpAddr) -> AddressFamily {
    match addr {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// The length of an address in bits.
pub(super) fn width(addr: &IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Networks whose addresses no interface of a host has.
///
/// # Source
/// RFC 6890 2.2.2 and 2.2.3, RFC 4291 2.4.
const UNUSABLE: [(IpPrefix, &str); 7] = [
    (v4([0, 0, 0, 0], 8), "\"this network\""),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([240, 0, 0, 0], 4), "reserved"),
    (v6(0, 8), "reserved, for the unspecified address, the loopback and IPv4 among others"),
    (v6(0xfe80, 10), "link-local"),
    (v6(0xff00, 8), "multicast"),
];

const fn v4([a, b, c, d]: [u8; 4], len: u8) -> IpPrefix {
    IpPrefix { addr: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), len }
}

const fn v6(first: u16, len: u8) -> IpPrefix {
    IpPrefix { addr: IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0)), len }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().expect("a valid prefix")
    }

    #[test]
    fn new__length_has_a_limit() {
        assert!(IpPrefix::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 32).is_some());
        assert!(IpPrefix::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 33).is_none());
        assert!(IpPrefix::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128).is_some());
        assert!(IpPrefix::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 129).is_none());
    }

    #[test]
    fn host__numbers_addresses_of_the_network() {
        assert_eq!(prefix("10.77.0.0/24").host(2), Some(prefix("10.77.0.2/24")));
        // Host bits of the prefix are ignored.
        assert_eq!(prefix("10.77.0.9/24").host(2), Some(prefix("10.77.0.2/24")));
        assert_eq!(prefix("fd77::/64").host(2), Some(prefix("fd77::2/64")));
        assert_eq!(prefix("10.0.0.0/31").host(1), Some(prefix("10.0.0.1/31")));
        assert_eq!(prefix("0.0.0.0/0").host(5), Some(prefix("0.0.0.5/0")));
    }

    #[test]
    fn host__beyond_the_network_is_none() {
        assert_eq!(prefix("10.0.0.0/31").host(2), None);
        assert_eq!(prefix("10.0.0.0/32").host(1), None);
        assert_eq!(prefix("10.0.0.0/24").host(256), None);
        assert_eq!(prefix("10.0.0.0/30").host(3), None, "broadcast");
        assert_eq!(prefix("fd77::/127").host(2), None);
    }

    #[test]
    fn check_for_hosts__refuses_addresses_that_no_interface_has() {
        for text in
            ["10.77.0.0/24", "192.168.0.0/16", "169.254.0.0/16", "fd77::/64", "2001:db8::/32"]
        {
            assert!(prefix(text).check_for_hosts().is_ok(), "{text}");
        }
        for (text, what) in [
            ("0.0.0.0/0", "this network"),
            ("0.0.0.0/32", "this network"),
            ("96.0.0.0/3", "loopback"),
            ("127.0.0.1/8", "loopback"),
            ("224.0.0.0/4", "multicast"),
            ("239.1.0.0/24", "multicast"),
            ("255.255.255.0/24", "reserved"),
            ("::/0", "loopback"),
            ("::1/128", "loopback"),
            ("::ffff:10.0.0.0/120", "IPv4"),
            ("fe80::/64", "link-local"),
            ("fe80::/9", "link-local"),
            ("ff02::/16", "multicast"),
        ] {
            let error = prefix(text).check_for_hosts().expect_err(text);
            assert_eq!(error.kind(), NetErrorKind::Invalid, "{text}");
            let error = error.to_string();
            assert!(error.contains(text) && error.contains(what), "{error}");
        }
    }

    #[test]
    fn from_str__accepts_and_prints_the_same() {
        for text in ["10.77.0.1/24", "fd77::1/64", "0.0.0.0/0", "::1/128"] {
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn from_str__rejects_with_an_example() {
        for text in ["", "10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/+8", "x/8", "::/129"] {
            let error = text.parse::<IpPrefix>().expect_err(text);
            assert_eq!(error.kind(), NetErrorKind::Invalid);
            assert!(error.to_string().contains("10.77.0.0/24"), "{error}");
        }
    }

    #[test]
    fn address_of__local_wins_over_peer_and_flags_are_read() {
        let mut message = AddressMessage::default();
        message.header.prefix_len = 32;
        let local = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        message.attributes = vec![
            AddressAttribute::Address(peer),
            AddressAttribute::Local(local),
            AddressAttribute::Flags(AddressFlags::Tentative),
        ];
        let address = address_of(&message).expect("complete");
        assert_eq!(address.prefix.addr(), local);
        assert!(address.tentative && !address.duplicate);
        message.attributes.clear();
        assert_eq!(address_of(&message), None);
    }
}
