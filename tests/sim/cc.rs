//! Congestion control in simulated networks.

use spanwire_sim::{CcChoice, Report, Scenario, Watch};

/// Runs a scenario with some parameters set.
#[track_caller]
fn run(name: &str, set: &[(&str, &str)]) -> Report {
    let scenario = Scenario::find(name).expect("a scenario of the catalogue");
    let plan = scenario.plan(1, set.iter().copied()).expect("parameters that it has");
    let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{name} with {set:?}");
    report
}

#[test]
fn cc__every_algorithm_carries_flows_of_any_scenario_in_both_modes() {
    let mut hashes = Vec::new();
    for cc in CcChoice::known() {
        for mode in ["rc", "sr"] {
            let set = [("cc", cc), ("mode", mode), ("bytes", "1MiB"), ("payload", "elided")];
            let report = run("dumbbell-2", &set);
            assert!(report.flows.iter().all(|f| f.fct_us.is_some()), "{cc} {mode}");
            hashes.push(report.event_hash);
        }
    }
    hashes.sort_unstable();
    hashes.dedup();
    // Without marks and telemetry some behave alike; most must not.
    assert!(hashes.len() > CcChoice::known().len(), "{} kinds of runs", hashes.len());
}

#[test]
fn cc__a_measured_base_rtt_gives_the_same_result() {
    let set = [("cc", "unocc"), ("mode", "sr"), ("payload", "elided")];
    let configured = run("dumbbell-2", &set);
    let measured = run("dumbbell-2", &[&set[..], &[("measure_rtt", "true")]].concat());
    assert_ne!(configured.event_hash, measured.event_hash);
}

/// Two HPCC flows over one link: the mean length of its queue in bytes, and the last FCT in
/// microseconds.
fn hpcc(stamps: bool) -> (f64, f64) {
    let scenario = Scenario::find("dumbbell-2").expect("a scenario of the catalogue");
    let set = [("cc", "hpcc"), ("mode", "sr"), ("payload", "elided"), ("bytes", "8MiB")];
    let mut plan = scenario.plan(1, set).expect("parameters that it has");
    plan.setup.port.int = stamps;
    let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0]);
    let mean_bytes = report.queues.iter().map(|q| q.mean_bytes).fold(0.0, f64::max);
    let ended_us = report.flows.iter().filter_map(|f| f.fct_us).fold(0.0, f64::max);
    (mean_bytes, ended_us)
}

#[test]
fn int__hpcc_has_almost_no_queue_with_telemetry_and_a_window_without() {
    let (blind, seeing) = (hpcc(false), hpcc(true));
    assert!(blind.0 > 100_000.0 && seeing.0 < 12_000.0, "{blind:?} {seeing:?}");
    assert!(seeing.1 < blind.1 * 1.2, "the link is used: {blind:?} {seeing:?}");
}
