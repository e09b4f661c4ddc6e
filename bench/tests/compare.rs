//! The whole run, short: tests the structure of its report and its counts, not its times.
//!
//! Needs root. Without it the test prints the reason and passes; with
//! `SPANWIRE_REQUIRE_E2E=1` it fails.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod common;

use common::{bench, is_skipped};
use serde_json::Value;
use spanwire_io::affinity;
use std::process::Output;

fn compare(args: &str) -> Output {
    bench(&["compare"]).args(args.split(' ')).output().expect("the command starts")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn compare__a_short_run_has_every_row_with_its_bytes_counted_and_verified() {
    let cores = affinity::usable_cores();
    let no_cores = || format!("no cores 0 and 1, only {cores:?}");
    if is_skipped((!cores.starts_with(&[0, 1])).then(no_cores)) {
        return;
    }
    let svg = std::env::temp_dir().join(format!("spanwire-bench-{}.svg", std::process::id()));
    // Limits that a busy machine keeps, too: a thread may wait for its core all the time. A job of
    // the engine fails if nothing completes within its time and a second more.
    let args = "--rounds 1 --ms 500 --json --max-distance 1e9 --max-stolen 101 --chart";
    let output = compare(&format!("{args} {}", svg.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{stderr}: {}", report["rates"]);

    let rates = list(&report["rates"]);
    assert_eq!(rates.len(), 26 + 19 + 14 + 14);
    rates.iter().for_each(check_rate);
    let latencies = list(&report["latencies"]);
    assert_eq!(latencies.len(), 6);
    for row in latencies {
        let [p50, p99] = ["rtt_p50_us", "rtt_p99_us"].map(|name| number(&row[name]["median"]));
        assert!(0.0 < p50 && p50 <= p99, "{row}");
    }
    let headlines = list(&report["shares"]).iter();
    assert_eq!(headlines.filter(|share| share["headline"] == true).count(), 2);
    // Infinite, which JSON has not, if one of the cores was busy all the time.
    let distance = &report["distance_ns"]["median"];
    assert!(distance.is_null() || number(distance) > 0.0, "{distance}");
    let chart = std::fs::read_to_string(&svg).expect("the chart");
    assert!(chart.starts_with("<svg ") && chart.contains("kernel TCP, offloads on"));
    std::fs::remove_file(&svg).expect("ours");
}

#[test]
fn compare__processor_time_of_paced_tcp_needs_no_command_and_that_of_perf_names_it() {
    if is_skipped((affinity::usable_cores().len() < 2).then(|| "one core".to_owned())) {
        return;
    }
    let args = "--rounds 1 --ms 20 --json --max-distance 1e9 --max-stolen 101 --repeats 0";
    let mut command = bench(&["compare", "--spanwire", "/nonexistent/spanwire"]);
    command.args(args.split(' ')).args(["--only", "cpu 200 Mbit/s: "]);
    let output = command.output().expect("the command starts");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [xdp, udp, tcp] = list(&report["cpu"]) else { panic!("{report}") };
    for perf in [xdp, udp] {
        let why = perf["failures"][0].as_str().expect("an error");
        assert!(perf["cores"].is_null() && why.contains("/nonexistent/spanwire"), "{perf}");
    }
    assert_eq!(tcp["name"], "cpu 200 Mbit/s: kernel TCP");
    for figure in ["cores", "goodput_mbps"] {
        assert!(number(&tcp[figure]["median"]) > 0.0, "{tcp}");
    }
    assert_eq!(tcp["ratio"]["paired"]["median"], 1.0, "{tcp}");
}

/// Every row has a sample with bytes, ours with all of its messages' memory compared.
fn check_rate(row: &Value) {
    let name = row["name"].as_str().expect("a name");
    if row["not_possible"].is_string() {
        let (mtu, is_af_xdp) = (number(&row["link_mtu"]), name.contains("AF_XDP"));
        assert!(is_af_xdp && mtu > 3506.0 && row["goodput_gbps"].is_null(), "{row}");
        return;
    }
    assert_eq!(row["tally"]["kept"], 1, "{row}");
    assert!(number(&row["goodput_gbps"]["median"]) > 0.0, "{row}");
    assert!(number(&row["cpu_s_per_gb"]["median"]) > 0.0, "{row}");
    assert_eq!(row["ratio"]["paired"]["n"], 1, "{row}");
    let bytes = number(&row["bytes"]);
    let is_tcp = name.starts_with("kernel TCP");
    assert_eq!((row["packets_per_s"].is_null(), row["payload"].is_null()), (is_tcp, is_tcp));
    if let Some(payload) = row["payload"].as_f64() {
        assert!(bytes >= payload, "{row}");
    }
    let verified = number(&row["verified_bytes"]);
    match name.contains(" WRITE ") {
        true => {
            let message: f64 = if name.contains("1 MiB") { 1048576.0 } else { 65536.0 };
            assert!(bytes >= message && bytes % message == 0.0, "{row}");
            // Each slot of both ends that was used, of sixteen.
            let slots = verified / message;
            assert!((1.0..=16.0).contains(&slots) && slots.fract() == 0.0, "{row}");
            assert!(verified <= bytes, "{row}");
        }
        false => assert!(bytes > 0.0 && verified == 0.0, "{row}"),
    }
}

#[test]
fn compare__errors_name_the_option_before_anything_is_built() {
    let cases = [
        ("--mtu 1279", "1280..=65535"),
        ("--mtu 65536", "1280..=65535"),
        ("--only iperf", "no row has this in its name"),
        ("--rounds 0", "--rounds"),
        ("--ms 9", "--ms"),
    ];
    for (args, expected) in cases {
        let output = compare(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{args}: {stderr}");
    }
}
