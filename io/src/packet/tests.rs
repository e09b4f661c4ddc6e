use super::*;
use crate::net::{LabConfig, NetNs, TwoHosts};
use crate::port::reserve;
use std::net::IpAddr;
use std::time::Instant;

/// Two hosts at jumbo MTU, or `None` without the privilege (reported on stderr).
fn hosts(test: &str) -> Option<TwoHosts> {
    if let Err(why) = NetNs::new_anonymous() {
        let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
        assert!(!required, "{test} cannot run: {why}");
        println!("SKIPPED: {test}: {why}");
        return None;
    }
    Some(TwoHosts::anonymous(&LabConfig { mtu: 9000, ..LabConfig::default() }).expect("privileged"))
}

fn open_in(ns: &NetNs) -> PacketPort {
    ns.run(|| PacketPort::open("sw0")).expect("privileged").expect("privileged")
}

/// A UDP packet over IPv4 in a frame of `len` bytes.
fn frame_v4(hosts: &TwoHosts, port: u16, len: usize) -> Vec<u8> {
    let mut f = ethernet(hosts, 0x0800);
    f.extend([0x45, 0]);
    f.extend(u16::try_from(len - 14).unwrap().to_be_bytes());
    f.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    f.extend(hosts.a.v4.octets());
    f.extend(hosts.b.v4.octets());
    let sum: u32 =
        f[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    f[24..26].copy_from_slice(&(!u16::try_from(folded).unwrap()).to_be_bytes());
    udp(f, port, len)
}

fn frame_v6(hosts: &TwoHosts, port: u16, len: usize) -> Vec<u8> {
    let mut f = ethernet(hosts, 0x86dd);
    f.extend([0x60, 0, 0, 0]);
    f.extend(u16::try_from(len - 54).unwrap().to_be_bytes());
    f.extend([17, 64]);
    f.extend(hosts.a.v6.octets());
    f.extend(hosts.b.v6.octets());
    udp(f, port, len)
}

fn ethernet(hosts: &TwoHosts, ethertype: u16) -> Vec<u8> {
    [&hosts.b.mac[..], &hosts.a.mac, &ethertype.to_be_bytes()].concat()
}

fn udp(mut f: Vec<u8>, port: u16, len: usize) -> Vec<u8> {
    let udp_len = u16::try_from(len - f.len()).unwrap();
    f.extend(0xc000_u16.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend(udp_len.to_be_bytes());
    f.extend([0, 0]);
    f.resize(len, 0x5a);
    f
}

fn send(port: &mut PacketPort, frame: &[u8]) {
    let mut slot = reserve(port).expect("a free buffer");
    slot.bytes()[..frame.len()].copy_from_slice(frame);
    slot.commit(TxMeta::whole(frame.len()));
    port.flush(Time::ZERO).expect("the interface is there");
}

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

/// The frames received until there are `count`, or more.
fn receive(port: &mut PacketPort, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let deadline = Instant::now() + LATE;
    while frames.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} frames arrived", frames.len());
        port.wait(LATE).expect("the socket is there");
        port.rx_burst(&Time::ZERO, 64, &mut |frame, _| frames.push(frame.to_vec()));
    }
    frames
}

#[test]
fn open__a_missing_or_non_ethernet_interface_is_an_error() {
    let Some(hosts) = hosts("open") else { return };
    let refused = |name: &str| {
        let opened = hosts.a.ns.run(|| PacketPort::open(name)).expect("privileged");
        opened.expect_err("no port").to_string()
    };
    assert!(refused("nope0").contains("nope0"));
}

#[test]
fn rx_burst__roce_of_any_length_crosses_and_nothing_else() {
    let Some(hosts) = hosts("rx_burst") else { return };
    let (mut a, mut b) = (open_in(&hosts.a.ns), open_in(&hosts.b.ns));
    assert_eq!(a.frame_room(), 9014);
    // Other traffic first: a frame that passes the filter in error precedes the expected one.
    let fragment = {
        let mut f = frame_v4(&hosts, 4791, 100);
        f[20] = 0x20;
        f
    };
    for noise in [frame_v4(&hosts, 4790, 80), frame_v6(&hosts, 4792, 80), fragment] {
        send(&mut a, &noise);
    }
    let mut sent = Vec::new();
    for len in [62, 80, 4202, 9014] {
        sent.push(frame_v4(&hosts, 4791, len));
        sent.push(frame_v6(&hosts, 4791, len));
    }
    for frame in &sent {
        send(&mut a, frame);
    }
    assert_eq!(receive(&mut b, sent.len()), sent);
    // Frames of another sender are not received as b's, and a does not receive its own.
    assert_eq!(a.rx_burst(&Time::ZERO, 64, &mut |_, _| {}), 0);
    assert_eq!((a.counters().tx_frames, b.counters().rx_frames), (11, 8));
    assert_eq!((a.tx_pending(), a.counters().tx_dropped), (0, 0));
}

#[test]
fn open__the_kernel_does_not_reply_to_what_the_port_receives() {
    let Some(hosts) = hosts("silencer") else { return };
    let ask = |ip: IpAddr, within: Duration| {
        let bind: IpAddr = match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = hosts.a.ns.run(|| UdpSocket::bind((bind, 0))).unwrap().unwrap();
        socket.connect((ip, 4791)).unwrap();
        socket.set_read_timeout(Some(within)).unwrap();
        socket.send(b"x").unwrap();
        socket.recv(&mut [0; 8]).unwrap_err().kind()
    };
    let addresses = [IpAddr::V4(hosts.b.v4), IpAddr::V6(hosts.b.v6)];
    for ip in addresses {
        let refused = ask(ip, LATE);
        assert_eq!(refused, io::ErrorKind::ConnectionRefused, "{ip}: no socket is bound yet");
    }
    let _b = open_in(&hosts.b.ns);
    for ip in addresses {
        let silent = ask(ip, Duration::from_millis(300));
        assert_eq!(silent, io::ErrorKind::WouldBlock, "{ip}: the kernel has replied");
    }
}

#[test]
fn slot_take__buffers_are_freed_when_sent_and_when_dropped() {
    let Some(hosts) = hosts("slot_take") else { return };
    let mut a = open_in(&hosts.a.ns);
    let tokens: Vec<_> = std::iter::from_fn(|| a.slot_take()).collect();
    assert_eq!((tokens.len(), a.counters().tx_no_slot), (SLOTS, 1));
    let frame = frame_v4(&hosts, 4791, 100);
    for (at, token) in tokens.into_iter().enumerate() {
        if at % 2 == 0 {
            a.slot_release(token);
        } else {
            a.slot_bytes(&token)[..100].copy_from_slice(&frame);
            a.slot_commit(token, TxMeta::whole(100));
        }
    }
    assert_eq!(a.tx_pending(), SLOTS / 2);
    a.flush(Time::ZERO).unwrap();
    assert_eq!((a.tx_pending(), a.free.len()), (0, SLOTS));
}

#[test]
fn flush__reports_a_removed_interface_and_only_counts_one_that_is_down() {
    let Some(hosts) = hosts("flush") else { return };
    let mut a = open_in(&hosts.a.ns);
    let mut netlink = Netlink::open_in(&hosts.a.ns).unwrap();
    let frame = frame_v4(&hosts, 4791, 100);
    netlink.set_down("sw0").unwrap();
    send(&mut a, &frame);
    assert_eq!(a.counters().tx_dropped, 1);
    netlink.set_up("sw0").unwrap();
    netlink.wait_running("sw0", LATE).unwrap();
    a.rx_burst(&Time::ZERO, 1, &mut |_, _| {});
    send(&mut a, &frame);
    assert_eq!(a.counters().tx_frames, 1);
    netlink.delete_link("sw0").unwrap();
    a.rx_burst(&Time::ZERO, 1, &mut |_, _| {});
    let error = a.flush(Time::ZERO).expect_err("the interface is gone");
    assert!(error.to_string().contains("sw0 is gone"), "{error}");
}

#[test]
fn wait__ends_at_its_timeout_and_at_a_frame() {
    let Some(hosts) = hosts("wait") else { return };
    let (mut a, mut b) = (open_in(&hosts.a.ns), open_in(&hosts.b.ns));
    let begun = Instant::now();
    b.wait(Duration::from_millis(20)).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(20));
    send(&mut a, &frame_v4(&hosts, 4791, 100));
    b.wait(Duration::from_secs(600)).unwrap();
    assert_eq!(b.rx_burst(&Time::ZERO, 64, &mut |_, _| {}), 1);
}
