//! The whole run, short: tests the structure of its report, not its numbers.
//!
//! Needs root. Without it the test prints the reason and passes; with
//! `SPANWIRE_REQUIRE_E2E=1` it fails.
#![expect(non_snake_case, reason = "tests are named function__case")]

use serde_json::Value;
use spanwire_io::affinity;
use spanwire_io::net::NetNs;
use std::process::Command;

/// The reason the run is not possible on this machine, if any.
fn obstacle() -> Option<String> {
    if let Err(e) = NetNs::new_anonymous() {
        return Some(e.to_string());
    }
    let cores = affinity::usable_cores();
    (!cores.starts_with(&[0, 1])).then(|| format!("no cores 0 and 1, only {cores:?}"))
}

#[test]
fn veth__a_short_run_measures_every_variant() {
    if let Some(reason) = obstacle() {
        let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
        assert!(!required, "SPANWIRE_REQUIRE_E2E=1, but skipped: {reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let svg = std::env::temp_dir().join(format!("spanwire-bench-{}.svg", std::process::id()));
    // Limits that a busy machine keeps, too: a thread may wait for its core all the time. A job of
    // the engine fails if nothing completes within its time and a second more.
    let args = "veth --rounds 1 --ms 500 --json --max-distance inf --max-stolen 101 --svg";
    let output = Command::new(env!("CARGO_BIN_EXE_spanwire-bench"))
        .args(args.split(' '))
        .arg(&svg)
        .output()
        .expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    let rates = report["rates"].as_array().expect("a list");
    assert_eq!(rates.len(), 16);
    for row in rates {
        let name = row["name"].as_str().expect("a name");
        assert_eq!(row["tally"]["kept"], 1, "{row}");
        assert!(row["goodput_gbps"]["median"].as_f64().expect("a number") > 0.0, "{row}");
        let packets = row["packets_per_s"]["median"].as_f64();
        assert_eq!(packets.is_some(), !name.starts_with("kernel TCP"), "{row}");
    }
    let latencies = report["latencies"].as_array().expect("a list");
    assert_eq!(latencies.len(), 6);
    for row in latencies {
        let p50 = row["rtt_p50_us"]["median"].as_f64().expect("a number");
        let p99 = row["rtt_p99_us"]["median"].as_f64().expect("a number");
        assert!(0.0 < p50 && p50 <= p99, "{row}");
    }
    let headlines = report["shares"].as_array().expect("a list").iter();
    assert_eq!(headlines.filter(|share| share["headline"] == true).count(), 2);
    // Infinite, which JSON has not, if one of the cores was busy all the time.
    let distance = &report["distance_ns"]["median"];
    assert!(distance.is_null() || distance.as_f64().expect("a number") > 0.0, "{distance}");
    let chart = std::fs::read_to_string(&svg).expect("the chart");
    assert!(chart.starts_with("<svg ") && chart.matches("<rect").count() == 16);
    std::fs::remove_file(&svg).expect("ours");
}

#[test]
fn veth__an_mtu_beyond_one_buffer_is_rejected() {
    let output = Command::new(env!("CARGO_BIN_EXE_spanwire-bench"))
        .args(["veth", "--mtu", "9000"])
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("3506"));
}
