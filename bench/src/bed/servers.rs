//! Servers that share the port of one host.

use super::{Bed, ip};
use crate::sample::Error;
use spanwire_io::net::NetNs;
use std::net::{IpAddr, Ipv4Addr};

/// Hosts `s1` and up at the port of host a: macvlans of its interface, each in a namespace of its
/// own. They are removed when dropped, before the lab.
pub(crate) struct Servers(Vec<String>);

impl Servers {
    /// Adds `count` servers to `bed`, at most 100.
    pub(crate) fn new(bed: &Bed, count: u32) -> Result<Self, Error> {
        let mut servers = Self(Vec::new());
        (1..=count).try_for_each(|n| servers.add(bed, n))?;
        Ok(servers)
    }

    fn add(&mut self, bed: &Bed, n: u32) -> Result<(), Error> {
        let (name, link) = (format!("{}-{}", bed.name(), Self::host(n)), format!("m{n}"));
        NetNs::create_named(&name)?;
        self.0.push(name.clone());
        let host = format!("{}-a", bed.name());
        let kind = ["type", "macvlan", "mode", "private"];
        ip(&[&["-n", &host, "link", "add", "link", "sw0", "name", &link][..], &kind].concat())?;
        ip(&["-n", &host, "link", "set", &link, "netns", &name])?;
        ip(&["-n", &name, "link", "set", &link, "name", "sw0"])?;
        ip(&["-n", &name, "addr", "add", &format!("{}/24", Self::address(n)), "dev", "sw0"])?;
        ip(&["-n", &name, "link", "set", "sw0", "up"])
    }

    /// The name of server `n`, 1 and up.
    pub(crate) fn host(n: u32) -> String {
        format!("s{n}")
    }

    /// Its address, beyond those of the lab's own hosts.
    pub(crate) fn address(n: u32) -> IpAddr {
        let last = u8::try_from(100 + n).unwrap_or(u8::MAX);
        Ipv4Addr::new(10, 77, 0, last).into()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for name in &self.0 {
            if let Err(e) = NetNs::delete_named(name) {
                eprintln!("the namespace {name} remains: {e}");
            }
        }
    }
}
