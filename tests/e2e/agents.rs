//! Agents of real switches: PACC at a bottleneck that three processes share, and both halves of
//! Reflex at a border.

use crate::cc::shared::Shared;
use crate::lab::{Running, run_here, skip, take_turn, until_right};
use crate::paths::{ip, plain, veth};
use serde_json::Value;
use spanwire_io::net::NetNs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

/// PACC at 50 Mbit/s: times are 500 times those of 25 Gbit/s, and the reference queue is half a
/// period of the line, as in the paper.
const PACC: &str = "[[agent]]\nkind = 'pacc'\nports = ['a']\nperiod = '40ms'\nspacing = '2ms'\n\
                    threshold_bytes = '125kB'\n";

/// Adapters' timers, also 500 times as long; an increase that adds a hundredth of the link. Hosts
/// are late, so CNPs that were sent 2 ms apart may arrive closer together, and count all the same.
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

#[test]
fn pacc__three_clients_share_and_the_queue_stays_near_the_threshold() {
    let Some(shared) = Shared::with(3, "", PACC) else { return };
    until_right(|| {
        let before = shared.ctl();
        // A host's port is as fast as the bottleneck, as in the paper.
        let cc = ["--mode", "rc", "--line-rate", "50Mbit", "--cc", "dcqcn-rnic"];
        let set = DCQCN.iter().flat_map(|set| ["--cc-set", *set]);
        let cc: Vec<&str> = cc.into_iter().chain(set).collect();
        let outcome = shared.run("12", &cc);
        let after = shared.ctl();
        let count = |shown: &Value, name: &str| {
            agents(shown).iter().filter_map(|agent| agent["counters"][name].as_u64()).sum::<u64>()
        };
        let made = count(&after, "feedback_tx") - count(&before, "feedback_tx");
        let sum = |name: &str| -> u64 {
            outcome.reports.iter().filter_map(|report| report["counters"][name].as_u64()).sum()
        };
        // Those that a stalled host finds together count as one.
        let (handled, ignored) = (sum("rp_cnp_handled"), sum("drop_ignored_cnp"));
        if made == 0 || made != handled + ignored || ignored * 50 > made {
            return Some(format!("{made} CNPs were sent, {handled} handled, {ignored} ignored"));
        }
        let queue = &outcome.queue_bytes;
        let mean = queue.iter().sum::<u64>() / queue.len() as u64;
        let is_near = (62_500..=187_500).contains(&mean);
        outcome.complaint(0.95, 40.0).or_else(|| {
            (!is_near).then(|| format!("a mean of {mean} bytes: {queue:?}, {}", outcome.text()))
        })
    });
    // What arrives is valid.
    let file = Path::new("/dev/shm").join(format!("swc{}-{{n}}.pcap", std::process::id()));
    let set = DCQCN.iter().flat_map(|set| ["--cc-set", *set]);
    let cc =
        ["--mode", "rc", "--line-rate", "50Mbit", "--cc", "dcqcn-rnic", "--pcap", plain(&file)];
    shared.run("2", &cc.into_iter().chain(set).collect::<Vec<_>>());
    let files: Vec<String> = (1..=3).map(|n| plain(&file).replace("{n}", &n.to_string())).collect();
    let (mut cnps, mut all) = (0, Vec::new());
    for file in &files {
        let seen = run_here(&["pcap", file, "--json"]).json();
        std::fs::remove_file(file).expect("each client wrote one");
        assert_eq!((&seen["icrc_bad"], &seen["parse_errors"]), (&0.into(), &0.into()), "{seen}");
        cnps += seen["opcodes"]["CNP"].as_u64().unwrap_or(0);
        all.push(seen);
    }
    assert!(cnps > 0, "no CNP in any capture: {all:#?}");
}

/// Two hosts behind a switch with a bottleneck, a border switch with Reflex, and two hosts far
/// away.
struct Border {
    near: [NetNs; 2],
    far: [NetNs; 2],
    socket: PathBuf,
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
/// the fastest of their flow. Hosts on a busy machine are late by less.
const BORDER: &str = "[port.dc]\ndelay = '100us'\n[port.w0]\ndelay = '20ms'\n\
                      [port.w1]\ndelay = '20ms'\n\
                      [[agent]]\nkind = 'nsf'\noutside = ['w0', 'w1']\nclock = 'relative'\n\
                      threshold = '5ms'\ninterval = '5ms'\n\
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
        let socket = folder.join("border.sock");
        let start = |name: &str, text: &str, socket: &Path| {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("writable");
            let args = ["switch", "--config", plain(&file), "--socket", plain(socket)];
            Running::start_until(&between, &args, "switching between")
        };
        let switches = vec![
            start("inner.toml", INNER, &folder.join("inner.sock")),
            start("border.toml", BORDER, &socket),
        ];
        Some(Self { near, far, socket, folder, switches, _between: between, _turn: turn })
    }

    /// The counters of an agent of the border, all ports together.
    fn counters(&self, kind: &str) -> BTreeMap<String, u64> {
        let shown =
            run_here(&["switch", "ctl", "--socket", plain(&self.socket), "--json", "show"]).json();
        let mut sums = BTreeMap::new();
        for agent in agents(&shown).into_iter().filter(|agent| agent["kind"] == kind) {
            for (name, value) in agent["counters"].as_object().expect("an object") {
                *sums.entry(name.clone()).or_default() += value.as_u64().expect("a count");
            }
        }
        sums
    }

    /// Runs clients on the first `count` near hosts; their reports.
    fn run(&self, count: usize, more: &[&str]) -> Vec<Value> {
        let serve = ["perf", "server", "--dev", "sw0"];
        let servers: Vec<Running> = self.far[..count]
            .iter()
            .map(|host| Running::start_until(host, &serve, "serving on sw0"))
            .collect();
        // The round trip to the border without queues, with what hosts are late by.
        let near = ["--mode", "sr", "--cc", "swift", "--cc-set", "near_base_us=1000"];
        let clients: Vec<Running> = (0..count)
            .map(|n| {
                let to = format!("10.78.0.2{n}");
                let perf = ["perf", "client", "--dev", "sw0", &to, "--json", "-t", "5"];
                Running::start(&self.near[n], &[&perf[..], &near, more].concat())
            })
            .collect();
        let reports = clients.into_iter().map(|client| client.wait().json()).collect();
        servers.into_iter().for_each(Running::terminate);
        reports
    }
}

impl Drop for Border {
    fn drop(&mut self) {
        self.switches.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn reflex__pseudo_acks_only_under_congestion() {
    let Some(border) = Border::new() else { return };
    let sent = || border.counters("nsf").get("feedback_tx").copied().unwrap_or(0);
    // A fifth of the bottleneck: nothing waits.
    until_right(|| {
        let before = sent();
        let reports = border.run(1, &["--line-rate", "10Mbit"]);
        assert_eq!(reports[0]["ok"], true, "{}", reports[0]);
        (sent() > before).then(|| format!("{} pseudo-ACKs", sent() - before))
    });
    let before = sent();
    let reports = border.run(2, &[]);
    let made = sent() - before;
    let handled: u64 =
        reports.iter().filter_map(|r| r["counters"]["rp_pseudo_acks"].as_u64()).sum();
    for report in &reports {
        assert_eq!(report["ok"], true, "{report}");
    }
    assert!(made > 0 && handled > 0, "{made} sent, {handled} handled: {reports:#?}");
    let ndt = border.counters("ndt");
    assert!(ndt.get("acks").is_none_or(|acks| *acks == 0), "no data came in: {ndt:?}");
}
