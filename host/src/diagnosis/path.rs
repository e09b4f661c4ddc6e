//! The check of the path to a peer: the longest packet that arrives.

use super::check::Check;
use spanwire_io::net::{LinkInfo, NextHop, PathProbe};
use std::net::IpAddr;

/// The path to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// The next hop.
    pub next_hop: IpAddr,
    /// The longest IP packet by the MTU of the interface and the metric of the route.
    pub mtu: u32,
    /// The lengths that arrive.
    pub probe: PathProbe,
}

impl PathFacts {
    /// The path to `peer` through `hop`; `None` if it cannot be tested.
    pub(super) fn read(peer: IpAddr, hop: &NextHop) -> Option<Self> {
        let probe = PathProbe::run(peer, hop.ifindex, hop.mtu).ok()?;
        Some(Self { next_hop: hop.next_hop_ip, mtu: hop.mtu, probe })
    }

    /// The check of the path to `peer` through interface `link`.
    pub(super) fn check(&self, peer: IpAddr, link: &LinkInfo) -> Check {
        let Self { next_hop, mtu, probe } = self;
        let of_route = if *mtu < link.mtu { ", by the metric of its route" } else { "" };
        match probe {
            PathProbe::Arrives => {
                Check::ok("path mtu", format!("a packet of {mtu} bytes arrives{of_route}"))
            }
            PathProbe::Unanswered => Check::ok(
                "path mtu",
                format!("{mtu}{of_route}; not tested: the peer answers no datagram"),
            ),
            PathProbe::Narrower(bytes) => {
                let via =
                    if *next_hop == peer { String::new() } else { format!("via {next_hop} ") };
                let found = format!("packets of {mtu} bytes do not arrive, of {bytes} they do");
                let fix = format!("ip route replace {peer} {via}dev {} mtu {bytes}", link.name);
                Check::fail("path mtu", found, fix)
            }
        }
    }
}
