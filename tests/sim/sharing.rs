//! Goals of each congestion control: its design utilisation and queue length with one flow, equal
//! shares, incast, and shares of near and far flows. docs/PERF.md has the results of larger runs.

use spanwire_sim::{CcChoice, Report, Scenario, SharingReport, Watch};

/// Runs a scenario by congestion control, with more parameters set.
#[track_caller]
fn run(name: &str, cc: &str, set: &[(&str, &str)]) -> (SharingReport, Report) {
    let scenario = Scenario::find(name).expect("a scenario of the catalogue");
    let set = [("cc", cc)].into_iter().chain(set.iter().copied());
    let plan = scenario.plan(1, set).expect("parameters that it has");
    let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0], "{name} with {cc}");
    (report.sharing.expect("it is about sharing"), report)
}

/// The utilisation that the algorithm is designed for.
fn design(cc: &str) -> f64 {
    match cc {
        // The drain of the phantom queue.
        "unocc" => 0.9,
        // Its eta.
        "hpcc" => 0.95,
        _ => 1.0,
    }
}

/// All algorithms except those without control, and MLCC, whose flows cross between datacenters and
/// need its agent: its scenarios have tests of their own. Presets of published simulations have
/// their constants, whatever comes of them.
fn all() -> impl Iterator<Item = &'static str> {
    let is_tested =
        |cc: &&str| !["none", "fixed", "mlcc", "timely-vwin"].contains(cc) && !cc.ends_with("-ns3");
    CcChoice::known().into_iter().filter(is_tested)
}

#[test]
fn solo__reaches_its_design_utilisation_and_queue() {
    for cc in all() {
        let (s, report) = run("cc-solo", cc, &[("time", "10ms")]);
        assert!(s.utilisation >= 0.9 * design(cc), "{cc}: {s:?}");
        assert!(
            s.utilisation <= 1.0 && s.jain.is_none() && s.jain_time_us.is_none(),
            "{cc}: {s:?}"
        );
        // The queue that it is designed to keep, in bytes.
        let queue = match cc {
            "unocc" | "hpcc" => 0.0..10_000.0,
            // An increase of a tenth of its host's bandwidth-delay product, 35 kB.
            "powertcp" | "theta-powertcp" => 5_000.0..60_000.0,
            "bbr" => 0.0..30_000.0,
            // 50 us, scaled to 27 by the rate.
            "auto" => 250_000.0..450_000.0,
            // Ten microseconds, and one for each of a few hops.
            "swift" => 100_000.0..200_000.0,
            // A quarter above the low threshold: its increase by the amount that it decreases.
            "timely" => 125_000.0..260_000.0,
            "timely-classic" => 0.0..130_000.0,
            // Above Kmin, 400 kB, not far.
            "dcqcn" | "dcqcn-rnic" => 250_000.0..500_000.0,
            // Around K, 300 kB.
            "dctcp" => 200_000.0..310_000.0,
            // A window of twice the shared link's bandwidth-delay product, and no marks below 250
            // kB.
            "gemini" | "gemini-paper" | "mprdma" => 100_000.0..250_000.0,
            _ => panic!("{cc} is new: add its design queue"),
        };
        assert!(queue.contains(&s.queue_bytes_mean), "{cc}: {s:?}");
        let starts_blind = cc == "timely";
        assert!(starts_blind || report.drops.is_empty(), "{cc}: {:?}", report.drops);
    }
}

#[test]
fn fairness__flows_with_staggered_starts_converge_to_equal_shares() {
    for cc in all() {
        // The additive increase per flow is set for a hundred flows: HPCC's default converges
        // slowly.
        let few = [("cc.flows", "4")];
        let own: &[_] = if cc == "hpcc" { &few } else { &[] };
        for flows in ["2", "4"] {
            let set = [("flows", flows), ("stagger", "1ms"), ("time", "40ms")];
            let (s, _) = run("cc-fairness", cc, &[&set, own].concat());
            let is_fair = s.jain_time_us.is_some_and(|us| us < 30_000.0);
            // See bbr__needs_its_probes_to_be_fair.
            assert!(is_fair || cc == "bbr", "{cc}, {flows}: {s:?}");
            assert!(s.utilisation >= 0.9 * design(cc), "{cc}, {flows}: {s:?}");
        }
    }
}

#[test]
fn fairness__of_sixteen() {
    for cc in
        ["auto", "unocc", "swift", "timely", "dcqcn", "hpcc", "powertcp", "theta-powertcp", "dctcp"]
    {
        let set = [("flows", "16"), ("stagger", "500us"), ("time", "30ms")];
        let (s, _) = run("cc-fairness", cc, &set);
        assert!(s.jain.is_some_and(|jain| jain > 0.95), "{cc}: {s:?}");
        assert!(s.utilisation >= 0.9 * design(cc), "{cc}: {s:?}");
    }
}

/// The operating point of the analysis that found the instability.
///
/// # Source
/// Zhu et al., "ECN or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY", CoNEXT'16: 10
/// Gbit/s, thresholds of 50 and 500 us, differences by 20 us, the second flow 10 ms later.
#[test]
fn fairness__classic_timely_does_not_converge_and_the_patch_does() {
    let set = [
        ("cc.low_us", "50"),
        ("cc.high_us", "500"),
        ("cc.min_rtt_us", "20"),
        ("cc.initial", "0.5"),
        ("rate", "10Gbit"),
        ("host_rate", "10Gbit"),
        ("delay", "500ns"),
        ("far", "500ns"),
        ("flows", "2"),
        ("stagger", "10ms"),
        ("time", "200ms"),
    ];
    let [classic, patched] = ["timely-classic", "timely"].map(|cc| run("cc-fairness", cc, &set).0);
    assert!(patched.jain_time_us.is_some_and(|us| us < 20_000.0), "{patched:?}");
    assert!(classic.jain_time_us.is_none_or(|us| us > 50_000.0), "{classic:?}");
    assert!(classic.utilisation < 0.95 && patched.utilisation > 0.99, "{classic:?} {patched:?}");
}

/// A flow that starts with a standing queue includes it in its base RTT and takes more than its
/// share. Every flow probes for the base RTT each ten seconds; in this test each 10 ms.
#[test]
fn fairness__bbr_needs_its_probes() {
    let set = [("flows", "4"), ("stagger", "1ms"), ("time", "100ms")];
    let often = [("cc.min_rtt_s", "0.01"), ("cc.probe_rtt_ms", "0.2")];
    let (without, _) = run("cc-fairness", "bbr", &set);
    let (with, _) = run("cc-fairness", "bbr", &[&set[..], &often].concat());
    assert!(without.jain.is_some_and(|jain| jain < 0.8), "{without:?}");
    assert!(with.jain.is_some_and(|jain| jain > 0.95), "{with:?}");
}

#[test]
fn incast__of_32_loses_nothing_and_shares() {
    for cc in all() {
        let (s, report) = run("cc-incast", cc, &[]);
        assert!(report.drops.is_empty(), "{cc}: {:?}", report.drops);
        assert!(s.utilisation >= 0.9 * design(cc), "{cc}: {s:?}");
        assert!(s.jain.is_some_and(|jain| jain > 0.93), "{cc}: {s:?}");
        // TIMELY starts at the line rate and reacts late: it is designed for lossless networks.
        let needs_pauses = cc.starts_with("timely");
        assert!(needs_pauses || s.queue_bytes_p99 < 2_500_000, "{cc}: {s:?}");
        let pauses = cc.starts_with("timely") || cc.starts_with("dcqcn");
        assert!(pauses || report.pfc_pauses == 0, "{cc}: {} pauses", report.pfc_pauses);
    }
}

#[test]
fn mixed_rtt__unocc_converges_to_the_share_of_its_control_law() {
    let (s, _) = run("cc-mixed-rtt", "unocc", &[("time", "120ms")]);
    // (K + BDP inter) / (K + BDP intra) times RTT intra / RTT inter.
    assert!(s.inter_intra_ratio.is_some_and(|r| (r - 0.88).abs() < 0.1), "{s:?}");
    assert!(s.jain_time_us.is_some_and(|us| us < 100_000.0), "{s:?}");
    assert!(s.utilisation > 0.88 && s.queue_bytes_mean < 20_000.0, "{s:?}");
}

#[test]
fn mixed_rtt__gemini_is_slow_and_bbr_beside_mprdma_unfair() {
    let ratio = |time| {
        let (s, _) = run("cc-mixed-rtt", "gemini", &[("time", time)]);
        assert_eq!(s.jain_time_us, None, "{time}: {s:?}");
        s.inter_intra_ratio.expect("both send")
    };
    let (early, late) = (ratio("40ms"), ratio("150ms"));
    assert!(early > late && late > 1.5, "{early} {late}");
    let set = [("cc_inter", "bbr"), ("time", "60ms")];
    let (s, _) = run("cc-mixed-rtt", "mprdma", &set);
    assert!(s.inter_intra_ratio.is_some_and(|r| r > 10.0), "{s:?}");
    assert!(s.jain.is_some_and(|jain| jain < 0.6), "{s:?}");
}

#[test]
fn rc__marks_arrive_as_cnps() {
    let set = [("flows", "2"), ("stagger", "1ms"), ("time", "20ms"), ("mode", "rc")];
    let (s, report) = run("cc-fairness", "dcqcn", &set);
    assert!(report.engine.get("np_cnp_sent").is_some_and(|n| *n > 10), "{:?}", report.engine);
    assert_eq!(report.engine.get("np_cnp_sent"), report.engine.get("rp_cnp_handled"));
    assert!(s.utilisation > 0.9 && s.queue_bytes_mean < 700_000.0, "{s:?}");
    assert!(s.jain.is_some_and(|jain| jain > 0.95), "{s:?}");
}
