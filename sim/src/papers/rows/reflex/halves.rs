//! The halves of Reflex alone.

use super::super::quantity::{minus, over, value};
use super::super::reading::{metric, of_group, pfc_pauses};
use super::super::row::{Figure, Row};
use super::runs::{LOWEST, TIMELY, at_70, gain, mean, part};
use super::sweep::{LOWEST_RATES, Other, PORT, PORT_PACKET, gain_with};
use crate::papers::IsolatedReport;
use crate::record::to_f64;

pub(super) fn r_11() -> Row {
    let (intra, inter) = (mean("intra", None), mean("inter", None));
    let [off, nsf, on] = ["off", "nsf", "on"].map(|reflex| value(&at_70("swift", reflex), &intra));
    let with = |row: Row, other: &&Other| {
        let [near, far] = [&intra, &inter].map(|of| gain_with("swift", "nsf", of, other));
        row.choice(other.text, [near.near(52.6, 30.0), far.at_least(0.0)])
    };
    let of = [
        ("Swift, intra", "swift", "intra"),
        ("Swift, inter", "swift", "inter"),
        ("TIMELY, intra", TIMELY, "intra"),
        ("TIMELY, inter", TIMELY, "inter"),
    ];
    let part = over(&minus(&off, &nsf), &minus(&off, &on));
    let row = Row {
        described: &["70"],
        why: "All medians are within the bounds, and both halves gain as NSF alone. The intervals \
            of the gain within are not, for the reason of R-6: 33 to 53 and 33 to 52 %.",
        figures: vec![Figure::Bars {
            title: "Mean NFCT with NSF alone, 70 %",
            y: "NFCT",
            groups: of.map(|(name, ..)| name.to_owned()).to_vec(),
            bars: [("without", "off"), ("NSF", "nsf")]
                .map(|(name, reflex)| {
                    let at = of.map(|(_, cc, group)| value(&at_70(cc, reflex), &mean(group, None)));
                    (name.to_owned(), at.to_vec())
                })
                .to_vec(),
        }],
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
    };
    LOWEST_RATES.iter().fold(row.choice(LOWEST, []), with).choice(
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
        why: "40 % of the flows between are isolated: at this load their round trips from the \
            border are above 10 us as a rule, since TIMELY accepts queues of up to 500 us. The \
            queue they wait in has a ninth of a congested port and seldom pauses, since seven of \
            ten flows of a switch are seldom congested at once: the number of frames changes by \
            -10 to 3 %. With both halves the median is none (R-10), where the paper has 152.",
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
