//! Hostile peers of `spanwire copy receive`, with hand-made protocol messages.

use crate::copy::{TempDir, receiver, send_well};
use crate::lab::{HANG, Lab, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use socket2::{Domain, Socket, Type};
use spanwire_copy::chunk::{ChunkHeader, FIRST, HEADER_BYTES};
use spanwire_copy::message::{PROTOCOL, Sha256Hex};
use spanwire_copy::{DEFAULT_PORT, connection};
use spanwire_io::net::NetNs;
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::XdpConfig;
use spanwire_stream::fabric::{Attachment, FabricChoice, Wrap};
use spanwire_stream::{Connection, ModeChoice, Network, NetworkOptions};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A sender on host b with arbitrary messages, whose engine acknowledges normally.
struct Stranger {
    connection: Connection,
    /// Every message received.
    received: String,
}

impl Stranger {
    /// Runs `talk` with a connected stranger.
    fn with(lab: &Lab, talk: impl FnOnce(&mut Self) + Send) {
        let to = SocketAddr::new(lab.v4(), DEFAULT_PORT);
        let run = || {
            let wrap = Wrap::default();
            let (xdp, udp) = (XdpConfig::new("sw0"), UdpConfig::new("sw0"));
            let attachment = Attachment::open(lab.fabric, &xdp, &udp, &wrap).unwrap();
            let config = connection::limits().validate().unwrap();
            let options = NetworkOptions { config, ..NetworkOptions::default() };
            let network = Network::over(attachment, "sw0", options).unwrap();
            let connection = network.connect(to, &connection::options(ModeChoice::Auto)).unwrap();
            let mut stranger = Self { connection, received: String::new() };
            let declared = json!({"type": "request", "bytes": 8_u64 << 30, "files": 9,
                                  "entries": 9, "roots": []});
            assert_eq!(stranger.ask(&declared)["type"], "accept");
            talk(&mut stranger);
            stranger.connection.abort("that was all");
            network.shutdown(HANG).unwrap();
        };
        lab.hosts.b.ns.run(run).unwrap();
    }

    fn say(&mut self, word: &Value) {
        self.connection.send(word.to_string().as_bytes()).unwrap();
    }

    fn ask(&mut self, word: &Value) -> Value {
        self.say(word);
        let answer = self.connection.recv_timeout(HANG).unwrap().expect("an answer");
        self.received += std::str::from_utf8(&answer).unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    /// Sends an entry of a file that was modified in the first second of 1970.
    fn name(&mut self, index: u64, name: &str, size: u64) -> Value {
        let mtime = json!({"s": 1, "ns": 0});
        self.ask(&json!({
            "type": "entry", "index": index, "kind": "file", "name": name, "size": size,
            "mode": 0o644, "mtime": mtime,
        }))
    }
}

fn hash(bytes: &[u8]) -> Sha256Hex {
    Sha256Hex(Sha256::digest(bytes).into())
}

#[test]
fn strangers__a_silent_sender_loses_its_place_and_its_reserved_space() {
    silent_sender(FabricChoice::Xdp);
}

#[test]
fn strangers__a_silent_sender_loses_its_place_and_its_reserved_space_over_udp() {
    silent_sender(FabricChoice::Udp);
}

fn silent_sender(fabric: FabricChoice) {
    let Some(lab) = Lab::over(fabric) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let file = from.join("real");
    fs::write(&file, "real").unwrap();
    // By the user's option: the default of 30 s would only prolong the test. It is longer than what
    // a process may be late by.
    let receiver = receiver(&lab, &into, &["--stall-timeout", "3"]);
    let partial = into.join(".huge.spanwire-partial");
    let taken = || fs::metadata(&partial).map_or(0, |meta| meta.blocks() * 512);
    Stranger::with(&lab, |stranger| {
        assert_eq!(stranger.name(0, "huge", 4 << 30)["type"], "want");
        let mut chunk = [0; HEADER_BYTES + 1];
        let none = Sha256Hex([0; 32]);
        let header = ChunkHeader { flags: FIRST, len: 1, index: 0, offset: 0, sha256: none };
        chunk[..HEADER_BYTES].copy_from_slice(&header.emit());
        stranger.connection.send(&chunk).unwrap();
        until("the byte arrives", || fs::metadata(&partial).is_ok_and(|m| m.len() == 1));
        assert!(taken() <= 65 << 20, "one byte of 4 GiB takes {} bytes", taken());
        let end = stranger.connection.recv_timeout(HANG).unwrap_err();
        assert!(end.to_string().contains("brought nothing for 3s"), "{end}");
    });
    until("the space is released", || taken() <= 1 << 20);
    send_well(&lab, &[&file], &[]);
    assert_eq!(fs::read(into.join("real")).unwrap(), b"real");
    receiver.terminate();
}

#[test]
fn strangers__no_hash_is_sent_to_a_sender_without_the_file() {
    no_hash(FabricChoice::Xdp);
}

#[test]
fn strangers__no_hash_is_sent_to_a_sender_without_the_file_over_udp() {
    no_hash(FabricChoice::Udp);
}

fn no_hash(fabric: FabricChoice) {
    let Some(lab) = Lab::over(fabric) else { return };
    let into = TempDir::new();
    let (secret, begun) = (b"secret".as_slice(), b"begun".as_slice());
    let there = into.join("secret");
    fs::write(&there, secret).unwrap();
    let mtime = std::time::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(&there).unwrap().set_modified(mtime).unwrap();
    fs::write(into.join(".begun.spanwire-partial"), begun).unwrap();
    let receiver = receiver(&lab, &into, &["--once"]);
    Stranger::with(&lab, |stranger| {
        for (index, name, size) in [(0, "secret", 6), (1, "begun", 100)] {
            assert_eq!(stranger.name(index, name, size)["type"], "have");
            let guess = hash(b"a guess");
            stranger.ask(&json!({"type": "hash", "index": index, "sha256": guess}));
        }
        for bytes in [secret, begun] {
            assert!(!stranger.received.contains(&hash(bytes).to_string()), "{}", stranger.received);
        }
    });
    assert_eq!(receiver.wait().code, Some(5));
    assert_eq!(fs::read(&there).unwrap(), secret);
}

/// Maximum memory growth of the receiver.
const GROWTH_MAX_KIB: u64 = 16 << 10;

/// Runs `ip` in a namespace.
fn ip(ns: &NetNs, args: &[&str]) {
    let done = ns.command("ip").unwrap().args(args).output().expect("iproute2 is there");
    assert!(done.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Connects to the receiver from `ip`, sends a hello and waits for the reply. If that is a hello,
/// the connection is half-open.
fn hello(lab: &Lab, ip: Ipv4Addr) -> Option<TcpStream> {
    let to = SocketAddr::new(lab.v4(), DEFAULT_PORT);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(ip.into(), 0).into()).unwrap();
    socket.connect_timeout(&to.into(), HANG).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(HANG)).unwrap();
    let hello = json!({
        "type": "hello", "version": 3, "carries": "messages", "protocol": PROTOCOL, "ip": ip,
        "path_mtu": 1024, "side_poll_port": null, "qp": {"qpn": 7, "psn": 7},
        "ring": {"va": 0, "rkey": 1, "bytes": 1 << 30, "fragment_bytes": 4096, "fragments": 4096,
                 "max_message_bytes": 4096},
    });
    // A rejected connection may be closed before a byte is read or written.
    let _ = writeln!(stream, "{hello}");
    let mut answer = String::new();
    let _ = BufReader::new(&mut stream).read_line(&mut answer);
    answer.contains("\"hello\"").then_some(stream)
}

/// The number of connections that the receiver has not closed, once it is at most `expected`.
fn open(connections: &[TcpStream], expected: usize) -> usize {
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
    };
    let begin = Instant::now();
    loop {
        let open = connections.iter().filter(|stream| is_open(stream)).count();
        if open <= expected || begin.elapsed() >= HANG {
            return open;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn strangers__half_open_connections_cost_the_receiver_little_memory() {
    half_open(FabricChoice::Xdp);
}

#[test]
fn strangers__half_open_connections_cost_the_receiver_little_memory_over_udp() {
    half_open(FabricChoice::Udp);
}

fn half_open(fabric: FabricChoice) {
    let Some(lab) = Lab::over(fabric) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let file = from.join("f");
    fs::write(&file, "real").unwrap();
    // Host b has every address of 10.78.0.0/16, and the receiver has a route to them through it.
    ip(&lab.hosts.b.ns, &["route", "add", "local", "10.78.0.0/16", "dev", "lo"]);
    let b = lab.hosts.b.v4.to_string();
    ip(&lab.hosts.a.ns, &["route", "add", "10.78.0.0/16", "via", &b, "dev", "sw0"]);
    // Half-open connections must outlast the test.
    let receiver = receiver(&lab, &into, &["--handshake-timeout", "60"]);
    let before = receiver.resident_kib();
    let grown = || receiver.resident_kib().saturating_sub(before);
    let call = |ips: Vec<Ipv4Addr>| {
        let call = || ips.into_iter().filter_map(|ip| hello(&lab, ip)).collect::<Vec<_>>();
        lab.hosts.b.ns.run(call).unwrap()
    };
    let one = call(vec![lab.hosts.b.v4; 1000]);
    assert_eq!(open(&one, 8), 8, "of one address: max_half_open_per_peer");
    assert!(grown() < GROWTH_MAX_KIB, "{} KiB for 1,000 of one address", grown());
    let many = (1..=10_000_u16).map(|n| {
        let [high, low] = n.to_be_bytes();
        Ipv4Addr::new(10, 78, high, low)
    });
    let many = call(many.collect());
    assert_eq!(open(&one, 0), 0, "each new one takes the place of the oldest");
    assert_eq!(open(&many, 64), 64, "in all: max_half_open");
    assert!(grown() < GROWTH_MAX_KIB, "{} KiB for 10,000 of many addresses", grown());
    // They keep no sender out.
    send_well(&lab, &[&file], &[]);
    assert_eq!(open(&many, 63), 63, "the sender took the place of the oldest");
    receiver.terminate();
}
