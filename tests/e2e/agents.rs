//! Agents of real switches: PACC at a bottleneck that three processes share, and both halves of
//! Reflex at a border.
//!
//! Feedback is conserved: what a switch sends before its sender has acknowledged data of later is
//! handled, or ignored by name, unless it is lost. Queues and shares are asserted in virtual time
//! (`sim::papers`, unit tests of `switch`).

use crate::cc::shared::{Outcome, Shared, lost_at};
use crate::lab::{Running, run_here, skip, take_turn, until};
use crate::paths::{ip, plain, veth};
use crate::switch::SwitchLab;
use serde_json::Value;
use spanwire_io::net::NetNs;
use spanwire_pcap::{Capture, Decoded, Decoder, Sr};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

/// PACC at 50 Mbit/s: times are 500 times those of 25 Gbit/s, and the reference queue is half a
/// period of the line, as in the paper.
const PACC: &str = "[[agent]]\nkind = 'pacc'\nports = ['a']\nperiod = '40ms'\nspacing = '2ms'\n\
                    threshold_bytes = '125kB'\n";

/// Adapters' timers, also 500 times as long; an increase that adds a hundredth of the link. Hosts
/// are late, so CNPs that were sent 2 ms apart may arrive closer together, and count all the same:
/// both this decrease and `--cnp-spacing` are shorter.
const DCQCN: [&str; 8] = [
    "preset=paper",
    "alpha_us=500",
    "decrease_us=100",
    "increase_us=150000",
    "cnp_us=2000",
    "additive_mbps=0.5",
    "hyper_mbps=5",
    "min_mbps=0.5",
];

/// Counters and gauges of the agents of a switch, as `ctl show` has them.
fn agents(shown: &Value) -> Vec<&Value> {
    shown["agents"].as_array().expect("a list").iter().collect()
}

/// A port's counter, as `ctl show` has it.
fn port(shown: &Value, port: usize, name: &str) -> u64 {
    shown["ports"][port]["counters"][name].as_u64().expect("a count")
}

/// A client that runs until it is interrupted.
const ENDLESS: [&str; 6] = ["-t", "86400", "-i", "0", "--window", "192"];

/// Bytes that no client sends without an acknowledgement: several windows, and their
/// retransmissions.
const SEVERAL_WINDOWS: u64 = 2_500_000;

#[test]
fn pacc__every_cnp_reaches_its_client_and_is_valid() {
    let Some(shared) = Shared::with(3, "", PACC) else { return };
    // A host's port is as fast as the bottleneck, as in the paper.
    let cc =
        ["--mode", "rc", "--line-rate", "50Mbit", "--cc", "dcqcn-rnic", "--cnp-spacing", "75us"];
    let set = DCQCN.iter().flat_map(|set| ["--cc-set", *set]);
    let cc: Vec<&str> = cc.into_iter().chain(set).collect();
    let file = Path::new("/dev/shm").join(format!("swc{}-{{n}}.pcap", std::process::id()));
    let capture = ["--pcap", plain(&file)];
    let before = shared.ctl();
    let (servers, clients) = shared.start(&[&ENDLESS[..], &capture, &cc].concat());
    // The agent's CNPs leave by the ports of the clients, which send to port a.
    let sent = |shown: &Value, n| port(shown, n, "agent_made") - port(&before, n, "agent_made");
    until("every client gets CNPs", || {
        let now = shared.ctl();
        (1..=3).all(|n| sent(&now, n) >= 20)
    });
    // Without a bottleneck there are no more. When every client has got acknowledgements of later
    // data, it has also got the CNPs before.
    shared.set("port.a.rate=10Gbit");
    let mut some = Value::Null;
    until("no more CNPs are sent", || {
        some = shared.ctl();
        let mut now = Value::Null;
        until("every client goes on", || {
            now = shared.ctl();
            let bytes = |n| port(&now, n, "rx_bytes") - port(&some, n, "rx_bytes");
            (1..=3).all(|n| bytes(n) >= SEVERAL_WINDOWS)
        });
        (1..=3).all(|n| sent(&now, n) == sent(&some, n))
    });
    let clients = clients.into_iter().map(|c| c.end_with(libc::SIGINT).json()).collect();
    let servers = servers.into_iter().map(|s| s.end_with(libc::SIGTERM).json()).collect();
    let after = shared.ctl();
    let made: u64 =
        agents(&after).iter().filter_map(|a| a["counters"]["feedback_tx"].as_u64()).sum();
    assert_eq!((1..=3).map(|n| sent(&after, n)).sum::<u64>(), made, "{after}");
    let outcome = Outcome { clients, servers, before: before.clone(), after };
    for (n, client) in (1..).zip(&outcome.clients) {
        let count = |name: &str| client["counters"][name].as_u64().unwrap_or(0);
        // Those that a stalled host finds together count as one.
        let (handled, ignored) = (count("rp_cnp_handled"), count("drop_ignored_cnp"));
        let (least, most) = (sent(&some, n), sent(&outcome.after, n));
        let arrived = handled + ignored;
        assert!(
            handled > 0 && arrived <= most && arrived + outcome.lost() >= least,
            "{least} to {most} CNPs were sent, {handled} handled, {ignored} ignored: {}",
            outcome.text()
        );
        // What arrives is valid.
        let file = plain(&file).replace("{n}", &n.to_string());
        let seen = run_here(&["pcap", &file, "--json"]).json();
        std::fs::remove_file(file).expect("each client wrote one");
        assert_eq!((&seen["icrc_bad"], &seen["parse_errors"]), (&0.into(), &0.into()), "{seen}");
        assert_eq!(seen["opcodes"]["CNP"], arrived, "{seen}");
    }
    // No byte is lost to it.
    shared.run("1M", &cc);
}

/// Two hosts behind a switch with a bottleneck, a border switch with Reflex, and two hosts far
/// away.
struct Border {
    near: [NetNs; 2],
    far: [NetNs; 2],
    /// The sockets of the switch of the datacenter and of the border.
    sockets: [PathBuf; 2],
    folder: PathBuf,
    /// Ended before the interfaces are removed.
    switches: Vec<Running>,
    _between: NetNs,
    _turn: MutexGuard<'static, ()>,
}

/// The switch of the datacenter: a bottleneck of 50 Mbit/s on the way out.
const INNER: &str = "[port.n0]\ndelay = '100us'\n[port.n1]\ndelay = '100us'\n\
                     [port.trunk]\nrate = '50Mbit'\ndelay = '100us'\nqueue.limit_bytes = '1MB'\n";

/// The border: packets are late if they waited for 5 ms, 20 packets of the bottleneck, longer than
/// the fastest of their flow. Without cooling, each pseudo-ACK is about such a packet.
const BORDER: &str = "[port.dc]\ndelay = '100us'\n[port.w0]\ndelay = '20ms'\n\
                      [port.w1]\ndelay = '20ms'\n\
                      [[agent]]\nkind = 'nsf'\noutside = ['w0', 'w1']\nclock = 'relative'\n\
                      threshold = '5ms'\ninterval = '5ms'\ncool = 0\n\
                      [[agent]]\nkind = 'ndt'\ninside = ['dc']\nthreshold = '10ms'\n\
                      active = '100ms'\nmax_pause = '50ms'\n";

impl Border {
    fn new() -> Option<Self> {
        if skip() {
            return None;
        }
        let turn = take_turn();
        let folder = Path::new("/dev/shm").join(format!("swb{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("writable");
        let ns = || NetNs::new_anonymous().expect("privileged");
        let (near, far, between) = ([ns(), ns()], [ns(), ns()], ns());
        for (hosts, side, ports) in [(&near, 1, ["n0", "n1"]), (&far, 2, ["w0", "w1"])] {
            for (n, (host, port)) in hosts.iter().zip(ports).enumerate() {
                veth((host, "sw0"), (&between, port));
                ip(host, &["addr", "add", &format!("10.78.0.{side}{n}/24"), "dev", "sw0"]);
            }
        }
        veth((&between, "trunk"), (&between, "dc"));
        let sockets = ["inner", "border"].map(|name| folder.join(format!("{name}.sock")));
        let start = |name: &str, text: &str, socket: &Path| {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("writable");
            let args = ["switch", "--config", plain(&file), "--socket", plain(socket)];
            Running::start_until(&between, &args, "switching between")
        };
        let switches = vec![
            start("inner.toml", INNER, &sockets[0]),
            start("border.toml", BORDER, &sockets[1]),
        ];
        Some(Self { near, far, sockets, folder, switches, _between: between, _turn: turn })
    }

    /// The state of the inner switch, and of the border.
    fn ctl(&self) -> [Value; 2] {
        let show = |socket: &PathBuf| {
            run_here(&["switch", "ctl", "--socket", plain(socket), "--json", "show"]).json()
        };
        [show(&self.sockets[0]), show(&self.sockets[1])]
    }

    /// Starts a server on each of the first `count` far hosts, and clients on the near ones.
    fn start(&self, count: usize, more: &[&str]) -> (Vec<Running>, Vec<Running>) {
        let serve = ["perf", "server", "--dev", "sw0"];
        let servers: Vec<Running> = self.far[..count]
            .iter()
            .map(|host| Running::start_until(host, &serve, "serving on sw0"))
            .collect();
        // The round trip to the border without queues, with what hosts are late by.
        let near = ["--mode", "sr", "--cc", "swift", "--cc-set", "near_base_us=1000"];
        let clients = (0..count).map(|n| {
            let (to, file) = (format!("10.78.0.2{n}"), self.capture(n));
            let perf = ["perf", "client", "--dev", "sw0", &to, "--json", "--pcap", plain(&file)];
            Running::start(&self.near[n], &[&perf[..], &near, more].concat())
        });
        let clients = clients.collect();
        (servers, clients)
    }

    /// Runs a verified transfer on the first `count` near hosts and checks that every pseudo-ACK is
    /// about a late packet and arrives, unless it is lost.
    fn check_transfers(&self, count: usize, more: &[&str]) {
        let [inner_before, before] = self.ctl();
        let (servers, clients) = self.start(count, more);
        let clients: Vec<Value> = clients.into_iter().map(|c| c.wait().json()).collect();
        servers.into_iter().for_each(Running::terminate);
        for client in &clients {
            assert_eq!(client["transfer"]["sha256_match"], true, "{client}");
        }
        let captured: usize = (0..count).map(|n| self.check_pseudo_acks(n)).sum();
        let [inner, after] = self.ctl();
        let got = arrived(&clients);
        assert_eq!(got, u64::try_from(captured).expect("a few"), "{clients:#?}");
        let made = sent(&after) - sent(&before);
        let late = |shown: &Value| counters(shown, "nsf")["late_pkts"];
        assert!(made <= late(&after) - late(&before), "{made} pseudo-ACKs: {after}");
        let lost = lost_at(&inner) - lost_at(&inner_before) + lost_at(&after) - lost_at(&before);
        // A retransmission may pass the border after the end of the connection.
        let lost = lost + Outcome::sum(&clients, "retransmitted_packets");
        assert!(got <= made && got + lost >= made, "{made} sent, {got} arrived, {lost} lost");
    }

    /// The capture of a near host.
    fn capture(&self, n: usize) -> PathBuf {
        self.folder.join(format!("{n}.pcap"))
    }

    /// Checks the pseudo-ACKs of the last run of a near host, and returns their number. Each is
    /// about a packet that reached the border late by more than the threshold, so the time from
    /// that packet to its pseudo-ACK is longer still.
    fn check_pseudo_acks(&self, n: usize) -> usize {
        let (sent, echoes) = read_capture(&self.capture(n));
        // A packet is captured after the time that it carries: the least difference is that of
        // the two clocks.
        let clocks = sent.iter().map(|(at, time)| at - time).min().expect("data was sent");
        for (at, time) in &echoes {
            let after = at - time - clocks;
            assert!(after > THRESHOLD_NS, "a pseudo-ACK {after} ns after its packet");
        }
        echoes.len()
    }
}

/// When a capture has a packet, and the time of its sender in it, in nanoseconds.
type Times = Vec<(i128, i128)>;

/// The data of a capture, and the pseudo-ACKs.
fn read_capture(file: &Path) -> (Times, Times) {
    let mut capture = Capture::new(File::open(file).expect("the client wrote it")).expect("valid");
    let (mut decoder, mut sent, mut echoes) = (Decoder::default(), Times::new(), Times::new());
    while let Some(record) = capture.next_record().expect("valid") {
        let at = record.at_ns.expect("it has times");
        for decoded in decoder.decode(&record) {
            let Decoded::Roce(packet) = decoded else { continue };
            match packet.sr_header {
                Some(Sr::Data(data)) => sent.push((at, i128::from(data.sent_ps / 1000))),
                Some(Sr::Near(near)) => echoes.push((at, i128::from(near.echo_ps / 1000))),
                _ => {}
            }
        }
    }
    (sent, echoes)
}

/// Pseudo-ACKs that the border has sent.
fn sent(shown: &Value) -> u64 {
    counters(shown, "nsf")["feedback_tx"]
}

/// Pseudo-ACKs that clients have received: they use them, or ignore those about packets that are no
/// longer in flight.
fn arrived(reports: &[Value]) -> u64 {
    Outcome::sum(reports, "rp_pseudo_acks") + Outcome::sum(reports, "drop_near_stale")
}

/// Counters of agents of a kind, all ports together.
fn counters(shown: &Value, kind: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for agent in agents(shown).into_iter().filter(|agent| agent["kind"] == kind) {
        for (name, value) in agent["counters"].as_object().expect("an object") {
            *sums.entry(name.clone()).or_default() += value.as_u64().expect("a count");
        }
    }
    sums
}

impl Drop for Border {
    fn drop(&mut self) {
        self.switches.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The threshold of the border.
const THRESHOLD_NS: i128 = 5_000_000;

#[test]
fn reflex__pseudo_acks_only_about_late_packets() {
    let Some(border) = Border::new() else { return };
    // A fifth of the bottleneck: packets wait only if a process gets no processor.
    border.check_transfers(1, &["--line-rate", "10Mbit", "--transfer", "512K"]);
    // More than the bottleneck carries, if both clients run.
    border.check_transfers(2, &["--transfer", "2M"]);

    // Congestion, until it is found.
    let [inner, shown] = border.ctl();
    let (servers, clients) = border.start(2, &ENDLESS);
    let mut some = border.ctl();
    until("the border sends pseudo-ACKs", || {
        some = border.ctl();
        sent(&some[1]) >= sent(&shown) + 20
    });
    until("both clients go on", || {
        let [inner, _] = border.ctl();
        let bytes = |n| port(&inner, n, "rx_bytes") - port(&some[0], n, "rx_bytes");
        (0..2).all(|n| bytes(n) >= SEVERAL_WINDOWS)
    });
    let end = |client: Running| client.end_with(libc::SIGINT).json();
    let clients: Vec<Value> = clients.into_iter().map(end).collect();
    servers.into_iter().for_each(Running::terminate);
    let captured: usize = (0..2).map(|n| border.check_pseudo_acks(n)).sum();
    let [inner_after, border_after] = border.ctl();
    let (least, most) = (sent(&some[1]) - sent(&shown), sent(&border_after) - sent(&shown));
    let got = arrived(&clients);
    let lost = lost_at(&inner_after) - lost_at(&inner) + lost_at(&border_after) - lost_at(&shown);
    assert_eq!(got, u64::try_from(captured).expect("a few"), "{clients:#?}");
    assert!(
        got <= most && got + lost >= least,
        "{least} to {most} sent, {got} arrived, {lost} lost: {clients:#?}"
    );
    assert!(Outcome::sum(&clients, "rp_pseudo_acks") > 0, "{clients:#?}");
    let ndt = counters(&border_after, "ndt");
    assert!(ndt.get("acks").is_none_or(|acks| *acks == 0), "no data came in: {ndt:?}");
}

/// That it fills an idle path is asserted in virtual time (`sim::near`). The round trip to the
/// switch is the one of its comment: a sender cannot know it, and asks for no feedback without it.
#[test]
fn reflex__the_example_carries_transfers_and_no_more_feedback_arrives_than_it_sends() {
    let Some(lab) = SwitchLab::new(include_str!("../../docs/examples/reflex.toml")) else { return };
    let (to, serve) = (lab.v4(1).to_string(), ["perf", "server", "--dev", "sw0"]);
    let server = Running::start_until(&lab.ns("wan"), &serve, "serving on sw0");
    for cc in ["swift", "timely"] {
        let client = ["perf", "client", "--dev", "sw0", &to, "--json", "--transfer", "8M"];
        let near = ["--mode", "sr", "--cc", cc, "--cc-set", "near_base_us=600"];
        let before = sent(&lab.ctl(&["show"]).json());
        let report = Running::start(&lab.ns("dc"), &[&client[..], &near].concat()).wait().json();
        assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        let made = sent(&lab.ctl(&["show"]).json()) - before;
        let got = arrived(&[report]);
        assert!(got <= made, "{cc}: {made} pseudo-ACKs were sent, {got} arrived");
    }
    server.terminate();
}
