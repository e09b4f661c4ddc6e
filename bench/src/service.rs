//! Requests and replies, and bulk data, over `stream` as an application uses it, over verbs, and
//! over kernel TCP.
//!
//! Client and server are processes of their own in two namespaces with a veth pair between them.
//! Each transport is used as its user would, with defaults, and no thread is pinned. The client
//! verifies every reply, and the number of requests is that of both ends.

mod blocking;
mod bulk;
mod calls;
mod case;
mod content;
mod copy;
mod end;
mod epoll;
mod exchange;
mod measure;
mod plan;
mod report;
mod schedule;
mod stream;
mod task;
mod tcp;
mod verbs;

pub use end::run_end;
pub use plan::Plan;
pub use report::{Report, Row, Value};

use crate::machine::Machine;
use crate::rounds::samples;
use crate::sample::Error;
use case::Subject;
use measure::Lab;
use report::Taken;
use std::time::{Duration, Instant};

/// Measures all of `plan`, round by round, every other one in reverse order. `watch` receives the
/// round and the row and ends the run by returning true. The report then has the samples before.
///
/// # Errors
/// The command of `copy` does not exist, there is no privilege, or no memory for its file. A
/// sample that fails is in the report.
pub fn run(plan: &Plan, watch: impl FnMut(u32, &str) -> bool) -> Result<Report, Error> {
    if plan.needs_spanwire() {
        plan.common.check()?;
    }
    let start = Instant::now();
    let deadline = plan.quick.then(|| start + QUICK_LIMIT);
    let lab = Lab::new(plan, deadline)?;
    let subjects = plan.subjects();
    let names: Vec<String> = subjects.iter().map(Subject::name).collect();
    let (taken, interrupted) =
        samples(plan.rounds, &names, watch, |n| take(&lab, subjects[n], deadline));
    Ok(Report {
        machine: Machine::this(),
        plan: plan.clone(),
        seconds: start.elapsed().as_secs_f64(),
        interrupted,
        rows: rows(&subjects, &taken),
    })
}

/// One sample.
fn take(lab: &Lab<'_>, subject: Subject, deadline: Option<Instant>) -> Taken {
    let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if is_over() {
        return Taken::NotRun;
    }
    match lab.sample(subject) {
        Ok(values) => Taken::Values(values),
        Err(_) if is_over() => Taken::NotRun,
        Err(why) => Taken::Failed(why.to_string()),
    }
}

fn rows(subjects: &[Subject], taken: &[Vec<Taken>]) -> Vec<Row> {
    let samples_of = |subject: Subject| {
        let n = subjects.iter().position(|known| *known == subject);
        n.map_or(&[][..], |n| &taken[n])
    };
    let row = |(subject, taken): (&Subject, &Vec<Taken>)| {
        Row::new(*subject, taken, samples_of(subject.reference()))
    };
    subjects.iter().zip(taken).map(row).collect()
}

/// The limit of a quick run, without the time in which its processes end.
const QUICK_LIMIT: Duration = Duration::from_secs(58);
