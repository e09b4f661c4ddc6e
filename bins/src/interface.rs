//! The default of `--dev`: the interface that a command uses if the command line names none.

use spanwire_host::fabric::Error;
use spanwire_io::net::{LinkInfo, NetErrorKind, Netlink, resolve};
use std::net::IpAddr;

/// `named` if given, else the interface of the route to `peer`.
///
/// # Errors
/// There is no route to the peer.
pub(crate) fn of_route(named: Option<&str>, peer: IpAddr) -> Result<String, Error> {
    match named {
        Some(name) => Ok(name.to_owned()),
        None => match resolve(peer, None) {
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
        let peer = [192, 0, 2, 1].into();
        assert_eq!(of_route(Some("eth7"), peer).unwrap(), "eth7");
        assert_eq!(of_route(None, [127, 0, 0, 2].into()).unwrap(), "lo");
        assert_eq!(only_usable(Some("eth7")).unwrap(), "eth7");
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
