//! A short recording: its structure, not its numbers.
//!
//! Needs root. Without it the test prints the reason and passes; with
//! `SPANWIRE_REQUIRE_E2E=1` it fails.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod common;

use common::{bench, is_skipped};
use spanwire_bench::host_trace::trace::Trace;

#[test]
fn host_trace__records_the_steps_of_both_hosts_in_every_flow() {
    if is_skipped(None) {
        return;
    }
    let path = std::env::temp_dir().join(format!("spanwire-trace-{}.json", std::process::id()));
    let record = ["host-trace", "--seconds", "2", "--spinners", "1", "--out"];
    let recorded = bench(&record).arg(&path).output().expect("the command starts");
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
    let fit = bench(&["host-fit"]).arg(&path).output().expect("the command starts");
    let [printed, fit] = [&recorded, &fit].map(|o| String::from_utf8_lossy(&o.stdout));
    assert!(printed.starts_with("step: Dur::from_ns(") && fit.ends_with(&*printed), "{fit}");
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn host_fit__a_file_that_is_no_trace_is_rejected_by_name() {
    let output = bench(&["host-fit", "Cargo.toml"]).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Cargo.toml: "));
}
