//! The exchanges of stock tools, as captured, through our codec: parsed and encoded to the same
//! bytes, in the steps of [`Test`].

use super::*;
use spanwire_tests::pcap::Pcap;
use spanwire_transport::Mtu;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The bytes that one end sent.
struct Sent {
    name: &'static str,
    bytes: Vec<u8>,
    at: usize,
}

impl Sent {
    fn next(&mut self, n: usize) -> &[u8] {
        let from = self.at;
        self.at += n;
        assert!(self.at <= self.bytes.len(), "{} sent less", self.name);
        &self.bytes[from..self.at]
    }

    fn keys(&mut self) -> Keys {
        let sent = self.next(KEYS_BYTES).to_vec();
        let keys = Keys::from_bytes(&sent).unwrap();
        assert_eq!(keys.to_bytes(), sent);
        keys
    }
}

/// Both directions of the capture's TCP connection, the client's first.
fn exchange_of(file: &str) -> [Sent; 2] {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/rxe").join(file);
    let capture = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // By sequence number, so that a retransmitted segment counts once.
    let mut segments: [BTreeMap<u32, Vec<u8>>; 2] = Default::default();
    for frame in Pcap::new(&capture).unwrap().frames() {
        let frame = frame.unwrap().bytes;
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        // These exchanges run over IPv4 without options.
        if word(12) != 0x0800 || frame[23] != 6 {
            continue;
        }
        let (sport, dport, total) = (word(34), word(36), usize::from(word(16)));
        let payload = 34 + usize::from(frame[46] >> 4) * 4;
        let end = 14 + total;
        if [sport, dport].contains(&DEFAULT_PORT) && payload < end {
            let sequence = u32::from_be_bytes(frame[38..42].try_into().unwrap());
            let from_server = usize::from(sport == DEFAULT_PORT);
            segments[from_server].insert(sequence, frame[payload..end].to_vec());
        }
    }
    let [client, server] = segments.map(|s| s.into_values().flatten().collect());
    [Sent { name: "client", bytes: client, at: 0 }, Sent { name: "server", bytes: server, at: 0 }]
}

fn test(op: Op, latency: bool, size: u32, iterations: u64) -> Test {
    Test {
        op,
        latency,
        bidirectional: false,
        size,
        iterations,
        qps: 1,
        depth: 128,
        path_mtu: None,
        traffic_class: 0,
        timeout: 14,
        retry_cnt: 7,
    }
}

/// Parses the bytes of one end; returns its keys and report.
fn check_steps(test: &Test, mtu: Mtu, sent: &mut Sent) -> (Vec<Keys>, Option<Report>) {
    let version = sent.next(VERSION_BYTES).to_vec();
    assert_eq!(version_from(&version).unwrap(), VERSION);
    assert_eq!(version_to_bytes(), *version);
    assert_eq!(cycle_buffer_from(sent.next(4)).unwrap(), 4096);
    assert_eq!(sent.next(4), 64_u32.to_be_bytes());
    let mtu_bytes = sent.next(2).to_vec();
    assert_eq!((mtu_from(&mtu_bytes).unwrap(), &mtu_to_bytes(mtu)[..]), (mtu, &mtu_bytes[..]));
    let mut keys: Vec<Keys> = Vec::new();
    for round in test.rounds() {
        let n = if *round == Round::All { test.qps } else { 1 };
        let received: Vec<Keys> = (0..n).map(|_| sent.keys()).collect();
        if received.len() > keys.len() {
            keys = received;
        } else {
            assert_eq!(received, keys[..received.len()], "the keys are the same in every round");
        }
    }
    if test.has_barrier_after_run() {
        assert_eq!(sent.keys(), keys[0]);
    }
    let report = test.has_reports().then(|| {
        let fields = [(); 5].map(|()| sent.next(8).try_into().unwrap());
        let report = Report::from_fields(fields);
        assert_eq!(report.to_fields(), fields);
        report
    });
    if test.has_farewell() {
        assert_eq!(sent.keys(), keys[0]);
        assert_eq!(sent.next(5), b"done\0");
    }
    assert_eq!(sent.at, sent.bytes.len(), "the {} sent more", sent.name);
    (keys, report)
}

/// Each capture with its test and path MTU.
fn captures() -> Vec<(&'static str, Test, Mtu)> {
    use Mtu::{B1024, B4096};
    let both = |test: Test| Test { bidirectional: true, ..test };
    vec![
        ("01_send_small.pcap", test(Op::Send, false, 64, 8), B1024),
        ("02_send_multi_mtu1024.pcap", test(Op::Send, false, 5003, 6), B1024),
        ("03_send_multi_mtu4096.pcap", test(Op::Send, false, 10_001, 5), B4096),
        ("04_write_mtu1024.pcap", test(Op::Write, false, 5002, 6), B1024),
        ("05_write_mtu4096.pcap", test(Op::Write, false, 10_001, 5), B4096),
        ("06_read_mtu1024.pcap", test(Op::Read, false, 5001, 6), B1024),
        ("07_read_mtu4096.pcap", test(Op::Read, false, 10_001, 5), B4096),
        ("08_read_outs1.pcap", test(Op::Read, false, 2048, 6), B1024),
        ("09_atomic_faa.pcap", test(Op::FetchAdd, false, 8, 8), B4096),
        ("10_atomic_cas.pcap", test(Op::CmpSwap, false, 8, 8), B4096),
        ("11_send_lat.pcap", test(Op::Send, true, 2, 10), B4096),
        ("12_write_lat.pcap", test(Op::Write, true, 2, 10), B4096),
        ("13_read_lat.pcap", test(Op::Read, true, 64, 10), B4096),
        ("17_send_bidir.pcap", both(test(Op::Send, false, 3000, 5)), B1024),
        ("18_write_2qp.pcap", Test { qps: 2, ..test(Op::Write, false, 2500, 5) }, B1024),
    ]
}

#[test]
fn test__has_every_step_of_the_captured_tools() {
    for (file, test, mtu) in captures() {
        eprintln!("{file}: {}", test.tool());
        assert_eq!(test.check(), Ok(()));
        let [mut client, mut server] = exchange_of(file);
        for (sent, ip) in [(&mut client, "10.77.0.1"), (&mut server, "10.77.0.2")] {
            let is_client = sent.name == "client";
            let (keys, report) = check_steps(&test, mtu, sent);
            assert!(keys.iter().all(|k| k.ip().unwrap().to_string() == ip));
            let out_reads = match file {
                "08_read_outs1.pcap" => 1,
                _ if test.op.is_rd_atomic() => 128,
                _ => 1,
            };
            assert_eq!(keys[0].out_reads, out_reads);
            // A passive end's report is uninitialised.
            if let Some(report) = report.filter(|_| test.is_active(is_client)) {
                let messages = test.iterations * u64::from(test.qps);
                assert_eq!((report.size, report.iterations), (test.size.into(), messages));
                assert!(report.average > 0.0 && report.message_rate_mpps > 0.0);
            }
        }
    }
}

#[test]
fn test__keys_of_ipv6_are_the_same_with_another_gid() {
    let [mut client, _] = exchange_of("30_v6_send.pcap");
    let (keys, _) = check_steps(&test(Op::Send, false, 2501, 5), Mtu::B1024, &mut client);
    assert_eq!(keys[0].ip().unwrap().to_string(), "fd77::1");
}

#[test]
fn check__rejects_what_no_tool_supports() {
    let good = test(Op::Write, true, 2, 1);
    for bad in [
        Test { iterations: 0, ..good },
        Test { qps: 2, ..good },
        Test { bidirectional: true, ..good },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
