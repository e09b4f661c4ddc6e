use super::super::address::IpPrefix;
use super::super::link::OperState;
use super::super::netns::NetNs;
use super::super::testing::{self, spec, two_namespaces};
use super::*;
use std::time::Duration;

#[test]
fn set_mtu__is_seen_and_limits_hold() {
    if testing::lacks_privilege("set_mtu") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut netlink = Netlink::open_in(&a).expect("privileged");
    netlink.set_mtu("x0", 4200).expect("in range");
    assert_eq!(netlink.link("x0").expect("exists").mtu, 4200);
    let error = netlink.set_mtu("x0", 10).expect_err("below 68");
    assert_eq!(error.kind(), NetErrorKind::Invalid);
    let text = error.to_string();
    // The middle part is the kernel's message, from extended acknowledgements.
    assert!(text.contains("MTU to 10 on x0") && text.contains("minimum"), "{text}");
}

#[test]
fn set_up__both_ends_give_a_carrier_and_down_removes_it() {
    if testing::lacks_privilege("set_up") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut at_a = Netlink::open_in(&a).expect("privileged");
    let mut at_b = Netlink::open_in(&b).expect("privileged");
    at_a.set_up("x0").expect("privileged");
    let error =
        at_a.wait_running("x0", Duration::from_millis(30)).expect_err("the other end is down");
    assert_eq!(error.kind(), NetErrorKind::Timeout);
    at_b.set_up("y0").expect("privileged");
    let link = at_a.wait_running("x0", Duration::from_secs(120)).expect("both up");
    assert!(link.up && link.running);
    assert_eq!(link.operstate, OperState::Up);
    at_b.set_down("y0").expect("privileged");
    assert!(!at_b.link("y0").expect("exists").up);
}

#[test]
fn set_alias__is_seen() {
    if testing::lacks_privilege("set_alias") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut netlink = Netlink::open_in(&a).expect("privileged");
    assert_eq!(netlink.link("x0").expect("exists").alias, None);
    netlink.set_alias("x0", "spanwire lab").expect("short");
    let link = netlink.link("x0").expect("exists");
    assert_eq!(link.alias.as_deref(), Some("spanwire lab"));
}

#[test]
fn disable_ipv6_autoconf__no_address_appears() {
    if testing::lacks_privilege("disable_ipv6_autoconf") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    for (ns, name) in [(&a, "x0"), (&b, "y0")] {
        let mut netlink = Netlink::open_in(ns).expect("privileged");
        if name == "x0" {
            netlink.disable_ipv6_autoconf(name).expect("IPv6");
        }
        netlink.set_up(name).expect("privileged");
    }
    let count = |ns: &NetNs, name| {
        let mut netlink = Netlink::open_in(ns).expect("privileged");
        netlink.wait_running(name, Duration::from_secs(120)).expect("both up");
        netlink.addresses(name).expect("exists").len()
    };
    assert_eq!(count(&b, "y0"), 1, "the kernel's own link-local address");
    assert_eq!(count(&a, "x0"), 0);
}

#[test]
fn delete_link__deletes_the_peer_too() {
    if testing::lacks_privilege("delete_link") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut at_a = Netlink::open_in(&a).expect("privileged");
    at_a.delete_link("x0").expect("privileged");
    for (ns, name) in [(&a, "x0"), (&b, "y0")] {
        let mut netlink = Netlink::open_in(ns).expect("privileged");
        let error = netlink.link(name).expect_err("deleted");
        assert_eq!(error.kind(), NetErrorKind::NotFound);
    }
    let error = at_a.delete_link("x0").expect_err("deleted already");
    assert_eq!(error.kind(), NetErrorKind::NotFound);
}

#[test]
fn set_pfifo__replaces_the_discipline() {
    if testing::lacks_privilege("set_pfifo") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut netlink = Netlink::open_in(&a).expect("privileged");
    netlink.set_up("x0").expect("privileged");
    assert_eq!(netlink.link("x0").expect("exists").qdisc.as_deref(), Some("noqueue"));
    netlink.set_pfifo("x0", 1000).expect("sch_fifo is built in");
    assert_eq!(netlink.link("x0").expect("exists").qdisc.as_deref(), Some("pfifo"));
    netlink.set_pfifo("x0", 500).expect("setting it again is fine");
}

#[test]
fn addresses__added_listed_flushed() {
    if testing::lacks_privilege("addresses") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut netlink = Netlink::open_in(&a).expect("privileged");
    netlink.disable_ipv6_autoconf("x0").expect("IPv6");
    netlink.set_up("x0").expect("privileged");
    let wanted: Vec<IpPrefix> = ["10.9.0.1/24", "10.9.0.2/24", "fd09::1/64"]
        .iter()
        .map(|text| text.parse().expect("a prefix"))
        .collect();
    for prefix in &wanted {
        netlink.add_address("x0", *prefix).expect("privileged");
    }
    let found = netlink.addresses("x0").expect("exists");
    let prefixes: Vec<_> = found.iter().map(|address| address.prefix).collect();
    assert_eq!(prefixes, wanted);
    let error = netlink.add_address("x0", wanted[0]).expect_err("it has it");
    assert_eq!(error.kind(), NetErrorKind::AlreadyExists);
    assert_eq!(netlink.flush_addresses("x0").expect("privileged"), 3);
    assert_eq!(netlink.addresses("x0").expect("exists"), []);
}
