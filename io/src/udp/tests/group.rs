//! Several ports at one address.

use super::*;
use crate::udp::UdpGroup;
use std::collections::BTreeMap;

/// Bits 10 and 11 of the word at byte 4 name the port.
const GROUP: UdpGroup = UdpGroup { shift: 10, mask: 3 };

fn group(local: IpAddr, count: u32) -> Result<Vec<UdpPort>, UdpError> {
    let config = UdpConfig { local: Some(local), ip_bytes_max: 1500, ..UdpConfig::new("lo") };
    UdpPort::open_group(&config, GROUP, count)
}

/// The words at byte 4 of the datagrams that a port receives.
fn received(port: &mut UdpPort) -> Vec<u32> {
    let mut words = Vec::new();
    let mut look = |frame: &[u8], _: &RxMeta| {
        let payload = &frame[42..];
        words.push(u32::from_be_bytes(*payload[4..].first_chunk().unwrap()));
    };
    while port.rx_burst(&clock(), 64, &mut look) > 0 {}
    words
}

#[test]
fn open_group__a_datagram_reaches_the_port_that_it_names() {
    let local = loopback();
    let mut ports = group(local, 3).unwrap();
    let mut sent = BTreeMap::<u32, Vec<u32>>::new();
    for n in 0..60_u32 {
        // Sources differ: by the hash of addresses and ports half of them would go astray.
        let socket = UdpSocket::bind((loopback(), 0)).unwrap();
        let word = 0xab00_0000 | (n * 0x1234) << 12 & 0xff_ffff | (n % 3) << 10 | n;
        let payload = [&[0; 4], &word.to_be_bytes()[..], &[0; 8]].concat();
        socket.send_to(&payload, (local, 4791)).unwrap();
        sent.entry(n % 3).or_default().push(word);
    }
    for (port, number) in ports.iter_mut().zip(0..) {
        assert_eq!(received(port), sent[&number], "port {number}");
    }
    // One that no port has is left to the hash, and one that is too short reaches the first.
    let socket = UdpSocket::bind((loopback(), 0)).unwrap();
    socket.send_to(&[0xff; 16], (local, 4791)).unwrap();
    let found: usize = ports.iter_mut().map(|port| received(port).len()).sum();
    assert_eq!(found, 1);
    socket.send_to(&[0xff; 3], (local, 4791)).unwrap();
    let mut count = 0;
    ports[0].rx_burst(&clock(), 64, &mut |_, _| count += 1);
    assert_eq!(count, 1);
}

#[test]
fn open_group__an_address_is_taken_by_others_whether_they_share_or_not() {
    let local = loopback();
    let first = group(local, 2).unwrap();
    for taken in [group(local, 2), group(local, 1)] {
        assert!(taken.unwrap_err().to_string().contains("4791"));
    }
    let config = UdpConfig { local: Some(local), ..UdpConfig::new("lo") };
    assert!(UdpPort::open(&config).is_err());
    drop(first);
    let alone = UdpPort::open(&config).unwrap();
    assert!(group(local, 2).is_err());
    drop(alone);
    group(local, 2).unwrap();
}
