//! Bars in real time on real packets: what `spanwire` promises on a machine that is not late.
//!
//! Tests assert only what holds however late the machine is. The bars for rates, durations, shares
//! and queues are here instead. A case is a run on a lab of its own; a row is a figure of a case
//! with its bar. During each sample the lateness of the host is measured, and a miss on a late host
//! is no miss.

mod bar;
mod border;
mod cases;
mod copies;
mod driver;
mod ends;
mod failures;
mod gap;
mod host;
mod messages;
mod plan;
mod report;
mod shares;
mod stage;
mod switch;
mod tcp;
mod verbs;

pub use bar::{Bar, Excuse, Sample, Verdict};
pub use host::Lateness;
pub use plan::Plan;
pub use report::{Report, Row};

use crate::host_trace::origin;
use crate::machine::Machine;
use crate::rounds::samples;
use crate::sample::Error;
use cases::Case;
use host::Watch;
use report::Taken;
use spanwire_io::net::NetNs;
use stage::{Fault, Stage};
use std::time::{Duration, Instant};

/// A table of cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// Promises of the `spanwire` command.
    Real,
    /// Programs over the drop-in libibverbs beside `spanwire perf`.
    Verbs,
}

/// Measures all of `plan`, round by round, every other one in reverse order. `watch` receives the
/// round and the case and ends the run by returning true. The report then has the samples before.
///
/// # Errors
/// No row is left, a program does not exist, or there is no privilege. A sample that fails is in
/// the report.
pub fn run(
    suite: Suite,
    plan: &Plan,
    watch: impl FnMut(u32, &str) -> bool,
) -> Result<Report, Error> {
    let cases = cases(suite, plan);
    if cases.is_empty() {
        return Err(plan.common.no_row(if plan.quick { " of --quick" } else { "" }));
    }
    plan.common.check()?;
    if suite == Suite::Verbs {
        verbs::check(plan)?;
    }
    NetNs::new_anonymous()?;
    // Early enough that a lab is removed by the limit.
    let deadline = plan.quick.then(|| Instant::now() + QUICK_LIMIT - REMOVAL);
    let start = Instant::now();
    let names: Vec<String> = cases.iter().map(|case| case.name.to_owned()).collect();
    let (taken, interrupted) =
        samples(plan.rounds, &names, watch, |n| take(plan, cases[n], deadline));
    let rows = cases.iter().zip(&taken).flat_map(|(case, taken)| Row::of_case(case, taken));
    let (date, command) = origin()?;
    Ok(Report {
        machine: Machine::this(),
        date,
        command,
        plan: plan.clone(),
        seconds: start.elapsed().as_secs_f64(),
        interrupted,
        rows: rows.filter(|row| plan.common.wants(&row.name)).collect(),
    })
}

/// One sample of `case`.
fn take(plan: &Plan, case: &Case, deadline: Option<Instant>) -> Taken {
    let needed = Duration::from_secs(case.seconds.into());
    if deadline.is_some_and(|deadline| Instant::now() + needed > deadline) {
        return Taken::NotRun(format!("no time is left for its {} s", case.seconds));
    }
    let watch = Watch::start();
    let stage = Stage::new(plan, watch.followed().clone(), deadline);
    let values = (case.take)(&stage);
    let host = watch.end();
    match values {
        Ok(values) => Taken::Values(values, host),
        Err(why) => match why.downcast_ref() {
            Some(Fault::NoTool(why)) => Taken::Skipped(why.clone()),
            Some(Fault::WrongData(why)) => Taken::Wrong(why.clone(), host),
            None if stage.is_over() => Taken::NotRun(format!("its time was over: {why}")),
            None => Taken::Failed(why.to_string(), host),
        },
    }
}

/// The cases of `plan`.
fn cases(suite: Suite, plan: &Plan) -> Vec<&'static Case> {
    let all = if suite == Suite::Real { &cases::ALL[..] } else { &verbs::ALL };
    let is_wanted = |case: &&Case| {
        (!plan.quick || case.quick) && case.names().any(|name| plan.common.wants(&name))
    };
    all.iter().filter(is_wanted).collect()
}

/// The limit of a quick run.
const QUICK_LIMIT: Duration = Duration::from_secs(60);
/// Time to remove the last lab.
const REMOVAL: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::options;

    fn plan(only: Option<&str>, quick: bool) -> Plan {
        let mut plan: Plan = options(&["--spanwire", "/nonexistent/spanwire"]).unwrap();
        plan.common.only = only.map(str::to_owned);
        Plan { rounds: 1, quick, ..plan }
    }

    #[test]
    fn cases__are_selected_by_the_names_of_their_rows() {
        let all = cases(Suite::Real, &plan(None, false)).len();
        let quick = cases(Suite::Real, &plan(None, true));
        assert!(all > quick.len() && !quick.is_empty());
        let by_row = cases(Suite::Real, &plan(Some("RTT over IPv6"), false));
        assert!(!by_row.is_empty() && by_row.len() < all);
        assert!(cases(Suite::Real, &plan(Some("no such row"), false)).is_empty());
    }

    #[test]
    fn cases__of_a_quick_run_fit_into_a_minute() {
        for suite in [Suite::Real, Suite::Verbs] {
            let cases = cases(suite, &plan(None, true));
            let seconds: u32 = cases.iter().map(|case| case.seconds).sum();
            assert!(Duration::from_secs(seconds.into()) <= QUICK_LIMIT - REMOVAL, "{seconds} s");
        }
    }

    #[test]
    fn run__errors_name_the_remedy() {
        let why = run(Suite::Real, &plan(Some("no such row"), true), |_, _| false)
            .unwrap_err()
            .to_string();
        assert!(why.contains("no such row") && why.contains("--quick"), "{why}");
        let why = run(Suite::Real, &plan(None, false), |_, _| false).unwrap_err().to_string();
        assert!(why.contains("--spanwire sets its path"), "{why}");
    }

    #[test]
    fn take__without_enough_time_it_does_not_start() {
        let case = &cases::ALL[0];
        let taken = take(&plan(None, true), case, Some(Instant::now()));
        assert!(matches!(taken, Taken::NotRun(_)), "{taken:?}");
    }
}
