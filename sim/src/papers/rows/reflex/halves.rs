//! The halves of Reflex alone.

use super::super::quantity::{minus, over, reduction, value};
use super::super::reading::{metric, of_group, pfc_pauses};
use super::super::row::{Figure, Row};
use super::runs::{LOWEST, NAMED, TIMELY, at_70, by_load, gain, mean, part};
use crate::papers::IsolatedReport;
use crate::record::to_f64;

pub(super) fn r_11() -> Row {
    let (intra, inter) = (mean("intra", None), mean("inter", None));
    let [off, nsf, on] = ["off", "nsf", "on"].map(|reflex| value(&at_70("swift", reflex), &intra));
    let [fast_off, fast_nsf] = ["off", "nsf"].map(|reflex| {
        let run = at_70("swift", reflex).set("inter_min_rate", "1Gbit");
        run.named(format!("{reflex} from 1 Gbit/s"))
    });
    let part = over(&minus(&off, &nsf), &minus(&off, &on));
    Row {
        described: &["70"],
        why: "The checks of NSF hold. With both halves the gain of inter flows is 20 % in the \
            median, but -4 to 52 % over the seeds (R-6).",
        figures: vec![by_load(
            "Mean NFCT with NSF alone",
            &[
                ("Swift, intra", "swift", "intra", "off"),
                ("Swift, intra, NSF", "swift", "intra", "nsf"),
                ("Swift, inter", "swift", "inter", "off"),
                ("Swift, inter, NSF", "swift", "inter", "nsf"),
                ("TIMELY, intra", TIMELY, "intra", "off"),
                ("TIMELY, intra, NSF", TIMELY, "intra", "nsf"),
                ("TIMELY, inter", TIMELY, "inter", "off"),
                ("TIMELY, inter, NSF", TIMELY, "inter", "nsf"),
            ],
        )],
        ..Row::new(
            "R-11",
            "Fig. 8",
            "Swift at 70 %: NSF alone lowers the mean NFCT of intra flows by 52.6 %, both by 54.0 \
             %, and that of inter flows by 20.8 %.",
            [
                gain("swift", "nsf", &intra).near(52.6, 30.0),
                gain("swift", "nsf", &inter).at_least(0.0),
                gain("swift", "on", &intra).near(54.0, 30.0),
                gain("swift", "on", &inter).near(20.8, 30.0),
                part.named("part of the gain of both that NSF alone has").at_least(0.85),
            ],
        )
    }
    .choice(
        LOWEST,
        [
            reduction(&fast_nsf, &fast_off, &intra).near(52.6, 30.0),
            reduction(&fast_nsf, &fast_off, &inter).at_least(0.0),
        ],
    )
    .choice(
        "Acknowledgements from afar run the law with the stored near round trip \
         (`near_ack=stored`). With `least` the means are 5.55 within and 2.17 across, not 5.07 \
         and 2.62 (seed 1).",
        [],
    )
}

pub(super) fn r_12() -> Row {
    let isolated = metric!(Isolated, "isolated flows in hundredths", "", |r: &IsolatedReport| {
        vec![100.0 * to_f64(r.isolated_flows)]
    });
    let inter = of_group("inter flows", "inter", None, |stats| Some(to_f64(stats.n)));
    Row {
        described: &["70"],
        not_run: NAMED,
        why: "The ratio of congested flows that starts a pause is of the flows of one port in 100 \
            us, one to three as a rule, so that one congested flow exceeds it; while it waits, no \
            acknowledgement can show that it has recovered.",
        figures: vec![Figure::Bars {
            title: "Pause frames at 70 %, by halves of Reflex",
            y: "frames",
            groups: vec!["TIMELY".to_owned()],
            bars: [("without", "off"), ("NSF", "nsf"), ("NDT", "ndt"), ("both", "on")]
                .map(|(name, reflex)| {
                    (name.to_owned(), vec![value(&at_70(TIMELY, reflex), &pfc_pauses())])
                })
                .to_vec(),
        }],
        ..Row::new(
            "R-12",
            "Fig. 8",
            "TIMELY at 70 %: NDT alone lowers the number of pause frames by 21.3 %, and isolates \
             12.9 % of the inter flows.",
            [
                gain(TIMELY, "ndt", &pfc_pauses()).within([10.0, 40.0]).claimed(&[21.3]),
                part(&at_70(TIMELY, "ndt"), &isolated, &inter)
                    .named("isolated flows, per cent of the inter flows")
                    .within([5.0, 25.0])
                    .claimed(&[12.9]),
            ],
        )
    }
}
