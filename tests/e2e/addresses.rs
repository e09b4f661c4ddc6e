//! Addresses of the two ends: both on one machine, and link-local ones with their zone.

use crate::copy::{TempDir, noise, receiver};
use crate::lab::{Lab, Running, SPANWIRE, piped, run_here};
use spanwire_host::fabric::FabricChoice;
use std::fs;
use std::process::Command;

#[test]
fn copy__both_ends_on_one_machine_over_udp() {
    // Addresses of this process's own: another one may use 127.0.0.1.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let [there, here] = [89, 90].map(|net| format!("127.{net}.{high}.{low}"));
    let (from, into) = (TempDir::new(), TempDir::new());
    let (file, bytes) = (from.join("f"), noise(3 << 20, 12));
    fs::write(&file, &bytes).expect("writable");
    let common = ["--dev", "lo", "--fabric", "udp", "--address"];
    let serve = [&["copy", "receive", "--once", "--into", &into.join("")], &common[..], &[&there]];
    let mut serving = Command::new(SPANWIRE);
    let receiver = Running::spawn_until(piped(&mut serving, &serve.concat()), "receiving on lo");
    let send = [&["copy", "send", &file, &there, "--json"], &common[..], &[&here]].concat();
    let sent = run_here(&send);
    assert_eq!(sent.code, Some(0), "{}{}", sent.stdout, sent.stderr);
    let report = sent.json();
    assert_eq!((&report["ok"], &report["fabric"]), (&true.into(), &"udp".into()), "{report}");
    let received = receiver.wait();
    assert_eq!(received.code, Some(0), "{}", received.stderr);
    assert!(fs::read(into.join("f")).expect("it is there") == bytes, "bytes differ");
}

/// The side connection is from `--address`, so the server needs no `--any-address`.
#[test]
fn perf__both_ends_on_one_machine_over_udp() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let [there, here] = [91, 92].map(|net| format!("127.{net}.{high}.{low}"));
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let common = ["--dev", "lo", "--fabric", "udp", "--port", &port, "--address"];
    let serve = [&["perf", "server", "--one-off"], &common[..], &[&there]].concat();
    let server = Running::spawn_until(piped(&mut Command::new(SPANWIRE), &serve), "serving on lo");
    let client = ["perf", "client", &there, "--transfer", "1M", "--json"];
    let ended = run_here(&[&client[..], &common, &[&here]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let report = ended.json();
    assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn link_local__a_zone_names_the_interface() {
    for fabric in [FabricChoice::Udp, FabricChoice::Xdp] {
        let Some(lab) = Lab::over(fabric) else { return };
        let b = &lab.hosts.b.ns;
        let (address, index) = (lab.hosts.a.link_local, lab.hosts.b.ifindex);
        let server = lab.server(&[]);
        for (zone, mode) in [("sw0".to_owned(), "rc"), (index.to_string(), "sr")] {
            let to = format!("{address}%{zone}");
            let client = ["perf", "client", &to, "--transfer", "1M", "--json", "--mode", mode];
            let ended = lab.run(b, &[&client[..], &lab.fabric_args()].concat());
            assert_eq!(ended.code, Some(0), "{to} {mode}: {}{}", ended.stdout, ended.stderr);
            let report = ended.json();
            assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        }
        server.terminate();
        let (from, into) = (TempDir::new(), TempDir::new());
        let (file, bytes) = (from.join("f"), noise(1 << 20, 13));
        fs::write(&file, &bytes).expect("writable");
        let receiver = receiver(&lab, &into, &["--once"]);
        let to = format!("[{address}%sw0]:18517");
        let send = [&["copy", "send", &file, &to, "--json"][..], &lab.fabric_args()].concat();
        let sent = lab.run(b, &send);
        assert_eq!(sent.code, Some(0), "{to}: {}{}", sent.stdout, sent.stderr);
        assert_eq!(sent.json()["peer"], to);
        assert_eq!(receiver.wait().code, Some(0));
        assert!(fs::read(into.join("f")).expect("it is there") == bytes, "bytes differ");
    }
}

#[test]
fn link_local__a_wrong_zone_is_wrong_usage() {
    for args in [
        &["perf", "client", "10.0.0.1%lo"][..],
        &["perf", "client", "fe80::1%"],
        &["perf", "client", "--dev", "other", "fe80::1%lo"],
        &["copy", "send", "/etc/hostname", "fd00::1%lo"],
        &["copy", "send", "--address", "10.0.0.1", "/etc/hostname", "fe80::1%lo"],
        &["copy", "send", "--dev", "other", "/etc/hostname", "[fe80::1%lo]:7"],
    ] {
        let ended = run_here(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("zone") || ended.stderr.contains("%lo"), "{}", ended.stderr);
    }
}
