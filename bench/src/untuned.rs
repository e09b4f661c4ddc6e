//! Congestion control without any tuning, on real packets: a matrix of paths, interleaved with a
//! static window and with kernel TCP on the same paths.
//!
//! Every algorithm has the defaults of all its parameters. A case is a path with traffic
//! ([`matrix()`]); a bar is the least share of the path that `auto` must reach there.

mod algorithm;
mod case;
mod four_paths;
mod journal;
mod lab;
mod line;
mod matrix;
mod measure;
mod perf;
mod picture;
mod plan;
mod report;
mod verdict;

pub use algorithm::Algorithm;
pub use case::{Bar, Case, Flow, Measure, Path, Traffic};
pub(crate) use four_paths::{LINKS, four_paths};
pub use line::Line;
pub use matrix::matrix;
pub use measure::Reading;
pub use picture::svg;
pub use plan::Plan;
pub use report::{Report, Row, Sample};

use crate::machine::Machine;
use crate::rounds::interleaved;
use crate::sample::Error;
use journal::Journal;
use lab::Labs;
use report::Outcome;
use std::ops::Range;

/// One algorithm on one case, while it is measured.
struct Cell {
    /// Index of the case.
    case: usize,
    algorithm: Algorithm,
    outcomes: Vec<Outcome>,
}

/// Measures all of `plan`, round by round, every other one in reverse order. `watch` receives the
/// current sample and ends the run by returning true. The report then has the samples before.
///
/// # Errors
/// The plan has no samples, its command does not exist, or its file of samples cannot be used. A
/// sample that fails is in the report.
pub fn run(plan: &Plan, watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    let (cases, mut cells) = selected(plan)?;
    plan.common.check()?;
    let mut journal = Journal::open(plan)?;
    for cell in &mut cells {
        cell.outcomes = journal.take(&cases[cell.case].name, cell.algorithm, plan.rounds);
    }
    let interrupted = fill(plan, &cases, &mut cells, &mut journal, watch)?;
    cells.retain(|cell| !cell.outcomes.is_empty());
    let rows = rows(&cases, &cells);
    Ok(Report { machine: Machine::this(), plan: plan.clone(), interrupted, rows })
}

impl Plan {
    /// The same with all algorithms if none is named. The options are checked here, since building
    /// the command, which comes next, takes minutes.
    ///
    /// # Errors
    /// No case is left.
    pub fn complete(mut self) -> Result<Self, Error> {
        if self.algorithms.is_empty() {
            self.algorithms = Algorithm::all().collect();
        }
        selected(&self).map(|_| self)
    }
}

/// The cases of `plan` and its algorithms on them.
///
/// # Errors
/// None is left.
fn selected(plan: &Plan) -> Result<(Vec<Case>, Vec<Cell>), Error> {
    let cases = cases(plan);
    let cells = cells(plan, &cases);
    if cells.is_empty() {
        return Err("no case is left: --only and --algorithms exclude all".into());
    }
    Ok((cases, cells))
}

/// Takes the samples of all rounds; true if `watch` ended that.
fn fill(
    plan: &Plan,
    cases: &[Case],
    cells: &mut [Cell],
    journal: &mut Journal,
    mut watch: impl FnMut(u32, &str) -> bool,
) -> Result<bool, Error> {
    let (mut labs, steps) = (Labs::new(plan), steps(plan, cases, cells));
    for (round, n) in interleaved(plan.rounds, steps.len()) {
        let step = &steps[n];
        if cells[step.cells.clone()].iter().all(|cell| cell.has(round)) {
            continue;
        }
        let mut take = |cell: usize| {
            let Cell { case, algorithm, .. } = &cells[cell];
            let case = &cases[*case];
            let name = format!("{}, {}", case.name, algorithm.name());
            if watch(round, &name) {
                return None;
            }
            let reading = labs.prepare(case).and_then(|lab| plan.measure(lab, case, *algorithm));
            // An interrupt from the terminal also ends the processes of the sample.
            (!watch(round, &name)).then(|| reading.map_err(|why| why.to_string()))
        };
        let Some(outcomes) = step.outcomes(round, &mut take) else {
            return Ok(true);
        };
        for (cell, outcome) in cells[step.cells.clone()].iter_mut().zip(outcomes) {
            if !cell.has(round) {
                journal.add(&cases[cell.case].name, cell.algorithm, &outcome)?;
                cell.outcomes.push(outcome);
            }
        }
    }
    Ok(false)
}

impl Cell {
    /// True if the sample of this round has been taken.
    fn has(&self, round: u32) -> bool {
        self.outcomes.len() > round as usize
    }
}

/// Cells whose samples are taken in turns.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Step {
    /// Their indices.
    cells: Range<usize>,
    turns: u32,
}

impl Step {
    /// Takes a sample of each cell with `take`, which returns none if the run is to end.
    fn outcomes(
        &self,
        round: u32,
        take: &mut dyn FnMut(usize) -> Option<Outcome>,
    ) -> Option<Vec<Outcome>> {
        let mut turns = vec![Vec::new(); self.cells.len()];
        for turn in round..round + self.turns {
            let mut order: Vec<usize> = self.cells.clone().collect();
            if turn % 2 == 1 {
                order.reverse();
            }
            for cell in order {
                turns[cell - self.cells.start].push(take(cell)?);
            }
        }
        let outcome = |turns: Vec<Outcome>| {
            let readings: Result<Vec<Reading>, String> = turns.into_iter().collect();
            readings.map(|all| Reading::mean(&all))
        };
        Some(turns.into_iter().map(outcome).collect())
    }
}

/// The steps of a round: a cell each, but `auto` and `none` in turns where one is measured by the
/// other.
fn steps(plan: &Plan, cases: &[Case], cells: &[Cell]) -> Vec<Step> {
    let turns = |cell: &Cell| plan.turns(&cases[cell.case], cell.algorithm);
    let same = |a: &(usize, &Cell), b: &(usize, &Cell)| {
        a.1.case == b.1.case && turns(a.1) > 1 && turns(b.1) > 1
    };
    let cells: Vec<_> = cells.iter().enumerate().collect();
    let step = |chunk: &[(usize, &Cell)]| {
        let (first, cell) = chunk[0];
        Step { cells: first..first + chunk.len(), turns: turns(cell) }
    };
    cells.chunk_by(same).map(step).collect()
}

/// The cases of `plan`.
fn cases(plan: &Plan) -> Vec<Case> {
    let matrix = matrix().into_iter().filter(|case| plan.common.wants(&case.name));
    match plan.quick {
        false => matrix.collect(),
        // Two seconds on any machine are too little for a verdict.
        true => matrix
            .filter(|case| case.quick)
            .map(|case| Case { bar: None, others: None, ..case })
            .collect(),
    }
}

/// The cells of `plan`, those of one lab together.
fn cells(plan: &Plan, cases: &[Case]) -> Vec<Cell> {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|at| cases[*at].site());
    let wanted = |algorithm: &Algorithm| {
        let is_main = Algorithm::MAIN.contains(algorithm) || Algorithm::UDP.contains(algorithm);
        plan.algorithms.contains(algorithm) && (!plan.quick || is_main)
    };
    let of = |case: usize| {
        let has = |algorithm: &Algorithm| cases[case].algorithms.contains(algorithm);
        let over_udp = [Algorithm::Auto, Algorithm::None].iter().zip(Algorithm::UDP);
        let over_udp = over_udp.filter(|(same, _)| has(same)).map(|(_, over_udp)| over_udp);
        // Beside those that they are compared with, which take turns on the cable.
        let (main, others): (Vec<_>, Vec<_>) = cases[case]
            .algorithms
            .iter()
            .copied()
            .partition(|a| matches!(a, Algorithm::Auto | Algorithm::None));
        let algorithms: Vec<Algorithm> =
            main.into_iter().chain(over_udp).chain(others).filter(wanted).collect();
        algorithms.into_iter().map(move |algorithm| Cell { case, algorithm, outcomes: Vec::new() })
    };
    order.into_iter().flat_map(of).collect()
}

/// The rows of the report, in the order of the matrix.
fn rows(cases: &[Case], cells: &[Cell]) -> Vec<Row> {
    let of = |(at, case): (usize, &Case)| {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.case == at).collect();
        let none = |algorithm: Algorithm| {
            let none = cells.iter().find(|cell| cell.algorithm == algorithm.reference());
            none.map_or(&[][..], |cell| &cell.outcomes[..])
        };
        let row =
            |cell: &&Cell| Row::new(case, cell.algorithm, &cell.outcomes, none(cell.algorithm));
        cells.iter().map(row).collect::<Vec<_>>()
    };
    cases.iter().enumerate().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::options;
    use std::{env, fs, process};

    fn plan() -> Plan {
        options::<Plan>(&["--rounds", "1", "--seconds", "1"]).unwrap().complete().unwrap()
    }

    #[test]
    fn cases__are_those_named_and_of_a_quick_run() {
        let only = |only: &str| cases(&options(&["--only", only]).unwrap());
        assert_eq!(only("50M").len(), 1);
        assert!(only("no such path").is_empty());
        let quick = cases(&Plan { quick: true, ..plan() });
        assert_eq!(quick.len(), 4);
        assert!(quick.iter().all(|case| case.bar_for(Algorithm::Auto).is_none()));
    }

    #[test]
    fn cells__those_of_a_lab_are_together_and_each_algorithm_is_there() {
        let cases = cases(&plan());
        let cells = cells(&plan(), &cases);
        let mut sites: Vec<_> = cells.iter().map(|cell| cases[cell.case].site()).collect();
        assert!(sites.is_sorted());
        sites.dedup();
        assert_eq!(sites.len(), 4);
        let all: usize = cases.iter().map(|case| case.algorithms.len()).sum();
        assert_eq!(cells.len(), all);
    }

    #[test]
    fn cells__a_quick_run_has_the_main_algorithms() {
        let quick = Plan { quick: true, ..plan() };
        assert_eq!(cells(&quick, &cases(&quick)).len(), 4 * Algorithm::MAIN.len());
        let auto = Plan { algorithms: vec![Algorithm::Auto], ..quick };
        assert_eq!(cells(&auto, &cases(&auto)).len(), 4);
    }

    #[test]
    fn steps__auto_and_none_take_turns_on_the_cable() {
        let cases = cases(&plan());
        let all = cells(&plan(), &cases);
        let steps = steps(&plan(), &cases, &all);
        let turns = |step: &Step| {
            let of = |cell: &Cell| (&*cases[cell.case].name, cell.algorithm.name());
            (step.turns, all[step.cells.clone()].iter().map(of).collect::<Vec<_>>())
        };
        let first = turns(&steps[0]);
        assert_eq!(first, (5, vec![("veth", "auto"), ("veth", "none")]));
        assert_eq!(turns(&steps[1]), (1, vec![("veth", "tcp-cubic")]));
        assert!(steps.iter().map(turns).any(|step| step == (1, vec![("200M/1ms, 64 B", "none")])));
        let ends: Vec<_> = steps.iter().map(|step| step.cells.end).collect();
        let starts = steps.iter().skip(1).map(|step| step.cells.start);
        assert!(starts.eq(ends.iter().copied().take(steps.len() - 1)), "each cell once");
        assert_eq!(ends.last(), Some(&all.len()));
    }

    #[test]
    fn cells__those_over_udp_are_beside_the_others_if_they_are_named() {
        let algorithms: Vec<Algorithm> =
            ["auto", "none", "auto-udp", "none-udp"].map(|name| name.parse().unwrap()).into();
        let quick = Plan { quick: true, algorithms, ..plan() };
        let cases = cases(&quick);
        let cells = cells(&quick, &cases);
        assert_eq!(cells.len(), 4 * 4);
        let names: Vec<&str> = cells[..4].iter().map(|cell| cell.algorithm.name()).collect();
        assert_eq!(names, ["auto", "none", "auto-udp", "none-udp"]);
        let turns = Plan { quick: false, ..quick };
        assert_eq!(steps(&turns, &cases, &cells)[0], Step { cells: 0..4, turns: 5 });
        let mut rows = cells;
        for (at, mbps) in [100.0, 200.0, 300.0, 400.0].into_iter().enumerate() {
            let reading = Reading { mbps: vec![mbps], ..Reading::default() };
            rows[at].outcomes.push(Ok(reading));
        }
        let rows = super::rows(&cases, &rows[..4]);
        let shares: Vec<f64> = rows.iter().map(|row| row.figure.unwrap().median).collect();
        assert_eq!(shares, [0.5, 1.0, 0.75, 1.0]);
    }

    #[test]
    fn run__samples_of_the_file_are_not_taken_again() {
        let file = env::temp_dir().join(format!("spanwire-untuned-{}", process::id()));
        let plan = Plan {
            common: options(&["--spanwire", "/proc/self/exe", "--only", "50M"]).unwrap(),
            algorithms: vec![Algorithm::Auto],
            resume: Some(file.clone()),
            ..plan()
        };
        let reading = Reading { mbps: vec![40.0], ..Reading::default() };
        let mut journal = Journal::open(&plan).unwrap();
        journal.add("50M/50ms", Algorithm::Auto, &Ok(reading)).unwrap();
        let report = run(&plan, |_, name| panic!("{name} is measured")).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(!report.interrupted);
        assert_eq!(report.rows.len(), 1);
        assert_eq!(report.rows[0].samples.len(), 1);
    }

    #[test]
    fn rows__are_in_the_order_of_the_matrix() {
        let cases = cases(&plan());
        let rows = rows(&cases, &cells(&plan(), &cases));
        let mut names: Vec<&str> = rows.iter().map(|row| &*row.case).collect();
        names.dedup();
        assert_eq!(names, cases.iter().map(|case| &*case.name).collect::<Vec<_>>());
    }
}
