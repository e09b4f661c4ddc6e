//! `spanwire-bench service`: its command line, and every transport with a few hundred requests.
//! Counts and data only; times are for its own table.
//!
//! Moving packets needs root. Without it the test prints the reason and passes; with
//! `SPANWIRE_REQUIRE_E2E=1` it fails.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod common;

use common::{bench, is_skipped};
use serde_json::Value;
use std::process::Output;

fn service(args: &[&str]) -> Output {
    bench(&[&["service"], args].concat()).output().expect("the command starts")
}

/// The report of a short run of the rows whose names contain `only`. Their numbers are verified by
/// the run: it fails if an end misses one message, or receives other bytes.
fn report(only: &str) -> Value {
    let args = ["--requests", "300", "--rounds", "2", "--mib", "2", "--json", "--only", only];
    let output = service(&args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{only}: {e}: {stderr}"));
    let failures = failures(&report);
    assert!(output.status.success(), "{only}: {stderr}{failures:#?}");
    assert!(report["machine"]["cores"].as_u64().expect("a number") > 0, "{report}");
    assert_eq!((&report["interrupted"], &report["plan"]["rounds"]), (&false.into(), &2.into()));
    report
}

/// The transports whose samples failed, with the errors.
fn failures(report: &Value) -> Vec<String> {
    let rows = report["rows"].as_array().expect("a list").iter();
    let failed = rows.filter(|row| row["failures"] != serde_json::json!([]));
    failed.map(|row| format!("{}: {}", row["transport"], row["failures"])).collect()
}

/// Transports of the rows, and the names of the figures of each. All have both samples.
fn rows(report: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let row = |row: &Value| {
        assert_eq!(list(&row["failures"]).len(), 0, "{row}");
        for value in list(&row["values"]) {
            assert_eq!((&value["spread"]["n"], list(&value["samples"]).len()), (&2.into(), 2));
            assert!(value["value"].as_f64().expect("a number") > 0.0, "{value}");
        }
        let figures = list(&row["values"]).iter().map(|value| text(&value["name"])).collect();
        (text(&row["transport"]), figures)
    };
    list(&report["rows"]).iter().map(row).collect()
}

#[test]
fn service__errors_name_the_option_before_anything_is_built() {
    let cases: [(&[&str], &str); 10] = [
        (&["--only", "no such row"], "no row has this in its name"),
        (&["--rounds", "0"], "--rounds"),
        (&["--ms", "9"], "--ms"),
        (&["--mib", "4097"], "--mib"),
        (&["--requests", "0"], "--requests"),
        (&["--requests", "10", "--ms", "100"], "cannot be used with"),
        (
            &["--only", "bulk: copy", "--spanwire", "/nonexistent/spanwire"],
            "--spanwire sets its path",
        ),
        (&["--seconds", "1"], "--seconds"),
        (&["--cores", "0"], "--cores"),
        (&["--cores", "0", "100000"], "100000 is not one of the usable cores"),
    ];
    for (args, expected) in cases {
        let done = service(args);
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
        assert!(done.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn service__every_transport_answers_every_request() {
    if is_skipped(None) {
        return;
    }
    let figures = ["requests_per_s", "p50_us", "p99_us", "client_cpu_us", "server_cpu_us"];
    let figures = figures.map(str::to_owned).to_vec();
    let expected = ["stream", "stream-inline", "verbs", "tcp", "tcp-buffered", "tcp-epoll"]
        .map(|name| (name.to_owned(), figures.clone()));
    for case in [
        "64 B/64 B, 1 outstanding",
        "64 B/4 KiB, 64 outstanding",
        "4 KiB/64 B, 256 outstanding",
        "64 B/4 KiB, 64 connections",
    ] {
        let report = report(case);
        assert_eq!(rows(&report), expected, "{case}");
        for row in report["rows"].as_array().expect("a list") {
            assert_eq!(row["name"], case);
            assert_eq!(row["values"][0]["ratio"]["paired"]["n"], 2, "{row}");
        }
    }
}

#[test]
fn service__an_open_loop_offers_what_it_says() {
    if is_skipped(None) {
        return;
    }
    let report = report("64 B/64 B, 10000/s");
    let all = rows(&report);
    let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["stream", "verbs", "tcp", "tcp-buffered", "tcp-epoll"]);
    assert!(all.iter().all(|(_, figures)| figures[0] == "cpu_us" && figures.len() == 7), "{all:?}");
    for row in report["rows"].as_array().expect("a list") {
        assert_eq!(row["offered_per_s"], 10_000, "{row}");
        // As many requests as there are take no less time than the schedule gives them.
        let reached = row["values"][1]["value"].as_f64().expect("a rate");
        assert!(reached < 11_000.0, "{row}");
    }
}

#[test]
fn service__bulk_data_are_verified() {
    if is_skipped(None) {
        return;
    }
    let figures = ["gbps", "client_cpu_us", "server_cpu_us"].map(str::to_owned).to_vec();
    let expected = |names: &[&str]| -> Vec<_> {
        names.iter().map(|name| ((*name).to_owned(), figures.clone())).collect()
    };
    assert_eq!(rows(&report("bulk: tcp")), expected(&["tcp", "tcp-sha256"]));
    assert_eq!(rows(&report("bulk: stream")), expected(&["stream"]));
}
