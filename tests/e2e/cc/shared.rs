//! Several processes, each on a host of its own, share a bottleneck of `spanwire switch`.
//!
//! The servers share the one port behind the bottleneck: each has a macvlan of that host's
//! interface in its own namespace. Rates are so low that two busy cores do not limit them. Nothing
//! is set but the algorithm: path and hosts calibrate it.

use crate::lab::{Running, SPANWIRE, run_here, start_here, until_right};
use crate::switch::SwitchLab;
use serde_json::Value;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A lab with clients on hosts `c1` and up, and servers behind port `a`.
pub(crate) struct Shared {
    servers: Vec<String>,
    lab: SwitchLab,
}

/// The result of a run.
pub(crate) struct Outcome {
    /// Each client's rate over the last half of the common running time, in Mbit/s.
    pub(crate) mbps: Vec<f64>,
    /// Samples of the bottleneck's queue in bytes in that time, sorted.
    pub(crate) queue_bytes: Vec<u64>,
    pub(crate) reports: Vec<Value>,
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
        let mut shared = Self { servers: Vec::new(), lab };
        for server in 1..=n {
            shared.add_server(server);
        }
        Some(shared)
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

    /// Runs all clients simultaneously for `seconds`, each with its number for `{n}` in `more`.
    pub(crate) fn run(&self, seconds: &str, more: &[&str]) -> Outcome {
        let serve = ["perf", "server", "--dev", "sw0"];
        let servers: Vec<Running> = (1..=self.servers.len())
            .map(|n| {
                let ns = self.lab.ns(&format!("s{n}"));
                Running::start_until(&ns, &serve, "serving on sw0")
            })
            .collect();
        let timed = ["-i", "0.1", "-t", seconds];
        let clients: Vec<Running> = (1..=self.servers.len())
            .map(|n| {
                let (host, to) = (format!("c{n}"), server_address(n));
                let perf = [SPANWIRE, "perf", "client", "--dev", "sw0", &to, "--json"];
                let at = ["lab", "exec", "--name", &self.lab.name, &host, "--"];
                let own: Vec<String> =
                    more.iter().map(|arg| arg.replace("{n}", &n.to_string())).collect();
                let own: Vec<&str> = own.iter().map(String::as_str).collect();
                start_here(&[&at[..], &perf, &timed, &own].concat())
            })
            .collect();
        let (samples, reports) = self.sample_while(clients);
        for server in servers {
            server.terminate();
        }
        Outcome::of(reports, &samples)
    }

    /// Samples the switch until all clients have ended.
    fn sample_while(&self, mut clients: Vec<Running>) -> (Vec<Value>, Vec<Value>) {
        let mut samples = Vec::new();
        let give_up = Instant::now() + Duration::from_secs(60);
        while clients.iter_mut().any(Running::is_running) && Instant::now() < give_up {
            samples.push(self.ctl());
            thread::sleep(Duration::from_millis(40));
        }
        (samples, clients.into_iter().map(|client| client.wait().json()).collect())
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
    fn of(reports: Vec<Value>, samples: &[Value]) -> Self {
        let began = |r: &Value| r["start_unix_s"].as_f64().expect("a time");
        let intervals = |r: &Value| r["intervals"].as_array().expect("a list").clone();
        let end = |i: &Value| i["end_s"].as_f64().expect("a time");
        let last = |r: &Value| began(r) + intervals(r).last().map_or(0.0, end);
        let from = reports.iter().map(began).fold(0.0, f64::max);
        let to = reports.iter().map(last).fold(f64::INFINITY, f64::min);
        let half = f64::midpoint(from, to);
        let rate = |r: &Value| {
            let within = |i: &&Value| (half..=to).contains(&(began(r) + end(i)));
            let all = intervals(r);
            let rates: Vec<f64> =
                all.iter().filter(within).filter_map(|i| i["gbps"].as_f64()).collect();
            1e3 * rates.iter().sum::<f64>() / rates.len() as f64
        };
        let settled =
            |s: &&Value| s["at_unix_s"].as_f64().is_some_and(|at| (half..=to).contains(&at));
        let mut queue_bytes: Vec<u64> = samples
            .iter()
            .filter(settled)
            .map(|s| s["ports"][0]["queue_bytes"].as_u64().expect("bytes"))
            .collect();
        queue_bytes.sort_unstable();
        let outcome = Self { mbps: reports.iter().map(rate).collect(), queue_bytes, reports };
        for report in &outcome.reports {
            assert_eq!(report["ok"], true, "{report}");
        }
        assert!(outcome.queue_bytes.len() >= 5, "the switch was sampled");
        outcome
    }

    /// Jain's index: 1 if all rates are equal.
    pub(crate) fn jain(&self) -> f64 {
        let (sum, squares) =
            self.mbps.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (self.mbps.len() as f64 * squares)
    }

    /// A complaint if Jain's index or the total rate is too low.
    pub(crate) fn complaint(&self, jain: f64, mbps: f64) -> Option<String> {
        let sum: f64 = self.mbps.iter().sum();
        (self.jain() < jain || sum < mbps).then(|| self.text())
    }

    /// Rates, and what each client reports of its flow.
    pub(crate) fn text(&self) -> String {
        let of = |r: &Value| format!("{} {}", r["flow"], r["congestion"]);
        let said: Vec<_> = self.reports.iter().map(of).collect();
        format!("{:?} Mbit/s, Jain's index {:.3}, {said:#?}", self.mbps, self.jain())
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
        until_right(|| shared.run("6", &[]).complaint(0.95, 30.0));
    }
}

#[test]
fn unocc__two_processes_share_and_the_queue_stays_under_the_threshold() {
    let Some(shared) = Shared::new(2, PHANTOM) else { return };
    until_right(|| {
        let outcome = shared.run("6", &["--cc", "unocc"]);
        // The phantom queue drains nine tenths, of which 1408 of 1530 bytes are payload: 41.4.
        outcome.complaint(0.95, 30.0).or_else(|| {
            let queue = &outcome.queue_bytes;
            let p90 = queue[queue.len() * 9 / 10];
            let text = || format!("marks begin at 15 kB: {queue:?}, {}", outcome.text());
            (p90 >= 15_000).then(text)
        })
    });
}

#[test]
fn unocc__four_processes_share() {
    let Some(shared) = Shared::new(4, PHANTOM) else { return };
    // A flow has 13 packets in flight, and a mark takes a part of them: over 3 s of a round trip of
    // 8 ms Jain's index is 0.95 give or take 0.02, over 8 s 0.97.
    until_right(|| shared.run("16", &["--cc", "unocc"]).complaint(0.95, 30.0));
}

#[test]
fn swift__two_processes_share() {
    let Some(shared) = Shared::new(2, "") else { return };
    until_right(|| shared.run("6", &["--cc", "swift"]).complaint(0.95, 30.0));
}

#[test]
fn dcqcn__two_processes_share_by_cnps_and_by_counts() {
    let Some(shared) = Shared::new(2, RED) else { return };
    for mode in ["rc", "sr"] {
        until_right(|| {
            let outcome = shared.run("6", &["--cc", "dcqcn", "--mode", mode]);
            for report in &outcome.reports {
                let cnps = report["flow"]["cnps"].as_u64();
                assert_eq!(cnps > Some(0), mode == "rc", "{mode}: {}", report["flow"]);
            }
            outcome.complaint(0.95, 20.0)
        });
    }
}
