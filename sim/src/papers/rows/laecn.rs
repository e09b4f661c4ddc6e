//! LAECN: marking thresholds that learn.

use super::quantity::{over, ratio, reduction};
use super::reading::{Reading, metric};
use super::row::{Figure, Paper, Row};
use super::run::Run;
use crate::papers::BinsReport;

pub(super) fn paper() -> Paper {
    let absent = |row| Row::absent(row, "It has no checks yet; ACC and HAECN are not built.");
    let mut rows = vec![l_1(), absent(L_2), l_3(), l_4()];
    rows.extend(AFTER.map(absent));
    Paper {
        name: "laecn",
        title: "LAECN: marking thresholds that learn",
        about: "LAECN's leaf-spine networks: hosts at 25 Gbit/s, one link of 100 Gbit/s from each \
            leaf to each spine, 1 us a link, 32 MB of buffer, PFC. Every fourth host of each of \
            12 leaves sends one flow to a random host of the first leaf. RC with DCQCN under the \
            networks of [ecn](../agents.md#ecn), 1024-byte packets. The paper leaves open the \
            networks' widths, the actions, omega, exploration and replay ([decision \
            0031](../decisions/0031-laecn.md)). AFCT is the mean completion time. How the \
            networks were trained, and the sweep over 45 fixed settings, are in [their \
            page](../laecn.md).",
        rows,
    }
}

const L_2: [&str; 3] = ["L-2", "Figs. 2b, 7", "Throughput stays steady as more flows begin."];
const AFTER: [[&str; 3]; 5] = [
    ["L-5", "Figs. 3b, 8b", "Random small flows do not lower the throughput."],
    ["L-6", "Fig. 10", "Throughput is high and steady with four workloads."],
    ["L-7", "Fig. 11a", "The processor time of switches is 31 % below ACC's."],
    ["L-8", "Fig. 11b", "Sudden small flows do not lower the throughput."],
    ["L-9", "abstract", "Throughput up to 47 % above, AFCT up to 33 % below."],
];

/// 144 flows of so many bytes.
fn burst(scheme: &str, bytes: &str) -> Run {
    let run = Run::of("laecn-burst", 10).set("scheme", scheme).set("bytes", bytes);
    run.named(format!("{scheme} at {bytes}"))
}

fn small(scheme: &str) -> Run {
    Run::of("laecn-small", 10).set("scheme", scheme).set("flows", "168").named(scheme)
}

fn afct() -> Reading {
    metric!(Bins, "AFCT", "us", |b: &BinsReport| vec![b.afct_us.unwrap_or(f64::INFINITY)])
}

fn l_1() -> Row {
    let to_dcqcn = |bytes| ratio(&burst("laecn", bytes), &burst("dcqcn", bytes), &afct());
    let sizes = [("0.3 MB", "300kB"), ("1 MB", "1MB"), ("2 MB", "2MB"), ("5 MB", "5MB")];
    let lead = sizes.map(|(_, bytes)| to_dcqcn(bytes)).to_vec();
    Row {
        why: "With 5 MB LAECN is 5 to 8 % below DCQCN in eight of ten seeds, and 2 and 7 % above \
            in the others.",
        described: &["5", "ACC"],
        figures: vec![Figure::Bars {
            title: "AFCT over DCQCN's, by the size of flows",
            y: "ratio",
            groups: sizes.map(|(name, _)| name.to_owned()).to_vec(),
            bars: vec![("LAECN".to_owned(), lead)],
        }],
        ..Row::new(
            "L-1",
            "Fig. 2a",
            "ACC leads DCQCN with small flows, and loses its lead as they grow to 5 MB.",
            [
                over(&to_dcqcn("5MB"), &to_dcqcn("300kB")).at_least(1.1),
                to_dcqcn("300kB").is_lower(),
                to_dcqcn("5MB").is_lower(),
            ],
        )
    }
    .choice("ACC is not built: LAECN is in its place. The bounds are ours.", [])
}

fn l_3() -> Row {
    let below = |rival| reduction(&burst("laecn", "5MB"), &burst(rival, "5MB"), &afct());
    Row {
        described: &["48", "5"],
        why: "No setting for all ports lowers the AFCT of 5 MB by more than 7 %: the medians of \
            the 45 of the list span 9,621 to 10,691 us. Several flows share each receiver's 25 \
            Gbit/s, so most of an AFCT is the wait for the others. HPCC's is below LAECN's in \
            nine of ten seeds.",
        ..Row::new(
            "L-3",
            "Fig. 6",
            "With 48 hosts a leaf AFCT of 5 MB is 33 % below DCQCN, 28 below TIMELY and 25 below \
             HPCC.",
            [
                below("dcqcn").at_least(10.0).claimed(&[33.0]),
                below("timely").at_least(1.0).claimed(&[28.0]),
                below("hpcc").at_least(1.0).claimed(&[25.0]),
            ],
        )
    }
    .choice("Of the four networks the largest alone. ACC is not built.", [])
}

fn l_4() -> Row {
    Row {
        described: &["168"],
        why: "The flows begin at line rate and are over before a mark could matter: of the 45 \
            settings the best has 127.48 us with 168 flows, DCQCN's own 127.51.",
        ..Row::new(
            "L-4",
            "Fig. 8a",
            "With 168 small flows AFCT is 23 % below DCQCN.",
            [reduction(&small("laecn"), &small("dcqcn"), &afct()).at_least(8.0).claimed(&[23.0])],
        )
    }
    .choice("Flows of 20 to 100 KB. ACC and HAECN, which it also compares with, are not built.", [])
}
