use super::*;
use proptest::prelude::*;
use spanwire_wire::{
    BthRepr, EthernetRepr, Headers, IpRepr, MacAddr, Psn, Qpn, RethRepr, UdpRepr, seal,
};
use std::net::Ipv6Addr;

const ETHERNET: u32 = 1;

/// A sealed WRITE Only of 5 bytes.
fn write_only(v6: bool) -> Vec<u8> {
    let ip = if v6 {
        IpRepr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::from_bits(7)))
    } else {
        IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
    };
    let mac = |n| MacAddr::new([2, 0, 0, 0, 0, n]);
    let headers = Headers {
        eth: EthernetRepr { dst: mac(2), src: mac(1), ethertype: 0 },
        ip: ip.unwrap(),
        udp: UdpRepr::new(0xc123),
        bth: BthRepr {
            ack_req: true,
            ..BthRepr::new(Opcode::RcWriteOnly, Qpn::new(0x11), Psn::new(0xff_ffff))
        },
        ext: ExtHeaders {
            reth: Some(RethRepr { va: 0x1000, rkey: 0x1df9, dma_len: 5 }),
            ..ExtHeaders::NONE
        },
    };
    let len = headers.frame_len(5);
    let mut frame = vec![0; len];
    let place = headers.emit(&mut frame, 5).unwrap();
    frame[place].copy_from_slice(b"hello");
    seal(&mut frame, len);
    frame
}

fn record(frame: &[u8], original_len: usize) -> Record<'_> {
    Record { at_ns: None, link: ETHERNET, original_len, bytes: frame }
}

fn roce(frame: &[u8], original_len: usize) -> RocePacket<'_> {
    match Decoder::default().decode(&record(frame, original_len))[..] {
        [Decoded::Roce(packet)] => packet,
        ref other => panic!("{other:?}"),
    }
}

fn other(frame: &[u8]) -> Other {
    match Decoder::default().decode(&record(frame, frame.len()))[..] {
        [Decoded::Other(other)] => other,
        ref packet => panic!("{packet:?}"),
    }
}

#[test]
fn decode__reads_every_header_of_a_good_packet() {
    for v6 in [false, true] {
        let frame = write_only(v6);
        let p = roce(&frame, frame.len());
        assert_eq!((p.icrc, p.fault, p.truncated), (Icrc::Good, None, false));
        assert_eq!((p.opcode, p.payload_len), (Some(Opcode::RcWriteOnly), Some(5)));
        assert_eq!((p.src_port, p.src.is_ipv6()), (0xc123, v6));
        assert_eq!(p.ext.unwrap().reth.unwrap().rkey, 0x1df9);
        let bth = p.bth.unwrap();
        assert_eq!((bth.dest_qp(), bth.psn(), bth.pad()), (Qpn::new(0x11), Psn::new(0xff_ffff), 3));
        // Link padding and the frame check sequence are not part of the packet.
        let padded = [&frame[..], &[0xaa; 7]].concat();
        assert_eq!(roce(&padded, padded.len()).icrc, Icrc::Good);
    }
}

#[test]
fn decode__a_changed_byte_is_a_bad_icrc() {
    let mut frame = write_only(false);
    let last = frame.len() - 6;
    frame[last] ^= 1;
    let p = roce(&frame, frame.len());
    assert!(matches!(p.icrc, Icrc::Bad { sent, computed } if sent != computed), "{p:?}");
    assert_eq!(p.fault, None, "a bad ICRC is no parse error");
}

#[test]
fn decode__continues_after_a_fault_and_checks_the_icrc() {
    // The version of the transport header, the opcode, the UDP length, the IPv4 header checksum.
    for (at, xor, why) in [
        (43, 0x01, DropReason::BadTver),
        (42, 0x1f, DropReason::UnknownOpcode),
        (39, 0x01, DropReason::BadUdpLength),
        (24, 0x01, DropReason::BadIpChecksum),
    ] {
        let mut frame = write_only(false);
        frame[at] ^= xor;
        if why != DropReason::BadIpChecksum {
            let len = frame.len();
            seal(&mut frame, len);
        }
        let p = roce(&frame, frame.len());
        assert_eq!((p.icrc, p.fault), (Icrc::Good, Some(why)));
        assert_eq!(p.bth.unwrap().dest_qp(), Qpn::new(0x11));
        assert_eq!(p.opcode.is_some(), why != DropReason::UnknownOpcode);
    }
}

#[test]
fn decode__truncated_packets_keep_complete_headers() {
    for v6 in [false, true] {
        let frame = write_only(v6);
        let bth = if v6 { 62 } else { 42 };
        for cut in bth - 4..frame.len() {
            let p = roce(&frame[..cut], frame.len());
            assert_eq!((p.icrc, p.truncated, p.fault), (Icrc::Unchecked, true, None), "{cut}");
            assert_eq!(p.bth.is_some(), cut >= bth + 12, "{cut}");
            assert_eq!(p.ext.is_some(), cut >= bth + 28, "{cut}");
            assert_eq!(p.payload_len, p.bth.map(|_| 5), "by the IP header");
            // If the frame had only these bytes, the packet itself is malformed.
            let p = roce(&frame[..cut], cut);
            assert!((p.icrc, p.truncated) == (Icrc::Unchecked, false) && p.fault.is_some());
        }
    }
    let mut frame = write_only(false);
    frame[43] |= 1;
    let p = roce(&frame[..60], frame.len());
    assert_eq!((p.truncated, p.fault), (true, Some(DropReason::BadTver)));
}

#[test]
fn decode__a_packet_too_short_for_its_icrc() {
    let mut frame = write_only(false);
    // 10 bytes after the UDP header.
    frame[17] = 38;
    let p = roce(&frame, frame.len());
    assert_eq!((p.icrc, p.fault.is_some(), p.truncated), (Icrc::Unchecked, true, false));
    assert!(p.bth.is_none() && p.ext.is_none() && p.payload_len.is_none());
}

#[test]
fn decode__vlan_tags_do_not_matter() {
    let plain = write_only(true);
    let tagged = [&plain[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0xe0, 0x64], &plain[12..]].concat();
    let p = roce(&tagged, tagged.len());
    assert_eq!((p.icrc, p.fault, p.vlans), (Icrc::Good, None, [Some(5), Some(100)]));
    let record = Record { link: 101, ..record(&plain[14..], plain.len() - 14) };
    let decoded = Decoder::default().decode(&record);
    let [Decoded::Roce(p)] = decoded[..] else { panic!("{record:?}") };
    assert_eq!((p.icrc, p.fault), (Icrc::Good, None));
}

#[test]
fn decode__classifies_other_frames() {
    let v4 = write_only(false);
    let with = |at: usize, value: u8| {
        let mut frame = v4.clone();
        frame[at] = value;
        other(&frame)
    };
    assert_eq!(with(13, 6), Other::EtherType(0x0806));
    assert_eq!(with(23, 6), Other::Protocol(6));
    assert_eq!(with(37, 53), Other::UdpPort(0x1235));
    assert_eq!(with(20, 0x20), Other::Fragment, "more fragments");
    assert_eq!(with(21, 1), Other::Fragment, "a fragment offset");
    assert_eq!(with(14, 0x44), Other::Cut, "a header shorter than any");
    let mut v6 = write_only(true);
    v6[20] = 44;
    assert_eq!(other(&v6), Other::Fragment);
    v6[20] = 0;
    assert_eq!(other(&v6), Other::Protocol(0));
    assert_eq!(other(&v4[..37]), Other::Cut);
    assert_eq!(other(&[]), Other::Cut);
}

#[test]
fn decode__ipv4_options_leave_the_icrc_unchecked() {
    let plain = write_only(false);
    let mut frame = [&plain[..34], &[1; 4], &plain[34..]].concat();
    frame[14] = 0x46;
    frame[17] += 4;
    let p = roce(&frame, frame.len());
    assert_eq!((p.icrc, p.fault), (Icrc::Unchecked, Some(DropReason::IpOptions)));
    assert_eq!(p.bth.unwrap().dest_qp(), Qpn::new(0x11));
}

proptest! {
    #[test]
    fn decode__survives_any_bytes(
        v6: bool,
        link in prop::sample::select(vec![1, 101, 113, 276, 147]),
        cut in 0usize..120,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut frame = write_only(v6);
        for (at, value) in damage {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        let bytes = &frame[..cut.min(frame.len())];
        let record = Record { at_ns: Some(0), link, original_len: frame.len(), bytes };
        for decoded in &Decoder::default().decode(&record) {
            if let Decoded::Roce(p) = decoded {
                prop_assert!(!p.truncated || p.icrc == Icrc::Unchecked);
            }
            let line = crate::Line {
                number: 1,
                since_first_ns: None,
                original_len: frame.len(),
                captured_len: bytes.len(),
                decoded,
            };
            let text = line.to_string();
            prop_assert!(text.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{}", text);
        }
    }
}
