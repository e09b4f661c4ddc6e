//! A short recording: its structure, not its numbers.
//!
//! Needs root. Without it the test prints the reason and passes; with
//! `SPANWIRE_REQUIRE_E2E=1` it fails.
#![expect(non_snake_case, reason = "tests are named function__case")]

use spanwire_bench::host_trace::trace::Trace;
use spanwire_io::net::NetNs;
use std::process::Command;

#[test]
fn host_trace__records_the_steps_of_both_hosts_in_every_flow() {
    if let Err(reason) = NetNs::new_anonymous() {
        let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
        assert!(!required, "SPANWIRE_REQUIRE_E2E=1, but skipped: {reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let path = std::env::temp_dir().join(format!("spanwire-trace-{}.json", std::process::id()));
    let bench = || Command::new(env!("CARGO_BIN_EXE_spanwire-bench"));
    let recorded = bench()
        .args(["host-trace", "--seconds", "2", "--spinners", "1", "--out"])
        .arg(&path)
        .output()
        .expect("the command starts");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let trace = Trace::read(&path).expect("a trace");
    assert_eq!(trace.recorded.spinners, 1);
    let runs: Vec<_> = trace.runs.iter().map(|run| (&*run.flow, &*run.host)).collect();
    let hosts = ["client", "server"];
    let expected: Vec<_> =
        ["bulk", "small", "paced"].into_iter().flat_map(|flow| hosts.map(|h| (flow, h))).collect();
    assert_eq!(runs, expected);
    for run in &trace.runs {
        assert!(run.working + run.long.count > 0, "{run:?}");
        assert!(0 < run.running_ns && run.running_ns <= run.time_ns, "{run:?}");
    }
    // Paced packets are 410 us apart, and a driver spins for 50.
    assert!(trace.runs[5].frame_wakeups_ns.count > 0, "a server sleeps until a packet arrives");
    assert!(trace.runs[4].timer_wakeups_ns.count > 0, "a paced client sleeps until it may send");
    let fit = bench().arg("host-fit").arg(&path).output().expect("the command starts");
    let [printed, fit] = [&recorded, &fit].map(|o| String::from_utf8_lossy(&o.stdout));
    assert!(printed.starts_with("step: Dur::from_ns(") && fit.ends_with(&*printed), "{fit}");
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn host_fit__a_file_that_is_no_trace_is_rejected_by_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_spanwire-bench"))
        .args(["host-fit", "Cargo.toml"])
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Cargo.toml: "));
}
