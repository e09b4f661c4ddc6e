//! Payload over time, of one flow.

use crate::sample::Error;
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Payload that one flow delivered.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Goodput {
    /// Seconds since 1970 at the first byte.
    pub(crate) start_unix_s: f64,
    /// Payload bits a second over the whole run.
    pub(crate) bps: f64,
    /// Consecutive intervals of the run.
    pub(crate) intervals: Vec<Interval>,
}

/// The payload of an interval.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub(crate) struct Interval {
    /// Its begin in seconds since the first byte.
    pub(crate) start_s: f64,
    /// Its end.
    pub(crate) end_s: f64,
    /// Payload bytes.
    pub(crate) bytes: u64,
}

impl Goodput {
    /// A run with this many bytes in each tenth of a second.
    #[cfg(test)]
    pub(crate) fn of_tenths(start_unix_s: f64, tenths: &[u64]) -> Self {
        let interval = |(n, bytes): (usize, &u64)| {
            let [start_s, end_s] = [n, n + 1].map(|n| n as f64 / 10.0);
            Interval { start_s, end_s, bytes: *bytes }
        };
        let intervals = tenths.iter().enumerate().map(interval).collect();
        Self { start_unix_s, bps: 0.0, intervals }
    }

    /// Removes the intervals after `time`, in which outstanding requests complete and no more are
    /// posted.
    pub(crate) fn end_at(&mut self, time: Duration) {
        let end_s = time.as_secs_f64() + LATE_S;
        self.intervals.retain(|interval| interval.end_s <= end_s);
    }

    /// The end of the last interval in seconds since 1970.
    pub(crate) fn end_unix_s(&self) -> f64 {
        self.start_unix_s + self.intervals.last().map_or(0.0, |last| last.end_s)
    }

    /// Mean payload bits a second between two times in seconds since 1970. An interval that is only
    /// in part between them counts in proportion.
    pub(crate) fn mean_bps(&self, from_unix_s: f64, to_unix_s: f64) -> f64 {
        let (from, to) = (from_unix_s - self.start_unix_s, to_unix_s - self.start_unix_s);
        if to <= from {
            return 0.0;
        }
        let bits = self.intervals.iter().map(|i| {
            let within = (i.end_s.min(to) - i.start_s.max(from)).max(0.0);
            i.bytes as f64 * 8.0 * within / (i.end_s - i.start_s).max(f64::MIN_POSITIVE)
        });
        bits.sum::<f64>() / (to - from)
    }

    /// The lowest mean of any second, in payload bits a second. None if the run is shorter.
    pub(crate) fn least_second_bps(&self) -> Option<f64> {
        let end = self.end_unix_s();
        let seconds = self
            .intervals
            .iter()
            .map(|i| self.start_unix_s + i.start_s)
            .filter(|start| start + 1.0 <= end + ROUNDING_S)
            .map(|start| self.mean_bps(start, start + 1.0));
        seconds.min_by(f64::total_cmp)
    }
}

/// Seconds since 1970.
pub(crate) fn unix_s() -> Result<f64, Error> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// The last half of the time that all flows have in common, in seconds since 1970.
pub(crate) fn common_half<'a>(flows: impl Iterator<Item = &'a Goodput> + Clone) -> (f64, f64) {
    let from = flows.clone().map(|flow| flow.start_unix_s).fold(0.0, f64::max);
    let to = flows.map(Goodput::end_unix_s).fold(f64::INFINITY, f64::min);
    (f64::midpoint(from, to), to)
}

/// Intervals of a tenth of a second do not add up to exactly one.
const ROUNDING_S: f64 = 1e-3;

/// Half of an interval of a tenth of a second, by which the last one may end late.
const LATE_S: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tenths: &[u64]) -> Goodput {
        Goodput::of_tenths(1000.0, tenths)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn mean_bps__cuts_intervals_in_proportion() {
        let run = run(&[100, 300]);
        assert!(close(run.end_unix_s(), 1000.2));
        assert!(close(run.mean_bps(1000.0, 1000.2), 16_000.0));
        assert!(close(run.mean_bps(1000.05, 1000.15), 16_000.0));
        assert!(close(run.mean_bps(1000.1, 1000.2), 24_000.0));
        assert!(close(run.mean_bps(1000.1, 1000.1), 0.0));
    }

    #[test]
    fn mean_bps__a_flow_that_has_ended_delivers_nothing() {
        assert!(close(run(&[100; 10]).mean_bps(1000.5, 1001.5), 4_000.0));
    }

    #[test]
    fn end_at__what_completes_after_the_end_does_not_count() {
        let mut tenths = [1000; 25];
        tenths[20..].fill(1);
        let mut run = run(&tenths);
        run.end_at(Duration::from_secs(2));
        assert_eq!(run.intervals.len(), 20);
        assert!(close(run.least_second_bps().unwrap(), 80_000.0));
    }

    #[test]
    fn least_second_bps__finds_a_stall_across_the_seconds() {
        let mut tenths = [1000; 30];
        tenths[5..15].fill(10);
        assert!(close(run(&tenths).least_second_bps().unwrap(), 800.0));
        assert!(close(run(&[1000; 10]).least_second_bps().unwrap(), 80_000.0));
        assert_eq!(run(&[1000; 9]).least_second_bps(), None);
    }
}
