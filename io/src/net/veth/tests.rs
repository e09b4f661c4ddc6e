use super::super::testing::{self, spec, two_namespaces};
use super::*;

#[test]
fn create__both_ends_in_their_namespaces() {
    if testing::lacks_privilege("create") {
        return;
    }
    let (a, b) = two_namespaces();
    let mut wanted = spec(&a, &b);
    wanted.mtu = 9000;
    wanted.queues = 2;
    wanted.create().expect("privileged");
    for (ns, name) in [(&a, "x0"), (&b, "y0")] {
        let mut netlink = Netlink::open_in(ns).expect("privileged");
        let link = netlink.link(name).expect("just made");
        assert_eq!(link.mtu, 9000);
        assert_eq!((link.tx_queues, link.rx_queues), (2, 2));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert!(link.ethernet && !link.up && !link.running && !link.loopback);
        assert!(link.mac.is_some_and(|mac| mac != [0; 6]));
        assert_eq!(link.xdp, None);
        let names: Vec<_> = netlink.links().expect("links");
        let names: Vec<_> = names.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["lo", name]);
        assert_eq!(netlink.link_by_index(link.ifindex).expect("same"), link);
    }
}

#[test]
fn create__name_in_use_is_rejected() {
    if testing::lacks_privilege("create") {
        return;
    }
    let (a, b) = two_namespaces();
    spec(&a, &b).create().expect("privileged");
    let mut second = spec(&a, &b);
    second.b.name = "z0";
    let error = second.create().expect_err("x0 is taken in a");
    assert_eq!(error.kind(), NetErrorKind::AlreadyExists);
    let mut second = spec(&a, &b);
    second.a.name = "z0";
    let error = second.create().expect_err("y0 is taken in b");
    assert_eq!(error.kind(), NetErrorKind::AlreadyExists);
}

#[test]
fn create__bad_arguments_are_rejected() {
    if testing::lacks_privilege("create") {
        return;
    }
    let (a, b) = two_namespaces();
    for queues in [0, MAX_QUEUES + 1] {
        let mut bad = spec(&a, &b);
        bad.queues = queues;
        let error = bad.create().expect_err("not a number of queues");
        assert_eq!(error.kind(), NetErrorKind::Invalid);
    }
    let mut bad = spec(&a, &b);
    bad.a.name = "a-name-far-too-long";
    let error = bad.create().expect_err("not a name");
    assert_eq!(error.kind(), NetErrorKind::Invalid);
    let mut bad = spec(&a, &b);
    bad.mtu = 65536;
    let error = bad.create().expect_err("not an MTU");
    assert_eq!(error.kind(), NetErrorKind::Invalid, "{error}");
}
