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
        check(&client.end_with(signal), expected);
        server.kill();
        let server = lab.server(&[]);
        let client = lab.start_client(lab.v4(), &ENDLESS);
        lab.await_traffic(OUTSTANDING);
        check(&server.end_with(signal), expected);
        assert!(!client.wait().success);
        let mut demo = start_here(&["demo", "--fabric", "pipe", "--ms", "60000"]);
        demo.await_output(|text| text.contains("RoCEv2 over an in-process pipe"));
        check(&demo.end_with(signal), expected);
        let swarm = ["sim", "swarm", "--seeds", "100000000", "--threads", "2", "--json"];
        let swarm = start_here(&swarm);
        swarm.await_threads();
        check(&swarm.end_with(signal), expected);
    }
}
