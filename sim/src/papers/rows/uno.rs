//! Uno (SC 2025): erasure coding and load balancing when a border link is dead or loses packets.

use super::quantity::{most, over, ratio, value};
use super::reading::{SeedResult, fcts, mean_fct, reading};
use super::row::{Figure, Paper, Quick, Row};
use super::run::Run;

pub(super) fn paper() -> Paper {
    Paper {
        name: "uno",
        title: "Uno: failures between data centres",
        about: "Uno's two fat trees of 128 hosts with eight border links, 100 Gbit/s and a round \
            trip of 1.79 ms. `spray`, `plb` and `unolb` are the load balancers; `coded` runs \
            have eight source and two parity packets a block. Times are from the post to the \
            sender's completion, as in the artifact.",
        rows: vec![u_11(), u_14(), u_12()],
    }
}

/// Flows beside a dead border link.
fn dead(lb: &str, is_coded: bool) -> Run {
    let (ec, name) = if is_coded { ("8,2", format!("{lb} coded")) } else { ("off", lb.to_owned()) };
    Run::of("uno-fig13a", 20).set("lb", lb).set("ec", ec).named(name).quick(4, "")
}

/// The paper's losses are so rare that one flow has none, as a rule: a hundred times as many.
fn lossy(ec: &str, name: &str) -> Run {
    let run = Run::of("uno-fig13b", 20).set("lb", "unolb").set("ec", ec).set("times", "100");
    run.named(name).quick(10, "")
}

fn u_11() -> Row {
    let fct = mean_fct();
    let below = |a: &Run, b: &Run| ratio(a, b, &fct).at_most(1.0);
    let [spray, plb, unolb] = ["spray", "plb", "unolb"].map(|lb| [dead(lb, false), dead(lb, true)]);
    let groups = ["spray", "spray, coded", "PLB", "PLB, coded", "UnoLB", "UnoLB, coded"];
    Row {
        refuted: Some(most([&spray, &plb].map(|b| ratio(&b[1], &unolb[1], &fct))).at_most(1.0)),
        quick: Quick::Show,
        figure: Some(Figure::Violins {
            title: "Completion times with a dead border link",
            groups: groups.into_iter().zip([&spray[..], &plb, &unolb].concat()).collect(),
            reading: fcts(),
        }),
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

fn u_14() -> Row {
    Row {
        quick: Quick::Bar,
        ..Row::new(
            "U-14",
            "Fig. 13a",
            "Without coding and with spraying alone, a failure costs far more.",
            [ratio(&dead("spray", false), &dead("unolb", true), &mean_fct()).at_least(1.4)],
        )
    }
}

fn u_12() -> Row {
    let (plain, coded) = (lossy("off", "uncoded"), lossy("8,2", "coded"));
    #[expect(clippy::cast_precision_loss, reason = "a count of packets of one run")]
    let of = |result: &SeedResult| Some(result.retransmitted_packets as f64);
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
}
