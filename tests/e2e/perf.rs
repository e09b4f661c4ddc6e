//! `spanwire perf` as in the tour.

use super::lab::{Lab, Outcome, PERF_PORT, await_unread};
use serde_json::Value;
use spanwire_io::net::LabConfig;

/// The first column of the tour's table "Try on the client".
fn table_of_things_to_try() -> Vec<String> {
    let tour = include_str!("../../docs/TOUR.md");
    let rest = tour.split_once("Try on the client:").expect("the tour has the table").1;
    let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('|').nth(1).expect("a column").trim().to_owned()).collect()
}

/// The texts between backticks.
fn commands(column: &str) -> Vec<Vec<String>> {
    let spans = column.split('`').skip(1).step_by(2);
    spans.map(|span| span.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn client__runs_the_tours_table_in_its_order_against_one_server() {
    let Some(lab) = Lab::new(1500) else { return };
    let capture = std::env::temp_dir().join(format!("spanwire-e2e-{}.pcap", std::process::id()));
    let server = lab.server(&[]);
    let mut tried = 0;
    for column in table_of_things_to_try() {
        for mut args in commands(&column) {
            let mut to = lab.v4();
            if column.ends_with("as the address") {
                to = args.remove(0).parse().expect("the tour names an address");
            }
            let is_transfer = args.iter().any(|arg| arg == "--transfer");
            match args.iter().position(|arg| arg == "-t") {
                Some(at) => args[at + 1] = "1".into(),
                None if is_transfer => {}
                None => args.extend(["-t".into(), "0.5".into()]),
            }
            if let Some(at) = args.iter().position(|arg| arg == "--pcap") {
                args[at + 1] = capture.display().to_string();
            }
            if !args.iter().any(|arg| arg == "--json") {
                args.push("--json".into());
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let outcome = lab.client(to, &args);
            let report = outcome.json();
            assert_eq!(report["error"], Value::Null, "{args:?}: {report}");
            // A busy machine may miss a threshold, which is no error.
            let is_met = report["thresholds"].as_array().is_some_and(Vec::is_empty);
            assert!(report["ok"] == true || !is_met, "{args:?}: {report}");
            tried += 1;
        }
    }
    std::fs::remove_file(&capture).expect("README captures once");
    assert!(tried >= 11, "{tried} of README's rows were understood");
    server.terminate();
}

/// At 1 Mbit/s, which no client exceeds, the requests outstanding at the end of a run would take
/// two minutes. The limit of a second is that of `initiator::tests`, in virtual time.
#[test]
fn client__a_run_ends_with_requests_outstanding_whatever_the_rate() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    // A rate that is low on every machine: an algorithm that is slow on one may be fast on another.
    let slow = ["--cc", "fixed", "--cc-set", "rate_mbps=1", "--size", "16K", "--depth", "1024"];
    let report = lab.client(lab.v4(), &[&slow[..], &["-t", "0.5", "--json"]].concat()).json();
    let row = &report["perf"][0];
    assert_eq!((&report["ok"], &row["error"]), (&true.into(), &Value::Null), "{report}");
    let counts = ["messages", "unfinished"].map(|name| row[name].as_u64().expect("a count"));
    assert!(counts[0] > 0 && counts[1] > 0, "{report}");
    server.terminate();
}

/// A run whose server is stopped after `bytes` have arrived there, and continued once the client
/// has ended the run.
fn run_with_stopped_server(lab: &Lab, bytes: u64, args: &[&str]) -> Outcome {
    let server = lab.server(&[]);
    let run = ["-t", STOPPED_RUN_S, "--timeout", "18", "--line-rate", "50Mbit", "--json"];
    let client = lab.start_client(lab.v4(), &[&run[..], args].concat());
    lab.await_traffic(bytes);
    server.stop();
    await_unread(&lab.hosts.a.ns, PERF_PORT);
    server.signal(libc::SIGCONT);
    let outcome = client.wait();
    server.terminate();
    outcome
}

/// Seconds of a run whose server is stopped near its start.
const STOPPED_RUN_S: &str = "3";

#[test]
fn client__rates_are_over_the_whole_run_if_the_server_is_stopped() {
    let Some(lab) = Lab::new(1500) else { return };
    let wanted = ["--min-gbps", "0.03"];
    for (bytes, args) in [
        (2 << 20, &["--op", "write", "--mode", "rc"][..]),
        (1 << 14, &["--op", "read", "--mode", "sr"]),
        (1 << 14, &["--op", "atomic", "--mode", "rc"]),
        (1 << 14, &["--op", "send", "--lat", "--mode", "sr"]),
    ] {
        let outcome = run_with_stopped_server(&lab, bytes, &[args, &wanted].concat());
        let report = outcome.json();
        assert_eq!(outcome.code, Some(3), "{args:?}: {report}");
        let outcome = (&report["ok"], &report["error"]);
        assert_eq!(outcome, (&false.into(), &Value::Null), "{args:?}: {report}");
        let row = &report["perf"][0];
        let figure = |name: &str| row[name].as_f64().expect("a number");
        let run_s: f64 = STOPPED_RUN_S.parse().expect("a number");
        assert!(figure("seconds") >= run_s, "{args:?}: {row}");
        let (messages, size) = (figure("messages"), figure("size"));
        assert!(messages > 0.0 && figure("unfinished") > 0.0, "{args:?}: {row}");
        let most = messages / run_s * 1.000_001;
        assert!(figure("gbps") <= most * size * 8.0 / 1e9, "{args:?}: {row}");
        assert!(figure("msgs_per_s") <= most, "{args:?}: {row}");
        assert!(figure("longest_gap_s") > 0.0, "{args:?}: {row}");
        let intervals = report["intervals"].as_array().expect("a list");
        let end = intervals.last().expect("an interval")["end_s"].as_f64();
        assert_eq!(end, Some(figure("seconds")), "{args:?}: {report}");
        let moved: f64 = intervals.iter().filter_map(|i| i["bytes"].as_f64()).sum();
        assert!((moved - messages * size).abs() < 0.5, "{args:?}: {report}");
    }
}

#[test]
fn client__reports_its_measurement_without_a_server_that_stays_stopped() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let args = ["-t", "2", "--timeout", "18", "--op", "atomic", "--json", "--min-gbps", "1000"];
    let client = lab.start_client(lab.v4(), &args);
    lab.await_traffic(1 << 16);
    server.stop();
    let outcome = client.wait();
    server.kill();
    let report = outcome.json();
    // A lost peer takes precedence over a missed threshold.
    assert_eq!((outcome.code, &report["ok"]), (Some(4), &false.into()), "{report}");
    let error = report["error"].as_str().expect("a sentence");
    assert!(error.starts_with("the peer's result is missing: "), "{error}");
    assert!(report["perf"][0]["messages"].as_u64() > Some(0), "{report}");
    assert!(report["perf"][0]["seconds"].as_f64() >= Some(2.0), "{report}");
    assert_eq!(report["atomics_carried_out"], Value::Null);
}

#[test]
fn client__a_path_mtu_is_used_or_rejected() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    for mode in ["rc", "sr"] {
        let run = |mtu| {
            let args = ["--mode", mode, "-m", mtu, "--transfer", "256K", "--json"];
            lab.client(lab.v4(), &args)
        };
        let report = run("512").json();
        assert_eq!((&report["ok"], &report["segment_bytes"]), (&true.into(), &512.into()));
        let refused = run("4096");
        assert_eq!(refused.code, Some(2), "{mode}: {}", refused.stdout);
        let most = if mode == "rc" { "1024" } else { "1408" };
        for words in ["--mtu 4096", most] {
            assert!(refused.stderr.contains(words), "{mode}: {}", refused.stderr);
        }
    }
    server.terminate();
}

#[test]
fn client__reports_that_no_packet_was_received() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let args = ["--loss", "100", "--retry", "1", "--timeout", "10", "-t", "0.2", "--json"];
    let outcome = lab.client(lab.v4(), &args);
    let error = outcome.json()["error"].as_str().expect("it failed").to_owned();
    for words in ["not one packet came back", "spanwire doctor", "sw0, queue 0"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(outcome.code, Some(4));
    server.terminate();
}

#[test]
fn server__on_a_queue_that_gets_no_packets_warns_and_the_client_names_the_queues() {
    let Some(lab) = Lab::with(&LabConfig { queues: 2, ..LabConfig::default() }) else { return };
    // Frames sent on queue 0 of a veth pair arrive on queue 0.
    let server = lab.server(&["--queue", "1"]);
    let args = ["--retry", "1", "--timeout", "10", "-t", "0.2", "--json"];
    let outcome = lab.client(lab.v4(), &args);
    let error = outcome.json()["error"].as_str().expect("it failed").to_owned();
    for words in ["not one packet came back", "sw0, queue 0: 2 receive queues"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(outcome.code, Some(4));
    let said = server.end_with(libc::SIGTERM).stderr;
    for words in
        ["warning: sw0: 2 receive queues", "queue 1", "spanwire doctor --dev sw0 --queue 1"]
    {
        assert!(said.contains(words), "{said}");
    }
}
