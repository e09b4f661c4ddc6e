//! Congestion control with its defaults on a matrix of paths and hosts. Each cell is a scenario of
//! the catalogue with a bar: nothing is configured for its path.

mod case;
mod line;
mod matrix;
mod row;
mod sample;

pub use case::{Bar, Case, Figure};
pub use matrix::matrix;
pub use row::{Median, Row};
pub use sample::{Sample, Summary};

use crate::network::NetworkError;
use crate::params::{CcChoice, ParamError, Params, Value};
use crate::plan::Plan;
use crate::report::Report;
use crate::run::Watch;
use crate::scenario::Scenario;
use sample::Measured;
use spanwire_cc::Algorithm;
use std::fmt::Write as _;

/// The matrix, with the rows and settings selected.
#[derive(Clone, Debug)]
pub struct Untuned {
    params: Params,
    cases: Vec<Case>,
}

/// A case on one kind of host.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    /// The path and its traffic.
    pub case: &'a Case,
    /// The host model.
    pub host: &'static str,
}

/// The result of a cell from one seed.
#[derive(Clone, PartialEq, Debug)]
pub struct CellOutcome {
    /// Its figures.
    pub sample: Sample,
    /// Events of its worlds.
    pub events: u64,
    /// Frames that left a host or a switch.
    pub packet_hops: u64,
    /// Violations, one sentence each.
    pub violations: Vec<String>,
}

impl Untuned {
    /// Its name, as in `spanwire sim run NAME`.
    pub const NAME: &'static str = "untuned";
    /// One sentence for users.
    pub const ABOUT: &'static str =
        "congestion control with its defaults on a matrix of paths and hosts, with bars";

    /// The parameters with their defaults.
    #[must_use]
    pub fn params() -> Params {
        let cc = CcChoice::named("auto").expect("an algorithm");
        let hosts = [&[ALL_HOSTS][..], &case::ALL_HOSTS, &case::CHOSEN_HOSTS].concat();
        Params::default()
            .with("cc", Value::Cc(cc), "congestion control; `cc.NAME` sets its own parameters")
            .with(
                "calibrate",
                Value::Flag(true),
                "it is calibrated to the path; false: the constants of its paper",
            )
            .with(
                "host",
                Value::Word { word: ALL_HOSTS.to_owned(), of: hosts },
                "timing of hosts; all: ideal, veth, busy and udp; fast paths have ideal ones only",
            )
            .with(
                "timestamps",
                Value::Flag(true),
                "hosts date arrivals by the kernel's timestamps, if they are not ideal",
            )
            .with("only", Value::Text(String::new()), "rows whose names contain this")
            .with("quick", Value::Flag(false), "a few rows, for a first look")
    }

    /// The matrix with parameters set by `set`: pairs of name and value.
    ///
    /// # Errors
    /// The first parameter that cannot be set.
    pub fn new<'a>(set: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        let mut params = Self::params();
        params.set_all(set)?;
        let (only, is_quick) = (params.text("only"), params.flag("quick"));
        let is_chosen = |case: &Case| case.name.contains(only) && (case.quick || !is_quick);
        let cases = matrix().into_iter().filter(is_chosen).collect();
        Ok(Self { params, cases })
    }

    /// The parameters.
    #[must_use]
    pub fn parameters(&self) -> &Params {
        &self.params
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> CcChoice {
        self.params.cc("cc")
    }

    /// The cells: each case on each kind of host that it has.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell<'_>> {
        let chosen = self.params.word("host");
        let mut cells = Vec::new();
        for case in &self.cases {
            let hosts = case.hosts.iter().filter(|host| [ALL_HOSTS, host].contains(&chosen));
            let others = case::CHOSEN_HOSTS.iter().filter(|host| **host == chosen);
            let others = others.filter(|_| case.hosts.contains(&"veth"));
            cells.extend(hosts.chain(others).map(|host| Cell { case, host }));
        }
        cells
    }

    /// The bar of a cell for the selected algorithm; none without congestion control.
    #[must_use]
    pub fn bar(&self, cell: &Cell<'_>) -> Option<Bar> {
        match self.algorithm().algorithm() {
            None | Some(Algorithm::Fixed(_)) => None,
            Some(Algorithm::Auto(_)) => cell.case.bar_on(cell.host),
            Some(_) => cell.case.others.filter(|_| cell.host != case::BUSY),
        }
    }

    /// Runs a cell from a seed to its end.
    ///
    /// # Errors
    /// See [`NetworkError`]: the parameters contradict each other.
    pub fn run(&self, cell: &Cell<'_>, seed: u64) -> Result<CellOutcome, NetworkError> {
        let (plan, report) = self.simulate(cell, seed, &self.settings(cell))?;
        let measured = Measured::of(cell.case, &plan, &report);
        let mut sample = measured.sample(seed, &report);
        let (mut events, mut packet_hops) = (report.events, report.packet_hops);
        let mut violations = report.violations.clone();
        if cell.case.figure == Figure::ShareOfNone {
            let (plan, none) = self.simulate(cell, seed, &self.settings_of_none(cell))?;
            let whole = Measured::of(cell.case, &plan, &none);
            sample.share_of_none = measured.share_of(&whole);
            sample.least_window_share = measured.least_window_of(&whole);
            (events, packet_hops) = (events + none.events, packet_hops + none.packet_hops);
            violations.extend(none.violations);
        }
        sample.figure = sample.figure_of(cell.case.figure);
        Ok(CellOutcome { sample, events, packet_hops, violations })
    }

    fn simulate(
        &self,
        cell: &Cell<'_>,
        seed: u64,
        set: &[(&'static str, String)],
    ) -> Result<(Plan, Report), NetworkError> {
        let scenario = Scenario::find(cell.case.scenario).expect("a scenario of the catalogue");
        let set = set.iter().map(|(name, text)| (*name, text.as_str()));
        let plan = scenario.plan(seed, set).expect("a test plans every case");
        // Ten thousand flows have no use for series.
        let watch = Watch { series: plan.sharing.is_some(), ..Watch::default() };
        let report = plan.run(watch, &mut ())?;
        Ok((plan, report))
    }

    /// The parameters of a cell's scenario.
    fn settings(&self, cell: &Cell<'_>) -> Vec<(&'static str, String)> {
        let mut set = cell.case.set.clone();
        set.push(("cc", self.algorithm().to_string()));
        set.push(("calibrate", self.params.flag("calibrate").to_string()));
        set.push(("measure_rtt", "true".to_owned()));
        set.push(("host", cell.host.to_owned()));
        set.push(("timestamps", self.params.flag("timestamps").to_string()));
        set
    }

    /// The same without congestion control: the static window.
    fn settings_of_none(&self, cell: &Cell<'_>) -> Vec<(&'static str, String)> {
        let mut set = self.settings(cell);
        set.push(("cc", CcChoice::NONE.to_owned()));
        set.push(("window", STATIC_WINDOW.to_string()));
        set
    }

    /// The command that runs a cell alone, with `--plot` or `--json` to be added.
    #[must_use]
    pub fn command(&self, cell: &Cell<'_>) -> String {
        let mut out = format!("spanwire sim run {}", cell.case.scenario);
        for (name, text) in self.settings(cell) {
            // Writing to a String cannot fail.
            let _ = write!(out, " --set {name}={text}");
        }
        out
    }
}

/// The word for all hosts of the matrix.
const ALL_HOSTS: &str = "all";
/// The window of a queue pair without congestion control, in packets.
const STATIC_WINDOW: u32 = 192;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;

    #[test]
    fn new__selects_rows_and_hosts() {
        let all = Untuned::new([]).unwrap();
        let quick = Untuned::new([("quick", "true"), ("host", "veth")]).unwrap();
        assert!(quick.cells().len() < all.cells().len() / 5 && !quick.cells().is_empty());
        assert!(quick.cells().iter().all(|cell| cell.host == "veth" && cell.case.quick));
        let names = |host| {
            let cells = [("host", host), ("quick", "true")];
            let cells = Untuned::new(cells).unwrap();
            cells.cells().iter().map(|cell| cell.case.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("adaptive"), names("veth"));
        let loss = Untuned::new([("only", "loss")]).unwrap();
        let names: Vec<_> = loss.cells().iter().map(|c| (c.case.name.clone(), c.host)).collect();
        assert_eq!((names.len(), names[0].1), (8, "ideal"), "{names:?}");
        assert!(matches!(Untuned::new([("rows", "1")]), Err(ParamError::Unknown { .. })));
    }

    #[test]
    fn settings__every_cell_can_be_built() {
        let untuned = Untuned::new([("cc", "swift,beta=0.5")]).unwrap();
        for cell in untuned.cells() {
            let scenario = Scenario::find(cell.case.scenario).unwrap();
            let set = untuned.settings(&cell);
            let plan = scenario.plan(1, set.iter().map(|(name, text)| (*name, text.as_str())));
            let plan = plan.unwrap_or_else(|e| panic!("{}: {e}", cell.case.name));
            assert!(plan.setup.congestion.measures_rtt, "{}", cell.case.name);
            let network = Network::new(plan.topology, plan.flows, plan.setup);
            assert!(network.is_ok(), "{}: {:?}", cell.case.name, network.err());
        }
    }

    #[test]
    fn bar__is_that_of_the_algorithm_and_the_host() {
        let bar = |cc: &str, host| {
            let untuned = Untuned::new([("cc", cc), ("only", "200M/1ms")]).unwrap();
            let cell = untuned.cells().into_iter().find(|cell| cell.host == host).unwrap();
            untuned.bar(&cell).map(|bar| bar.median)
        };
        assert_eq!([bar("auto", "veth"), bar("auto", "busy")], [Some(0.92), Some(0.85)]);
        assert_eq!([bar("swift", "veth"), bar("swift", "busy")], [Some(0.70), None]);
        assert_eq!([bar("none", "veth"), bar("fixed", "veth")], [None, None]);
        assert_eq!(bar("auto", "udp"), Some(0.92));
    }

    #[test]
    fn run__a_cell_is_reproducible_and_its_command_complete() {
        let untuned = Untuned::new([("only", "1G/10us"), ("host", "ideal")]).unwrap();
        let cell = &untuned.cells()[0];
        let outcome = untuned.run(cell, 3).unwrap();
        assert_eq!(outcome.violations, [] as [&str; 0]);
        assert_eq!(outcome, untuned.run(cell, 3).unwrap());
        assert!(outcome.sample.figure > 0.9 && outcome.sample.figure <= 1.0, "{outcome:?}");
        let command = untuned.command(cell);
        for part in ["sim run cc-solo", "rate=1Gbit", "cc=auto", "host=ideal", "measure_rtt=true"] {
            assert!(command.contains(part), "{command}");
        }
    }

    #[test]
    fn run__a_share_of_none_has_its_reference() {
        let untuned = Untuned::new([("only", "200M/1ms, 4 KiB"), ("host", "ideal")]).unwrap();
        let sample = untuned.run(&untuned.cells()[0], 1).unwrap().sample;
        assert_eq!(sample.share_of_none, Some(sample.figure));
        assert!(sample.figure > 0.5, "{sample:?}");
    }
}
