//! The table of cases: their figures, bars and time.
//!
//! Bars are those that the tests of these runs had: none is weaker.

use super::bar::{Bar, Excuse};
use super::stage::Stage;
use super::{border, copies, driver, ends, failures, gap, messages, shares, switch, tcp};
use crate::bed::Frame;
use crate::sample::Error;

/// A run and its figures.
#[derive(Debug)]
pub(super) struct Case {
    /// The begin of the names of its rows.
    pub(super) name: &'static str,
    /// It is part of a quick run.
    pub(super) quick: bool,
    /// Seconds of a sample, of a quick run if it is part of one, on a host that is not late.
    pub(super) seconds: u32,
    /// Its figures.
    pub(super) figures: &'static [Figure],
    /// Takes a sample: the value of each figure.
    pub(super) take: Take,
}

/// Takes a sample of a case.
type Take = fn(&Stage<'_>) -> Result<Vec<f64>, Error>;

/// A figure of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) bar: Bar,
    pub(super) excuse: Excuse,
}

impl Case {
    pub(super) const fn new(
        name: &'static str,
        seconds: u32,
        figures: &'static [Figure],
        take: Take,
    ) -> Self {
        Self { name, quick: false, seconds, figures, take }
    }

    pub(super) const fn quick(self) -> Self {
        Self { quick: true, ..self }
    }

    /// The names of its rows.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.figures.iter().map(|figure| format!("{}: {}", self.name, figure.name))
    }
}

impl Figure {
    /// A figure that depends on processor time: a rate, a share or a queue.
    pub(super) const fn new(name: &'static str, unit: &'static str, bar: Bar) -> Self {
        Self { name, unit, bar, excuse: RATE }
    }

    /// A figure that one late wake-up changes: a duration.
    const fn time(name: &'static str, unit: &'static str, bar: Bar, late_ms: f64) -> Self {
        Self { name, unit, bar, excuse: Excuse { late_ms, ..RATE } }
    }
}

/// Rates, shares and queues. An exchange through the switch needs most of two cores: a tenth of
/// them is missed. A wake-up 20 ms late is two round trips of the bottleneck.
const RATE: Excuse = Excuse { late_ms: 20.0, stolen: 0.1 };

/// A payload rate of full frames on a line of this many Mbit/s.
const fn payload(frame: Frame, mbit: f64) -> Bar {
    Bar::near(mbit * frame.payload_bytes as f64 / frame.wire_bytes as f64)
}

/// A round trip of `ms` milliseconds of delay: within 5 %, plus four wake-ups.
const fn trip(ms: f64) -> Bar {
    Bar::between(ms, ms * 1.05 + 0.1)
}

/// Jain's index and the total of processes that share 50 Mbit/s.
const fn shared(mbit: f64) -> [Figure; 2] {
    [
        Figure::new("Jain's index", "", Bar::at_least(0.95)),
        Figure::new("total", "Mbit/s", Bar::at_least(mbit)),
    ]
}

/// TCP over IPv6 has 1428 bytes of payload in a frame.
const TCP_V6: Frame = Frame { payload_bytes: 1428, ..Frame::TCP };

/// All cases; those of a quick run are in the order of their importance.
pub(super) static ALL: [Case; 28] = [
    Case::new(
        "switch at 100 Mbit/s, 1 ms",
        6,
        &[
            Figure::new("RTT over IPv4, least", "ms", trip(2.0)),
            Figure::new("RTT over IPv6, least", "ms", trip(2.0)),
            Figure::new("RC goodput", "Mbit/s", payload(Frame::RC, 100.0)),
            Figure::new("SR goodput", "Mbit/s", payload(Frame::SR, 100.0)),
            Figure::new("retransmitted", "packets", Bar::at_most(0.0)),
        ],
        switch::short_path,
    )
    .quick(),
    Case::new(
        "switch at 100 Mbit/s, 10 ms",
        6,
        &[
            Figure::new("RTT over IPv4, least", "ms", trip(20.0)),
            Figure::new("RC goodput", "Mbit/s", payload(Frame::RC, 100.0)),
            Figure::new("SR goodput", "Mbit/s", payload(Frame::SR, 100.0)),
        ],
        switch::long_path,
    )
    .quick(),
    Case::new(
        "switch with 1 % loss",
        4,
        &[
            // 200 of 20,000; four standard deviations of 14.
            Figure::new("lost", "datagrams", Bar::between(144.0, 256.0)),
            Figure::new("missing less lost", "datagrams", Bar::at_most(2.0)),
        ],
        switch::loss,
    )
    .quick(),
    Case::new(
        "kernel TCP through the switch",
        5,
        &[
            Figure::new("at 100 Mbit/s", "Mbit/s", payload(TCP_V6, 100.0)),
            Figure::new("changed to 50 Mbit/s", "Mbit/s", payload(TCP_V6, 50.0)),
            Figure::new("RTT changed to 3 ms, least", "ms", trip(3.0)),
        ],
        tcp::kernel,
    )
    .quick(),
    Case::new(
        "iperf3 through the switch",
        5,
        &[Figure::new("at 200 Mbit/s", "Mbit/s", payload(Frame::TCP, 200.0))],
        tcp::iperf3,
    )
    .quick(),
    Case::new("auto, 2 processes", 9, &shared(30.0), shares::auto_two).quick(),
    Case::new(
        "a path that dies in a copy",
        8,
        // A chunk takes 20 ms and two round trips; then the preemption of two cores.
        &[Figure::time("gap", "ms", Bar::at_most(60.0), 20.0)],
        gap::dying_path,
    )
    .quick(),
    Case::new(
        "copy, 1 % loss",
        4,
        &[Figure::new("SR over RC", "times", Bar::at_least(1.5))],
        copies::modes,
    )
    .quick(),
    Case::new(
        "perf",
        3,
        &[Figure::time("0.5 s at 1 Mbit/s ends", "s", Bar::at_most(2.5), 250.0)],
        ends::in_time,
    )
    .quick(),
    Case::new(
        "perf at a fixed 20 Mbit/s",
        4,
        &[
            Figure::new("SR goodput", "Mbit/s", Bar::between(12.0, 18.6)),
            Figure::new("RC goodput", "Mbit/s", Bar::between(12.0, 18.6)),
            Figure::time("intervals of 0.1 s in 1.1 s", "", Bar::at_least(10.0), 50.0),
        ],
        ends::fixed_rate,
    )
    .quick(),
    Case::new(
        "perf beside 41 silent clients",
        2,
        &[Figure::time("served", "s", Bar::at_most(4.0), 250.0)],
        ends::silent_clients,
    )
    .quick(),
    Case::new("auto, 4 processes", 9, &shared(30.0), shares::auto_four),
    Case::new(
        "unocc, 2 processes",
        9,
        &[
            shared(30.0)[0],
            shared(30.0)[1],
            // Marking begins at 15 kB.
            Figure::new("queue, p90", "bytes", Bar::at_most(14_999.0)),
        ],
        shares::unocc_two,
    ),
    Case::new("unocc, 4 processes", 19, &shared(30.0), shares::unocc_four),
    Case::new("swift, 2 processes", 9, &shared(30.0), shares::swift_two),
    Case::new("dcqcn in RC, 2 processes", 9, &shared(20.0), shares::dcqcn_rc),
    Case::new("dcqcn in SR, 2 processes", 9, &shared(20.0), shares::dcqcn_sr),
    Case::new(
        "PACC, 3 processes",
        15,
        &[
            shared(40.0)[0],
            shared(40.0)[1],
            Figure::new("queue, mean", "bytes", Bar::between(62_500.0, 187_500.0)),
            Figure::new("CNPs ignored", "%", Bar::at_most(2.0)),
            Figure::new("CNPs not received", "packets", Bar::at_most(0.0)),
        ],
        shares::pacc,
    ),
    Case::new(
        "PACC, the same without the agent",
        15,
        // Nothing slows the senders down but losses at the limit of 1 MB.
        &[
            Figure::new("Jain's index", "", Bar::between(0.0, 1.0)),
            shared(40.0)[1],
            Figure::new("queue, mean", "bytes", Bar::at_least(250_000.0)),
        ],
        shares::without_pacc,
    ),
    Case::new(
        "perf's flow on a cable",
        4,
        &[
            Figure::time("SR base RTT", "ms", Bar::between(0.001, 49.999), 20.0),
            Figure::time("RC base RTT", "ms", Bar::between(0.001, 49.999), 20.0),
            Figure::time("SR host lateness", "ms", Bar::between(0.0, 49.999), 20.0),
            Figure::time("RC host lateness", "ms", Bar::between(0.0, 49.999), 20.0),
        ],
        ends::lateness,
    ),
    Case::new(
        "perf in SR with 30 % loss",
        3,
        // More than 100.
        &[Figure::new("fetch-adds in 1 s", "", Bar::at_least(101.0))],
        ends::atomics,
    ),
    Case::new(
        "64 KiB on four paths, 1 % loss",
        32,
        &[
            Figure::time("SR, p99", "ms", Bar::at_most(150.0), 20.0),
            Figure::time("SR 8,2, p99", "ms", Bar::at_most(100.0), 20.0),
            Figure::time("SR 8,2 unolb, p99", "ms", Bar::at_most(50.0), 20.0),
            // For comparison: its retransmission timeout is 200 ms.
            Figure::time("kernel TCP, p99", "ms", Bar::at_least(10.0), 20.0),
        ],
        messages::lossy,
    ),
    Case::new(
        "Reflex at a fifth of the bottleneck",
        8,
        // Packets 5 ms late cause them.
        &[Figure::time("pseudo-ACKs", "packets", Bar::at_most(0.0), 5.0)],
        border::uncongested,
    ),
    Case::new(
        "perf with a killed server",
        8,
        &[
            Figure::time("RC client ends", "s", Bar::at_most(20.0), 1000.0),
            Figure::time("SR client ends", "s", Bar::at_most(20.0), 1000.0),
        ],
        failures::killed_server,
    ),
    Case::new(
        "copy with a killed receiver",
        4,
        &[Figure::time("sender ends", "s", Bar::at_most(10.0), 1000.0)],
        failures::killed_receiver,
    ),
    Case::new(
        "copy with a failed link",
        12,
        &[Figure::time("both end", "s", Bar::at_most(20.0), 1000.0)],
        failures::failed_link,
    ),
    Case::new(
        "paced queue pairs",
        2,
        &[
            // Measured by two clocks; a rate that is too high is no matter of lateness.
            Figure::new("rate of 1 over its own", "times", Bar::at_most(1.02)),
            Figure::new("rate of 5 over their own", "times", Bar::at_most(1.02)),
        ],
        driver::paced,
    ),
    Case::new(
        "driver of 3 ports",
        1,
        &[Figure::time("sleeps in 10 pauses of 1 ms", "", Bar::at_least(1.0), 5.0)],
        driver::sleeps,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all__names_are_unique_and_every_figure_has_a_bar() {
        let names: Vec<String> = ALL.iter().flat_map(Case::names).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for figure in ALL.iter().flat_map(|case| case.figures) {
            assert!(figure.bar.min.is_some() || figure.bar.max.is_some(), "{figure:?}");
            assert!(figure.excuse.late_ms > 0.0 && figure.excuse.stolen > 0.0, "{figure:?}");
        }
    }

    #[test]
    fn payload__of_a_line() {
        let text = |frame| payload(frame, 100.0).text();
        assert_eq!(text(Frame::RC), "87.96..97.22");
        assert_eq!(text(Frame::SR), "87.42..96.63");
        assert_eq!(trip(2.0).text(), "2..2.2");
    }
}
