//! The exit codes of docs/TOOLS.md, as seen by a shell.

use crate::copy::{TempDir, receiver};
use crate::lab::{Lab, Outcome, run_here, start_here};
use crate::{ENDLESS, OUTSTANDING};
use std::fs;

fn check(outcome: &Outcome, expected: i32) {
    assert_eq!(outcome.code, Some(expected), "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn exit__2_is_wrong_usage_of_every_command() {
    let no_file = "/nonexistent/file";
    for args in [
        &["perf", "client", "--loss", "101", "127.0.0.1", "--dev", "lo"][..],
        &["perf", "client", "--cc", "nothing", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "--min-gbps", "nan", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "--max-p99-us", "inf", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "-i", "nan", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "-i", "1e-9", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "-t", "0", "--min-gbps", "1", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "-t=-1", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "--loss", "0.00001", "127.0.0.1", "--dev", "lo"],
        &["perf", "client", "--cc-rtt", "0us", "127.0.0.1", "--dev", "lo"],
        &["copy", "receive", "--into", "/tmp", "--handshake-timeout", "inf"],
        &["copy", "receive", "--into", "/tmp", "--loss", "nan"],
        &["switch", "--config", no_file, "-i", "1e-9"],
        &["switch", "ctl", "show", "-i", "0"],
        &["lab", "up", "--prefix", "127.0.0.0/8"],
        &["lab", "up", "--prefix", "224.0.0.0/4"],
        &["lab", "up", "--prefix", "0.0.0.0/0"],
        &["lab", "up", "--prefix6", "ff02::/64"],
        &["sim", "run", "pair", "--set", "segment=1"],
        &["sim", "run", "pair", "--set", "timeout=0ms"],
        &["sim", "run", "pair", "--set", "sample=0s"],
        &["sim", "run", "pair", "--set", "message=1000000000"],
        &["sim", "run", "loss-sweep", "--set", "segment=1"],
        &["copy", "send", "/etc/hostname", "10.0.0.1:0"],
        &["copy", "send", no_file, "10.0.0.1"],
        &["switch", "--config", no_file],
        &["switch"],
        &["sim", "run", "nothing"],
        &["pcap", no_file],
        &["plot", no_file, "--out", "/dev/null"],
        &["lab", "up", "--name", "no/name"],
        &["lab", "status", "--name", "no/name"],
        &["doctor", "--queue", "1"],
        &["demo", "--mib", "0"],
    ] {
        let outcome = run_here(args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {}{}", outcome.stdout, outcome.stderr);
    }
}

/// Also where another error has the same code.
#[test]
fn exit__2_names_the_number_without_a_meaning() {
    let no_file = "/nonexistent/file";
    for (args, words) in [
        (&["switch", "--config", no_file, "-i", "1e-9"][..], "1e-9 is no time from"),
        (&["copy", "receive", "--into", "/tmp", "--loss", "nan"], "nan is no percentage"),
        (&["copy", "receive", "--into", "/tmp", "--handshake-timeout", "inf"], "inf is no time"),
        (&["copy", "receive", "--into", "/tmp", "--stall-timeout", "1e300"], "1e300 is no time"),
        (&["perf", "client", "-t", "0", "127.0.0.1", "--dev", "lo"], "0 is no time from"),
    ] {
        let outcome = run_here(args);
        check(&outcome, 2);
        assert!(outcome.stderr.contains(words), "{args:?}: {}", outcome.stderr);
    }
}

/// The outcome of a command that failed before its report: its code, and one object.
fn check_json(outcome: &Outcome, expected: i32, words: &str) {
    check(outcome, expected);
    let report = outcome.json();
    assert_eq!((&report["ok"], &report["exit"]), (&false.into(), &expected.into()), "{report}");
    let error = report["error"].as_str().expect("a sentence");
    assert!(error.contains(words), "{words:?} is not in {error:?}");
    assert!(outcome.stderr.contains(error), "{}", outcome.stderr);
}

#[test]
fn exit__wrong_usage_is_json_too_of_every_command() {
    let no_file = "/nonexistent/file";
    for (args, words) in [
        (&["perf", "client", "--loss", "101", "127.0.0.1", "--dev", "lo", "--json"][..], "--loss"),
        (&["perf", "server", "--dup", "101", "--dev", "lo", "--json"], "--dup"),
        (&["copy", "send", no_file, "10.0.0.1", "--json"], no_file),
        (&["copy", "receive", "--dev", "lo", "--into", no_file, "--json"], no_file),
        (&["switch", "--config", no_file, "--json"], no_file),
        (&["sim", "run", "nothing", "--json"], "nothing"),
        (&["lab", "status", "--name", "no/name", "--json"], "no/name"),
    ] {
        check_json(&run_here(args), 2, words);
    }
    check_json(&run_here(&["doctor", "--dev", "nonexistent", "--json"]), 1, "nonexistent");
    // One sentence, as the other errors have it.
    let usage = run_here(&["perf", "client", "--json"]);
    let error = usage.json()["error"].as_str().map(str::to_owned).unwrap_or_default();
    assert!(error.starts_with("the following required arguments") && error.lines().count() == 1);
    assert!(usage.stderr.contains("Usage:"), "{}", usage.stderr);
}

#[test]
fn exit__a_failure_before_the_report_is_json_too() {
    let Some(lab) = Lab::new(1500) else { return };
    let from = TempDir::new();
    let file = from.join("f");
    fs::write(&file, "x").unwrap();
    let to = lab.v4().to_string();
    check_json(&lab.client(lab.v4(), &["--json"]), 4, "is `spanwire perf server` running there?");
    let send = ["copy", "send", &file, &to, "--json"];
    check_json(&lab.run(&lab.hosts.b.ns, &send), 4, "is `spanwire copy receive` running there?");
    let server = lab.json_server(&["--max-transfer", "1M"]);
    let refused = lab.client(lab.v4(), &["--transfer", "2M", "--json"]);
    check_json(&refused, 1, "--max-transfer");
    let served = server.end_with(libc::SIGTERM);
    assert_eq!((&served.json()["ok"], served.code), (&false.into(), Some(0)), "{}", served.stdout);
    assert!(served.json()["client"].is_string(), "{}", served.stdout);
    // A server that is interrupted during a job.
    let server = lab.json_server(&[]);
    let client = lab.start_client(lab.v4(), &ENDLESS);
    lab.await_traffic(OUTSTANDING);
    check_json(&server.end_with(libc::SIGINT), 130, "interrupted");
    assert_eq!(client.wait().json()["ok"], false);
}

#[test]
fn exit__3_is_a_missed_threshold() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    check(&lab.client(lab.v4(), &["--seconds", "0.3", "--min-gbps", "100000"]), 3);
    check(&lab.client(lab.v4(), &["--seconds", "0.3", "--lat", "--max-p99-us", "0"]), 3);
    server.terminate();
}

#[test]
fn exit__4_is_an_unreachable_peer() {
    let Some(lab) = Lab::new(1500) else { return };
    let from = TempDir::new();
    let file = from.join("f");
    fs::write(&file, "x").unwrap();
    let to = lab.v4().to_string();
    check(&lab.client(lab.v4(), &["--seconds", "0.2"]), 4);
    check(&lab.run(&lab.hosts.b.ns, &["copy", "send", &file, &to]), 4);
    // A peer that stops responding during the transfer.
    let server = lab.server(&[]);
    let client = lab.start_client(lab.v4(), &ENDLESS);
    lab.await_traffic(OUTSTANDING);
    server.kill();
    check(&client.wait(), 4);
}

#[test]
fn exit__5_is_a_failed_verification() {
    let Some(lab) = Lab::new(1500) else { return };
    let (from, into) = (TempDir::new(), TempDir::new());
    let file = from.join("f");
    fs::write(&file, "new").unwrap();
    fs::write(into.join("f"), "precious").unwrap();
    let to = lab.v4().to_string();
    let receiver = receiver(&lab, &into, &["--once"]);
    check(&lab.run(&lab.hosts.b.ns, &["copy", "send", &file, &to]), 5);
    check(&receiver.wait(), 5);
}

#[test]
fn exit__sigint_and_sigterm_have_codes_of_their_own() {
    let Some(lab) = Lab::new(1500) else { return };
    for (signal, expected) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        // Between two jobs a signal is the regular end of a server.
        check(&lab.server(&[]).end_with(signal), 0);
        let server = lab.server(&[]);
        let client = lab.start_client(lab.v4(), &ENDLESS);
        lab.await_traffic(OUTSTANDING);
        let ended = client.end_with(signal);
        check(&ended, expected);
        assert_eq!(ended.json()["exit"], expected);
        server.kill();
        let server = lab.server(&[]);
        let client = lab.start_client(lab.v4(), &ENDLESS);
        lab.await_traffic(OUTSTANDING);
        check(&server.end_with(signal), expected);
        assert!(!client.wait().success);
        let mut demo = start_here(&["demo", "--fabric", "pipe", "--ms", "60000"]);
        demo.await_output(|text| text.contains("RoCEv2 over an in-process pipe"));
        check(&demo.end_with(signal), expected);
        let demo = start_here(&["demo", "--fabric", "pipe", "--ms", "60000", "--json"]);
        demo.await_threads();
        check_json(&demo.end_with(signal), expected, "interrupted");
        let swarm = ["sim", "swarm", "--seeds", "100000000", "--threads", "2", "--json"];
        let swarm = start_here(&swarm);
        swarm.await_threads();
        check(&swarm.end_with(signal), expected);
    }
}
