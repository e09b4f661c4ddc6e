//! PACC's and Reflex's experiments in small: every scheme completes and has its metrics.

use spanwire_sim::{MetricReport, Report, Scenario, Watch};

/// A fat tree of 80 hosts, in which the burst experiments have their five edge switches.
const SMALL: [(&str, &str); 2] = [("pods", "2"), ("hosts", "10")];
const SCHEMES: [&str; 3] = ["dcqcn", "timely", "hpcc"];

/// Runs a scenario twice with seed 1 and checks for equal results.
#[track_caller]
fn twice(name: &str, set: &[(&str, &str)]) -> Report {
    let scenario = Scenario::find(name).expect("a scenario of the catalogue");
    let run = || {
        let plan = scenario.plan(1, set.iter().copied()).expect("parameters that it has");
        plan.run(Watch::default(), &mut ()).expect("it can be built")
    };
    let (a, b) = (run(), run());
    assert_eq!(a.violations, [] as [&str; 0], "{name} {set:?}");
    assert_eq!(a, b, "one seed gave two results");
    a
}

#[test]
fn pacc_burst__the_queue_holds_most_of_the_burst_and_empties() {
    for scheme in SCHEMES {
        let set = [&SMALL[..], &[("scheme", scheme), ("time", "900us"), ("sample", "4us")]];
        let report = twice("pacc-burst", &set.concat());
        let Some(MetricReport::Burst(burst)) = report.metric else { panic!("{scheme}") };
        // Nine flows of 64 KB, whose control reacts only after most of them has been sent.
        // HPCC's reacts within the burst, whose packets have the payload of the others.
        let least = if scheme == "hpcc" { 275_000 } else { 300_000 };
        assert!((least..700_000).contains(&burst.peak_bytes), "{scheme}: {burst:?}");
        // TIMELY's low threshold of 50 us is 156 KB: it keeps a queue of this order.
        let most = if scheme == "timely" { 1_000.0 } else { 300.0 };
        assert!(burst.below_200kb_us.is_some_and(|us| us < most), "{scheme}: {burst:?}");
        assert!(burst.rates_gbps.iter().all(|gbps| *gbps > 0.5), "{scheme}: {burst:?}");
        let cnps: u64 = burst.cnps.iter().sum();
        assert_eq!(cnps > 0, scheme == "dcqcn", "{scheme}: {burst:?}");
        assert_eq!((burst.rates_gbps.len(), burst.cnps.len()), (10, 10));
    }
}

#[test]
fn pacc_micro__reports_the_shared_link_and_each_of_the_nine() {
    let set = [&SMALL[..], &[("scheme", "dcqcn"), ("time", "1ms"), ("sample", "4us")]].concat();
    let report = twice("pacc-micro", &set);
    let Some(MetricReport::Recover(recover)) = report.metric else { panic!("no metric") };
    assert_eq!(recover.recover_us.len(), 10, "{recover:?}");
    assert!(recover.recover_us.iter().flatten().all(|us| (0.0..400.0).contains(us)), "{recover:?}");
}

#[test]
fn pacc_steady__dcqcn_keeps_a_queue_and_hpcc_almost_none() {
    let mean = |scheme| {
        let set = [("scheme", scheme), ("time", "4ms"), ("sample", "10us")];
        let Some(MetricReport::Steady(steady)) = twice("pacc-steady", &set).metric else {
            panic!("{scheme}: no metric")
        };
        assert!(steady.queue_bytes_least <= steady.queue_bytes_mean, "{scheme}: {steady:?}");
        assert!(steady.queue_bytes_mean <= steady.queue_bytes_most, "{scheme}: {steady:?}");
        steady.queue_bytes_mean
    };
    let (dcqcn, hpcc) = (mean("dcqcn"), mean("hpcc"));
    assert!(dcqcn > 2 * hpcc && hpcc < 50_000, "{dcqcn} and {hpcc} bytes");
}

#[test]
fn pacc_join__flows_share_the_link_in_each_stage() {
    let report = twice("pacc-join", &[("scheme", "dcqcn"), ("stage", "2ms")]);
    let Some(MetricReport::Stages(stages)) = &report.metric else { panic!("no metric") };
    assert_eq!(stages.jain.len(), 7);
    assert!(stages.jain[0].is_none() && stages.jain[6].is_none(), "{stages:?}");
    assert!(stages.jain[1..6].iter().flatten().all(|j| *j > 0.5), "{stages:?}");
    assert!((15.0..25.0).contains(&stages.total_gbps), "{stages:?}");
    // A flow that stops never has its last message.
    assert!(report.flows.iter().all(|f| f.fct_us.is_none() && f.failed.is_none()));
}

#[test]
fn pacc_fct__has_statistics_of_the_flows_that_count() {
    for scheme in SCHEMES {
        let own = [
            ("scheme", scheme),
            ("sizes", "fb_hadoop"),
            ("time", "150us"),
            ("first", "50us"),
            ("load", "30"),
        ];
        let report = twice("pacc-fct", &[&SMALL[..], &own].concat());
        let [all] = &report.groups[..] else { panic!("{:?}", report.groups) };
        assert!(all.all.failed == 0 && all.all.n > 10, "{scheme}: {all:?}");
        let flows = u64::try_from(report.flows.len()).expect("not so many");
        assert!(all.all.n < flows, "the first do not count");
        let nfct = all.all.nfct.expect("some completed");
        assert!(nfct.mean >= 1.0 && nfct.p999 >= nfct.p50, "{scheme}: {nfct:?}");
        let in_sizes: u64 = all.by_size[..5].iter().map(|s| s.flows.n).sum();
        assert_eq!(in_sizes, all.all.n);
    }
}

#[test]
fn reflex_fct__has_both_groups() {
    for cc in ["timely-classic", "swift"] {
        let set = [("cc", cc), ("time", "60us"), ("sizes", "fb_hadoop"), ("load", "30")];
        let report = twice("reflex-fct", &set);
        let names: Vec<&str> = report.groups.iter().map(|g| g.name.as_str()).collect();
        assert_eq!(names, ["all", "intra", "inter"]);
        let [all, intra, inter] = [0, 1, 2].map(|i| report.groups[i].all);
        assert!(intra.n > inter.n && inter.n > 0 && all.n == intra.n + inter.n, "{cc}");
        // At least the one-way delay of the long path.
        assert!(inter.fct_us.is_some_and(|fct| fct.p50 > 500.0), "{cc}: {inter:?}");
    }
}
