//! PACC: CNPs that switches send by a PI law, with unchanged DCQCN hosts.

mod fct;

use super::quantity::{least, middle, most, over, ratio, value};
use super::reading::{Reading, metric};
use super::row::{Figure, Paper, Quick, Row};
use super::run::Run;
use crate::papers::{BurstReport, RecoverReport, StagesReport, SteadyReport};
use crate::record::to_f64;
use fct::{p_8, p_9, p_10};

pub(super) fn paper() -> Paper {
    Paper {
        name: "pacc",
        title: "PACC: congestion notification by switches",
        about: "320 hosts with 25 Gbit/s in a fat tree of 100 Gbit/s links, in the shape of the \
            HPCC simulator. `pacc` computes also when the queue exceeds its threshold, \
            `pacc-timer` only every 80 us, `pacc-every` again every 4 us above it; `pacc-floor` \
            forgets the fractions of a flow's share. In `pacc-alpha` and `dcqcn-alpha` the \
            senders begin with DCQCN's alpha at 0.047, its value in the steady state by the \
            paper's analysis, and not at 1 as in that simulator. The rivals are DCQCN, TIMELY and \
            HPCC with the settings of that simulator.",
        rows: vec![p_1(), p_2(), p_3(), p_4(), p_5(), p_6(), p_7(), p_8(), p_9(), p_10()],
    }
}

fn burst(scheme: &str) -> Run {
    Run::of("pacc-burst", 10).set("scheme", scheme).quick(1, "")
}

fn micro(scheme: &str) -> Run {
    Run::of("pacc-micro", 10).set("scheme", scheme).quick(1, "")
}

fn steady(scheme: &str, flows: u32) -> Run {
    let run = Run::of("pacc-steady", 10).set("scheme", scheme).set("senders", flows.to_string());
    run.named(format!("{scheme} with {flows} flows")).quick(1, "")
}

fn join(scheme: &str) -> Run {
    Run::of("pacc-join", 10).set("scheme", scheme)
}

/// A number of the burst; infinite if it is never.
fn of_burst(name: &str, unit: &'static str, of: fn(&BurstReport) -> Option<f64>) -> Reading {
    metric!(Burst, name, unit, move |b: &BurstReport| vec![of(b).unwrap_or(f64::INFINITY)])
}

fn peak() -> Reading {
    of_burst("peak of the queue", "KB", |b| Some(to_f64(b.peak_bytes) / 1000.0))
}

fn refill() -> Reading {
    of_burst("time to 95 % of the link", "us", |b| b.refill_us)
}

fn rates() -> Reading {
    metric!(Burst, "rate of a flow", "Gbit/s", |b: &BurstReport| b.rates_gbps.clone())
}

fn cnps() -> Reading {
    let of = |b: &BurstReport| b.cnps.iter().copied().map(to_f64).collect();
    metric!(Burst, "CNPs by flow", "", of)
}

/// PACC and its rivals, by name.
fn rivals_of(run: fn(&str) -> Run) -> [(&'static str, Run); 4] {
    [("PACC", "pacc"), ("DCQCN", "dcqcn"), ("TIMELY", "timely"), ("HPCC", "hpcc")]
        .map(|(name, scheme)| (name, run(scheme)))
}

fn violins(
    title: &'static str,
    reading: Reading,
    schemes: &[(&'static str, &str)],
    run: fn(&str) -> Run,
) -> Figure {
    let groups = schemes.iter().map(|(name, scheme)| (*name, run(scheme))).collect();
    Figure::Violins { title, groups, reading }
}

fn p_1() -> Row {
    let low = of_burst("time until below 200 KB", "us", |b| b.below_200kb_us);
    let to_rivals = |own: &Run, reading: &Reading| {
        most(["dcqcn", "timely"].map(|rival| ratio(own, &burst(rival), reading)))
    };
    let [dcqcn, timely] = ["dcqcn", "timely"]
        .map(|rival| value(&burst(rival), &peak()).near(576.0, 15.0).claimed(&[600.0]));
    Row {
        why: "All of the burst has left its hosts before a CNP has an effect (P-2), at any phase \
            of the timer.",
        described: &["64", "125"],
        refuted: Some(
            least(["dcqcn", "timely"].map(|rival| ratio(&burst("pacc"), &burst(rival), &peak())))
                .at_least(1.0),
        ),
        quick: Quick::Show,
        figures: vec![
            Figure::queues("Queue after the burst", [0.0, 0.4], &rivals_of(burst)),
            violins(
                "Largest queue after the burst",
                peak(),
                &[
                    ("PACC", "pacc"),
                    ("timer", "pacc-timer"),
                    ("every", "pacc-every"),
                    ("floor", "pacc-floor"),
                    ("printed", "pacc-printed"),
                    ("DCQCN", "dcqcn"),
                    ("TIMELY", "timely"),
                    ("HPCC", "hpcc"),
                ],
                burst,
            ),
        ],
        ..Row::new(
            "P-1",
            "Fig. 1a",
            "A burst of nine flows of 64 KB takes the queue of DCQCN and TIMELY to about 600 KB; \
             PACC has a lower peak and is back near its threshold of 125 KB sooner.",
            [
                to_rivals(&burst("pacc"), &peak()).at_most(0.95),
                dcqcn,
                timely,
                to_rivals(&burst("pacc"), &low).is_lower(),
                ratio(&burst("pacc-timer"), &burst("dcqcn"), &peak()).within([0.95, 1.05]),
            ],
        )
    }
    .choice(
        "Switches know the queue pairs from the start. With those that they learn from packets \
         (`qpns=learned`) most CNPs cannot be sent.",
        [to_rivals(&burst("pacc").set("qpns", "learned").named("learned"), &peak()).at_most(0.95)],
    )
    .choice(
        "The law also computes when the queue passes its threshold. By its timer alone \
         (`pacc-timer`), or as printed, with shares rounded down (`pacc-printed`):",
        ["pacc-timer", "pacc-printed"].map(|own| to_rivals(&burst(own), &peak()).at_most(0.95)),
    )
    .choice("The burst begins at any phase of PACC's timer.", [])
    .choice("HPCC has a window of 40 KB and cannot reach the paper's 600 KB; it has no check.", [])
}

fn p_2() -> Row {
    let to = |rival| ratio(&burst("pacc"), &burst(rival), &refill());
    let of = |rival, us| value(&burst(rival), &refill()).near(us, 30.0);
    Row {
        refuted: Some(to("dcqcn").at_least(1.05)),
        quick: Quick::Show,
        why: "The nine flows have left their hosts within 22 us, before any feedback has an \
            effect: the queue passes its threshold 10 us after the burst begins, the first CNP is \
            4 us later, takes 5 us and cuts the rate after another 4. So all of the burst waits \
            in the queue, and the law allots CNPs for 475 KB above its threshold: 8 to 10 to the \
            long flow, as to the others. Alpha is 1 with the first CNP, each further one halves \
            the rate, and the long flow waits for its increases, each 300 us, like DCQCN's. With \
            alpha as the paper's analysis has it (`pacc-alpha`) its link is full again as soon as \
            with HPCC, and so is DCQCN's (`dcqcn-alpha`): PACC gains nothing there.",
        figures: vec![
            Figure::OverTime {
                title: "Rate of the long flow after the burst",
                y: "rate",
                span: [0.0, 1.0],
                lines: rivals_of(burst)
                    .map(|(name, run)| (name.to_owned(), run, "flow 0".to_owned()))
                    .to_vec(),
            },
            violins(
                "Time to 95 % of the link",
                refill(),
                &[
                    ("PACC", "pacc"),
                    ("PACC, alpha 0.047", "pacc-alpha"),
                    ("DCQCN", "dcqcn"),
                    ("DCQCN, alpha 0.047", "dcqcn-alpha"),
                    ("TIMELY", "timely"),
                    ("HPCC", "hpcc"),
                ],
                burst,
            ),
        ],
        ..Row::new(
            "P-2",
            "Fig. 1b",
            "After the burst HPCC and TIMELY refill the link in about 60 us and DCQCN in about \
             500 us; PACC is comparable with HPCC, and better than DCQCN and TIMELY.",
            [
                to("hpcc").at_most(1.5),
                to("dcqcn").at_most(0.5),
                to("timely").is_lower(),
                of("hpcc", 60.0),
                of("timely", 60.0),
                of("dcqcn", 500.0),
            ],
        )
    }
}

fn p_3() -> Row {
    let differ = of_burst("largest less smallest rate of a flow, of the fair share", "%", |b| {
        let most = b.rates_gbps.iter().copied().max_by(f64::total_cmp)?;
        Some((most - b.rates_gbps.iter().copied().min_by(f64::total_cmp)?) / 2.5 * 100.0)
    });
    let to_dcqcn = ratio(&burst("pacc"), &burst("dcqcn"), &differ);
    Row {
        is_deterministic: true,
        refuted: Some(to_dcqcn.at_least(1.05)),
        quick: Quick::Show,
        why: "All of the burst has left its hosts before a CNP has an effect (P-2), so the rates \
            at which its packets arrive are those of one queue, first in, first out: 600 KB in \
            195 us, in equal parts but for the distance of the hosts, with any control. The \
            figure needs a burst that lasts.",
        figures: vec![violins(
            "Rates of the flows, 600 to 800 us",
            rates(),
            &[("PACC", "pacc"), ("DCQCN", "dcqcn")],
            burst,
        )],
        ..Row::new(
            "P-3",
            "Fig. 2a",
            "With DCQCN the rates of the ten flows differ by more than 60 %; with PACC they are \
             near the fair share of 2.5 Gbit/s.",
            [
                to_dcqcn.at_most(0.5),
                value(&burst("dcqcn"), &differ).at_least(60.0).claimed(&[60.0]),
                value(&burst("pacc"), &rates().least()).at_least(2.1).claimed(&[2.5]),
                value(&burst("pacc"), &rates().most()).at_most(2.9).claimed(&[2.5]),
            ],
        )
    }
}

fn p_4() -> Row {
    let all = ratio(&burst("pacc"), &burst("dcqcn"), &cnps().sum());
    let [most, least] = [cnps().most(), cnps().least()].map(|cnps| value(&burst("pacc"), &cnps));
    Row {
        why: "PACC sends half of DCQCN's CNPs or fewer but for one of ten seeds. Those of the \
            long flow are up to 2.5 times those of another: it is in the queue before and after \
            the burst.",
        refuted: Some(all.at_least(1.0)),
        quick: Quick::Show,
        figures: vec![violins(
            "CNPs by flow",
            cnps(),
            &[
                ("PACC", "pacc"),
                ("PACC, alpha 0.047", "pacc-alpha"),
                ("DCQCN", "dcqcn"),
                ("DCQCN, alpha 0.047", "dcqcn-alpha"),
            ],
            burst,
        )],
        ..Row::new(
            "P-4",
            "Fig. 2b",
            "DCQCN's CNPs are unevenly distributed over the flows; PACC's are few and even.",
            [all.at_most(0.5), over(&most, &least).at_most(2.0)],
        )
    }
}

fn p_5() -> Row {
    let to_rivals = |place: usize, name: &str, us: f64| {
        let of = move |r: &RecoverReport| {
            vec![r.recover_us.get(place).copied().flatten().unwrap_or(f64::INFINITY)]
        };
        let recovery = metric!(Recover, format!("recovery of the {name} flow"), "us", of);
        let rivals =
            middle(["dcqcn", "timely", "hpcc"].map(|rival| value(&micro(rival), &recovery)));
        let pacc = over(&value(&micro("pacc"), &recovery), &rivals).at_most(0.5);
        [pacc, rivals.near(us, 30.0)]
    };
    Row {
        quick: Quick::Show,
        why: "A long flow is a queue pair of its own here and remembers nothing of the burst of \
            its host 200 us before, so it is at full rate after 25 us with every control. The \
            first flow recovers in 128 us with PACC, in 135 with DCQCN, 125 with TIMELY and 220 \
            with HPCC (medians).",
        ..Row::new(
            "P-5",
            "Fig. 3",
            "After a burst shorter than a round trip DCQCN, TIMELY and HPCC take about 150 us to \
             recover, and 350 us for a flow that began in the burst; PACC avoids that.",
            [to_rivals(0, "long", 150.0), to_rivals(1, "new", 350.0)].concat(),
        )
    }
}

fn p_6() -> Row {
    let off = metric!(Steady, "largest deviation from the mean queue", "KB", |s: &SteadyReport| {
        let mean = s.queue_bytes_mean;
        let off = (s.queue_bytes_most - mean).max(mean - s.queue_bytes_least);
        vec![to_f64(off) / 1000.0]
    });
    let mean = metric!(Steady, "mean queue", "KB", |s: &SteadyReport| {
        vec![to_f64(s.queue_bytes_mean) / 1000.0]
    });
    let flows = [2, 4, 10, 20];
    let bars = |name: &str, scheme: &str| {
        (name.to_owned(), flows.map(|flows| value(&steady(scheme, flows), &mean)).to_vec())
    };
    Row {
        described: &["0.05", "0.1"],
        quick: Quick::Show,
        why: "The law itself oscillates by more. A fluid model of it, with equal senders and \
            without packets (`tests/sim/pacc_fluid.rs`, with which the means agree within 20 %), \
            has 129 to 217 KB with 10 flows and 138 to 359 KB with 20: each flow gets a CNP only \
            when its fractions have added up, and then all of them do at the same time. The queue \
            stays bounded and never empties.",
        figures: vec![Figure::Bars {
            title: "Mean queue by the number of flows",
            y: "KB",
            groups: flows.map(|flows| format!("{flows} flows")).to_vec(),
            bars: vec![bars("PACC", "pacc"), bars("without fractions", "pacc-floor")],
        }],
        ..Row::new(
            "P-6",
            "Fig. 5",
            "The gains (0.05, 0.1) are stable.",
            // A quarter of the threshold of 125 KB.
            [most(flows.map(|flows| value(&steady("pacc", flows), &off))).at_most(31.25)],
        )
    }
}

fn p_7() -> Row {
    let jain = metric!(Stages, "Jain's index of a stage", "", |s: &StagesReport| {
        s.jain.iter().map(|jain| jain.unwrap_or(f64::INFINITY)).collect()
    });
    let rates = |title, scheme| Figure::flows(title, "rate", [0.0, 400.0], &join(scheme), 0..4);
    let total = metric!(Stages, "total rate", "Gbit/s", |s: &StagesReport| vec![s.total_gbps]);
    Row {
        described: &["50"],
        figures: vec![
            rates("Rates of the flows, PACC", "pacc"),
            rates("Rates of the flows, HPCC", "hpcc"),
            violins(
                "Jain's index by stage",
                jain.clone(),
                &[("PACC", "pacc"), ("HPCC", "hpcc")],
                join,
            ),
        ],
        ..Row::new(
            "P-7",
            "Fig. 6",
            "Flows that join and leave every 50 ms share fairly and fast with PACC; HPCC is \
             unfair and loses 5 % to its telemetry.",
            [
                ratio(&join("pacc"), &join("hpcc"), &total).at_least(1.03).claimed(&[5.0]),
                value(&join("pacc"), &jain.least()).at_least(0.98),
                value(&join("hpcc"), &jain.least()).at_most(0.98),
            ],
        )
    }
}
