//! `spanwire switch` between hosts of a lab: its effect on real traffic matches its configuration
//! file.
//!
//! A busy machine makes frames late, never early, and loses none that is not counted: a line is
//! never faster than its rate, a round trip never shorter than its delays, and frames are
//! conserved. That a line reaches its rate is asserted in virtual time (unit tests of `switch`,
//! `sim`).

use super::lab::{
    HANG, Outcome, Running, SPANWIRE, await_listener, run_here, skip, start_here, take_turn, until,
};
use serde_json::Value;
use spanwire_io::net::{Ethtool, IpPrefix, NetNs, Netlink, Offloads, VethEnd, VethSpec};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A lab around a switch. Dropping it removes it.
pub(crate) struct SwitchLab {
    pub(crate) name: String,
    file: PathBuf,
    up: Value,
    _turn: MutexGuard<'static, ()>,
}

impl SwitchLab {
    /// A lab of that configuration, or `None` without the privilege (reported on stderr).
    pub(crate) fn new(config: &str) -> Option<Self> {
        if skip() {
            return None;
        }
        let turn = take_turn();
        let (name, file) = names();
        std::fs::write(&file, config).expect("writable");
        let mut lab = Self { name, file, up: Value::Null, _turn: turn };
        let outcome = lab.lab_up();
        assert!(outcome.success, "{}", outcome.stderr);
        lab.up = outcome.json();
        Some(lab)
    }

    fn lab_up(&self) -> Outcome {
        let file = self.file.to_str().expect("a plain path");
        run_here(&["lab", "up", "--name", &self.name, "--switch", file, "--json"])
    }

    fn lab_down(&self) -> Outcome {
        run_here(&["lab", "down", "--name", &self.name, "--json"])
    }

    pub(crate) fn ns(&self, host: &str) -> NetNs {
        NetNs::open_named(&format!("{}-{host}", self.name)).expect("made")
    }

    /// The IPv4 address of a host, by its number.
    pub(crate) fn v4(&self, n: usize) -> IpAddr {
        self.address(n, "v4")
    }

    fn address(&self, n: usize, family: &str) -> IpAddr {
        let text = self.up["hosts"][n][family].as_str().expect("an address");
        text.parse().expect("an address")
    }

    /// Runs a spanwire command on a host to its end.
    fn exec(&self, host: &str, args: &[&str]) -> Outcome {
        run_here(&self.exec_args(host, args))
    }

    /// Starts a spanwire command on a host.
    fn start(&self, host: &str, args: &[&str]) -> Running {
        start_here(&self.exec_args(host, args))
    }

    fn exec_args<'a>(&'a self, host: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [&["lab", "exec", "--name", &self.name, host, "--", SPANWIRE], args].concat()
    }

    pub(crate) fn ctl(&self, args: &[&str]) -> Outcome {
        run_here(&[&["switch", "ctl", "--lab", &self.name, "--json"], args].concat())
    }

    /// Frames sent into the line at a port, and those that it lost.
    fn line_counters(&self, port: usize) -> [u64; 2] {
        let shown = self.ctl(&["show"]);
        assert!(shown.success, "{}", shown.stderr);
        let counters = &shown.json()["ports"][port]["line_counters"];
        ["frames", "drop_loss"].map(|name| counters[name].as_u64().expect(name))
    }

    /// Runs a perf client on host b against a server on host a, both with that window.
    fn perf(&self, window: &str, args: &[&str]) -> Value {
        let server_args = ["perf", "server", "--dev", "sw0", "--window", window];
        let server = Running::start_until(&self.ns("a"), &server_args, "serving on sw0");
        let to = self.v4(0).to_string();
        // A window that fills the path: these tests measure the switch, not congestion control.
        let fixed = ["--cc", "none", "--window", window];
        let client = [&["perf", "client", "--dev", "sw0", &to, "--json"], &fixed[..], args];
        let outcome = self.exec("b", &client.concat());
        assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
        server.terminate();
        outcome.json()
    }
}

impl Drop for SwitchLab {
    fn drop(&mut self) {
        let down = self.lab_down();
        let _ = std::fs::remove_file(&self.file);
        if !thread::panicking() {
            assert!(down.success, "{}", down.stderr);
        }
    }
}

/// Two hosts with a line of this rate and delay each way.
fn two(rate: &str, delay: &str, b: &str) -> String {
    let line = format!("rate = '{rate}'\ndelay = '{delay}'\nqueue.limit_bytes = '2MB'\n");
    format!("seed = 3\n[port.a]\n{line}[port.b]\n{line}{b}\n")
}

/// A name for a lab, and for its file.
fn names() -> (String, PathBuf) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("swx{}-{n}", std::process::id());
    let file = std::env::temp_dir().join(format!("{name}.toml"));
    (name, file)
}

/// The shortest of the round trips of `count` datagrams, one after another, between two hosts.
fn least_round_trip(lab: &SwitchLab, to: IpAddr, count: usize) -> Duration {
    // Any port: a process that is being started holds the socket of an earlier call for a while.
    let at = SocketAddr::new(to, 0);
    let echo = lab.ns("b").run(|| UdpSocket::bind(at)).expect("privileged").expect("b's address");
    let to = echo.local_addr().expect("bound");
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asking = lab.ns("a").run(|| UdpSocket::bind(any)).expect("privileged").expect("any port");
    asking.connect(to).expect("a route");
    for socket in [&echo, &asking] {
        socket.set_read_timeout(Some(HANG)).expect("not zero");
    }
    let answering = thread::spawn(move || {
        for _ in 0..count {
            let mut bytes = [0; 64];
            let (len, from) = echo.recv_from(&mut bytes).expect("a datagram");
            echo.send_to(&bytes[..len], from).expect("a route back");
        }
    });
    let times = (0..count).map(|n| {
        let sent = Instant::now();
        asking.send(&n.to_be_bytes()).expect("sent");
        let mut bytes = [0; 64];
        let len = asking.recv(&mut bytes).expect("the echo");
        assert_eq!(bytes[..len], n.to_be_bytes());
        sent.elapsed()
    });
    let least = times.min().expect("at least one");
    answering.join().expect("no panic");
    least
}

/// Sends `bytes` over `stream` and waits until `receiver` has verified them all; the time from the
/// first to the last. `position` is that of the first byte in the pattern.
fn send_tcp(
    stream: &mut TcpStream,
    receiver: &mut TcpStream,
    position: usize,
    bytes: usize,
) -> Duration {
    let data: Vec<u8> = (position..position + bytes).map(pattern).collect();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| stream.write_all(&data).expect("the receiver accepts it"));
        let mut received = vec![0; bytes];
        receiver.read_exact(&mut received).expect("all arrive");
        let took = start.elapsed();
        assert!(received == data, "bytes differ");
        took
    })
}

fn pattern(position: usize) -> u8 {
    u8::try_from(position * 31 % 251).expect("below 251")
}

/// Checks that `bytes` in `took` are no more than a line of this rate carries.
fn assert_not_faster(what: &str, bytes: usize, took: Duration, bits_per_second: f64) {
    let rate = bytes as f64 * 8.0 / took.as_secs_f64();
    assert!(rate <= bits_per_second, "{what}: {rate} for {bits_per_second}");
}

/// Checks the counters of a switch of two ports, once no frame is in it: frames that arrived have
/// left, or are counted as dropped.
fn check_conservation(lab: &SwitchLab) {
    let mut shown = Value::Null;
    until("the switch is empty", || {
        shown = lab.ctl(&["show"]).json();
        shown["in_flight"]["in_flight_pkts"] == 0 && shown["buffer_used_bytes"] == 0
    });
    let ports = shown["ports"].as_array().expect("a list");
    for port in ports {
        assert!(port["paused"] == 0 && port["pausing"] == 0 && port["queues"][0]["bytes"] == 0);
    }
    let sum = |of: &dyn Fn(&Value) -> u64| ports.iter().map(of).sum::<u64>();
    let count = |counters: &Value, is_wanted: &dyn Fn(&str) -> bool| -> u64 {
        let all = counters.as_object().expect("an object").iter();
        all.filter(|(name, _)| is_wanted(name)).filter_map(|(_, count)| count.as_u64()).sum()
    };
    let is_drop = |name: &str| name.starts_with("drop_");
    let queues = |port: &Value| {
        let queues = port["counters"]["queues"].as_array().expect("a list").iter();
        queues.map(|queue| count(queue, &is_drop)).sum::<u64>()
    };
    let [rx, tx] = ["rx_pkts", "tx_pkts"]
        .map(|name| sum(&|port| count(&port["counters"], &|counter| counter == name)));
    let dropped = sum(&|port| count(&port["counters"], &is_drop) + queues(port));
    assert_eq!(rx, tx + dropped, "{shown}");
    for port in ports {
        let line = &port["line_counters"];
        let frames = count(line, &|name| name == "frames");
        assert_eq!(frames, count(&port["counters"], &|name| name == "tx_pkts"), "{port}");
        let lost = count(line, &is_drop);
        assert_eq!(frames, count(line, &|name| name == "delivered") + lost, "{port}");
    }
}

#[test]
fn lab__hosts_are_created_and_removed_with_their_switch() {
    let config = "[port.left]\n[port.right]\ndelay = '1ms'\n[port.third]\n";
    let Some(lab) = SwitchLab::new(config) else { return };
    let status =
        |args: &[&str]| run_here(&[&["lab", "status", "--name", &lab.name], args].concat());
    let report = status(&["--json"]);
    assert!(report.success);
    let report = report.json();
    assert_eq!(report["up"], true);
    assert_eq!(report["hosts"].as_array().expect("a list").len(), 3);
    assert_eq!(
        (&report["switch"]["running"], &report["switch"]["pid"]),
        (&Value::from(true), &lab.up["switch"]["pid"])
    );
    for host in ["left", "right", "third", "switch"] {
        let link =
            run_here(&["lab", "exec", "--name", &lab.name, host, "--", "ls", "/sys/class/net"]);
        let device = if host == "switch" { "third" } else { "sw0" };
        assert!(link.success && link.stdout.contains(device), "{host}: {}", link.stdout);
    }
    let unknown = run_here(&["lab", "exec", "--name", &lab.name, "b", "--", "true"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("left, right, third, switch"), "{}", unknown.stderr);
    let again = lab.lab_up();
    assert!(!again.success && again.stderr.contains("is up already"), "{}", again.stderr);

    // Its switch crashes: `status` reports it, `down` removes the rest.
    let pid = lab.up["switch"]["pid"].to_string();
    assert!(
        std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill").success()
    );
    until("status reports that the switch has ended", || !status(&[]).success);
    let text = status(&[]).stdout;
    assert!(text.contains(&format!("has ended (it was pid {pid})")), "{text}");
    let down = lab.lab_down();
    assert!(down.success, "{}", down.stderr);
    assert_eq!(down.json()["ended"], Value::Null);
    assert_eq!(down.json()["removed"].as_array().expect("a list").len(), 4);
    let left = NetNs::list().expect("readable");
    assert!(!left.iter().any(|name| name.starts_with(&lab.name)), "{left:?}");
    assert!(!Path::new("/run/spanwire/lab").join(&lab.name).exists());
}

#[test]
fn lab__an_invalid_switch_leaves_nothing_behind() {
    if skip() {
        return;
    }
    let _turn = take_turn();
    for (config, words) in [
        ("[port.a]\nrate = '1G'\n[port.b]", &["port.a.rate", "1G", "25Gbit"][..]),
        ("[port.a]\n[port.switch]", &["port.switch", "choose another"]),
        (&two("10Gbit", "100ms", ""), &["budget_bytes", "port.a 10Gbit x 100ms = 125000000"]),
        // Only the switch itself detects this one.
        ("[port.a]\n[port.b]\ndevice = 'b/b'", &["b/b"]),
    ] {
        let (name, file) = names();
        std::fs::write(&file, config).expect("writable");
        let path = file.to_str().expect("a plain path");
        let outcome = run_here(&["lab", "up", "--name", &name, "--switch", path]);
        std::fs::remove_file(&file).expect("ours");
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        for word in words {
            assert!(outcome.stderr.contains(word), "{word} in {}", outcome.stderr);
        }
        let left = NetNs::list().expect("readable");
        assert!(!left.iter().any(|ns| ns.starts_with(&name)), "{left:?}");
        assert!(!Path::new("/run/spanwire/lab").join(&name).exists());
    }
}

/// Frames of 1082 bytes with 1024 of payload, of 1506 with 1408, and 24 between them.
const GOODPUT: [(&str, f64); 2] = [("rc", 1024.0 / 1106.0), ("sr", 1408.0 / 1530.0)];

/// Transfers in both modes over a path of that delay, at most at the 100 Mbit/s of its lines.
fn check_path(delay: &str, round_trip: Duration, window: &str, bytes: &str) {
    let Some(lab) = SwitchLab::new(&two("100Mbit", delay, "")) else { return };
    for to in [lab.v4(1), lab.address(1, "v6")] {
        let least = least_round_trip(&lab, to, 20);
        assert!(least >= round_trip, "{least:?} for {round_trip:?}");
    }
    for (mode, fraction) in GOODPUT {
        let how = ["--transfer", bytes, "--depth", "32", "--mode", mode];
        let report = lab.perf(window, &how);
        let transfer = &report["transfer"];
        assert_eq!(transfer["sha256_match"], true, "{report}");
        let bytes = usize::try_from(transfer["bytes"].as_u64().expect("a count")).expect("64 bits");
        let took = Duration::from_secs_f64(transfer["seconds"].as_f64().expect("a time"));
        assert_not_faster(mode, bytes, took, 100e6 * fraction);
        assert!(took >= round_trip, "{report}");
    }
    check_conservation(&lab);
}

#[test]
fn switch__a_line_is_never_faster_than_its_rate_nor_shorter_than_its_delay() {
    check_path("1ms", Duration::from_millis(2), "200", "4M");
}

#[test]
fn switch__data_over_a_long_path_is_correct() {
    check_path("10ms", Duration::from_millis(20), "400", "8M");
}

/// Sends 20,000 datagrams from a to b, and returns how many were sent and arrived. A batch has
/// arrived or is lost before the next one, and fits into each ring and socket on the way, so that
/// the line alone loses any.
fn send_in_batches(lab: &SwitchLab) -> (u64, u64) {
    const BATCHES: u64 = 160;
    const BATCH: u64 = 125;
    let to = SocketAddr::new(lab.v4(1), 7_778);
    let sink = lab.ns("b").run(|| UdpSocket::bind(to)).expect("privileged").expect("b's address");
    let source = lab.ns("a").run(|| UdpSocket::bind("0.0.0.0:0")).expect("privileged");
    let source = source.expect("any port");
    let (mut sent, mut received) = (0_u64, 0);
    for batch in 1..=BATCHES {
        let mut patience = Duration::from_millis(50);
        while sent < batch * BATCH {
            source.send_to(&sent.to_be_bytes(), to).expect("a route");
            sent += 1;
        }
        // The line keeps the order: all before the last one have arrived or are lost when it
        // arrives, or another one that is sent because it may be lost.
        let last = sent - 1;
        let mut newest = None;
        while newest.is_none_or(|n| n < last) {
            let mut bytes = [0; 8];
            sink.set_read_timeout(Some(patience)).expect("not zero");
            match sink.recv(&mut bytes) {
                Ok(_) => (received, newest) = (received + 1, Some(u64::from_be_bytes(bytes))),
                Err(_) => {
                    assert!(patience < HANG, "nothing arrives");
                    patience *= 2;
                    source.send_to(&sent.to_be_bytes(), to).expect("a route");
                    sent += 1;
                }
            }
        }
    }
    (sent, received)
}

#[test]
fn switch__loss_matches_the_file_and_the_transfer_survives() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "loss = '1%'")) else { return };
    // Kernel UDP without retransmission: every missing datagram must be counted.
    let before = lab.line_counters(1);
    let (sent, received) = send_in_batches(&lab);
    let after = lab.line_counters(1);
    let [frames, lost] = [after[0] - before[0], after[1] - before[1]];
    // A few frames of the kernel, such as ARP's, may be among them.
    let others = frames.checked_sub(sent).expect("every datagram reached the line");
    let missing = sent - received;
    assert!(others <= 20 && (missing..=missing + others).contains(&lost), "{missing}, {lost} lost");
    // 200 of 20,000; four standard deviations of 14.
    assert!((144..=256).contains(&lost), "{lost} of {sent} lost for 1 %");

    let report = lab.perf("64", &["--transfer", "2M"]);
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    check_conservation(&lab);
}

#[test]
fn switch__a_mark_causes_a_cnp_in_rc() {
    let marks = "[port.a.queue.ecn]\nkmin_bytes = '20kB'\nkmax_bytes = '20kB'\npmax = '100%'\n";
    let Some(lab) = SwitchLab::new(&two("50Mbit", "1ms", marks)) else { return };
    for (mode, expects_cnp) in [("rc", true), ("sr", false)] {
        let report = lab.perf("100", &["--transfer", "4M", "--depth", "32", "--mode", mode]);
        assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        // Zero counters are not reported. In SR acknowledgements carry counts instead.
        let notifications = report["counters"]["rp_cnp_handled"].as_u64().unwrap_or(0);
        assert_eq!(notifications > 0, expects_cnp, "{mode}: {notifications}");
        let shown = lab.ctl(&["show"]).json();
        let marks = shown["ports"][0]["counters"]["queues"][0]["mark_step"].as_u64();
        assert!(marks > Some(0) && Some(notifications) <= marks, "{mode}: {shown}");
    }
}

#[test]
fn switch__copies_files() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "")) else { return };
    let directory = std::env::temp_dir().join(&lab.name);
    let (from, into) = (directory.join("from"), directory.join("into"));
    std::fs::create_dir_all(&from).and_then(|()| std::fs::create_dir(&into)).expect("our own");
    let bytes: Vec<u8> = (0..6_000_000).map(pattern).collect();
    std::fs::write(from.join("file"), &bytes).expect("writable");
    let [from, into] = [from, into].map(|path| path.to_str().expect("plain").to_owned());
    let receive = ["copy", "receive", "--dev", "sw0", "--into", &into, "--once"];
    let receiver = Running::start_until(&lab.ns("b"), &receive, "receiving");
    let to = lab.v4(1).to_string();
    let sent = lab.exec("a", &["copy", "send", &from, &to, "--json"]);
    let received = receiver.wait();
    assert!(sent.success && received.success, "{}{}", sent.stderr, received.stderr);
    let copy = std::fs::read(Path::new(&into).join("from/file")).expect("it is there");
    assert!(copy == bytes, "the copy differs");
    std::fs::remove_dir_all(directory).expect("ours");
}

#[test]
fn switch__kernel_tcp_through_the_same_bottleneck_and_rates_change_live() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "")) else { return };
    // IPv6, so that neighbour discovery is tested as well.
    let at = SocketAddr::new(lab.address(1, "v6"), 7_779);
    let listener = lab.ns("b").run(|| TcpListener::bind(at)).expect("privileged").expect("bind");
    let stream = lab.ns("a").run(|| TcpStream::connect_timeout(&at, HANG));
    let mut stream = stream.expect("privileged").expect("a listener");
    let (mut receiver, _) = listener.accept().expect("it has connected");
    // 1428 bytes in a segment with timestamps, 1514 in a frame, 24 between frames.
    const SHARE: f64 = 1428.0 / 1538.0;
    const BYTES: usize = 6_000_000;
    let took = send_tcp(&mut stream, &mut receiver, 0, BYTES);
    assert_not_faster("TCP at 100 Mbit/s", BYTES, took, 100e6 * SHARE);
    let set = lab.ctl(&["set", "port.b.rate=50Mbit", "port.b.delay=2ms"]);
    assert!(set.success, "{}", set.stderr);
    assert_eq!(set.json()["ports"][1]["line"]["rate"], "50Mbit");
    let took = send_tcp(&mut stream, &mut receiver, BYTES, BYTES);
    assert_not_faster("TCP at 50 Mbit/s", BYTES, took, 50e6 * SHARE);
    // 2 ms there and 1 ms back now.
    let least = least_round_trip(&lab, lab.v4(1), 20);
    assert!(least >= Duration::from_millis(3), "{least:?}");
    check_conservation(&lab);
}

#[test]
fn switch__iperf3_through_a_line_is_never_faster_than_it() {
    if Command::new("iperf3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: iperf3 is not installed (apt-get install iperf3)");
        return;
    }
    let Some(lab) = SwitchLab::new(&two("200Mbit", "1ms", "")) else { return };
    let on = |host: &'static str| ["lab", "exec", "--name", &lab.name, host, "--", "iperf3"];
    let to = lab.v4(0).to_string();
    let mut server = start_here(&[&on("a")[..], &["-s", "-1"]].concat());
    // It prints nothing to wait for, because its output is not a terminal.
    await_listener(&lab.ns("a"), 5_201, &mut server);
    let start = Instant::now();
    let ask = [&on("b")[..], &["-c", &to, "-n", "16M", "-C", "cubic", "-J"]].concat();
    let outcome = run_here(&ask);
    let took = start.elapsed();
    assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
    assert!(server.wait().success);
    let end = &outcome.json()["end"];
    // Its server stops reading when the client has sent all.
    let [sent, bytes] =
        ["sum_sent", "sum_received"].map(|sum| end[sum]["bytes"].as_u64().expect("a count"));
    assert!(sent >= 16 << 20 && bytes > 0 && bytes <= sent, "{end}");
    // 1448 bytes in a segment with timestamps over IPv4, 1514 in a frame, 24 between frames.
    let bytes = usize::try_from(bytes).expect("64 bits");
    assert_not_faster("iperf3 at 200 Mbit/s", bytes, took, 200e6 * 1448.0 / 1538.0);
    check_conservation(&lab);
}

#[test]
fn ctl__an_invalid_change_is_rejected_as_a_whole() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "")) else { return };
    for (change, words) in [
        ("port.c.rate=1Gbit", &["port.c", "a, b"][..]),
        ("port.a.rate=fast", &["port.a.rate", "fast", "25Gbit"]),
        ("port.a.loss=200%", &["port.a.loss", "200%"]),
        ("port.a.delay=600s", &["budget_bytes", "port.a"]),
        // The other port has been changed by then, and is restored.
        ("port.b.delay=600s", &["budget_bytes", "port.b"]),
        ("port.a.queues=[]", &["port.a.queues", "start it again"]),
        ("nonsense", &["port.NAME.KEY=VALUE"]),
    ] {
        let outcome = lab.ctl(&["set", "port.a.loss=5%", change]);
        assert!(!outcome.success, "{change}");
        for word in words {
            assert!(outcome.stderr.contains(word), "{word} in {}", outcome.stderr);
        }
    }
    let ports = lab.ctl(&["show"]).json()["ports"].clone();
    assert_eq!(ports[0]["line"]["impairments"]["loss"], "0ppb", "all or nothing: {ports}");
    let text = run_here(&["switch", "ctl", "--lab", &lab.name, "show"]);
    assert!(text.stdout.contains("100Mbit, delay 1ms"), "{}", text.stdout);
    let absent = run_here(&["switch", "ctl", "--socket", "/nonexistent/socket", "show"]);
    assert_eq!(absent.code, Some(4), "{}", absent.stderr);
    assert!(absent.stderr.contains("no switch answers"), "{}", absent.stderr);
}

/// The port's state in `switch ctl` once `is_so` returns true.
fn shown(lab: &SwitchLab, port: usize, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut state = Value::Null;
    until("the port's state", || {
        let shown = lab.ctl(&["show"]);
        assert!(shown.success, "the switch has ended: {}", shown.stderr);
        state = shown.json()["ports"][port].clone();
        is_so(&state)
    });
    state
}

/// Sets its flag when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn switch__a_port_fails_with_its_interface_and_recovers_with_it() {
    let Some(lab) = SwitchLab::new("[port.a]\n[port.b]\n[port.c]\n") else { return };
    least_round_trip(&lab, lab.v4(1), 5);
    let [c4, c6] = ["v4", "v6"].map(|family| lab.address(2, family));
    // From c, whose request for a's MAC address announces its own, which is new each time.
    let c_reaches_a = || {
        let any = SocketAddr::new(lab.v4(0), 0);
        let at = lab.ns("a").run(|| UdpSocket::bind(any)).expect("privileged").expect("a's");
        let to = at.local_addr().expect("bound");
        at.set_read_timeout(Some(Duration::from_millis(200))).expect("not zero");
        let from = lab.ns("c").run(|| UdpSocket::bind("0.0.0.0:0")).expect("privileged");
        let sent = from.expect("any port").send_to(b"from c", to);
        sent.is_ok() && at.recv(&mut [0; 8]).is_ok()
    };
    until("a frame arrives from c", c_reaches_a);

    // Continuous traffic between the other two, with a reply to every datagram.
    let netlink = |host| Netlink::open_in(&lab.ns(host)).expect("privileged");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // A failed assertion ends the traffic too.
        let stops = StopOnDrop(&stop);
        let traffic = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                least_round_trip(&lab, lab.v4(1), 50);
            }
        });
        for round in 1..=2 {
            netlink("switch").delete_link("c").expect("it is there");
            let dead = shown(&lab, 2, |port| port["mode"].is_null());
            assert_eq!(dead["xdp"]["gone"], round, "{dead}");
            let to = SocketAddr::new(c4, 7_791);
            let from = lab.ns("b").run(|| UdpSocket::bind("0.0.0.0:0")).expect("privileged");
            let from = from.expect("any port");
            let before = dead["xdp"]["drop_gone"].as_u64().unwrap_or(0);
            let dropped = |port: &Value| {
                // Or a request for c's MAC address, which is flooded.
                let _ = from.send_to(b"ping", to);
                port["xdp"]["drop_gone"].as_u64() > Some(before)
            };
            shown(&lab, 2, dropped);
            let text = run_here(&["switch", "ctl", "--lab", &lab.name, "show"]).stdout;
            assert!(text.contains("c (gone)") && text.contains("drop_gone"), "{text}");

            let host = lab.ns("c");
            let (a, b) = (VethEnd { ns: &host, name: "sw0" }, VethEnd { ns: &host, name: "c" });
            VethSpec { a, b, mtu: 1500, queues: 1 }.create().expect("privileged");
            // Like lab up: a veth has no hardware to complete a checksum. This comes before the
            // switch attaches to the other end: the driver changes no offload after that.
            let ethtool = Ethtool::open_in(&host).expect("privileged");
            ethtool.set_offloads("sw0", &Offloads::OFF).expect("privileged");
            let pid = lab.up["switch"]["pid"].to_string();
            let to_switch = ["link", "set", "c", "netns", &pid];
            let moved = host.run(|| Command::new("ip").args(to_switch).status());
            assert!(moved.expect("privileged").expect("iproute2 is there").success());
            netlink("switch").set_up("c").expect("privileged");
            let mut at_c = netlink("c");
            at_c.set_up("sw0").expect("privileged");
            for (address, bits) in [(c4, 24), (c6, 64)] {
                let prefix = IpPrefix::new(address, bits).expect("a prefix");
                at_c.add_address("sw0", prefix).expect("privileged");
            }
            let back = shown(&lab, 2, |port| port["mode"].is_string());
            assert!(back["xdp"]["drop_gone"].as_u64() > Some(before), "{back}");
            until("a frame arrives from c", c_reaches_a);
        }
        drop(stops);
        traffic.join().expect("a and b were not affected");
    });
}

#[test]
fn switch__ends_cleanly_on_sigterm() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "")) else { return };
    let socket = lab.up["switch"]["socket"].as_str().expect("a path").to_owned();
    let log = lab.up["switch"]["log"].as_str().expect("a path").to_owned();
    assert!(Path::new(&socket).exists());
    let pid = lab.up["switch"]["pid"].to_string();
    // A second switch finds its interfaces in use.
    let file = lab.file.to_str().expect("plain");
    let second = lab.exec("switch", &["switch", "--config", file]);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("port.a:"), "{}", second.stderr);
    assert!(
        std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill").success()
    );
    until("the switch ends", || !Path::new(&socket).exists());
    // In the foreground, for a program.
    let mut third = lab.start("switch", &["switch", "--config", file, "--json", "-i", "0.1"]);
    third.await_output(|text| text.matches('\n').count() >= 3);
    let ended = third.end_with(libc::SIGTERM);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let reports: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect();
    assert!(reports.len() >= 3, "{} reports", reports.len());
    assert_eq!(reports[0]["ports"][1]["name"], "b");
    let said = std::fs::read_to_string(log).expect("readable");
    assert!(said.starts_with("switching between a, b\nup "), "{said}");
}
