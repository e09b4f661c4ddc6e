//! The directed scenarios, which continuous integration runs.

use spanwire_sim::{FlowReport, Report, Scenario, Watch};

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

/// Checks that the event hash of a scenario in a wire mode, with seed 1, is the recorded one. A
/// change of the engine or of the simulator may change it; a machine or a profile may not.
#[track_caller]
fn check_recorded(name: &str, mode: &str, report: &Report) {
    let line = format!("{name} {mode} {}", report.event_hash);
    let is_recorded = include_str!("../golden/event-hashes.txt").lines().any(|row| row == line);
    assert!(is_recorded, "tests/golden/event-hashes.txt lacks {line:?}: is the change intended?");
}

/// Runs a scenario twice in a wire mode and checks for equal results and the recorded event hash.
#[track_caller]
fn twice(name: &str, mode: &str) -> Report {
    let set = [("mode", mode)];
    let [a, b] = [1, 1].map(|seed| run(name, seed, &set));
    assert_eq!(a, b, "one seed gave two results");
    let other = run(name, 2, &set);
    assert_ne!(a.event_hash, other.event_hash, "the seed has no effect");
    check_recorded(name, mode, &a);
    a
}

/// Runs a scenario in both wire modes, each twice: RC first.
#[track_caller]
fn in_both_modes(name: &str) -> [Report; 2] {
    ["rc", "sr"].map(|mode| twice(name, mode))
}

fn drops(report: &Report, cause: &str) -> u64 {
    report.drops.get(cause).copied().unwrap_or(0)
}

/// Checks that only lost packets are retransmitted. Queue drops count too: without congestion
/// control two senders fill the queue of their shared link.
#[track_caller]
fn retransmits_only_lost_packets(report: &Report) {
    let lost: u64 = report.drops.values().sum();
    let retransmitted = report.engine["retransmitted_packets"];
    // Slightly more: tail loss probes when a flow waits, and packets first presumed lost.
    assert!(retransmitted * 100 < lost * 110, "{retransmitted} retransmitted, {lost} lost");
    let count = |name: &str| report.engine.get(name).copied().unwrap_or(0);
    let presumed = count("presumed_lost_packets") - count("spurious_lost_packets");
    // ACKs are among the lost packets.
    let engine = &report.engine;
    assert!(presumed <= lost, "{presumed} presumed lost, {lost} lost: {engine:?}");
}

#[test]
fn pair__completes() {
    for report in in_both_modes("pair") {
        assert!(report.flows.iter().all(|f| f.fct_us.is_some()));
    }
}

#[test]
fn dumbbell_2__fills_the_shared_link() {
    for report in in_both_modes("dumbbell-2") {
        let goodput: f64 = report.flows.iter().filter_map(|f| f.goodput_gbps).sum();
        assert!(goodput > 80.0, "{goodput} Gbit/s of 100");
    }
}

#[test]
fn dumbbell_16__completes() {
    for report in in_both_modes("dumbbell-16") {
        assert_eq!(report.flows.len(), 32 / 2);
    }
}

#[test]
fn incast_32__loses_nothing_because_switches_pause() {
    for report in in_both_modes("incast-32") {
        assert!(report.pfc_pauses > 0 && report.drops.is_empty(), "{:?}", report.drops);
        let last = report.flows.iter().filter_map(|f| f.fct_us).fold(0.0, f64::max);
        // 32 x 512 KiB at 100 Gbit/s are 1.34 ms.
        assert!(last < 1_500.0, "{last} us");
    }
}

#[test]
fn loss_1__is_recovered() {
    let [rc, sr] = in_both_modes("loss-1");
    for report in [&rc, &sr] {
        assert!(drops(report, "line_loss") > 10, "{:?}", report.drops);
    }
    let retransmitted = |report: &Report| report.engine["retransmitted_packets"];
    assert!(
        retransmitted(&sr) < retransmitted(&rc),
        "{} of SR, {} of RC",
        retransmitted(&sr),
        retransmitted(&rc)
    );
    retransmits_only_lost_packets(&sr);
}

#[test]
fn reorder_5__is_recovered() {
    let [rc, sr] = in_both_modes("reorder-5");
    assert!(rc.engine["out_of_sequence"] > 10);
    retransmits_only_lost_packets(&sr);
}

#[test]
fn dup__changes_nothing() {
    for report in in_both_modes("dup") {
        assert!(report.engine["duplicate_request"] > 10);
    }
}

#[test]
fn corrupt__the_icrc_detects_it() {
    for report in in_both_modes("corrupt") {
        assert!(drops(&report, "host_bad_icrc") > 10, "{:?}", report.drops);
    }
}

#[test]
fn blackhole__flows_resume_when_it_ends() {
    for report in in_both_modes("blackhole") {
        assert!(drops(&report, "line_blackhole") > 10, "{:?}", report.drops);
        assert!(report.flows.iter().all(|f| f.fct_us.is_some_and(|us| us > 10_000.0)));
    }
}

#[test]
fn pfc_storm__blocks_other_hosts_and_loses_nothing() {
    for report in in_both_modes("pfc-storm") {
        assert!(report.drops.is_empty(), "{:?}", report.drops);
        let waited = |f: &&FlowReport| f.fct_us.is_some_and(|us| us > 2_000.0);
        let waited = report.flows.iter().filter(waited).count();
        assert!(waited > 1, "the storm spread beyond its own host: {waited}");
    }
}

#[test]
fn flap__flows_resume_each_time() {
    for report in in_both_modes("flap") {
        assert!(drops(&report, "line_link_down") > 0, "{:?}", report.drops);
    }
}

#[test]
fn large_scenarios__run_with_small_parameters() {
    for name in ["incast-8", "permutation-128", "poisson", "all-reduce-16", "uno", "mlcc", "reflex"]
    {
        let mut set = vec![("bytes", "128KiB")];
        if name == "poisson" {
            set.extend([("flows", "100"), ("sizes", "web_server")]);
        }
        for mode in ["rc", "sr"] {
            set.push(("mode", mode));
            let [a, b] = [1, 1].map(|seed| run(name, seed, &set));
            assert_eq!(a, b, "{name}: one seed gave two results");
            check_recorded(&format!("{name}-128KiB"), mode, &a);
        }
    }
}

#[test]
fn permutation_128__pauses_and_loses_nothing() {
    // With one frame less of headroom this loses four.
    let report = run("permutation-128", 1, &[]);
    assert!(report.pfc_pauses > 1000 && report.drops.is_empty(), "{:?}", report.drops);
}
