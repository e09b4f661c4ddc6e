//! Which interface is meant, when the command line does not say.

use spanwire_host::fabric::Error;
use spanwire_io::net::{LinkInfo, Netlink, resolve};
use std::net::IpAddr;

/// The interface that `peer` is reached through: `named` when it is given.
///
/// # Errors
/// There is no way to the peer from here.
pub(crate) fn towards(named: Option<&str>, peer: IpAddr) -> Result<String, Error> {
    match named {
        Some(name) => Ok(name.to_owned()),
        None => resolve(peer, None)
            .map(|hop| hop.ifname)
            .map_err(|e| format!("{e} (or name the interface with --dev)").into()),
    }
}

/// The interface that others can reach us through: `named` when it is given, else the only one
/// there is.
///
/// # Errors
/// None, or more than one, could be meant; the message lists them.
pub(crate) fn sole(named: Option<&str>) -> Result<String, Error> {
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
    only(&names)
}

/// Up, with a carrier, and made of Ethernet frames.
fn is_usable(link: &LinkInfo) -> bool {
    link.up && link.running && link.ethernet && !link.loopback
}

fn only(names: &[String]) -> Result<String, Error> {
    match names {
        [only] => Ok(only.clone()),
        [] => Err("no Ethernet interface here is up and has an address; \
                   `spanwire doctor` says what each lacks"
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
    fn towards__takes_the_name_it_is_given() {
        let nobody = [192, 0, 2, 1].into();
        assert_eq!(towards(Some("eth7"), nobody).unwrap(), "eth7");
        assert_eq!(sole(Some("eth7")).unwrap(), "eth7");
    }

    #[test]
    fn only__wants_exactly_one() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(only(&names(&["eth0"])).unwrap(), "eth0");
        assert!(only(&[]).unwrap_err().to_string().contains("spanwire doctor"));
        let both = only(&names(&["eth0", "eth1"])).unwrap_err().to_string();
        assert!(both.contains("eth0, eth1"), "{both}");
    }
}
