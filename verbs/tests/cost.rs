//! Instructions of `ibv_post_send` and `ibv_poll_cq` beyond those of the engine: a gate of release
//! builds, with callgrind (`apt-get install valgrind`).
//!
//! Valgrind is slow, and an engine is stepped every 20 us: a burst of 16 posts has one step on real
//! hardware, and three to seven here, more on a slower machine. So what the calls cost without the
//! steps has a budget for each message, and what surrounds the engine in a step has one for each
//! step. Valgrind also shows a processor without a counter that is fit for a clock, which costs
//! more than on real hardware.
#![expect(non_snake_case, reason = "tests are named function__case")]

#[path = "support/built.rs"]
mod built;

use built::Built;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

#[test]
#[cfg_attr(debug_assertions, ignore = "the instructions are those of a release build")]
fn cost__of_a_send_beyond_the_engine() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed (apt-get install valgrind)");
        return;
    }
    let Some(built) = Built::new("cost", "cost") else { return };
    let counts = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost/callgrind.out");
    let out = format!("--callgrind-out-file={}", counts.display());
    let collect = ["--toggle-collect=post", "--toggle-collect=poll_some"];
    let by = ["valgrind", "--tool=callgrind", &out, collect[0], collect[1]];
    let ran = built.command(&by, Ipv4Addr::new(127, 84, 1, 1)).arg("send").output().expect("runs");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat())
    );

    let costs = Costs::parse(&fs::read_to_string(&counts).expect("valgrind has written it"));
    let sum = |functions: &[&str]| functions.iter().map(|name| costs.of(name)).sum::<u64>();
    let beyond = sum(CALLS)
        .checked_sub(sum(ENGINE) + costs.of(TURN))
        .expect("the engine and its steps are called by both")
        / MESSAGES;
    let turns = costs.calls[TURN];
    let around = costs.of(TURN).checked_sub(costs.of(STEP)).expect("a turn is a step") / turns;
    println!("a SEND of 64 B: {beyond} instructions beyond the engine's, and {around} a step");
    assert!(beyond <= BUDGET, "{beyond} instructions of {BUDGET}: {costs:#?}");
    assert!(around <= STEP_BUDGET, "{around} instructions of {STEP_BUDGET} a step: {costs:#?}");
}

/// Instructions by function, with those of the functions that it calls.
#[derive(Debug, Default)]
struct Costs {
    instructions: BTreeMap<String, u64>,
    /// How often it was called.
    calls: BTreeMap<String, u64>,
}

impl Costs {
    /// Reads callgrind's output: `fn=(1) NAME` begins a function, `fn=(1)` is the same one again;
    /// lines of a position and a count follow. Such a line after `calls=` is what a call costs.
    fn parse(text: &str) -> Self {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut costs, mut function, mut called) = (Self::default(), "", "");
        for line in text.lines() {
            // The same numbers are names in `cfn=`, of a function that is called.
            if let Some(name) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (number, name) = name.split_once(' ').unwrap_or((name, ""));
                if !name.is_empty() {
                    names.insert(number, name);
                }
                let named = if line.starts_with("fn=") { &mut function } else { &mut called };
                *named = names[number];
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls = calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok());
                *costs.calls.entry(called.to_owned()).or_default() += calls.expect("a number");
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c))
                && let Some(count) = line.split(' ').nth(1)
            {
                let count: u64 = count.parse().expect("a count follows the position");
                *costs.instructions.entry(function.to_owned()).or_default() += count;
            }
        }
        costs
    }

    fn of(&self, function: &str) -> u64 {
        *self
            .instructions
            .get(function)
            .unwrap_or_else(|| panic!("{function} was inlined or renamed: {self:#?}"))
    }
}

const CALLS: &[&str] = &["ibverbs::post::post_send", "ibverbs::cq::poll_cq"];

/// The verbs of the engine.
const ENGINE: &[&str] = &[
    "spanwire_transport::endpoint::Endpoint::post_send",
    "spanwire_transport::cq::CompletionQueue::poll_into",
];

/// A step with what surrounds it, and that of the engine alone.
const TURN: &str = "spanwire_progress::worker::Worker<T,D>::turn";
const STEP: &str = "spanwire_io::worker::<impl spanwire_progress::engine::Engine for \
     spanwire_io::fork::HereOnly<spanwire_io::worker::Core<N,P>>>::step";

/// Those that the program sends.
const MESSAGES: u64 = 200 * 16;

/// At most so many instructions a message.
const BUDGET: u64 = 520;

/// At most so many instructions a step.
const STEP_BUDGET: u64 = 330;
