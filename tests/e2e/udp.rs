//! The UDP port: processes without privilege, over sockets of the kernel.

use crate::copy::TempDir;
use crate::lab::{self, Lab, Running, await_listener};
use serde_json::Value;
use spanwire_io::net::{NetNs, Netlink};
use spanwire_pcap::Capture;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The UDP port of RoCEv2.
pub(crate) const ROCE_PORT: u16 = 4791;

/// Memory of a server that a flood must not reach: buffers, queues, and a transfer of 8 MiB.
pub(crate) const PEAK_KIB: u64 = 256 << 10;

/// The user `nobody`: without capabilities, and without access to the directory of the binary.
const NOBODY: u32 = 65_534;

/// A spanwire command without privilege. As root it runs as [`NOBODY`]; any other user runs it
/// itself.
struct Unprivileged {
    /// Keeps the binary reachable by number, whatever directory it is in.
    _binary: File,
    command: Command,
}

impl Unprivileged {
    fn new(args: &[&str]) -> Self {
        let binary = File::open(lab::SPANWIRE).expect("built for this test");
        let mut command = Command::new(format!("/proc/self/fd/{}", binary.as_raw_fd()));
        lab::piped(&mut command, args);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        Self { _binary: binary, command }
    }

    fn start(mut self) -> Running {
        Running::spawn(&mut self.command)
    }

    /// Starts it in a namespace, which the process inherits from the thread.
    fn start_in(self, ns: &NetNs) -> Running {
        ns.run(|| self.start()).expect("the namespace is there")
    }

    /// As [`Unprivileged::start_in`], and waits until its first line begins with `says`.
    fn start_until(mut self, ns: &NetNs, says: &str) -> Running {
        let start = || Running::spawn_until(&mut self.command, says);
        ns.run(start).expect("the namespace is there")
    }
}

/// A client of `perf` on host b and its report, which is that of a run over UDP sockets.
fn client(lab: &Lab, to: IpAddr, more: &[&str]) -> Value {
    let to = to.to_string();
    let args = [&["perf", "client", "--dev", "sw0", &to, "--json"], more].concat();
    let outcome = Unprivileged::new(&args).start_in(&lab.hosts.b.ns).wait();
    let report = outcome.json();
    assert_eq!((&report["ok"], &report["fabric"]), (&true.into(), &"udp".into()), "{report}");
    assert!(outcome.success, "{}", outcome.stderr);
    report
}

/// A server on host a without privilege.
fn server(lab: &Lab, more: &[&str]) -> Running {
    let args = [&["perf", "server", "--dev", "sw0"], more].concat();
    Unprivileged::new(&args).start_until(&lab.hosts.a.ns, "serving on sw0 (udp)")
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

#[test]
fn demo__as_nobody_runs_over_udp_sockets() {
    let args = ["demo", "--json", "--mib", "64", "--ms", "100"];
    let outcome = Unprivileged::new(&args).start().wait();
    let report = outcome.json();
    assert_eq!((&report["ok"], &report["fabric"]), (&true.into(), &"udp".into()), "{report}");
    assert_eq!(report["transfer"]["bytes"], 64 << 20);
    assert_eq!(report["transfer"]["sha256_match"], true);
    assert_eq!(report["perf"].as_array().map(Vec::len), Some(6));
    let why = report["fallback"].as_str().expect("AF_XDP needs privileges");
    assert!(why.contains("not permitted"), "{why}");
    assert!(outcome.stderr.contains("using UDP sockets instead"), "{}", outcome.stderr);
}

#[test]
fn demo__over_udp_ends_by_a_signal_as_over_af_xdp() {
    let args = ["demo", "--fabric", "udp", "--ms", "60000"];
    let mut demo = Unprivileged::new(&args).start();
    demo.await_output(|text| text.contains("RoCEv2 over UDP sockets"));
    let ended = demo.end_with(libc::SIGINT);
    assert_eq!((ended.code, ended.stderr.trim()), (Some(130), "error: interrupted"));
}

#[test]
fn demo__a_lost_peer_has_its_exit_code() {
    let Some(lab) = Lab::new(1500) else { return };
    let ns = &lab.hosts.a.ns;
    let loopback = || Netlink::open_in(ns).expect("privileged");
    loopback().set_up("lo").expect("it is there");
    let demo = Unprivileged::new(&["demo", "--fabric", "udp", "--mib", "1024", "--ms", "60000"]);
    let demo = demo.start_until(ns, "RoCEv2 over UDP sockets");
    loopback().set_down("lo").expect("it is there");
    let ended = demo.wait();
    assert_eq!(ended.code, Some(4), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("FAILED"), "{}", ended.stdout);
}

#[test]
fn copy__a_gibibyte_between_two_hosts_as_nobody() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    for (folder, mode) in [(&from, 0o755), (&into, 0o777)] {
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).expect("ours");
    }
    let (path, copy) = (from.join("gib"), into.join("gib"));
    let file = File::create(&path).expect("writable");
    let mut rng = spanwire_base::Rng::new(42);
    let mut block = vec![0; 1 << 20];
    for n in 0..1024 {
        rng.fill(&mut block);
        file.write_all_at(&block, n << 20).expect("there is room");
    }
    let args = ["copy", "receive", "--dev", "sw0", "--into", &into.join("")];
    let receiver = Unprivileged::new(&args).start_until(&lab.hosts.a.ns, "receiving on sw0 (udp)");
    let to = lab.v4().to_string();
    let sender = Unprivileged::new(&["copy", "send", &path, &to, "--json"]);
    let outcome = sender.start_in(&lab.hosts.b.ns).wait();
    let report = outcome.json();
    assert_eq!((&report["ok"], &report["fabric"]), (&true.into(), &"udp".into()), "{report}");
    assert_eq!(report["sent_bytes"], 1 << 30);
    receiver.terminate();
    let copied = File::open(copy).expect("copied");
    let mut other = block.clone();
    for n in 0..1024 {
        file_block(&File::open(&path).expect("ours"), n, &mut block);
        file_block(&copied, n, &mut other);
        assert_eq!(block, other, "MiB {n}");
    }
}

fn file_block(file: &File, n: u64, into: &mut [u8]) {
    file.read_exact_at(into, n << 20).expect("1 GiB");
}

#[test]
fn perf__every_operation_in_both_modes_over_both_ip_versions() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = server(&lab, &[]);
    for to in [lab.v4(), lab.v6()] {
        for mode in ["rc", "sr"] {
            for op in ["write", "send", "read"] {
                let args = ["--transfer", "8M", "--size", "64K", "--mode", mode, "--op", op];
                let report = client(&lab, to, &args);
                assert_eq!(report["mode"], mode, "{report}");
                assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
                for name in ["drop_bad_icrc", "udp_rx_unidentified", "udp_tx_rejected"] {
                    assert_eq!(counter(&report, name), 0, "{name} {to} {mode} {op}: {report}");
                }
                // Several segments leave or arrive at once.
                let calls = counter(&report, "udp_tx_calls") + counter(&report, "udp_rx_calls");
                let frames = counter(&report, "udp_tx_frames") + counter(&report, "udp_rx_frames");
                assert!(calls < frames, "{report}");
            }
        }
    }
    let atomics = client(&lab, lab.v6(), &["--op", "fetch-add", "-t", "0.2"]);
    assert!(atomics["atomics_carried_out"].as_u64() > Some(0), "{atomics}");
    server.terminate();
}

#[test]
fn perf__one_end_over_af_xdp_and_the_other_over_udp() {
    let Some(lab) = Lab::new(1500) else { return };
    for to in [lab.v4(), lab.v6()] {
        for mode in ["rc", "sr"] {
            let args = ["--transfer", "8M", "--size", "64K", "--mode", mode];
            let over_xdp = lab.server(&[]);
            let report = client(&lab, to, &args);
            assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
            over_xdp.terminate();

            let over_udp = server(&lab, &[]);
            let outcome = lab.client(to, &[&args[..], &["--json", "--op", "read"]].concat());
            let report = outcome.json();
            assert_eq!((&report["ok"], &report["fabric"]), (&true.into(), &"af_xdp".into()));
            assert_eq!(counter(&report, "drop_bad_icrc"), 0, "{report}");
            over_udp.terminate();
        }
    }
}

#[test]
fn perf__without_an_icrc_if_both_ends_ask_for_it() {
    let Some(lab) = Lab::new(9000) else { return };
    let to = IpAddr::V4(lab.hosts.a.v4);
    let transfer = ["--transfer", "16M", "--size", "1M", "-i", "0"];
    for (of_server, mode, has_icrc) in
        [("off", "sr", false), ("off", "rc", true), ("on", "sr", true)]
    {
        let server = server(&lab, &["--icrc", of_server]);
        let more = [&transfer[..], &["--icrc", "off", "--mode", mode]].concat();
        let report = client(&lab, to, &more);
        assert_eq!(report["icrc"], has_icrc, "{of_server} {mode}: {report}");
        assert_eq!(report["transfer"]["sha256_match"], true);
        assert_eq!(counter(&report, "udp_rx_unidentified"), 0);
        server.end_with(libc::SIGINT);
    }
    let serve = ["perf", "server", "--dev", "sw0", "--fabric", "udp", "--icrc", "off"];
    let mut refused = lab.start(&lab.hosts.a.ns, &[&serve[..], &["--corrupt", "1"]].concat());
    // One that serves would not end.
    refused.await_output(|text| text.contains('\n'));
    let refused = refused.end_with(libc::SIGTERM);
    assert_eq!((&*refused.stdout, refused.code), ("", Some(2)), "{}", refused.stderr);
    assert!(refused.stderr.contains("--corrupt with --icrc off"), "{}", refused.stderr);
    let xdp = ["perf", "server", "--dev", "sw0", "--fabric", "xdp", "--icrc", "off"];
    let refused = lab.run(&lab.hosts.a.ns, &xdp);
    assert!(refused.stderr.contains("need UDP sockets"), "{}", refused.stderr);
}

#[test]
fn perf__coding_subflows_pacing_and_loss() {
    let Some(lab) = Lab::new(1500) else { return };
    let lossy = ["--loss", "1", "--reorder", "1", "--dup", "1", "--seed", "5"];
    let args = [&["perf", "server", "--dev", "sw0", "--json", "--one-off"], &lossy[..]].concat();
    let coded = ["--mode", "sr", "--ec", "8,2", "--lb", "unolb", "--cc", "unocc", "--size", "1M"];
    let paced = ["--mode", "rc", "--cc", "dcqcn-rnic", "--line-rate", "200Mbit"];
    for (to, how) in [(lab.v6(), &coded[..]), (lab.v4(), &coded), (lab.v4(), &paced)] {
        let mut server = Unprivileged::new(&args).start_in(&lab.hosts.a.ns);
        await_listener(&lab.hosts.a.ns, lab::PERF_PORT, &mut server);
        let report = client(&lab, to, &[&["--transfer", "8M"], how].concat());
        assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        let is_coded = how[3] == "8,2";
        assert_eq!(counter(&report, "ec_parity_packets") > 0, is_coded, "{report}");
        let served = server.wait().json();
        assert_eq!((&served["complete"], &served["fabric"]), (&true.into(), &"udp".into()));
        // Neither source ports nor segments make a checksum wrong.
        for name in ["drop_bad_icrc", "udp_rx_unidentified", "udp_rx_malformed"] {
            assert_eq!(counter(&served, name), 0, "{name}: {served}");
        }
        assert!(counter(&served, "fault_lost") > 0, "{served}");
    }
}

#[test]
fn perf__queue_pairs_have_source_ports_of_their_own_in_both_directions() {
    let Some(lab) = Lab::new(1500) else { return };
    let dir = TempDir::new();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o777)).expect("ours");
    for (mode, qps, ports) in [("rc", "8", 8), ("sr", "8", 8), ("rc", "20", 16), ("sr", "20", 16)] {
        let [at_server, at_client] =
            ["server", "client"].map(|end| dir.join(&format!("{end}-{mode}-{qps}.pcap")));
        let server = server(&lab, &["--one-off", "--pcap", &at_server]);
        let more = ["--transfer", "4M", "--mode", mode, "--qps", qps, "--pcap", &at_client];
        let report = client(&lab, lab.v4(), &more);
        assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        assert!(server.wait().success);
        // What an end receives shows the ports that the other one has sent from.
        for (file, from) in [(&at_server, lab.hosts.b.v4), (&at_client, lab.hosts.a.v4)] {
            let seen = source_ports(file, from.octets());
            assert_eq!(seen.len(), ports, "{mode}, {qps} queue pairs: {seen:?}");
        }
    }
}

/// The UDP source ports of the frames from an address in a capture.
fn source_ports(file: &str, from: [u8; 4]) -> BTreeSet<u16> {
    let mut capture = Capture::new(File::open(file).expect("written")).expect("a capture");
    let mut ports = BTreeSet::new();
    while let Some(record) = capture.next_record().expect("whole records") {
        if record.bytes[26..30] == from {
            ports.insert(u16::from_be_bytes([record.bytes[34], record.bytes[35]]));
        }
    }
    ports
}

#[test]
fn perf__telemetry_cannot_cross_a_socket_and_hpcc_says_so() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = server(&lab, &[]);
    let args = ["--transfer", "8M", "--mode", "sr", "--cc", "hpcc"];
    let report = client(&lab, lab.v4(), &args);
    let congestion = &report["congestion"];
    assert_eq!(congestion["name"], "hpcc");
    assert_ne!(congestion["chosen"], "hpcc", "{congestion}");
    assert!(congestion["reason"].as_str().is_some_and(|why| why.contains("telemetry")));
    server.terminate();
}

#[test]
fn perf__a_receive_buffer_of_8_kib_works_slowly_and_rightly() {
    let Some(lab) = Lab::new(1500) else { return };
    let small = ["--rcvbuf", "8K"];
    let server = server(&lab, &small);
    for mode in ["rc", "sr"] {
        for (op, more) in [("write", &[][..]), ("read", &small), ("send", &["--window", "192"])] {
            let args = ["--transfer", "2M", "--size", "64K", "--mode", mode, "--op", op];
            let report = client(&lab, lab.v4(), &[&args[..], more].concat());
            assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
            let window = report["receive_buffer"]["window_pkts"].as_u64().expect("over UDP");
            match op {
                "read" => assert!(window < 8, "{report}"),
                "send" => assert_eq!(window, 192, "{report}"),
                _ => {}
            }
        }
    }
    let served = server.end_with(libc::SIGTERM);
    assert!(served.success, "{}", served.stderr);
}

#[test]
fn perf__a_flood_of_datagrams_from_strangers_ends_in_counters() {
    let Some(lab) = Lab::new(1500) else { return };
    let args = ["perf", "server", "--dev", "sw0", "--json"];
    let mut server = Unprivileged::new(&args).start_in(&lab.hosts.a.ns);
    await_listener(&lab.hosts.a.ns, lab::PERF_PORT, &mut server);
    let (v4, v6) = (lab.v4(), lab.v6());
    let flood = || {
        let mut rng = spanwire_base::Rng::new(3);
        let [four, six] = ["0.0.0.0:0", "[::]:0"].map(|at| UdpSocket::bind(at).expect("sockets"));
        for n in 0..20_000_u64 {
            let mut bytes = vec![0; usize::try_from(rng.below(1472)).expect("small")];
            rng.fill(&mut bytes);
            // Errors of a full queue do not matter.
            let _ = match n % 2 {
                0 => four.send_to(&bytes, (v4, ROCE_PORT)),
                _ => six.send_to(&bytes, (v6, ROCE_PORT)),
            };
        }
    };
    // What arrives between two jobs waits in the receive buffer, or overflows it.
    lab.hosts.b.ns.run(flood).expect("the namespace is there");
    let report = std::thread::scope(|scope| {
        scope.spawn(|| lab.hosts.b.ns.run(flood).expect("the namespace is there"));
        client(&lab, lab.v4(), &["--transfer", "8M"])
    });
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    assert!(server.peak_kib() < PEAK_KIB, "{} KiB", server.peak_kib());
    let served = server.end_with(libc::SIGTERM).json();
    assert_eq!(served["complete"], true, "{served}");
    let dropped = ["drop_bth_too_short", "drop_bad_version", "drop_unknown_qpn", "drop_bad_pad"];
    let dropped: u64 = dropped.iter().map(|name| counter(&served, name)).sum();
    assert!(dropped + counter(&served, "udp_rx_overflow") > 0, "{served}");
}

#[test]
fn port__a_second_process_is_told_who_may_have_it() {
    let Some(lab) = Lab::new(1500) else { return };
    let first = server(&lab, &[]);
    let args = ["perf", "server", "--dev", "sw0", "--fabric", "udp", "-p", "18599"];
    let second = Unprivileged::new(&args).start_in(&lab.hosts.a.ns).wait();
    assert!(!second.success);
    for words in ["4791", "sw0", "another Spanwire"] {
        assert!(second.stderr.contains(words), "{}", second.stderr);
    }
    first.terminate();
    // A busy interface is no reason to take UDP sockets instead.
    let over_xdp = lab.server(&[]);
    let busy = lab.run(&lab.hosts.a.ns, &["perf", "server", "--dev", "sw0", "-p", "18599"]);
    assert!(!busy.success && !busy.stderr.contains("UDP"), "{}", busy.stderr);
    over_xdp.terminate();
}

#[test]
fn port__af_xdp_does_not_take_the_packets_of_a_udp_job() {
    let Some(lab) = Lab::new(1500) else { return };
    let a = &lab.hosts.a.ns;
    let refuse = |owner: &str| {
        for fabric in ["xdp", "auto"] {
            let args = ["perf", "server", "--dev", "sw0", "-p", "18599", "--fabric", fabric];
            let mut refused = lab.start(a, &args);
            // One that serves beside the job would not end.
            refused.await_output(|text| text.contains('\n'));
            let refused = refused.end_with(libc::SIGTERM);
            assert_eq!(refused.stdout, "", "{fabric}");
            assert!(!refused.success, "{fabric}");
            for words in ["4791", "sw0", owner, "stop it first"] {
                assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
            }
        }
    };
    let first = server(&lab, &[]);
    let to = lab.v4().to_string();
    let job = ["perf", "client", "--dev", "sw0", &to, "-t", "86400", "--json"];
    let job = Unprivileged::new(&job).start_in(&lab.hosts.b.ns);
    lab.await_traffic(16 << 20);
    refuse("(pid ");
    lab.await_traffic(16 << 20);
    let ended = job.end_with(libc::SIGINT).json();
    assert_eq!(ended["error"], "interrupted", "{ended}");
    first.terminate();

    // Any program, at an address of the interface or at all; not elsewhere.
    let bind = |at: &str| a.run(|| UdpSocket::bind(at)).expect("privileged").expect("free");
    let us = format!("(pid {})", std::process::id());
    for at in ["0.0.0.0", "[::]", &to, &format!("[{}]", lab.v6())] {
        let _holder = bind(&format!("{at}:4791"));
        refuse(&us);
    }
    let _elsewhere = bind("127.0.0.1:4791");
    let over_xdp = lab.server(&[]);
    let outcome = lab.client(lab.v4(), &["--transfer", "1M", "--json"]);
    assert_eq!(outcome.json()["fabric"], "af_xdp", "{}", outcome.stderr);
    over_xdp.terminate();
}

#[test]
fn port__udp_on_one_interface_and_af_xdp_on_another() {
    let Some(lab) = Lab::new(1500) else { return };
    let a = &lab.hosts.a.ns;
    // Another interface of the same host; its other end is of no use.
    let mut ip = a.command("ip").expect("the namespace is there");
    let args = ["link", "add", "sw1", "type", "veth", "peer", "name", "sw2"];
    assert!(Running::spawn(lab::piped(&mut ip, &args)).wait().success);
    let mut netlink = spanwire_io::net::Netlink::open_in(a).expect("privileged");
    netlink.add_address("sw1", "10.99.0.1/24".parse().expect("a prefix")).expect("privileged");
    for link in ["sw1", "sw2"] {
        netlink.set_up(link).expect("privileged");
    }
    // Bound to all addresses of `sw1`.
    let there = ["perf", "server", "--dev", "sw1", "--fabric", "udp", "-p", "18599"];
    let there = Unprivileged::new(&there).start_until(a, "serving on sw1 (udp)");
    let over_xdp = lab.server(&[]);
    let outcome = lab.client(lab.v4(), &["--transfer", "1M", "--json"]);
    assert_eq!(outcome.json()["fabric"], "af_xdp", "{}", outcome.stderr);
    let serve = ["perf", "server", "--dev", "sw2", "--fabric", "xdp", "-p", "18598"];
    let second = lab.start_until(a, &serve, "serving on sw2");
    second.terminate();
    over_xdp.terminate();
    there.terminate();
}

#[test]
fn client__ends_with_the_interface() {
    let Some(lab) = Lab::new(1500) else { return };
    let mut server = server(&lab, &[]);
    await_listener(&lab.hosts.a.ns, lab::PERF_PORT, &mut server);
    let to = lab.v4().to_string();
    let args = ["perf", "client", "--dev", "sw0", &to, "-t", "86400"];
    let client = Unprivileged::new(&args).start_in(&lab.hosts.b.ns);
    lab.await_traffic(1 << 20);
    let mut netlink = spanwire_io::net::Netlink::open_in(&lab.hosts.b.ns).expect("privileged");
    netlink.delete_link("sw0").expect("privileged");
    let outcome = client.wait();
    assert!(!outcome.success && outcome.stderr.contains("gone"), "{}", outcome.stderr);
}
