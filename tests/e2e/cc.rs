//! Congestion control by name, over real ports.

pub(crate) mod shared;

use crate::lab::{Lab, Outcome};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The JSON output of both ends after a run: the client's report, the server's.
fn run(lab: &Lab, server: &[&str], client: &[&str]) -> (Value, Value) {
    let args = [&["perf", "server", "--dev", "sw0", "--json", "--one-off"], server].concat();
    let server = lab.start(&lab.hosts.a.ns, &args);
    let client = [&["--json"], client].concat();
    // It prints nothing before it has served a client.
    let deadline = Instant::now() + Duration::from_secs(20);
    let report = loop {
        let outcome = lab.client(lab.v4(), &client);
        let is_early = outcome.stderr.contains("server` running there?");
        if !is_early || Instant::now() > deadline {
            break outcome.json();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (report, server.wait().json())
}

#[test]
fn cc__moves_every_byte_with_each_algorithm_in_both_modes() {
    let Some(lab) = Lab::new(1500) else { return };
    for (n, name) in ["unocc", "swift", "dcqcn", "timely", "bbr"].into_iter().enumerate() {
        let (mode, op) = if n % 2 == 0 { ("sr", "write") } else { ("rc", "send") };
        let args = ["--transfer", "8M", "--cc", name, "--mode", mode, "--op", op];
        let (report, _) = run(&lab, &[], &args);
        assert_eq!(report["ok"], true, "{name}: {report}");
        assert_eq!(report["transfer"]["sha256_match"], true, "{name}: {report}");
        assert_eq!(report["congestion"]["name"], name, "{report}");
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

#[test]
fn cc__is_auto_by_default_and_reports_its_signals() {
    let Some(lab) = Lab::new(1500) else { return };
    for mode in ["sr", "rc"] {
        let (report, served) = run(&lab, &[], &["-t", "1", "--mode", mode]);
        assert_eq!(report["ok"], true, "{report}");
        let congestion = &report["congestion"];
        assert_eq!((&congestion["name"], &congestion["chosen"]), (&json!("auto"), &json!("delay")));
        assert_eq!(served["congestion"]["name"], "auto");
        assert!(congestion["reason"].as_str().is_some_and(|why| !why.is_empty()), "{congestion}");
        let us = |name: &str| congestion[name].as_f64().expect("microseconds");
        // A veth pair on one machine: from a microsecond to the time slice of another process.
        assert!((1.0..50_000.0).contains(&us("base_rtt_us")), "{congestion}");
        assert!((0.0..50_000.0).contains(&us("host_late_us")), "{congestion}");
        assert!(us("target_us") > 0.0, "{congestion}");
    }
    let (report, _) = run(&lab, &[], &["-t", "0.3", "--cc", "none"]);
    assert_eq!(report["congestion"], json!({"name": "none"}));
}

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
            let more = ["-t", "1.1", "-i", "0.1", "--mode", mode];
            let (report, _) = run(&lab, &[], &[&args[..], &more].concat());
            assert_eq!(report["ok"], true, "{report}");
            let flow = &report["flow"];
            assert_eq!(flow["limited_by"], by, "{mode}: {flow}");
            let parts = flow["limited"].as_object().expect("parts").values();
            let sum: f64 = parts.map(|part| part.as_f64().expect("a part")).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{flow}");
            assert!(flow["srtt_us"].as_f64() > Some(1.0), "{flow}");
            assert_eq!(flow["marked"].is_null(), mode == "rc", "{flow}");
            let intervals = report["intervals"].as_array().expect("a list");
            assert!(intervals.len() >= 10, "{report}");
            assert!(intervals.iter().all(|i| i["flow"]["cwnd_bytes"].is_u64()), "{report}");
            if by == "pacer" {
                assert_eq!(flow["rate_gbps"], 0.02);
                // With headers: of 20 Mbit/s, SR carries 18.4 and RC 18.5 of payload. Never more;
                // less if a preemption exceeds what may be caught up with.
                let gbps = report["perf"][0]["gbps"].as_f64().expect("a rate");
                assert!((0.012..0.0186).contains(&gbps), "{mode}: {gbps}");
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
    assert!((0.0..60.0).contains(&(now - started)), "{started} and {now}");
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
