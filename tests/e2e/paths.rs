//! Erasure coding and load balancing over real ports: four links between two switches, one of which
//! fails during a copy.

use crate::lab::{HANG, Lab, Running, await_listener, run_here, skip, take_turn, until};
use serde_json::{Value, json};
use spanwire_base::Rng;
use spanwire_io::net::{Ethtool, NetNs, Offloads, VethEnd, VethSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Hosts a and b, a switch at each, and four links between the switches.
struct Paths {
    hosts: [NetNs; 2],
    sockets: [PathBuf; 2],
    /// Ended before the interfaces are removed.
    switches: Vec<Running>,
    folder: PathBuf,
    _between: [NetNs; 2],
    _turn: MutexGuard<'static, ()>,
}

impl Paths {
    /// A lab, or `None` without the privilege (reported on stderr).
    fn new() -> Option<Self> {
        if skip() {
            return None;
        }
        let turn = take_turn();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new("/dev/shm").join(format!("swp{}-{n}", std::process::id()));
        std::fs::create_dir_all(folder.join("into")).expect("writable");
        let ns = || NetNs::new_anonymous().expect("privileged");
        let (hosts, between) = ([ns(), ns()], [ns(), ns()]);
        for end in 0..2 {
            veth((&hosts[end], "sw0"), (&between[end], "host"));
            ip(&hosts[end], &["link", "set", "sw0", "address", MACS[end]]);
            ip(&hosts[end], &["addr", "add", &format!("{}/24", ADDRESSES[end]), "dev", "sw0"]);
            // The switches do not flood, because the links form a loop.
            let other = 1 - end;
            let known = ["neigh", "replace", ADDRESSES[other], "lladdr", MACS[other]];
            ip(&hosts[end], &[&known[..], &["dev", "sw0", "nud", "permanent"]].concat());
        }
        for link in LINKS {
            veth((&between[0], link), (&between[1], link));
        }
        let sockets = [folder.join("a.sock"), folder.join("b.sock")];
        let mut lab =
            Self { hosts, sockets, switches: vec![], folder, _between: between, _turn: turn };
        for end in 0..2 {
            let running = lab.start_switch(end);
            lab.switches.push(running);
        }
        Some(lab)
    }

    fn start_switch(&self, end: usize) -> Running {
        let links: String = LINKS
            .iter()
            .map(|link| format!("[port.{link}]\nrate = '1Gbit'\ndelay = '5ms'\n"))
            .collect();
        let (near, far) = (MACS[end], MACS[1 - end]);
        let macs =
            format!("{{ mac = '{near}', ports = [0] }}, {{ mac = '{far}', ports = [1, 2, 3, 4] }}");
        let forwarding =
            format!("[forwarding]\nlearning = false\nflood = false\nmacs = [ {macs} ]\n");
        let text = format!("seed = {end}\n[port.host]\n{links}{forwarding}");
        let file = self.folder.join(format!("{end}.toml"));
        std::fs::write(&file, text).expect("writable");
        let (file, socket) = (plain(&file), plain(&self.sockets[end]));
        let args = ["switch", "--config", file, "--socket", socket];
        Running::start_until(&self._between[end], &args, "switching between")
    }

    fn ctl(&self, end: usize, args: &[&str]) -> Value {
        let at = ["switch", "ctl", "--socket", plain(&self.sockets[end]), "--json"];
        let outcome = run_here(&[&at[..], args].concat());
        assert!(outcome.success, "{}", outcome.stderr);
        outcome.json()
    }

    /// Frames sent on each link at that end.
    fn frames(&self, end: usize) -> BTreeMap<String, u64> {
        let shown = self.ctl(end, &["show"]);
        let ports = shown["ports"].as_array().expect("a list");
        let links = ports.iter().filter(|port| port["name"] != "host");
        let count = |port: &Value| port["line_counters"]["frames"].as_u64().expect("a count");
        links.map(|port| (port["name"].as_str().expect("a name").to_owned(), count(port))).collect()
    }

    /// The links of a TCP connection from a's only port to b's `port`, in both directions.
    fn links_of_tcp(&self, port: u16) -> BTreeSet<String> {
        let range = format!("{TCP_PORT} {TCP_PORT}");
        let narrow = || std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", &range);
        self.hosts[0].run(narrow).expect("privileged").expect("writable");
        let before = [self.frames(0), self.frames(1)];
        let at: SocketAddr = format!("{}:{port}", ADDRESSES[1]).parse().expect("an address");
        let listener = self.hosts[1].run(|| TcpListener::bind(at)).expect("privileged");
        let listener = listener.expect("the port is free");
        let connect = || TcpStream::connect_timeout(&at, HANG);
        let mut near = self.hosts[0].run(connect).expect("privileged").expect("reachable");
        let (mut far, _) = listener.accept().expect("it has connected");
        let mut byte = [0];
        for _ in 0..50 {
            near.write_all(&byte).and_then(|()| far.read_exact(&mut byte)).expect("there");
            far.write_all(&byte).and_then(|()| near.read_exact(&mut byte)).expect("and back");
        }
        // Reset, to avoid TIME_WAIT on the port.
        let linger = socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO));
        linger.expect("an open socket");
        drop(near);
        let after = [self.frames(0), self.frames(1)];
        let busiest = |end: usize| {
            let new = after[end].iter().max_by_key(|(link, n)| *n - before[end][*link]);
            new.expect("four links").0.clone()
        };
        [busiest(0), busiest(1)].into()
    }

    /// Copies `mib` MiB while the busiest link fails after the first packets. Returns the reports
    /// of sender and receiver.
    fn copy(&self, mib: usize, how: &[&str]) -> (Value, Value) {
        let (from, into) = (self.folder.join("file"), self.folder.join("into"));
        let mut bytes = vec![0; mib << 20];
        Rng::new(7).fill(&mut bytes);
        std::fs::write(&from, &bytes).expect("room");
        // The receiver also sends: on one path its credits would be lost with it.
        let common = [&["--dev", "sw0", "--json"][..], &RATE, how].concat();
        // The side connection is TCP with one path, which must not fail in this test.
        let spared = self.links_of_tcp(COPY_PORT);
        let receive = ["copy", "receive", "--into", plain(&into), "--once", "--overwrite"];
        let mut receiver = Running::start(&self.hosts[1], &[&receive[..], &common].concat());
        await_listener(&self.hosts[1], COPY_PORT, &mut receiver);
        let before = self.frames(0);
        let send = ["copy", "send", plain(&from), ADDRESSES[1]];
        let sender = Running::start(&self.hosts[0], &[&send[..], &common].concat());
        // At most a twentieth of the copy, which lasts three seconds at least at its rate.
        let mut frames = before.clone();
        until("packets leave", || {
            frames = self.frames(0);
            frames.values().sum::<u64>() >= before.values().sum::<u64>() + 1_000
        });
        let victims = frames.iter().filter(|(link, _)| !spared.contains(*link));
        let victim = victims.max_by_key(|(link, n)| **n - before[*link]).expect("two links").0;
        for end in 0..2 {
            self.ctl(end, &["set", &format!("port.{victim}.loss=100%")]);
        }
        let (sent, received) = (sender.wait(), receiver.wait());
        for end in 0..2 {
            self.ctl(end, &["set", &format!("port.{victim}.loss=0%")]);
        }
        let copied = std::fs::read(into.join("file")).expect("it is there");
        assert!(copied == bytes, "the copy differs");
        let _ = std::fs::remove_file(into.join("file"));
        (sent.json(), received.json())
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        self.switches.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn veth(a: (&NetNs, &str), b: (&NetNs, &str)) {
    let [a, b] = [a, b].map(|(ns, name)| VethEnd { ns, name });
    VethSpec { a, b, mtu: 1500, queues: 1 }.create().expect("privileged");
    for VethEnd { ns, name } in [a, b] {
        let ethtool = Ethtool::open_in(ns).expect("privileged");
        ethtool.set_offloads(name, &Offloads::OFF).expect("veth has them");
        ip(ns, &["link", "set", name, "up"]);
    }
}

pub(crate) fn ip(ns: &NetNs, args: &[&str]) {
    let done = ns.command("ip").expect("there").args(args).output().expect("iproute2 is there");
    assert!(done.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

pub(crate) fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The gap itself, below two round trips, is that of `sim::uno` in virtual time.
#[test]
fn copy__a_path_that_dies_costs_no_request() {
    let Some(lab) = Paths::new() else { return };
    let (sent, received) = lab.copy(48, &["--ec", "8,2", "--lb", "unolb"]);
    for report in [&sent, &received] {
        assert_eq!(report["ok"], true, "{report}");
    }
    let (ec, lb) = (&sent["ec"], &sent["lb"]);
    assert_eq!((&ec["scheme"], &ec["data"], &ec["parity"]), (&json!("pq"), &json!(8), &json!(2)));
    assert_eq!((&ec["in_force"], &lb["in_force"]), (&json!(true), &json!(true)));
    assert!(lb["reroutes"].as_u64() > Some(0), "{lb}");
    let paths = sent["paths"].as_array().expect("a list");
    assert!(paths.len() > 10, "some were replaced: {paths:?}");
    let lost = |path: &Value| path["presumed_lost_packets"].as_u64() > Some(0);
    assert!(paths.iter().any(lost), "{paths:?}");
    let counted = |report: &Value, name: &str| report["counters"][name].as_u64();
    assert!(counted(&sent, "ec_parity_packets") > Some(0), "{sent}");
    assert!(counted(&received, "ec_rebuilt_packets") > Some(0), "{received}");
    for failed in ["req_cqe_error", "resp_cqe_error", "flushed"] {
        assert_eq!((counted(&sent, failed), counted(&received, failed)), (None, None), "{failed}");
    }
    let ms = |name: &str| received["gaps"][name].as_f64().expect("milliseconds");
    assert!(ms("longest_ms") >= ms("median_ms") && ms("median_ms") > 0.0, "{received}");
}

#[test]
fn perf__options_without_effect_in_rc_are_warned_about() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let how = ["--ec", "8,2", "--lb", "unolb,subflows=4", "--json"];
    for (mode, in_force) in [("rc", false), ("sr", true)] {
        for op in ["write", "read"] {
            let args = ["--transfer", "2M", "--mode", mode, "--op", op];
            let outcome = lab.client(lab.v4(), &[&args[..], &how].concat());
            let report = outcome.json();
            assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
            assert_eq!(report["lb"]["name"], "unolb,subflows=4");
            for what in ["ec", "lb"] {
                assert_eq!(report[what]["in_force"], in_force, "{report}");
                assert_eq!(report[what]["why_not"].is_null(), in_force, "{report}");
            }
            let warned = outcome.stderr.contains("the connection speaks RC");
            assert_eq!(warned, !in_force, "{}", outcome.stderr);
            // In a READ the server sends, with the client's choice.
            let coded = report["counters"]["ec_parity_packets"].as_u64() > Some(0);
            assert_eq!(coded, in_force && op == "write", "{report}");
            let rx: u64 = report["counters"]["rx_packets"].as_u64().expect("some");
            assert!(op == "write" || !in_force || rx > (2 << 20) / 1408 * 5 / 4, "{report}");
        }
    }
    server.terminate();
    let refused = lab.client(lab.v4(), &["--ec", "60,5"]);
    assert!(!refused.success && refused.stderr.contains("at most 64 in all"), "{}", refused.stderr);
}

const LINKS: [&str; 4] = ["l1", "l2", "l3", "l4"];
const MACS: [&str; 2] = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"];
const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// a's port of every TCP connection, so that its links are known before it is made.
const TCP_PORT: u16 = 40_000;
const COPY_PORT: u16 = 18_517;
/// A rate that four processes on two cores carry easily.
const RATE: [&str; 4] = ["--cc", "fixed", "--cc-set", "rate_mbps=120"];
