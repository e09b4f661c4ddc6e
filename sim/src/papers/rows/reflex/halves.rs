//! The halves of Reflex alone.

use super::super::quantity::{minus, over, value};
use super::super::reading::{metric, of_group, pfc_pauses};
use super::super::row::{Figure, Row};
use super::runs::{LOWEST, TIMELY, at_70, by_load, gain, mean, part};
use super::sweep::{LOWEST_1G, LOWEST_100M, Other, PORT, PORT_PACKET, gain_with};
use crate::papers::IsolatedReport;
use crate::record::to_f64;

pub(super) fn r_11() -> Row {
    let (intra, inter) = (mean("intra", None), mean("inter", None));
    let [off, nsf, on] = ["off", "nsf", "on"].map(|reflex| value(&at_70("swift", reflex), &intra));
    let with = |other: &Other| {
        let near = gain_with("swift", "nsf", &intra, other).near(52.6, 30.0);
        [near, gain_with("swift", "nsf", &inter, other).at_least(0.0)]
    };
    let [slow, fast] = [&LOWEST_100M, &LOWEST_1G].map(|other| (other.text, with(other)));
    let part = over(&minus(&off, &nsf), &minus(&off, &on));
    Row {
        described: &["70"],
        why: "The checks of NSF hold, and both halves gain as NSF alone. With both the gain of \
            flows within is 36 to 61 % over the seeds, and that of flows between 27.1 % in the \
            median, just above its bound (R-6).",
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
    .choice(LOWEST, [])
    .choice(slow.0, slow.1)
    .choice(fast.0, fast.1)
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
    let checks = |other: &Other| {
        let gain = gain_with(TIMELY, "ndt", &pfc_pauses(), other).within([10.0, 40.0]);
        let isolated = part(&other.at_70(TIMELY, "ndt"), &isolated, &inter)
            .named("isolated flows, per cent of the inter flows");
        [gain.claimed(&[21.3]), isolated.within([5.0, 25.0]).claimed(&[12.9])]
    };
    let row = Row {
        described: &["70"],
        why: "A third of the flows between is isolated: under TIMELY, which keeps up to 500 us of \
            queue, their round trips to the receivers are above 10 us as a rule. The queue they \
            wait in has a ninth of a congested port, but seldom pauses, since seven of ten flows \
            of a switch are seldom congested at once; with the former rule (one port, and a pause \
            after each packet) there are 41 % fewer frames and 41 % isolated.",
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
            checks(&Other::NONE),
        )
    };
    [&PORT, &PORT_PACKET].iter().fold(row, |row, other| row.choice(other.text, checks(other)))
}
