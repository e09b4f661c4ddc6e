//! The path MTU over UDP sockets: forged ICMP messages, the metric of a route, and packets that the
//! kernel refuses.

use crate::OUTSTANDING;
use crate::bystanders::{Row, ip};
use crate::copy::{TempDir, noise};
use crate::lab::{Outcome, Running, received_bytes_in, until};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use spanwire_io::net::NetNs;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const LEFT: [&str; 2] = ["10.78.1.2", "fd78:1::2"];
const RIGHT: [&str; 2] = ["10.78.2.2", "fd78:2::2"];
const MODES: [&str; 2] = ["rc", "sr"];

fn server(row: &Row) -> Running {
    let args = ["perf", "server", "--dev", "sw0", "--fabric", "udp"];
    Running::start_until(&row.right, &args, "serving on sw0 (udp)")
}

fn start_client(row: &Row, to: &str, mode: &str, more: &[&str]) -> Running {
    let args = ["perf", "client", "--dev", "sw0", "--fabric", "udp", to, "--mode", mode, "--json"];
    Running::start(&row.left, &[&args[..], more].concat())
}

/// A verified transfer, and its report.
fn transfer(row: &Row, to: &str, mode: &str, more: &[&str]) -> Value {
    let args = [&["--transfer", "4M", "--size", "64K"], more].concat();
    let outcome = start_client(row, to, mode, &args).wait();
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{mode} to {to}: {report}{}", outcome.stderr);
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    report
}

/// A file copied from left to right, and the report.
fn copy(row: &Row, to: &str) -> Value {
    let (outcome, is_equal) = try_copy(row, to);
    let report = outcome.json();
    assert_eq!(report["ok"], true, "to {to}: {report}{}", outcome.stderr);
    assert!(is_equal, "other bytes");
    report
}

/// A copy, and whether the file has arrived.
fn try_copy(row: &Row, to: &str) -> (Outcome, bool) {
    let (from, into) = (TempDir::new(), TempDir::new());
    let (file, into_text) = (from.join("file"), into.join(""));
    let bytes = noise(1 << 20, 7);
    fs::write(&file, &bytes).expect("a directory of ours");
    let args = ["copy", "receive", "--dev", "sw0", "--fabric", "udp", "--into", &into_text];
    let receiver = Running::start_until(&row.right, &args, "receiving on sw0");
    let args = ["copy", "send", "--dev", "sw0", "--fabric", "udp", &file, to, "--json"];
    let outcome = Running::start(&row.left, &args).wait();
    receiver.terminate();
    (outcome, fs::read(into.join("file")).is_ok_and(|copied| copied == bytes))
}

/// Waits until the right host has received more than the client has outstanding.
fn arrives(row: &Row, client: &mut Running) {
    let before = received_bytes_in(&row.right);
    until("the right host receives data", || {
        assert!(client.is_running(), "the client has ended");
        received_bytes_in(&row.right) >= before + OUTSTANDING
    });
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

/// Sends the host at `to`, from the namespace `by`, ICMP messages that its packets to `peer` are
/// too long: one for each source port of RoCEv2.
fn forge(by: &NetNs, to: &str, peer: &str) {
    let (to, peer): (IpAddr, IpAddr) = (to.parse().expect("an IP"), peer.parse().expect("an IP"));
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let raw = || Socket::new(domain, Type::RAW, Some(protocol));
    let socket = by.run(raw).expect("the namespace is there").expect("privileged");
    for port in 0xc000..=0xffff_u16 {
        let message = match (to, peer) {
            (IpAddr::V4(to), IpAddr::V4(peer)) => fragmentation_needed(to, peer, port),
            (IpAddr::V6(to), IpAddr::V6(peer)) => packet_too_big(to, peer, port),
            _ => unreachable!("of one version"),
        };
        socket.send_to(&message, &SocketAddr::new(to, 0).into()).expect("a route");
    }
}

/// The UDP header of a packet of ours.
fn udp(port: u16) -> [u8; 8] {
    let [high, low] = port.to_be_bytes();
    let [roce_high, roce_low] = 4791_u16.to_be_bytes();
    [high, low, roce_high, roce_low, 5, 180, 0, 0]
}

/// ICMP type 3, code 4, next-hop MTU 552 (RFC 1191).
fn fragmentation_needed(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0, 2, 40];
    message.extend([0x45, 0, 5, 220, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    message.extend(from.octets());
    message.extend(to.octets());
    message.extend(udp(port));
    let sum: u32 = message.chunks_exact(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = !((folded & 0xffff) + (folded >> 16));
    message[2..4].copy_from_slice(&folded.to_be_bytes()[2..]);
    message
}

/// ICMPv6 type 2, MTU 1280 (RFC 4443). The kernel computes the checksum.
fn packet_too_big(from: Ipv6Addr, to: Ipv6Addr, port: u16) -> Vec<u8> {
    let mut message = vec![2, 0, 0, 0, 0, 0, 5, 0];
    message.extend([0x60, 0, 0, 0, 5, 180, 17, 64]);
    message.extend(from.octets());
    message.extend(to.octets());
    message.extend(udp(port));
    message
}

/// Forges messages to connections of each mode and address. They go on, and new ones have packets
/// of at least `segment_bytes`.
fn survives_forged_messages(row: &Row, segment_bytes: u64) {
    let server = server(row);
    for (us, to) in LEFT.into_iter().zip(RIGHT) {
        for mode in MODES {
            let mut client = start_client(row, to, mode, &["--seconds", "86400"]);
            arrives(row, &mut client);
            forge(&row.middle, us, to);
            arrives(row, &mut client);
            let report = client.end_with(libc::SIGINT).json();
            assert_eq!(report["error"], "interrupted", "{mode} to {to}: {report}");
            // The kernel has taken the message for true.
            let cached = ip(&row.left, &format!("route get {to}"));
            assert!(cached.contains("expires"), "{cached}");
            let segment = transfer(row, to, mode, &[])["segment_bytes"].as_u64();
            assert!(segment >= Some(segment_bytes), "{segment:?}");
        }
    }
    server.terminate();
}

#[test]
fn icmp__a_forged_path_mtu_ends_no_connection_and_prevents_none() {
    let Some(row) = Row::routed() else { return };
    survives_forged_messages(&row, 1024);
    for to in RIGHT {
        let report = copy(&row, to);
        assert_eq!(counter(&report, "udp_tx_too_long"), 0, "{report}");
    }
}

#[test]
fn route__its_metric_limits_the_packets_of_new_connections() {
    let Some(row) = Row::routed() else { return };
    for (version, via, mtu) in [(4, "10.78.1.1", 1000), (6, "fd78:1::1", 1300)] {
        ip(&row.left, &format!("-{version} route replace default via {via} mtu {mtu}"));
    }
    let server = server(&row);
    for (to, [rc, sr]) in RIGHT.into_iter().zip([[512, 908], [1024, 1188]]) {
        for (mode, bytes) in [("rc", rc), ("sr", sr)] {
            let report = transfer(&row, to, mode, &[]);
            assert_eq!(report["segment_bytes"], bytes, "{report}");
        }
        let report = transfer(&row, to, "sr", &["--op", "read"]);
        assert_eq!(report["segment_bytes"], sr, "{report}");
    }
    server.terminate();
    for to in RIGHT {
        copy(&row, to);
    }
}

#[test]
fn client__says_that_this_host_refuses_its_packets() {
    let Some(row) = Row::routed() else { return };
    let server = server(&row);
    for any in ["0.0.0.0/0", "::/0"] {
        let rule = format!("src {any} dst {any} proto udp dport 4791 action block");
        ip(&row.left, &format!("xfrm policy add dir out {rule}"));
    }
    for (to, mode) in RIGHT.into_iter().zip(MODES) {
        let outcome = start_client(&row, to, mode, &["--transfer", "1M"]).wait();
        let report = outcome.json();
        assert!(counter(&report, "udp_tx_denied") > 0, "{report}");
        let error = report["error"].as_str().unwrap_or_default();
        for words in ["RETRY_EXC_ERR", "firewall", "UDP port 4791"] {
            assert!(error.contains(words), "no {words:?} in {report}");
        }
        assert_eq!(outcome.code, Some(4), "{report}");
    }
    server.terminate();
    let (copied, _) = try_copy(&row, RIGHT[0]);
    let said = copied.stderr;
    assert!(said.contains("RETRY_EXC_ERR") && said.contains("firewall"), "{said}");
}

#[test]
fn path__a_smaller_mtu_on_the_way_is_found() {
    let Some(row) = Row::routed() else { return };
    let server = server(&row);
    // The second hop; the first is as wide as the interface says. Over IPv4 the router sends no
    // ICMP messages; over IPv6 the sending host needs them to fragment.
    ip(&row.middle, "xfrm policy add dir out src 0.0.0.0/0 dst 0.0.0.0/0 proto icmp action block");
    // IPv6 first: an interface of MTU 1000 has none.
    for (to, mtu) in [(RIGHT[1], 1280), (RIGHT[0], 1000)] {
        ip(&row.middle, &format!("link set r0 mtu {mtu}"));
        for mode in MODES {
            for op in ["write", "send"] {
                let report = transfer(&row, to, mode, &["--op", op]);
                // Path MTU 1024 of RC fits the MTU of IPv6.
                let is_narrow = mode == "sr" || mtu == 1000;
                assert_eq!(counter(&report, "path_mtu_reduced") > 0, is_narrow, "{report}");
                assert_eq!(report["reduced_segment_bytes"].is_u64(), is_narrow, "{report}");
                assert_eq!(counter(&report, "udp_tx_fragmented") > 0, is_narrow, "{report}");
                assert_eq!(counter(&report, "drop_bad_icrc"), 0, "{report}");
            }
        }
    }
    server.terminate();
    let report = copy(&row, RIGHT[0]);
    assert!(counter(&report, "path_mtu_reduced") > 0, "{report}");
}

#[test]
fn link__an_mtu_that_is_lowered_meanwhile_ends_no_connection() {
    let Some(row) = Row::routed() else { return };
    // Path MTU 1024 of RC fits.
    survives_a_lowered_mtu(&row, 1500, |mode| mode == "sr");
}

/// Lowers the MTU of our interface from `mtu` during connections of each mode and address, which go
/// on, with fragments in those modes.
fn survives_a_lowered_mtu(row: &Row, mtu: u32, fragments: fn(&str) -> bool) {
    let server = server(row);
    for to in RIGHT {
        for mode in MODES {
            let mut client = start_client(row, to, mode, &["--seconds", "86400"]);
            arrives(row, &mut client);
            ip(&row.left, "link set sw0 mtu 1280");
            arrives(row, &mut client);
            ip(&row.left, &format!("link set sw0 mtu {mtu}"));
            let report = client.end_with(libc::SIGINT).json();
            assert_eq!(report["error"], "interrupted", "{mode} to {to}: {report}");
            assert_eq!(counter(&report, "udp_tx_too_long"), 0, "{report}");
            assert_eq!(counter(&report, "udp_tx_fragmented") > 0, fragments(mode), "{report}");
        }
    }
    server.terminate();
}

/// The least MTU of IPv6, which a forger names, carries RC's packets of 1024 bytes, so these are
/// longer.
#[test]
fn icmp__a_forged_path_mtu_ends_no_connection_with_long_packets() {
    let Some(row) = Row::routed() else { return };
    long_frames(&row);
    survives_forged_messages(&row, 4096);
}

#[test]
fn link__an_mtu_that_is_lowered_below_long_packets_ends_no_connection() {
    let Some(row) = Row::routed() else { return };
    long_frames(&row);
    survives_a_lowered_mtu(&row, 4500, |_| true);
}

/// The hosts and the router have an MTU of 4500.
fn long_frames(row: &Row) {
    for (ns, name) in
        [(&row.left, "sw0"), (&row.middle, "l0"), (&row.middle, "r0"), (&row.right, "sw0")]
    {
        ip(ns, &format!("link set {name} mtu 4500"));
    }
}
