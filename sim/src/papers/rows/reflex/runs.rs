//! Runs of Reflex's network, and readings of them.

use super::super::quantity::{Quantity, over, reduction, value};
use super::super::reading::{Reading, of_group};
use super::super::row::Figure;
use super::super::run::Run;

pub(super) const TIMELY: &str = "timely-vwin";
/// Whether a network collapses for some milliseconds depends on the seed, so medians of six have
/// intervals wider than most bounds. Those of 24 are from the seventh to the eighteenth, those of
/// 17 from the fifth to the thirteenth.
pub(super) const SEEDS: u64 = 17;
const SEEDS_AT_70: u64 = 24;
/// Of runs with another choice.
pub(super) const OTHER_SEEDS: u64 = 6;
pub(super) const LOADS: [u32; 3] = [30, 50, 70];
/// Places in the list of sizes.
pub(super) const ABOVE_10_MB: usize = 4;
pub(super) const UPTO_1_MB: usize = 5;
pub(super) const UPTO_12_5_MB: usize = 6;
pub(super) const ABOVE_12_5_MB: usize = 7;

pub(super) const LOWEST: &str = "Swift's target is below the round trip of inter flows without \
    NSF, so its lowest rate decides their time, and the paper names none. Here it is fitted: with \
    350 Mbit/s inter flows gain about as much as the paper says (R-6, R-11). Of 100, 250, 300 and \
    1000 Mbit/s, 300 is the lowest with which they are ahead at all loads (R-1). The defaults of \
    HPCC's simulator are 100 Mbit/s, and 1 Gbit/s in its scripts.";
pub(super) const WINDOW: &str = "TIMELY has a window, a bandwidth-delay product of each flow's own \
    path, and a lowest rate of 100 Mbit/s (`cc=timely-vwin`). The paper names neither. HPCC's \
    simulator has both with its configuration file, but one window for all paths; its scripts also \
    run TIMELY without a window and with 1 Gbit/s. See \
    docs/decisions/0044-timely-has-a-window.md.";

/// Both data centres; `reflex` is off, nsf, ndt or on.
pub(super) fn run(cc: &str, load: u32, reflex: &str) -> Run {
    let seeds = if load == 70 { SEEDS_AT_70 } else { SEEDS };
    let run = Run::of("reflex-fct", seeds).set("cc", cc).set("load", load.to_string());
    let run = run.set("reflex", reflex).named(format!("{cc} {load} % {reflex}"));
    // NDT alone is not run quickly.
    if reflex == "ndt" { run } else { run.quick(1, "3ms") }
}

pub(super) fn at_70(cc: &str, reflex: &str) -> Run {
    run(cc, 70, reflex)
}

pub(super) fn mean(group: &'static str, size: Option<usize>) -> Reading {
    let above = if size == Some(ABOVE_12_5_MB) { " above 12.5 MB" } else { "" };
    let name = format!("mean NFCT of {group} flows{above}");
    of_group(name, group, size, |stats| stats.nfct.map(|nfct| nfct.mean))
}

pub(super) fn p99(group: &'static str, size: Option<usize>, of: &str) -> Reading {
    of_group(format!("p99 NFCT of {group} flows{of}"), group, size, |stats| {
        stats.nfct.map(|nfct| nfct.p99)
    })
}

/// Two readings of one run, the one over the other.
pub(super) fn part(run: &Run, a: &Reading, b: &Reading) -> Quantity {
    over(&value(run, a), &value(run, b)).named(format!(
        "{} over {}, {}",
        a.name,
        b.name,
        run.label()
    ))
}

/// By how many percent a form of Reflex lowers a reading at 70 %.
pub(super) fn gain(cc: &str, reflex: &str, reading: &Reading) -> Quantity {
    reduction(&at_70(cc, reflex), &at_70(cc, "off"), reading)
}

/// Means by load, a bar for each control, group and form.
pub(super) fn by_load(title: &'static str, bars: &[Bar]) -> Figure {
    reading_by_load(title, "NFCT", |group| mean(group, None), bars)
}

/// A bar for each load: its name, the control, the group of flows and the form of Reflex.
pub(super) type Bar = (&'static str, &'static str, &'static str, &'static str);

/// A reading by load, a bar for each control, group and form.
pub(super) fn reading_by_load(
    title: &'static str,
    y: &'static str,
    reading: impl Fn(&'static str) -> Reading,
    bars: &[Bar],
) -> Figure {
    let bars = bars.iter().map(|(name, cc, group, reflex)| {
        let reading = reading(group);
        let at = LOADS.map(|load| value(&run(cc, load, reflex), &reading));
        ((*name).to_owned(), at.to_vec())
    });
    let groups = LOADS.map(|load| format!("{load} %")).to_vec();
    Figure::Bars { title, y, groups, bars: bars.collect() }
}

/// All flows, those within and those across, without Reflex and with it: the bars of figure 6.
pub(super) const fn with_and_without(cc: &'static str) -> [Bar; 6] {
    [
        ("all", cc, "all", "off"),
        ("all, Reflex", cc, "all", "on"),
        ("intra", cc, "intra", "off"),
        ("intra, Reflex", cc, "intra", "on"),
        ("inter", cc, "inter", "off"),
        ("inter, Reflex", cc, "inter", "on"),
    ]
}

/// One group without Reflex and with it, under both controls.
pub(super) const fn of_both(group: &'static str) -> [Bar; 4] {
    [
        ("TIMELY", TIMELY, group, "off"),
        ("TIMELY, Reflex", TIMELY, group, "on"),
        ("Swift", "swift", group, "off"),
        ("Swift, Reflex", "swift", group, "on"),
    ]
}
