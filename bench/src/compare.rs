//! `compare`: the engine beside raw AF_XDP, raw UDP and kernel TCP, in one interleaved run.
//!
//! Each round has one sample of every row, in an order that rotates, so that slow periods and drift
//! of the machine affect all alike. Ratios are those of the same round.

mod chart;
mod cpu;
mod flow;
mod lab;
mod plan;
mod report;
mod subject;
mod writer;

pub use chart::svg;
pub use lab::PING_BYTES;
pub use plan::{LINK_MTU_MAX, LINK_MTU_MIN, LINK_MTUS, Plan, Variant};
pub use report::{CpuRow, LatencyRow, RateRow, Report, Share, Tally};
pub use subject::{Control, Fabric, Flow, Paced, Subject};

use crate::quiet::{Disturbance, Stolen, core_distance_ns};
use crate::rounds::interleaved;
use crate::sample::{Error, Reading, Sample};
use lab::Lab;
use spanwire_base::usize_from;
use spanwire_io::affinity;
use std::time::{Duration, Instant};

/// The samples of a variant.
#[derive(Clone, Debug)]
pub struct Series {
    /// The variant.
    pub variant: Variant,
    /// One reading a round, `None` if every attempt was disturbed, or the sample failed.
    pub rounds: Vec<Option<Reading>>,
    /// The reasons of dropped samples, in order.
    pub dropped: Vec<Disturbance>,
    /// The errors of failed samples, in order.
    pub failures: Vec<String>,
    /// The reason why no sample is possible on this link.
    pub impossible: Option<String>,
    /// Rounds without a sample: no time was left, or the run was interrupted.
    pub not_run: usize,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The variants in the order of the first round.
    pub series: Vec<Series>,
    /// The cores' distance before and after every attempt, dropped ones too, in nanoseconds.
    pub distances_ns: Vec<f64>,
    /// The duration of the run.
    pub seconds: f64,
    /// The run was interrupted: the samples are those before.
    pub interrupted: bool,
}

/// Makes the run. `watch` receives the next variant and ends the run by returning true.
///
/// # Errors
/// No privilege, fewer than two cores, or the state of a core cannot be read. A sample that fails
/// is in the results.
pub fn run(plan: &Plan, mut watch: impl FnMut(u32, &str) -> bool) -> Result<Results, Error> {
    let variants = plan.variants()?;
    let usable = affinity::usable_cores();
    let [a, b] = plan.cores();
    if ![a, b].iter().all(|core| usable.contains(core)) || a == b {
        return Err(format!("needs two cores, {a} and {b}; usable are {usable:?}").into());
    }
    let start = Instant::now();
    let labs =
        plan.link_mtus.iter().map(|mtu| Lab::new(*mtu)).collect::<Result<Vec<Lab>, Error>>()?;
    let lab_of = |variant: Variant| {
        let lab = labs.iter().find(|lab| lab.link_mtu() == variant.link_mtu);
        lab.expect("every variant's MTU has a lab")
    };
    let series = |variant: &Variant| {
        let series = Series::new(*variant, vec![None; usize_from(plan.rounds.into())]);
        Series { impossible: lab_of(*variant).obstacle(variant.subject), ..series }
    };
    let mut results =
        Results { series: variants.iter().map(series).collect(), ..Results::default() };
    for (round, n) in interleaved(plan.rounds, variants.len()) {
        let (variant, series) = (variants[n], &mut results.series[n]);
        if plan.quick && start.elapsed() > QUICK_LIMIT {
            break;
        }
        if series.impossible.is_some() {
            continue;
        }
        let at = format!("{}, MTU {}", variant.subject.name(), variant.link_mtu);
        if watch(round, &at) {
            results.interrupted = true;
            break;
        }
        let measure = || lab_of(variant).measure(plan, variant);
        series.take(plan, round, measure, &mut results.distances_ns)?;
    }
    results.seconds = start.elapsed().as_secs_f64();
    Ok(results)
}

impl Series {
    /// A series with these readings; the rounds without one have not run.
    fn new(variant: Variant, rounds: Vec<Option<Reading>>) -> Self {
        let (dropped, failures, impossible) = (Vec::new(), Vec::new(), None);
        let not_run = rounds.iter().filter(|round| round.is_none()).count();
        Self { variant, rounds, dropped, failures, impossible, not_run }
    }

    /// Takes the sample of a round.
    fn take(
        &mut self,
        plan: &Plan,
        round: u32,
        measure: impl FnMut() -> Result<Sample, Error>,
        distances_ns: &mut Vec<f64>,
    ) -> Result<(), Error> {
        match attempt(plan, measure, distances_ns, &mut self.dropped)? {
            Ok(reading) => self.rounds[usize_from(round.into())] = reading,
            Err(why) => self.failures.push(why.to_string()),
        }
        self.not_run -= 1;
        Ok(())
    }
}

/// Measures until a sample is undisturbed, has failed, or the plan's retries are used up.
fn attempt(
    plan: &Plan,
    mut measure: impl FnMut() -> Result<Sample, Error>,
    distances_ns: &mut Vec<f64>,
    dropped: &mut Vec<Disturbance>,
) -> Result<Result<Option<Reading>, Error>, Error> {
    for _ in 0..=plan.repeats {
        let before = settled_distance_ns(plan)?;
        distances_ns.push(before);
        let untouched = [Stolen::default(); 2];
        if let Some(why) = plan.limits.check([before; 2], untouched) {
            // Known to be disturbed: not measured.
            dropped.push(why);
            continue;
        }
        let sample = match measure() {
            Ok(sample) => sample,
            Err(why) => return Ok(Err(why)),
        };
        let after = core_distance_ns(plan.cores())?;
        distances_ns.push(after);
        match plan.limits.check([before, after], sample.stolen) {
            None => return Ok(Ok(Some(sample.reading))),
            Some(why) => dropped.push(why),
        }
    }
    Ok(Ok(None))
}

/// The cores' distance once it is within the limit, or after the plan's wait.
fn settled_distance_ns(plan: &Plan) -> Result<f64, Error> {
    let start = Instant::now();
    loop {
        let distance_ns = core_distance_ns(plan.cores())?;
        let waited = start.elapsed() >= Duration::from_millis(plan.wait_ms);
        if distance_ns <= plan.limits.distance_ns || waited {
            return Ok(distance_ns);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The limit of a quick run, without the time of its last sample.
const QUICK_LIMIT: Duration = Duration::from_secs(55);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Rate;
    use crate::testing::options;

    fn sample(gbps: f64, stolen: f64) -> Sample {
        Sample {
            reading: Reading::Rate(Rate { goodput_gbps: gbps, ..Rate::default() }),
            stolen: [Stolen(stolen), Stolen(0.0)],
        }
    }

    #[test]
    fn run__one_core_for_both_is_rejected() {
        let core = affinity::usable_cores()[0];
        let plan = Plan { cores: vec![core, core], ..options(&[]).unwrap() };
        assert!(run(&plan, |_, _| false).is_err());
    }

    #[test]
    fn attempt__retries_disturbed_samples_up_to_the_limit() {
        let [a, b, ..] = affinity::usable_cores()[..] else {
            eprintln!("SKIPPED: one core only");
            return;
        };
        let mut plan = Plan { repeats: 2, cores: vec![a, b], ..options(&[]).unwrap() };
        plan.limits.distance_ns = f64::INFINITY;
        let (mut distances, mut dropped) = (Vec::new(), Vec::new());
        let mut script = [sample(1.0, 0.9), sample(2.0, 0.0)].into_iter();
        let measure = || Ok(script.next().unwrap());
        let kept = attempt(&plan, measure, &mut distances, &mut dropped).unwrap().unwrap();
        assert_eq!(kept, Some(sample(2.0, 0.0).reading));
        assert_eq!(dropped, [Disturbance::Stolen]);
        assert_eq!(distances.len(), 4);

        dropped.clear();
        let always = || Ok(sample(1.0, 0.9));
        let kept = attempt(&plan, always, &mut distances, &mut dropped).unwrap().unwrap();
        assert_eq!(kept, None);
        assert_eq!(dropped.len(), 3);

        plan.limits.distance_ns = 0.0;
        dropped.clear();
        let never = || panic!("a disturbed sample is not measured");
        let apart = attempt(&plan, never, &mut distances, &mut dropped);
        assert_eq!(apart.unwrap().unwrap(), None);
        assert_eq!(dropped, [Disturbance::CoresApart; 3]);
    }

    #[test]
    fn take__a_failed_sample_is_reported_and_not_taken_again() {
        let [a, b, ..] = affinity::usable_cores()[..] else {
            eprintln!("SKIPPED: one core only");
            return;
        };
        let mut plan = Plan { cores: vec![a, b], ..options(&[]).unwrap() };
        plan.limits.distance_ns = f64::INFINITY;
        let variant = plan.variants().unwrap()[0];
        let mut series = Series::new(variant, vec![None; 2]);
        let mut calls = 0;
        let measure = || {
            calls += 1;
            Err("bytes differ".into())
        };
        series.take(&plan, 0, measure, &mut Vec::new()).unwrap();
        assert_eq!((calls, series.failures), (1, vec!["bytes differ".to_owned()]));
        assert_eq!((series.rounds, series.not_run), (vec![None; 2], 1));
    }
}
