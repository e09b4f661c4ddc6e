//! `spanwire switch` between hosts of a lab: its effect on real traffic matches its configuration
//! file.
//!
//! Rates are low, because two cores run the switch and both hosts. A busy machine makes frames
//! late, never early, and the bounds account for that.

use super::lab::{Outcome, Running, SPANWIRE, run_here, skip, start_here, take_turn};
use serde_json::Value;
use spanwire_io::net::{Ethtool, IpPrefix, NetNs, Netlink, Offloads, VethEnd, VethSpec};
use std::io::{ErrorKind, Read, Write};
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
    fn v4(&self, n: usize) -> IpAddr {
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

    fn ctl(&self, args: &[&str]) -> Outcome {
        run_here(&[&["switch", "ctl", "--lab", &self.name, "--json"], args].concat())
    }

    /// Counter `name` of the line at a port.
    fn line_counter(&self, port: usize, name: &str) -> u64 {
        let shown = self.ctl(&["show"]);
        assert!(shown.success, "{}", shown.stderr);
        shown.json()["ports"][port]["line_counters"][name].as_u64().expect(name)
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

/// Round-trip times of `count` datagrams between two hosts, sorted.
fn round_trips(lab: &SwitchLab, to: IpAddr, count: usize) -> Vec<Duration> {
    let to = SocketAddr::new(to, 7_777);
    let echo = lab.ns("b").run(|| UdpSocket::bind(to)).expect("privileged").expect("b's address");
    echo.set_read_timeout(Some(Duration::from_millis(500))).expect("not zero");
    let answering = thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((len, from)) = echo.recv_from(&mut bytes) {
            echo.send_to(&bytes[..len], from).expect("a route back");
        }
    });
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asking = lab.ns("a").run(|| UdpSocket::bind(any)).expect("privileged").expect("any port");
    asking.connect(to).expect("a route");
    asking.set_read_timeout(Some(Duration::from_secs(2))).expect("not zero");
    let mut times: Vec<Duration> = (0..count)
        .map(|n| {
            let sent = Instant::now();
            asking.send(&n.to_be_bytes()).expect("sent");
            let mut bytes = [0; 64];
            let len = asking.recv(&mut bytes).expect("the echo");
            assert_eq!(bytes[..len], n.to_be_bytes());
            sent.elapsed()
        })
        .collect();
    answering.join().expect("no panic");
    times.sort();
    times
}

/// Receives until the end, with the time of each read.
fn receive_tcp(
    lab: &SwitchLab,
    host: &str,
    at: SocketAddr,
) -> thread::JoinHandle<Vec<(Instant, usize)>> {
    let listener = lab.ns(host).run(|| TcpListener::bind(at)).expect("privileged").expect("bind");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut pieces, mut bytes, mut position) = (Vec::new(), vec![0; 1 << 16], 0usize);
        loop {
            let len = stream.read(&mut bytes).expect("readable");
            if len == 0 {
                return pieces;
            }
            for (n, byte) in bytes[..len].iter().enumerate() {
                assert_eq!(*byte, pattern(position + n), "byte {}", position + n);
            }
            position += len;
            pieces.push((Instant::now(), len));
        }
    })
}

fn send_tcp(lab: &SwitchLab, host: &str, to: SocketAddr, bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(pattern).collect();
    let stream = lab.ns(host).run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)));
    let mut stream = stream.expect("privileged").expect("a listener");
    stream.write_all(&data).expect("the receiver accepts it");
}

fn pattern(position: usize) -> u8 {
    u8::try_from(position * 31 % 251).expect("below 251")
}

/// Bits per second over the pieces; the first only starts the clock.
fn bits_per_second(pieces: &[(Instant, usize)]) -> f64 {
    let (Some((first, _)), Some((last, _))) = (pieces.first(), pieces.last()) else {
        panic!("nothing arrived");
    };
    let bytes: usize = pieces[1..].iter().map(|(_, len)| len).sum();
    bytes as f64 * 8.0 / last.duration_since(*first).as_secs_f64()
}

/// Within 5 %, as issue 4 requires.
fn assert_close(what: &str, measured: f64, configured: f64) {
    let off = measured / configured - 1.0;
    assert!(off.abs() <= 0.05, "{what}: {measured} for {configured}, off by {:.1} %", off * 100.0);
}

/// Within 5 % of a round trip, plus four wakeups of a busy machine.
fn assert_rtt(times: &[Duration], configured: Duration) {
    let least = times[0];
    let most = configured.mul_f64(1.05) + Duration::from_micros(100);
    assert!((configured..=most).contains(&least), "least of {times:?} for {configured:?}");
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
    let deadline = Instant::now() + Duration::from_secs(5);
    while status(&[]).success {
        assert!(Instant::now() < deadline, "status does not report that the switch has ended");
        thread::sleep(Duration::from_millis(20));
    }
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

#[test]
fn switch__rate_and_rtt_match_the_file() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "")) else { return };
    assert_rtt(&round_trips(&lab, lab.v4(1), 40), Duration::from_millis(2));
    assert_rtt(&round_trips(&lab, lab.address(1, "v6"), 20), Duration::from_millis(2));
    // Frames of 1082 bytes with 1024 of payload, of 1506 with 1408, and 24 between them.
    for (mode, fraction) in [("rc", 1024.0 / 1106.0), ("sr", 1408.0 / 1530.0)] {
        let report = lab.perf("200", &["-t", "2", "--depth", "16", "--mode", mode]);
        let rate = report["perf"][0]["gbps"].as_f64();
        assert_close(mode, rate.expect("a rate"), 0.1 * fraction);
        assert!(report["counters"]["retransmitted_packets"].is_null(), "{report}");
    }
}

#[test]
fn switch__a_long_path_is_filled_and_data_is_correct() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "10ms", "")) else { return };
    assert_rtt(&round_trips(&lab, lab.v4(1), 20), Duration::from_millis(20));
    for (mode, fraction) in [("rc", 1024.0 / 1106.0), ("sr", 1408.0 / 1530.0)] {
        let report = lab.perf("400", &["--transfer", "16M", "--depth", "32", "--mode", mode]);
        let transfer = &report["transfer"];
        assert_eq!(transfer["sha256_match"], true, "{report}");
        assert_close(mode, transfer["gbps"].as_f64().expect("a rate"), 0.1 * fraction);
    }
}

#[test]
fn switch__loss_matches_the_file_and_the_transfer_survives() {
    let Some(lab) = SwitchLab::new(&two("100Mbit", "1ms", "loss = '1%'")) else { return };
    // Kernel UDP without retransmission: every missing datagram must be counted.
    const SENT: usize = 20_000;
    let to = SocketAddr::new(lab.v4(1), 7_778);
    let sink = lab.ns("b").run(|| UdpSocket::bind(to)).expect("privileged").expect("b's address");
    sink.set_read_timeout(Some(Duration::from_millis(500))).expect("not zero");
    let counting = thread::spawn(move || {
        let mut bytes = [0; 256];
        let mut count = 0u64;
        while sink.recv(&mut bytes).is_ok() {
            count += 1;
        }
        count
    });
    let source = lab.ns("a").run(|| UdpSocket::bind("0.0.0.0:0")).expect("privileged");
    let source = source.expect("any port");
    let before = lab.line_counter(1, "drop_loss");
    for n in 0..SENT {
        while let Err(e) = source.send_to(&[7; 100], to) {
            assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
        }
        if n % 20 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let received = counting.join().expect("no panic");
    let lost = lab.line_counter(1, "drop_loss") - before;
    // Only a few ARP frames may be among the lost ones too.
    let missing = SENT as u64 - received;
    assert!(missing.abs_diff(lost) <= 2, "{missing} did not arrive, {lost} were lost");
    // 200 of 20,000; four standard deviations of 14.
    assert!((144..=256).contains(&lost), "{lost} of {SENT} lost for 1 %");

    let report = lab.perf("64", &["--transfer", "2M", "--timeout", "11"]);
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
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
    let receiving = receive_tcp(&lab, "b", at);
    let changed = thread::scope(|scope| {
        let sending = scope.spawn(|| send_tcp(&lab, "a", at, 24_000_000));
        thread::sleep(Duration::from_millis(1_200));
        let set = lab.ctl(&["set", "port.b.rate=50Mbit", "port.b.delay=2ms"]);
        assert!(set.success, "{}", set.stderr);
        assert_eq!(set.json()["ports"][1]["line"]["rate"], "50Mbit");
        let changed = Instant::now();
        sending.join().expect("no panic");
        changed
    });
    let pieces = receiving.join().expect("no panic");
    let total: usize = pieces.iter().map(|(_, len)| len).sum();
    assert_eq!(total, 24_000_000);
    // 1428 bytes in a segment with timestamps, 1514 in a frame, 24 between frames. Slow start, and
    // bytes in flight at the change, are left out.
    let share = 1428.0 / 1538.0;
    let begin = pieces[0].0 + Duration::from_millis(200);
    let settled = changed + Duration::from_millis(300);
    let split = |from: Instant, to: Instant| -> Vec<_> {
        pieces.iter().copied().filter(|(at, _)| (from..to).contains(at)).collect()
    };
    assert_close("TCP at 100 Mbit/s", bits_per_second(&split(begin, changed)), 100e6 * share);
    let end = pieces[pieces.len() - 1].0;
    assert_close("TCP at 50 Mbit/s", bits_per_second(&split(settled, end)), 50e6 * share);
    // 2 ms there and 1 ms back now.
    assert_rtt(&round_trips(&lab, lab.v4(1), 20), Duration::from_millis(3));
}

#[test]
fn switch__iperf3_measures_the_configured_rate() {
    if Command::new("iperf3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: iperf3 is not installed (apt-get install iperf3)");
        return;
    }
    let Some(lab) = SwitchLab::new(&two("200Mbit", "1ms", "")) else { return };
    let on = |host: &'static str| ["lab", "exec", "--name", &lab.name, host, "--", "iperf3"];
    let to = lab.v4(0).to_string();
    let server = start_here(&[&on("a")[..], &["-s", "-1"]].concat());
    let ask = [&on("b")[..], &["-c", &to, "-t", "2", "-O", "1", "-C", "cubic", "-J"]].concat();
    let give_up = Instant::now() + Duration::from_secs(10);
    let outcome = loop {
        // The server prints nothing to wait for, because its output is not a terminal.
        let outcome = run_here(&ask);
        if outcome.success || Instant::now() > give_up {
            break outcome;
        }
        thread::sleep(Duration::from_millis(100));
    };
    assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
    assert!(server.wait().success);
    let rate = outcome.json()["end"]["sum_received"]["bits_per_second"].as_f64();
    // 1448 bytes in a segment with timestamps over IPv4, 1514 in a frame, 24 between frames.
    assert_close("iperf3 at 200 Mbit/s", rate.expect("a rate"), 200e6 * 1448.0 / 1538.0);
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
    assert!(!absent.success && absent.stderr.contains("no switch answers"), "{}", absent.stderr);
}

/// The port's state in `switch ctl` once `is_so` returns true.
fn shown(lab: &SwitchLab, port: usize, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let shown = lab.ctl(&["show"]);
        assert!(shown.success, "the switch has ended: {}", shown.stderr);
        let shown = shown.json()["ports"][port].clone();
        if is_so(&shown) {
            return shown;
        }
        assert!(Instant::now() < deadline, "not within 30 s: {shown}");
        thread::sleep(Duration::from_millis(20));
    }
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
    assert_eq!(round_trips(&lab, lab.v4(1), 5).len(), 5);
    let [c4, c6] = ["v4", "v6"].map(|family| lab.address(2, family));
    // From c, whose request for a's MAC address announces its own, which is new each time.
    let c_reaches_a = || {
        let to = SocketAddr::new(lab.v4(0), 7_790);
        let at = lab.ns("a").run(|| UdpSocket::bind(to)).expect("privileged").expect("a's");
        at.set_read_timeout(Some(Duration::from_millis(200))).expect("not zero");
        let from = lab.ns("c").run(|| UdpSocket::bind("0.0.0.0:0")).expect("privileged");
        let sent = from.expect("any port").send_to(b"from c", to);
        sent.is_ok() && at.recv(&mut [0; 8]).is_ok()
    };
    assert!((0..10).any(|_| c_reaches_a()));

    // Continuous traffic between the other two, with a reply to every datagram.
    let netlink = |host| Netlink::open_in(&lab.ns(host)).expect("privileged");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // A failed assertion ends the traffic too.
        let stops = StopOnDrop(&stop);
        let traffic = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += round_trips(&lab, lab.v4(1), 50).len();
            }
            count
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
            let deadline = Instant::now() + Duration::from_secs(60);
            while !c_reaches_a() {
                assert!(Instant::now() < deadline, "no frame arrives from c");
            }
        }
        drop(stops);
        let count = traffic.join().expect("a and b were not affected");
        assert!(count > 0, "no traffic");
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
    let deadline = Instant::now() + Duration::from_secs(5);
    while Path::new(&socket).exists() {
        assert!(Instant::now() < deadline, "the switch does not end");
        thread::sleep(Duration::from_millis(10));
    }
    // In the foreground, for a program.
    let third = lab.start("switch", &["switch", "--config", file, "--json", "-i", "0.1"]);
    thread::sleep(Duration::from_millis(600));
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
