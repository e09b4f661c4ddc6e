//! Uno (SC 2025): erasure coding and load balancing when a border link is dead or loses packets.

use super::quantity::{least, most, over, ratio, value};
use super::reading::{SeedResult, fcts, mean_fct, reading};
use super::row::{Figure, Paper, Quick, Row};
use super::run::Run;
use crate::record::to_f64;

pub(super) fn paper() -> Paper {
    Paper {
        name: "uno",
        title: "Uno: failures between data centres",
        about: "Uno's two fat trees of 128 hosts with eight border links, 100 Gbit/s and a round \
            trip of 1.79 ms. `spray`, `plb` and `unolb` are the load balancers; `coded` runs have \
            eight source and two parity packets a block. Times are from the post to the sender's \
            completion, as in the artifact.",
        rows: rows(),
    }
}

fn rows() -> Vec<Row> {
    let absent = |row| Row::absent(row, NO_CHECKS);
    let mut rows: Vec<Row> = BEFORE.map(absent).into();
    rows.extend([u_11(), u_12(), u_13(), u_14(), absent(U_15)]);
    rows
}

/// Rows in the order of the paper, without checks yet.
const BEFORE: [[&str; 3]; 10] = [
    ["U-1", "Fig. 1b", "Flows of less than 1 GiB are dominated by a latency of 20 ms."],
    ["U-2", "Table 1", "Blocks of ten packets that lose one, two and three."],
    ["U-3", "Fig. 3", "Intra and inter flows of one incast are fair soon under Uno alone."],
    ["U-4", "Fig. 4", "Phantom queues make RPCs beside long flows 2 times faster, p99 8 times."],
    ["U-5", "Fig. 8", "Incasts of intra, inter and both kinds of flows converge quickly."],
    ["U-6", "Fig. 8", "In each of them Uno's FCT is the best, or equal."],
    [
        "U-7",
        "Fig. 9",
        "In a permutation UnoCC's FCT is below Gemini's and MPRDMA's, UnoLB's lower.",
    ],
    [
        "U-8",
        "Fig. 10",
        "At 40 % load UnoCC's mean FCT is 30 to 37 % below, its tail 1.7 to 5 times.",
    ],
    ["U-9", "Fig. 11", "The gain grows with the ratio of round trips, 8 to 512."],
    [
        "U-10",
        "Fig. 12",
        "With short queues tails are 1.7 to 3.6 times below Gemini's and MPRDMA's.",
    ],
];
const U_15: [&str; 3] =
    ["U-15", "4.1.3", "Phantom queues that drain 10 % slower do not hurt large flows."];
const NO_CHECKS: &str = "It has no checks yet.";

/// Flows beside a dead border link.
fn dead(lb: &str, is_coded: bool) -> Run {
    let (ec, name) = if is_coded { ("8,2", format!("{lb} coded")) } else { ("off", lb.to_owned()) };
    Run::of("uno-fig13a", 20).set("lb", lb).set("ec", ec).named(name).quick(4, "")
}

/// The paper's losses are so rare that one flow has none, as a rule: a hundred times as many.
fn lossy(ec: &str, name: &str) -> Run {
    let run = Run::of("uno-fig13b", 20).set("lb", "unolb").set("ec", ec).set("times", "100");
    run.named(name).quick(4, "")
}

fn u_11() -> Row {
    let fct = mean_fct();
    let below = |a: &Run, b: &Run| ratio(a, b, &fct).is_lower();
    let [spray, plb, unolb] = ["spray", "plb", "unolb"].map(|lb| [dead(lb, false), dead(lb, true)]);
    let groups = ["spray", "spray, coded", "PLB", "PLB, coded", "UnoLB", "UnoLB, coded"];
    Row {
        refuted: Some(most([&spray, &plb].map(|b| ratio(&b[1], &unolb[1], &fct))).at_most(0.99)),
        quick: Quick::Bar,
        figures: vec![Figure::Violins {
            title: "Completion times with a dead border link",
            groups: groups.into_iter().zip([&spray[..], &plb, &unolb].concat()).collect(),
            reading: fcts(),
        }],
        ..Row::new(
            "U-11",
            "Fig. 13a",
            "With a dead border link UnoLB has a shorter FCT than spraying, with and without \
             coding; coding helps both.",
            [
                below(&unolb[1], &unolb[0]),
                below(&unolb[0], &spray[0]),
                below(&unolb[1], &spray[1]),
                below(&spray[1], &spray[0]),
                below(&unolb[1], &plb[1]),
            ],
        )
    }
}

fn u_12() -> Row {
    let (plain, coded) = (lossy("off", "uncoded"), lossy("8,2", "coded"));
    let of = |result: &SeedResult| Some(to_f64(result.retransmitted_packets));
    let again = reading("retransmitted packets", "", of);
    Row {
        quick: Quick::Show,
        scale: "a hundred times the losses of the paper's table 1: few seeds would have any",
        ..Row::new(
            "U-12",
            "Fig. 13b",
            "Coding hides correlated losses of the border links.",
            [
                ratio(&plain, &coded, &mean_fct()).at_least(1.4),
                over(&value(&coded, &again), &value(&plain, &again)).at_most(0.2),
            ],
        )
    }
    .choice(
        "The figure compares load balancers, which hardly differ without congestion; the row \
         compares UnoLB with and without coding. The bounds are ours.",
        [],
    )
}

fn u_13() -> Row {
    let run = |(name, lb, ec): (&'static str, &str, &str)| {
        let run = Run::of("uno-fig13c", 20).set("lb", lb).set("ec", ec);
        (name, run.named(name).quick(1, ""))
    };
    let all = [
        ("spraying", "spray", "off"),
        ("spraying, coded", "spray", "8,2"),
        ("PLB", "plb", "off"),
        ("PLB, coded", "plb", "8,2"),
        ("UnoLB", "unolb", "off"),
        ("Uno", "unolb", "8,2"),
    ];
    let runs = all.map(run);
    let time = reading("time over the ideal of 10.4 ms", "", |result| {
        let last = result.fct_us.iter().map(|us| us.unwrap_or(f64::INFINITY)).reduce(f64::max);
        last.map(|us| us / 10_400.0)
    });
    let of = |(_, run): &(&str, Run)| value(run, &time);
    let [others @ .., _, uno] = &runs;
    let best = least(others.iter().map(of));
    Row {
        quick: Quick::Show,
        why: "Uno takes half of the others' time, but 1.7 to 2.4 times the ideal: the least is \
            the ideal and one round trip of 7.1 ms, in which packets that the dead link has taken \
            and parity does not restore are sent again, 6 % of all. Without coding UnoLB takes as \
            long.",
        figures: vec![Figure::Violins {
            title: "Time of an Allreduce over the ideal",
            groups: runs.to_vec(),
            reading: time.clone(),
        }],
        ..Row::new(
            "U-13",
            "Fig. 13c",
            "With failures an Allreduce takes 1.3 times the ideal with Uno, half of the others' \
             time.",
            [of(uno).at_most(1.45).claimed(&[1.3]), over(&of(uno), &best).at_most(0.6)],
        )
    }
    .choice("One iteration of the paper's hundred, of 20 seeds.", [])
}

fn u_14() -> Row {
    let worst = fcts().most();
    let gain = |a: &Run, b: &Run| ratio(a, b, &mean_fct());
    let [plain, coded] = [dead("unolb", false), dead("unolb", true)];
    Row {
        why: "The slowest flow of a seed under PLB takes 1.9 times as long as under Uno; in the \
            paper's artifact 2.7 times, over three seeds.",
        quick: Quick::Show,
        ..Row::new(
            "U-14",
            "Fig. 13",
            "With failures Uno without coding takes up to 3 times as long, spraying 2 times, PLB \
             6 times.",
            [
                gain(&dead("spray", false), &coded).at_least(1.4).claimed(&[2.0]),
                most([
                    gain(&plain, &coded),
                    gain(&lossy("off", "uncoded"), &lossy("8,2", "coded")),
                ])
                .at_least(1.5)
                .claimed(&[3.0]),
                ratio(&dead("plb", false), &coded, &worst).at_least(3.0).claimed(&[6.0]),
            ],
        )
    }
    .choice("The bounds are ours, half of the paper's factors or more.", [])
}
