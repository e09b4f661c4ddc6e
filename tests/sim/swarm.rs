//! The swarm: many seeds, each with its network, faults and flows.
//!
//! `SPANWIRE_SEEDS=20000` runs that many instead of 500; `SPANWIRE_SEED=N` runs one, as
//! `spanwire sim swarm --seeds 1 --start N` does.

use spanwire_sim::{SwarmOutcome, Watch, swarm_plan, swarm_run};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs seeds on all cores; each is a separate world.
fn run(seeds: &[u64]) -> Vec<SwarmOutcome> {
    on_all_cores(seeds, swarm_run)
}

/// `each` of all seeds, on all cores, in any order.
fn on_all_cores<T: Send>(seeds: &[u64], each: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(seed) = seeds.get(index(next.fetch_add(1, Ordering::Relaxed))) {
            done.push(each(*seed));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| {
        let handles: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        handles.into_iter().flat_map(|h| h.join().expect("a panic is caught")).collect()
    })
}

fn index(n: u64) -> usize {
    spanwire_base::usize_from(n)
}

#[track_caller]
fn check(outcomes: &[SwarmOutcome]) {
    let bad: Vec<String> = outcomes
        .iter()
        .filter(|o| !o.violations.is_empty())
        .map(|o| format!("{}\n  {}", o.replay(), o.violations.join("\n  ")))
        .collect();
    assert!(bad.is_empty(), "{} of {} seeds:\n{}", bad.len(), outcomes.len(), bad.join("\n"));
}

#[test]
fn swarm__five_hundred_seeds_pass() {
    if let Some(seed) = number("SPANWIRE_SEED") {
        check(&run(&[seed]));
        return;
    }
    let seeds: Vec<u64> = (0..number("SPANWIRE_SEEDS").unwrap_or(500)).collect();
    let outcomes = run(&seeds);
    check(&outcomes);
    let sum = |name: &str| -> u64 {
        let of = |o: &SwarmOutcome| {
            let report = o.report.as_ref().expect("none has panicked");
            let counted = report.engine.get(name).or_else(|| report.drops.get(name));
            counted.copied().unwrap_or(0)
        };
        outcomes.iter().map(of).sum()
    };
    for corner in [
        "duplicate_request",
        "ec_block_nacks",
        "ec_blocks_plain",
        "ec_rebuilt_packets",
        "ec_settled_packets",
        "ec_short_packets",
        "out_of_sequence",
        "implied_nak_seq_err",
        "local_ack_timeout_err",
        "presumed_lost_packets",
        "receive_limit_probes",
        "spurious_retransmits",
        "spurious_timeouts",
        "tail_loss_probes",
        "rnr_nak_retry_err",
        "rx_atomic_requests",
        "rx_read_requests",
        "flushed",
        "host_bad_icrc",
        "host_rx_ring",
        "host_stale_response",
        "line_blackhole",
        "line_block_loss",
        "line_burst_loss",
        "line_link_down",
        "line_loss",
        "switch_queue_full",
    ] {
        assert!(sum(corner) > 0, "no seed has {corner}");
    }
    assert!(outcomes.iter().any(|o| o.report.as_ref().is_some_and(|r| r.pfc_pauses > 0)));
}

/// Half of the seeds have several workers, and frames of theirs are handed over.
#[test]
fn swarm__workers_hand_frames_over() {
    let handed = on_all_cores(&(0..40).collect::<Vec<_>>(), |seed| {
        let report = swarm_run(seed).report.expect("none has panicked");
        report.workers.map(|workers| (workers.each, workers.handed))
    });
    for each in [2, 4] {
        let of = handed.iter().flatten().filter(|(workers, _)| *workers == each);
        assert!(of.clone().all(|(_, handed)| *handed > 0), "{each} workers: {handed:?}");
        assert!(of.count() > 3, "{each} workers: {handed:?}");
    }
}

/// Every frame of both ends, byte for byte (the event hash has the ICRC of each), every completion
/// and every counter.
#[test]
fn swarm__fast_paths_change_nothing() {
    let drawn = 0..number("SPANWIRE_SEEDS").unwrap_or(200);
    let seeds: Vec<u64> = drawn.chain(seeds_that_found_bugs()).collect();
    let differing = on_all_cores(&seeds, |seed| {
        let report = |fast_paths| {
            let mut plan = swarm_plan(seed);
            plan.setup.fast_paths = fast_paths;
            let watch = Watch { series: false, check_every: 500 };
            plan.run(watch, &mut ()).expect("a valid network")
        };
        (report(false) != report(true)).then_some(seed)
    });
    let differing: Vec<u64> = differing.into_iter().flatten().collect();
    assert_eq!(differing, Vec::<u64>::new(), "seeds of which the fast paths change something");
}

#[test]
fn swarm__seeds_that_found_bugs_pass() {
    let seeds = seeds_that_found_bugs();
    assert!(!seeds.is_empty());
    check(&run(&seeds));
}

/// Bugs of a single engine were found before seeds drew workers.
#[test]
fn swarm__seeds_that_found_bugs_pass_with_one_worker() {
    let seeds = seeds_that_found_bugs();
    let with_more = seeds.into_iter().filter(|seed| swarm_plan(*seed).setup.workers > 1);
    let outcomes = on_all_cores(&with_more.collect::<Vec<_>>(), |seed| {
        let mut plan = swarm_plan(seed);
        plan.setup.workers = 1;
        let watch = Watch { series: false, check_every: 500 };
        plan.run(watch, &mut ()).expect("a valid network")
    });
    assert!(outcomes.len() > 5);
    let violations: Vec<_> = outcomes.into_iter().flat_map(|report| report.violations).collect();
    assert_eq!(violations, [] as [&str; 0]);
}

fn seeds_that_found_bugs() -> Vec<u64> {
    let text = include_str!("../seeds/swarm.txt");
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let seed = |l: &str| l.split(' ').next().and_then(|n| n.parse().ok());
    lines.map(|l| seed(l).expect("each line begins with a seed")).collect()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, but must be a number")))
}

/// A response is lost in this seed, and the responder's timeout is half a second: until then the
/// requester may only ask whether the peer is there, ever more rarely.
#[test]
fn swarm__a_lost_response_and_a_long_timeout_cause_no_storm_of_probes() {
    let mut plan = swarm_plan(9_900_003_551);
    plan.setup.timeout = plan.setup.timeout * 256;
    let watch = Watch { series: false, check_every: 500 };
    let report = plan.run(watch, &mut ()).expect("a valid network");
    assert_eq!(report.violations, Vec::<String>::new());
    assert!(report.engine["duplicate_request"] < 300, "{:?}", report.engine);
}
