//! Exactly-once semantics: after every step memory, atomics and completions agree with a simple
//! model, regardless of what the wire does.
//!
//! `SPANWIRE_SEEDS=1000000` runs that many seeds instead of ten thousand. `SPANWIRE_SEED=N` runs
//! one, as a failure's message suggests, and with `SPANWIRE_TRACE=1` prints each of its frames.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod model;
mod world;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Tamper, World};

#[test]
fn run__ten_thousand_seeds_agree_with_the_model() {
    if let Some(seed) = number("SPANWIRE_SEED") {
        let mut world = World::new(seed);
        world.is_traced = number("SPANWIRE_TRACE") == Some(1);
        world.run();
        return;
    }
    let seeds = number("SPANWIRE_SEEDS").unwrap_or(10_000);
    let next = AtomicU64::new(0);
    let work = || {
        let mut wrong = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || wrong.len() >= FAILURES_MAX {
                return wrong;
            }
            let run = AssertUnwindSafe(|| World::new(seed).run());
            if let Err(why) = catch_unwind(run) {
                wrong.push(format!("SPANWIRE_SEED={seed}: {}", message(why.as_ref())));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let wrong: Vec<String> = std::thread::scope(|s| {
        let handles: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        handles.into_iter().flat_map(|h| h.join().expect("panics are caught")).collect()
    });
    assert!(
        wrong.is_empty(),
        "{} seeds, {threads} times {FAILURES_MAX} at most:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Failing seeds after which a thread stops.
const FAILURES_MAX: usize = 50;

#[test]
fn run__worlds_reach_every_corner() {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..400 {
        let mut world = World::new(seed);
        world.run();
        let engines = world.ends.iter().flat_map(|end| &end.engines);
        for (name, n) in engines.flat_map(|engine| engine.ep.counters().list()) {
            *seen.entry(name).or_default() += n;
        }
        let handed = if world.is_sr() { "handed of SR" } else { "handed of RC" };
        *seen.entry(handed.to_owned()).or_default() += world.handed;
    }
    let corners = [
        "handed of RC",
        "handed of SR",
        "rx_atomic_requests",
        "rx_read_requests",
        "duplicate_request",
        "out_of_sequence",
        "out_of_buffer",
        "packet_seq_err",
        "rnr_nak_retry_err",
        "implied_nak_seq_err",
        "local_ack_timeout_err",
        "retransmitted_packets",
        "req_cqe_error",
        "flushed",
        "drop_bad_icrc",
        "drop_stale_response",
        "drop_after_sequence_gap",
        "drop_after_response_gap",
        "drop_repeated_nak",
        "presumed_lost_packets",
        "tail_loss_probes",
        "receive_limit_probes",
        "spurious_retransmits",
        "ec_parity_packets",
        "ec_rebuilt_packets",
        "ec_blocks_rebuilt",
        "ec_blocks_plain",
        "ec_block_nacks",
    ];
    for corner in corners {
        assert!(seen.get(corner).is_some_and(|n| *n > 0), "no world has {corner}: {seen:#?}");
    }
}

/// Runs worlds with a deliberate error, each of which must be detected; returns how many were.
fn detected(sabotage: fn(&mut World)) -> usize {
    let detections = |seed: &u64| {
        let mut world = World::new(*seed);
        world.sabotage = Some(sabotage);
        catch_unwind(AssertUnwindSafe(|| world.run())).is_err()
    };
    (0..20).filter(detections).count()
}

#[test]
fn check_memory__detects_an_atomic_executed_twice() {
    let twice = detected(|w| {
        if w.now.as_ns() > 100_000 {
            w.ends[1].region.fetch_add(0, 1).expect("inside");
        }
    });
    assert_eq!(twice, 20);
}

#[test]
fn check_memory__detects_a_single_wrong_bit() {
    let flipped = detected(|w| {
        let at = usize::try_from(w.now.as_ns()).expect("small") % w.ends[0].region.len();
        let mut byte = [0];
        w.ends[0].region.copy_out(at, &mut byte).expect("inside");
        w.ends[0].region.copy_in(at, &[byte[0] ^ 4]).expect("inside");
    });
    assert_eq!(flipped, 20);
}

#[test]
fn complete__detects_a_missing_completion() {
    let swallowed = detected(|w| {
        for side in &mut w.model.sides {
            for q in &mut side.qps {
                // As if the oldest request had completed without a visible completion.
                q.completed += usize::from(q.completed == 2 && q.posted.len() > 2);
            }
        }
    });
    assert!(swallowed >= 10, "{swallowed} of 20: some worlds have no completion at that point");
}

/// Of `worlds` worlds with tampering on the wire or in the driver, how many are detected, and the
/// message of the first.
fn detected_tampering(tamper: Tamper, worlds: u64) -> (usize, String) {
    let mut said = Vec::new();
    for seed in 0..worlds {
        let mut world = World::new(seed);
        if tamper == Tamper::ForgeRnrNak && !world.may_lack_sack_words() {
            continue;
        }
        world.tamper = Some(tamper);
        if let Err(why) = catch_unwind(AssertUnwindSafe(|| world.run())) {
            said.push(message(why.as_ref()));
        }
    }
    (said.len(), said.into_iter().next().unwrap_or_default())
}

#[test]
fn check_memory__detects_parity_over_two_versions_of_memory() {
    let (detections, what) = detected_tampering(Tamper::UnmarkRetransmissions, 1000);
    assert!(detections >= 3 && what.contains("memory of side"), "{detections}: {what}");
}

#[test]
fn complete__detects_an_unjustified_rnr_retry_error() {
    let (detections, what) = detected_tampering(Tamper::ForgeRnrNak, 10_000);
    assert!(detections >= 3 && what.contains("RNR NAKs"), "{detections}: {what}");
}

#[test]
fn check_alive__detects_timers_that_have_no_effect() {
    let (detections, what) = detected_tampering(Tamper::IgnoreTimers, 20);
    assert!(detections >= 10 && what.contains("queue pair"), "{detections}: {what}");
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let literal = || payload.downcast_ref::<&str>().map(ToString::to_string);
    payload.downcast_ref::<String>().cloned().or_else(literal).unwrap_or_default()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, but must be a number")))
}
