use super::super::check::{Status, worst};
use super::*;
use spanwire_io::net::{IpPrefix, LinkCounters, OperState, PathProbe, XdpMode};
use std::fs;

/// A card with everything as it should be.
fn card() -> InterfaceFacts {
    let prefix = IpPrefix::new([10, 0, 0, 1].into(), 24).unwrap();
    InterfaceFacts {
        link: LinkInfo {
            name: "eth0".to_owned(),
            ifindex: 3,
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            up: true,
            running: true,
            loopback: false,
            ethernet: true,
            operstate: OperState::Up,
            kind: None,
            tx_queues: 8,
            rx_queues: 8,
            qdisc: Some("mq".to_owned()),
            alias: None,
            xdp: None,
            counters: LinkCounters::default(),
        },
        addresses: vec![InterfaceAddress { prefix, tentative: false, duplicate: false }],
        driver: Some("ice".to_owned()),
        features: Some(XdpFeatures { native: true, zero_copy: true, multi_buffer: true }),
        channels: Some(Channels { rx: 1, tx: 1, rx_max: 8, tx_max: 8, combined: true }),
        rings: Some(Rings { rx: 2048, tx: 512, rx_max: 8160, tx_max: 8160 }),
        offloads: Some(Offloads::ON),
        rewrites: Some(RxRewrites::default()),
        deferral: Some(Deferral { hard_irqs: 0, flush_timeout_ns: 0 }),
        queue: 0,
        peer: None,
        path: None,
    }
}

fn veth() -> InterfaceFacts {
    let mut facts = card();
    facts.link.kind = Some("veth".to_owned());
    facts.link.qdisc = Some("pfifo".to_owned());
    facts.driver = Some("veth".to_owned());
    facts.rings = None;
    facts
}

/// The only check that is not well.
fn only(facts: &InterfaceFacts) -> (Status, Check, String) {
    let mut checks = facts.checks();
    checks.retain(|check| check.status != Status::Ok);
    assert_eq!(checks.len(), 1, "{checks:?}");
    let check = checks.remove(0);
    let fix = check.fix.clone().expect("every problem has a fix");
    (check.status, check, fix)
}

#[test]
fn checks__good_interfaces() {
    for facts in [card(), veth()] {
        assert_eq!(worst(&facts.checks()), Status::Ok, "{:?}", facts.checks());
    }
    // Facts that driver and kernel do not report are no failure.
    let silent = InterfaceFacts {
        driver: None,
        features: None,
        channels: None,
        rings: None,
        offloads: None,
        rewrites: None,
        deferral: None,
        ..card()
    };
    let mut silent_with_one_queue = silent;
    silent_with_one_queue.link.rx_queues = 1;
    assert_eq!(worst(&silent_with_one_queue.checks()), Status::Ok);
}

#[test]
fn checks__not_ethernet_ends_it() {
    let mut facts = card();
    facts.link.ethernet = false;
    facts.link.up = false;
    let (status, check, _) = only(&facts);
    assert_eq!((status, check.name), (Status::Warn, "link"));
}

#[test]
fn check_link__off_without_carrier_and_bonded() {
    let mut facts = card();
    (facts.link.up, facts.link.running) = (false, false);
    let (status, check, fix) = only(&facts);
    assert_eq!((status, check.name, &*fix), (Status::Fail, "link", "ip link set dev eth0 up"));
    facts.link.up = true;
    assert!(only(&facts).2.contains("ethtool eth0"));
    let mut facts = veth();
    facts.link.running = false;
    assert!(only(&facts).2.contains("the other end"));
    let mut facts = card();
    facts.link.kind = Some("bond".to_owned());
    assert_eq!(only(&facts).0, Status::Warn);
}

#[test]
fn check_xdp__generic_is_slower() {
    let mut facts = card();
    facts.features = Some(XdpFeatures::default());
    facts.offloads = Some(Offloads::OFF);
    let (status, check, _) = only(&facts);
    assert_eq!((status, check.name), (Status::Warn, "xdp"));
    facts.features = Some(XdpFeatures { native: true, ..XdpFeatures::default() });
    assert!(facts.checks().iter().any(|c| c.found == "native, copying"));
}

#[test]
fn check_program__another_one_makes_it_impossible() {
    let mut facts = card();
    facts.link.xdp = Some(XdpMode::Generic);
    let (status, check, fix) = only(&facts);
    assert_eq!((status, check.name), (Status::Fail, "program"));
    assert!(check.found.contains("(generic)") && fix.contains("ip link set dev eth0 xdp off"));
}

#[test]
fn check_mtu__too_small_too_large_and_in_between() {
    let of = |facts: InterfaceFacts, mtu| {
        let mut facts = facts;
        facts.link.mtu = mtu;
        facts.checks().into_iter().find(|c| c.name == "mtu").unwrap()
    };
    assert_eq!(of(card(), 335).status, Status::Fail);
    assert!(of(card(), 1500).found.starts_with("1500: path MTU 1024 (2048"));
    for mtu in [2128, 3506] {
        assert_eq!(of(card(), mtu).found, format!("{mtu}: path MTU 2048"));
    }
    // The limit of a veth is below that of a NIC.
    assert_eq!((of(card(), 3507).status, of(veth(), 3506).status), (Status::Ok, Status::Ok));
    assert_eq!((of(card(), 3827).status, of(veth(), 3507).status), (Status::Warn, Status::Warn));
    assert_eq!(of(card(), 9000).fix.as_deref(), Some("ip link set dev eth0 mtu 3826"));
}

#[test]
fn check_addresses__none_and_none_yet() {
    let mut facts = card();
    facts.addresses[0].tentative = true;
    let (status, check, _) = only(&facts);
    assert!(status == Status::Fail && check.found.contains("yet"), "{check:?}");
    facts.addresses.clear();
    let (status, check, fix) = only(&facts);
    assert!(status == Status::Fail && check.found.starts_with("none: "), "{check:?}");
    assert!(fix.starts_with("ip address add ") && fix.contains(" dev eth0"), "{fix}");
}

#[test]
fn check_queues__several_want_steering() {
    let mut facts = card();
    facts.channels = Some(Channels { rx: 4, tx: 4, rx_max: 8, tx_max: 8, combined: true });
    let (status, check, fix) = only(&facts);
    assert_eq!((status, check.name), (Status::Warn, "queues"));
    assert!(fix.starts_with("ethtool -N eth0 flow-type udp4 dst-port 4791 action 0"), "{fix}");
    facts.queue = 4;
    let (status, _, fix) = only(&facts);
    assert_eq!((status, &*fix), (Status::Fail, "use --queue 0 to 3"));
    let mut facts = veth();
    facts.channels = Some(Channels { rx: 2, tx: 2, rx_max: 2, tx_max: 2, combined: false });
    assert_eq!(only(&facts).2, "ethtool -L eth0 rx 1");
    // Without ethtool's answer: the queue count of the link.
    let facts = InterfaceFacts { channels: None, ..card() };
    assert!(only(&facts).1.found.starts_with("8 receive queues"));
}

#[test]
fn check_queues__ena_wants_half() {
    let mut facts = card();
    facts.driver = Some("ena".to_owned());
    facts.channels = Some(Channels { rx: 8, tx: 8, rx_max: 8, tx_max: 8, combined: true });
    assert_eq!(only(&facts).2, "ethtool -L eth0 combined 4");
}

#[test]
fn check_rings__shorter_than_a_window() {
    let mut facts = card();
    facts.rings = Some(Rings { rx: 128, tx: 128, rx_max: 4096, tx_max: 4096 });
    assert_eq!(only(&facts).2, "ethtool -G eth0 rx 256");
    // The ring is at its maximum, so there is nothing to fix.
    facts.rings = Some(Rings { rx: 128, tx: 128, rx_max: 128, tx_max: 128 });
    assert_eq!(worst(&facts.checks()), Status::Ok);
}

#[test]
fn check_offloads__lro_always_and_gro_in_front_of_generic() {
    let mut facts = card();
    facts.rewrites = Some(RxRewrites { lro: true, vlan_strip: false });
    assert_eq!(only(&facts).2, "ethtool -K eth0 lro off");
    let mut facts = card();
    facts.features = Some(XdpFeatures::default());
    let gro =
        |facts: &InterfaceFacts| facts.checks().into_iter().find(|c| c.name == "offloads").unwrap();
    assert_eq!(gro(&facts).fix.as_deref(), Some("ethtool -K eth0 gro off"));
    facts.offloads = Some(Offloads { gro: false, ..Offloads::ON });
    assert_eq!(gro(&facts).status, Status::Ok);
}

#[test]
fn check_deferral__costs_latency() {
    let mut facts = card();
    facts.deferral = Some(Deferral { hard_irqs: 2, flush_timeout_ns: 200_000 });
    let (status, check, fix) = only(&facts);
    assert_eq!((status, check.name), (Status::Warn, "irqs"));
    assert!(check.found.contains("2 times for 200 us") && fix.contains("/eth0/napi_defer"));
}

#[test]
fn check_qdisc__only_a_veth_wants_one() {
    let mut facts = veth();
    facts.link.qdisc = Some("noqueue".to_owned());
    assert_eq!(only(&facts).2, "tc qdisc add dev eth0 root pfifo limit 1000");
    let mut facts = card();
    facts.link.qdisc = Some("noqueue".to_owned());
    assert_eq!(worst(&facts.checks()), Status::Ok);
}

#[test]
fn check_peer__reached_or_why_not() {
    let peer: IpAddr = [10, 0, 0, 2].into();
    let facts = InterfaceFacts { peer: Some((peer, Ok("02:00:00:00:00:02".to_owned()))), ..card() };
    let last = facts.checks().pop().unwrap();
    assert_eq!(last.found, "10.0.0.2 is reached through 02:00:00:00:00:02");
    let facts = InterfaceFacts { peer: Some((peer, Err("no route".to_owned()))), ..card() };
    let (status, check, fix) = only(&facts);
    assert_eq!((status, &*check.found), (Status::Fail, "no route"));
    assert_eq!(fix, "ip route get 10.0.0.2 oif eth0; ping -I eth0 10.0.0.2");
}

#[test]
fn check_path__names_the_length_that_arrives_and_the_route_to_set() {
    let peer: IpAddr = [10, 0, 0, 2].into();
    let check = |next_hop: IpAddr, mtu, probe| {
        let path = Some(PathFacts { next_hop, mtu, probe });
        let mac = Ok("02:00:00:00:00:02".to_owned());
        let facts = InterfaceFacts { peer: Some((peer, mac)), path, ..card() };
        facts.check_path().expect("a path")
    };
    let mtu = card().link.mtu;
    assert_eq!(check(peer, mtu, PathProbe::Arrives).status, Status::Ok);
    let narrow = check(peer, mtu - 1, PathProbe::Unanswered);
    assert!(narrow.found.contains("metric of its route"), "{}", narrow.found);
    assert_eq!(narrow.status, Status::Ok);
    let black_hole = check([10, 0, 0, 9].into(), mtu, PathProbe::Narrower(1280));
    assert_eq!(black_hole.status, Status::Fail);
    let fix = black_hole.fix.unwrap_or_default();
    assert!(fix.contains("10.0.0.2 via 10.0.0.9") && fix.ends_with("mtu 1280"), "{fix}");
    assert_eq!(card().check_path(), None);
}

#[test]
fn deferral_read__another_namespaces_files_do_not_count() {
    let class = std::env::temp_dir().join(format!("spanwire-doctor-{}", std::process::id()));
    let device = class.join("sw0");
    fs::create_dir_all(&device).unwrap();
    for (file, text) in
        [("ifindex", "7\n"), ("napi_defer_hard_irqs", "2\n"), ("gro_flush_timeout", "20000\n")]
    {
        fs::write(device.join(file), text).unwrap();
    }
    let want = Deferral { hard_irqs: 2, flush_timeout_ns: 20_000 };
    assert_eq!(Deferral::read(&class, "sw0", 7), Some(want));
    assert_eq!(Deferral::read(&class, "sw0", 8), None);
    assert_eq!(Deferral::read(&class, "sw1", 7), None);
    fs::write(device.join("gro_flush_timeout"), "?").unwrap();
    assert_eq!(Deferral::read(&class, "sw0", 7), None);
    fs::remove_dir_all(class).unwrap();
}
