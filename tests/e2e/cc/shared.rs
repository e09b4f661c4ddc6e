//! Several processes, each on a host of its own, share a bottleneck of `spanwire switch`.
//!
//! The servers share the one port behind the bottleneck: each has a macvlan of that host's
//! interface in its own namespace. Nothing is set but the algorithm: path and hosts calibrate it.
//!
//! Processes that get no processor for a while change rates and queues, but no byte and no count.
//! Every flow transfers its bytes, and marks and CNPs are conserved from the switch to the client.
//! Shares, rates and queues are asserted in virtual time (`sim::cc`, `sim::sharing`,
//! `sim::late_hosts`).

use super::check_auto_without_marks;
use crate::lab::{PERF_PORT, Running, SPANWIRE, await_listener, run_here, start_here};
use crate::switch::SwitchLab;
use serde_json::Value;
use std::process::Command;

/// A lab with clients on hosts `c1` and up, and servers behind port `a`.
pub(crate) struct Shared {
    servers: Vec<String>,
    /// The fabric of clients and servers.
    fabric: &'static str,
    lab: SwitchLab,
}

/// The result of a run.
pub(crate) struct Outcome {
    /// Reports of the clients, and of the servers.
    pub(crate) clients: Vec<Value>,
    pub(crate) servers: Vec<Value>,
    /// The switch before the run, and after it.
    pub(crate) before: Value,
    pub(crate) after: Value,
}

impl Shared {
    /// `n` clients at a bottleneck of 50 Mbit/s with this queue; 8 ms round trip.
    pub(crate) fn new(n: usize, queue: &str) -> Option<Self> {
        Self::with(n, queue, "")
    }

    /// The same with further tables of the switch's file.
    pub(crate) fn with(n: usize, queue: &str, tables: &str) -> Option<Self> {
        let line = "delay = '4ms'\nqueue.limit_bytes = '1MB'\n";
        let mut config = format!("seed = 3\n[port.a]\nrate = '50Mbit'\n{line}{queue}");
        for client in 1..=n {
            config.push_str(&format!("[port.c{client}]\nrate = '10Gbit'\n{line}"));
        }
        config.push_str(tables);
        let lab = SwitchLab::new(&config)?;
        let mut shared = Self { servers: Vec::new(), fabric: "xdp", lab };
        for server in 1..=n {
            shared.add_server(server);
        }
        Some(shared)
    }

    /// The same with that fabric at clients and servers.
    fn over(mut self, fabric: &'static str) -> Self {
        self.fabric = fabric;
        self
    }

    fn add_server(&mut self, n: usize) {
        let (host, ns) = (format!("{}-a", self.lab.name), format!("{}-s{n}", self.lab.name));
        let link = format!("m{n}");
        ip(&["netns", "add", &ns]);
        self.servers.push(ns.clone());
        let kind = ["type", "macvlan", "mode", "private"];
        ip(&[&["-n", &host, "link", "add", "link", "sw0", "name", &link][..], &kind].concat());
        ip(&["-n", &host, "link", "set", &link, "netns", &ns]);
        ip(&["-n", &ns, "link", "set", &link, "name", "sw0"]);
        ip(&["-n", &ns, "addr", "add", &format!("{}/24", server_address(n)), "dev", "sw0"]);
        ip(&["-n", &ns, "link", "set", "sw0", "up"]);
    }

    /// The present state of the switch.
    pub(crate) fn ctl(&self) -> Value {
        run_here(&["switch", "ctl", "--lab", &self.lab.name, "--json", "show"]).json()
    }

    /// Changes the switch while it runs.
    pub(crate) fn set(&self, change: &str) {
        let set = run_here(&["switch", "ctl", "--lab", &self.lab.name, "set", change]);
        assert!(set.success, "{}", set.stderr);
    }

    /// Each client transfers `bytes` to its server, all simultaneously, as [`Shared::start`] has
    /// it. Every byte arrives.
    pub(crate) fn run(&self, bytes: &str, more: &[&str]) -> Outcome {
        let before = self.ctl();
        let (servers, clients) = self.start(&[&["--transfer", bytes], more].concat());
        let clients: Vec<Value> = clients.into_iter().map(|client| client.wait().json()).collect();
        let served = |server: Running| server.end_with(libc::SIGTERM).json();
        let servers = servers.into_iter().map(served).collect();
        for report in &clients {
            assert_eq!(report["ok"], true, "{report}");
            assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        }
        Outcome { clients, servers, before, after: self.ctl() }
    }

    /// Starts the servers, and then the clients. `more` are further arguments of the clients, each
    /// with its number for `{n}`.
    pub(crate) fn start(&self, more: &[&str]) -> (Vec<Running>, Vec<Running>) {
        let count = self.servers.len();
        let servers: Vec<Running> = (1..=count).map(|n| self.start_server(n)).collect();
        let clients = (1..=count).map(|n| {
            let (host, to) = (format!("c{n}"), server_address(n));
            let fabric = ["--fabric", self.fabric];
            let perf = [SPANWIRE, "perf", "client", "--dev", "sw0", &to, "--json"];
            let perf = [&perf[..], &fabric].concat();
            let at = ["lab", "exec", "--name", &self.lab.name, &host, "--"];
            let own: Vec<String> =
                more.iter().map(|arg| arg.replace("{n}", &n.to_string())).collect();
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            start_here(&[&at[..], &perf[..], &own].concat())
        });
        let clients = clients.collect();
        (servers, clients)
    }

    /// Starts server `n` and waits until it listens.
    fn start_server(&self, n: usize) -> Running {
        let ns = self.lab.ns(&format!("s{n}"));
        let args = ["perf", "server", "--dev", "sw0", "--json", "--fabric", self.fabric];
        let mut server = Running::start(&ns, &args);
        await_listener(&ns, PERF_PORT, &mut server);
        server
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for ns in &self.servers {
            let _ = Command::new("ip").args(["netns", "del", ns]).status();
        }
    }
}

impl Outcome {
    /// The sum of a counter over all clients, or all servers.
    pub(crate) fn sum(reports: &[Value], name: &str) -> u64 {
        reports.iter().filter_map(|report| report["counters"][name].as_u64()).sum()
    }

    /// Frames that the bottleneck marked in this run.
    fn marked(&self) -> u64 {
        let marks = |shown: &Value| {
            let port = &shown["ports"][0]["counters"];
            ["mark_red", "mark_step", "mark_phantom"].map(|name| total(port, &|k| k == name))
        };
        marks(&self.after).iter().sum::<u64>() - marks(&self.before).iter().sum::<u64>()
    }

    /// An upper bound of the frames that no report counts: those lost on the way, and
    /// retransmissions, which may arrive after the end of the connection. A frame may be counted
    /// twice. Zero if nothing was lost or late.
    pub(crate) fn lost(&self) -> u64 {
        let at_hosts = |reports: &[Value]| -> u64 {
            reports.iter().map(|report| total(&report["counters"], &is_drop)).sum()
        };
        lost_at(&self.after) - lost_at(&self.before)
            + Self::sum(&self.clients, "retransmitted_packets")
            + at_hosts(&self.clients)
            + at_hosts(&self.servers)
    }

    /// Checks that the marked packets which the servers received are those that the switch marked,
    /// except lost ones, and returns their number.
    fn check_marks(&self) -> u64 {
        let (made, seen) = (self.marked(), Self::sum(&self.servers, "np_ecn_marked_roce_packets"));
        let text = || format!("{made} marked, {seen} received: {}", self.text());
        assert!(seen <= made && made - seen <= self.lost(), "{}", text());
        seen
    }

    /// Checks a run of UnoCC, whose ACKs carry the counts of marks to the clients.
    fn check_unocc(&self) {
        let marks = self.check_marks();
        assert!(marks > 0, "the phantom queue marks: {}", self.text());
        for (client, server) in self.clients.iter().zip(&self.servers) {
            let seen = server["counters"]["np_ecn_marked_roce_packets"].as_u64();
            let told = client["flow"]["marked"].as_f64().expect("a fraction");
            assert_eq!(told > 0.0, seen > Some(0), "{told} of {seen:?}: {}", self.text());
        }
    }

    /// Checks that `made` CNPs reached the clients, except lost ones. Each is handled or, if too
    /// close to the one before it, ignored by name.
    pub(crate) fn check_cnps(&self, made: u64) {
        let [handled, ignored] =
            ["rp_cnp_handled", "drop_ignored_cnp"].map(|name| Self::sum(&self.clients, name));
        let seen = handled + ignored;
        let text = || format!("{made} CNPs, {handled} handled, {ignored} ignored: {}", self.text());
        assert!(seen <= made && made - seen <= self.lost(), "{}", text());
        assert!(handled > 0 || made == 0, "{}", text());
    }

    /// The report of each end about its flow.
    pub(crate) fn text(&self) -> String {
        let of = |r: &Value| format!("{} {} {}", r["flow"], r["congestion"], r["counters"]);
        let ends: Vec<_> = self.clients.iter().chain(&self.servers).map(of).collect();
        format!("at most {} lost, {ends:#?}", self.lost())
    }
}

/// Frames that a switch has lost or dropped, by what `ctl show` has of it.
pub(crate) fn lost_at(shown: &Value) -> u64 {
    total(shown, &is_drop)
}

/// True for a counter of frames that were lost or dropped. Ignored CNPs have arrived.
fn is_drop(name: &str) -> bool {
    let lost = [
        "drop_",
        "xdp_drop_",
        "kernel_rx_",
        "kernel_fill_empty",
        "tx_busy_drops",
        "tx_nobufs",
        "tx_net_down",
        "rx_overflow",
    ];
    let name = name.strip_prefix("xdp_").or(name.strip_prefix("udp_")).unwrap_or(name);
    lost.iter().any(|begin| name.starts_with(begin)) && name != "drop_ignored_cnp"
}

/// The sum of all counters in `value`, at any depth, whose name `is_wanted`.
fn total(value: &Value, is_wanted: &impl Fn(&str) -> bool) -> u64 {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match value.as_u64() {
                Some(count) => {
                    if is_wanted(name) {
                        count
                    } else {
                        0
                    }
                }
                None => total(value, is_wanted),
            })
            .sum(),
        Value::Array(values) => values.iter().map(|value| total(value, is_wanted)).sum(),
        _ => 0,
    }
}

fn server_address(n: usize) -> String {
    format!("10.77.0.{}", 100 + n)
}

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).output().expect("iproute2 is there");
    assert!(done.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

const PHANTOM: &str =
    "[port.a.queue.phantom]\nsize_bytes = '80kB'\nkmin_bytes = '15kB'\nkmax_bytes = '40kB'\n";

const RED: &str = "[port.a.queue.ecn]\nkmin_bytes = '10kB'\nkmax_bytes = '50kB'\npmax = '20%'\n";

#[test]
fn auto__processes_share_by_default() {
    for n in [2, 4] {
        let Some(shared) = Shared::new(n, "") else { return };
        let outcome = shared.run("2M", &[]);
        for report in &outcome.clients {
            check_auto_without_marks(&report["congestion"]);
        }
        assert_eq!(outcome.check_marks(), 0, "no queue marks");
    }
}

#[test]
fn unocc__two_processes_share_and_the_phantom_queue_marks() {
    let Some(shared) = Shared::new(2, PHANTOM) else { return };
    shared.run("2M", &["--cc", "unocc"]).check_unocc();
}

#[test]
fn unocc__two_processes_share_over_udp_sockets() {
    let Some(shared) = Shared::new(2, PHANTOM) else { return };
    let outcome = shared.over("udp").run("2M", &["--cc", "unocc"]);
    for report in outcome.clients.iter().chain(&outcome.servers) {
        assert_eq!(report["fabric"], "udp", "{report}");
    }
    outcome.check_unocc();
}

#[test]
fn unocc__four_processes_share() {
    let Some(shared) = Shared::new(4, PHANTOM) else { return };
    shared.run("2M", &["--cc", "unocc"]).check_unocc();
}

#[test]
fn swift__two_processes_share() {
    let Some(shared) = Shared::new(2, "") else { return };
    let outcome = shared.run("2M", &["--cc", "swift"]);
    for report in &outcome.clients {
        assert_eq!(report["congestion"]["name"], "swift", "{report}");
    }
    assert_eq!(outcome.check_marks(), 0, "no queue marks");
}

#[test]
fn dcqcn__two_processes_share_by_cnps_and_by_counts() {
    let Some(shared) = Shared::new(2, RED) else { return };
    for mode in ["rc", "sr"] {
        let outcome = shared.run("2M", &["--cc", "dcqcn", "--mode", mode]);
        let marks = outcome.check_marks();
        assert!(marks > 0, "{mode}: {}", outcome.text());
        let cnps = Outcome::sum(&outcome.servers, "np_cnp_sent");
        assert_eq!(cnps > 0, mode == "rc", "{mode}: {}", outcome.text());
        assert!(cnps <= marks, "{cnps} CNPs for {marks} marks: {}", outcome.text());
        outcome.check_cnps(cnps);
    }
}
