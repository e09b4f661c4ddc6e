//! The scenarios that continuous integration names.

use spanwire_sim::{Report, Scenario, Watch};

/// Runs a scenario with some parameters set.
#[track_caller]
fn run(name: &str, seed: u64, set: &[(&str, &str)]) -> Report {
    let scenario = Scenario::find(name).expect("a scenario of the catalogue");
    let plan = scenario.plan(seed, set.iter().copied()).expect("parameters that it has");
    let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{name} with seed {seed}");
    assert!(report.checkers_ok);
    report
}

/// Runs it twice: the same must happen. Returns what happened.
#[track_caller]
fn twice(name: &str) -> Report {
    let [a, b] = [1, 1].map(|seed| run(name, seed, &[]));
    assert_eq!(a, b, "one seed, two results");
    let other = run(name, 2, &[]);
    assert_ne!(a.event_hash, other.event_hash, "the seed decides nothing");
    a
}

fn drops(report: &Report, cause: &str) -> u64 {
    report.drops.get(cause).copied().unwrap_or(0)
}

#[test]
fn pair__is_the_same_on_every_machine() {
    // A change of the engine or of the simulator may change it; a machine or a profile may not.
    assert_eq!(twice("pair").event_hash, "9d2d106ad2ec99e1");
}

#[test]
fn dumbbell_2__fills_the_shared_link() {
    let report = twice("dumbbell-2");
    let goodput: f64 = report.flows.iter().filter_map(|f| f.goodput_gbps).sum();
    assert!(goodput > 80.0, "{goodput} Gbit/s of 100");
}

#[test]
fn dumbbell_16__ends() {
    assert_eq!(twice("dumbbell-16").flows.len(), 32 / 2);
}

#[test]
fn incast_32__loses_nothing_because_switches_pause() {
    let report = twice("incast-32");
    assert!(report.pfc_pauses > 0 && report.drops.is_empty(), "{:?}", report.drops);
    let last = report.flows.iter().filter_map(|f| f.fct_us).fold(0.0, f64::max);
    // 32 x 512 KiB at 100 Gbit/s are 1.34 ms.
    assert!(last < 1_500.0, "{last} us");
}

#[test]
fn loss_1__is_recovered_from() {
    let report = twice("loss-1");
    assert!(drops(&report, "line_loss") > 10, "{:?}", report.drops);
}

#[test]
fn reorder_5__is_recovered_from() {
    let report = twice("reorder-5");
    assert!(report.engine["out_of_sequence"] > 10);
}

#[test]
fn dup__changes_nothing() {
    let report = twice("dup");
    assert!(report.engine["duplicate_request"] > 10);
}

#[test]
fn corrupt__the_icrc_catches_it() {
    let report = twice("corrupt");
    assert!(drops(&report, "host_bad_icrc") > 10, "{:?}", report.drops);
}

#[test]
fn blackhole__flows_go_on_when_it_is_over() {
    let report = twice("blackhole");
    assert!(drops(&report, "line_blackhole") > 10, "{:?}", report.drops);
    assert!(report.flows.iter().all(|f| f.fct_us.is_some_and(|us| us > 10_000.0)));
}

#[test]
fn pfc_storm__victims_wait_and_nothing_is_lost() {
    let report = twice("pfc-storm");
    assert!(report.drops.is_empty(), "{:?}", report.drops);
    let waited = report.flows.iter().filter(|f| f.fct_us.is_some_and(|us| us > 2_000.0)).count();
    assert!(waited > 1, "the storm spread beyond its own host: {waited}");
}

#[test]
fn flap__flows_go_on_each_time() {
    let report = twice("flap");
    assert!(drops(&report, "line_link_down") > 0, "{:?}", report.drops);
}

#[test]
fn large_ones__run_small() {
    for name in ["incast-8", "permutation-128", "poisson", "all-reduce-16", "uno", "mlcc", "reflex"]
    {
        let mut set = vec![("bytes", "128KiB")];
        if name == "poisson" {
            set.extend([("flows", "100"), ("sizes", "web_server")]);
        }
        let [a, b] = [1, 1].map(|seed| run(name, seed, &set));
        assert_eq!(a, b, "{name}: one seed, two results");
    }
}

#[test]
fn permutation_128__pauses_and_loses_nothing() {
    // With one frame less of headroom this loses four.
    let report = run("permutation-128", 1, &[]);
    assert!(report.pfc_pauses > 1000 && report.drops.is_empty(), "{:?}", report.drops);
}
