//! The other end as a command line names it: a host, with the zone of a link-local address, and a
//! port.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::str::FromStr;

/// An address, and the zone of a link-local one: `fe80::1%eth0`.
///
/// # Source
/// RFC 4007 11.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZonedIp {
    /// The address.
    pub ip: IpAddr,
    /// The interface, by name or index.
    pub zone: Option<String>,
}

/// `HOST`, `HOST:PORT`, a bare IPv6 address, or `[IPV6]:PORT`; the IPv6 address with `%ZONE` if it
/// is link-local.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    host: Host,
    /// The port, if it is named.
    pub port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Host {
    Address(ZonedIp),
    Name(String),
}

impl Peer {
    /// Its addresses: the one named, or those of the name.
    ///
    /// # Errors
    /// The name has no address.
    pub fn addresses(&self) -> Result<Vec<ZonedIp>, String> {
        let name = match &self.host {
            Host::Address(address) => return Ok(vec![address.clone()]),
            Host::Name(name) => name,
        };
        let found =
            (&**name, 0).to_socket_addrs().map_err(|e| format!("cannot find {name}: {e}"))?;
        let addresses: Vec<_> = found.map(|a| ZonedIp { ip: a.ip(), zone: None }).collect();
        if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
    }
}

impl FromStr for ZonedIp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, zone) = text.split_once('%').map_or((text, None), |(ip, zone)| (ip, Some(zone)));
        let ip: IpAddr = ip.parse().map_err(|_| format!("{text} is no IP address"))?;
        let is_link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        match zone {
            None => Ok(Self { ip, zone: None }),
            Some(_) if !is_link_local => {
                Err(format!("{text}: only a link-local IPv6 address has a zone"))
            }
            Some(zone) if zone.is_empty() || zone.contains([':', '/', '%', ' ']) => {
                Err(format!("{text}: the zone of an address is an interface, as in fe80::1%eth0"))
            }
            Some(zone) => Ok(Self { ip, zone: Some(zone.to_owned()) }),
        }
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} names no host (try 10.0.0.1, host:7000, [fd00::1]:7000)");
        let port = |p: &str| p.parse().ok().filter(|p: &u16| *p > 0).ok_or_else(wrong).map(Some);
        if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            let port = match rest.strip_prefix(':') {
                Some(p) => port(p)?,
                None if rest.is_empty() => None,
                None => return Err(wrong()),
            };
            return Ok(Self { host: Host::Address(host.parse()?), port });
        }
        let (host, port) = match text.split_once(':') {
            // More than one colon: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, p)) => (host, port(p)?),
            None => (text, None),
        };
        let is_address = host.parse::<IpAddr>().is_ok() || host.contains(['%', ':']);
        match host {
            "" => Err(wrong()),
            _ if is_address => Ok(Self { host: Host::Address(host.parse()?), port }),
            name => Ok(Self { host: Host::Name(name.to_owned()), port }),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (Host::Name(name), None) => f.write_str(name),
            (Host::Name(name), Some(port)) => write!(f, "{name}:{port}"),
            (Host::Address(address), None) => address.fmt(f),
            (Host::Address(address), Some(port)) if address.ip.is_ipv4() => {
                write!(f, "{address}:{port}")
            }
            (Host::Address(address), Some(port)) => write!(f, "[{address}]:{port}"),
        }
    }
}

impl fmt::Display for ZonedIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{}%{zone}", self.ip),
            None => self.ip.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> (String, Option<u16>) {
        let peer: Peer = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let host = match peer.host {
            Host::Address(address) => address.to_string(),
            Host::Name(name) => format!("name {name}"),
        };
        (host, peer.port)
    }

    #[test]
    fn peer__is_a_name_or_an_address_with_or_without_a_port() {
        for (text, host, port) in [
            ("10.0.0.1", "10.0.0.1", None),
            ("10.0.0.1:7", "10.0.0.1", Some(7)),
            ("box.example:65535", "name box.example", Some(65_535)),
            ("box", "name box", None),
            ("fd00::1", "fd00::1", None),
            ("[fd00::1]", "fd00::1", None),
            ("[fd00::1]:9", "fd00::1", Some(9)),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[fe80::1%eth0]", "fe80::1%eth0", None),
            ("[fe80::1%2]:9", "fe80::1%2", Some(9)),
            ("fe80::1", "fe80::1", None),
        ] {
            assert_eq!(peer(text), (host.to_owned(), port), "{text}");
        }
        for text in ["box", "box:7", "10.0.0.1:7", "fd00::1", "[fd00::1]:7", "[fe80::1%eth0]:7"] {
            assert_eq!(text.parse::<Peer>().map(|peer| peer.to_string()), Ok(text.to_owned()));
        }
        for bad in [
            "",
            ":7",
            "host:",
            "host:0",
            "host:70000",
            "[fd00::1",
            "[fd00::1]x",
            "[host]:7",
            "a:b",
            "a::b::c",
            "fe80::1%",
            "fe80::1%eth0:7",
            "[fe80::1%a%b]:7",
            "fd00::1%eth0",
            "10.0.0.1%eth0",
            "host%eth0",
        ] {
            assert!(bad.parse::<Peer>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses__of_an_address_is_itself() {
        let peer: Peer = "[fe80::1%eth0]:7".parse().unwrap();
        let address = ZonedIp { ip: "fe80::1".parse().unwrap(), zone: Some("eth0".to_owned()) };
        assert_eq!(peer.addresses(), Ok(vec![address]));
    }
}
