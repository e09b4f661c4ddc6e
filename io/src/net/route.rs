//! Resolution of a destination address to the interface, source address and MAC addresses of its
//! frames. The kernel's route lookup decides; it is queried, not reimplemented.

use super::address::{IpPrefix, family, width};
use super::error::{NetError, NetErrorKind};
use super::netlink::{Netlink, RequestError};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use std::net::IpAddr;
use std::time::Duration;

/// The next hop of frames to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The egress interface.
    pub ifindex: u32,
    /// Its name.
    pub ifname: String,
    /// The source address that the kernel selects.
    pub src_ip: IpAddr,
    /// The interface's MAC address.
    pub src_mac: [u8; 6],
    /// The next hop on the link: the destination itself, or a gateway.
    pub next_hop_ip: IpAddr,
    /// The next hop's MAC address.
    pub dst_mac: [u8; 6],
    /// The largest IP packet in bytes, as by [`Netlink::path_mtu`].
    pub mtu: u32,
    /// The TTL or hop limit of the route, if it has one.
    pub hop_limit: Option<u8>,
}

/// Time limit of [`resolve`] for a neighbour: the kernel's three probes, one second each.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Resolves the next hop to `dst` in the network namespace of the calling thread, as
/// [`resolve_within`] with [`RESOLVE_TIMEOUT`].
///
/// # Errors
/// See [`resolve_within`].
pub fn resolve(dst: IpAddr, oif: Option<u32>) -> Result<NextHop, NetError> {
    resolve_within(dst, oif, RESOLVE_TIMEOUT)
}

/// Resolves the next hop to `dst` in the network namespace of the calling thread.
///
/// If the kernel has no MAC address of the next hop, an empty UDP datagram to `dst` (discard port,
/// 9) triggers its probes; no privilege is needed. A stale entry is used as it is.
///
/// # Arguments
/// - `dst`: a unicast address. IPv4-mapped IPv6 addresses are treated as IPv4.
/// - `oif`: the index of the egress interface; required for link-local addresses.
/// - `timeout`: the time limit for the next hop's reply.
///
/// # Errors
/// By [`NetError::kind`]: `NoRoute`, `OtherInterface`, `Loopback`, `NotUnicast`, `ScopeNeeded`,
/// `NotEthernet`, and `NeighbourSilent` after `timeout`.
pub fn resolve_within(
    dst: IpAddr,
    oif: Option<u32>,
    timeout: Duration,
) -> Result<NextHop, NetError> {
    let dst = dst.to_canonical();
    check_destination(dst, oif)?;
    let mut netlink = Netlink::open()?;
    let route = netlink.route_to(dst, oif)?;
    let link = netlink.link_by_index(route.ifindex)?;
    if route.local || link.loopback {
        return Err(NetError::new(NetErrorKind::Loopback, reach(dst)));
    }
    let src_mac = link.mac.ok_or_else(|| {
        NetError::new(NetErrorKind::NotEthernet, reach(dst)).on(link.name.as_str())
    })?;
    let src_ip = route.source.ok_or_else(|| {
        NetError::new(NetErrorKind::NoRoute, reach(dst))
            .on(link.name.as_str())
            .detail("the interface has no address to send from")
            .advise("give the interface an address of the peer's network")
    })?;
    let next_hop_ip = route.gateway.unwrap_or(dst);
    let dst_mac = netlink.neighbour_mac(dst, next_hop_ip, &link, timeout)?;
    let mtu = netlink.metric_mtu(dst, route.ifindex);
    Ok(NextHop {
        ifindex: route.ifindex,
        mtu: mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        ifname: link.name,
        src_ip,
        src_mac,
        next_hop_ip,
        dst_mac,
        hop_limit: route.hop_limit,
    })
}

impl Netlink {
    /// Bytes of the longest IP packet to `dst` through interface `oif`: its MTU, or the route's
    /// metric if that is less. A path MTU that the kernel has learned from ICMP is not considered:
    /// any host can forge it.
    ///
    /// # Errors
    /// No such interface. Without a route, it is the interface's MTU.
    pub fn path_mtu(&mut self, dst: IpAddr, oif: u32) -> Result<u32, NetError> {
        let link = self.link_by_index(oif)?;
        Ok(self.metric_mtu(dst.to_canonical(), oif).map_or(link.mtu, |mtu| mtu.min(link.mtu)))
    }

    /// The MTU among the metrics of the route to `dst`: of the entry of the table, to which the
    /// kernel's cached exceptions do not belong.
    fn metric_mtu(&mut self, dst: IpAddr, oif: u32) -> Option<u32> {
        self.query_route(dst, Some(oif), RouteFlags::FibMatch).ok()?.mtu
    }

    /// Checks that a route leads from `src` to `dst`, through interface `oif` if one is given: a
    /// datagram of a socket bound to both leaves, or stays on this host. Neighbours are not asked.
    ///
    /// # Errors
    /// There is none, with the kernel's [`NetError::errno`]: commonly ENETUNREACH or EHOSTUNREACH,
    /// and EINVAL for a `src` that may not leave this host.
    pub fn check_route(
        &mut self,
        dst: IpAddr,
        src: Option<IpAddr>,
        oif: Option<u32>,
    ) -> Result<(), NetError> {
        let dst = dst.to_canonical();
        let src = src.filter(|src| src.is_ipv4() == dst.is_ipv4());
        self.query_route_from(dst, src, oif, only_real(dst))
            .map(drop)
            .map_err(|r| r.during(reach(dst)))
    }

    /// Adds a route to a network through a gateway on an interface's link.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, no such interface, the gateway is not on its link, or the route exists.
    pub fn add_route(
        &mut self,
        network: IpPrefix,
        gateway: IpAddr,
        name: &str,
    ) -> Result<(), NetError> {
        let operation = format!("add a route to {network} through {gateway}");
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(&network.addr()),
            destination_prefix_length: network.len(),
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(network.addr().into()),
            RouteAttribute::Gateway(gateway.into()),
            RouteAttribute::Oif(self.ifindex(name)?),
        ];
        self.request(NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewRoute(message))
            .map_err(|r| r.during(operation).on(name))?;
        Ok(())
    }

    /// The kernel's route for `dst`, through `oif` if one is given.
    fn route_to(&mut self, dst: IpAddr, oif: Option<u32>) -> Result<Route, NetError> {
        let Some(oif) = oif else {
            return self
                .query_route(dst, None, RouteFlags::empty())
                .map_err(|r| r.during(reach(dst)));
        };
        let name = self.link_by_index(oif)?.name;
        let real = self.query_route(dst, Some(oif), only_real(dst));
        match real.and_then(|_| self.query_route(dst, Some(oif), RouteFlags::empty())) {
            Ok(route) if route.local || route.ifindex == oif => Ok(route),
            Ok(route) => Err(self.other_interface(dst, &name, &route)),
            Err(error) => match self.query_route(dst, None, RouteFlags::empty()) {
                Ok(route) if route.local => Ok(route),
                Ok(route) if route.ifindex != oif => Err(self.other_interface(dst, &name, &route)),
                _ => Err(error.during(reach(dst)).on(name)),
            },
        }
    }

    fn other_interface(&mut self, dst: IpAddr, requested: &str, route: &Route) -> NetError {
        let actual = match self.link_by_index(route.ifindex) {
            Ok(link) => link.name,
            Err(_) => format!("index {}", route.ifindex),
        };
        NetError::new(NetErrorKind::OtherInterface, reach(dst))
            .on(requested)
            .detail(format!("it is {actual}"))
            .advise(format!("use {actual}, or add a route through {requested}"))
    }

    fn query_route(
        &mut self,
        dst: IpAddr,
        oif: Option<u32>,
        flags: RouteFlags,
    ) -> Result<Route, RequestError> {
        self.query_route_from(dst, None, oif, flags)
    }

    fn query_route_from(
        &mut self,
        dst: IpAddr,
        src: Option<IpAddr>,
        oif: Option<u32>,
        flags: RouteFlags,
    ) -> Result<Route, RequestError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(&dst);
        message.header.destination_prefix_length = width(&dst);
        message.header.flags = flags;
        message.attributes.push(RouteAttribute::Destination(dst.into()));
        if let Some(src) = src {
            message.header.source_prefix_length = width(&src);
            message.attributes.push(RouteAttribute::Source(src.into()));
        }
        message.attributes.extend(oif.map(RouteAttribute::Oif));
        let answers = self.request(0, RouteNetlinkMessage::GetRoute(message))?;
        match answers.first() {
            Some(RouteNetlinkMessage::NewRoute(message)) => route_of(message),
            _ => Err(RequestError::Unreadable("the reply is not a route".to_owned())),
        }
    }
}

/// The result of a route lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    ifindex: u32,
    /// The destination is this host.
    local: bool,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    mtu: Option<u32>,
    hop_limit: Option<u8>,
}

/// The flags of a query that finds existing routes only. For an interface without a route to the
/// destination, IPv4 assumes that the destination is on its link. Only a query for the route's own
/// entry shows whether a route exists.
fn only_real(dst: IpAddr) -> RouteFlags {
    if dst.is_ipv4() { RouteFlags::FibMatch } else { RouteFlags::empty() }
}

/// Rejects addresses that are not unicast, and link-local ones without an interface.
fn check_destination(dst: IpAddr, oif: Option<u32>) -> Result<(), NetError> {
    let (one_host, link_local) = match dst {
        IpAddr::V4(addr) => {
            (!addr.is_multicast() && !addr.is_broadcast() && !addr.is_unspecified(), false)
        }
        IpAddr::V6(addr) => {
            (!addr.is_multicast() && !addr.is_unspecified(), addr.is_unicast_link_local())
        }
    };
    if !one_host {
        return Err(NetError::new(NetErrorKind::NotUnicast, reach(dst)));
    }
    if link_local && oif.is_none() {
        return Err(NetError::new(NetErrorKind::ScopeNeeded, reach(dst)));
    }
    Ok(())
}

/// Parses the reply to a route lookup.
fn route_of(message: &RouteMessage) -> Result<Route, RequestError> {
    let errno = match message.header.kind {
        RouteType::Unicast | RouteType::Local | RouteType::Anycast => None,
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Throw => {
            Some(libc::EHOSTUNREACH)
        }
        RouteType::Prohibit => Some(libc::EACCES),
        _ => Some(libc::EADDRNOTAVAIL),
    };
    if let Some(errno) = errno {
        return Err(RequestError::Errno {
            errno,
            text: Some(format!("the route is of type {:?}", message.header.kind)),
        });
    }
    let mut route = Route {
        ifindex: 0,
        local: message.header.kind == RouteType::Local,
        gateway: None,
        source: None,
        mtu: None,
        hop_limit: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(ifindex) => route.ifindex = *ifindex,
            RouteAttribute::Gateway(gateway) => route.gateway = ip_of(gateway),
            // An IPv4 route through an IPv6 gateway (RFC 8950).
            RouteAttribute::Via(RouteVia::Inet(addr)) => route.gateway = Some((*addr).into()),
            RouteAttribute::Via(RouteVia::Inet6(addr)) => route.gateway = Some((*addr).into()),
            RouteAttribute::PrefSource(source) => route.source = ip_of(source),
            RouteAttribute::Metrics(metrics) => read_metrics(&mut route, metrics),
            _ => {}
        }
    }
    Ok(route)
}

fn read_metrics(route: &mut Route, metrics: &[RouteMetric]) {
    for metric in metrics {
        match metric {
            RouteMetric::Mtu(mtu) if *mtu > 0 => route.mtu = Some(*mtu),
            RouteMetric::Hoplimit(limit) if *limit > 0 => {
                route.hop_limit = u8::try_from(*limit).ok();
            }
            _ => {}
        }
    }
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(addr) => Some((*addr).into()),
        RouteAddress::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}

/// The request of every error of this module.
pub(super) fn reach(dst: IpAddr) -> String {
    format!("reach {dst}")
}

#[cfg(test)]
mod tests;
