//! The interface and the address that the settings of a program name.

use super::ProgramSettings;
use crate::fabric::{Error, interface};
use spanwire_io::net::{IpPrefix, LinkInfo, Netlink};
use std::net::{IpAddr, Ipv4Addr};

/// The interface of a program's port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Local {
    /// The interface.
    pub link: LinkInfo,
    /// Its first IPv4 address, or [`ProgramSettings::addr`].
    pub addr: Ipv4Addr,
}

impl ProgramSettings {
    /// The interface and the address that [`ProgramSettings::dev`] and [`ProgramSettings::addr`]
    /// name, in the network namespace of the calling thread; `None` if they name neither.
    ///
    /// Every address in the network of a loopback address is one of the host, as in the kernel's
    /// local routing table: 127.0.0.2 is an address of `lo`.
    ///
    /// # Errors
    /// There is no such interface, it has no IPv4 address, or the address is not one of it, or not
    /// one of the host. The message says what to do.
    pub fn local(&self) -> Result<Option<Local>, Error> {
        match (&self.dev, self.addr) {
            (None, None) => Ok(None),
            (Some(dev), addr) => of_interface(dev, addr).map(Some),
            (None, Some(addr)) => of_address(addr).map(Some),
        }
    }
}

fn of_interface(dev: &str, addr: Option<Ipv4Addr>) -> Result<Local, Error> {
    let link = interface(dev)?;
    let owned = prefixes(&mut Netlink::open()?, dev)?;
    let Some((first, _)) = owned.first() else {
        let why = format!("{dev} has no IPv4 address: `ip address add ADDRESS/LENGTH dev {dev}`");
        return Err(why.into());
    };
    match addr {
        None => Ok(Local { link, addr: *first }),
        Some(addr) if owns(&link, &owned, addr) => Ok(Local { link, addr }),
        Some(addr) => {
            let owned: Vec<String> = owned.iter().map(|(addr, _)| addr.to_string()).collect();
            let owned = owned.join(", ");
            Err(format!("{addr} is not an IPv4 address of {dev}, which has {owned}").into())
        }
    }
}

fn of_address(addr: Ipv4Addr) -> Result<Local, Error> {
    let mut netlink = Netlink::open()?;
    let mut known = Vec::new();
    for link in netlink.links()? {
        let owned = prefixes(&mut netlink, &link.name)?;
        if owns(&link, &owned, addr) {
            return Ok(Local { link, addr });
        }
        known.extend(owned.iter().map(|(addr, _)| format!("{addr} ({})", link.name)));
    }
    let known = known.join(", ");
    Err(format!("{addr} is not an IPv4 address of this host, which has {known}").into())
}

/// The IPv4 addresses of an interface, each with its network.
fn prefixes(netlink: &mut Netlink, dev: &str) -> Result<Vec<(Ipv4Addr, IpPrefix)>, Error> {
    let all = netlink.addresses(dev)?.into_iter().map(|address| address.prefix);
    let v4 = |prefix: IpPrefix| match prefix.addr() {
        IpAddr::V4(addr) => Some((addr, prefix)),
        IpAddr::V6(_) => None,
    };
    Ok(all.filter_map(v4).collect())
}

fn owns(link: &LinkInfo, owned: &[(Ipv4Addr, IpPrefix)], addr: Ipv4Addr) -> bool {
    let in_network = |network: &IpPrefix| {
        IpPrefix::new(addr.into(), 32).is_some_and(|single| network.overlaps(&single))
    };
    owned.iter().any(|(own, network)| *own == addr || link.loopback && in_network(network))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(dev: Option<&str>, addr: Option<&str>) -> Result<Option<(String, String)>, String> {
        let (dev, addr) = (dev.map(str::to_owned), addr.map(|addr| addr.parse().expect("IPv4")));
        let settings = ProgramSettings { dev, addr, ..ProgramSettings::default() };
        let found = settings.local().map_err(|e| e.to_string())?;
        Ok(found.map(|local| (local.link.name, local.addr.to_string())))
    }

    #[test]
    fn local__is_what_interface_and_address_name() {
        let lo = |addr: &str| Ok(Some(("lo".to_owned(), addr.to_owned())));
        assert_eq!(local(None, None), Ok(None));
        assert_eq!(local(Some("lo"), None), lo("127.0.0.1"));
        assert_eq!(local(None, Some("127.0.0.2")), lo("127.0.0.2"));
        assert_eq!(local(Some("lo"), Some("127.83.0.1")), lo("127.83.0.1"));
    }

    #[test]
    fn local__errors_list_what_there_is() {
        let error = local(Some("sw-none"), None).unwrap_err();
        assert!(error.contains("sw-none") && error.contains("interfaces here: lo"), "{error}");
        let error = local(Some("lo"), Some("192.0.2.1")).unwrap_err();
        assert!(error.starts_with("192.0.2.1 is not an IPv4 address of lo, which has 127.0.0.1"));
        let error = local(None, Some("192.0.2.1")).unwrap_err();
        assert!(error.contains("of this host, which has 127.0.0.1 (lo)"), "{error}");
    }
}
