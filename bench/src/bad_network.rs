//! A bad network: goodput over loss and round-trip time, of the engine in both wire modes, kernel
//! TCP and libfabric's reliable datagrams, through the same `spanwire switch`.
//!
//! The link is slow enough for two cores to carry the switch and both hosts: the result shows
//! the loss recovery of a protocol, not its processing cost.

mod libfabric;
mod ours;
mod plan;

pub use plan::{Conditions, Plan};

use crate::bed::{self, Bed, Frame};
use crate::machine::Machine;
use crate::rounds::interleaved;
use crate::sample::Error;
use crate::stats::{Spread, cell};
use serde::Serialize;
use spanwire_transport::WireMode;
use std::fmt;
use std::time::Duration;

/// A transport under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// `spanwire perf`, WRITE, in this wire mode.
    Spanwire(WireMode),
    /// Kernel TCP with this congestion control.
    Tcp(&'static str),
    /// `fi_pingpong` over libfabric's `udp;ofi_rxd`.
    Libfabric,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Its plan.
    pub plan: Plan,
    /// A row for each subject under each condition.
    pub rows: Vec<Row>,
}

/// The samples of one subject under one condition.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(skip)]
    subject: Subject,
    #[serde(skip)]
    fractions: Vec<f64>,
    /// The subject's name.
    pub name: &'static str,
    /// The network conditions.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Payload over the link's rate, 0..=1; a sample that failed counts as 0.
    pub goodput_fraction: Option<Spread>,
    /// The most goodput without spurious retransmissions: payload over frame, times the delivery
    /// rate. None for libfabric, whose frames are not ours.
    pub ideal_fraction: Option<f64>,
    /// The errors of failed samples.
    pub failures: Vec<String>,
}

impl Subject {
    /// All subjects, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Spanwire(WireMode::Sr),
        Self::Spanwire(WireMode::Rc),
        Self::Tcp("cubic"),
        Self::Tcp("bbr"),
        Self::Libfabric,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spanwire(WireMode::Rc) => "spanwire RC",
            Self::Spanwire(WireMode::Sr) => "spanwire SR",
            Self::Tcp("bbr") => "TCP BBR",
            Self::Tcp(_) => "TCP CUBIC",
            Self::Libfabric => "libfabric rxd",
        }
    }

    /// Its full frame.
    fn frame(self) -> Option<Frame> {
        match self {
            Self::Spanwire(WireMode::Rc) => Some(Frame::RC),
            Self::Spanwire(WireMode::Sr) => Some(Frame::SR),
            Self::Tcp(_) => Some(Frame::TCP),
            Self::Libfabric => None,
        }
    }
}

/// Measures all of `plan`, round by round, every other one in reverse order. `watch` receives the
/// next subject and cancels the run by returning true.
///
/// # Errors
/// The lab cannot be created, or the run was cancelled. A sample that fails is in the report.
pub fn run(plan: &Plan, mut watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    let name = format!("bad{}", std::process::id());
    let bed = Bed::switched(plan.common.path(), &name, &config(plan.rate_bps))?;
    let wanted = Subject::ALL.into_iter().filter(|s| plan.common.wants(s.name()));
    let subjects: Vec<_> = wanted.collect();
    let mut rows = Vec::new();
    for rtt_us in &plan.rtts_us {
        for loss_percent in &plan.losses_percent {
            let conditions = Conditions { loss_percent: *loss_percent, rtt_us: *rtt_us };
            rows.extend(subjects.iter().map(|s| Row::new(*s, conditions)));
        }
    }
    for (round, at) in interleaved(plan.rounds, rows.len()) {
        let Row { subject, conditions, .. } = rows[at];
        let Conditions { loss_percent, rtt_us } = conditions;
        if watch(round, &format!("{}, {loss_percent} %, {rtt_us} us", subject.name())) {
            return Err("interrupted".into());
        }
        bed.set(&changes(conditions))?;
        rows[at].take(measure(&bed, plan, subject, conditions), plan.rate_bps);
    }
    Ok(Report { machine: Machine::this(), plan: plan.clone(), rows })
}

/// Payload bits a second of one sample.
fn measure(bed: &Bed, plan: &Plan, subject: Subject, conditions: Conditions) -> Result<f64, Error> {
    let time = Duration::from_secs_f64(plan.seconds);
    match subject {
        Subject::Spanwire(mode) => ours::goodput_bps(bed, plan, mode, conditions, time),
        Subject::Tcp(algorithm) => Ok(bed::tcp_transfer(bed, ("b", "a"), algorithm, time)?.bps),
        Subject::Libfabric => libfabric::goodput_bps(bed, time),
    }
}

/// A queue of 1 MB: twice the product of rate and delay at 40 ms and 100 Mbit/s, so that only the
/// emulated loss drops frames.
fn config(rate_bps: u64) -> String {
    let port =
        |name| format!("[port.{name}]\nrate = \"{rate_bps}bit\"\nqueue.limit_bytes = \"1MB\"\n");
    format!("seed = 1\n{}{}", port("a"), port("b"))
}

/// The changes of the switch for `conditions`. Each direction has half of the round trip.
fn changes(conditions: Conditions) -> Vec<String> {
    let Conditions { loss_percent, rtt_us } = conditions;
    let (delay_us, loss_ppm) = (rtt_us / 2, (loss_percent * 1e4).round());
    let port = |port| {
        [format!("port.{port}.delay={delay_us}us"), format!("port.{port}.loss={loss_ppm}ppm")]
    };
    ["a", "b"].into_iter().flat_map(port).collect()
}

impl Row {
    fn new(subject: Subject, conditions: Conditions) -> Self {
        let arrives = 1.0 - conditions.loss_percent / 100.0;
        let ideal_fraction = subject.frame().map(|frame| frame.efficiency() * arrives);
        let (name, fractions, failures) = (subject.name(), Vec::new(), Vec::new());
        let goodput_fraction = None;
        Self { subject, fractions, name, conditions, goodput_fraction, ideal_fraction, failures }
    }

    fn take(&mut self, sample: Result<f64, Error>, rate_bps: u64) {
        let failed = |why: Error| self.failures.push(why.to_string());
        #[expect(clippy::cast_precision_loss, reason = "a rate of a few digits")]
        self.fractions.push(sample.map_err(failed).unwrap_or(0.0) / rate_bps as f64);
        self.goodput_fraction = Spread::of(&self.fractions);
    }
}

/// Tables in Markdown, one for each round-trip time: percent of the link, median and range.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rate_bps, rounds, seconds, losses_percent, rtts_us, .. } = &self.plan;
        writeln!(out, "{}", self.machine)?;
        let rate = rate_bps / 1_000_000;
        writeln!(out, "{rate} Mbit/s, {rounds} interleaved rounds of {seconds} s; goodput in")?;
        writeln!(out, "percent of the link: median [least..most]")?;
        for rtt_us in rtts_us {
            write!(out, "\n| RTT {} ms, loss |", *rtt_us as f64 / 1e3)?;
            losses_percent.iter().try_for_each(|loss| write!(out, " {loss} % |"))?;
            write!(out, "\n|---|")?;
            losses_percent.iter().try_for_each(|_| write!(out, "---|"))?;
            writeln!(out)?;
            for subject in Subject::ALL {
                let name = subject.name();
                let here = |row: &&Row| row.name == name && row.conditions.rtt_us == *rtt_us;
                let rows: Vec<_> = self.rows.iter().filter(here).collect();
                if rows.is_empty() {
                    continue;
                }
                write!(out, "| {name} |")?;
                rows.iter().try_for_each(|row| {
                    write!(out, " {} |", cell(row.goodput_fraction.map(|f| f.over(0.01)), 1))
                })?;
                writeln!(out)?;
            }
        }
        for row in self.rows.iter().filter(|row| !row.failures.is_empty()) {
            let Conditions { loss_percent, rtt_us } = row.conditions;
            let why = row.failures.join("; ");
            writeln!(out, "failed: {}, {loss_percent} %, {rtt_us} us: {why}", row.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::options;

    fn conditions() -> Conditions {
        Conditions { loss_percent: 5.0, rtt_us: 2000 }
    }

    #[test]
    fn row__a_failed_sample_counts_as_zero_and_is_reported() {
        let mut row = Row::new(Subject::Spanwire(WireMode::Sr), conditions());
        for sample in [Ok(50e6), Err("no route".into()), Ok(80e6)] {
            row.take(sample, 100_000_000);
        }
        let spread = row.goodput_fraction.expect("three samples");
        assert_eq!((spread.median, spread.min, spread.max), (0.5, 0.0, 0.8));
        assert_eq!(row.failures, ["no route"]);
        assert!((row.ideal_fraction.expect("known") - 1408.0 / 1530.0 * 0.95).abs() < 1e-12);
    }

    #[test]
    fn changes__half_the_round_trip_in_each_direction() {
        let each = ["a.delay=1000us", "a.loss=50000ppm", "b.delay=1000us", "b.loss=50000ppm"];
        assert_eq!(changes(conditions()), each.map(|change| format!("port.{change}")));
    }

    #[test]
    fn text__has_a_line_for_each_subject_and_a_column_for_each_loss() {
        let plan: Plan = options(&["--loss", "5", "--rtt", "2"]).unwrap();
        let mut row = Row::new(Subject::Tcp("bbr"), conditions());
        row.take(Ok(51.25e6), plan.rate_bps);
        let report = Report { machine: Machine::this(), plan, rows: vec![row] };
        let text = report.to_string();
        for line in ["| RTT 2 ms, loss | 5 % |", "|---|---|", "| TCP BBR | 51.2 [51.2..51.2] |"] {
            assert!(text.contains(line), "no {line:?} in {text}");
        }
        assert!(!text.contains("libfabric"), "{text}");
    }
}
