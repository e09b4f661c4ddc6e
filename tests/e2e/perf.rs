//! `spanwire perf` as in the README.

use super::lab::Lab;
use serde_json::Value;
use spanwire_io::net::LabConfig;

/// The first column of README's table "Try on the client".
fn table_of_things_to_try() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let rest = readme.split_once("Try on the client:").expect("README has the table").1;
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
fn client__runs_readmes_table_in_its_order_against_one_server() {
    let Some(lab) = Lab::new(1500) else { return };
    let capture = std::env::temp_dir().join(format!("spanwire-e2e-{}.pcap", std::process::id()));
    let server = lab.server(&[]);
    let mut tried = 0;
    for column in table_of_things_to_try() {
        for mut args in commands(&column) {
            let mut to = lab.v4();
            if column.ends_with("as the address") {
                to = args.remove(0).parse().expect("README names an address");
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
