//! Frames of another implementation (Linux rdma_rxe) against `spanwire-wire`.
//!
//! `golden/rxe/captures.md` has the command of each capture, its frames by opcode, and its good and
//! bad ICRCs. Another decoder wrote it, so it serves as the oracle.
#![expect(non_snake_case, reason = "tests are named function__case")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use spanwire_tests::pcap::Pcap;
use spanwire_wire::{
    Bth, DropReason, Ethernet, EthernetRepr, Headers, IpRepr, Ipv4, Ipv6, Opcode, Packet, Qpn,
    ROCE_PORT, Template, Udp, icrc, seal,
};

/// The one capture with deliberately wrong frames.
const PROBE: &str = "82_probe_req.pcap";

/// The entry of a capture in `captures.md`.
#[derive(PartialEq, Eq, Debug, Default)]
struct Entry {
    bytes: usize,
    frames: usize,
    good: usize,
    bad: usize,
    /// Number of frames of each opcode, by the oracle's names.
    opcodes: BTreeMap<String, usize>,
}

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/rxe")
}

/// `captures.md`, by file name.
fn oracle() -> BTreeMap<String, Entry> {
    let text = fs::read_to_string(dir().join("captures.md")).expect("captures.md is there");
    let mut entries = BTreeMap::new();
    for section in text.split("\n## ").skip(1) {
        let mut lines = section.lines();
        let name = lines.next().expect("a section has a heading");
        let numbers = lines
            .clone()
            .find(|l| l.contains(" good ICRC, "))
            .unwrap_or_else(|| panic!("{name}: no line of counts"));
        let n: Vec<usize> =
            numbers.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
        let [bytes, frames, good, bad] = n[..] else {
            panic!("{name}: {numbers}");
        };
        let roce = lines
            .find_map(|l| l.strip_prefix("RoCE: "))
            .unwrap_or_else(|| panic!("{name}: no opcodes"));
        let opcodes = roce
            .split(", ")
            .map(|item| {
                let (count, op) = item.split_once(' ').expect("count and opcode");
                (op.to_owned(), count.parse().expect("a count"))
            })
            .collect();
        entries.insert(name.to_owned(), Entry { bytes, frames, good, bad, opcodes });
    }
    entries
}

/// The oracle's name of an opcode byte.
fn oracle_name(byte: u8) -> String {
    let op = Opcode::from_u8(byte).unwrap_or_else(|| panic!("opcode {byte:#x} in a capture"));
    if op == Opcode::Cnp {
        return "0x81".to_owned();
    }
    let name = format!("{op:?}");
    let (service, rest) = name.split_at(2);
    format!("{} {}", service.to_uppercase(), rest.replace("ReadResponse", "ReadResp"))
}

/// The IP packet and UDP payload of a frame to UDP port 4791, parsed by the views alone.
fn roce_of(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let ip = frame.get(14..)?;
    let payload = match Ethernet::new(frame).ok()?.ethertype() {
        EthernetRepr::IPV4 => Ipv4::new(ip).ok().filter(|(v, _)| v.protocol() == 17)?.1,
        EthernetRepr::IPV6 => Ipv6::new(ip).ok().filter(|(v, _)| v.next_header() == 17)?.1,
        _ => return None,
    };
    let (udp, ib) = Udp::new(payload).ok()?;
    let header_len = if ip[0] >> 4 == 4 { 20 } else { 40 };
    (udp.dst_port() == ROCE_PORT).then(|| (&ip[..header_len + payload.len()], ib))
}

/// Totals of a capture, as this crate parses it.
#[derive(Default)]
struct Tally {
    entry: Entry,
    bad_tver: usize,
    nonzero_udp_checksum: usize,
    to_gsi: usize,
    v6: usize,
}

/// Reads a capture and checks every frame of it.
fn check(name: &str) -> Tally {
    let file = fs::read(dir().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut tally = Tally::default();
    tally.entry.bytes = file.len();
    let capture = Pcap::new(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (i, frame) in capture.frames().enumerate() {
        let frame = frame.unwrap_or_else(|e| panic!("{name}: {e}"));
        let at = format!("{name} frame {}", i + 1);
        assert_eq!(frame.bytes.len(), frame.original_len, "{at} is truncated");
        tally.entry.frames += 1;
        match roce_of(frame.bytes) {
            Some((ip, ib)) => check_roce(&at, frame.bytes, ip, ib, &mut tally),
            None => {
                let why = Packet::parse(frame.bytes).expect_err(&at);
                assert!(why.is_not_roce(), "{at}: {why}");
            }
        }
    }
    tally
}

fn check_roce(at: &str, frame: &[u8], ip: &[u8], ib: &[u8], tally: &mut Tally) {
    let opcode = Bth::new(ib).expect(at).opcode();
    *tally.entry.opcodes.entry(oracle_name(opcode)).or_default() += 1;

    let (covered, sent) = ip.split_last_chunk::<4>().expect(at);
    let good = icrc(covered).expect(at).to_le_bytes() == *sent;
    tally.entry.good += usize::from(good);
    tally.entry.bad += usize::from(!good);

    let packet = match Packet::parse(frame) {
        Ok(packet) => {
            assert!(good, "{at}: accepted with a bad ICRC");
            packet
        }
        Err(DropReason::BadIcrc) => {
            assert!(!good, "{at}: rejected with a good ICRC");
            // The probe's step "ICRC byte-swapped" must not be accepted.
            let mut swapped = *sent;
            swapped.reverse();
            assert_eq!(icrc(covered).map(u32::to_le_bytes), Some(swapped), "{at}");
            Packet::parse_unverified(frame).expect(at)
        }
        Err(DropReason::BadTver) => {
            tally.bad_tver += 1;
            return;
        }
        Err(why) => panic!("{at}: {why}"),
    };
    tally.nonzero_udp_checksum += usize::from(packet.udp.checksum != 0);
    tally.to_gsi += usize::from(packet.bth.dest_qp == Qpn::GSI);
    tally.v6 += usize::from(matches!(packet.ip, IpRepr::V6(_)));
    check_emit(at, frame, &packet, good);
}

/// Checks that parsing, emitting and sealing reproduce the captured bytes.
fn check_emit(at: &str, frame: &[u8], packet: &Packet<'_>, good_icrc: bool) {
    let headers = Headers::from(packet);
    let payload_len = packet.payload.len();
    let len = headers.frame_len(payload_len);
    let mut ours = vec![0xa5; len];
    let place = headers.emit(&mut ours, payload_len).expect(at);
    ours[place].copy_from_slice(packet.payload);
    if good_icrc {
        seal(&mut ours, len);
    } else {
        ours[len - 4..].copy_from_slice(&frame[len - 4..len]);
    }
    // Bytes after `len` are padding of the link, not of the packet.
    assert_eq!(ours, frame[..len], "{at}");

    if packet.udp.checksum == 0 && good_icrc {
        let template = Template::new(packet.eth, packet.ip, packet.udp.src_port);
        let mut ours = vec![0xa5; len];
        let place = template.emit(&packet.bth, &packet.ext, payload_len, &mut ours).expect(at);
        ours[place].copy_from_slice(packet.payload);
        seal(&mut ours, len);
        assert_eq!(ours, frame[..len], "{at} by template");
    }
}

#[test]
fn captures__are_parsed_and_emitted_as_in_the_oracle() {
    let oracle = oracle();
    let mut total = Tally::default();
    for (name, want) in &oracle {
        let tally = check(name);
        assert_eq!(tally.entry, *want, "{name}");
        let on_purpose = usize::from(name == PROBE);
        assert_eq!((tally.entry.bad, tally.bad_tver), (on_purpose, on_purpose), "{name}");
        total.entry.good += tally.entry.good;
        total.entry.bad += tally.entry.bad;
        total.nonzero_udp_checksum += tally.nonzero_udp_checksum;
        total.to_gsi += tally.to_gsi;
        total.v6 += tally.v6;
    }
    // Detects a truncated oracle, or captures that lost a kind of traffic.
    assert_eq!((oracle.len(), total.entry.good, total.entry.bad), (64, 1478, 1));
    assert_eq!(total.nonzero_udp_checksum, 2);
    assert!(total.to_gsi >= 15, "connection management: {}", total.to_gsi);
    assert!(total.v6 >= 85, "IPv6: {}", total.v6);
}

#[test]
fn captures__and_the_oracle_name_the_same_files() {
    let mut on_disk: Vec<String> = fs::read_dir(dir())
        .expect("the folder is there")
        .map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|n| n.ends_with(".pcap"))
        .collect();
    on_disk.sort();
    let listed: Vec<String> = oracle().into_keys().collect();
    assert_eq!(on_disk, listed);
}

#[test]
fn captures__the_icrc_detects_a_change_of_every_covered_byte() {
    // One frame of each opcode and IP version: a change of any byte from the BTH on is detected,
    // except in the byte with FECN and BECN.
    let mut seen = BTreeMap::new();
    for name in oracle().keys() {
        let file = fs::read(dir().join(name)).expect("a listed file is there");
        for frame in Pcap::new(&file).expect("a pcap file").frames() {
            let frame = frame.expect("a whole record").bytes;
            if let Ok(p) = Packet::parse(frame) {
                let v4 = matches!(p.ip, IpRepr::V4(_));
                seen.entry((p.bth.opcode.to_u8(), v4)).or_insert(frame.to_vec());
            }
        }
    }
    for ((opcode, v4), frame) in seen {
        let bth = if v4 { 42 } else { 62 };
        let len = {
            let p = Packet::parse(&frame).expect("it was parsed before");
            Headers::from(&p).frame_len(p.payload.len())
        };
        for i in (bth..len).filter(|i| *i != bth + 4) {
            let mut bad = frame.clone();
            bad[i] ^= 0x40;
            assert!(Packet::parse(&bad).is_err(), "opcode {opcode:#x}, byte {i}");
        }
    }
}
