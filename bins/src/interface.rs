//! The default of `--dev`: the interface that a command uses if the command line names none.

use crate::exit::usage;
use spanwire_host::fabric::Error;
use spanwire_host::peer::ZonedIp;
use spanwire_io::net::{LinkInfo, NetErrorKind, Netlink, resolve};

/// `named` if given, else the interface of the route to `peer`.
///
/// # Errors
/// There is no route to the peer, or `named` is not the zone of its address.
pub(crate) fn of_route(named: Option<&str>, peer: &ZonedIp) -> Result<String, Error> {
    let zone = peer.zone.as_deref().map(of_zone).transpose()?;
    match (named, zone) {
        (Some(name), Some(zone)) if name != zone => {
            Err(usage(format!("--dev {name}: the zone of {peer} is another interface")))
        }
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(zone)) => Ok(zone),
        (None, None) => match resolve(peer.ip, None) {
            Ok(hop) => Ok(hop.ifname),
            // UDP sockets use these interfaces.
            Err(e) if e.kind() == NetErrorKind::Loopback => loopback(),
            Err(e) => match e.interface().filter(|_| e.kind() == NetErrorKind::NotEthernet) {
                Some(ifname) => Ok(ifname.to_owned()),
                None => Err(format!("{e} (or name the interface with --dev)").into()),
            },
        },
    }
}

/// The name of the interface that a zone names, or whose index it is.
fn of_zone(zone: &str) -> Result<String, Error> {
    match zone.parse() {
        Ok(index) => Ok(Netlink::open()?.link_by_index(index)?.name),
        Err(_) => Ok(zone.to_owned()),
    }
}

fn loopback() -> Result<String, Error> {
    let links = Netlink::open()?.links()?;
    let loopback = links.into_iter().find(|link| link.loopback);
    Ok(loopback.ok_or("there is no loopback interface")?.name)
}

/// `named` if given, else the only usable interface that has an address.
///
/// # Errors
/// No interface qualifies, or several do; the message lists them.
pub(crate) fn only_usable(named: Option<&str>) -> Result<String, Error> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    let mut netlink = Netlink::open()?;
    let mut names = Vec::new();
    for link in netlink.links()? {
        if is_usable(&link) && !netlink.addresses(&link.name)?.is_empty() {
            names.push(link.name);
        }
    }
    exactly_one(&names)
}

/// True for an Ethernet interface that is up and has a carrier.
fn is_usable(link: &LinkInfo) -> bool {
    link.up && link.running && link.ethernet && !link.loopback
}

fn exactly_one(names: &[String]) -> Result<String, Error> {
    match names {
        [name] => Ok(name.clone()),
        [] => Err("no Ethernet interface here is up and has an address; \
                   `spanwire doctor` shows why"
            .into()),
        several => {
            let several = several.join(", ");
            Err(format!("several interfaces could be meant ({several}): name one with --dev")
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_route__prefers_the_given_name() {
        let peer = |text: &str| text.parse::<ZonedIp>().unwrap();
        assert_eq!(of_route(Some("eth7"), &peer("192.0.2.1")).unwrap(), "eth7");
        assert_eq!(of_route(None, &peer("127.0.0.2")).unwrap(), "lo");
        assert_eq!(only_usable(Some("eth7")).unwrap(), "eth7");
    }

    #[test]
    fn of_route__a_zone_is_an_interface() {
        let peer = |text: &str| text.parse::<ZonedIp>().unwrap();
        assert_eq!(of_route(None, &peer("fe80::1%eth7")).unwrap(), "eth7");
        assert_eq!(of_route(Some("eth7"), &peer("fe80::1%eth7")).unwrap(), "eth7");
        let loopback = Netlink::open().unwrap().link("lo").unwrap().ifindex;
        assert_eq!(of_route(None, &peer(&format!("fe80::1%{loopback}"))).unwrap(), "lo");
        let error = of_route(Some("eth7"), &peer("fe80::1%eth8")).unwrap_err().to_string();
        assert!(error.contains("eth7") && error.contains("fe80::1%eth8"), "{error}");
        assert!(of_route(None, &peer("fe80::1%4000000")).is_err());
    }

    #[test]
    fn exactly_one__rejects_none_and_several() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(exactly_one(&names(&["eth0"])).unwrap(), "eth0");
        assert!(exactly_one(&[]).unwrap_err().to_string().contains("spanwire doctor"));
        let both = exactly_one(&names(&["eth0", "eth1"])).unwrap_err().to_string();
        assert!(both.contains("eth0, eth1"), "{both}");
    }
}
