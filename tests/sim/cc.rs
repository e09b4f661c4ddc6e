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
fn cc__every_one_carries_flows_of_any_scenario_in_both_modes() {
    let mut hashes = Vec::new();
    for cc in CcChoice::known() {
        for mode in ["rc", "src"] {
            let set = [("cc", cc), ("mode", mode), ("bytes", "1MiB"), ("payload", "elided")];
            let report = run("dumbbell-2", &set);
            assert!(report.flows.iter().all(|f| f.fct_us.is_some()), "{cc} {mode}");
            hashes.push(report.event_hash);
        }
    }
    hashes.sort_unstable();
    hashes.dedup();
    // Where nothing is marked and nobody stamps, some behave alike; most must not.
    assert!(hashes.len() > CcChoice::known().len(), "{} kinds of runs", hashes.len());
}

#[test]
fn cc__who_measures_the_round_trip_comes_to_the_same_end() {
    let set = [("cc", "unocc"), ("mode", "src"), ("payload", "elided")];
    let told = run("dumbbell-2", &set);
    let measured = run("dumbbell-2", &[&set[..], &[("measure_rtt", "true")]].concat());
    assert_ne!(told.event_hash, measured.event_hash);
}
