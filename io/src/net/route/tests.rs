use super::super::hosts::{Host, LabConfig, TwoHosts};
use super::super::netns::NetNs;
use super::super::testing;
use super::super::veth::{VethEnd, VethSpec};
use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Instant;

fn two_hosts() -> TwoHosts {
    TwoHosts::anonymous(&LabConfig::default()).expect("privileged")
}

/// Resolves in the namespace of `host`.
fn from(host: &Host, dst: impl Into<IpAddr> + Send, oif: Option<u32>) -> Result<NextHop, NetError> {
    from_within(host, dst, oif, RESOLVE_TIMEOUT)
}

fn from_within(
    host: &Host,
    dst: impl Into<IpAddr> + Send,
    oif: Option<u32>,
    timeout: Duration,
) -> Result<NextHop, NetError> {
    host.ns.run(|| resolve_within(dst.into(), oif, timeout)).expect("privileged")
}

fn kind_of(result: Result<NextHop, NetError>) -> NetErrorKind {
    result.expect_err("not reachable").kind()
}

/// A second link from `host` to another namespace, `192.168.9.1/24` on `sw1`.
fn second_cable(host: &Host) -> (NetNs, u32) {
    let far = NetNs::new_anonymous().expect("privileged");
    VethSpec {
        a: VethEnd { ns: &host.ns, name: "sw1" },
        b: VethEnd { ns: &far, name: "sw1" },
        mtu: 1500,
        queues: 1,
    }
    .create()
    .expect("privileged");
    Netlink::open_in(&far).and_then(|mut netlink| netlink.set_up("sw1")).expect("privileged");
    let mut netlink = Netlink::open_in(&host.ns).expect("privileged");
    netlink.set_up("sw1").expect("privileged");
    let addr = "192.168.9.1/24".parse().expect("a prefix");
    netlink.add_address("sw1", addr).expect("privileged");
    let ifindex = netlink.ifindex("sw1").expect("just made");
    (far, ifindex)
}

#[test]
fn resolve__v4_and_v6_on_the_link() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let hop = from(&hosts.a, hosts.b.v4, None).expect("b answers");
    let expected = NextHop {
        ifindex: hosts.a.ifindex,
        ifname: "sw0".to_owned(),
        src_ip: hosts.a.v4.into(),
        src_mac: hosts.a.mac,
        next_hop_ip: hosts.b.v4.into(),
        dst_mac: hosts.b.mac,
        mtu: 1500,
        hop_limit: hop.hop_limit,
    };
    assert_eq!(hop, expected);
    let hop = from(&hosts.a, hosts.b.v6, Some(hosts.a.ifindex)).expect("b answers");
    assert_eq!(hop.src_ip, IpAddr::from(hosts.a.v6));
    assert_eq!(hop.next_hop_ip, IpAddr::from(hosts.b.v6));
    assert_eq!((hop.src_mac, hop.dst_mac), (hosts.a.mac, hosts.b.mac));
    // The reverse direction, with an IPv4-mapped IPv6 address.
    let hop = from(&hosts.b, hosts.a.v4.to_ipv6_mapped(), None).expect("a answers");
    assert_eq!(hop.next_hop_ip, IpAddr::from(hosts.a.v4));
    assert_eq!(hop.dst_mac, hosts.a.mac);
}

#[test]
fn resolve__link_local_needs_and_uses_the_interface() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let dst = hosts.b.link_local;
    assert_eq!(kind_of(from(&hosts.a, dst, None)), NetErrorKind::ScopeNeeded);
    let hop = from(&hosts.a, dst, Some(hosts.a.ifindex)).expect("b answers");
    assert_eq!(hop.src_ip, IpAddr::from(hosts.a.link_local));
    assert_eq!(hop.next_hop_ip, IpAddr::from(dst));
    assert_eq!(hop.dst_mac, hosts.b.mac);
}

#[test]
fn resolve__through_a_gateway() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let mut netlink = Netlink::open_in(&hosts.a.ns).expect("privileged");
    let v4 = "198.51.100.0/24".parse().expect("a prefix");
    let v6 = "2001:db8::/32".parse().expect("a prefix");
    netlink.add_route(v4, hosts.b.v4.into(), "sw0").expect("on the link");
    netlink.add_route(v6, hosts.b.v6.into(), "sw0").expect("on the link");
    let error = netlink.add_route(v4, hosts.b.v4.into(), "sw0").expect_err("it exists");
    assert_eq!(error.kind(), NetErrorKind::AlreadyExists);
    for oif in [None, Some(hosts.a.ifindex)] {
        let hop = from(&hosts.a, Ipv4Addr::new(198, 51, 100, 7), oif).expect("b answers");
        assert_eq!(hop.next_hop_ip, IpAddr::from(hosts.b.v4));
        assert_eq!(hop.src_ip, IpAddr::from(hosts.a.v4));
        assert_eq!(hop.dst_mac, hosts.b.mac);
        let far = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
        let hop = from(&hosts.a, far, oif).expect("b answers");
        assert_eq!(hop.next_hop_ip, IpAddr::from(hosts.b.v6));
        assert_eq!(hop.dst_mac, hosts.b.mac);
    }
}

#[test]
fn resolve__silent_neighbour_is_an_error_in_bounded_time() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let absent_v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x99);
    let absent_hosts: [IpAddr; 2] = [Ipv4Addr::new(10, 77, 0, 99).into(), absent_v6.into()];
    for absent in absent_hosts {
        let start = Instant::now();
        let timeout = Duration::from_millis(250);
        let error =
            from_within(&hosts.a, absent, None, timeout).expect_err("no host has the address");
        assert!(start.elapsed() >= timeout);
        assert_eq!(error.kind(), NetErrorKind::NeighbourSilent);
        let text = error.to_string();
        assert!(text.contains(&absent.to_string()) && text.contains("on sw0"), "{text}");
        // Its time limit is ours. The kernel gives up after 3 s.
        assert!(text.contains("after 250ms"), "{text}");
    }
}

#[test]
fn resolve__neighbour_that_appears_late_is_found() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let late = Ipv4Addr::new(10, 77, 0, 50);
    let hop = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            let mut netlink = Netlink::open_in(&hosts.b.ns).expect("privileged");
            let addr = "10.77.0.50/24".parse().expect("a prefix");
            netlink.add_address("sw0", addr).expect("privileged");
        });
        from_within(&hosts.a, late, None, Duration::from_secs(120))
    });
    assert_eq!(hop.expect("it appeared").dst_mac, hosts.b.mac);
}

#[test]
fn resolve__no_route_and_own_address() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    // The kernel enters the route to an own IPv6 address from a work queue, after the address.
    let deadline = Instant::now() + Duration::from_secs(60);
    while kind_of(from(&hosts.a, hosts.a.v6, None)) == NetErrorKind::NeighbourSilent {
        assert!(Instant::now() < deadline, "no route to an own address");
    }
    for oif in [None, Some(hosts.a.ifindex)] {
        let nowhere = Ipv4Addr::new(203, 0, 113, 1);
        assert_eq!(kind_of(from(&hosts.a, nowhere, oif)), NetErrorKind::NoRoute);
        let nowhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        assert_eq!(kind_of(from(&hosts.a, nowhere, oif)), NetErrorKind::NoRoute);
        assert_eq!(kind_of(from(&hosts.a, hosts.a.v4, oif)), NetErrorKind::Loopback);
        assert_eq!(kind_of(from(&hosts.a, hosts.a.v6, oif)), NetErrorKind::Loopback);
        let lo = Ipv4Addr::LOCALHOST;
        assert_eq!(kind_of(from(&hosts.a, lo, oif)), NetErrorKind::Loopback);
    }
}

#[test]
fn resolve__other_interface_is_named() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let (_far, sw1) = second_cable(&hosts.a);
    let v4 = from(&hosts.a, hosts.b.v4, Some(sw1));
    let v6 = from(&hosts.a, hosts.b.v6, Some(sw1));
    for result in [v4, v6] {
        let error = result.expect_err("the route leaves through sw0");
        assert_eq!(error.kind(), NetErrorKind::OtherInterface, "{error}");
        assert!(error.to_string().contains("use sw0"), "{error}");
    }
    let error = from(&hosts.a, hosts.b.v4, Some(777)).expect_err("no such interface");
    assert_eq!(error.kind(), NetErrorKind::NotFound);
}

#[test]
fn resolve__two_interfaces_in_one_network_are_distinguished() {
    if testing::lacks_privilege("resolve") {
        return;
    }
    let hosts = two_hosts();
    let (far, sw1) = second_cable(&hosts.a);
    let mut near = Netlink::open_in(&hosts.a.ns).expect("privileged");
    let addr = "10.77.0.11/24".parse().expect("a prefix");
    near.add_address("sw1", addr).expect("privileged");
    let mut netlink = Netlink::open_in(&far).expect("privileged");
    let addr = "10.77.0.22/24".parse().expect("a prefix");
    netlink.add_address("sw1", addr).expect("privileged");
    let far_mac = netlink.link("sw1").expect("made").mac;
    let hop = from(&hosts.a, Ipv4Addr::new(10, 77, 0, 22), Some(sw1)).expect("it answers");
    assert_eq!(hop.ifname, "sw1");
    assert_eq!(hop.src_ip, IpAddr::from(Ipv4Addr::new(10, 77, 0, 11)));
    assert_eq!(Some(hop.dst_mac), far_mac);
}

#[test]
fn check_route__of_bound_sockets() {
    if testing::lacks_privilege("check_route") {
        return;
    }
    let hosts = two_hosts();
    let (_far, sw1) = second_cable(&hosts.a);
    let check = |dst: IpAddr, src: Option<IpAddr>, oif: Option<u32>| {
        let query = || Netlink::open().and_then(|mut netlink| netlink.check_route(dst, src, oif));
        hosts.a.ns.run(query).expect("privileged").map_err(|e| e.errno())
    };
    let (v4, v6): (IpAddr, IpAddr) = (hosts.a.v4.into(), hosts.a.v6.into());
    let device = Some(hosts.a.ifindex);
    for (own, peer) in [(v4, hosts.b.v4.into()), (v6, hosts.b.v6.into())] {
        for oif in [None, device] {
            assert_eq!(check(peer, Some(own), oif), Ok(()));
            assert_eq!(check(own, Some(own), oif), Ok(()), "it stays on this host");
        }
        assert!(check(peer, None, Some(sw1)).is_err(), "through the other interface");
    }
    let nowhere = [203, 0, 113, 1].into();
    assert_eq!(check(nowhere, Some(v4), None), Err(Some(libc::ENETUNREACH)));
    assert_eq!(check(nowhere, Some(v4), device), Err(Some(libc::EHOSTUNREACH)));
    let nowhere = "2001:db8::1".parse().expect("an address");
    assert_eq!(check(nowhere, Some(v6), device), Err(Some(libc::ENETUNREACH)));
    let lo = Some(Ipv4Addr::LOCALHOST.into());
    assert_eq!(check([127, 0, 0, 2].into(), lo, None), Ok(()));
    let got = check(hosts.b.v4.into(), lo, None);
    assert_eq!(got, Err(Some(libc::EINVAL)), "an address of the loopback does not leave");
}

#[test]
fn check_destination__only_single_hosts() {
    for bad in ["224.0.0.1", "255.255.255.255", "0.0.0.0", "::", "ff02::1"] {
        let error = check_destination(bad.parse().expect("an address"), Some(2));
        assert_eq!(error.expect_err(bad).kind(), NetErrorKind::NotUnicast);
    }
    let local = "fe80::1".parse().expect("an address");
    let error = check_destination(local, None).expect_err("which link?");
    assert_eq!(error.kind(), NetErrorKind::ScopeNeeded);
    assert_eq!(check_destination(local, Some(2)), Ok(()));
}

#[test]
fn route_of__reads_gateway_source_and_metrics() {
    let mut message = RouteMessage::default();
    message.header.kind = RouteType::Unicast;
    let source = Ipv4Addr::new(10, 0, 0, 1);
    message.attributes = vec![
        RouteAttribute::Oif(3),
        RouteAttribute::PrefSource(RouteAddress::Inet(source)),
        RouteAttribute::Via(RouteVia::Inet6(Ipv6Addr::LOCALHOST)),
        RouteAttribute::Metrics(vec![
            RouteMetric::Mtu(1400),
            RouteMetric::Hoplimit(9),
            RouteMetric::Advmss(0),
        ]),
    ];
    let route = route_of(&message).expect("a route");
    let expected = Route {
        ifindex: 3,
        local: false,
        gateway: Some(Ipv6Addr::LOCALHOST.into()),
        source: Some(source.into()),
        mtu: Some(1400),
        hop_limit: Some(9),
    };
    assert_eq!(route, expected);
}

#[test]
fn route_of__unreachable_routes_are_errors() {
    let cases = [
        (RouteType::Unreachable, libc::EHOSTUNREACH),
        (RouteType::BlackHole, libc::EHOSTUNREACH),
        (RouteType::Prohibit, libc::EACCES),
    ];
    for (kind, errno) in cases {
        let mut message = RouteMessage::default();
        message.header.kind = kind;
        let error = route_of(&message).expect_err("no route");
        assert_eq!(error.errno(), Some(errno));
    }
}

#[test]
fn path_mtu__is_the_metric_of_the_route_or_the_interfaces() {
    if testing::lacks_privilege("path_mtu") {
        return;
    }
    let hosts = two_hosts();
    let mtu_to = |dst: IpAddr| {
        let query = || Netlink::open().and_then(|mut n| n.path_mtu(dst, hosts.a.ifindex));
        hosts.a.ns.run(query).expect("privileged").expect("the interface is there")
    };
    let peers: [IpAddr; 2] = [hosts.b.v4.into(), hosts.b.v6.into()];
    for peer in peers {
        assert_eq!(mtu_to(peer), 1500);
    }
    assert_eq!(mtu_to([192, 0, 2, 1].into()), 1500, "no route");
    for (peer, mtu) in peers.into_iter().zip(["1000", "1300"]) {
        let mut ip = hosts.a.ns.command("ip").expect("privileged");
        ip.args(["route", "replace", &peer.to_string(), "dev", "sw0", "mtu", mtu]);
        assert!(ip.status().expect("iproute2 is there").success());
        assert_eq!(mtu_to(peer).to_string(), mtu);
        assert_eq!(from(&hosts.a, peer, None).expect("b answers").mtu.to_string(), mtu);
    }
    let mut netlink = Netlink::open_in(&hosts.a.ns).expect("privileged");
    netlink.set_mtu("sw0", 1280).expect("privileged");
    assert_eq!(mtu_to(hosts.b.v6.into()), 1280, "the interface has less");
}
