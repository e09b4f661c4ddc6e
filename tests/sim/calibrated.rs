//! The other congestion controls as users get them: calibrated to the path and the hosts, with no
//! parameter set, on paths that nothing configures.

use spanwire_sim::{Scenario, SharingReport, Watch};

/// One flow on a link of this rate and one-way delay between such hosts.
#[track_caller]
fn run(cc: &str, host: &str, link: [&str; 2], set: &[(&str, &str)]) -> SharingReport {
    let [rate, far] = link;
    let path = [
        ("cc", cc),
        ("calibrate", "true"),
        ("host", host),
        ("rate", rate),
        ("far", far),
        ("host_rate", "10Gbit"),
        ("delay", "1us"),
        ("mark", "none"),
        ("measure_rtt", "true"),
        ("message", "64KiB"),
        ("sample", "1ms"),
    ];
    let scenario = Scenario::find("cc-solo").expect("a scenario of the catalogue");
    let plan = scenario.plan(1, path.into_iter().chain(set.iter().copied()));
    let report = plan.expect("parameters that it has").run(Watch::default(), &mut ());
    let report = report.expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{cc}, {host}, {link:?}");
    report.sharing.expect("it is about sharing")
}

/// All but `auto` and `fixed`. HPCC and PowerTCP have no telemetry here, so they are `auto`.
const ALGORITHMS: [&str; 12] = [
    "unocc",
    "swift",
    "timely",
    "dcqcn",
    "dcqcn-rnic",
    "hpcc",
    "powertcp",
    "theta-powertcp",
    "gemini",
    "bbr",
    "mprdma",
    "dctcp",
];

#[test]
fn calibrated__each_fills_a_path_whatever_its_hosts() {
    for cc in ALGORITHMS {
        for host in ["ideal", "veth", "busy", "udp"] {
            for (link, time) in [(["200Mbit", "1ms"], "2s"), (["1Gbit", "10us"], "500ms")] {
                let s = run(cc, host, link, &[("time", time)]);
                // Gemini beside busy processes has 0.70.
                assert!(s.utilisation >= 0.65, "{cc}, {host}, {link:?}: {s:?}");
            }
        }
    }
}

#[test]
fn calibrated__each_fills_a_long_path() {
    for cc in ALGORITHMS {
        let s = run(cc, "veth", ["100Mbit", "20ms"], &[("time", "6s")]);
        assert!(s.utilisation >= 0.75, "{cc}: {s:?}");
    }
}

#[test]
fn calibrated__timestamps_are_not_needed() {
    for cc in ALGORITHMS {
        let set = [("time", "2s"), ("timestamps", "false")];
        let s = run(cc, "veth", ["200Mbit", "1ms"], &set);
        assert!(s.utilisation >= 0.65, "{cc}: {s:?}");
    }
}

#[test]
fn paper__parameters_of_swift_starve_on_late_hosts() {
    let set = [("time", "2s"), ("timestamps", "false")];
    let calibrated = run("swift", "veth", ["200Mbit", "1ms"], &set);
    let paper = [&set[..], &[("calibrate", "false")]].concat();
    let paper = run("swift", "veth", ["200Mbit", "1ms"], &paper);
    assert!(paper.utilisation < calibrated.utilisation / 2.0, "{paper:?}, {calibrated:?}");
}
