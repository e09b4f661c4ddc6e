//! Congestion control by name, over real ports.

mod line_rate;
pub(crate) mod shared;

use crate::lab::{HANG, Lab, Outcome};
use serde_json::{Value, json};
use spanwire_cc::Algorithm;
use std::time::{SystemTime, UNIX_EPOCH};

/// The JSON output of both ends after a run: the client's report, the server's.
fn run(lab: &Lab, server: &[&str], client: &[&str]) -> (Value, Value) {
    let server = lab.json_server(&[&["--one-off"], server].concat());
    let report = lab.client(lab.v4(), &[&["--json"], client].concat()).json();
    (report, server.wait().json())
}

#[test]
fn cc__moves_every_byte_with_each_algorithm_in_both_modes() {
    let Some(lab) = Lab::new(1500) else { return };
    for (n, name) in Algorithm::NAMES.iter().enumerate() {
        let (mode, op) = if n % 2 == 0 { ("sr", "write") } else { ("rc", "send") };
        let args = ["--transfer", "8M", "--cc", name, "--mode", mode, "--op", op];
        let (report, _) = run(&lab, &[], &args);
        assert_eq!(report["ok"], true, "{name}: {report}");
        assert_eq!(report["transfer"]["sha256_match"], true, "{name}: {report}");
        assert_eq!(report["congestion"]["name"], *name, "{report}");
    }
}

#[test]
fn cc__the_server_uses_its_clients_choice_without_one_of_its_own() {
    let Some(lab) = Lab::new(1500) else { return };
    // Set to be found at the server; a user sets them to run a configuration of the literature.
    let wish = ["--cc", "swift", "--cc-set", "beta=0.4", "--cc-rtt", "200us"];
    // Both ends send: a ping-pong, and READ responses.
    for how in [&["--op", "send", "--lat"][..], &["--op", "read", "--mode", "sr"]] {
        let args = [&wish[..], &["--seconds", "0.3"], how].concat();
        let (report, served) = run(&lab, &[], &args);
        assert_eq!(report["ok"], true, "{report}");
        let swift = json!({"name": "swift", "set": {"beta": "0.4"}, "base_rtt_ns": 200_000});
        assert_eq!((&configured(&report), &served["congestion"]), (&swift, &swift));
        let (report, served) = run(&lab, &["--cc", "unocc"], &args);
        assert_eq!(report["ok"], true, "{report}");
        let unocc = json!({"name": "unocc"});
        assert_eq!((&configured(&report), &served["congestion"]), (&swift, &unocc));
    }
}

/// The congestion control that was configured, without the signals that it used.
fn configured(report: &Value) -> Value {
    let all = report["congestion"].as_object().expect("an object").iter();
    all.filter(|(key, _)| matches!(key.as_str(), "name" | "set" | "base_rtt_ns"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// `auto` has its signals on a path that marks nothing. It may see a process without a processor as
/// losses, or as traffic that fills the queue; a mark it cannot see.
#[track_caller]
pub(crate) fn check_auto_without_marks(congestion: &Value) {
    assert_eq!(congestion["name"], "auto", "{congestion}");
    let chosen = congestion["chosen"].as_str().expect("the signals");
    assert!(["delay", "delay, loss", "loss"].contains(&chosen), "{congestion}");
    assert!(congestion["reason"].as_str().is_some_and(|why| !why.is_empty()), "{congestion}");
}

#[test]
fn cc__is_auto_by_default_and_reports_its_signals() {
    let Some(lab) = Lab::new(1500) else { return };
    for mode in ["sr", "rc"] {
        let (report, served) = run(&lab, &[], &["--transfer", "16M", "--mode", mode]);
        assert_eq!(report["ok"], true, "{report}");
        let congestion = &report["congestion"];
        check_auto_without_marks(congestion);
        assert_eq!(served["congestion"]["name"], "auto");
        let us = |name: &str| congestion[name].as_f64().expect("microseconds");
        // A veth pair on one machine takes a microsecond at least, and its hosts are late by any
        // time.
        assert!(us("base_rtt_us") >= 1.0 && us("host_late_us") >= 0.0, "{congestion}");
        assert!(us("target_us") > 0.0, "{congestion}");
    }
    let (report, _) = run(&lab, &[], &["-t", "0.3", "--cc", "none"]);
    assert_eq!(report["congestion"], json!({"name": "none"}));
}

/// Checks the intervals of a report: they adjoin, only the last may be shorter than 0.1 s, by half,
/// and they add up to the time and the bytes of the whole run.
fn check_intervals(report: &Value) {
    let intervals = report["intervals"].as_array().expect("a list");
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(!intervals.is_empty(), "{report}");
    let (mut end, mut bytes) = (0.0, 0.0);
    for (i, interval) in intervals.iter().enumerate() {
        let least = if i + 1 < intervals.len() { 0.099_999 } else { 0.049_999 };
        let [from, to] = ["start_s", "end_s"].map(|name| number(&interval[name]));
        assert!(from == end && to - from > least, "{interval} after {end}: {report}");
        (end, bytes) = (to, bytes + number(&interval["bytes"]));
        let gbps = number(&interval["bytes"]) * 8.0 / (to - from) / 1e9;
        assert!((number(&interval["gbps"]) - gbps).abs() <= gbps * 1e-6, "{interval}");
        assert!(interval["flow"]["cwnd_bytes"].is_u64(), "{interval}");
    }
    let row = &report["perf"][0];
    assert_eq!(
        (end, bytes),
        (number(&row["seconds"]), number(&row["messages"]) * number(&row["size"]))
    );
}

/// Which limit is the largest depends on the machine: that is asserted in virtual time, by the
/// tests of `transport::qp::flow`.
#[test]
fn flow__reports_window_rate_rtt_and_limits() {
    let Some(lab) = Lab::new(1500) else { return };
    // The limits: window, pacing, application, receive credit. A user sets window and rate of
    // `fixed` to send at a known rate, since nothing else determines them.
    let fixed = |set: &'static str| vec!["--cc", "fixed", "--cc-set", set];
    let few = ["--cc", "fixed", "--depth", "1", "--size", "64", "--lat"];
    for (by, args) in [
        ("window", fixed("window_pkts=2")),
        ("pacer", fixed("rate_mbps=20")),
        ("application", few.to_vec()),
    ] {
        for mode in ["sr", "rc"] {
            let more = ["-t", "0.5", "-i", "0.1", "--mode", mode];
            let (report, _) = run(&lab, &[], &[&args[..], &more].concat());
            assert_eq!(report["ok"], true, "{report}");
            let flow = &report["flow"];
            let limited = flow["limited"].as_object().expect("parts").iter();
            let parts: Vec<(&str, f64)> =
                limited.map(|(name, part)| (&name[..], part.as_f64().expect("a part"))).collect();
            let part = |of: &str| parts.iter().find(|(name, _)| *name == of).expect("a limit").1;
            // Only a pacer delays packets, and only depth 1 leaves nothing posted.
            assert!(part(by) > 0.0, "{mode}: {flow}");
            assert_eq!(part("pacer") > 0.0, by == "pacer", "{mode}: {flow}");
            let largest = parts.iter().map(|(_, part)| *part).fold(0.0, f64::max);
            let named = flow["limited_by"].as_str().expect("a name");
            assert!((part(named) - largest).abs() < 1e-9, "{mode}: {flow}");
            let sum: f64 = parts.iter().map(|(_, part)| part).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{flow}");
            assert!(flow["srtt_us"].as_f64() > Some(1.0), "{flow}");
            assert_eq!(flow["marked"].is_null(), mode == "rc", "{flow}");
            check_intervals(&report);
            if by == "pacer" {
                assert_eq!(flow["rate_gbps"], 0.02);
                // With headers: of 20 Mbit/s, SR carries 18.4 and RC 18.5 of payload. Never more;
                // less if a preemption exceeds what may be caught up with.
                let gbps = report["perf"][0]["gbps"].as_f64().expect("a rate");
                assert!(gbps > 0.0 && gbps < 0.0186, "{mode}: {gbps}");
            }
        }
    }
    // Without congestion control only window and round trip are reported.
    let (report, _) =
        run(&lab, &[], &["-t", "0.3", "--mode", "rc", "--depth", "1", "--cc", "none"]);
    assert_eq!(report["flow"]["cwnd_bytes"], 192 * 1024);
    assert!(report["flow"]["limited"].is_null() && report["flow"]["limited_by"].is_null());
    let started = report["start_unix_s"].as_f64().expect("a time");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    assert!((0.0..HANG.as_secs_f64()).contains(&(now - started)), "{started} and {now}");
}

#[test]
fn cc__unknown_names_are_rejected_with_alternatives() {
    let Some(lab) = Lab::new(1500) else { return };
    for (args, words) in [
        (&["--cc", "unoc"][..], &["did you mean `unocc`?", "dcqcn-rnic", "timely-classic"][..]),
        (&["--cc", "swift", "--cc-set", "beta=2"], &["swift: beta is 2", "0.001 and 1"]),
        (&["--cc", "swift", "--cc-set", "gamma=2"], &["no parameter of swift `gamma`", "hop_us"]),
        (&["--cc-set", "beta=2"], &["auto: beta is 2", "0.01 and 1"]),
        (&["--line-rate", "1G"], &["25Gbit"]),
    ] {
        let Outcome { success, stderr, .. } = lab.client(lab.v4(), args);
        assert!(!success, "{args:?}");
        for word in words {
            assert!(stderr.contains(word), "{args:?}: no {word:?} in {stderr:?}");
        }
    }
}
