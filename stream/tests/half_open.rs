//! Memory of a listener's half-open connections. The listener is a process of its own, which
//! executes this test again, so that its resident memory includes nothing else.
#![expect(non_snake_case, reason = "tests are named function__case")]

use serde_json::json;
use socket2::{Domain, Socket, Type};
use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::{Config, ConnectOptions, Connection, Listener, Network, NetworkOptions};
use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
const GROWTH_MAX: u64 = 16 << 20;

/// How long the listener keeps a half-open connection: the longest configurable time.
const HALF_OPEN: Duration = Duration::from_secs(60);

/// Set in the process that listens.
const IS_LISTENER: &str = "SPANWIRE_TEST_IS_LISTENER";

/// Listens until standard input ends, without accepting any connection.
fn listen() {
    let wrap = Wrap::default();
    let (a, _other_end) = Attachment::pipe([&wrap, &wrap]).unwrap();
    // Half-open connections last longer than the test, unless the machine is very busy.
    let config = Config { handshake_timeout: HALF_OPEN, ..Config::default() };
    let config = config.validate().unwrap();
    let network =
        Network::over(a, "lo", NetworkOptions { config, ..NetworkOptions::default() }).unwrap();
    let listener: Listener<Connection> = network.listen(0, ConnectOptions::default()).unwrap();
    println!("\nport {}", listener.local_addr().port());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct ListenerProcess {
    child: Child,
    /// Kept open, because the listener's test harness still prints.
    _stdout: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl ListenerProcess {
    fn start(test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(IS_LISTENER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| line.unwrap().strip_prefix("port ")?.parse().ok());
        let port = port.expect("it says its port");
        Self { child, _stdout: lines, port }
    }

    fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Connects from `ip`, sends a hello and waits for the reply. If that is a hello, the
    /// connection is half-open.
    fn hello(&self, ip: Ipv4Addr) -> Option<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(ip.into(), 0).into()).unwrap();
        socket.connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port).into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LATE)).unwrap();
        let hello = json!({
            "type": "hello", "version": 3, "carries": "messages", "ip": ip, "path_mtu": 4096,
            "side_poll_port": null, "qp": {"qpn": 7, "psn": 7},
            "ring": {"va": 0, "rkey": 1, "bytes": 1 << 30, "fragment_bytes": 4096,
                     "fragments": 4096, "max_message_bytes": 4096},
        });
        // A rejected connection may be closed before a byte is read or written.
        let _ = writeln!(stream, "{hello}");
        let mut answer = String::new();
        let _ = BufReader::new(&mut stream).read_line(&mut answer);
        answer.contains("\"hello\"").then_some(stream)
    }
}

impl Drop for ListenerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The number of connections that the listener has not closed, once it is at most `expected`.
fn open(connections: &[TcpStream], expected: usize) -> usize {
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
    };
    let begin = Instant::now();
    loop {
        let open = connections.iter().filter(|stream| is_open(stream)).count();
        if open <= expected || begin.elapsed() >= LATE {
            return open;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn listen__half_open_connections_cost_little_memory() {
    if std::env::var_os(IS_LISTENER).is_some() {
        return listen();
    }
    let listener = ListenerProcess::start("listen__half_open_connections_cost_little_memory");
    let (before, begin) = (listener.resident_bytes(), Instant::now());
    // Each new one takes the place of the oldest. Once some may have expired, there are fewer.
    let assert_count = |connections: &[TcpStream], expected: usize, limit: &str| {
        let count = open(connections, expected);
        let is_right = count == expected || count < expected && begin.elapsed() >= HALF_OPEN;
        assert!(is_right, "half-open connections {limit}: {count}, not {expected}");
    };
    let grown = || listener.resident_bytes().saturating_sub(before);
    let one: Vec<_> = (0..1000).filter_map(|_| listener.hello(Ipv4Addr::LOCALHOST)).collect();
    assert_count(&one, 8, "of one address: max_half_open_per_peer");
    assert!(grown() < GROWTH_MAX, "{} bytes for 1,000 of one address", grown());
    let address = |n: u16| Ipv4Addr::from((127 << 24 | 1 << 16 | u32::from(n)).to_be_bytes());
    let many: Vec<_> = (0..10_000).filter_map(|n| listener.hello(address(n))).collect();
    assert_count(&many, 64, "in all: max_half_open");
    assert!(grown() < GROWTH_MAX, "{} bytes for 10,000 of many", grown());
    eprintln!("{} KiB more for 64 half-open connections", grown() >> 10);
}

#[test]
fn listen__connections_without_a_byte_cost_little_memory() {
    if std::env::var_os(IS_LISTENER).is_some() {
        return listen();
    }
    let listener = ListenerProcess::start("listen__connections_without_a_byte_cost_little_memory");
    let before = listener.resident_bytes();
    let mut held = Vec::new();
    for _ in 0..1000 {
        if let Some(mut stream) = listener.hello(Ipv4Addr::LOCALHOST) {
            stream.write_all(b"{\"type\":\"ready\"}\n").unwrap();
            held.push(stream);
        }
    }
    // No connection is accepted: `max_connections_per_peer` of them wait, the others are rejected.
    assert!((8..=64).contains(&held.len()), "{} half-open", held.len());
    let grown = listener.resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes for {} connections", held.len());
    eprintln!("{} KiB more for {} connections", grown >> 10, held.len());
}
