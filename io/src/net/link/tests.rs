use super::*;

#[test]
fn link__unknown_name_is_not_found() {
    let mut netlink = Netlink::open().expect("netlink");
    let error = netlink.link("no-such-dev0").expect_err("no such interface");
    assert_eq!(error.kind(), NetErrorKind::NotFound);
    assert!(error.to_string().contains("no-such-dev0"), "{error}");
    let error = netlink.link_by_index(0x7fff_fff0).expect_err("no such index");
    assert_eq!(error.kind(), NetErrorKind::NotFound);
}

#[test]
fn links__lo_is_loopback_and_not_ethernet() {
    let links = Netlink::open().expect("netlink").links().expect("links");
    let lo = links.iter().find(|l| l.name == "lo").expect("lo");
    assert!(lo.loopback && !lo.ethernet);
    assert_eq!(lo.mac, None);
}

#[test]
fn format_mac__two_digits_each() {
    assert_eq!(format_mac(&[2, 0, 0xab, 0, 0, 0xff]), "02:00:ab:00:00:ff");
}

#[test]
fn check_name__kernel_rules() {
    for name in ["", ".", "..", "sixteen-bytes-xx", "a/b", "a b", "a:b", "a\0b"] {
        assert!(check_name(name).is_err(), "{name:?}");
    }
    for name in ["sw0", "fifteen-bytes-x", "eth0.100"] {
        assert_eq!(check_name(name), Ok(()), "{name:?}");
    }
}

#[test]
fn link_of__reads_xdp_and_rejects_nameless() {
    let mut message = LinkMessage::default();
    message.header.index = 3;
    message.attributes = vec![
        LinkAttribute::IfName("sw0".to_owned()),
        LinkAttribute::Xdp(vec![LinkXdp::Attached(XdpAttached::SocketBuffer), LinkXdp::ProgId(9)]),
        LinkAttribute::OperState(State::Dormant),
    ];
    let link = link_of(&message).expect("complete");
    assert_eq!(link.xdp, Some(XdpMode::Generic));
    assert_eq!(link.operstate, OperState::Other);
    message.attributes.remove(0);
    assert!(link_of(&message).is_err());
}
