//! Verdicts of the steering program for single frames, as the kernel runs it.

use crate::support::{pair_or_skip, roce_frame};
use af_xdp::{AddressMap, Program, Socket, SocketConfig, Umem, Verdict, XskMap};
use std::net::IpAddr;

fn v4(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = vec![0; 64];
    roce_frame(&[0; 22], &mut frame);
    change(&mut frame);
    frame
}

fn v6(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = vec![0; 94];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    frame[18..20].copy_from_slice(&40u16.to_be_bytes());
    frame[20] = 17;
    frame[21] = 64;
    frame[38..54].copy_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    frame[56..58].copy_from_slice(&4791u16.to_be_bytes());
    change(&mut frame);
    frame
}

fn passed() -> Vec<(&'static str, Vec<u8>)> {
    let short = |len| v4(|_| ())[..len].to_vec();
    vec![
        ("other UDP port", v4(|f| f[37] ^= 1)),
        ("source port 4791 only", v4(|f| f[34..38].rotate_left(2))),
        ("TCP", v4(|f| f[23] = 6)),
        ("IPv4 options", v4(|f| f[14] = 0x46)),
        ("first fragment", v4(|f| f[20] = 0x20)),
        ("later fragment", v4(|f| f[21] = 0x10)),
        ("last fragment, high offset", v4(|f| f[20] = 0x1f)),
        ("ARP", v4(|f| f[12..14].copy_from_slice(&[8, 6]))),
        ("VLAN tag", v4(|f| f[12..14].copy_from_slice(&[0x81, 0]))),
        ("41 bytes", short(41)),
        ("14 bytes", short(14)),
        ("IPv6, other port", v6(|f| f[57] ^= 1)),
        ("IPv6 TCP", v6(|f| f[20] = 6)),
        ("IPv6 hop-by-hop header", v6(|f| f[20] = 0)),
        ("IPv6 fragment header", v6(|f| f[20] = 44)),
        ("IPv6 neighbour discovery", v6(|f| f[20] = 58)),
        ("IPv6, 61 bytes", v6(|_| ())[..61].to_vec()),
        ("IPv4 of another host", v4(|f| f[33] = 3)),
        ("IPv4 multicast", v4(|f| f[30..34].copy_from_slice(&[224, 0, 0, 1]))),
        ("IPv4 broadcast", v4(|f| f[30..34].fill(255))),
        ("IPv6 of another host", v6(|f| f[53] = 3)),
        ("IPv6 of another network", v6(|f| f[38] = 0xfc)),
        ("IPv6, second word", v6(|f| f[45] = 1)),
        ("IPv6, third word", v6(|f| f[46] = 1)),
        ("IPv6 multicast", v6(|f| f[38..40].copy_from_slice(&[0xff, 2]))),
        ("the IPv4 address as IPv6", v6(|f| f[38..54].copy_from_slice(&MAPPED_OTHER))),
    ]
}

/// ::ffff:10.77.0.3, which is in no address map of these tests.
const MAPPED_OTHER: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 3];

/// The destinations of [`v4`] and [`v6`].
fn ours() -> [IpAddr; 2] {
    ["10.77.0.2", "fd77::2"].map(|text| text.parse().expect("an address"))
}

#[test]
fn steer__redirects_roce_and_passes_the_rest() {
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    pair.a.run(|| {
        let map = XskMap::new(4).expect("map");
        let addresses = AddressMap::new(8).expect("map");
        addresses.replace(ours()).expect("two addresses");
        let program = Program::steer_roce(&map, &addresses).expect("the verifier accepts it");
        let verdict = |frame: &[u8]| program.verdict(frame).expect("test run");
        let taken = [
            ("IPv4", v4(|_| ())),
            ("IPv4 without don't-fragment", v4(|f| f[20] = 0)),
            ("IPv4, 42 bytes", v4(|_| ())[..42].to_vec()),
            ("IPv4 with ECN", v4(|f| f[15] = 3)),
            ("IPv6", v6(|_| ())),
            ("IPv6, 62 bytes", v6(|_| ())[..62].to_vec()),
        ];
        for (name, frame) in &taken {
            assert_eq!(verdict(frame), Verdict::Pass, "empty slot: {name}");
        }
        let ifindex = af_xdp::interface_index("va").expect("va");
        let (umem, _frames) = Umem::with_frames(8, 2048).expect("memory");
        let (socket, _) = Socket::bind(&umem, &SocketConfig::new(ifindex, 0)).expect("bind");
        map.set(0, std::os::fd::AsFd::as_fd(&socket)).expect("set");
        for (name, frame) in &taken {
            assert_eq!(verdict(frame), Verdict::Redirect, "{name}");
        }
        for (name, frame) in passed() {
            assert_eq!(verdict(&frame), Verdict::Pass, "{name}");
        }
        addresses.replace([]).expect("none");
        for (name, frame) in &taken {
            assert_eq!(verdict(frame), Verdict::Pass, "no address: {name}");
        }
        addresses.replace(ours()).expect("two addresses");
        assert_eq!(verdict(&taken[0].1), Verdict::Redirect, "an address again");
        map.clear(0).expect("clear");
        map.clear(0).expect("clearing an empty slot");
        assert_eq!(verdict(&taken[0].1), Verdict::Pass, "cleared slot");
        assert!(map.set(4, std::os::fd::AsFd::as_fd(&socket)).is_err());
        drop(socket);
    });
}

#[test]
fn replace__keeps_the_first_addresses_that_fit_and_no_old_ones() {
    if pair_or_skip(1500, 1).is_none() {
        return;
    }
    let map = XskMap::new(1).expect("map");
    let addresses = AddressMap::new(3).expect("map");
    assert!(addresses.is_empty());
    let v4 = |n: u8| IpAddr::from([10, 0, 0, n]);
    // A repeated address counts once.
    assert_eq!(addresses.replace([v4(1), v4(2), v4(1)]).expect("two"), 0);
    assert_eq!(addresses.len(), 2);
    // All new, with the map too small for the old and the new content.
    assert_eq!(addresses.replace((3..9).map(v4)).expect("three of six"), 3);
    assert_eq!(addresses.len(), 3);
    assert_eq!(addresses.replace((4..9).map(v4)).expect("three of five"), 2);
    assert!(AddressMap::new(0).is_err());
    drop(Program::steer_roce(&map, &addresses).expect("the verifier accepts it"));
}

#[test]
fn steer_all__redirects_all_frames_while_there_is_a_socket() {
    let Some(pair) = pair_or_skip(1500, 1) else {
        return;
    };
    pair.a.run(|| {
        let map = XskMap::new(1).expect("map");
        let program = Program::steer_all(&map).expect("the verifier accepts it");
        let mut frames = passed();
        frames.push(("RoCEv2", v4(|_| ())));
        let all = |expected: Verdict| {
            for (name, frame) in &frames {
                assert_eq!(program.verdict(frame).expect("test run"), expected, "{name}");
            }
        };
        all(Verdict::Pass);
        let ifindex = af_xdp::interface_index("va").expect("va");
        let (umem, _frames) = Umem::with_frames(8, 2048).expect("memory");
        let (socket, _) = Socket::bind(&umem, &SocketConfig::new(ifindex, 0)).expect("bind");
        map.set(0, std::os::fd::AsFd::as_fd(&socket)).expect("set");
        all(Verdict::Redirect);
        map.clear(0).expect("clear");
        all(Verdict::Pass);
        drop(socket);
    });
}

#[test]
fn load__a_rejected_program_returns_the_verifiers_log() {
    if pair_or_skip(1500, 1).is_none() {
        return;
    }
    // Returns without setting r0.
    let error = Program::load(&[0x95]).expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("R0"), "{text}");
}
