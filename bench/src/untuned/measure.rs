//! One sample: an algorithm on the path and with the traffic of a case.

use super::algorithm::Algorithm;
use super::case::{Case, Flow, Measure, Path, Traffic};
use super::lab::{Ends, Lab};
use super::perf::{Perf, Run};
use super::plan::Plan;
use crate::bed::{common_half, mean, queue_bytes};
use crate::sample::Error;
use crate::spin::Spinners;
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Duration;

/// The readings of one sample.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// Payload of each flow in 10^6 bits a second: of one flow over its whole time, of several over
    /// the last half of their common time.
    pub mbps: Vec<f64>,
    /// The lowest second of the only flow.
    pub least_second_mbps: Option<f64>,
    /// Seconds from the end of the traffic to the exit of `perf`, the most of all flows.
    pub overrun_s: Option<f64>,
    /// Mean queue of the shared port in the last half of the common time.
    pub queue_bytes: Option<f64>,
}

impl Plan {
    /// Measures `case` with `algorithm` in `lab`, whose lines have been set.
    pub(super) fn measure(
        &self,
        lab: &Lab,
        case: &Case,
        algorithm: Algorithm,
    ) -> Result<Reading, Error> {
        let seconds = self.seconds;
        match case.traffic {
            Traffic::One(flow) => self.one(lab, flow, algorithm, self.seconds_on(case, algorithm)),
            Traffic::Several { flows, far_delay_us } => {
                let members: Result<Vec<_>, Error> =
                    (1..=flows).map(|n| self.member(lab, n, algorithm)).collect();
                let times = if far_delay_us.is_some() { LONG_TIMES } else { COMMON_TIMES };
                self.several(lab, &members?, seconds * times)
            }
            Traffic::Beside(other) => {
                let members = [self.member(lab, 1, algorithm)?, self.member(lab, 2, other)?];
                self.several(lab, &members, seconds * LONG_TIMES)
            }
        }
    }

    /// Turns in which a sample is taken: several of `auto` and of `none` on the cable. The cores
    /// are the bottleneck there, and rates of one process differ by a tenth from those of the next.
    pub(super) fn turns(&self, case: &Case, algorithm: Algorithm) -> u32 {
        let is_compared = !matches!(algorithm, Algorithm::Other(_) | Algorithm::Tcp(_));
        let by_cores = case.path == Path::Cable && case.measure == Measure::ShareOfNone;
        if by_cores && is_compared && !self.quick { TURNS } else { 1 }
    }

    /// Seconds of a sample of one flow, or of its turn: with a long round trip, startup would be
    /// most of it.
    fn seconds_on(&self, case: &Case, algorithm: Algorithm) -> f64 {
        match case.path {
            _ if self.quick => self.seconds,
            Path::Cable if self.turns(case, algorithm) > 1 => self.seconds / 2.0,
            Path::Cable => self.seconds,
            Path::Line(line) => self.seconds.max(2e-6 * line.delay_us as f64 * TRIPS_MIN),
        }
    }

    fn one(
        &self,
        lab: &Lab,
        flow: Flow,
        algorithm: Algorithm,
        seconds: f64,
    ) -> Result<Reading, Error> {
        let time = Duration::from_secs_f64(seconds);
        let ends = lab.ends()?;
        let spinners = flow.busy.then(|| Spinners::start(CORES)).transpose()?;
        let perf = Perf { algorithm, flow };
        let server = perf.serve(&lab.bed, &ends)?;
        let run = perf.run(&lab.bed, &ends, time);
        drop((server, spinners));
        let Run { goodput, overrun_s } = run?;
        Ok(Reading {
            mbps: vec![goodput.bps / 1e6],
            least_second_mbps: goodput.least_second_bps().map(|bps| bps / 1e6),
            overrun_s,
            queue_bytes: None,
        })
    }

    /// Flow `n` of a star, 1 and up.
    fn member(&self, lab: &Lab, n: u32, algorithm: Algorithm) -> Result<(Perf, Ends), Error> {
        let mut ends = Lab::star_ends(n);
        if algorithm.is_tcp() {
            // TCP needs no interface of its own, other than AF_XDP.
            ends.to = ("a".to_owned(), lab.bed.address("a")?);
        }
        Ok((Perf { algorithm, flow: Flow::WRITE }, ends))
    }

    /// Runs `members`, which start one by one and then run together for `common_s`.
    fn several(
        &self,
        lab: &Lab,
        members: &[(Perf, Ends)],
        common_s: f64,
    ) -> Result<Reading, Error> {
        let apart_s = self.seconds * APART_TIMES;
        let serve = |(perf, ends): &(Perf, Ends)| perf.serve(&lab.bed, ends);
        let _servers = members.iter().map(serve).collect::<Result<Vec<_>, Error>>()?;
        let show = ["switch", "ctl", "--lab", lab.bed.name(), "--json", "show", "--interval"];
        let sampler = lab.bed.spanwire_here(&[&show[..], &["0.05"]].concat())?;
        let last = members.len().saturating_sub(1);
        let runs: Result<Vec<Run>, Error> = thread::scope(|scope| {
            let start = |(n, (perf, ends)): (usize, &'_ (Perf, Ends))| {
                let (bed, perf, ends) = (&lab.bed, *perf, ends.clone());
                let wait = Duration::from_secs_f64(apart_s * n as f64);
                let time = Duration::from_secs_f64(common_s + apart_s * (last - n) as f64);
                scope.spawn(move || {
                    thread::sleep(wait);
                    perf.run(bed, &ends, time)
                })
            };
            let started: Vec<_> = members.iter().enumerate().map(start).collect();
            started.into_iter().map(|flow| flow.join().expect("a flow does not panic")).collect()
        });
        Ok(Reading::of_several(&runs?, &sampler.kill()))
    }
}

impl Reading {
    /// The reading of a sample of one flow that was taken in turns: at least one.
    pub(super) fn mean(turns: &[Self]) -> Self {
        if let [only] = turns {
            return only.clone();
        }
        let mbps: f64 = turns.iter().flat_map(|turn| &turn.mbps).sum();
        let seconds = turns.iter().filter_map(|turn| turn.least_second_mbps);
        let overruns = turns.iter().filter_map(|turn| turn.overrun_s);
        Self {
            mbps: vec![mbps / turns.len() as f64],
            least_second_mbps: seconds.min_by(f64::total_cmp),
            overrun_s: overruns.max_by(f64::total_cmp),
            queue_bytes: None,
        }
    }

    /// The reading of several flows, with the switch's reports as lines of JSON.
    fn of_several(runs: &[Run], switch: &[String]) -> Self {
        let half = common_half(runs.iter().map(|run| &run.goodput));
        let overruns = runs.iter().filter_map(|run| run.overrun_s);
        Self {
            mbps: runs.iter().map(|run| run.goodput.mean_bps(half.0, half.1) / 1e6).collect(),
            least_second_mbps: None,
            overrun_s: overruns.max_by(f64::total_cmp),
            queue_bytes: mean(&queue_bytes(switch, "a", half)),
        }
    }
}

/// Time between the starts of two flows, as a multiple of a sample's duration.
const APART_TIMES: f64 = 0.125;
/// Turns of a sample on the cable.
const TURNS: u32 = 5;
/// Round trips of a sample.
const TRIPS_MIN: f64 = 100.0;
/// Common time of several flows, likewise.
const COMMON_TIMES: f64 = 2.0;
/// Common time of flows that converge slowly, likewise: 20 s by default.
const LONG_TIMES: f64 = 5.0;

/// The cores of the machine for which the bars are set.
const CORES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::Goodput;

    fn run(start_unix_s: f64, tenths: &[u64], overrun_s: Option<f64>) -> Run {
        Run { goodput: Goodput::of_tenths(start_unix_s, tenths), overrun_s }
    }

    #[test]
    fn mean__of_turns() {
        let turn = |mbps: f64, second: f64, overrun: f64| Reading {
            mbps: vec![mbps],
            least_second_mbps: Some(second),
            overrun_s: Some(overrun),
            queue_bytes: None,
        };
        let turns = [turn(900.0, 800.0, 0.2), turn(1100.0, 700.0, 0.1)];
        assert_eq!(Reading::mean(&turns), turn(1000.0, 700.0, 0.2));
        let several =
            Reading { mbps: vec![1.0, 2.0], queue_bytes: Some(5.0), ..turn(0.0, 0.0, 0.0) };
        assert_eq!(Reading::mean(std::slice::from_ref(&several)), several);
    }

    #[test]
    fn of_several__counts_the_last_half_of_the_common_time() {
        // Common: from 100.2 to 100.6. Its last half has intervals 4 and 5 of the first flow.
        let early = run(100.0, &[9_000_000, 0, 0, 0, 25_000, 50_000], Some(0.2));
        let late = run(100.2, &[0, 0, 12_500, 12_500, 9_000_000], Some(0.4));
        let line = |at: f64, bytes: u64| {
            format!(r#"{{"at_unix_s": {at}, "ports": [{{"name": "a", "queue_bytes": {bytes}}}]}}"#)
        };
        let switch = [line(100.1, 5), line(100.45, 100), line(100.55, 300), line(100.7, 5)];
        let reading = Reading::of_several(&[early, late], &switch);
        assert!((reading.mbps[0] - 3.0).abs() < 1e-3, "{reading:?}");
        assert!((reading.mbps[1] - 1.0).abs() < 1e-3, "{reading:?}");
        assert_eq!((reading.overrun_s, reading.queue_bytes), (Some(0.4), Some(200.0)));
    }
}
