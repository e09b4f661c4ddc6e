//! `auto` and losses: of the path itself, and of queues too short for the flows that share them.

use spanwire_sim::{Report, Scenario, Watch};

/// Flows on a link of 200 Mbit/s and 2 ms between such hosts, as the defaults are.
#[track_caller]
fn run(cc: &str, host: &str, flows: &str, set: &[(&str, &str)]) -> Report {
    let path = [
        ("cc", cc),
        ("host", host),
        ("flows", flows),
        ("rate", "200Mbit"),
        ("far", "1ms"),
        ("host_rate", "10Gbit"),
        ("delay", "1us"),
        ("mark", "none"),
        ("measure_rtt", "true"),
        ("message", "64KiB"),
        ("sample", "1ms"),
        ("stagger", "500ms"),
        ("smooth", "100ms"),
        ("time", "3s"),
    ];
    let scenario = Scenario::find("cc-fairness").expect("a scenario of the catalogue");
    let plan = scenario.plan(1, path.into_iter().chain(set.iter().copied()));
    let report = plan.expect("parameters that it has").run(Watch::default(), &mut ());
    let report = report.expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{cc}, {host}, {set:?}");
    report
}

fn utilisation(report: &Report) -> f64 {
    report.sharing.as_ref().expect("it is about sharing").utilisation
}

/// The part of all packets that was lost.
fn lost(report: &Report) -> f64 {
    let of = |name: &str| report.engine.get(name).copied().unwrap_or(0) as f64;
    of("presumed_lost_packets") / of("tx_packets")
}

#[test]
fn auto__a_lossy_path_costs_what_it_loses() {
    for host in ["ideal", "veth", "busy"] {
        for (loss, part) in [("0.5%", 0.005), ("2%", 0.02), ("10%", 0.1), ("30%", 0.3)] {
            let report = run("auto", host, "1", &[("loss", loss)]);
            let utilisation = utilisation(&report);
            assert!(utilisation >= (1.0 - part) * 0.92, "{host}, {loss}: {utilisation}");
        }
    }
}

/// Four flows hold a BDP of three packets each. They lost 67 % of all packets while a test of the
/// cause of losses blamed the path for those of other flows.
#[test]
fn auto__flows_that_share_a_short_queue_do_not_collapse() {
    for host in ["ideal", "veth"] {
        for queue in ["30kB", "50kB"] {
            let report = run("auto", host, "4", &[("queue", queue)]);
            assert!(utilisation(&report) > 0.95, "{host}, {queue}: {:?}", report.sharing);
            assert!(lost(&report) < 0.15, "{host}, {queue}: {}", lost(&report));
        }
    }
}

/// Losses of coded packets did not reach algorithms without marks: Gemini at 100 Gbit/s lost 52 %
/// of its packets with (8,2), and 2 % without.
#[test]
fn gemini__sees_the_losses_of_coded_packets() {
    for calibrate in ["false", "true"] {
        let set = [
            ("cc", "gemini"),
            ("mark", "none"),
            ("ec", "8,2"),
            ("queue", "200kB"),
            ("time", "20ms"),
            ("calibrate", calibrate),
        ];
        let scenario = Scenario::find("cc-fairness").expect("a scenario of the catalogue");
        let plan = scenario.plan(1, set).expect("parameters that it has");
        let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
        assert!(lost(&report) < 0.08, "calibrated: {calibrate}: {}", lost(&report));
        assert!(utilisation(&report) > 0.9, "calibrated: {calibrate}: {:?}", report.sharing);
    }
}
